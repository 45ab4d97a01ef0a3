//! Connections from the network, and from other tenants, on their way to listeners of the tenant: what the worker knows of them.

use crate::connection::{self, State};
use crate::meeting::Meeting;
use crate::worker::KernelWorker;
use netchannel_abi::link::side_flags;
use netchannel_service::anchor::Count;
use netchannel_service::cells::{Cells, Key};
use netchannel_service::core_engine::{StackRequest, Ticket};
use netchannel_service::lane::Lane;
use netchannel_service::routing::{Destination, Refused, Router};
use netchannel_service::targets::Targets;
use netchannel_stack_process::message::CHANNELS;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl KernelWorker {
    /// Gives a connection that waits its lane.
    fn give(&mut self, ticket: Ticket, next: impl FnOnce(Destination) -> State) {
        if let Some(connection) = self.table.get_mut(ticket) {
            match std::mem::replace(&mut connection.state, State::Changing) {
                State::Arriving(destination) => {
                    connection.state = next(destination);
                    if matches!(connection.state, State::Open(_)) {
                        connection.arrived = Some(destination);
                    }
                }
                other => connection.state = other,
            }
        }
        self.queue(ticket.number);
    }

    /// Whether a waiting connection was announced to a program that was killed: it belongs to its listener, and to none
    /// that comes after it.
    fn was_open(&self, ticket: Ticket) -> bool {
        if let Some(meeting) = self.table.meeting(ticket) {
            return meeting.state.was_open();
        }
        let connection = self.table.get(ticket);
        connection.is_some_and(|connection| connection.arrived.is_some())
    }

    /// The program to which a connection was announced was killed before it accepted it: another one may.
    pub(crate) fn accept_anew(&mut self, number: usize) {
        let Some(connection) = self.table.at_mut(number) else {
            return;
        };
        let stamp = connection.stamp;
        if let Some(place) = connection.place.take() {
            self.forget_place(place);
            self.let_go(place.0);
        }
        self.route(Ticket { number, stamp });
        self.note_retries();
    }

    /// Another listener of the tenant to which a waiting connection may go as well: the one that was chosen is gone, and the stack was
    /// not told yet when the client came.
    fn other_listener(&self, ticket: Ticket) -> Option<u32> {
        let wanted = self.destination(ticket)?;
        if wanted.listener == CHANNELS {
            return None;
        }
        let served = self.tenants.get(self.current)?;
        served.listener_beside(wanted.listener, &wanted.server, &wanted.client)
    }
}

impl Router for KernelWorker {
    fn cells(&self) -> &Cells {
        &self.cells
    }

    fn cells_mut(&mut self) -> &mut Cells {
        &mut self.cells
    }

    fn targets(&mut self) -> &mut Targets {
        match self.tenants.get_mut(self.current) {
            Some(served) => &mut served.targets,
            None => &mut self.nobody.0,
        }
    }

    fn count(&self) -> &Arc<Count> {
        let served = self.tenants.get(self.current);
        served.map_or(&self.nobody.1, |served| &served.count)
    }

    fn request(&mut self, request: StackRequest) {
        self.send_request(self.current, request);
    }

    fn on_names(&mut self, end: OwnedFd) {
        self.add_asker(end);
    }

    fn retry(&mut self) {
        self.retry_all();
    }

    fn added(&mut self, _: u64, key: Key) {
        self.set_link_tenant(key, self.current);
    }

    fn destination(&self, ticket: Ticket) -> Option<Destination> {
        if let Some(meeting) = self.table.meeting(ticket) {
            return meeting.state.destination();
        }
        match self.table.get(ticket)?.state {
            State::Arriving(destination) => Some(destination),
            _ => None,
        }
    }

    fn redirect(&mut self, ticket: Ticket, listener: u32) {
        if self.was_open(ticket) {
            return self.refuse(ticket, Refused::NoListener);
        }
        if let Some(meeting) = self.table.meeting_mut(ticket) {
            meeting.state.redirect(listener);
        }
        if let Some(connection) = self.table.get_mut(ticket)
            && let State::Arriving(destination) = &mut connection.state
        {
            destination.listener = listener;
        }
    }

    fn is_unaccepted(&self, ticket: Ticket) -> bool {
        if let Some(meeting) = self.table.meeting(ticket) {
            return meeting.state.is_unaccepted();
        }
        match self.table.get(ticket).map(|one| &one.state) {
            Some(State::Offered(..)) => true,
            Some(State::Open(lane)) => lane.waits_for_accept(),
            _ => false,
        }
    }

    fn established(&mut self, ticket: Ticket, lane: Lane, _: Key) -> Option<Ticket> {
        if let Some(meeting) = self.table.meeting(ticket) {
            let crosses = meeting.crosses();
            self.establish_meeting(ticket, lane);
            if crosses {
                // Channels have no backlog here.
                return None;
            }
        } else {
            lane.set_flags(side_flags::ANSWERS);
            self.give(ticket, |_| State::Open(lane));
        }
        Some(ticket)
    }

    fn offered(&mut self, ticket: Ticket, lane: Lane, key: Key) -> Option<Ticket> {
        if let Some(meeting) = self.table.meeting_mut(ticket) {
            meeting.state.offer(lane);
        } else {
            self.give(ticket, |destination| State::Offered(destination, lane, key));
        }
        Some(ticket)
    }

    fn taken(&mut self, ticket: Ticket) -> Option<Ticket> {
        if self.table.meeting(ticket).is_some() {
            self.meeting_taken(ticket);
            return None;
        }
        let (lane, _) = self.take_back(ticket)?;
        lane.set_flags(side_flags::ANSWERS);
        self.give(ticket, |_| State::Open(lane));
        None
    }

    fn take_back(&mut self, ticket: Ticket) -> Option<(Lane, Key)> {
        if let Some(meeting) = self.table.meeting_mut(ticket) {
            return meeting.take_back();
        }
        let connection = self.table.get_mut(ticket)?;
        match std::mem::replace(&mut connection.state, State::Changing) {
            State::Offered(destination, lane, key) => {
                connection.state = State::Arriving(destination);
                Some((lane, key))
            }
            other => {
                connection.state = other;
                None
            }
        }
    }

    fn refuse(&mut self, ticket: Ticket, why: Refused) {
        if why == Refused::NoListener
            && !self.was_open(ticket)
            && let Some(other) = self.other_listener(ticket)
        {
            self.redirect(ticket, other);
            return self.route(ticket);
        }
        if self.table.meeting(ticket).is_some() {
            return self.refuse_meeting(ticket.number, why);
        }
        if let Some(connection) = self.table.get(ticket) {
            connection::make_reset(&connection.socket);
            self.remove(ticket.number);
        }
    }

    fn retire(&mut self, key: Key) {
        if let Some(end) = self.cells.link(key) {
            end.retire();
        }
        self.cells.unwatch_channel(key);
        self.let_go(key);
    }

    fn waits_for_room(&self, ticket: Ticket) -> bool {
        let meeting = self.table.meeting(ticket);
        !meeting.is_some_and(Meeting::crosses)
    }

    fn watch(&mut self, ticket: Ticket, key: Key, lane: &mut Lane) -> bool {
        if self.table.meeting(ticket).is_some() {
            return self.watch_server(ticket, key, lane);
        }
        self.watch_lane(ticket.number, key, lane)
    }

    fn unwatch(&mut self, key: Key, slot: u32) {
        self.unwatch_server((key, slot));
        self.forget_place((key, slot));
    }
}
