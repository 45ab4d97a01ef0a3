//! What CoreEngine and who leads connections to listeners of this host tell each other.

use super::link::Parts;
use netchannel_abi::address::Address;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The answer to [`Ask::Link`] where the listener is at another address than the connection means: no fault of the listener's, nor
/// of others that wait for it.
pub const ASTRAY: Errno = Errno::ADDRNOTAVAIL;

/// What CoreEngine tells the relay.
#[derive(Debug)]
pub enum Command {
    /// A program connects over a link: the server's end.
    Serve(Parts),
    /// The answer to [`Ask::Link`]: the client's end, and what is to be known of the listener.
    Link(u32, Result<(Parts, Manner), Errno>),
    /// Another answer: the listener is gone, but another one is at the destination.
    Moved {
        /// The one asked for.
        from: u32,
        /// The one to go to.
        to: u32,
    },
    /// The answer to [`Ask::Float`]: the client's end, and the channel that keeps it alive.
    Float(u32, Result<(Parts, OwnedFd), Errno>),
    /// The answer to [`Ask::Offer`].
    Offered(Ticket, Result<(), Errno>),
    /// What is to be known of a listener has changed.
    Manner(u32, Manner),
    /// A listener is gone.
    Gone(u32),
    /// The daemon ends.
    Stop,
}

/// How a listener takes connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Several processes hold it.
    pub shared: bool,
    /// Connections that may wait to be accepted, besides one.
    pub backlog: usize,
    /// Where it listens.
    pub address: Option<Address>,
}

/// A connection of the relay, by its number and what tells it from others of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its number.
    pub number: usize,
    /// Never the same for two connections.
    pub stamp: u64,
}

/// What the relay asks of CoreEngine.
#[derive(Debug)]
pub enum Ask {
    /// A link to a listener of this host, for a connection to this destination.
    Link(u32, Address),
    /// A link for connections to a listener that are offered one by one.
    Float(u32),
    /// Offer one connection to whoever accepts at a listener.
    Offer {
        /// Which connection.
        ticket: Ticket,
        /// The listener.
        listener: u32,
        /// Number of the link.
        link: u64,
        /// Slot of the connection.
        slot: u32,
        /// The program's end of its anchor.
        anchor: OwnedFd,
    },
    /// A link that the relay asked for is not used any more.
    Forget(u64),
}
