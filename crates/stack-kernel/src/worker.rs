//! The thread of the module: one for all tenants of a stack.

use crate::askers::Askers;
use crate::connection::{self, Shared, State, Turn};
use crate::doors::Door;
use crate::own_names::{ASKER, CONNECTION, DOOR, KIND_SHIFT, MOST_NAMES, SESSION, name_of};
use crate::places::Places;
use crate::schedule::Schedule;
use crate::served::{Served, TenantNumber, Tenants};
use crate::table::Table;
use netchannel_abi::link::{Role, side_flags};
use netchannel_scheduler::Grant;
use netchannel_service::anchor::Count;
use netchannel_service::cells::{Cells, Key};
use netchannel_service::core_engine::{StackRequest, Ticket};
use netchannel_service::faults::Faults;
use netchannel_service::jobs::Opened;
use netchannel_service::lane::Lane;
use netchannel_service::mailbox::Mailbox;
use netchannel_service::routing::Router;
use netchannel_service::targets::Targets;
use netchannel_service::timers::{Timers, nanoseconds};
use netchannel_service::worker::{INBOX, Worker};
use netchannel_shm::kernel_socket::set_unsent_limit;
use netchannel_stack_process::counters::Counter;
use netchannel_stack_process::message::Report;
use netchannel_stack_process::process::Fairness;
use netchannel_stack_process::stack_end::StackEnd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that a socket takes before they are sent, where tenants share a bottleneck: what it takes is what the network takes then.
pub(crate) const UNSENT: u32 = 128 << 10;
/// Turns of connections before the worker looks for news.
const MOST_TURNS: usize = 256;

/// What the worker is told.
#[derive(Debug)]
pub enum Message {
    /// A session with the CoreEngine of a tenant.
    Session(OwnedFd),
    /// What tenants share by weight.
    Fairness(Fairness),
    /// The worker ends.
    Stop,
}

/// The messages to a worker.
pub type Mail = Mailbox<Message>;

/// The worker of a stack.
pub struct KernelWorker {
    mail: Arc<Mail>,
    messages: Vec<Message>,
    pub(crate) tenants: Tenants,
    /// The tenant for which connections are routed now.
    pub(crate) current: TenantNumber,
    /// What a router has where its tenant has gone.
    pub(crate) nobody: (Targets, Arc<Count>),
    /// Sessions whose first message has not come, by their names.
    pub(crate) unbegun: HashMap<u32, StackEnd>,
    next_session: u32,
    /// The tenants of sessions, by their names.
    pub(crate) sessions: HashMap<u32, TenantNumber>,
    /// The tenants of links.
    link_tenants: Vec<TenantNumber>,
    /// Tenants whose links are left then.
    pub(crate) leaving: BTreeMap<TenantNumber, Instant>,
    /// Tenants whose doors rest.
    pub(crate) resting: BTreeSet<TenantNumber>,
    /// Tenants with connections that wait for room at a listener.
    retrying: BTreeSet<TenantNumber>,
    pub(crate) fairness: Fairness,
    pub(crate) next_measurement: Option<Instant>,
    pub(crate) measured_at: Instant,
    /// What a socket has by itself.
    pub(crate) kernels_congestion_control: String,
    pub(crate) cells: Cells,
    pub(crate) timers: Timers,
    pub(crate) doors: BTreeMap<u32, (TenantNumber, Door)>,
    pub(crate) next_door: u32,
    pub(crate) table: Table,
    pub(crate) places: Places,
    /// Who asks name servers.
    pub(crate) askers: Askers,
    schedule: Schedule,
    /// How often what programs wrote was told of lately.
    pub(crate) faults: Faults,
    ended: bool,
    epoch: Instant,
}

impl KernelWorker {
    /// A worker without tenants.
    ///
    /// # Errors
    /// When no descriptor can be had.
    pub fn new(mail: Arc<Mail>) -> Result<Self, Errno> {
        let mut cells = Cells::new()?;
        cells.spin_on_sockets();
        cells.watch_own(&*mail, INBOX)?;
        Ok(Self {
            mail,
            messages: Vec::new(),
            tenants: Tenants::default(),
            current: 0,
            nobody: (Targets::default(), Arc::new(Count::new(0))),
            unbegun: HashMap::new(),
            next_session: 0,
            sessions: HashMap::new(),
            link_tenants: Vec::new(),
            leaving: BTreeMap::new(),
            resting: BTreeSet::new(),
            retrying: BTreeSet::new(),
            fairness: Fairness::default(),
            next_measurement: None,
            measured_at: Instant::now(),
            kernels_congestion_control: kernels_congestion_control(),
            cells,
            timers: Timers::default(),
            doors: BTreeMap::new(),
            next_door: 0,
            table: Table::default(),
            places: Places::default(),
            askers: Askers::default(),
            schedule: Schedule::new(),
            faults: Faults::default(),
            ended: false,
            epoch: Instant::now(),
        })
    }

    pub(crate) fn schedule(&mut self) -> &mut Schedule {
        &mut self.schedule
    }

    pub(crate) fn send_request(&mut self, tenant: TenantNumber, request: StackRequest) {
        if let Some(served) = self.tenants.get_mut(tenant) {
            served.report(Report::Request(request));
        }
    }

    /// A session comes. Its first message says what it may use.
    fn on_session(&mut self, socket: OwnedFd) {
        let name = name_of(SESSION, self.next_session);
        self.next_session = (self.next_session + 1) % MOST_NAMES;
        match self.cells.watch_edges(&socket, name) {
            Ok(()) => drop(self.unbegun.insert(name, StackEnd::new(socket))),
            Err(errno) => tracing::error!("a tenant is not served: {errno}"),
        }
        self.hear(name);
    }

    pub(crate) fn set_link_tenant(&mut self, key: Key, tenant: TenantNumber) {
        let place = usize::try_from(key).unwrap_or(usize::MAX);
        if self.link_tenants.len() <= place {
            self.link_tenants.resize(place + 1, 0);
        }
        if let Some(entry) = self.link_tenants.get_mut(place) {
            *entry = tenant;
        }
    }

    pub(crate) fn tenant_of_link(&self, key: Key) -> TenantNumber {
        let place = usize::try_from(key).unwrap_or(usize::MAX);
        self.link_tenants.get(place).copied().unwrap_or_default()
    }

    /// The links of a tenant.
    pub(crate) fn links_of(&self, tenant: TenantNumber) -> Vec<Key> {
        let numbered = (0..).zip(&self.link_tenants);
        let of_tenant = numbered.filter(|(_, one)| **one == tenant);
        of_tenant
            .map(|(key, _)| key)
            .filter(|key| self.cells.link(*key).is_some())
            .collect()
    }

    /// Takes a socket up, and hears of its events. `None` where the kernel refuses to tell of them.
    pub(crate) fn add(
        &mut self,
        tenant: TenantNumber,
        state: State,
        socket: OwnedFd,
    ) -> Option<Ticket> {
        let ticket = self.table.add(tenant, state, socket);
        let name = u32::try_from(ticket.number).ok();
        let name = name.filter(|name| *name < MOST_NAMES);
        let name = name.map(|name| name_of(CONNECTION, name));
        let connection = self.table.get(ticket)?;
        if self.fairness == Fairness::Network {
            set_unsent_limit(&connection.socket, UNSENT);
        }
        let watched = name.map(|name| self.cells.watch_edges(&connection.socket, name));
        if !matches!(watched, Some(Ok(()))) || !self.schedule.add(ticket.number, tenant) {
            self.table.remove(ticket.number);
            return None;
        }
        if let Some(served) = self.tenants.get_mut(tenant) {
            served.count_connections(|count| count + 1);
        }
        Some(ticket)
    }

    /// Makes a lane known under its slot, and listens to it.
    pub(crate) fn watch_lane(&mut self, number: usize, key: Key, lane: &mut Lane) -> bool {
        let slot = lane.handle().index;
        let watched = self.cells.watch_anchor(key, slot, lane.anchor_mut());
        let (Ok(()), Some(cell)) = (watched, self.cells.cell(key)) else {
            return false;
        };
        lane.attach_cell(cell);
        self.places.set((key, slot), number);
        if let Some(connection) = self.table.at_mut(number) {
            connection.place = Some((key, slot));
        }
        true
    }

    pub(crate) fn forget_place(&mut self, place: (Key, u32)) {
        self.places.remove(place);
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
            let (tenant, number) = (self.tenant_of_link(key), end.number());
            self.send_request(tenant, StackRequest::Forget(number));
        }
        self.cells.remove_link(key);
        self.places.remove_link(key);
    }

    /// A connection gets its turn.
    pub(crate) fn queue(&mut self, number: usize) {
        if let Some(queued) = self.table.queued_mut(number)
            && !std::mem::replace(queued, true)
        {
            self.schedule.queue(number);
        }
    }

    /// Something happened to a socket; with `end` the other host has ended its stream, or there is an error.
    fn on_socket(&mut self, number: u32, end: bool) {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(connection) = self.table.at_mut(number) {
            let readiness = &mut connection.readiness;
            readiness.readable = true;
            readiness.blocked = false;
            readiness.ended |= end;
            readiness.unexamined |= end;
        }
        self.queue(number);
    }

    pub(crate) fn remove(&mut self, number: usize) {
        // The socket leaves the epoll set by being closed: nobody else has it.
        let Some(connection) = self.table.remove(number) else {
            return;
        };
        self.schedule.remove(number, connection.queued);
        if let Some(place) = connection.place {
            self.places.remove(place);
            self.let_go(place.0);
        }
        self.count_end(connection.tenant);
    }

    /// A connection of a tenant has ended.
    pub(crate) fn count_end(&mut self, tenant: TenantNumber) {
        if let Some(served) = self.tenants.get_mut(tenant) {
            served.count_connections(|count| count - 1);
            served.tell_drained();
        }
    }

    fn turn(&mut self, grant: &Grant, now: u64) {
        let number = usize::try_from(grant.socket.0).unwrap_or(usize::MAX);
        self.schedule.take();
        let Some(connection) = self.table.at_mut(number) else {
            return self.turn_meeting(number, now);
        };
        connection.queued = false;
        let tenant = connection.tenant;
        self.current = tenant;
        match std::mem::replace(&mut connection.state, State::Changing) {
            State::Connecting(lane) => self.look_at_connect(number, lane),
            State::Open(lane) if connection.wait_anew(&lane) => {
                lane.close(true);
                self.accept_anew(number);
            }
            State::Open(mut lane) => {
                let Some(served) = self.tenants.get_mut(tenant) else {
                    return;
                };
                let mut shared = Shared {
                    caps: &mut served.caps,
                    counters: &served.counters,
                    now,
                    may_choose: served.tenant.congestion_control.is_none(),
                };
                let turn = connection.pump(&mut lane, &mut shared);
                served.wants_more |= connection.readiness.blocked || turn == Turn::More;
                self.after_turn(number, lane, turn);
            }
            other => connection.state = other,
        }
    }

    fn after_turn(&mut self, number: usize, lane: Lane, turn: Turn) {
        let Some(connection) = self.table.at_mut(number) else {
            return;
        };
        match turn {
            Turn::Idle | Turn::More | Turn::Later(_) => connection.state = State::Open(lane),
            Turn::Finished => {
                lane.close(false);
                return self.remove(number);
            }
            Turn::Reset(errno) => {
                connection::make_reset(&connection.socket);
                if errno != Errno::CONNRESET {
                    lane.set_reset_error(errno.raw_os_error().unsigned_abs());
                }
                lane.close(true);
                return self.remove(number);
            }
        }
        match turn {
            Turn::More => self.queue(number),
            Turn::Later(at) => {
                if let Ok(number) = u32::try_from(number) {
                    self.timers.set(number, at);
                }
            }
            _ => {}
        }
    }

    /// The answer of the other host may have come, or the program may have gone.
    fn look_at_connect(&mut self, number: usize, lane: Lane) {
        let Some(connection) = self.table.at_mut(number) else {
            return;
        };
        let flags = lane.peer_flags();
        if flags & (side_flags::RESET | side_flags::CLOSED) != 0 || lane.has_hung_up() {
            lane.close(true);
            return self.remove(number);
        }
        match connection::is_connected(&connection.socket) {
            Ok(true) => {
                lane.set_flags(
                    side_flags::ESTABLISHED | side_flags::ACCEPTED | side_flags::ANSWERS,
                );
                connection.state = State::Open(lane);
                self.queue(number);
            }
            Ok(false) => connection.state = State::Connecting(lane),
            Err(errno) => {
                lane.refuse(errno.raw_os_error().unsigned_abs());
                self.remove(number);
            }
        }
    }

    /// Routes the connections of all tenants that wait for room at a listener.
    pub(crate) fn retry_all(&mut self) {
        if self.retrying.is_empty() {
            return;
        }
        for tenant in std::mem::take(&mut self.retrying) {
            self.current = tenant;
            self.retry_targets();
            self.note_retries();
        }
    }

    /// Connections of the present tenant were routed: some may wait for room.
    pub(crate) fn note_retries(&mut self) {
        let served = self.tenants.get(self.current);
        if served.is_some_and(|served| served.targets.next_retry().is_some()) {
            self.retrying.insert(self.current);
        }
    }

    /// A session has ended: its connections are reset, and all that it had goes.
    pub(crate) fn remove_tenant(&mut self, tenant: TenantNumber) {
        for number in self.table.of_tenant(tenant) {
            if let Some(connection) = self.table.at_mut(number) {
                connection::make_reset(&connection.socket);
                let state = std::mem::replace(&mut connection.state, State::Changing);
                if let State::Connecting(lane) | State::Offered(_, lane, _) | State::Open(lane) =
                    state
                {
                    lane.close(true);
                }
            }
            self.remove(number);
        }
        self.reset_meetings(tenant);
        for key in self.links_of(tenant) {
            if let Some(end) = self.cells.link(key) {
                end.fail();
            }
            self.cells.remove_link(key);
            self.places.remove_link(key);
        }
        self.close_doors(tenant, |_| false);
        self.askers.remove_all(tenant);
        self.retrying.remove(&tenant);
        self.leaving.remove(&tenant);
        self.schedule.remove_tenant(tenant);
        self.tenants.remove(tenant);
    }
}

/// The congestion control of a new socket; empty where that can not be learned.
fn kernels_congestion_control() -> String {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
    let name = socket.and_then(sockopt::tcp_congestion);
    name.unwrap_or_default()
}

impl Worker for KernelWorker {
    type Message = Message;

    fn cells_and_inbox(&mut self) -> (&mut Cells, &Mailbox<Message>) {
        (&mut self.cells, &self.mail)
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
        let timer = self.timers.next();
        let timer = timer.and_then(|at| self.epoch.checked_add(Duration::from_nanos(at)));
        let retrying = self
            .retrying
            .iter()
            .filter_map(|one| self.tenants.get(*one));
        let retry = retrying
            .filter_map(|served| served.targets.next_retry())
            .min();
        let times = [
            timer,
            retry,
            self.doors_rest_until(),
            self.next_measurement,
            self.next_leave(),
        ];
        times.into_iter().flatten().min()
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Session(socket) => self.on_session(socket),
            Message::Fairness(fairness) => self.set_fairness(fairness),
            Message::Stop => self.ended = true,
        }
    }

    fn on_ready(&mut self, key: Key, slot: u32) {
        if let Some(number) = self.places.get(key, slot) {
            self.queue(number);
        }
    }

    fn on_lane_token(&mut self, key: Key, slot: u32, end: bool) -> bool {
        let Some(number) = self.places.get(key, slot) else {
            return false;
        };
        if let Some(connection) = self.table.at_mut(number)
            && let State::Connecting(lane) | State::Open(lane) | State::Offered(_, lane, _) =
                &mut connection.state
        {
            lane.on_token(end);
        }
        self.on_meeting_token(number, (key, slot), end);
        self.queue(number);
        true
    }

    fn on_link_news(&mut self, key: Key) {
        self.current = self.tenant_of_link(key);
    }

    fn on_opened(&mut self, key: Key, opened: Opened) {
        self.dial(key, opened);
    }

    fn on_timer(&mut self, number: u32) {
        self.queue(usize::try_from(number).unwrap_or(usize::MAX));
    }

    fn on_own(&mut self, name: u32) {
        let number = name & MOST_NAMES;
        match name >> KIND_SHIFT {
            SESSION => self.hear(name),
            DOOR => self.accept(number),
            ASKER => self.on_datagrams(number),
            _ => self.on_socket(number, false),
        }
    }

    fn on_own_end(&mut self, name: u32) {
        match name >> KIND_SHIFT {
            CONNECTION => self.on_socket(name & MOST_NAMES, true),
            _ => self.on_own(name),
        }
    }

    fn on_own_urgent(&mut self, name: u32) {
        let number = usize::try_from(name & MOST_NAMES).unwrap_or(usize::MAX);
        if name >> KIND_SHIFT == CONNECTION
            && let Some(connection) = self.table.at_mut(number)
        {
            connection.urgent.note();
        }
    }

    fn on_pass(&mut self) {
        self.end_of_rest();
        self.leave();
        self.measure();
    }

    fn work(&mut self) {
        if self.schedule.is_empty() {
            return;
        }
        let mut now = self.now();
        for _ in 0..MOST_TURNS {
            let Some(grant) = self.schedule.next() else {
                return;
            };
            self.turn(&grant, now);
            let after = self.now();
            let took = after.saturating_sub(now);
            now = after;
            self.schedule.on_turn(&grant, took);
            let number = usize::try_from(grant.socket.0).unwrap_or(usize::MAX);
            if self.table.queued_mut(number).is_some_and(|queued| !*queued) {
                self.schedule.rest(&grant);
            }
            if let Some(served) = self.tenants.get(grant.tenant.0) {
                served.counters.add(Counter::Turns, 1);
                served.counters.add(Counter::Nanoseconds, took);
            }
        }
    }

    fn take_remaining_work(&mut self) -> bool {
        !self.schedule.is_empty()
    }

    fn end(&mut self) {
        for tenant in self.tenants.numbers() {
            self.remove_tenant(tenant);
        }
    }
}

impl Served {
    /// Whether connections at its doors are taken now.
    pub(crate) fn rests(&self) -> bool {
        self.doors_rest_until.is_some()
    }
}
