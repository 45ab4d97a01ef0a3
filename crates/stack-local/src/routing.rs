//! The way of a connection between two programs of this host to its listener.

use super::worker::{Connection, Local, State};
use netchannel_abi::link::side_flags;
use netchannel_service::anchor::Count;
use netchannel_service::cells::{Cells, Key};
use netchannel_service::core_engine::{StackRequest, Ticket};
use netchannel_service::lane::Lane;
use netchannel_service::link::LinkEnd;
use netchannel_service::pair::Pair;
use netchannel_service::routing::{Destination, Refused, Router};
use netchannel_service::targets::Targets;
use rustix::io::Errno;
use std::sync::Arc;

impl Router for Local {
    fn cells(&self) -> &Cells {
        &self.cells
    }

    fn cells_mut(&mut self) -> &mut Cells {
        &mut self.cells
    }

    fn targets(&mut self) -> &mut Targets {
        &mut self.targets
    }

    fn count(&self) -> &Arc<Count> {
        &self.count
    }

    fn request(&mut self, request: StackRequest) {
        self.mail.requests.send(request);
    }

    fn destination(&self, ticket: Ticket) -> Option<Destination> {
        match &self.connection(ticket)?.state {
            State::Pending(_, wanted) => Some(*wanted),
            _ => None,
        }
    }

    fn redirect(&mut self, ticket: Ticket, listener: u32) {
        if let Some(connection) = self.connection_mut(ticket)
            && let State::Pending(_, wanted) = &mut connection.state
        {
            wanted.listener = listener;
        }
    }

    fn is_unaccepted(&self, ticket: Ticket) -> bool {
        let known = self.connection(ticket);
        known.is_some_and(Connection::is_unaccepted)
    }

    fn established(&mut self, ticket: Ticket, lane: Lane, key: Key) -> Option<Ticket> {
        self.join(ticket, lane, key, |incoming, lane, _| {
            establish(&incoming);
            State::Open(Pair::new(incoming, lane))
        });
        self.enqueue(ticket.number);
        Some(ticket)
    }

    fn offered(&mut self, ticket: Ticket, lane: Lane, key: Key) -> Option<Ticket> {
        self.join(ticket, lane, key, |incoming, lane, wanted| {
            State::Offered(Pair::new(incoming, lane), wanted)
        });
        Some(ticket)
    }

    fn taken(&mut self, ticket: Ticket) -> Option<Ticket> {
        let connection = self.connection_mut(ticket)?;
        match std::mem::replace(&mut connection.state, State::Changing) {
            State::Offered(pair, _) => {
                establish(pair.incoming());
                connection.state = State::Open(pair);
                self.enqueue(ticket.number);
            }
            other => connection.state = other,
        }
        // The connection counts in the backlog since it was offered.
        None
    }

    fn take_back(&mut self, ticket: Ticket) -> Option<(Lane, Key)> {
        let connection = self.connection_mut(ticket)?;
        match std::mem::replace(&mut connection.state, State::Changing) {
            State::Offered(pair, wanted) => {
                let (incoming, outgoing) = pair.split();
                connection.state = State::Pending(incoming, wanted);
                let [_, place] = &mut connection.places;
                let (key, _) = place.take()?;
                Some((outgoing, key))
            }
            other => {
                connection.state = other;
                None
            }
        }
    }

    fn refuse(&mut self, ticket: Ticket, why: Refused) {
        let errno = match why {
            Refused::NoListener => Errno::CONNREFUSED,
            Refused::BacklogFull => Errno::TIMEDOUT,
            Refused::Shortage(errno) => errno,
        };
        if self.destination(ticket).is_some()
            && let Some(connection) = self.take(ticket.number)
            && let State::Pending(lane, _) = connection.state
        {
            lane.refuse(errno.raw_os_error().unsigned_abs());
            for (key, _) in connection.places.into_iter().flatten() {
                self.remove_link_if_unused(key);
            }
        }
    }

    fn retire(&mut self, key: Key) {
        if let Some(end) = self.cells.link(key) {
            end.retire();
        }
        self.cells.unwatch_channel(key);
        self.remove_link_if_unused(key);
    }

    fn may_take(&self, end: &LinkEnd) -> bool {
        end.check()
    }

    fn watch(&mut self, ticket: Ticket, key: Key, lane: &mut Lane) -> bool {
        let place = (key, lane.handle().index);
        self.register_lane(ticket.number, 1, place, lane)
    }

    fn unwatch(&mut self, key: Key, slot: u32) {
        self.clear_place((key, slot));
    }
}

impl Local {
    /// Gives a waiting connection its lane to the listener.
    fn join(
        &mut self,
        ticket: Ticket,
        lane: Lane,
        key: Key,
        next: impl FnOnce(Lane, Lane, Destination) -> State,
    ) {
        let Some(connection) = self.connection_mut(ticket) else {
            return;
        };
        let Connection { state, places, .. } = connection;
        places[1] = Some((key, lane.handle().index));
        if let State::Pending(incoming, wanted) = std::mem::replace(state, State::Changing) {
            *state = next(incoming, lane, wanted);
        }
    }
}

impl Connection {
    /// Whether it was announced to its listener and is not accepted yet.
    fn is_unaccepted(&self) -> bool {
        match &self.state {
            State::Offered(..) => true,
            State::Open(pair) => pair.outgoing().waits_for_accept(),
            State::Pending(..) | State::Changing => false,
        }
    }
}

/// The connection was announced to the listener: the connecting program may go on.
fn establish(incoming: &Lane) {
    incoming.set_flags(side_flags::ESTABLISHED | side_flags::ACCEPTED);
}
