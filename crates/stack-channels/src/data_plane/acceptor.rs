//! What the first worker knows of connections of peers that are on their way to listeners of this host.

use super::connection::Peer;
use netchannel_service::cells::Key;
use netchannel_service::core_engine::Ticket;
use netchannel_service::faults::Faults;
use netchannel_service::lane::Lane;
use netchannel_wire::NcSyn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A connection of a peer on its way to a program.
#[derive(Debug)]
pub struct Pending {
    /// Who asked.
    pub peer: Arc<Peer>,
    /// For what.
    pub syn: NcSyn,
    /// Tells it from others that had its number.
    stamp: u64,
    /// When the peer asked.
    pub since: Instant,
    /// The lane that CoreEngine offers to whoever accepts.
    pub offered: Option<(Lane, Key)>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Acceptor {
    pending: Vec<Option<Pending>>,
    unused: Vec<usize>,
    stamps: u64,
    /// Those for which there was no descriptor or memory, for the log.
    pub shortage: Faults,
}

impl Acceptor {
    /// A peer asks for a connection.
    pub fn add(&mut self, peer: &Arc<Peer>, syn: &NcSyn, since: Instant) -> Ticket {
        peer.waiting.fetch_add(1, Ordering::Relaxed);
        self.stamps += 1;
        let stamp = self.stamps;
        let pending = Pending {
            peer: Arc::clone(peer),
            syn: *syn,
            stamp,
            since,
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

    /// A connection that waits or is being offered.
    pub fn get(&self, ticket: Ticket) -> Option<&Pending> {
        let pending = self.pending.get(ticket.number)?.as_ref()?;
        (pending.stamp == ticket.stamp).then_some(pending)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Pending> {
        let pending = self.pending.get_mut(ticket.number)?.as_mut()?;
        (pending.stamp == ticket.stamp).then_some(pending)
    }

    /// It is on its way no longer.
    pub fn take(&mut self, ticket: Ticket) -> Option<Pending> {
        self.get(ticket)?;
        self.unused.push(ticket.number);
        let taken = self.pending.get_mut(ticket.number)?.take()?;
        taken.peer.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(taken)
    }

    /// A start of a peer is over: its connections that wait for a listener are led nowhere. What is being offered is closed with
    /// CoreEngine's answer.
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
            // Nothing waits: what a burst took goes back.
            (self.pending, self.unused) = Default::default();
        }
    }
}
