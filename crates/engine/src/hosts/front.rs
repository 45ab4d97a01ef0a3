//! New connections: those of programs to remote listeners, and those of peers to listeners of this host. The first worker's.

use super::peer::Peer;
use super::remote::{Remote, Wanted};
use super::service::{FRONT, Report};
use super::sockets::Asked;
use super::worker::{Letter, Worker};
use crate::relay::anchor::Count;
use crate::relay::cells::Key;
use crate::relay::jobs::Opened;
use crate::relay::lane::Lane;
use crate::relay::link::LinkEnd;
use crate::relay::targets::{Choice, Targets};
use crate::relay::{Ask, Command, Parts};
use netchannel_abi::link::Role;
use netchannel_scheduler::Class;
use netchannel_vns::{Reason, Settings, Start, VirtualSocket};
use netchannel_wire::{Frame, Handle, NcRst, NcSyn, Refusal};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A listener whose backlog is full is asked again after this, in nanoseconds.
const RETRY: u64 = 5_000_000;
/// And so often, before the peer is told.
const MOST_TRIES: u32 = 600;

/// A connection of a peer on its way to a program.
#[derive(Debug)]
struct Pending {
    peer: Arc<Peer>,
    syn: NcSyn,
    stamp: u64,
    tries: u32,
}

/// What the front knows.
#[derive(Debug)]
pub struct Front {
    targets: Targets,
    pending: Vec<Option<Pending>>,
    unused: Vec<usize>,
    stamps: u64,
    /// Remote listeners by their number here: whose, and the number there.
    listeners: HashMap<u32, (Arc<Peer>, u32)>,
    retries: VecDeque<(u64, usize, u64)>,
    count: Arc<Count>,
}

impl Front {
    /// Without listeners.
    #[must_use]
    pub fn new() -> Self {
        use rustix::process::{Resource, getrlimit};
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        // The other half is for programs to attach.
        let most = usize::try_from(limit / 2).unwrap_or(usize::MAX);
        Self {
            targets: Targets::default(),
            pending: Vec::new(),
            unused: Vec::new(),
            stamps: 0,
            listeners: HashMap::new(),
            retries: VecDeque::new(),
            count: Arc::new(Count::new(most)),
        }
    }

    /// When a connection is to be tried again.
    pub fn next_retry(&self) -> Option<u64> {
        self.retries.front().map(|(at, ..)| *at)
    }

    fn pending(&self, number: usize, stamp: u64) -> Option<&Pending> {
        let pending = self.pending.get(number)?.as_ref()?;
        (pending.stamp == stamp).then_some(pending)
    }

    fn take(&mut self, number: usize, stamp: u64) -> Option<Pending> {
        self.pending(number, stamp)?;
        self.unused.push(number);
        self.pending.get_mut(number)?.take()
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
            Command::Shared(listener, shared) => {
                if let Some(front) = &mut self.front {
                    front.targets.share(listener, shared);
                }
            }
            Command::Gone(listener) => self.on_gone(listener),
            Command::Stop => {}
        }
    }

    fn add_link(&mut self, parts: Parts) -> Option<Key> {
        let number = parts.number;
        let count = &self.front.as_ref()?.count;
        let end = Arc::new(LinkEnd::new(parts, count)?);
        let key = self.cells.add_link(end)?;
        self.keys.insert(number, key);
        Some(key)
    }

    /// A listener of a peer has a number here.
    pub(super) fn add_listener(&mut self, number: u32, peer: Arc<Peer>, theirs: u32) {
        if let Some(front) = &mut self.front {
            front.listeners.insert(number, (peer, theirs));
        }
    }

    /// It is gone.
    pub(super) fn remove_listener(&mut self, number: u32) {
        if let Some(front) = &mut self.front {
            front.listeners.remove(&number);
        }
    }

    /// A peer is no more.
    pub(super) fn forget_peer(&mut self, peer: &Arc<Peer>) {
        if let Some(front) = &mut self.front {
            front
                .listeners
                .retain(|_, (one, _)| !Arc::ptr_eq(one, peer));
        }
    }

    /// A program connects to a remote listener.
    pub(super) fn on_opened(&mut self, key: Key, opened: Opened) {
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return;
        };
        let lane = Lane::accepted(&end, opened.loan);
        let refuse = |lane: Lane, errno: Errno| lane.refuse(errno.raw_os_error().unsigned_abs());
        let known = self.front.as_ref();
        let known = known.and_then(|front| front.listeners.get(&opened.listener));
        let Some((peer, theirs)) = known.map(|(peer, theirs)| (Arc::clone(peer), *theirs)) else {
            return refuse(lane, Errno::CONNREFUSED);
        };
        let wanted = Wanted {
            client: opened.client,
            server: opened.server,
            listener: theirs,
            class: Class::Throughput,
        };
        let socket = VirtualSocket::active(settings(), start(&lane), self.now);
        let made = insert(&peer, &end, wanted, (socket, lane), None, self.now);
        if let Some(remote) = made {
            self.seat(&remote, key, Class::Latency);
        }
    }

    /// A peer asks for a connection.
    pub(super) fn on_asked(&mut self, peer: &Arc<Peer>, syn: &NcSyn) {
        let asked = peer.sockets().ask(syn.handle);
        match asked {
            Asked::New => {}
            Asked::Again(remote) => {
                // A violation has reset the socket.
                let _ = remote.lock().socket.on_open_again(syn.limit, self.now);
                return self.touch(&remote);
            }
            Asked::Refused(refusal) => return self.say_refused(peer, syn.handle, refusal),
            Asked::Ignored => return,
            Asked::TooMany => return self.say_refused(peer, syn.handle, Refusal::Quota),
        }
        let Some(front) = &mut self.front else { return };
        front.stamps += 1;
        let stamp = front.stamps;
        let pending = Pending {
            peer: Arc::clone(peer),
            syn: *syn,
            stamp,
            tries: 0,
        };
        let number = front.unused.pop().unwrap_or_else(|| {
            front.pending.push(None);
            front.pending.len() - 1
        });
        if let Some(place) = front.pending.get_mut(number) {
            *place = Some(pending);
        }
        self.route(number, stamp);
    }

    /// Leads a connection of a peer to its listener.
    fn route(&mut self, number: usize, stamp: u64) {
        let Some(front) = &mut self.front else { return };
        let Some(pending) = front.pending(number, stamp) else {
            return;
        };
        let (listener, server) = (pending.syn.listener, pending.syn.server);
        let cells = &self.cells;
        match front.targets.choose(listener, |key| cells.link(key)) {
            Choice::Link(key, claimed) => self.open(number, stamp, key, claimed),
            Choice::Ask => {
                front.targets.wait(listener, number, stamp);
                self.report(Report::Ask(Ask::Link(listener, server)));
            }
            Choice::Wait => front.targets.wait(listener, number, stamp),
        }
    }

    /// CoreEngine has answered.
    fn on_link(&mut self, listener: u32, answer: Result<(Parts, bool), Errno>) {
        let Some(front) = &mut self.front else { return };
        let mut waiting = front.targets.answered(listener).into_iter();
        let refusal = match answer {
            Ok((parts, shared)) => {
                let number = parts.number;
                if let Some(key) = self.add_link(parts) {
                    if let Some(front) = &mut self.front {
                        front.targets.add(listener, key, shared);
                    }
                    // Its program does not know of the link yet, and can not be claimed.
                    if let Some((number, stamp)) = waiting.next() {
                        self.open(number, stamp, key, false);
                    }
                    None
                } else {
                    self.report(Report::Ask(Ask::Forget(number)));
                    Some(Refusal::Quota)
                }
            }
            Err(Errno::CONNREFUSED) => {
                self.on_gone(listener);
                Some(Refusal::NoListener)
            }
            Err(Errno::AGAIN) => Some(Refusal::BacklogFull),
            Err(_) => Some(Refusal::Quota),
        };
        for (number, stamp) in waiting {
            match refusal {
                None => self.route(number, stamp),
                // A full backlog: TCP would say it again too.
                Some(Refusal::BacklogFull) => self.postpone(number, stamp),
                Some(refusal) => self.refuse(number, stamp, refusal),
            }
        }
    }

    fn on_gone(&mut self, listener: u32) {
        let Some(front) = &mut self.front else { return };
        let waiting = front.targets.answered(listener);
        let links = front.targets.remove(listener);
        for (number, stamp) in waiting {
            self.refuse(number, stamp, Refusal::NoListener);
        }
        for key in links {
            if let Some(end) = self.cells.link(key) {
                end.fail();
            }
            self.on_link_ended(key);
        }
    }

    /// Makes the connection over a link.
    fn open(&mut self, number: usize, stamp: u64, key: Key, claimed: bool) {
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return self.postpone(number, stamp);
        };
        let Some(front) = &mut self.front else { return };
        let Some(pending) = front.pending(number, stamp) else {
            return;
        };
        let (peer, syn) = (Arc::clone(&pending.peer), pending.syn);
        let lane = end.lend().and_then(|loan| Lane::lent(&end, loan));
        let Some(lane) = lane else {
            if claimed {
                end.ring();
            }
            return self.postpone(number, stamp);
        };
        let addresses = (&syn.client, &syn.server);
        if !end.announce(lane.handle(), syn.listener, addresses, claimed) {
            lane.withdraw();
            return self.postpone(number, stamp);
        }
        front.take(number, stamp);
        let socket = VirtualSocket::passive(settings(), start(&lane), syn.limit, self.now);
        let Ok(socket) = socket else {
            lane.close(true);
            return self.say_refused(&peer, syn.handle, Refusal::NotAllowed);
        };
        let wanted = Wanted {
            client: syn.client,
            server: syn.server,
            listener: syn.listener,
            class: match syn.class {
                netchannel_wire::Class::Latency => Class::Latency,
                netchannel_wire::Class::Throughput => Class::Throughput,
            },
        };
        let theirs = Some(syn.handle);
        let made = insert(&peer, &end, wanted, (socket, lane), theirs, self.now);
        let Some(remote) = made else {
            return self.say_refused(&peer, syn.handle, Refusal::Quota);
        };
        let known = peer.sockets().set_theirs(syn.handle, remote.handle);
        let mut state = remote.lock();
        state.socket.accept(self.now);
        if !known {
            state.socket.abort(Reason::Violation, self.now);
        }
        drop(state);
        self.seat(&remote, key, Class::Latency);
    }

    fn postpone(&mut self, number: usize, stamp: u64) {
        let Some(front) = &mut self.front else { return };
        let place = front.pending.get_mut(number).and_then(Option::as_mut);
        let Some(pending) = place.filter(|pending| pending.stamp == stamp) else {
            return;
        };
        pending.tries += 1;
        if pending.tries > MOST_TRIES {
            return self.refuse(number, stamp, Refusal::BacklogFull);
        }
        front.retries.push_back((self.now + RETRY, number, stamp));
    }

    /// Tries those again whose time has come.
    pub(super) fn retry(&mut self) {
        while let Some(front) = &mut self.front
            && let Some((at, number, stamp)) = front.retries.front().copied()
            && at <= self.now
        {
            front.retries.pop_front();
            self.route(number, stamp);
        }
    }

    fn refuse(&mut self, number: usize, stamp: u64, refusal: Refusal) {
        let Some(front) = &mut self.front else { return };
        if let Some(pending) = front.take(number, stamp) {
            self.say_refused(&pending.peer, pending.syn.handle, refusal);
        }
    }

    fn say_refused(&mut self, peer: &Arc<Peer>, handle: Handle, reason: Refusal) {
        peer.sockets().refuse(handle, reason);
        self.say_to(peer, &Frame::NcRst(NcRst { handle, reason }));
    }

    /// No new connection comes over a link. It goes with its last connection.
    pub(super) fn on_link_ended(&mut self, key: Key) {
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return;
        };
        end.fail();
        if self.index == FRONT {
            self.cells.silence(key);
            if let (Some(front), Role::Client) = (&mut self.front, end.role()) {
                front.targets.forget_link(key);
            }
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

fn settings() -> Settings {
    Settings::default()
}

const fn start(lane: &Lane) -> Start {
    Start {
        transmit: 0,
        receive: 0,
        capacity: lane.capacity(),
    }
}

/// Makes the socket and gives it a handle; where there are too many, the connection is refused.
fn insert(
    peer: &Arc<Peer>,
    link: &Arc<LinkEnd>,
    wanted: Wanted,
    (socket, lane): (VirtualSocket, Lane),
    theirs: Option<Handle>,
    now: u64,
) -> Option<Arc<Remote>> {
    let mut sockets = peer.sockets();
    if !sockets.has_room() {
        drop(sockets);
        lane.refuse(Errno::NOBUFS.raw_os_error().unsigned_abs());
        return None;
    }
    let make = |handle| {
        let names = (Arc::clone(peer), handle);
        let link = Arc::clone(link);
        Arc::new(Remote::new(names, link, wanted, (socket, lane), theirs))
    };
    // There is room, so that no lane is lost.
    sockets.insert(make, now).ok()
}
