//! A connection that waits at a listener, and the ring that it brings for whoever accepts it.

use netchannel_abi::address::Address;
use netchannel_abi::link::{Geometry, Role};

use crate::descriptors::{attach, names};
use crate::sockets::link::{LinkEnd, Loan};

/// A connection that waits to be accepted.
#[derive(Clone, Copy)]
pub struct Pending {
    /// The link over which it came.
    pub link: &'static LinkEnd,
    /// Its slot and anchor.
    pub loan: Loan,
    /// The addresses at the time of its arrival; the client can overwrite them at any time.
    pub addresses: Addresses,
    /// The ring that came with it for its acceptor, a [`Geometry`] word; 0 for none.
    pub ring: u64,
    /// The time of its announcement, in the clock's units; 0 for long ago.
    pub announced: u64,
    /// Its anchor already has the number that the accept returns.
    pub in_place: bool,
    /// The era of its listener's options in which it came.
    pub era: u64,
}

/// The addresses of a connection as the client named them.
#[derive(Clone, Copy)]
pub struct Addresses {
    /// The listener's.
    pub local: Address,
    /// The client's.
    pub peer: Address,
    /// The owner of that port at that time, see [`names::owner_of_port`].
    pub owner: u64,
}

impl Pending {
    /// A connection that has just come.
    pub(super) fn new(link: &'static LinkEnd, loan: Loan) -> Option<Self> {
        let slot = link.slot(loan.handle.index)?;
        let (local, peer) = (slot.meta.server.load(), slot.meta.client.load());
        let owner = attach::current().map_or(0, |own| names::owner_of_port(own, peer.port));
        let addresses = Addresses { local, peer, owner };
        Some(Self {
            link,
            loan,
            addresses,
            ring: 0,
            announced: 0,
            in_place: false,
            era: 0,
        })
    }

    /// A ring for another process that accepts it, as a [`Geometry`] word; 0 for none. Such a process can allocate none
    /// from the arena. The ring is freed with the slot, or by [`LinkEnd::free_reserved`].
    pub(super) fn ring_for_other(&self) -> u64 {
        let own = self.link.reserve_for_other(self.loan.handle);
        own.map_or(self.ring, Geometry::to_word)
    }

    /// Takes the ring that came with it, if it is one: a process that has the ledger of the link needs none.
    pub(super) fn take_ring(&mut self, ring: u64) {
        let (link, handle) = (self.link, self.loan.handle);
        link.free_reserved(handle);
        let index = handle.index as usize;
        let given = Geometry::from_word(ring);
        let usable = !link.is_own()
            && given != link.layout.small_ring(Role::Server, index)
            && link.layout.accepts(Role::Server, index, given);
        self.ring = if usable { ring } else { 0 };
    }
}
