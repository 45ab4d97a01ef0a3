//! What CoreEngine and stack modules tell each other.

use super::link::Parts;
use netchannel_abi::address::Address;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The answer to [`Ask::Link`] where the listener is at another address than the connection means: no fault of the listener's, nor
/// of others that wait for it.
pub const WRONG_ADDRESS: Errno = Errno::ADDRNOTAVAIL;

/// What CoreEngine tells a stack module.
#[derive(Debug)]
pub enum Command {
    /// A program connects over a link: the server's end.
    Serve(Parts),
    /// The answer to [`Ask::Link`]: the client's end, and what is to be known of the listener.
    Link(u32, Result<(Parts, AcceptMode), Errno>),
    /// Another answer: the listener is gone, but another one is at the destination.
    Moved {
        /// The one asked for.
        from: u32,
        /// The one to go to.
        to: u32,
    },
    /// The answer to [`Ask::OfferLink`]: the client's end, and the channel that keeps it alive.
    OfferLink(u32, Result<(Parts, OwnedFd), Errno>),
    /// The answer to [`Ask::Offer`].
    Offered(Ticket, Result<(), Errno>),
    /// What is to be known of a listener has changed.
    AcceptMode(u32, AcceptMode),
    /// A listener is gone.
    Gone(u32),
    /// The daemon ends.
    Stop,
}

/// How a listener takes connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptMode {
    /// Several processes hold it.
    pub shared: bool,
    /// Connections that may wait to be accepted, besides one.
    pub backlog: usize,
    /// Where it listens.
    pub address: Option<Address>,
}

/// A connection of a stack module, by its number and what tells it from others of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its number.
    pub number: usize,
    /// Never the same for two connections.
    pub stamp: u64,
}

/// What a stack module asks of CoreEngine.
#[derive(Debug)]
pub enum Ask {
    /// A link to a listener of this host, for a connection to this destination.
    Link(u32, Address),
    /// A link for connections to a listener that are offered one by one.
    OfferLink(u32),
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
    /// A link that the module asked for is not used any more.
    Forget(u64),
}

/// A listener of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnListener {
    /// Where it listens.
    pub address: Address,
    /// An IPv6 listener that takes no IPv4.
    pub v6_only: bool,
}

/// What other hosts are to be told of the listeners of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerNews {
    /// There is one.
    Listens(u32, OwnListener),
    /// It is gone.
    Gone(u32),
}

/// CoreEngine, as a stack module sees it when it has its turn.
pub trait Engine {
    /// Asks something. The answer comes as a [`Command`].
    fn ask(&mut self, ask: Ask);

    /// A number for a listener of another host.
    fn next_remote(&mut self) -> u32;

    /// Shows a listener of another host to programs: who connects to it gets a link to the module.
    ///
    /// # Errors
    /// `NOBUFS` when there are too many.
    fn add_remote(&mut self, number: u32, address: &Address) -> Result<(), Errno>;

    /// Takes it out again. Connections to it live on.
    fn remove_remote(&mut self, number: u32);

    /// The networks of other hosts: an address, how many of its bits count, and whether that host is up.
    fn set_networks(&mut self, networks: Vec<(Address, u32, bool)>);
}
