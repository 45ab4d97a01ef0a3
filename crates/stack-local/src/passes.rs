//! The passes of the worker: each connection with pending work has its turn.

use super::worker::{Connection, Local};
use netchannel_service::addresses;
use netchannel_service::cells::{Cells, Key};
use netchannel_service::core_engine::{Command, Ticket};
use netchannel_service::jobs::Opened;
use netchannel_service::lane::Lane;
use netchannel_service::mailbox::Mailbox;
use netchannel_service::pair::Turn;
use netchannel_service::relayed::Relayed;
use netchannel_service::routing::{Destination, Router};
use netchannel_service::timers::Timers;
use netchannel_service::worker::Worker;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Worker for Local {
    type Message = Command;

    fn cells_and_inbox(&mut self) -> (&mut Cells, &Mailbox<Command>) {
        (&mut self.cells, &self.mail.commands)
    }

    fn message_buffer(&mut self) -> &mut Vec<Command> {
        &mut self.messages
    }

    fn timers(&mut self) -> &mut Timers {
        &mut self.timers
    }

    fn now(&self) -> u64 {
        self.clock()
    }

    fn deadline(&self) -> Option<Instant> {
        let held = self.timers.next();
        let held = held.map(|at| self.epoch + Duration::from_nanos(at));
        held.into_iter().chain(self.targets.next_retry()).min()
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn on_message(&mut self, command: Command) {
        self.ended |= !self.on_command(command);
    }

    fn on_ready(&mut self, key: Key, slot: u32) {
        if let Some((number, _)) = self.find(key, slot) {
            self.enqueue(number);
        }
    }

    fn on_lane_token(&mut self, key: Key, slot: u32, end: bool) -> bool {
        let Some((number, which)) = self.find(key, slot) else {
            return false;
        };
        if let Some(Some(connection)) = self.connections.get_mut(number) {
            connection.state.on_token(which, end);
        }
        self.enqueue(number);
        true
    }

    fn on_opened(&mut self, key: Key, opened: Opened) {
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return;
        };
        let slot = opened.loan.handle.index;
        let mut lane = Lane::accepted(&end, opened.loan).of_daemon();
        let owned = |user| self.owners.allows(&opened.client, user);
        if !end.user().is_some_and(owned) {
            return lane.refuse(Errno::ADDRNOTAVAIL.raw_os_error().unsigned_abs());
        }
        let wanted = Destination {
            listener: opened.listener,
            client: addresses::true_client(opened.client, &opened.server),
            server: opened.server,
            since: Instant::now(),
        };
        let number = self.unused.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        if !self.register_lane(number, 0, (key, slot), &mut lane) {
            self.unused.push(number);
            return lane.refuse(Errno::NOBUFS.raw_os_error().unsigned_abs());
        }
        self.stamps += 1;
        let stamp = self.stamps;
        if let Some(place) = self.connections.get_mut(number) {
            *place = Some(Connection {
                state: Relayed::Pending(lane, wanted),
                places: [Some((key, slot)), None],
                queued: false,
                stamp,
            });
        }
        self.route(Ticket { number, stamp });
    }

    /// Bytes that a program held back are released now in any case.
    fn on_timer(&mut self, number: u32) {
        self.enqueue(usize::try_from(number).unwrap_or(usize::MAX));
    }

    fn work(&mut self) {
        for _ in 0..self.queue.len() {
            if let Some(number) = self.queue.pop_front() {
                self.turn(number);
            }
        }
    }

    fn take_remaining_work(&mut self) -> bool {
        !self.queue.is_empty()
    }
}

impl Local {
    /// The program to which a connection was announced over a lane was killed before it accepted it: another one may.
    fn accept_anew(&mut self, ticket: Ticket, lane: Lane) {
        lane.close(true);
        let connection = self.connection_mut(ticket);
        if let Some(place) = connection.and_then(|connection| connection.places[1].take()) {
            self.clear_place(place);
            self.remove_link_if_unused(place.0);
        }
        self.route(ticket);
    }

    fn turn(&mut self, number: usize) {
        let Some(Some(connection)) = self.connections.get_mut(number) else {
            return;
        };
        connection.queued = false;
        if let Some(outgoing) = connection.state.wait_anew() {
            let stamp = connection.stamp;
            return self.accept_anew(Ticket { number, stamp }, outgoing);
        }
        let is_given_up = connection.state.is_given_up();
        let ending = match &mut connection.state {
            Relayed::Pending(..) if is_given_up => None,
            // The answer of CoreEngine must come first.
            Relayed::Pending(..)
            | Relayed::Offered(..)
            | Relayed::Asked(..)
            | Relayed::Changing => {
                return;
            }
            Relayed::Open(pair, _) => match pair.turn() {
                Turn::Waits(held) => return self.set_timer(number, held),
                Turn::Busy => return self.enqueue(number),
                Turn::Over(ending) => Some(ending),
            },
        };
        let Some(connection) = self.take(number) else {
            return;
        };
        match (connection.state, ending) {
            (Relayed::Open(pair, _), Some(ending)) => {
                if ending.is_fault()
                    && let Some(suppressed) = self.faults.count(Instant::now())
                {
                    let what = "a relayed connection was reset: a program wrote what it may not";
                    tracing::warn!(suppressed, "{what}");
                }
                pair.close(ending);
            }
            (Relayed::Pending(lane, _), _) => lane.close(false),
            _ => {}
        }
        for (key, _) in connection.places.into_iter().flatten() {
            self.remove_link_if_unused(key);
        }
    }
}
