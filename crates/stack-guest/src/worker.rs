//! The thread of the module.

use crate::arrival::Arrival;
use crate::askers::{Askers, FIRST_ASKER};
use crate::bell::Bell;
use crate::counters::Counters;
use crate::ports::Ports;
use crate::sink::{LaneSink, number};
use netchannel_abi::address::Address;
use netchannel_abi::link::Role;
use netchannel_guest::{Event, Open, Tunnel, Welcome};
use netchannel_service::anchor::Count;
use netchannel_service::cells::{Cells, Key, News};
use netchannel_service::core_engine::{Command, ListenerChange, StackRequest};
use netchannel_service::jobs::Opened;
use netchannel_service::lane::Lane;
use netchannel_service::mailbox::Mailbox;
use netchannel_service::routing::Router;
use netchannel_service::targets::Targets;
use netchannel_service::timers::{Timers, nanoseconds};
use netchannel_service::worker::{INBOX, Worker};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Name of the doorbell among the worker's own descriptors.
const BELL: u32 = INBOX + 1;
/// Without a doorbell the region is looked at again after a while, which grows between these.
const SHORTEST_LOOK: Duration = Duration::from_micros(50);
const LONGEST_LOOK: Duration = Duration::from_millis(10);
/// The same, while the other side is not there.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// What the worker is told.
#[derive(Debug)]
pub enum Message {
    /// By CoreEngine.
    Core(Command),
    /// The listener that stands for all the world.
    Gateway(u32),
    /// A listener of a program came or went.
    Listener(ListenerChange),
}

/// Both ways between the worker and the daemon's thread.
#[derive(Debug)]
pub struct Mail {
    /// To the worker.
    pub messages: Mailbox<Message>,
    /// From the worker to CoreEngine.
    pub requests: Mailbox<StackRequest>,
}

/// The worker.
pub struct GuestWorker {
    mail: Arc<Mail>,
    messages: Vec<Message>,
    pub(crate) tunnel: Tunnel<LaneSink>,
    bell: Option<Bell>,
    /// Who waits for the host's first word.
    first: Option<mpsc::Sender<Welcome>>,
    /// The tenant's addresses, as the host has told them.
    own: Vec<Address>,
    pub(crate) cells: Cells,
    pub(crate) targets: Targets,
    timers: Timers,
    pub(crate) count: Arc<Count>,
    gateway: Option<u32>,
    pub(crate) ports: Ports,
    pub(crate) askers: Askers,
    pub(crate) arrivals: HashMap<u64, Arrival>,
    /// Which connection has a slot of a link, and the other way round.
    pub(crate) places: HashMap<(Key, u32), u64>,
    pub(crate) place_of: HashMap<u64, (Key, u32)>,
    pub(crate) counters: Arc<Counters>,
    look_after: Duration,
    told_version: bool,
    ended: bool,
    epoch: Instant,
}

impl GuestWorker {
    /// A worker that waits for the host, whose first word goes to `first`.
    ///
    /// # Errors
    /// When no descriptor can be had.
    pub fn new(
        mail: Arc<Mail>,
        count: Arc<Count>,
        counters: Arc<Counters>,
        tunnel: Tunnel<LaneSink>,
        bell: Option<Bell>,
        first: mpsc::Sender<Welcome>,
    ) -> Result<Self, Errno> {
        let cells = Cells::new()?;
        cells.watch_own(&mail.messages, INBOX)?;
        if let Some(bell) = &bell {
            cells.watch_edges(bell.descriptor(), BELL)?;
        }
        tunnel.set_bell(bell.is_some());
        Ok(Self {
            mail,
            messages: Vec::new(),
            tunnel,
            bell,
            first: Some(first),
            own: Vec::new(),
            cells,
            targets: Targets::default(),
            timers: Timers::default(),
            count,
            gateway: None,
            ports: Ports::default(),
            askers: Askers::default(),
            arrivals: HashMap::new(),
            places: HashMap::new(),
            place_of: HashMap::new(),
            counters,
            look_after: SHORTEST_LOOK,
            told_version: false,
            ended: false,
            epoch: Instant::now(),
        })
    }

    pub(crate) fn send_request(&self, request: StackRequest) {
        self.mail.requests.send(request);
    }

    /// Listens to a lane.
    pub(crate) fn watch_lane(&self, key: Key, lane: &mut Lane) -> bool {
        let slot = lane.handle().index;
        let watched = self.cells.watch_anchor(key, slot, lane.anchor_mut());
        let (Ok(()), Some(cell)) = (watched, self.cells.cell(key)) else {
            return false;
        };
        lane.attach_cell(cell);
        true
    }

    pub(crate) fn set_place(&mut self, serial: u64, place: (Key, u32)) {
        self.places.insert(place, serial);
        self.place_of.insert(serial, place);
    }

    /// A connection has no lane any more.
    pub(crate) fn forget(&mut self, serial: u64) {
        if let Some(Arrival::Offered(_, lane, _)) = self.arrivals.remove(&serial) {
            lane.close(true);
        }
        if let Some(place) = self.place_of.remove(&serial) {
            // The slot may be another connection's by now.
            if self.places.get(&place) == Some(&serial) {
                self.places.remove(&place);
            }
            self.let_go(place.0);
        }
    }

    /// A link that is not used any more goes.
    pub(crate) fn let_go(&mut self, key: Key) {
        self.cells.wake_link(key);
        let Some(end) = self.cells.link(key) else {
            return;
        };
        if end.is_alive() || end.connections() > 0 {
            return;
        }
        if end.role() == Role::Client {
            self.send_request(StackRequest::Forget(end.number()));
        }
        self.cells.remove_link(key);
        self.places.retain(|(link, _), _| *link != key);
    }

    /// A program has made a connection over a link: the host makes it.
    fn dial(&mut self, key: Key, opened: Opened) {
        let Some(end) = self.cells.link(key).map(Arc::clone) else {
            return;
        };
        let to = opened.server.unmapped();
        let permitted = self.may_open(opened.listener, &to);
        let mut lane = Lane::accepted(&end, opened.loan).of_daemon();
        if let Err(errno) = permitted {
            return lane.refuse(number(errno));
        }
        if !self.watch_lane(key, &mut lane) {
            return lane.refuse(number(Errno::NOBUFS));
        }
        let open = Open {
            to,
            from: opened.client.unmapped(),
            dscp: lane.hints().dscp & 63,
        };
        let place = (key, lane.handle().index);
        let sink = LaneSink::new(lane, Arc::clone(&self.counters));
        if let Some(serial) = self.tunnel.open(open, sink) {
            self.set_place(serial, place);
        }
    }

    /// Whether the host can be asked for it.
    fn may_open(&self, listener: u32, to: &Address) -> Result<(), Errno> {
        if Some(listener) != self.gateway {
            return Err(Errno::CONNREFUSED);
        }
        let knows_family = self.own.iter().any(|own| own.family == to.family);
        if !self.tunnel.is_ready() || !knows_family {
            return Err(Errno::NETUNREACH);
        }
        if self.tunnel.is_full() {
            // As where no port is left.
            return Err(Errno::ADDRNOTAVAIL);
        }
        Ok(())
    }

    fn look_at_port(&mut self, port: u16) {
        let families = self.ports.families(port, &self.own);
        self.tunnel.listen(port, families);
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Up => tracing::info!("the host is there"),
            Event::Down => {
                tracing::warn!("the host is gone; its connections were reset");
                self.askers.clear();
            }
            Event::Violated(violation) => {
                tracing::warn!("the host broke the rules: {}", violation.0);
            }
            Event::Silent => tracing::warn!("the host does not answer"),
            Event::Welcome(welcome) => self.on_welcome(welcome),
            Event::Open(serial, open) => self.arrive(serial, open),
            Event::Gone(serial) => self.forget(serial),
            Event::Datagram(datagram) => self.on_answer(&datagram),
            Event::Listen(..) | Event::Forget(_) => {}
        }
    }

    fn on_welcome(&mut self, welcome: Welcome) {
        if self.own.is_empty() {
            self.own.clone_from(&welcome.addresses);
            if let Some(first) = self.first.take() {
                // Whoever waited may have been told to end.
                let _ = first.send(welcome);
            }
        } else if self.own != welcome.addresses {
            tracing::error!(
                "the host names other addresses than before: start `netchannel guest --inside` again to have them"
            );
        }
        for port in self.ports.all() {
            self.look_at_port(port);
        }
    }

    fn hear(&mut self, name: u32, end: bool) {
        if let Some(number) = name.checked_sub(FIRST_ASKER) {
            return self.on_questions(number);
        }
        if let (BELL, Some(bell)) = (name, &mut self.bell) {
            let worked = bell.works();
            bell.hear(end);
            if worked != bell.works() {
                self.tunnel.set_bell(bell.works());
            }
        }
    }

    fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }
}

impl Worker for GuestWorker {
    type Message = Message;

    fn cells_and_inbox(&mut self) -> (&mut Cells, &Mailbox<Message>) {
        (&mut self.cells, &self.mail.messages)
    }

    fn message_buffer(&mut self) -> &mut Vec<Message> {
        &mut self.messages
    }

    fn timers(&mut self) -> &mut Timers {
        &mut self.timers
    }

    fn now(&self) -> u64 {
        nanoseconds(self.epoch.elapsed())
    }

    fn deadline(&self) -> Option<Instant> {
        let look = match &self.bell {
            Some(bell) if bell.works() && self.tunnel.is_rung_for() => None,
            _ => Instant::now().checked_add(self.look_after),
        };
        let times = [look, self.targets.next_retry(), self.tunnel.deadline()];
        times.into_iter().flatten().min()
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Core(command) => self.ended |= !self.on_command(command),
            Message::Gateway(number) => self.gateway = Some(number),
            Message::Listener(ListenerChange::Added(number, listener)) => {
                self.ports.add(number, listener);
                self.look_at_port(listener.address.port);
            }
            Message::Listener(ListenerChange::Removed(number)) => {
                if let Some(port) = self.ports.remove(number) {
                    self.look_at_port(port);
                }
            }
        }
    }

    fn on_ready(&mut self, key: Key, slot: u32) {
        if let Some(serial) = self.places.get(&(key, slot)) {
            self.tunnel.queue(*serial);
        }
    }

    fn on_lane_token(&mut self, key: Key, slot: u32, end: bool) -> bool {
        let Some(serial) = self.places.get(&(key, slot)).copied() else {
            return false;
        };
        if let Some(Arrival::Offered(_, lane, _)) = self.arrivals.get_mut(&serial) {
            lane.on_token(end);
        } else if let Some(sink) = self.tunnel.sink(serial) {
            sink.lane.on_token(end);
        }
        self.tunnel.queue(serial);
        true
    }

    fn on_opened(&mut self, key: Key, opened: Opened) {
        self.dial(key, opened);
    }

    fn on_timer(&mut self, _: u32) {}

    fn on_own(&mut self, name: u32) {
        self.hear(name, false);
    }

    fn on_own_end(&mut self, name: u32) {
        self.hear(name, true);
    }

    fn poll_external(&mut self) {
        self.tunnel.poll(Instant::now());
        while let Some(event) = self.tunnel.next_event() {
            self.look_after = SHORTEST_LOOK;
            self.on_event(event);
        }
        if !self.told_version && self.tunnel.is_of_another_version() {
            self.told_version = true;
            tracing::error!(
                "the host's netchannel is of another version than the guest's: install the same one"
            );
        }
    }

    fn work(&mut self) {
        self.tunnel.work(Instant::now());
        while let Some(event) = self.tunnel.next_event() {
            self.on_event(event);
        }
    }

    fn take_remaining_work(&mut self) -> bool {
        let works = self.tunnel.has_work();
        if works {
            self.look_after = SHORTEST_LOOK;
        }
        works
    }

    fn on_pass_end(&mut self) {
        let open = u64::try_from(self.tunnel.count()).unwrap_or(u64::MAX);
        self.counters.open.store(open, Ordering::Relaxed);
        if self.tunnel.flush() {
            self.ring();
        }
    }

    fn sleep(&mut self, news: &mut Vec<News>) {
        let until = self.deadline();
        let spins = self.cells.is_awake() || self.tunnel.count() > 0;
        let (tunnel, inbox) = (
            std::cell::RefCell::new(&mut self.tunnel),
            &self.mail.messages,
        );
        let look = || inbox.has_any() || tunnel.borrow().has_news();
        let arm = || {
            inbox.sleep();
            tunnel.borrow_mut().fall_asleep() || inbox.has_any()
        };
        self.cells.sleep_with(news, until, spins, look, arm);
        inbox.wake();
        self.tunnel.wake();
        let longest = if self.tunnel.is_up() {
            LONGEST_LOOK
        } else {
            LONGEST_WAIT
        };
        self.look_after = (self.look_after * 2).min(longest);
    }

    fn end(&mut self) {
        self.tunnel.end();
        if self.tunnel.flush() {
            self.ring();
        }
    }
}
