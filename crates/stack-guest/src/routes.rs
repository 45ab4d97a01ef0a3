//! Connections of the host on their way to listeners of the guest: what the worker knows of them.

use crate::arrival::Arrival;
use crate::sink::{LaneSink, number};
use crate::worker::GuestWorker;
use netchannel_guest::Open;
use netchannel_service::anchor::Count;
use netchannel_service::cells::{Cells, Key};
use netchannel_service::core_engine::{StackRequest, Ticket};
use netchannel_service::lane::Lane;
use netchannel_service::routing::{Destination, Refused, Router};
use netchannel_service::targets::Targets;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

fn ticket(serial: u64) -> Ticket {
    Ticket {
        number: usize::try_from(serial).unwrap_or(usize::MAX),
        stamp: serial,
    }
}

impl GuestWorker {
    /// The host wants a connection.
    pub(crate) fn arrive(&mut self, serial: u64, open: Open) {
        let Some(listener) = self.ports.listener(&open.to) else {
            return self.tunnel.refuse(serial, number(Errno::CONNREFUSED));
        };
        let destination = Destination {
            listener,
            client: open.from,
            server: open.to,
            since: Instant::now(),
        };
        let waiting = Arrival::Waiting(destination);
        self.arrivals.insert(serial, waiting);
        self.route(ticket(serial));
    }

    /// A program has it.
    fn give(&mut self, serial: u64, lane: Lane) {
        let sink = LaneSink::new(lane, Arc::clone(&self.counters));
        self.tunnel.attach(serial, sink);
        self.tunnel.accept(serial);
    }
}

impl Router for GuestWorker {
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
        self.send_request(request);
    }

    fn on_names(&mut self, end: OwnedFd) {
        self.add_asker(end);
    }

    fn destination(&self, ticket: Ticket) -> Option<Destination> {
        match self.arrivals.get(&ticket.stamp)? {
            Arrival::Waiting(destination) => Some(*destination),
            Arrival::Offered(..) => None,
        }
    }

    fn redirect(&mut self, ticket: Ticket, listener: u32) {
        if let Some(Arrival::Waiting(destination)) = self.arrivals.get_mut(&ticket.stamp) {
            destination.listener = listener;
        }
    }

    fn is_unaccepted(&self, ticket: Ticket) -> bool {
        match self.arrivals.get(&ticket.stamp) {
            Some(arrival) => matches!(arrival, Arrival::Offered(..)),
            None => {
                let sink = self.tunnel.peek(ticket.stamp);
                sink.is_some_and(|sink| sink.lane.waits_for_accept())
            }
        }
    }

    fn established(&mut self, ticket: Ticket, lane: Lane, _: Key) -> Option<Ticket> {
        self.arrivals.remove(&ticket.stamp);
        self.give(ticket.stamp, lane);
        Some(ticket)
    }

    fn offered(&mut self, ticket: Ticket, lane: Lane, key: Key) -> Option<Ticket> {
        if let Some(Arrival::Waiting(destination)) = self.arrivals.remove(&ticket.stamp) {
            let offered = Arrival::Offered(destination, Box::new(lane), key);
            self.arrivals.insert(ticket.stamp, offered);
        }
        Some(ticket)
    }

    fn taken(&mut self, ticket: Ticket) -> Option<Ticket> {
        let (lane, _) = self.take_back(ticket)?;
        self.arrivals.remove(&ticket.stamp);
        self.give(ticket.stamp, lane);
        None
    }

    fn take_back(&mut self, ticket: Ticket) -> Option<(Lane, Key)> {
        match self.arrivals.remove(&ticket.stamp)? {
            Arrival::Offered(destination, lane, key) => {
                let waiting = Arrival::Waiting(destination);
                self.arrivals.insert(ticket.stamp, waiting);
                Some((*lane, key))
            }
            waiting @ Arrival::Waiting(_) => {
                self.arrivals.insert(ticket.stamp, waiting);
                None
            }
        }
    }

    fn refuse(&mut self, ticket: Ticket, _: Refused) {
        self.arrivals.remove(&ticket.stamp);
        let refused = number(Errno::CONNREFUSED);
        self.tunnel.refuse(ticket.stamp, refused);
        self.forget(ticket.stamp);
    }

    fn retire(&mut self, key: Key) {
        if let Some(end) = self.cells.link(key) {
            end.retire();
        }
        self.cells.unwatch_channel(key);
        self.let_go(key);
    }

    fn watch(&mut self, ticket: Ticket, key: Key, lane: &mut Lane) -> bool {
        self.watch_lane(key, lane) && {
            self.set_place(ticket.stamp, (key, lane.handle().index));
            true
        }
    }

    fn unwatch(&mut self, key: Key, slot: u32) {
        if let Some(serial) = self.places.remove(&(key, slot)) {
            self.place_of.remove(&serial);
        }
    }
}
