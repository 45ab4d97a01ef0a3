//! A listener, as the daemon knows it: who holds it, and the queue that its holders have together.

use crate::quota::Ticket;
use netchannel_abi::address::Address;
use netchannel_service::addresses;
use netchannel_service::core_engine::AcceptMode;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// One listening TCP socket, however many processes hold it.
#[derive(Debug)]
pub struct Listener {
    /// Where it listens.
    pub address: Address,
    /// Its socket cookie: the kernel's name for the TCP socket.
    pub cookie: u64,
    /// User of the program that announced it first.
    pub user: u32,
    /// Programs that hold it.
    pub holders: BTreeSet<u32>,
    /// The queue that its holders have together, and those who have a part in it.
    pub queue: Queue,
    /// Our end of the accept channel.
    pub offers: Rc<OwnedFd>,
    /// The programs' end of the accept channel.
    pub accepts: Rc<OwnedFd>,
    /// Links offered on it so far.
    pub offered: u64,
    /// Connections that may wait to be accepted, besides one.
    pub backlog: usize,
    /// How often a silent client is asked before it may be accepted.
    pub(super) defers: u32,
    pub(super) v6_only: bool,
    /// As it is charged to its user.
    pub(super) _ticket: Ticket,
}

/// A queue that was made by a holder of a listener, and passed on to those that it forked.
#[derive(Debug, Default)]
pub struct Queue {
    pub(super) name: u64,
    pub(super) members: BTreeSet<u32>,
    /// Members that are about to end or to close the listener: what waits they leave to the others.
    pub(super) leaving: BTreeSet<u32>,
    /// Programs of root that accept beside those of another user: they do so elsewhere.
    pub(super) apart: BTreeSet<u32>,
    /// Some member sees users by other numbers than the daemon: it can not tell clients of other users apart.
    pub(super) is_confined: bool,
}

impl Queue {
    /// True where the program had a part in it.
    pub(super) fn leave(&mut self, number: u32) -> bool {
        self.leaving.remove(&number);
        self.members.remove(&number)
    }
}

impl Listener {
    /// How it takes connections.
    #[must_use]
    pub fn mode(&self) -> AcceptMode {
        AcceptMode {
            shared: self.holders.len() > 1,
            backlog: self.backlog,
            address: Some(self.address),
        }
    }

    /// Whether a connection to `destination` is for it: its very address, or any.
    #[must_use]
    pub fn is_at(&self, destination: &Address) -> bool {
        addresses::covers(&self.address, destination)
    }
}
