//! The state of the worker thread: its connections, by number, and by link and slot.

use netchannel_abi::link::Role;
use netchannel_service::anchor::Count;
use netchannel_service::cells::{Cells, Key};
use netchannel_service::core_engine::{Command, StackRequest, Ticket};
use netchannel_service::faults::Faults;
use netchannel_service::lane::Lane;
use netchannel_service::mailbox::Mailbox;
use netchannel_service::published_ports::PublishedPorts;
use netchannel_service::relayed::Relayed;
use netchannel_service::targets::Targets;
use netchannel_service::timers::{NEVER, Timers, nanoseconds};
use netchannel_service::worker::INBOX;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A connection, and the places of its lanes.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: Relayed,
    /// Links and slots of the incoming and the outgoing lane.
    pub(super) places: [Option<(Key, u32)>; 2],
    /// It is in the queue of connections with pending work.
    pub(super) queued: bool,
    /// Distinguishes it from former connections with the same number.
    pub(super) stamp: u64,
}

/// The mailboxes between the thread and CoreEngine.
#[derive(Debug)]
pub struct Mail {
    /// Commands of CoreEngine.
    pub commands: Mailbox<Command>,
    /// Requests to CoreEngine.
    pub requests: Mailbox<StackRequest>,
}

/// The worker.
#[derive(Debug)]
pub struct Local {
    pub(super) cells: Cells,
    pub(super) mail: Arc<Mail>,
    pub(super) messages: Vec<Command>,
    pub(super) ended: bool,
    pub(super) connections: Vec<Option<Connection>>,
    pub(super) unused: Vec<usize>,
    pub(super) stamps: u64,
    /// By link and slot: the number of the connection times two, plus the lane, plus one.
    pub(super) by_slot: Vec<Vec<usize>>,
    pub(super) queue: VecDeque<usize>,
    /// When bytes that a program holds back are released in any case, by the number of its connection.
    pub(super) timers: Timers,
    pub(super) epoch: Instant,
    pub(super) targets: Targets,
    pub(super) count: Arc<Count>,
    pub(super) owners: PublishedPorts,
    pub(super) faults: Faults,
}

impl Local {
    /// A worker without links.
    ///
    /// # Errors
    /// When descriptors can not be had.
    pub fn new(mail: Arc<Mail>, count: Arc<Count>, owners: PublishedPorts) -> Result<Self, Errno> {
        let cells = Cells::new()?;
        cells.watch_own(&mail.commands, INBOX)?;
        Ok(Self {
            cells,
            mail,
            messages: Vec::new(),
            ended: false,
            connections: Vec::new(),
            unused: Vec::new(),
            stamps: 0,
            by_slot: Vec::new(),
            queue: VecDeque::new(),
            timers: Timers::default(),
            epoch: Instant::now(),
            targets: Targets::default(),
            count,
            owners,
            faults: Faults::default(),
        })
    }

    /// Registers a lane under its slot, and watches its anchor. False where it can not be watched.
    pub(super) fn register_lane(
        &mut self,
        number: usize,
        which: usize,
        (key, slot): (Key, u32),
        lane: &mut Lane,
    ) -> bool {
        let watched = self.cells.watch_anchor(key, slot, lane.anchor_mut());
        let cell = self.cells.cell(key);
        let (Ok(()), Some(cell), Some(place)) = (watched, cell, self.place(key, slot)) else {
            return false;
        };
        *place = number * 2 + which + 1;
        lane.attach_cell(cell);
        true
    }

    pub(super) fn place(&mut self, key: Key, slot: u32) -> Option<&mut usize> {
        let (key, slot) = (usize::try_from(key).ok()?, usize::try_from(slot).ok()?);
        if self.by_slot.len() <= key {
            self.by_slot.resize_with(key + 1, Vec::new);
        }
        let slots = self.by_slot.get_mut(key)?;
        if slots.len() <= slot {
            slots.resize(slot + 1, 0);
        }
        slots.get_mut(slot)
    }

    pub(super) fn find(&self, key: Key, slot: u32) -> Option<(usize, usize)> {
        let (key, slot) = (usize::try_from(key).ok()?, usize::try_from(slot).ok()?);
        let word = self.by_slot.get(key)?.get(slot)?.checked_sub(1)?;
        Some((word / 2, word % 2))
    }

    pub(super) fn enqueue(&mut self, number: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(number)
            && !connection.queued
        {
            connection.queued = true;
            self.queue.push_back(number);
        }
    }

    /// Nanoseconds since the worker started.
    pub(super) fn clock(&self) -> u64 {
        nanoseconds(self.epoch.elapsed())
    }

    /// Sets the timer of a connection whose bytes are held back for `left` from now on.
    pub(super) fn set_timer(&mut self, number: usize, left: Option<Duration>) {
        let Ok(number) = u32::try_from(number) else {
            return;
        };
        let at = left.map_or(NEVER, |left| self.clock().saturating_add(nanoseconds(left)));
        self.timers.set(number, at);
    }

    /// A connection of a link has ended, or the link itself: removes the link if it is not used any more.
    pub(super) fn remove_link_if_unused(&mut self, key: Key) {
        self.cells.wake_link(key);
        let Some(end) = self.cells.link(key) else {
            return;
        };
        if end.is_alive() || end.connections() > 0 {
            return;
        }
        if end.role() == Role::Client {
            self.mail.requests.send(StackRequest::Forget(end.number()));
        }
        self.cells.remove_link(key);
        if let Some(slots) = usize::try_from(key)
            .ok()
            .and_then(|key| self.by_slot.get_mut(key))
        {
            *slots = Vec::new();
        }
    }

    /// The connection of a ticket, if it still exists.
    pub(super) fn connection(&self, ticket: Ticket) -> Option<&Connection> {
        let connection = self.connections.get(ticket.number)?.as_ref()?;
        (connection.stamp == ticket.stamp).then_some(connection)
    }

    /// The connection of a ticket, to change it.
    pub(super) fn connection_mut(&mut self, ticket: Ticket) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(ticket.number)?.as_mut()?;
        (connection.stamp == ticket.stamp).then_some(connection)
    }

    /// Removes a connection. The caller closes its lanes, then examines its links.
    pub(super) fn take(&mut self, number: usize) -> Option<Connection> {
        let connection = self.connections.get_mut(number)?.take()?;
        self.unused.push(number);
        self.set_timer(number, None);
        for (key, slot) in connection.places.into_iter().flatten() {
            self.clear_place((key, slot));
        }
        Some(connection)
    }

    pub(super) fn clear_place(&mut self, (key, slot): (Key, u32)) {
        if let Some(place) = self.place(key, slot) {
            *place = 0;
        }
    }
}
