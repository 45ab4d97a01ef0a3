//! The relay between programs of this host: what a program sends to a listener goes through the
//! daemon. For tenants whose traffic is capped, and to prove the relay without a network.

use super::pair::{Pair, Turn};
use netchannel_abi::address::Address;
use netchannel_abi::link::{Role, side_flags};
use netchannel_service::addresses;
use netchannel_service::anchor::Count;
use netchannel_service::cells::{Cells, Key, News};
use netchannel_service::core_engine::{Ask, Command, Ticket};
use netchannel_service::faults::Faults;
use netchannel_service::jobs::Opened;
use netchannel_service::lane::Lane;
use netchannel_service::link::LinkEnd;
use netchannel_service::mailbox::{Inbox, Mailbox};
use netchannel_service::published_ports::PublishedPorts;
use netchannel_service::targets::Targets;
use netchannel_service::timers::{NEVER, Timers};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of the inbox among the worker's own descriptors.
const INBOX: u32 = 0;

/// A connection of a program: on its way, or connected.
#[derive(Debug)]
pub(super) enum State {
    /// Waits for a link to the listener.
    Pending(Lane, Wanted),
    /// CoreEngine offers it to whoever accepts at the listener.
    Offered(Pair, Wanted),
    /// Bytes flow.
    Open(Pair),
    /// Between two of these.
    Changing,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) listener: u32,
    pub(super) client: Address,
    pub(super) server: Address,
    /// When the program asked.
    pub(super) since: Instant,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    /// Links and slots of the incoming and the outgoing lane.
    pub(super) places: [Option<(Key, u32)>; 2],
    /// It is in the list of those that have more to do.
    pub(super) queued: bool,
    /// Tells this connection from one that had its number before.
    pub(super) stamp: u64,
}

/// The worker.
#[derive(Debug)]
pub struct Local {
    pub(super) cells: Cells,
    pub(super) inbox: Inbox<Command>,
    pub(super) asks: Mailbox<Ask>,
    pub(super) connections: Vec<Option<Connection>>,
    pub(super) unused: Vec<usize>,
    pub(super) stamps: u64,
    /// By link and slot: number of the connection times two, plus the lane, plus one.
    pub(super) by_slot: Vec<Vec<usize>>,
    pub(super) queue: VecDeque<usize>,
    /// When what a program holds back is there in any case, by the number of its connection.
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
    pub fn new(
        inbox: Inbox<Command>,
        asks: Mailbox<Ask>,
        count: Arc<Count>,
        owners: PublishedPorts,
    ) -> Result<Self, Errno> {
        let cells = Cells::new()?;
        cells.watch_own(&inbox, INBOX)?;
        Ok(Self {
            cells,
            inbox,
            asks,
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

    /// Works until it is told to stop.
    pub fn run(mut self) {
        let mut news = Vec::new();
        loop {
            self.cells.look(&mut news);
            if news.is_empty() && self.queue.is_empty() {
                let held = self.timers.next();
                let held = held.map(|at| self.epoch + Duration::from_nanos(at));
                let until = held.into_iter().chain(self.targets.next_retry()).min();
                self.cells.sleep(&mut news, until);
            }
            for one in news.drain(..) {
                if !self.handle(one) {
                    return;
                }
            }
            self.retry();
            self.look_at_held();
            for _ in 0..self.queue.len() {
                if let Some(number) = self.queue.pop_front() {
                    self.turn(number);
                }
            }
        }
    }

    /// False when it is to stop.
    pub(super) fn handle(&mut self, news: News) -> bool {
        match news {
            News::Own(INBOX) => return self.read_inbox(),
            News::Own(_) => {}
            News::Ready(key, slot) => {
                if let Some((number, _)) = self.find(key, slot) {
                    self.enqueue(number);
                }
            }
            News::Token(key, slot, end) => self.on_token(key, slot, end),
            News::Opened(key, opened) => self.on_opened(key, opened),
            News::Ended(key) => self.on_ended(key),
        }
        true
    }

    pub(super) fn read_inbox(&mut self) -> bool {
        self.inbox.hear();
        while let Some(command) = self.inbox.next() {
            match command {
                Command::Serve(parts) => {
                    if let Some(end) = LinkEnd::new(parts, &self.count) {
                        self.cells.add_link(Arc::new(end));
                    }
                }
                Command::Link(listener, answer) => self.on_link(listener, answer),
                Command::Float(listener, answer) => self.on_float(listener, answer),
                Command::Offered(ticket, answer) => self.on_offered(ticket, answer),
                Command::Moved { from, to } => self.on_moved(from, to),
                Command::Manner(listener, manner) => self.targets.set_manner(listener, manner),
                Command::Gone(listener) => self.on_gone(listener),
                Command::Stop => return false,
            }
        }
        true
    }

    pub(super) fn on_opened(&mut self, key: Key, opened: Opened) {
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return;
        };
        let slot = opened.loan.handle.index;
        let mut lane = Lane::accepted(&end, opened.loan).of_daemon();
        let owned = |user| self.owners.allows(&opened.client, user);
        if !end.user().is_some_and(owned) {
            return lane.refuse(Errno::ADDRNOTAVAIL.raw_os_error().unsigned_abs());
        }
        let wanted = Wanted {
            listener: opened.listener,
            client: addresses::true_client(opened.client, &opened.server),
            server: opened.server,
            since: Instant::now(),
        };
        let number = self.unused.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        if !self.settle_in(number, 0, (key, slot), &mut lane) {
            self.unused.push(number);
            return lane.refuse(Errno::NOBUFS.raw_os_error().unsigned_abs());
        }
        self.stamps += 1;
        let stamp = self.stamps;
        if let Some(place) = self.connections.get_mut(number) {
            *place = Some(Connection {
                state: State::Pending(lane, wanted),
                places: [Some((key, slot)), None],
                queued: false,
                stamp,
            });
        }
        self.route(Ticket { number, stamp });
    }

    /// Makes a lane known under its slot, and listens to it. False where it can not be listened to.
    pub(super) fn settle_in(
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

    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(NEVER)
    }

    /// Has its turn again when what is held back is there, `left` from now.
    pub(super) fn set_timer(&mut self, number: usize, left: Option<Duration>) {
        let Ok(number) = u32::try_from(number) else {
            return;
        };
        let at = left.map_or(NEVER, |left| {
            let left = u64::try_from(left.as_nanos()).unwrap_or(NEVER);
            self.now().saturating_add(left)
        });
        self.timers.set(number, at);
    }

    /// The time has come for what was held back.
    pub(super) fn look_at_held(&mut self) {
        if self.timers.next().is_none() {
            return;
        }
        let now = self.now();
        while let Some(number) = self.timers.take(now) {
            self.enqueue(usize::try_from(number).unwrap_or(usize::MAX));
        }
    }

    pub(super) fn on_token(&mut self, key: Key, slot: u32, end: bool) {
        let Some((number, which)) = self.find(key, slot) else {
            if let (true, Some(link)) = (end, self.cells.link(key)) {
                link.drop_anchor(slot);
            }
            return;
        };
        if let Some(Some(connection)) = self.connections.get_mut(number) {
            match &mut connection.state {
                State::Pending(lane, _) => lane.on_token(end),
                State::Open(pair) | State::Offered(pair, _) => pair.lane_mut(which).on_token(end),
                State::Changing => {}
            }
        }
        self.enqueue(number);
    }

    /// The program of a link has ended.
    pub(super) fn on_ended(&mut self, key: Key) {
        let Some(end) = self.cells.link(key) else {
            return;
        };
        end.fail();
        if end.role() == Role::Client {
            self.targets.forget_link(key);
        }
        self.retire(key);
    }

    /// No new connection over a link. It goes with its last connection.
    pub(super) fn retire(&mut self, key: Key) {
        if let Some(end) = self.cells.link(key) {
            end.retire();
        }
        self.cells.silence(key);
        self.let_go(key);
    }

    /// A connection of a link has ended, or the link itself.
    pub(super) fn let_go(&mut self, key: Key) {
        self.cells.touch(key);
        let Some(end) = self.cells.link(key) else {
            return;
        };
        if end.is_alive() || end.connections() > 0 {
            return;
        }
        if end.role() == Role::Client {
            self.asks.send(Ask::Forget(end.number()));
        }
        self.cells.remove_link(key);
        if let Some(slots) = usize::try_from(key)
            .ok()
            .and_then(|key| self.by_slot.get_mut(key))
        {
            *slots = Vec::new();
        }
    }

    /// The connection of a ticket, while it is the same.
    pub(super) fn connection_mut(&mut self, ticket: Ticket) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(ticket.number)?.as_mut()?;
        (connection.stamp == ticket.stamp).then_some(connection)
    }

    /// Takes a connection out: its lanes are to be closed by the caller, then its links looked at.
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

    pub(super) fn turn(&mut self, number: usize) {
        let Some(Some(connection)) = self.connections.get_mut(number) else {
            return;
        };
        connection.queued = false;
        let ending = match &mut connection.state {
            State::Pending(lane, _) => {
                let closed = lane.peer_flags() & (side_flags::CLOSED | side_flags::RESET) != 0;
                if !closed && !lane.has_hung_up() {
                    return;
                }
                None
            }
            // The answer comes first.
            State::Offered(..) | State::Changing => return,
            State::Open(pair) => match pair.turn() {
                Turn::Waits => {
                    let held = pair.held_for();
                    return self.set_timer(number, held);
                }
                Turn::Busy => return self.enqueue(number),
                Turn::Over(ending) => Some(ending),
            },
        };
        let Some(connection) = self.take(number) else {
            return;
        };
        match (connection.state, ending) {
            (State::Open(pair), Some(ending)) => {
                if ending.is_fault()
                    && let Some(unsaid) = self.faults.count(Instant::now())
                {
                    let what = "a relayed connection was reset: a program wrote what it may not";
                    tracing::warn!(unsaid, "{what}");
                }
                pair.close(ending);
            }
            (State::Pending(lane, _), _) => lane.close(false),
            _ => {}
        }
        for (key, _) in connection.places.into_iter().flatten() {
            self.let_go(key);
        }
    }
}
