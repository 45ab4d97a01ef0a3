//! How a connection gets to its listener: over a link whose program will accept soon, over a new link,
//! or offered to whoever accepts first.

use super::worker::{Connection, Local, State, Wanted};
use crate::pair::Pair;
use netchannel_abi::link::side_flags;
use netchannel_service::cells::Key;
use netchannel_service::core_engine::{ASTRAY, Ask, Manner, Ticket};
use netchannel_service::lane::Lane;
use netchannel_service::link::Parts;
use netchannel_service::link::{LinkEnd, Loan};
use netchannel_service::targets::Choice;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long a full backlog is waited for, about as long as TCP does.
const PATIENCE: Duration = Duration::from_secs(120);

impl Local {
    /// Where a connection wants to go, while it waits.
    fn wanted(&mut self, ticket: Ticket) -> Option<Wanted> {
        match &self.connection_mut(ticket)?.state {
            State::Pending(_, wanted) => Some(*wanted),
            _ => None,
        }
    }

    /// Leads a connection that waits to its listener.
    pub(super) fn route(&mut self, ticket: Ticket) {
        let Some(wanted) = self.wanted(ticket) else {
            return;
        };
        let listener = wanted.listener;
        let (cells, connections) = (&self.cells, &self.connections);
        let waits = |ticket: Ticket| {
            let known = connections.get(ticket.number).and_then(Option::as_ref);
            known.is_some_and(|known| known.stamp == ticket.stamp && known.is_unaccepted())
        };
        if !self.targets.is_at(listener, &wanted.server) {
            return self.refuse(ticket, Errno::CONNREFUSED);
        }
        if self.targets.is_full(listener, Instant::now(), waits) {
            return self.fail(ticket, Errno::AGAIN);
        }
        let alive = |key| cells.link(key).filter(|end| end.check());
        let choice = self.targets.choose(listener, alive);
        match choice {
            Choice::Link(key, claimed) => return self.connect(ticket, key, claimed),
            Choice::Offer(key) => return self.offer(ticket, key),
            Choice::Ask => self.asks.send(Ask::Link(listener, wanted.server)),
            Choice::AskFloat => self.asks.send(Ask::Float(listener)),
            Choice::Wait => {}
        }
        self.targets.wait(listener, ticket);
    }

    pub(super) fn on_link(&mut self, listener: u32, answer: Result<(Parts, Manner), Errno>) {
        let mut waiting = self.targets.answered(listener).into_iter();
        let taken = answer.and_then(|(parts, manner)| {
            let key = self.take_link(parts)?;
            self.targets.add(listener, key, manner);
            // Its program does not know of the link yet, and can not be claimed.
            if let Some(ticket) = waiting.next() {
                self.connect(ticket, key, false);
            }
            Ok(())
        });
        self.go_on(listener, waiting, taken);
    }

    pub(super) fn on_float(&mut self, listener: u32, answer: Result<(Parts, OwnedFd), Errno>) {
        let waiting = self.targets.answered(listener).into_iter();
        let taken = answer.and_then(|(parts, channel)| {
            let key = self.take_link(parts)?;
            self.targets.add_float(listener, key, channel);
            Ok(())
        });
        self.go_on(listener, waiting, taken);
    }

    /// Takes up a link that was asked for.
    fn take_link(&mut self, parts: Parts) -> Result<Key, Errno> {
        let number = parts.number;
        let end = LinkEnd::new(parts, &self.count).map(Arc::new);
        let key = end.and_then(|end| self.cells.add_link(end));
        if key.is_none() {
            self.asks.send(Ask::Forget(number));
        }
        key.ok_or(Errno::NOBUFS)
    }

    /// CoreEngine has answered: those that waited go on, or learn why not.
    fn go_on(
        &mut self,
        listener: u32,
        mut waiting: impl Iterator<Item = Ticket>,
        mut answer: Result<(), Errno>,
    ) {
        if answer == Err(ASTRAY) {
            if let Some(asker) = waiting.next() {
                self.refuse(asker, Errno::CONNREFUSED);
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
        let waiting = self.targets.answered(from);
        self.on_gone(from);
        let asker = waiting.first().and_then(|ticket| self.wanted(*ticket));
        for ticket in waiting {
            // What is at the address of the one for which CoreEngine was asked need not be at the others'.
            if let Some(connection) = self.connection_mut(ticket)
                && let State::Pending(_, wanted) = &mut connection.state
                && asker.is_some_and(|asker| asker.server == wanted.server)
            {
                wanted.listener = to;
            }
            self.route(ticket);
        }
    }

    pub(super) fn on_gone(&mut self, listener: u32) {
        for ticket in self.targets.answered(listener) {
            self.refuse(ticket, Errno::CONNREFUSED);
        }
        let (links, crowd) = self.targets.remove(listener);
        for ticket in crowd {
            self.refuse(ticket, Errno::CONNREFUSED);
        }
        // A program that listens no more may still accept what was announced to it.
        for key in links {
            self.retire(key);
        }
    }

    /// A lane towards the listener of a connection that waits, made known under its slot.
    fn outgoing(&mut self, ticket: Ticket, key: Key, loan: Loan) -> Option<Lane> {
        let end = Arc::clone(self.cells.link(key)?);
        let place = (key, loan.handle.index);
        let mut lane = Lane::lent(&end, loan)?.of_daemon();
        if self.settle_in(ticket.number, 1, place, &mut lane) {
            return Some(lane);
        }
        lane.withdraw();
        None
    }

    fn connect(&mut self, ticket: Ticket, key: Key, claimed: bool) {
        let Some(wanted) = self.wanted(ticket) else {
            return;
        };
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return self.fail(ticket, Errno::AGAIN);
        };
        let loan = end.lend();
        // Anchors may have been let go.
        self.cells.touch(key);
        let lane = loan.and_then(|loan| self.outgoing(ticket, key, loan).ok_or(Errno::AGAIN));
        let lane = match lane {
            Ok(lane) => lane,
            Err(errno) => {
                if claimed {
                    end.ring();
                }
                return self.fail(ticket, errno);
            }
        };
        let handle = lane.handle();
        let addresses = (&wanted.client, &wanted.server);
        if !end.announce(handle, wanted.listener, addresses, claimed) {
            lane.withdraw();
            self.clear_place((key, handle.index));
            if end.is_alive() {
                return self.fail(ticket, Errno::AGAIN);
            }
            // Its program has left it: there may be another way, and it is known then whether anybody listens.
            return self.route(ticket);
        }
        self.change(ticket, (key, handle.index), |incoming, _| {
            establish(&incoming);
            State::Open(Pair::new(incoming, lane))
        });
        self.targets.note(wanted.listener, ticket);
        self.enqueue(ticket.number);
    }

    fn offer(&mut self, ticket: Ticket, key: Key) {
        let Some(wanted) = self.wanted(ticket) else {
            return;
        };
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return self.fail(ticket, Errno::AGAIN);
        };
        let lent = end.lend_pair();
        self.cells.touch(key);
        let lane = lent.and_then(|(loan, anchor)| {
            let lane = self.outgoing(ticket, key, loan).ok_or(Errno::AGAIN)?;
            Ok((lane, anchor))
        });
        let (lane, anchor) = match lane {
            Ok(lent) => lent,
            Err(errno) => return self.fail(ticket, errno),
        };
        let handle = lane.handle();
        end.describe(handle, wanted.listener, (&wanted.client, &wanted.server));
        self.change(ticket, (key, handle.index), |incoming, wanted| {
            State::Offered(Pair::new(incoming, lane), wanted)
        });
        self.targets.note(wanted.listener, ticket);
        self.asks.send(Ask::Offer {
            ticket,
            listener: wanted.listener,
            link: end.number(),
            slot: handle.index,
            anchor,
        });
    }

    pub(super) fn on_offered(&mut self, ticket: Ticket, answer: Result<(), Errno>) {
        let Some(connection) = self.connection_mut(ticket) else {
            return;
        };
        let State::Offered(pair, wanted) =
            std::mem::replace(&mut connection.state, State::Changing)
        else {
            return;
        };
        match answer {
            Ok(()) => {
                establish(pair.incoming());
                connection.state = State::Open(pair);
                self.enqueue(ticket.number);
            }
            Err(errno) => {
                let (incoming, outgoing) = pair.split();
                connection.state = State::Pending(incoming, wanted);
                let place = connection.places[1].take();
                outgoing.withdraw();
                if let Some((key, slot)) = place {
                    self.clear_place((key, slot));
                    self.cells.touch(key);
                }
                self.fail(ticket, errno);
            }
        }
    }

    /// Gives a connection that waits its lane to the listener.
    fn change(
        &mut self,
        ticket: Ticket,
        place: (Key, u32),
        next: impl FnOnce(Lane, Wanted) -> State,
    ) {
        let Some(connection) = self.connection_mut(ticket) else {
            return;
        };
        let Connection { state, places, .. } = connection;
        places[1] = Some(place);
        if let State::Pending(incoming, wanted) = std::mem::replace(state, State::Changing) {
            *state = next(incoming, wanted);
        }
    }

    /// A connection could not be led on now.
    fn fail(&mut self, ticket: Ticket, errno: Errno) {
        let Some(wanted) = self.wanted(ticket) else {
            return;
        };
        // A full backlog: TCP would say it again too.
        let now = Instant::now();
        if errno == Errno::AGAIN && now.duration_since(wanted.since) < PATIENCE {
            self.targets.wait_for_room(wanted.listener, ticket, now);
        } else if errno == Errno::AGAIN {
            self.refuse(ticket, Errno::TIMEDOUT);
        } else {
            self.refuse(ticket, errno);
        }
    }

    /// Leads on those that wait for room at a listener, until there is none.
    pub(super) fn retry(&mut self) {
        let now = Instant::now();
        while let Some((listener, mut crowd)) = self.targets.take_crowd(now) {
            while let Some(ticket) = crowd.pop_front() {
                self.route(ticket);
                if self.targets.is_crowded(listener) {
                    self.targets.put_back(listener, crowd);
                    break;
                }
            }
        }
    }

    fn refuse(&mut self, ticket: Ticket, errno: Errno) {
        if self.wanted(ticket).is_some()
            && let Some(connection) = self.take(ticket.number)
            && let State::Pending(lane, _) = connection.state
        {
            lane.refuse(errno.raw_os_error().unsigned_abs());
            for (key, _) in connection.places.into_iter().flatten() {
                self.let_go(key);
            }
        }
    }
}

impl Connection {
    /// Whether it was led to its listener, and is not accepted yet.
    fn is_unaccepted(&self) -> bool {
        match &self.state {
            State::Offered(..) => true,
            State::Open(pair) => pair.outgoing().waits_for_accept(),
            State::Pending(..) | State::Changing => false,
        }
    }
}

/// The listener has the connection: the program that connects may go on.
fn establish(incoming: &Lane) {
    incoming.set_flags(side_flags::ESTABLISHED | side_flags::ACCEPTED);
}
