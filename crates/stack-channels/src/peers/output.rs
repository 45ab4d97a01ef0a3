//! What peers tell the data plane, and what it tells them.

pub use crate::line_id::LineId;
use netchannel_driver::Channel;
use netchannel_wire::{Class, GoAwayReason, Limits};
use std::fmt;
use std::sync::Arc;

/// One start of a peer's daemon. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartId(pub u32);

/// Which channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its name on this host.
    pub id: LineId,
    /// Where it leads.
    pub start: StartId,
    /// Its class.
    pub class: Class,
    /// Its number within the class.
    pub number: u16,
}

/// What the data plane is to do.
pub enum Output {
    /// A peer has begun: nothing of it is known yet. Comes before anything else with this start.
    Began {
        /// Its daemon's start.
        start: StartId,
        /// The peer's name.
        peer: Arc<str>,
        /// What both hosts have said that they take.
        terms: Terms,
    },
    /// A channel is up and to be worked, PING and its answer included.
    Up {
        /// Which.
        line: Line,
        /// The transport.
        channel: Box<dyn Channel>,
        /// Bytes that came behind the handshake.
        rest: Vec<u8>,
    },
    /// Say GOAWAY with this reason, let what is on its way come, and end. What has no channel then waits
    /// for one.
    Retire(Line, GoAwayReason),
    /// End it now: the peer has lost it. What it may have lost is sent again.
    Cut(Line),
    /// Send whole frames on a channel, if it still is.
    Frames(Line, Vec<u8>),
    /// No channel is left: connects that have no answer fail, which the kernel then tries. Connections wait.
    Down(StartId),
    /// There was no channel for too long: its sockets fail with `ETIMEDOUT`. Channels may come back.
    Unreachable(StartId),
    /// It is no more: its daemon began anew (its sockets fail with `ECONNRESET`), or the peer is not
    /// configured any more. Channels that it still has end.
    Ended(StartId),
}

impl fmt::Debug for Output {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Began { start, peer, .. } => write!(formatter, "Began({start:?}, {peer})"),
            Self::Up { line, rest, .. } => write!(formatter, "Up({line:?}, {} bytes)", rest.len()),
            Self::Retire(line, reason) => write!(formatter, "Retire({line:?}, {reason:?})"),
            Self::Cut(line) => write!(formatter, "Cut({line:?})"),
            Self::Frames(line, bytes) => {
                write!(formatter, "Frames({line:?}, {} bytes)", bytes.len())
            }
            Self::Down(start) => write!(formatter, "Down({start:?})"),
            Self::Unreachable(start) => write!(formatter, "Unreachable({start:?})"),
            Self::Ended(start) => write!(formatter, "Ended({start:?})"),
        }
    }
}

/// What both hosts take, for the life of one start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// This host.
    pub ours: Limits,
    /// The peer.
    pub theirs: Limits,
}

/// Why a channel is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Both ends have said GOAWAY.
    Parted,
    /// The transport ended or failed; in words.
    Broken(String),
    /// The peer broke the contract; in words.
    Violation(String),
    /// Nothing was heard for too long.
    Silent,
    /// Nothing was acknowledged for a while, and the peer has other addresses.
    Stalled,
}

impl fmt::Display for Loss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parted => formatter.write_str("both ends have said GOAWAY"),
            Self::Broken(why) | Self::Violation(why) => formatter.write_str(why),
            Self::Silent => formatter.write_str("nothing was learned for too long"),
            Self::Stalled => {
                formatter.write_str("it does not answer, and there are other addresses")
            }
        }
    }
}
