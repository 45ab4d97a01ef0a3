//! How a connection gets to a listener of this host: over a link whose program will accept soon, over a new link, or offered to
//! whoever accepts first.
//!
//! ```text
//!  destination --> Targets: which way? --link--> announced on it -------------------> established
//!                     |       ^        --offer--> CoreEngine offers it, and answers --> established
//!                     v       |
//!             CoreEngine: asked for a link, answers; a full backlog is tried again
//! ```

use crate::anchor::Count;
use crate::cells::{Cells, Key};
use crate::core_engine::{AcceptMode, Ask, Command, Ticket, WRONG_ADDRESS};
use crate::lane::Lane;
use crate::link::{LinkEnd, Loan, Parts};
use crate::targets::{Choice, Targets};
use netchannel_abi::address::Address;
use netchannel_abi::link::Role;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long a full backlog is waited for, about as long as TCP does.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where a connection wants to go.
#[derive(Clone, Copy, Debug)]
pub struct Destination {
    /// The listener, as CoreEngine numbers it.
    pub listener: u32,
    /// Where the connection comes from.
    pub client: Address,
    /// Where it leads.
    pub server: Address,
    /// When it was asked for.
    pub since: Instant,
}

/// Why a connection is led nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Nobody listens there.
    NoListener,
    /// The backlog was full for too long.
    BacklogFull,
    /// The daemon lacks something.
    Shortage(Errno),
}

enum Way {
    Elsewhere,
    Full,
    Chosen(Choice),
}

/// A worker that leads connections to listeners of this host. What it must provide is what it knows of a connection; how it is led is
/// provided.
pub trait Leads {
    /// The links of the worker.
    fn cells(&self) -> &Cells;

    /// The same, to change them.
    fn cells_mut(&mut self) -> &mut Cells;

    /// The listeners that it has led to.
    fn targets(&mut self) -> &mut Targets;

    /// How many anchors its stack holds.
    fn count(&self) -> &Arc<Count>;

    /// Asks CoreEngine for something.
    fn ask(&self, ask: Ask);

    /// Where a connection wants to go, as long as it waits.
    fn destination(&self, ticket: Ticket) -> Option<Destination>;

    /// Another listener is at the destination of a connection that waits.
    fn redirect(&mut self, ticket: Ticket, listener: u32);

    /// Whether a connection that was led to its listener is not accepted yet. The ticket is the one that [`Self::established`] or
    /// [`Self::offered`] gave.
    fn is_unaccepted(&self, ticket: Ticket) -> bool;

    /// The listener has been told of a connection: its lane. Returns the ticket by which it is asked whether it is accepted.
    fn established(&mut self, ticket: Ticket, lane: Lane, key: Key) -> Option<Ticket>;

    /// CoreEngine is asked to offer a connection: its lane is kept until CoreEngine answers. Returns what [`Self::established`] does, where
    /// the connection counts in the backlog already.
    fn offered(&mut self, ticket: Ticket, lane: Lane, key: Key) -> Option<Ticket>;

    /// CoreEngine has offered it: it is established. Returns what [`Self::established`] does, where it does not count in the backlog yet.
    fn taken(&mut self, ticket: Ticket) -> Option<Ticket>;

    /// CoreEngine could not offer it: gives its lane back; the connection waits again.
    fn take_back(&mut self, ticket: Ticket) -> Option<(Lane, Key)>;

    /// A connection that waits is led nowhere.
    fn refuse(&mut self, ticket: Ticket, why: Refused);

    /// No new connection comes over a link. It goes with its last connection.
    fn retire(&mut self, key: Key);

    /// Whether a link can be taken for a connection.
    fn may_take(&self, end: &LinkEnd) -> bool {
        end.is_alive()
    }

    /// A lane towards a listener is about to be used. False where it can not be watched.
    fn watch(&mut self, _: Ticket, _: Key, _: &mut Lane) -> bool {
        true
    }

    /// That lane is not used after all.
    fn unwatch(&mut self, _: Key, _: u32) {}

    /// A link was taken up.
    fn added(&mut self, _: u64, _: Key) {}

    /// Anchors of a link may have been let go.
    fn look_at(&mut self, key: Key, _: &Arc<LinkEnd>) {
        self.cells_mut().touch(key);
    }

    /// A program was told of a connection, and perhaps `claimed` for it: it is to be woken.
    fn rouse(&mut self, _: Key, end: &LinkEnd, claimed: bool) {
        end.rouse(claimed);
    }

    /// What CoreEngine says. False when the worker is to end.
    fn on_command(&mut self, command: Command) -> bool {
        match command {
            Command::Serve(parts) => {
                self.add_link(parts);
            }
            Command::Link(listener, answer) => self.on_link(listener, answer),
            Command::OfferLink(listener, answer) => self.on_offer_link(listener, answer),
            Command::Offered(ticket, answer) => self.on_offered(ticket, answer),
            Command::Moved { from, to } => self.on_moved(from, to),
            Command::AcceptMode(listener, mode) => self.targets().set_mode(listener, mode),
            Command::Gone(listener) => self.on_gone(listener),
            Command::Stop => return false,
        }
        true
    }

    /// Takes a link up.
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

    /// Leads a connection that waits to its listener.
    fn route(&mut self, ticket: Ticket) {
        let Some(wanted) = self.destination(ticket) else {
            return;
        };
        let listener = wanted.listener;
        let mut targets = std::mem::take(self.targets());
        let waits = |ticket: Ticket| self.is_unaccepted(ticket);
        let way = if !targets.is_at(listener, &wanted.server) {
            Way::Elsewhere
        } else if targets.is_full(listener, Instant::now(), waits) {
            Way::Full
        } else {
            let usable = |key| self.cells().link(key).filter(|end| self.may_take(end));
            Way::Chosen(targets.choose(listener, usable))
        };
        *self.targets() = targets;
        match way {
            Way::Elsewhere => return self.refuse(ticket, Refused::NoListener),
            Way::Full => return self.fail(ticket, Errno::AGAIN),
            Way::Chosen(Choice::Link(key, claimed)) => return self.connect(ticket, key, claimed),
            Way::Chosen(Choice::Offer(key)) => return self.offer(ticket, key),
            Way::Chosen(Choice::Ask) => self.ask(Ask::Link(listener, wanted.server)),
            Way::Chosen(Choice::AskOfferLink) => self.ask(Ask::OfferLink(listener)),
            Way::Chosen(Choice::Wait) => {}
        }
        self.targets().wait(listener, ticket);
    }

    /// CoreEngine has answered with a link.
    fn on_link(&mut self, listener: u32, answer: Result<(Parts, AcceptMode), Errno>) {
        let mut waiting = self.targets().answered(listener).into_iter();
        let taken = answer.and_then(|(parts, mode)| {
            let key = self.take_link(parts)?;
            self.targets().add(listener, key, mode);
            // Its program does not know of the link yet, and can not be claimed.
            if let Some(ticket) = waiting.next() {
                self.connect(ticket, key, false);
            }
            Ok(())
        });
        self.go_on(listener, waiting, taken);
    }

    /// CoreEngine has answered with a link for what is offered.
    fn on_offer_link(&mut self, listener: u32, answer: Result<(Parts, OwnedFd), Errno>) {
        let waiting = self.targets().answered(listener).into_iter();
        let taken = answer.and_then(|(parts, channel)| {
            let key = self.take_link(parts)?;
            self.targets().add_offer_link(listener, key, channel);
            Ok(())
        });
        self.go_on(listener, waiting, taken);
    }

    /// Takes up a link that was asked for.
    ///
    /// # Errors
    /// `ENOBUFS` where it can not be had.
    fn take_link(&mut self, parts: Parts) -> Result<Key, Errno> {
        let number = parts.number;
        let key = self.add_link(parts);
        if key.is_none() {
            self.ask(Ask::Forget(number));
        }
        key.ok_or(Errno::NOBUFS)
    }

    /// CoreEngine has answered: those that waited go on, or learn why not.
    fn go_on(
        &mut self,
        listener: u32,
        mut waiting: std::vec::IntoIter<Ticket>,
        mut answer: Result<(), Errno>,
    ) {
        if answer == Err(WRONG_ADDRESS) {
            if let Some(asker) = waiting.next() {
                self.refuse(asker, Refused::NoListener);
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
    fn on_moved(&mut self, from: u32, to: u32) {
        let waiting = self.targets().answered(from);
        self.on_gone(from);
        let asker = waiting.first().and_then(|ticket| self.destination(*ticket));
        for ticket in waiting {
            // What is at the address of the one for which CoreEngine was asked need not be at the others'.
            let wanted = self.destination(ticket);
            if wanted.is_some_and(|one| asker.is_some_and(|asker| asker.server == one.server)) {
                self.redirect(ticket, to);
            }
            self.route(ticket);
        }
    }

    /// A listener is gone.
    fn on_gone(&mut self, listener: u32) {
        for ticket in self.targets().answered(listener) {
            self.refuse(ticket, Refused::NoListener);
        }
        let (links, crowd) = self.targets().remove(listener);
        for ticket in crowd {
            self.refuse(ticket, Refused::NoListener);
        }
        // A program that listens no more may still accept what was announced to it.
        for key in links {
            self.retire(key);
        }
    }

    /// A lane towards the listener of a connection that waits.
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
        self.look_at(key, &end);
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
            // Its program has left it: there may be another way, and it is known then whether anybody listens.
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

    /// A lane whose connection CoreEngine can offer, and the program's end of its anchor.
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
        self.look_at(key, end);
        let (loan, anchor) = lent?;
        Ok((self.outgoing(ticket, key, end, loan)?, anchor))
    }

    /// Lets CoreEngine offer a connection.
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
        self.ask(Ask::Offer {
            ticket,
            listener: wanted.listener,
            link: end.number(),
            slot: handle.index,
            anchor,
        });
    }

    /// CoreEngine has offered it, or could not.
    fn on_offered(&mut self, ticket: Ticket, answer: Result<(), Errno>) {
        let Err(errno) = answer else {
            return self.on_taken(ticket);
        };
        if let Some((lane, key)) = self.take_back(ticket) {
            let slot = lane.handle().index;
            lane.withdraw();
            self.unwatch(key, slot);
            self.cells_mut().touch(key);
            self.fail(ticket, errno);
        }
    }

    /// CoreEngine has offered it.
    fn on_taken(&mut self, ticket: Ticket) {
        let listener = self.destination(ticket).map(|wanted| wanted.listener);
        let waits = self.taken(ticket);
        if let Some(listener) = listener {
            self.note(listener, waits);
        }
    }

    /// A connection could not be led on now.
    fn fail(&mut self, ticket: Ticket, errno: Errno) {
        let Some(wanted) = self.destination(ticket) else {
            return;
        };
        let now = Instant::now();
        let why = match errno {
            // A full backlog: TCP would say it again too.
            Errno::AGAIN if now.duration_since(wanted.since) < PATIENCE => {
                return self.targets().wait_for_room(wanted.listener, ticket, now);
            }
            Errno::AGAIN => Refused::BacklogFull,
            Errno::CONNREFUSED => Refused::NoListener,
            errno => Refused::Shortage(errno),
        };
        self.refuse(ticket, why);
    }

    /// Leads on those that wait for room at a listener, until there is none.
    fn retry(&mut self) {
        if self.targets().next_retry().is_none() {
            return;
        }
        let now = Instant::now();
        while let Some((listener, mut crowd)) = self.targets().take_crowd(now) {
            while let Some(ticket) = crowd.pop_front() {
                self.route(ticket);
                if self.targets().is_crowded(listener) {
                    self.targets().put_back(listener, crowd);
                    break;
                }
            }
        }
    }
}
