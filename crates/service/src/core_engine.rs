//! The messages between CoreEngine and stack modules.

use super::link::Parts;
use super::neighbour::{Neighbour, Trusted};
use netchannel_abi::address::Address;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The answer to [`StackRequest::Link`] where the listener is at another address than the connection's destination.
/// This is no fault of the listener, nor of other connections that wait for it.
pub const WRONG_ADDRESS: Errno = Errno::ADDRNOTAVAIL;

/// A message of CoreEngine to a stack module.
#[derive(Debug)]
pub enum Command {
    /// A program connects over this link: the server's end.
    Serve(Parts),
    /// The answer to [`StackRequest::Link`]: the client's end, and how the listener takes connections.
    Link(u32, Result<(Parts, AcceptMode), Errno>),
    /// Another answer to [`StackRequest::Link`]: the listener is closed, but another one is at the destination.
    ListenerReplaced {
        /// The closed listener.
        from: u32,
        /// The listener to use instead.
        to: u32,
    },
    /// The answer to [`StackRequest::OfferLink`]: the client's end, and the channel that keeps the link alive.
    OfferLink(u32, Result<(Parts, OwnedFd), Errno>),
    /// The answer to [`StackRequest::Offer`].
    Offered(Ticket, Result<(), Errno>),
    /// A listener takes connections in another way from now on.
    AcceptMode(u32, AcceptMode),
    /// A listener is closed.
    ListenerClosed(u32),
    /// A program asks name servers: the other end of its pair.
    Names(OwnedFd),
    /// The daemon shuts down.
    Stop,
}

/// How a listener takes connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptMode {
    /// Several processes hold the listener.
    pub shared: bool,
    /// Connections that may wait for accept, besides one.
    pub backlog: usize,
    /// The address of the listener.
    pub address: Option<Address>,
}

/// A connection of a stack module. The stamp tells it from other connections that had the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The number of the connection.
    pub number: usize,
    /// Unique for each connection.
    pub stamp: u64,
}

/// A request of a stack module to CoreEngine.
#[derive(Debug)]
pub enum StackRequest {
    /// Asks for a link to a listener of this host, for a connection to this destination.
    Link(u32, Address),
    /// Asks for a link to a listener whose connections are offered one by one.
    OfferLink(u32),
    /// Asks CoreEngine to offer one connection to the processes that accept at a listener.
    Offer {
        /// The connection.
        ticket: Ticket,
        /// The listener.
        listener: u32,
        /// The number of the link.
        link: u64,
        /// The slot of the connection.
        slot: u32,
        /// The program's end of the connection's anchor.
        anchor: OwnedFd,
    },
    /// The module no longer uses a link for which it asked.
    Forget(u64),
}

/// A listener of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnListener {
    /// The address of the listener.
    pub address: Address,
    /// An IPv6 listener that takes no IPv4 connections.
    pub v6_only: bool,
    /// Seconds within which a client is to have said something before it is accepted (`TCP_DEFER_ACCEPT`), 0 for none.
    pub defers: u32,
}

/// A change of a listener of this host, to be announced to other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerChange {
    /// A listener was added.
    Added(u32, OwnListener),
    /// A listener was removed.
    Removed(u32),
}

/// CoreEngine, as a stack module sees it in its turn.
pub trait Engine {
    /// Sends a request. The answer comes as a [`Command`].
    fn request(&mut self, request: StackRequest);

    /// Makes a link between the module and another one: the client's end, and the server's. It goes by [`StackRequest::Forget`].
    ///
    /// # Errors
    /// When there is no descriptor or memory for it.
    fn own_link(&mut self) -> Result<[Parts; 2], Errno>;

    /// A new number for a listener of another host.
    fn next_remote(&mut self) -> u32;

    /// Shows a listener of another host to programs: a program that connects to it gets a link to the module.
    ///
    /// # Errors
    /// `NOBUFS` when there are too many.
    fn add_remote(&mut self, number: u32, address: &Address) -> Result<(), Errno>;

    /// Removes a listener of another host. Its connections live on.
    fn remove_remote(&mut self, number: u32);

    /// Leads every connect to the module that no listener is for, and no entry of [`Self::add_remote`]: to its listener `number`.
    fn set_gateway(&mut self, number: u32);

    /// These tenants trust the one whose programs it serves, and are trusted: programs of both have links to one another. What it shows
    /// them is `own`.
    fn trust(&mut self, own: Arc<Neighbour>, others: Vec<Trusted>);

    /// Another tenant shows other listeners, or has made a link to one of this one's.
    fn look_at_neighbours(&mut self);

    /// Sets the networks of other hosts: an address, its prefix length in bits, and whether that host is up.
    fn set_networks(&mut self, networks: Vec<(Address, u32, bool)>);
}
