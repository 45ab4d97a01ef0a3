//! The inputs and outputs of a virtual socket.

use crate::claims::Claim;

/// One frame to send. The engine adds the handle and, to [`Transmit::Data`], the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Requests the connection (NCSYN). `limit` is the first window: the sequence up to which the peer may send.
    Open {
        /// First sequence that the peer may not send yet.
        limit: u64,
    },
    /// Accepts the connection (NCSYN_ACK), with the first window.
    Answer {
        /// First sequence that the peer may not send yet.
        limit: u64,
    },
    /// Bytes of the program's transmit ring.
    Data {
        /// Sequence of the first byte.
        sequence: u64,
        /// The number of bytes: at least 1, at most the budget.
        length: u32,
    },
    /// An acknowledgement and a window.
    Window(Window),
    /// No byte follows.
    Fin {
        /// Sequence after the last byte.
        sequence: u64,
    },
    /// The connection has ended at once.
    Reset {
        /// The reason.
        reason: Reason,
    },
}

/// An acknowledgement and a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// All bytes before this sequence are placed.
    pub filled: u64,
    /// First sequence that the peer may not send yet.
    pub limit: u64,
    /// The Fin has been received, and all bytes before it.
    pub fin: bool,
    /// The peer must answer with a Window that does not ask.
    pub ask: bool,
    /// Bytes beyond `filled` had come and were forgotten: all unacknowledged bytes must be sent again.
    pub again: bool,
}

/// Why a connection was refused or reset, with the error a program sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Refused: there is no listener. ECONNREFUSED.
    NoListener,
    /// Refused: the listener's backlog is full. ECONNREFUSED, if there is no time to try again.
    BacklogFull,
    /// Refused: the configuration does not allow it. ECONNREFUSED.
    NotAllowed,
    /// Refused: a quota is exhausted. ECONNREFUSED.
    Quota,
    /// Refused: the listener takes kernel TCP only.
    KernelOnly,
    /// The program has reset it: linger of zero, unread bytes at its end, or bytes for a program that has closed.
    /// ECONNRESET.
    Aborted,
    /// The program ended without closing. ECONNRESET.
    ProgramEnded,
    /// The peer's daemon violated the protocol. ECONNRESET.
    Violation,
    /// The program broke the rules of shared memory. ECONNRESET.
    ProgramFault,
    /// The daemon shuts down, or gives the connection up. ECONNRESET.
    Ending,
    /// No answer in time. ETIMEDOUT.
    TimedOut,
    /// The handle names no living connection. ECONNRESET.
    NoSocket,
    /// Known on this side only: the peer's daemon has restarted. ECONNRESET.
    Restarted,
    /// Known on this side only: there was no channel to the peer for too long. ETIMEDOUT.
    Unreachable,
}

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both directions ended, or the program had closed and the peer did not end its direction in time.
    Finished,
    /// The peer reset or refused it.
    Reset(Reason),
    /// This side has given it up.
    Aborted(Reason),
}

/// The state of a connection; see the figure of the crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Requested; the peer has not answered.
    Opening,
    /// The peer requests it; neither accepted nor refused yet.
    Deciding,
    /// Established.
    Established,
    /// Ended. [`crate::VirtualSocket::is_finished`] tells when nothing is left to send.
    Closed(End),
}

/// The state of TCP, for TCP_INFO and `netchannel ss`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are TCP's, RFC 9293 section 3.3.2")]
pub enum TcpState {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    Closed,
}

/// The first sequences of a connection, and its first receive window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Sequence of the first byte sent.
    pub transmit: u64,
    /// Sequence of the first byte received.
    pub receive: u64,
    /// The size of the ring in which received bytes are placed. More than [`crate::MOST_WINDOW`] counts as that.
    pub capacity: u64,
}

/// What to do with arriving bytes.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Placement {
    /// Skip `skip` bytes, write the next `length` bytes at `sequence`, and ignore the rest. Report by
    /// [`crate::VirtualSocket::placed`], and end with [`crate::VirtualSocket::finish`].
    Write {
        /// Bytes at the beginning of the segment that were received before.
        skip: u32,
        /// The place of the first byte to write.
        sequence: u64,
        /// The number of bytes to write, at least 1.
        length: u32,
        /// Keeps the place of these bytes from being used again until it is finished.
        claim: Claim,
    },
    /// Ignore the segment: nothing in it is new, there is no room to remember it, or no program to give it to.
    Discard,
}

/// How a program closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linger {
    /// Send the remaining bytes in the background.
    Background,
    /// The same; for this many nanoseconds the program waits for the delivery.
    Wait(u64),
    /// Reset (linger of zero).
    Abort,
}

/// A violation of the protocol by the peer. The connection is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// Bytes or an end beyond the window.
    WindowExceeded,
    /// A sequence before the start of the stream, or 2^63 away.
    BeforeStart,
    /// An acknowledgement of bytes that were not sent.
    AcknowledgesUnsent,
    /// A window smaller than an earlier one, or larger than [`crate::MOST_WINDOW`].
    WindowInvalid,
    /// Bytes after the end.
    DataAfterEnd,
    /// An end before received bytes, or another end than before.
    EndMoved,
    /// Frames of a connection that was not accepted.
    NotOpen,
}

/// The program's side wrote an invalid index. The engine should [`crate::VirtualSocket::abort`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// The changes since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes(u8);

impl Changes {
    /// The peer has answered, or the connection was accepted.
    pub const ESTABLISHED: Self = Self(1);
    /// [`crate::VirtualSocket::acknowledged`] has moved: the program has room.
    pub const ACKNOWLEDGED: Self = Self(2);
    /// [`crate::VirtualSocket::frontier`] has moved: the program can read.
    pub const FRONTIER: Self = Self(4);
    /// The peer's direction has ended, and all its bytes are placed.
    pub const AT_END: Self = Self(8);
    /// The state is now Closed.
    pub const CLOSED: Self = Self(16);
    /// The delivery for which the program lingers is complete, or its time is over.
    pub const LINGER_OVER: Self = Self(32);

    /// Whether nothing has changed.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` is included.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// The counters of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes sent again, after a loss or by a probe.
    pub bytes_repeated: u64,
    /// Bytes received that were placed before.
    pub bytes_duplicate: u64,
    /// Bytes refused or forgotten because there were too many ranges out of order; the peer sends them again.
    pub bytes_dropped: u64,
    /// Times that the peer was silent and a frame was sent again.
    pub probes: u64,
    /// Windows sent.
    pub windows: u64,
}
