//! A listener, as the daemon knows it: its holders, and their common queue.

use crate::limits::MOST_LOOKS;
use crate::quota::Ticket;
use netchannel_abi::address::Address;
use netchannel_abi::message::{MESSAGE_BYTES, Message, Operation};
use netchannel_service::addresses;
use netchannel_service::core_engine::AcceptMode;
use netchannel_service::packet;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// One listening TCP socket, however many processes hold it.
#[derive(Debug)]
pub struct Listener {
    /// The address.
    pub address: Address,
    /// The cookie of its TCP socket in the kernel.
    pub cookie: u64,
    /// The user of the program that announced it first.
    pub user: u32,
    /// The programs that hold it.
    pub holders: BTreeSet<u32>,
    /// The common queue of its holders.
    pub queue: Queue,
    /// How many programs may hold it that have no part in the queue and have not announced it.
    pub(super) strangers: u32,
    /// The daemon's end of the accept channel.
    pub offers: Rc<OwnedFd>,
    /// The programs' end of the accept channel.
    pub accepts: Rc<OwnedFd>,
    /// The number of links offered on it so far.
    pub offered: u64,
    /// Connections that may wait for accept, besides one.
    pub backlog: usize,
    /// How many retransmissions a silent client may need before it is accepted.
    pub(super) defers: u32,
    pub(super) v6_only: bool,
    /// The charge to its user.
    pub(super) _ticket: Ticket,
}

/// A queue that a holder of a listener made and passed on to its forked children.
#[derive(Debug, Default)]
pub struct Queue {
    pub(super) name: u64,
    pub(super) members: BTreeSet<u32>,
    /// Members that are about to end or to close the listener. They leave waiting connections to the others.
    pub(super) leaving: BTreeSet<u32>,
    /// Programs of root that accept beside those of another user, without the queue.
    pub(super) apart: BTreeSet<u32>,
    /// Some member is in another user namespace than the daemon: it can not tell clients of other users apart.
    pub(super) is_confined: bool,
    /// Relatives of a member hold the listener, too, and may not have found this daemon yet.
    pub(super) has_unknown_members: bool,
}

impl Queue {
    /// Removes a program. True where it was a member.
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
            shared: self.holders.len() >= 2 || self.may_have_others(),
            backlog: self.backlog,
            address: Some(self.address),
        }
    }

    /// Whether programs may hold it that this daemon does not know.
    pub(super) const fn may_have_others(&self) -> bool {
        self.strangers > 0 || self.queue.has_unknown_members
    }

    /// Whether its accept channel has this many messages.
    pub(super) fn has_messages(&self, most: u64) -> bool {
        let unread = rustix::io::ioctl_fionread(&*self.accepts).unwrap_or(0);
        unread >= most * MESSAGE_BYTES as u64
    }

    /// Wakes an acceptor of the queue: another one has ended, and may have been woken for a connection that it has not
    /// accepted.
    pub(super) fn wake_acceptor(&self) {
        if self.queue.members.is_empty() || self.has_messages(MOST_LOOKS) {
            return;
        }
        let look = Message::new(Operation::Look, 0, [0; 14]);
        // A full channel wakes acceptors by itself.
        let _ = packet::send(&*self.offers, &look, &[]);
    }

    /// Whether the listener covers `destination`: by exactly its address, or by the wildcard address.
    #[must_use]
    pub fn is_at(&self, destination: &Address) -> bool {
        addresses::covers(&self.address, destination)
    }
}
