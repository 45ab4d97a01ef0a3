//! The first worker's table of peers' connections that wait for a listener of this host.

use super::connection::{Connection, Peer};
use netchannel_service::cells::Key;
use netchannel_service::core_engine::Ticket;
use netchannel_service::faults::Faults;
use netchannel_service::lane::Lane;
use netchannel_wire::NcSyn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A connection of a peer that is not established yet.
#[derive(Debug)]
pub struct Pending {
    /// The peer that requested it.
    pub peer: Arc<Peer>,
    /// The request.
    pub syn: NcSyn,
    /// Distinguishes it from other connections that had the same number.
    stamp: u64,
    /// When the request came.
    pub since: Instant,
    /// The connection, where it is established and its acceptor was killed before it accepted it.
    pub anew: Option<Arc<Connection>>,
    /// The lane that CoreEngine offers to the process that accepts.
    pub offered: Option<(Lane, Key)>,
}

/// All pending connections.
#[derive(Debug, Default)]
pub struct Acceptor {
    pending: Vec<Option<Pending>>,
    unused: Vec<usize>,
    stamps: u64,
    /// Connections for which there was no descriptor or memory, counted for the log.
    pub shortage: Faults,
}

impl Acceptor {
    /// Adds a connection request of a peer.
    pub fn add(&mut self, peer: &Arc<Peer>, syn: &NcSyn, since: Instant) -> Ticket {
        peer.waiting.fetch_add(1, Ordering::Relaxed);
        self.stamps += 1;
        let stamp = self.stamps;
        let pending = Pending {
            peer: Arc::clone(peer),
            syn: *syn,
            stamp,
            since,
            anew: None,
            offered: None,
        };
        let number = self.unused.pop().unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len() - 1
        });
        if let Some(place) = self.pending.get_mut(number) {
            *place = Some(pending);
        }
        Ticket { number, stamp }
    }

    /// A pending connection.
    pub fn get(&self, ticket: Ticket) -> Option<&Pending> {
        let pending = self.pending.get(ticket.number)?.as_ref()?;
        (pending.stamp == ticket.stamp).then_some(pending)
    }

    /// A pending connection, to change it.
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Pending> {
        let pending = self.pending.get_mut(ticket.number)?.as_mut()?;
        (pending.stamp == ticket.stamp).then_some(pending)
    }

    /// Removes a pending connection.
    pub fn take(&mut self, ticket: Ticket) -> Option<Pending> {
        self.get(ticket)?;
        self.unused.push(ticket.number);
        let taken = self.pending.get_mut(ticket.number)?.take()?;
        taken.peer.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(taken)
    }

    /// A start of a peer has ended: drops its connections that wait for a listener. A connection that is being offered
    /// is closed when CoreEngine answers.
    pub fn forget(&mut self, peer: &Arc<Peer>) {
        let waits = |one: &Pending| Arc::ptr_eq(&one.peer, peer) && one.offered.is_none();
        let all = self.pending.iter().enumerate();
        let waiting: Vec<Ticket> = all
            .filter_map(|(number, one)| {
                let stamp = one.as_ref().filter(|one| waits(one))?.stamp;
                Some(Ticket { number, stamp })
            })
            .collect();
        for ticket in waiting {
            self.take(ticket);
        }
        if self.unused.len() == self.pending.len() {
            // The table is empty: frees the memory that a burst took.
            (self.pending, self.unused) = Default::default();
        }
    }
}
