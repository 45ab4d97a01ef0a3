//! How bytes are sent and received: the parameters of a call, and their outcomes.

use netchannel_abi::link::side_flags;

/// Most bytes of a blocking call that are never torn by writes of other threads.
pub const WHOLE: usize = 4096;

/// Whether a call waits until all `length` bytes of a buffer fit.
pub const fn goes_whole(length: usize, nonblocking: bool) -> bool {
    !nonblocking && length <= WHOLE
}

/// How bytes are received.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiveMode {
    /// The bytes stay in the ring.
    pub peek: bool,
    /// The bytes are not copied.
    pub discard: bool,
    /// Bytes that the same call received before; a peek continues behind them.
    pub already_received: u64,
    /// Bytes that a peek skips before its first one (`SO_PEEK_OFF`).
    pub offset: u64,
}

/// How marks of urgent bytes are treated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Marks {
    /// There are none; otherwise the call begins anew with `Heeded`.
    Unexpected,
    /// The call ends at a mark, or skips the byte.
    Heeded,
    /// The urgent byte itself is read.
    Ignored,
}

/// Which byte of a send is urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgent {
    /// None of them.
    None,
    /// The last one.
    Last,
    /// The last one, or the last one that fits if not all do.
    LastThatFits,
}

impl Urgent {
    /// `left` bytes are to follow `tail`, and `room` of them fit. Returns how many to send now, and the sequence behind
    /// the urgent byte. One byte is left for a further turn, since there may be room again by then, and the last byte
    /// that fits would be another.
    #[cold]
    pub(super) fn place(self, tail: u64, room: u64, left: u64) -> (u64, u64) {
        match self {
            Self::LastThatFits if room < left && room > 1 => (room - 1, u64::MAX),
            Self::LastThatFits => (room, tail.wrapping_add(room)),
            Self::Last => (room, tail.wrapping_add(left)),
            Self::None => (room, u64::MAX),
        }
    }
}

/// How the peer is notified of bytes that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Announcement {
    /// The peer is notified.
    AtOnce,
    /// The peer is not notified: the bytes are held back with others, of which it was notified.
    Deferred,
    /// The peer is notified, and held-back bytes are released with them.
    ReleaseHeld,
}

/// What a reader does at the mark of an urgent byte.
pub(super) enum AtMark {
    /// The call has bytes: it ends.
    Stop,
    /// The call continues behind so many bytes.
    Skip(u64),
    /// The call reads at most so many bytes.
    UpTo(u64),
}

/// Largest size to which a ring grows by itself while the reader keeps up.
pub(super) const GROWTH_LIMIT_LOG2: u32 = 18;

/// The least count of bytes that is never held back: TCP's largest piece, half of a window.
pub(super) const PIECE: u64 = 32 * 1024;

/// Whether a side with these flags neither sends nor receives any more.
pub(super) const fn is_shut(flags: u32) -> bool {
    flags & side_flags::BOTH_SHUT == side_flags::BOTH_SHUT
}
