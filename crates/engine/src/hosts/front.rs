//! What only the first worker knows: remote listeners, and connections of peers on their way to listeners of this host.

use super::commands::Listed;
use super::connection::Peer;
use netchannel_abi::address::Address;
use netchannel_service::anchor::Count;
use netchannel_service::cells::Key;
use netchannel_service::core_engine::Ticket;
use netchannel_service::faults::Faults;
use netchannel_service::lane::Lane;
use netchannel_service::published_ports::PublishedPorts;
use netchannel_service::targets::Targets;
use netchannel_wire::NcSyn;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// How long a listener that is gone is remembered, in nanoseconds.
pub const FORMER: u64 = 2_000_000_000;
/// And how many are.
pub const MOST_FORMER: usize = 4096;

/// What the front knows.
#[derive(Debug)]
pub struct Front {
    pub(super) targets: Targets,
    pub(super) pending: Vec<Option<Pending>>,
    pub(super) unused: Vec<usize>,
    pub(super) stamps: u64,
    /// Remote listeners by their number here.
    pub(super) listeners: HashMap<u32, Listed>,
    /// Numbers of those that are gone, and since when, oldest first: a program may have seen one just before.
    pub(super) former: VecDeque<(u64, u32)>,
    pub(super) count: Arc<Count>,
    /// When the clock of the workers began.
    epoch: Instant,
    /// Ports that programs may name as theirs.
    owners: PublishedPorts,
    /// Connections of peers for which there was no descriptor or memory, for the log.
    pub(super) shortage: Faults,
}

impl Front {
    /// Without listeners. `count` is of the descriptors that links hold.
    #[must_use]
    pub fn new(count: Arc<Count>, epoch: Instant, owners: PublishedPorts) -> Self {
        Self {
            targets: Targets::default(),
            pending: Vec::new(),
            unused: Vec::new(),
            stamps: 0,
            listeners: HashMap::new(),
            former: VecDeque::new(),
            count,
            epoch,
            owners,
            shortage: Faults::default(),
        }
    }

    /// When a listener that had no room is to be tried again.
    pub fn next_retry(&self) -> Option<u64> {
        let after = self.targets.next_retry()?.duration_since(self.epoch);
        Some(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Whether a program of the user may say that it connects from there: from an address that the peer takes as this host's, and
    /// from a port of that user's. The peer believes this host.
    pub(super) fn admits(&self, peer: &Peer, client: &Address, user: Option<u32>) -> bool {
        let owned = user.is_some_and(|user| self.owners.allows(client, user));
        owned && peer.rules().is_own(client)
    }
}

/// A connection of a peer on its way to a program.
#[derive(Debug)]
pub struct Pending {
    pub(super) peer: Arc<Peer>,
    pub(super) syn: NcSyn,
    pub(super) stamp: u64,
    /// When the peer asked.
    pub(super) since: u64,
    /// The lane that CoreEngine offers to whoever accepts.
    pub(super) offered: Option<(Lane, Key)>,
}

impl Front {
    pub(super) fn pending(&mut self, ticket: Ticket) -> Option<&mut Pending> {
        let pending = self.pending.get_mut(ticket.number)?.as_mut()?;
        (pending.stamp == ticket.stamp).then_some(pending)
    }

    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Pending> {
        self.pending(ticket)?;
        self.unused.push(ticket.number);
        let taken = self.pending.get_mut(ticket.number)?.take()?;
        taken.peer.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(taken)
    }
}
