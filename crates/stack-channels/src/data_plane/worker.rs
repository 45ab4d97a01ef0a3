//! A worker: what a thread with channels and sockets of its own knows.

use super::acceptor::Acceptor;
use super::commands::Report;
use super::connection::{Connection, Peer};
use super::dialer::Dialer;
use super::line::Line;
use super::owner_table::OwnerTable;
use super::per_peer::PerPeer;
use super::shared::{FIRST_WORKER, Letter, Shared};
use super::wake_ups::WakeUps;
use netchannel_scheduler::Settings;
use netchannel_service::cells::{Cells, Key};
use netchannel_service::mailbox::Mailbox;
use netchannel_service::published_ports::PublishedPorts;
use netchannel_service::targets::Targets;
use netchannel_service::worker::INBOX;
use netchannel_wire::NcSyn;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Who wanted latency is expected to want it again within this time, in nanoseconds.
const HURRY: u64 = 100_000_000;

/// The thread.
pub struct ChannelWorker {
    pub(super) index: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) cells: Cells,
    pub(super) inbox: Arc<Mailbox<Letter>>,
    /// Listeners of this host to which connections of peers were led; the first worker's.
    pub(super) targets: Targets,
    /// (first worker) Connects to peers.
    pub(super) dialer: Dialer,
    /// (first worker) Connections of peers on their way to listeners.
    pub(super) acceptor: Acceptor,
    pub(super) owned: OwnerTable,
    /// Links by the daemon's number.
    pub(super) keys: HashMap<u64, Key>,
    pub(super) lines: Vec<Option<Box<Line>>>,
    /// Who decides.
    pub(super) policies: Arc<Settings>,
    /// By number of the peer.
    pub(super) per_peers: Vec<Option<PerPeer>>,
    pub(super) touched: Vec<Arc<Connection>>,
    pub(super) spare: Vec<Arc<Connection>>,
    pub(super) letters: Vec<Letter>,
    /// (first worker) Connections that peers have asked for in this pass.
    pub(super) asked: Vec<(Arc<Peer>, NcSyn)>,
    /// Links with new connections for programs that may sleep, and whether those were claimed.
    pub(super) posted: Vec<(Key, bool)>,
    /// Links with slots that their programs had still to close: when to look again, which, and how often that was.
    pub(super) untidy: Vec<(u64, u64, u32)>,
    /// Sockets whose programs are to be woken.
    pub(super) wake_ups: WakeUps,
    /// This pass brought something.
    pub(super) moved: bool,
    /// There is more to do than was done.
    pub(super) busy: bool,
    pub(super) now: u64,
    pub(super) stop: bool,
    /// Since when it works.
    pub(super) began: u64,
    /// When it last let others run.
    pub(super) turn: u64,
    /// When the measuring of how busy it is began, and for how long it was since.
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
            acceptor: Acceptor::default(),
            owned: OwnerTable::default(),
            keys: HashMap::new(),
            lines: Vec::new(),
            policies,
            per_peers: Vec::new(),
            touched: Vec::new(),
            spare: Vec::new(),
            letters: Vec::new(),
            asked: Vec::new(),
            posted: Vec::new(),
            untidy: Vec::new(),
            wake_ups: WakeUps::default(),
            moved: false,
            busy: false,
            now: 0,
            stop: false,
            began: 0,
            turn: 0,
            window: (0, 0),
        })
    }

    /// Bytes of a program go or come: if it wants latency, others hear of it.
    pub(super) fn note_hurry(&self) {
        let hurried = &self.shared.hurried;
        // Seldom, since others read the word with every pass.
        if self.index == FIRST_WORKER && self.now + HURRY / 2 > hurried.load(Ordering::Relaxed) {
            hurried.store(self.now + HURRY, Ordering::Relaxed);
        }
    }

    /// A socket is to be settled at the end of the pass.
    pub(super) fn touch(&mut self, connection: &Arc<Connection>) {
        if connection.touch(self.index) {
            self.touched.push(Arc::clone(connection));
        }
    }

    /// What this worker knows of a peer.
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
        let lines = std::mem::take(&mut self.lines);
        let changed = self
            .per_peer(peer)
            .is_some_and(|per_peer| per_peer.refresh(&lines));
        self.lines = lines;
        if changed {
            let all = peer.sockets().all();
            let index = self.index;
            for connection in all.iter().filter(|connection| connection.owner() == index) {
                self.touch(connection);
            }
        }
    }

    /// Tells the other workers.
    pub(super) fn tell_others(&self, letter: impl Fn() -> Letter) {
        let others = self.shared.inboxes.iter().enumerate();
        for (_, inbox) in others.filter(|(index, _)| *index != self.index) {
            inbox.send(letter());
        }
    }

    pub(super) fn tell(&self, worker: usize, letter: Letter) {
        if let Some(inbox) = self.shared.inboxes.get(worker) {
            inbox.send(letter);
        }
    }

    pub(super) fn report(&self, report: Report) {
        self.shared.reports.send(report);
    }

    pub(super) fn clock(&self) -> u64 {
        u64::try_from(self.shared.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
