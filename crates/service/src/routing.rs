//! How a connection gets to a listener of this host: over a link whose program will accept soon, over a new link, or
//! offered to the process that accepts first.
//!
//! ```text
//!  destination --> Targets: which way? --link--> announced on it -------------------> established
//!                     |       ^        --offer--> CoreEngine offers it, and answers --> established
//!                     v       |
//!             CoreEngine: asked for a link, answers; a full backlog is tried again
//! ```

use crate::anchor::Count;
use crate::cells::{Cells, Key};
use crate::core_engine::{AcceptMode, Command, StackRequest, Ticket, WRONG_ADDRESS};
use crate::lane::Lane;
use crate::link::{LinkEnd, Loan, Parts};
use crate::targets::{Choice, Targets};
use netchannel_abi::address::Address;
use netchannel_abi::link::Role;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a connection waits for a full backlog: about as long as TCP does.
const PATIENCE: Duration = Duration::from_secs(120);

/// The destination of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Destination {
    /// The listener, as CoreEngine numbers it.
    pub listener: u32,
    /// The address of the client.
    pub client: Address,
    /// The address to which it connects.
    pub server: Address,
    /// When the connection was requested.
    pub since: Instant,
}

/// Why a connection reaches no listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No listener is there.
    NoListener,
    /// The listener is at another address than the connection's destination.
    WrongAddress,
    /// The backlog was full for too long.
    BacklogFull,
    /// The daemon is out of a resource.
    Shortage(Errno),
}

enum Route {
    WrongAddress,
    Full,
    Chosen(Choice),
}

/// A worker that routes connections to listeners of this host. The required methods say what the worker knows of a
/// connection; the provided methods route it.
pub trait Router {
    /// The links of the worker.
    fn cells(&self) -> &Cells;

    /// The links of the worker, to change them.
    fn cells_mut(&mut self) -> &mut Cells;

    /// The listeners that the worker has connected to.
    fn targets(&mut self) -> &mut Targets;

    /// The number of anchors that its stack holds.
    fn count(&self) -> &Arc<Count>;

    /// Sends a request to CoreEngine.
    fn request(&mut self, request: StackRequest);

    /// The destination of a connection, as long as it waits.
    fn destination(&self, ticket: Ticket) -> Option<Destination>;

    /// Changes the listener of a waiting connection: another one is at its destination now.
    fn redirect(&mut self, ticket: Ticket, listener: u32);

    /// Whether a connection that was announced to its listener is not accepted yet. The ticket is the one that
    /// [`Self::established`] or [`Self::offered`] returned.
    fn is_unaccepted(&self, ticket: Ticket) -> bool;

    /// A connection was announced to its listener, over this lane. Returns the ticket for [`Self::is_unaccepted`].
    fn established(&mut self, ticket: Ticket, lane: Lane, key: Key) -> Option<Ticket>;

    /// CoreEngine was asked to offer a connection. The worker keeps its lane until CoreEngine answers. Returns the
    /// ticket for [`Self::is_unaccepted`] where the connection counts in the backlog already.
    fn offered(&mut self, ticket: Ticket, lane: Lane, key: Key) -> Option<Ticket>;

    /// CoreEngine has offered the connection: it is established. Returns the ticket for [`Self::is_unaccepted`] where
    /// the connection does not count in the backlog yet.
    fn taken(&mut self, ticket: Ticket) -> Option<Ticket>;

    /// CoreEngine could not offer the connection: returns its lane. The connection waits again.
    fn take_back(&mut self, ticket: Ticket) -> Option<(Lane, Key)>;

    /// Refuses a waiting connection.
    fn refuse(&mut self, ticket: Ticket, why: Refused);

    /// No new connection comes over this link. The link ends with its last connection.
    fn retire(&mut self, key: Key);

    /// A lane towards a listener is about to be used. False where it can not be watched.
    fn watch(&mut self, _: Ticket, _: Key, _: &mut Lane) -> bool {
        true
    }

    /// That lane is not used after all.
    fn unwatch(&mut self, _: Key, _: u32) {}

    /// Whether a connection waits where there is no room for it, as for a backlog.
    fn waits_for_room(&self, _: Ticket) -> bool {
        true
    }

    /// A link was added.
    fn added(&mut self, _: u64, _: Key) {}

    /// Anchors of a link may have been closed: looks at its cells.
    fn on_anchors_closed(&mut self, key: Key, _: &Arc<LinkEnd>) {
        self.cells_mut().wake_link(key);
    }

    /// Wakes a program to which a connection was announced, and which was perhaps `claimed` for it.
    fn rouse(&mut self, _: Key, end: &LinkEnd, claimed: bool) {
        end.rouse(claimed);
    }

    /// A program asks name servers over a pair, of which this is the other end.
    fn on_names(&mut self, _end: OwnedFd) {}

    /// Handles a message of CoreEngine. False when the worker must end.
    fn on_command(&mut self, command: Command) -> bool {
        match command {
            Command::Serve(parts) => {
                self.add_link(parts);
            }
            Command::Link(listener, answer) => self.on_link(listener, answer),
            Command::OfferLink(listener, answer) => self.on_offer_link(listener, answer),
            Command::Offered(ticket, answer) => self.on_offered(ticket, answer),
            Command::ListenerReplaced { from, to } => self.on_moved(from, to),
            Command::AcceptMode(listener, mode) => self.targets().set_mode(listener, mode),
            Command::ListenerClosed(listener) => self.on_listener_closed(listener),
            Command::Names(end) => self.on_names(end),
            Command::Stop => return false,
        }
        true
    }

    /// Adds a link.
    fn add_link(&mut self, parts: Parts) -> Option<Key> {
        let number = parts.number;
        let end = Arc::new(LinkEnd::new(parts, self.count())?);
        let key = self.cells_mut().add_link(end)?;
        self.added(number, key);
        Some(key)
    }

    /// The program of a link has ended.
    fn on_ended(&mut self, key: Key) {
        let Some(end) = self.cells().link(key).map(Arc::clone) else {
            return;
        };
        end.fail();
        if end.role() == Role::Client {
            self.targets().forget_link(key);
        }
        self.retire(key);
    }

    /// Routes a waiting connection to its listener.
    fn route(&mut self, ticket: Ticket) {
        let Some(wanted) = self.destination(ticket) else {
            return;
        };
        let listener = wanted.listener;
        let mut targets = std::mem::take(self.targets());
        let waits = |ticket: Ticket| self.is_unaccepted(ticket);
        let way = if !targets.is_at(listener, &wanted.server) {
            Route::WrongAddress
        } else if targets.is_full(listener, Instant::now(), waits) {
            Route::Full
        } else {
            Route::Chosen(self.choose(&mut targets, listener))
        };
        *self.targets() = targets;
        match way {
            Route::WrongAddress => return self.refuse(ticket, Refused::WrongAddress),
            Route::Full => return self.fail(ticket, Errno::AGAIN),
            Route::Chosen(Choice::Link(key, claimed)) => return self.connect(ticket, key, claimed),
            Route::Chosen(Choice::Offer(key)) => return self.offer(ticket, key),
            Route::Chosen(Choice::RequestLink) => {
                self.request(StackRequest::Link(listener, wanted.server))
            }
            Route::Chosen(Choice::RequestOfferLink) => {
                self.request(StackRequest::OfferLink(listener))
            }
            Route::Chosen(Choice::Wait) => {}
        }
        self.targets().wait(listener, ticket);
    }

    /// The way to a listener. A program whose end is not handled yet gets no connection: one that comes after the end of
    /// a member of a group belongs to those that are left.
    fn choose(&self, targets: &mut Targets, listener: u32) -> Choice {
        let alive = |key| self.cells().link(key).filter(|end| end.is_alive());
        loop {
            match targets.choose(listener, alive) {
                // A link that has ended is not alive from then on, and not chosen again.
                Choice::Link(key, _) if !alive(key).is_some_and(|end| end.check()) => {}
                choice => return choice,
            }
        }
    }

    /// CoreEngine has answered with a link.
    fn on_link(&mut self, listener: u32, answer: Result<(Parts, AcceptMode), Errno>) {
        let mut waiting = self.targets().answered(listener).into_iter();
        let taken = answer.and_then(|(parts, mode)| {
            let key = self.take_link(parts)?;
            self.targets().add(listener, key, mode);
            // The program does not know the new link yet, and can not be claimed.
            if let Some(ticket) = waiting.next() {
                self.connect(ticket, key, false);
            }
            Ok(())
        });
        self.resume_waiting(listener, waiting, taken);
    }

    /// CoreEngine has answered with a link for offered connections.
    fn on_offer_link(&mut self, listener: u32, answer: Result<(Parts, OwnedFd), Errno>) {
        let waiting = self.targets().answered(listener).into_iter();
        let taken = answer.and_then(|(parts, channel)| {
            let key = self.take_link(parts)?;
            self.targets().add_offer_link(listener, key, channel);
            Ok(())
        });
        self.resume_waiting(listener, waiting, taken);
    }

    /// Adds a link that was requested.
    ///
    /// # Errors
    /// `ENOBUFS` where it can not be added.
    fn take_link(&mut self, parts: Parts) -> Result<Key, Errno> {
        let number = parts.number;
        let key = self.add_link(parts);
        if key.is_none() {
            self.request(StackRequest::Forget(number));
        }
        key.ok_or(Errno::NOBUFS)
    }

    /// CoreEngine has answered: the waiting connections are routed again, or fail.
    fn resume_waiting(
        &mut self,
        listener: u32,
        mut waiting: std::vec::IntoIter<Ticket>,
        mut answer: Result<(), Errno>,
    ) {
        if answer == Err(WRONG_ADDRESS) {
            if let Some(asker) = waiting.next() {
                self.refuse(asker, Refused::WrongAddress);
            }
            answer = Ok(());
        }
        if answer == Err(Errno::CONNREFUSED) {
            self.on_listener_closed(listener);
        }
        for ticket in waiting {
            match answer {
                Ok(()) => self.route(ticket),
                Err(errno) => self.fail(ticket, errno),
            }
        }
    }

    /// The listener is closed, but another one is at its address.
    fn on_moved(&mut self, from: u32, to: u32) {
        let waiting = self.targets().answered(from);
        self.on_listener_closed(from);
        let asker = waiting.first().and_then(|ticket| self.destination(*ticket));
        for ticket in waiting {
            // The new listener is at the destination of the connection for which CoreEngine was asked. The other
            // connections may have other destinations.
            let wanted = self.destination(ticket);
            if wanted.is_some_and(|one| asker.is_some_and(|asker| asker.server == one.server)) {
                self.redirect(ticket, to);
            }
            self.route(ticket);
        }
    }

    /// A listener is closed.
    fn on_listener_closed(&mut self, listener: u32) {
        for ticket in self.targets().answered(listener) {
            self.refuse(ticket, Refused::NoListener);
        }
        let (links, waiting_for_room) = self.targets().remove(listener);
        for ticket in waiting_for_room {
            self.refuse(ticket, Refused::NoListener);
        }
        // A program that has closed the listener may still accept connections that were announced before.
        for key in links {
            self.retire(key);
        }
    }

    /// Makes a lane towards the listener of a waiting connection.
    ///
    /// # Errors
    /// Why there is none, as [`LinkEnd::lend`].
    fn outgoing(
        &mut self,
        ticket: Ticket,
        key: Key,
        end: &Arc<LinkEnd>,
        loan: Loan,
    ) -> Result<Lane, Errno> {
        let mut lane = Lane::lent(end, loan).ok_or(Errno::AGAIN)?.of_daemon();
        if self.watch(ticket, key, &mut lane) {
            return Ok(lane);
        }
        lane.withdraw();
        Err(Errno::AGAIN)
    }

    /// Makes a connection over a link.
    fn connect(&mut self, ticket: Ticket, key: Key, claimed: bool) {
        let Some(wanted) = self.destination(ticket) else {
            return;
        };
        let Some(end) = self.cells().link(key).map(Arc::clone) else {
            return self.fail(ticket, Errno::AGAIN);
        };
        let loan = end.lend();
        self.on_anchors_closed(key, &end);
        let lane = match loan.and_then(|loan| self.outgoing(ticket, key, &end, loan)) {
            Ok(lane) => lane,
            Err(errno) => {
                if claimed {
                    end.ring();
                }
                return self.fail(ticket, errno);
            }
        };
        let handle = lane.handle();
        if !end.post(handle, wanted.listener, (&wanted.client, &wanted.server)) {
            if claimed {
                end.ring();
            }
            lane.withdraw();
            self.unwatch(key, handle.index);
            if end.is_alive() {
                return self.fail(ticket, Errno::AGAIN);
            }
            // The program has left the link. Another route may exist, and routing again also shows whether anybody
            // listens.
            return self.route(ticket);
        }
        self.rouse(key, &end, claimed);
        let waits = self.established(ticket, lane, key);
        self.note(wanted.listener, waits);
    }

    /// Counts a connection in the backlog of its listener.
    fn note(&mut self, listener: u32, waits: Option<Ticket>) {
        if let Some(ticket) = waits {
            self.targets().note(listener, ticket);
        }
    }

    /// Borrows a slot for a connection that CoreEngine can offer. Returns its lane and the program's end of its anchor.
    ///
    /// # Errors
    /// As [`LinkEnd::lend_pair`].
    fn lend_pair(
        &mut self,
        ticket: Ticket,
        key: Key,
        end: &Arc<LinkEnd>,
    ) -> Result<(Lane, OwnedFd), Errno> {
        let lent: Result<(Loan, OwnedFd), Errno> = end.lend_pair();
        self.on_anchors_closed(key, end);
        let (loan, anchor) = lent?;
        Ok((self.outgoing(ticket, key, end, loan)?, anchor))
    }

    /// Asks CoreEngine to offer a connection.
    fn offer(&mut self, ticket: Ticket, key: Key) {
        let Some(wanted) = self.destination(ticket) else {
            return;
        };
        let Some(end) = self.cells().link(key).map(Arc::clone) else {
            return self.fail(ticket, Errno::AGAIN);
        };
        let (lane, anchor) = match self.lend_pair(ticket, key, &end) {
            Ok(lent) => lent,
            Err(errno) => return self.fail(ticket, errno),
        };
        let handle = lane.handle();
        end.describe(handle, wanted.listener, (&wanted.client, &wanted.server));
        let waits = self.offered(ticket, lane, key);
        self.note(wanted.listener, waits);
        self.request(StackRequest::Offer {
            ticket,
            listener: wanted.listener,
            link: end.number(),
            slot: handle.index,
            anchor,
        });
    }

    /// CoreEngine has offered a connection, or could not.
    fn on_offered(&mut self, ticket: Ticket, answer: Result<(), Errno>) {
        let Err(errno) = answer else {
            return self.on_taken(ticket);
        };
        if let Some((lane, key)) = self.take_back(ticket) {
            let slot = lane.handle().index;
            lane.withdraw();
            self.unwatch(key, slot);
            self.cells_mut().wake_link(key);
            self.fail(ticket, errno);
        }
    }

    /// CoreEngine has offered a connection.
    fn on_taken(&mut self, ticket: Ticket) {
        let listener = self.destination(ticket).map(|wanted| wanted.listener);
        let waits = self.taken(ticket);
        if let Some(listener) = listener {
            self.note(listener, waits);
        }
    }

    /// A connection could not be made now.
    fn fail(&mut self, ticket: Ticket, errno: Errno) {
        let Some(wanted) = self.destination(ticket) else {
            return;
        };
        let now = Instant::now();
        let why = match errno {
            // A full backlog: TCP would retry the SYN too.
            Errno::AGAIN
                if self.waits_for_room(ticket) && now.duration_since(wanted.since) < PATIENCE =>
            {
                return self.targets().wait_for_room(wanted.listener, ticket, now);
            }
            Errno::AGAIN => Refused::BacklogFull,
            Errno::CONNREFUSED => Refused::NoListener,
            errno => Refused::Shortage(errno),
        };
        self.refuse(ticket, why);
    }

    /// Routes connections that wait for room at a listener, until there is no room left.
    fn retry(&mut self) {
        self.retry_targets();
    }

    /// The same, for the present [`Self::targets`].
    fn retry_targets(&mut self) {
        if self.targets().next_retry().is_none() {
            return;
        }
        let now = Instant::now();
        while let Some((listener, mut waiting_for_room)) = self.targets().take_waiting_for_room(now)
        {
            while let Some(ticket) = waiting_for_room.pop_front() {
                self.route(ticket);
                if self.targets().has_waiting_for_room(listener) {
                    self.targets().put_back(listener, waiting_for_room);
                    break;
                }
            }
        }
    }
}
