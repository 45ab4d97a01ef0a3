//! What only the first worker does: links of this host, and the connects of its programs to remote listeners.

use super::peer::{Counters, Peer};
use super::remote::{Remote, Wanted};
use super::routing::Pending;
use super::service::{FRONT, Report};
use super::worker::{Letter, Worker};
use crate::faults::Faults;
use crate::relay::anchor::Count;
use crate::relay::cells::Key;
use crate::relay::jobs::Opened;
use crate::relay::lane::Lane;
use crate::relay::link::LinkEnd;
use crate::relay::targets::Targets;
use crate::relay::{Ask, Command, Parts};
use crate::{locals, published_ports::PublishedPorts};
use netchannel_abi::address::Address;
use netchannel_abi::link::Role;
use netchannel_scheduler::{Class, Source, classify};
use netchannel_vns::{Settings, Start, VirtualSocket};
use netchannel_wire::Handle;
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// How long a listener that is gone is remembered, in nanoseconds.
const FORMER: u64 = 2_000_000_000;
/// And how many are.
const MOST_FORMER: usize = 4096;

/// What the front knows.
#[derive(Debug)]
pub struct Front {
    pub(super) targets: Targets,
    pub(super) pending: Vec<Option<Pending>>,
    pub(super) unused: Vec<usize>,
    pub(super) stamps: u64,
    /// Remote listeners by their number here.
    listeners: HashMap<u32, Listed>,
    /// Numbers of those that are gone, and since when, oldest first: a program may have seen one just before.
    former: VecDeque<(u64, u32)>,
    count: Arc<Count>,
    /// When the clock of the workers began.
    epoch: Instant,
    /// Ports that programs may name as theirs.
    owners: PublishedPorts,
    /// Connections of peers for which there was no descriptor or memory, for the log.
    pub(super) shortage: Faults,
}

/// A listener of a peer.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Whose.
    pub peer: Arc<Peer>,
    /// Its number there.
    pub theirs: u32,
    /// Where it listens.
    pub address: Address,
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
    fn admits(&self, peer: &Peer, client: &Address, user: Option<u32>) -> bool {
        let owned = user.is_some_and(|user| self.owners.allows(client, user));
        owned && peer.rules().is_own(client)
    }
}

impl Worker {
    /// CoreEngine tells something about links of this host.
    pub(super) fn on_relay(&mut self, command: Command) {
        match command {
            Command::Serve(parts) => {
                self.add_link(parts);
            }
            Command::Link(listener, answer) => self.on_link(listener, answer),
            Command::Float(listener, answer) => self.on_float(listener, answer),
            Command::Offered(ticket, answer) => self.on_offered(ticket, answer),
            Command::Moved { from, to } => self.on_moved(from, to),
            Command::Manner(listener, manner) => {
                if let Some(front) = &mut self.front {
                    front.targets.set_manner(listener, manner);
                }
            }
            Command::Gone(listener) => self.on_gone(listener),
            Command::Stop => {}
        }
    }

    /// Takes a link of this host up.
    pub(super) fn add_link(&mut self, parts: Parts) -> Option<Key> {
        let number = parts.number;
        let count = &self.front.as_ref()?.count;
        let end = Arc::new(LinkEnd::new(parts, count)?);
        let key = self.cells.add_link(end)?;
        self.keys.insert(number, key);
        Some(key)
    }

    /// A listener of a peer has a number here.
    pub(super) fn add_listener(&mut self, number: u32, listed: Listed) {
        if let Some(front) = &mut self.front {
            front.listeners.insert(number, listed);
        }
    }

    /// It is gone, or its host is out of reach. Who connects to it as it was seen a moment ago asks its host, perhaps over the next
    /// channel: a refusal is for that to say.
    pub(super) fn remove_listener(&mut self, number: u32) {
        let now = self.now;
        let Some(front) = &mut self.front else { return };
        front.former.push_back((now, number));
        while let Some((since, number)) = front.former.front().copied() {
            if now.saturating_sub(since) < FORMER && front.former.len() <= MOST_FORMER {
                break;
            }
            front.listeners.remove(&number);
            front.former.pop_front();
        }
    }

    /// A peer is no more.
    pub(super) fn forget_peer(&mut self, peer: &Arc<Peer>) {
        if let Some(front) = &mut self.front {
            front
                .listeners
                .retain(|_, one| !Arc::ptr_eq(&one.peer, peer));
        }
    }

    /// A program connects to a remote listener.
    pub(super) fn on_opened(&mut self, key: Key, opened: Opened) {
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return;
        };
        let lane = Lane::accepted(&end, opened.loan).of_daemon();
        let refuse = |lane: Lane, errno: Errno| lane.refuse(errno.raw_os_error().unsigned_abs());
        let Some(front) = &self.front else { return };
        let known = front.listeners.get(&opened.listener);
        // The program may mean a number that another listener had.
        let meant = known.filter(|one| locals::covers(&one.address, &opened.server));
        let Some(Listed { peer, theirs, .. }) = meant.cloned() else {
            return refuse(lane, Errno::CONNREFUSED);
        };
        if peer.is_down() {
            // The kernel may reach it, and connections that are there wait for the next channel.
            return refuse(lane, Errno::CONNREFUSED);
        }
        if !front.admits(&peer, &opened.client, end.user()) {
            return refuse(lane, Errno::ADDRNOTAVAIL);
        }
        let said = match classify(&lane.hints()) {
            (_, Source::Default) => None,
            (class, _) => Some(class),
        };
        let wanted = Wanted {
            client: opened.client,
            server: opened.server,
            listener: theirs,
            class: said,
        };
        let mut settings = settings();
        settings.connect_timeout = peer.rules().connect.unwrap_or(settings.connect_timeout);
        let socket = VirtualSocket::active(settings, start(&lane), self.now);
        let made = insert(&peer, &end, wanted, (socket, lane), (0, None), self.now);
        if let Some(remote) = made {
            self.seat(&remote, key, said.unwrap_or(Class::Latency));
        }
    }

    /// The program of a link has ended.
    pub(super) fn on_link_ended(&mut self, key: Key) {
        let Some(end) = self.cells.link(key) else {
            return;
        };
        end.fail();
        if let (Some(front), Role::Client) = (&mut self.front, end.role()) {
            front.targets.forget_link(key);
        }
        self.retire(key);
    }

    /// No new connection comes over a link. It goes with its last connection.
    pub(super) fn retire(&mut self, key: Key) {
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return;
        };
        end.retire();
        if self.index == FRONT {
            self.cells.silence(key);
            self.tell_others(|| Letter::LinkEnded(end.number()));
        }
        self.let_go(key);
    }

    /// A link of this host is not used any more.
    pub(super) fn forget_link(&self, end: &LinkEnd) {
        if end.role() == Role::Client {
            self.report(Report::Ask(Ask::Forget(end.number())));
        }
    }
}

/// Times and sizes of every socket.
pub fn settings() -> Settings {
    Settings::default()
}

/// How a connection begins.
pub const fn start(lane: &Lane) -> Start {
    Start {
        transmit: 0,
        receive: 0,
        capacity: lane.capacity(),
    }
}

/// Makes the socket and gives it a handle; where there are too many, the connection is refused.
pub fn insert(
    peer: &Arc<Peer>,
    link: &Arc<LinkEnd>,
    wanted: Wanted,
    (socket, mut lane): (VirtualSocket, Lane),
    (stamp, theirs): (u64, Option<Handle>),
    now: u64,
) -> Option<Arc<Remote>> {
    let mut sockets = peer.sockets();
    if !sockets.has_room(link.user()) {
        drop(sockets);
        Counters::add(&peer.counters.refused, 1);
        lane.refuse(Errno::NOBUFS.raw_os_error().unsigned_abs());
        return None;
    }
    lane.set_piece(peer.piece(&wanted.server));
    let make = |handle| {
        let names = (Arc::clone(peer), handle);
        let link = Arc::clone(link);
        Arc::new(Remote::new(
            names,
            link,
            wanted,
            (socket, lane),
            (stamp, theirs),
        ))
    };
    Counters::add(&peer.counters.opened, 1);
    // There is room, so that no lane is lost.
    sockets.insert(make, now).ok()
}
