//! How bytes are sent and taken: what a call asks for, and what becomes of it.

use netchannel_abi::link::side_flags;

/// How bytes are taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// They stay.
    pub peek: bool,
    /// They are not copied.
    pub discard: bool,
    /// So many were taken by the same call before; a peek goes on behind them.
    pub have: u64,
    /// So many a peek passes over before its first one (`SO_PEEK_OFF`).
    pub offset: u64,
}

/// What becomes of marks of urgent bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Marks {
    /// There are none, or the call begins anew where they are heeded.
    Unexpected,
    /// It ends at one, or passes over the byte.
    Heeded,
    /// The byte itself is wanted.
    Ignored,
}

/// Which byte of a send is an urgent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgent {
    /// None of them.
    None,
    /// The last one.
    Last,
    /// The last one, or of what fits if not all does.
    LastThatFits,
}

impl Urgent {
    /// Of `left` bytes that are to go behind `tail`, `room` fit: how many of them to send now, and behind which sequence the mark is.
    /// Before the last that fits there may be room again, and then it is not the last.
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

/// What becomes of bytes that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Going {
    /// The peer is told of them.
    AtOnce,
    /// It is not: they are held back with others, of which it was told.
    Quietly,
    /// With them goes what was held back.
    WithAll,
}

/// What a reader does at the mark of an urgent byte.
pub(super) enum Met {
    /// It has bytes: the call ends.
    Stop,
    /// It goes on behind so many bytes.
    Pass(u64),
    /// It reads so many bytes at most.
    Before(u64),
}

/// Automatic growth of a ring stops here while the reader keeps up.
pub(super) const CALM_RING_LOG2: u32 = 18;

/// As much as is never held back: what TCP puts into one piece, half of a window.
pub(super) const PIECE: u64 = 32 * 1024;

/// Whether a side with these flags neither sends nor reads any more.
pub(super) const fn is_shut(flags: u32) -> bool {
    flags & side_flags::BOTH_SHUT == side_flags::BOTH_SHUT
}
