//! How a peer's connection gets to a listener of this host: over a link whose program will accept soon, over a new link, or offered to
//! whoever accepts first.

use super::commands::Report;
use super::connection::{Connection, Peer, Wanted};
use super::front::Pending;
use super::opening::{insert, settings, start};
use super::peer::Counters;
use super::sockets::Asked;
use super::worker::Worker;
use netchannel_scheduler::Class;
use netchannel_service::cells::Key;
use netchannel_service::core_engine::{ASTRAY, Ask, Manner, Ticket};
use netchannel_service::lane::Lane;
use netchannel_service::link::{LinkEnd, Loan, Parts};
use netchannel_service::targets::Choice;
use netchannel_vns::{Reason, VirtualSocket};
use netchannel_wire::{Frame, Handle, NcRst, NcSyn, Refusal};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Connections of one peer that may be on their way to a listener: as many as the longest backlog that Linux allows unless told
/// otherwise. Beyond, a listener counts as full at once.
const MOST_WAITING: usize = 4096;
/// So long a full backlog is waited for, about as long as TCP does.
const PATIENCE: u64 = 120_000_000_000;

impl Worker {
    fn pending(&mut self, ticket: Ticket) -> Option<&mut Pending> {
        self.front.as_mut()?.pending(ticket)
    }

    /// Leads on what peers have asked for. Links whose programs have let go of them before that are known by then.
    pub(super) fn route_asked(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let mut news = Vec::new();
        self.cells.ask(&mut news);
        for one in news {
            self.on_news(one);
        }
        for (peer, syn) in std::mem::take(&mut self.asked) {
            self.on_asked(&peer, &syn);
        }
    }

    /// A peer asks for a connection.
    fn on_asked(&mut self, peer: &Arc<Peer>, syn: &NcSyn) {
        if peer.has_ended() {
            return;
        }
        let asked = peer.sockets().ask(syn.handle);
        match asked {
            Asked::New => {}
            Asked::Again(connection) => {
                // A violation has reset the socket.
                let _ = connection.lock().socket.on_open_again(syn.limit, self.now);
                return self.touch(&connection);
            }
            Asked::Refused(refusal) => return self.say_refused(peer, syn.handle, refusal),
            Asked::Ignored => return,
            Asked::TooMany => return self.say_refused(peer, syn.handle, Refusal::Quota),
        }
        if !peer.rules().admits(syn) {
            return self.say_refused(peer, syn.handle, Refusal::NotAllowed);
        }
        if peer.waiting.load(Ordering::Relaxed) >= MOST_WAITING {
            return self.say_refused(peer, syn.handle, Refusal::BacklogFull);
        }
        let since = self.now;
        let Some(front) = &mut self.front else { return };
        peer.waiting.fetch_add(1, Ordering::Relaxed);
        front.stamps += 1;
        let stamp = front.stamps;
        let pending = Pending {
            peer: Arc::clone(peer),
            syn: *syn,
            stamp,
            since,
            offered: None,
        };
        let number = front.unused.pop().unwrap_or_else(|| {
            front.pending.push(None);
            front.pending.len() - 1
        });
        if let Some(place) = front.pending.get_mut(number) {
            *place = Some(pending);
        }
        self.route(Ticket { number, stamp });
    }

    /// Leads a connection of a peer to its listener.
    fn route(&mut self, ticket: Ticket) {
        let Some(syn) = self.pending(ticket).map(|pending| pending.syn) else {
            return;
        };
        let Some(front) = &mut self.front else { return };
        let (listener, owned, cells) = (syn.listener, &self.owned, &self.cells);
        if !front.targets.is_at(listener, &syn.server) {
            return self.refuse(ticket, Refusal::NoListener);
        }
        let waits = |ticket: Ticket| {
            let entry = u32::try_from(ticket.number).unwrap_or(u32::MAX);
            let connection = owned.get(entry);
            connection.is_some_and(|connection| {
                connection.stamp == ticket.stamp && !connection.is_accepted()
            })
        };
        if front.targets.is_full(listener, Instant::now(), waits) {
            return self.fail(ticket, Errno::AGAIN);
        }
        let alive = |key| cells.link(key).filter(|end| end.is_alive());
        match front.targets.choose(listener, alive) {
            Choice::Link(key, claimed) => return self.connect(ticket, key, claimed),
            Choice::Offer(key) => return self.offer(ticket, key),
            Choice::Ask => self.report(Report::Ask(Ask::Link(listener, syn.server))),
            Choice::AskFloat => self.report(Report::Ask(Ask::Float(listener))),
            Choice::Wait => {}
        }
        if let Some(front) = &mut self.front {
            front.targets.wait(listener, ticket);
        }
    }

    /// CoreEngine has answered with a link.
    pub(super) fn on_link(&mut self, listener: u32, answer: Result<(Parts, Manner), Errno>) {
        let mut waiting = self.answered(listener).into_iter();
        let taken = answer.and_then(|(parts, manner)| {
            let key = self.take_link(parts)?;
            if let Some(front) = &mut self.front {
                front.targets.add(listener, key, manner);
            }
            // Its program does not know of the link yet, and can not be claimed.
            if let Some(ticket) = waiting.next() {
                self.connect(ticket, key, false);
            }
            Ok(())
        });
        self.go_on(listener, waiting, taken);
    }

    /// CoreEngine has answered with a link for what is offered.
    pub(super) fn on_float(&mut self, listener: u32, answer: Result<(Parts, OwnedFd), Errno>) {
        let waiting = self.answered(listener).into_iter();
        let taken = answer.and_then(|(parts, channel)| {
            let key = self.take_link(parts)?;
            if let Some(front) = &mut self.front {
                front.targets.add_float(listener, key, channel);
            }
            Ok(())
        });
        self.go_on(listener, waiting, taken);
    }

    fn answered(&mut self, listener: u32) -> Vec<Ticket> {
        let front = self.front.as_mut();
        front.map_or_else(Vec::new, |front| front.targets.answered(listener))
    }

    fn take_link(&mut self, parts: Parts) -> Result<Key, Errno> {
        let number = parts.number;
        let key = self.add_link(parts);
        if key.is_none() {
            self.report(Report::Ask(Ask::Forget(number)));
        }
        key.ok_or(Errno::NOBUFS)
    }

    /// Those that waited go on, or their peers learn why not.
    fn go_on(
        &mut self,
        listener: u32,
        mut waiting: impl Iterator<Item = Ticket>,
        mut answer: Result<(), Errno>,
    ) {
        if answer == Err(ASTRAY) {
            if let Some(asker) = waiting.next() {
                self.refuse(asker, Refusal::NoListener);
            }
            answer = Ok(());
        }
        if answer == Err(Errno::CONNREFUSED) {
            self.on_gone(listener);
        }
        for ticket in waiting {
            match answer {
                Ok(()) => self.route(ticket),
                Err(errno) => self.fail(ticket, errno),
            }
        }
    }

    /// The listener is gone, but another one is at its address.
    pub(super) fn on_moved(&mut self, from: u32, to: u32) {
        let waiting = self.answered(from);
        self.on_gone(from);
        let asker = waiting.first().and_then(|ticket| self.pending(*ticket));
        let Some(meant) = asker.map(|pending| pending.syn.server) else {
            return;
        };
        for ticket in waiting {
            // What is at the address of the one for which CoreEngine was asked need not be at the others'.
            if let Some(pending) = self.pending(ticket).filter(|one| one.syn.server == meant) {
                pending.syn.listener = to;
            }
            self.route(ticket);
        }
    }

    /// A listener is gone.
    pub(super) fn on_gone(&mut self, listener: u32) {
        for ticket in self.answered(listener) {
            self.refuse(ticket, Refusal::NoListener);
        }
        let Some(front) = &mut self.front else { return };
        let (links, crowd) = front.targets.remove(listener);
        // A program that listens no more may still accept what was announced to it.
        for key in links {
            self.retire(key);
        }
        for ticket in crowd {
            self.refuse(ticket, Refusal::NoListener);
        }
    }

    /// A start of a peer is over: its connections that wait for a listener are led nowhere. What is being offered is closed with
    /// CoreEngine's answer.
    pub(super) fn forget_asked(&mut self, peer: &Arc<Peer>) {
        let Some(front) = &mut self.front else { return };
        let waits = |one: &Pending| Arc::ptr_eq(&one.peer, peer) && one.offered.is_none();
        let all = front.pending.iter().enumerate();
        let waiting: Vec<Ticket> = all
            .filter_map(|(number, one)| {
                let stamp = one.as_ref().filter(|one| waits(one))?.stamp;
                Some(Ticket { number, stamp })
            })
            .collect();
        for ticket in waiting {
            front.take(ticket);
        }
        if front.unused.len() == front.pending.len() {
            // Nothing waits: what a burst took goes back.
            (front.pending, front.unused) = Default::default();
        }
    }

    /// Makes the connection over a link.
    fn connect(&mut self, ticket: Ticket, key: Key, claimed: bool) {
        let Some(syn) = self.pending(ticket).map(|pending| pending.syn) else {
            return;
        };
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return self.fail(ticket, Errno::AGAIN);
        };
        let loan = end.lend();
        // Anchors may have been let go.
        self.look_at_link(&end);
        let lane = match loan.and_then(|loan| outgoing(&end, loan)) {
            Ok(lane) => lane,
            Err(errno) => {
                if claimed {
                    end.ring();
                }
                return self.fail(ticket, errno);
            }
        };
        lane.resets_if_lost();
        let addresses = (&syn.client, &syn.server);
        if end.post(lane.handle(), syn.listener, addresses) {
            // Its program is woken when all that came has been posted.
            self.posted.push((key, claimed));
        } else {
            if claimed {
                end.ring();
            }
            lane.withdraw();
            if end.is_alive() {
                return self.fail(ticket, Errno::AGAIN);
            }
            // Its program has left it: there may be another way, and it is known then whether anybody listens.
            return self.route(ticket);
        }
        self.establish(ticket, lane, key);
    }

    /// Lets CoreEngine offer the connection.
    fn offer(&mut self, ticket: Ticket, key: Key) {
        let Some(syn) = self.pending(ticket).map(|pending| pending.syn) else {
            return;
        };
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return self.fail(ticket, Errno::AGAIN);
        };
        let lent = end.lend_pair();
        self.look_at_link(&end);
        let lane = lent.and_then(|(loan, anchor)| Ok((outgoing(&end, loan)?, anchor)));
        let (lane, anchor) = match lane {
            Ok(lent) => lent,
            Err(errno) => return self.fail(ticket, errno),
        };
        lane.resets_if_lost();
        let handle = lane.handle();
        end.describe(handle, syn.listener, (&syn.client, &syn.server));
        if let Some(pending) = self.pending(ticket) {
            pending.offered = Some((lane, key));
        }
        self.report(Report::Ask(Ask::Offer {
            ticket,
            listener: syn.listener,
            link: end.number(),
            slot: handle.index,
            anchor,
        }));
    }

    /// CoreEngine has offered it, or could not.
    pub(super) fn on_offered(&mut self, ticket: Ticket, answer: Result<(), Errno>) {
        let offered = self.pending(ticket).and_then(|one| one.offered.take());
        let Some((lane, key)) = offered else { return };
        match answer {
            // Its peer may have ended meanwhile.
            Ok(()) => self.establish(ticket, lane, key),
            Err(errno) => {
                lane.withdraw();
                self.cells.touch(key);
                self.fail(ticket, errno);
            }
        }
    }

    /// The listener has the connection: the peer is told.
    fn establish(&mut self, ticket: Ticket, lane: Lane, key: Key) {
        let pending = self.front.as_mut().and_then(|front| front.take(ticket));
        let end = self.cells.link(key).map(Arc::clone);
        let (Some(pending), Some(end)) = (pending, end) else {
            return lane.close(true);
        };
        let Pending { peer, syn, .. } = pending;
        if peer.has_ended() {
            return lane.close(true);
        }
        let socket = VirtualSocket::passive(settings(), start(&lane), syn.limit, self.now);
        let Ok(socket) = socket else {
            lane.close(true);
            return self.say_refused(&peer, syn.handle, Refusal::NotAllowed);
        };
        let wanted = Wanted {
            client: syn.client,
            server: syn.server,
            listener: syn.listener,
            class: syn.class.map(|class| match class {
                netchannel_wire::Class::Latency => Class::Latency,
                netchannel_wire::Class::Throughput => Class::Throughput,
            }),
        };
        let names = (ticket.stamp, Some(syn.handle));
        let made = insert(&peer, &end, wanted, (socket, lane), names, self.now);
        let Some(connection) = made else {
            return self.say_refused(&peer, syn.handle, Refusal::Quota);
        };
        let known = peer.sockets().set_theirs(syn.handle, connection.handle);
        let mut state = connection.lock();
        state.socket.accept(self.now);
        if !known {
            state.socket.abort(Reason::Violation, self.now);
        }
        drop(state);
        self.take_ownership(&connection, key, wanted.class.unwrap_or(Class::Latency));
        self.note_unaccepted(&connection);
    }

    fn note_unaccepted(&mut self, connection: &Connection) {
        let ticket = Ticket {
            number: usize::try_from(connection.entry()).unwrap_or(usize::MAX),
            stamp: connection.stamp,
        };
        if let Some(front) = &mut self.front {
            front.targets.note(connection.wanted.listener, ticket);
        }
    }

    /// A connection could not be led on now.
    fn fail(&mut self, ticket: Ticket, errno: Errno) {
        let now = self.now;
        let Some(pending) = self.pending(ticket) else {
            return;
        };
        let (since, listener) = (pending.since, pending.syn.listener);
        let refusal = match errno {
            // A full backlog: TCP would say it again too.
            Errno::AGAIN if now.saturating_sub(since) < PATIENCE => {
                if let Some(front) = &mut self.front {
                    front
                        .targets
                        .wait_for_room(listener, ticket, Instant::now());
                }
                return;
            }
            Errno::AGAIN => Refusal::BacklogFull,
            Errno::CONNREFUSED => Refusal::NoListener,
            // It goes over kernel TCP: to wait for a descriptor might be to wait for ever.
            errno => {
                self.note_shortage(errno);
                Refusal::Quota
            }
        };
        self.refuse(ticket, refusal);
    }

    fn note_shortage(&mut self, errno: Errno) {
        let front = self.front.as_mut();
        if let Some(unsaid) = front.and_then(|front| front.shortage.count(Instant::now())) {
            let why = std::io::Error::from(errno);
            let what = "connections of other hosts are left to kernel TCP";
            tracing::warn!(unsaid, "{what}: this daemon can not have them ({why})");
        }
    }

    /// Leads on those that wait for room at a listener, until there is none.
    pub(super) fn retry(&mut self) {
        let now = Instant::now();
        while let Some(front) = &mut self.front
            && let Some((listener, mut crowd)) = front.targets.take_crowd(now)
        {
            while let Some(ticket) = crowd.pop_front() {
                self.route(ticket);
                let Some(front) = &mut self.front else { return };
                if front.targets.is_crowded(listener) {
                    front.targets.put_back(listener, crowd);
                    break;
                }
            }
        }
    }

    fn refuse(&mut self, ticket: Ticket, refusal: Refusal) {
        let pending = self.front.as_mut().and_then(|front| front.take(ticket));
        if let Some(pending) = pending {
            self.say_refused(&pending.peer, pending.syn.handle, refusal);
        }
    }

    fn say_refused(&mut self, peer: &Arc<Peer>, handle: Handle, reason: Refusal) {
        peer.sockets().refuse(handle, reason);
        Counters::add(&peer.counters.refused, 1);
        self.say_to(peer, &Frame::NcRst(NcRst { handle, reason }));
    }
}

/// The lane of a connection that goes to a program.
fn outgoing(end: &Arc<LinkEnd>, loan: Loan) -> Result<Lane, Errno> {
    Ok(Lane::lent(end, loan).ok_or(Errno::AGAIN)?.of_daemon())
}
