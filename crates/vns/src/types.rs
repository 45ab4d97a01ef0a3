//! What goes in and out of a virtual socket.

use crate::claims::Claim;

/// One frame to send. The engine adds the handle and, to [`Transmit::Data`], the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Ask for the connection (NCSYN). `limit` is the first window: the sequence the peer may send up to.
    Open {
        /// First sequence that the peer may not send yet.
        limit: u64,
    },
    /// The connection is made (NCSYN_ACK), with the first window.
    Answer {
        /// First sequence that the peer may not send yet.
        limit: u64,
    },
    /// Bytes of the program's transmit ring.
    Data {
        /// Sequence of the first byte.
        sequence: u64,
        /// Bytes, at least 1, at most the budget that was asked for.
        length: u32,
    },
    /// What has arrived, and what may be sent.
    Window(Window),
    /// No byte follows.
    Fin {
        /// Sequence after the last byte.
        sequence: u64,
    },
    /// It is over, at once.
    Reset {
        /// Why.
        reason: Reason,
    },
}

/// What has arrived, and what may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// All bytes before it are placed.
    pub filled: u64,
    /// First sequence that the peer may not send yet.
    pub limit: u64,
    /// The Fin has come too, and all bytes before it.
    pub fin: bool,
    /// The peer is to answer with a Window that does not ask.
    pub ask: bool,
    /// Bytes beyond `filled` had come and were not remembered: all that is not acknowledged is to be sent again.
    pub again: bool,
}

/// Why a connection was refused or reset, with the error a program sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Refused: nobody listens there. ECONNREFUSED.
    NoListener,
    /// Refused: the listener's queue is full. ECONNREFUSED, if there is no time to try again.
    BacklogFull,
    /// Refused: the configuration does not allow it. ECONNREFUSED.
    NotAllowed,
    /// Refused: a quota is used up. ECONNREFUSED.
    Quota,
    /// Refused: the listener takes kernel TCP only.
    KernelOnly,
    /// The program reset it: linger of zero, unread bytes at its end, or bytes came for a program that has closed. ECONNRESET.
    Aborted,
    /// The program ended without closing. ECONNRESET.
    ProgramEnded,
    /// The peer's daemon broke the contract. ECONNRESET.
    Violation,
    /// The program broke the rules of shared memory. ECONNRESET.
    ProgramFault,
    /// The daemon ends, or gives the connection up. ECONNRESET.
    Ending,
    /// No answer in time. ETIMEDOUT.
    TimedOut,
    /// The handle names no connection (any more). ECONNRESET.
    NoSocket,
    /// Known on this side only: the peer's daemon began anew. ECONNRESET.
    Restarted,
    /// Known on this side only: no channel to the peer could be had in time. ETIMEDOUT.
    Unreachable,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both directions ended, or the program had closed and the peer did not end its direction in time.
    Finished,
    /// The peer reset or refused it.
    Reset(Reason),
    /// This side gave it up.
    Aborted(Reason),
}

/// Where a connection is in its life; see the crate's picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Asked for; the peer has not answered.
    Opening,
    /// The peer asks; neither accepted nor refused yet.
    Deciding,
    /// Made.
    Established,
    /// Over. [`crate::VirtualSocket::is_finished`] says when nothing is left to say.
    Closed(End),
}

/// The state TCP would call it, for TCP_INFO and `netchannel ss`.
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

/// The sequences a connection begins with and its first receive window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Sequence of the first byte sent.
    pub transmit: u64,
    /// Sequence of the first byte received.
    pub receive: u64,
    /// Bytes of the ring that received bytes are placed in; more than [`crate::MOST_WINDOW`] count as that many.
    pub capacity: u64,
}

/// What to do with bytes that have arrived.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Placement {
    /// Skip `skip` bytes, write the next `length` bytes where `sequence` says, ignore the rest; tell by
    /// [`crate::VirtualSocket::placed`] and end with [`crate::VirtualSocket::finish`].
    Write {
        /// Bytes at the beginning of the segment that are here already.
        skip: u32,
        /// Where the first byte to write belongs.
        sequence: u64,
        /// Bytes to write, at least 1.
        length: u32,
        /// Keeps the place of these bytes from being used for others until it is finished.
        claim: Claim,
    },
    /// Nothing new, no room to remember it, or nobody to give it to: ignore all of the segment.
    Discard,
}

/// How a program closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linger {
    /// Send what is left in the background.
    Background,
    /// The same; for so many nanoseconds the program wants to know when it was delivered.
    Wait(u64),
    /// Reset (linger of zero).
    Abort,
}

/// What a peer did that the protocol forbids. The connection is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// Bytes or an end beyond the window.
    WindowExceeded,
    /// A sequence before the start of the stream, or 2^63 away.
    BeforeStart,
    /// Acknowledges what was not sent.
    AcknowledgesUnsent,
    /// A window smaller than an earlier one, or larger than [`crate::MOST_WINDOW`].
    WindowInvalid,
    /// Bytes after the end.
    DataAfterEnd,
    /// An end before bytes that came, or another end than before.
    EndMoved,
    /// Frames of a connection that was not accepted.
    NotOpen,
}

/// The program's side wrote an index it may not write. The engine should [`crate::VirtualSocket::abort`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// What has changed since it was asked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes(u8);

impl Changes {
    /// The peer has answered, or the connection was accepted.
    pub const ESTABLISHED: Self = Self(1);
    /// [`crate::VirtualSocket::acknowledged`] has moved: the program has room.
    pub const ACKNOWLEDGED: Self = Self(2);
    /// [`crate::VirtualSocket::frontier`] has moved: the program can read.
    pub const FRONTIER: Self = Self(4);
    /// The peer's direction has ended and all its bytes are there.
    pub const AT_END: Self = Self(8);
    /// The state is now Closed.
    pub const CLOSED: Self = Self(16);
    /// What the program lingers for is delivered, or its time is over.
    pub const LINGER_OVER: Self = Self(32);

    /// Whether nothing has changed.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` is among it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// What happened to one connection so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes sent again, after a loss or by a probe.
    pub bytes_repeated: u64,
    /// Bytes received that were here already.
    pub bytes_duplicate: u64,
    /// Bytes refused or forgotten because too much out of order had to be remembered; the peer sends them again.
    pub bytes_dropped: u64,
    /// Times that nothing was heard and something was said again.
    pub probes: u64,
    /// Windows sent.
    pub windows: u64,
}
