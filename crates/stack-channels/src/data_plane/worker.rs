//! The state of a worker: a thread with channels and sockets of its own.

use super::acceptor::Acceptor;
use super::commands::Report;
use super::connection::{Connection, Peer};
use super::dialer::Dialer;
use super::open_channel::OpenChannel;
use super::owner_table::OwnerTable;
use super::per_peer::PerPeer;
use super::shared::{FIRST_WORKER, Shared, WorkerMessage};
use super::wake_ups::WakeUps;
use netchannel_scheduler::Settings;
use netchannel_service::cells::{Cells, Key};
use netchannel_service::faults::Faults;
use netchannel_service::mailbox::Mailbox;
use netchannel_service::published_ports::PublishedPorts;
use netchannel_service::stack::Origin;
use netchannel_service::targets::Targets;
use netchannel_service::timers::nanoseconds;
use netchannel_service::worker::INBOX;
use netchannel_wire::NcSyn;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A program that needed latency counts as active for this long, in nanoseconds.
const LATENCY_ACTIVE: u64 = 100_000_000;

/// The state of a worker thread.
pub struct ChannelWorker {
    pub(super) index: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) cells: Cells,
    pub(super) inbox: Arc<Mailbox<WorkerMessage>>,
    /// (first worker) Listeners of this host to which connections of peers were routed.
    pub(super) targets: Targets,
    /// (first worker) The listeners of peers.
    pub(super) dialer: Dialer,
    /// (first worker) The tenants whose connections come over links.
    pub(super) origins: HashMap<Key, Arc<Origin>>,
    /// How often a peer did not permit the address of a tenant lately.
    pub(super) unpermitted: Faults,
    /// (first worker) Connections of peers that wait for listeners.
    pub(super) acceptor: Acceptor,
    pub(super) owned: OwnerTable,
    /// The keys of links, by the daemon's number.
    pub(super) keys: HashMap<u64, Key>,
    pub(super) channels: Vec<Option<Box<OpenChannel>>>,
    /// The policies.
    pub(super) policies: Arc<Settings>,
    /// By the number of the peer.
    pub(super) per_peers: Vec<Option<PerPeer>>,
    pub(super) to_settle: Vec<Arc<Connection>>,
    pub(super) spare: Vec<Arc<Connection>>,
    pub(super) messages: Vec<WorkerMessage>,
    /// (first worker) Connections that peers have requested in this pass.
    pub(super) requested: Vec<(Arc<Peer>, NcSyn)>,
    /// Links with new connections for programs that may sleep, and whether their programs were claimed.
    pub(super) announced_links: Vec<(Key, bool)>,
    /// Links with closed slots that their programs had not closed yet: the time of the next examination, the link, and
    /// how often it was examined.
    pub(super) unsettled_links: Vec<(u64, u64, u32)>,
    /// Pending wake-ups of programs.
    pub(super) wake_ups: WakeUps,
    /// This pass brought input.
    pub(super) had_input: bool,
    /// The pass left work.
    pub(super) busy: bool,
    pub(super) now: u64,
    pub(super) stop: bool,
    /// Since when the worker is busy.
    pub(super) busy_since: u64,
    /// When the worker last yielded the processor.
    pub(super) last_yield: u64,
    /// The start of the present window of time, and the busy time in it.
    pub(super) window: (u64, u64),
}

impl ChannelWorker {
    /// A worker without channels.
    ///
    /// # Errors
    /// When descriptors can not be had.
    pub fn new(
        index: usize,
        shared: Arc<Shared>,
        policies: Arc<Settings>,
        owners: PublishedPorts,
    ) -> Result<Self, Errno> {
        let cells = Cells::new()?;
        let inbox = Arc::clone(shared.inboxes.get(index).ok_or(Errno::INVAL)?);
        cells.watch_own(&*inbox, INBOX)?;
        Ok(Self {
            index,
            shared,
            cells,
            inbox,
            targets: Targets::default(),
            dialer: Dialer::new(owners),
            origins: HashMap::new(),
            unpermitted: Faults::default(),
            acceptor: Acceptor::default(),
            owned: OwnerTable::default(),
            keys: HashMap::new(),
            channels: Vec::new(),
            policies,
            per_peers: Vec::new(),
            to_settle: Vec::new(),
            spare: Vec::new(),
            messages: Vec::new(),
            requested: Vec::new(),
            announced_links: Vec::new(),
            unsettled_links: Vec::new(),
            wake_ups: WakeUps::default(),
            had_input: false,
            busy: false,
            now: 0,
            stop: false,
            busy_since: 0,
            last_yield: 0,
            window: (0, 0),
        })
    }

    /// Bytes of a program are sent or received: if it needs latency, the other workers are told.
    pub(super) fn note_latency_activity(&self) {
        let latency_active_until = &self.shared.latency_active_until;
        // The word is written seldom, since other workers read it in every pass.
        if self.index == FIRST_WORKER
            && self.now + LATENCY_ACTIVE / 2 > latency_active_until.load(Ordering::Relaxed)
        {
            latency_active_until.store(self.now + LATENCY_ACTIVE, Ordering::Relaxed);
        }
    }

    /// Schedules a socket for settling at the end of the pass.
    pub(super) fn settle_later(&mut self, connection: &Arc<Connection>) {
        if connection.mark_for_settling(self.index) {
            self.to_settle.push(Arc::clone(connection));
        }
    }

    /// The worker's state of a peer.
    pub(super) fn per_peer(&mut self, peer: &Arc<Peer>) -> Option<&mut PerPeer> {
        let index = usize::try_from(peer.number()).ok()?;
        if self.per_peers.len() <= index {
            self.per_peers.resize_with(index + 1, || None);
        }
        let now = self.now;
        let place = self.per_peers.get_mut(index)?;
        if place.is_none() {
            *place = Some(PerPeer::new(peer, &self.policies, now)?);
        }
        place.as_mut()
    }

    /// The channels of a peer may have changed.
    pub(super) fn refresh(&mut self, peer: &Arc<Peer>) {
        let channels = std::mem::take(&mut self.channels);
        let changed = self
            .per_peer(peer)
            .is_some_and(|per_peer| per_peer.refresh(&channels));
        self.channels = channels;
        if changed {
            let all = peer.sockets().all();
            let index = self.index;
            for connection in all.iter().filter(|connection| connection.owner() == index) {
                self.settle_later(connection);
            }
        }
    }

    /// Sends a message to the other workers.
    pub(super) fn send_to_others(&self, message: impl Fn() -> WorkerMessage) {
        let others = self.shared.inboxes.iter().enumerate();
        for (_, inbox) in others.filter(|(index, _)| *index != self.index) {
            inbox.send(message());
        }
    }

    pub(super) fn send_message(&self, worker: usize, message: WorkerMessage) {
        if let Some(inbox) = self.shared.inboxes.get(worker) {
            inbox.send(message);
        }
    }

    pub(super) fn report(&self, report: Report) {
        self.shared.reports.send(report);
    }

    pub(super) fn clock(&self) -> u64 {
        nanoseconds(self.shared.epoch.elapsed())
    }
}
