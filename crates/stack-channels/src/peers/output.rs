//! The messages of the peers to the data plane, and back.

pub use crate::channel_instance::ChannelInstance;
use netchannel_driver::Channel;
use netchannel_wire::{Class, GoAwayReason, Limits};
use std::fmt;
use std::sync::Arc;

/// One start of a peer's daemon. A number is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartId(pub u32);

/// The identity of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelRef {
    /// Its name on this host.
    pub instance: ChannelInstance,
    /// The start of the peer to which it leads.
    pub start: StartId,
    /// Its class.
    pub class: Class,
    /// Its number within the class.
    pub number: u16,
}

/// A task for the data plane.
pub enum Output {
    /// A peer has started: it has no state yet. This precedes all other outputs with this start.
    Started {
        /// The start of its daemon.
        start: StartId,
        /// The peer's name.
        peer: Arc<str>,
        /// The limits of both hosts.
        terms: Terms,
    },
    /// A channel is up and must be run, PING and its answer included.
    Up {
        /// The channel.
        channel: ChannelRef,
        /// The channel of the transport.
        transport: Box<dyn Channel>,
        /// Bytes that followed the handshake.
        rest: Vec<u8>,
    },
    /// Send GOAWAY with this reason, wait for data in flight, and end the channel. Sockets without a channel then wait
    /// for one.
    Retire(ChannelRef, GoAwayReason),
    /// End the channel now: the peer has lost it. What may have been lost is sent again.
    Close(ChannelRef),
    /// Send whole frames on a channel, if it is still up.
    Frames(ChannelRef, Vec<u8>),
    /// No channel is left: connects without an answer fail, and the kernel then tries them. Connections wait.
    Down(StartId),
    /// There was no channel for too long: the peer's sockets fail with `ETIMEDOUT`. Channels may come back.
    Unreachable(StartId),
    /// The start has ended: the daemon has restarted (its sockets fail with `ECONNRESET`), or the peer is not
    /// configured any more. Its remaining channels end.
    Ended(StartId),
}

impl fmt::Debug for Output {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { start, peer, .. } => write!(formatter, "Began({start:?}, {peer})"),
            Self::Up { channel, rest, .. } => {
                write!(formatter, "Up({channel:?}, {} bytes)", rest.len())
            }
            Self::Retire(channel, reason) => write!(formatter, "Retire({channel:?}, {reason:?})"),
            Self::Close(channel) => write!(formatter, "Cut({channel:?})"),
            Self::Frames(channel, bytes) => {
                write!(formatter, "Frames({channel:?}, {} bytes)", bytes.len())
            }
            Self::Down(start) => write!(formatter, "Down({start:?})"),
            Self::Unreachable(start) => write!(formatter, "Unreachable({start:?})"),
            Self::Ended(start) => write!(formatter, "Ended({start:?})"),
        }
    }
}

/// The limits of both hosts, for the life of one start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// This host.
    pub ours: Limits,
    /// The peer.
    pub theirs: Limits,
}

/// The reason why a channel has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Both ends have exchanged GOAWAY.
    Completed,
    /// The transport ended or failed; described in words.
    Broken(String),
    /// The peer violated the protocol; described in words.
    Violation(String),
    /// The peer was silent for too long.
    Silent,
    /// Nothing was acknowledged for a while, and the peer has other addresses.
    Stalled,
}

impl fmt::Display for Loss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed => formatter.write_str("both ends have said GOAWAY"),
            Self::Broken(why) | Self::Violation(why) => formatter.write_str(why),
            Self::Silent => formatter.write_str("nothing was learned for too long"),
            Self::Stalled => {
                formatter.write_str("it does not answer, and there are other addresses")
            }
        }
    }
}
