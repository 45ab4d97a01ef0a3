//! All connections of one side, and the other side as they know it.

use crate::flow::{Flow, Sink};
use crate::frame::{Datagram, Families, Open, Welcome};
use crate::layout::Side;
use crate::link::{Change, Link};
use crate::ring::{Consumer, Producer};
use crate::turn::{CONNRESET, Turn};
use crate::violation::Violation;
use netchannel_shm::Region;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the ring that are read in a pass.
const READ: usize = 1 << 20;
/// What all connections together may have sent, about, before it is taken.
const INBOXES: usize = 64 << 20;
const LEAST_GRANT: usize = 16 << 10;
const MOST_GRANT: usize = 256 << 10;
/// Connections that a host may open at a guest.
const MOST_INCOMING: u32 = 16_384;
/// A side that has connections, and has heard nothing for so long, asks.
const QUIET: Duration = Duration::from_secs(10);
/// A side that does not answer for so long has gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// After a violation the other side is not listened to for so long.
const REST: Duration = Duration::from_secs(1);
/// `ENETUNREACH`.
const NETUNREACH: u32 = 101;

/// What is told to whoever has the tunnel. A connection is named by a number that no other has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both sides are there.
    Up,
    /// The other side has gone; so have all connections and listeners.
    Down,
    /// The other side did what it may not.
    Violated(Violation),
    /// The other side has not answered for long.
    Silent,
    /// (guest) The host has told who the guest is.
    Welcome(Welcome),
    /// The other side wants a connection: it waits for [`Tunnel::attach`] and [`Tunnel::accept`], or [`Tunnel::refuse`].
    Open(u64, Open),
    /// A connection has no sink any more.
    Gone(u64),
    /// (host) Programs listen at a port.
    Listen(u16, Families),
    /// A question to a name server, or its answer.
    Datagram(Datagram),
    /// (host) Nobody asks under this number any more.
    Forget(u64),
}

/// One side's end of all connections.
#[derive(Debug)]
pub struct Tunnel<S> {
    side: Side,
    pub(crate) region: Arc<Region>,
    pub(crate) link: Link,
    pub(crate) producer: Producer,
    pub(crate) consumer: Consumer,
    next_session: u64,
    pub(crate) flows: HashMap<u64, Flow<S>>,
    /// By their number in frames.
    pub(crate) by_id: HashMap<u64, u64>,
    next_serial: u64,
    queue: VecDeque<u64>,
    /// They wait for room in the ring.
    blocked: Vec<u64>,
    own_open: u32,
    pub(crate) most_own: u32,
    pub(crate) peer_open: u32,
    pub(crate) most_peer: u32,
    /// (host) What a guest is told.
    pub(crate) welcome: Option<Welcome>,
    pub(crate) owes_welcome: bool,
    /// (guest) The host has told who it is; (host) it is there.
    pub(crate) is_ready: bool,
    /// (guest) Where programs listen.
    pub(crate) listens: BTreeMap<u16, Families>,
    pub(crate) owes_listens: BTreeSet<u16>,
    pub(crate) owes_ping: bool,
    pub(crate) owes_pong: bool,
    /// (guest) Who asks no more.
    pub(crate) owes_forgets: BTreeSet<u64>,
    pub(crate) events: VecDeque<Event>,
    heard: Instant,
    asked: Option<Instant>,
    rests_until: Option<Instant>,
    /// The words of the sides have changed: the other one is to look.
    rings: bool,
}

impl<S: Sink> Tunnel<S> {
    /// The host's end. `None` where the region is too small.
    #[must_use]
    pub fn host(region: Arc<Region>, welcome: Welcome, now: Instant) -> Option<Self> {
        let most = welcome.most;
        Self::new(region, Side::Host, Some(welcome), most, now)
    }

    /// The guest's end. `None` where the region is too small.
    #[must_use]
    pub fn guest(region: Arc<Region>, now: Instant) -> Option<Self> {
        Self::new(region, Side::Guest, None, MOST_INCOMING, now)
    }

    fn new(
        region: Arc<Region>,
        side: Side,
        welcome: Option<Welcome>,
        most_peer: u32,
        now: Instant,
    ) -> Option<Self> {
        let mut tunnel = Self {
            side,
            link: Link::new(Arc::clone(&region), side),
            producer: Producer::new(&region, side)?,
            consumer: Consumer::new(&region, side)?,
            region,
            next_session: RandomState::new().build_hasher().finish(),
            flows: HashMap::new(),
            by_id: HashMap::new(),
            next_serial: 0,
            queue: VecDeque::new(),
            blocked: Vec::new(),
            own_open: 0,
            most_own: MOST_INCOMING,
            peer_open: 0,
            most_peer,
            welcome,
            owes_welcome: false,
            is_ready: false,
            listens: BTreeMap::new(),
            owes_listens: BTreeSet::new(),
            owes_ping: false,
            owes_pong: false,
            owes_forgets: BTreeSet::new(),
            events: VecDeque::new(),
            heard: now,
            asked: None,
            rests_until: None,
            rings: true,
        };
        tunnel.set_bell(false);
        tunnel.begin();
        Some(tunnel)
    }

    pub(crate) const fn side(&self) -> Side {
        self.side
    }

    const fn parity(&self) -> u64 {
        match self.side {
            Side::Host => 1,
            Side::Guest => 0,
        }
    }

    pub(crate) const fn other_parity(&self) -> u64 {
        1 - self.parity()
    }

    fn begin(&mut self) {
        self.next_session = self.next_session.wrapping_add(1).max(1);
        // They fail only where the region does not hold the rings.
        let _ = self.producer.reset().and_then(|()| self.consumer.reset());
        self.link.begin(self.next_session);
        self.rings = true;
    }

    /// How many bytes a new connection may have under way.
    pub(crate) fn grant(&self) -> u32 {
        let each = INBOXES / (self.flows.len() + 1);
        u32::try_from(each.clamp(LEAST_GRANT, MOST_GRANT)).unwrap_or(0)
    }

    pub(crate) fn insert(&mut self, flow: Flow<S>) -> u64 {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.by_id.insert(flow.id, serial);
        self.flows.insert(serial, flow);
        serial
    }

    /// Whether this side has a doorbell that works; it has none before this is called.
    pub fn set_bell(&self, works: bool) {
        self.link.tell_of_bell(works);
    }

    /// Whether the other side rings; else this one has to look again and again. Before both are there nobody knows.
    #[must_use]
    pub fn is_rung_for(&self) -> bool {
        self.link.is_up() && self.link.is_rung_for()
    }

    /// Whether both sides are there.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.link.is_up()
    }

    /// Whether connections can be opened.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether the other side speaks another version.
    #[must_use]
    pub fn is_of_another_version(&self) -> bool {
        self.link.is_of_another_version()
    }

    /// Whether this side has as many connections of its own as it may.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.own_open >= self.most_own
    }

    /// How many connections there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.flows.len()
    }

    /// Opens a connection. `None` where the other side is not there, or there are as many as may be.
    pub fn open(&mut self, open: Open, sink: S) -> Option<u64> {
        if !self.is_ready || self.is_full() {
            drop(sink);
            return None;
        }
        let id = self.next_serial << 1 | self.parity();
        let mut flow = Flow::new(id, true, self.grant(), Some(sink));
        flow.window = u64::from(flow.grant);
        flow.owes.open = Some(open);
        self.own_open += 1;
        let serial = self.insert(flow);
        self.queue(serial);
        Some(serial)
    }

    /// Gives a connection of the other side its end here, which is not asked for bytes before [`Self::accept`].
    pub fn attach(&mut self, serial: u64, sink: S) {
        match self.flows.get_mut(&serial) {
            Some(flow) if flow.got_close.is_none() && !flow.is_closing() => {
                flow.sink = Some(sink);
            }
            _ => {
                sink.close(Some(CONNRESET), false);
                self.events.push_back(Event::Gone(serial));
            }
        }
    }

    /// The connection that the other side wants is there.
    pub fn accept(&mut self, serial: u64) {
        if let Some(flow) = self.flows.get_mut(&serial)
            && !flow.is_own
            && !flow.is_closing()
        {
            flow.is_made = true;
            flow.owes.accept = true;
            flow.window = u64::from(flow.grant);
            self.queue(serial);
        }
    }

    /// The connection that the other side wants can not be made.
    pub fn refuse(&mut self, serial: u64, errno: u32) {
        if let Some(flow) = self.flows.get_mut(&serial) {
            if let Some(sink) = flow.sink.take() {
                sink.close(Some(errno), false);
                self.events.push_back(Event::Gone(serial));
            }
            flow.say_last(errno.max(1));
            self.queue(serial);
        }
    }

    /// A connection gets its turn: something happened at its sink.
    pub fn queue(&mut self, serial: u64) {
        if let Some(flow) = self.flows.get_mut(&serial)
            && !std::mem::replace(&mut flow.is_queued, true)
        {
            self.queue.push_back(serial);
        }
    }

    /// The end of a connection on this side.
    pub fn sink(&mut self, serial: u64) -> Option<&mut S> {
        self.flows.get_mut(&serial)?.sink.as_mut()
    }

    /// The same, to look at it.
    #[must_use]
    pub fn peek(&self, serial: u64) -> Option<&S> {
        self.flows.get(&serial)?.sink.as_ref()
    }

    /// Whether this side has opened it.
    #[must_use]
    pub fn is_own(&self, serial: u64) -> bool {
        self.flows.get(&serial).is_some_and(|flow| flow.is_own)
    }

    /// Whether both sides have their ends of it.
    #[must_use]
    pub fn is_made(&self, serial: u64) -> bool {
        self.flows.get(&serial).is_some_and(|flow| flow.is_made)
    }

    /// Looks at what the other side has said. What it comes to is in [`Self::next_event`].
    pub fn poll(&mut self, now: Instant) {
        if let Some(until) = self.rests_until {
            if now < until {
                return;
            }
            self.rests_until = None;
            self.begin();
        }
        if let Err(violation) = self.look(now) {
            self.on_violation(violation, now);
        }
        self.look_at_clock(now);
    }

    fn look(&mut self, now: Instant) -> Result<(), Violation> {
        loop {
            match self.link.look()? {
                Change::None => break,
                Change::New(session) => {
                    self.producer.reset()?;
                    self.consumer.reset()?;
                    self.link.follow(session);
                    self.rings = true;
                }
                Change::Up => {
                    self.heard = now;
                    self.owes_welcome = self.side == Side::Host;
                    self.is_ready = self.side == Side::Host;
                    self.events.push_back(Event::Up);
                    self.rings = true;
                    if self.side == Side::Guest {
                        self.owes_listens = self.listens.keys().copied().collect();
                    }
                }
                Change::Down => {
                    self.drop_all();
                    self.begin();
                }
            }
        }
        if !self.link.is_up() {
            return Ok(());
        }
        if self.producer.look_for_room()? {
            self.heard = now;
            self.queue.extend(self.blocked.drain(..));
        }
        let mut budget = READ;
        while budget > 0
            && let Some(frame) = self.consumer.read()?
        {
            self.heard = now;
            self.asked = None;
            budget = budget.saturating_sub(self.take(frame)?);
        }
        Ok(())
    }

    fn on_violation(&mut self, violation: Violation, now: Instant) {
        // A side that begins anew does so in the midst of anything.
        if matches!(self.link.look(), Ok(Change::Down)) {
            self.drop_all();
            return self.begin();
        }
        self.events.push_back(Event::Violated(violation));
        self.drop_all();
        self.link.end();
        self.rings = true;
        self.rests_until = now.checked_add(REST);
    }

    /// The other side is known to have gone.
    pub fn lose(&mut self) {
        if self.link.is_up() {
            self.drop_all();
            self.begin();
        }
    }

    /// This side goes.
    pub fn end(&mut self) {
        self.drop_all();
        self.link.end();
        self.rings = true;
    }

    fn drop_all(&mut self) {
        for (serial, flow) in self.flows.drain() {
            if let Some(sink) = flow.sink {
                let errno = if flow.is_made || !flow.is_own {
                    CONNRESET
                } else {
                    NETUNREACH
                };
                sink.close(Some(errno), flow.is_made);
            }
            self.events.push_back(Event::Gone(serial));
        }
        self.by_id.clear();
        self.queue.clear();
        self.blocked.clear();
        (self.own_open, self.peer_open) = (0, 0);
        self.owes_listens.clear();
        self.owes_forgets.clear();
        (self.owes_welcome, self.owes_ping, self.owes_pong) = (false, false, false);
        self.asked = None;
        self.is_ready = false;
        self.events.push_back(Event::Down);
    }

    fn look_at_clock(&mut self, now: Instant) {
        if self.flows.is_empty() || !self.link.is_up() {
            self.asked = None;
            return;
        }
        match self.asked {
            Some(asked) if now.saturating_duration_since(asked) >= PATIENCE => {
                self.events.push_back(Event::Silent);
                self.lose();
            }
            Some(_) => {}
            None if now.saturating_duration_since(self.heard) >= QUIET => {
                self.owes_ping = true;
                self.asked = Some(now);
            }
            None => {}
        }
    }

    /// When to look again, whatever happens.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.rests_until.is_some() {
            return self.rests_until;
        }
        if self.flows.is_empty() || !self.link.is_up() {
            return None;
        }
        match self.asked {
            Some(asked) => asked.checked_add(PATIENCE),
            None => self.heard.checked_add(QUIET),
        }
    }

    /// What has happened.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Gives each connection that waits a turn.
    pub fn work(&mut self, now: Instant) {
        if let Err(violation) = self.try_work() {
            self.on_violation(violation, now);
        }
    }

    fn try_work(&mut self) -> Result<(), Violation> {
        if !self.link.is_up() || !self.speak()? {
            return Ok(());
        }
        for _ in 0..self.queue.len() {
            let Some(serial) = self.queue.pop_front() else {
                break;
            };
            let Some(flow) = self.flows.get_mut(&serial) else {
                continue;
            };
            flow.is_queued = false;
            let had_sink = flow.sink.is_some();
            let turn = flow.turn(&self.region, &mut self.producer)?;
            if flow.sink.is_none() && (had_sink || flow.got_close.is_some()) {
                self.events.push_back(Event::Gone(serial));
            }
            match turn {
                _ if flow.is_over() => self.remove(serial),
                Turn::Idle => {}
                Turn::More => self.queue(serial),
                Turn::Blocked => {
                    // It has its place already: there.
                    flow.is_queued = true;
                    self.blocked.push(serial);
                }
            }
        }
        Ok(())
    }

    fn remove(&mut self, serial: u64) {
        if let Some(flow) = self.flows.remove(&serial) {
            self.by_id.remove(&flow.id);
            let count = if flow.is_own {
                &mut self.own_open
            } else {
                &mut self.peer_open
            };
            *count = count.saturating_sub(1);
        }
    }

    /// Shows what was said and gives back what was read. Returns whether the other side is to be rung for.
    #[must_use]
    pub fn flush(&mut self) -> bool {
        if !self.link.is_up() {
            return std::mem::take(&mut self.rings);
        }
        // They fail only where the region does not hold the rings.
        let data = self.producer.show().unwrap_or(false);
        let room = self.consumer.give_back().unwrap_or(false);
        let rings = (data || room) && self.link.rings(data, room);
        std::mem::take(&mut self.rings) || rings
    }

    /// Whether there is something to do without anything happening.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.events.is_empty() || self.has_news()
    }

    /// Whether the other side has shown something.
    #[must_use]
    pub fn has_news(&self) -> bool {
        if self.rests_until.is_some() {
            return false;
        }
        let waits = !self.blocked.is_empty() || self.has_to_speak();
        self.link.has_news()
            || self.link.is_up()
                && (self.consumer.has_news() || waits && self.producer.has_more_room())
    }

    /// This side is about to sleep until it is rung for. Returns whether there is something to do all the same.
    pub fn fall_asleep(&mut self) -> bool {
        let waits = !self.blocked.is_empty() || self.has_to_speak();
        self.link.fall_asleep(waits);
        self.has_news()
    }

    /// This side is awake.
    pub fn wake(&self) {
        self.link.wake();
    }
}
