//! The way of a connection between two programs of this host to its listener.

use super::worker::Local;
use netchannel_service::anchor::Count;
use netchannel_service::cells::{Cells, Key};
use netchannel_service::core_engine::{StackRequest, Ticket};
use netchannel_service::lane::Lane;
use netchannel_service::routing::{Destination, Refused, Router};
use netchannel_service::targets::Targets;
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
        self.connection(ticket)?.state.destination()
    }

    fn redirect(&mut self, ticket: Ticket, listener: u32) {
        match self.connection_mut(ticket) {
            Some(connection) if connection.state.was_open() => {
                self.refuse(ticket, Refused::NoListener);
            }
            Some(connection) => connection.state.redirect(listener),
            None => {}
        }
    }

    fn is_unaccepted(&self, ticket: Ticket) -> bool {
        let known = self.connection(ticket);
        known.is_some_and(|connection| connection.state.is_unaccepted())
    }

    fn established(&mut self, ticket: Ticket, lane: Lane, _: Key) -> Option<Ticket> {
        if let Some(connection) = self.connection_mut(ticket) {
            connection.state.establish(lane);
        }
        self.enqueue(ticket.number);
        Some(ticket)
    }

    fn offered(&mut self, ticket: Ticket, lane: Lane, _: Key) -> Option<Ticket> {
        if let Some(connection) = self.connection_mut(ticket) {
            connection.state.offer(lane);
        }
        Some(ticket)
    }

    fn taken(&mut self, ticket: Ticket) -> Option<Ticket> {
        if self.connection_mut(ticket)?.state.taken() {
            self.enqueue(ticket.number);
        }
        // The connection counts in the backlog since it was offered.
        None
    }

    fn take_back(&mut self, ticket: Ticket) -> Option<(Lane, Key)> {
        let connection = self.connection_mut(ticket)?;
        let lane = connection.state.take_back()?;
        let [_, place] = &mut connection.places;
        let (key, _) = place.take()?;
        Some((lane, key))
    }

    fn refuse(&mut self, ticket: Ticket, why: Refused) {
        if self.destination(ticket).is_some()
            && let Some(connection) = self.take(ticket.number)
        {
            connection.state.refuse(why);
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

    fn watch(&mut self, ticket: Ticket, key: Key, lane: &mut Lane) -> bool {
        let place = (key, lane.handle().index);
        let is_watched = self.register_lane(ticket.number, 1, place, lane);
        if let Some(connection) = self.connection_mut(ticket).filter(|_| is_watched) {
            connection.places[1] = Some(place);
        }
        is_watched
    }

    fn unwatch(&mut self, key: Key, slot: u32) {
        if let Some((number, _)) = self.find(key, slot)
            && let Some(Some(connection)) = self.connections.get_mut(number)
        {
            connection.places[1] = None;
        }
        self.clear_place((key, slot));
    }
}
