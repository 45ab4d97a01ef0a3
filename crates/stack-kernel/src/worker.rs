//! The thread of the module.

use crate::caps::Caps;
use crate::connection::{self, Shared, State, Turn};
use crate::counters::{Counters, add};
use crate::doors::{Change, Door};
use crate::places::Places;
use crate::table::Table;
use netchannel_abi::link::{Role, side_flags};
use netchannel_configuration::Tenant;
use netchannel_service::anchor::Count;
use netchannel_service::cells::{Cells, Key};
use netchannel_service::core_engine::{Command, ListenerChange, OwnListener, StackRequest, Ticket};
use netchannel_service::jobs::Opened;
use netchannel_service::lane::Lane;
use netchannel_service::mailbox::Mailbox;
use netchannel_service::routing::{Destination, Router};
use netchannel_service::targets::Targets;
use netchannel_service::timers::Timers;
use netchannel_service::worker::{INBOX, Worker};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Name of the first door among the worker's own descriptors; connections come behind the last.
const FIRST_DOOR: u32 = INBOX + 1;
/// Doors that a worker may ever have had; a number is not used again.
const MOST_DOORS: u32 = 1 << 16;
const FIRST_CONNECTION: u32 = FIRST_DOOR + MOST_DOORS;
/// Clients taken at a door before others have their turn.
const MOST_ACCEPTED: usize = 64;
/// Without a descriptor, or with as many connections as the tenant may have, a door is looked at again after so long.
const DOOR_PAUSE: Duration = Duration::from_millis(50);

/// What the worker is told.
#[derive(Debug)]
pub enum Message {
    /// By CoreEngine.
    Core(Command),
    /// The listener that stands for all the world.
    Gateway(u32),
    /// A listener of the tenant came or went.
    Listener(ListenerChange),
    /// Another table of the tenant.
    Tenant(Arc<Tenant>),
    /// Ports that are published from now on.
    Doors(Vec<Door>),
}

/// Both ways between the worker and the daemon's thread.
#[derive(Debug)]
pub struct Mail {
    /// To the worker.
    pub messages: Mailbox<Message>,
    /// From the worker to CoreEngine.
    pub requests: Mailbox<StackRequest>,
}

/// The worker of a tenant.
pub struct KernelWorker {
    mail: Arc<Mail>,
    messages: Vec<Message>,
    pub(crate) tenant: Arc<Tenant>,
    /// What a socket has by itself.
    pub(crate) kernels_congestion_control: String,
    /// Whatever the table says.
    most_sockets: usize,
    pub(crate) caps: Caps,
    pub(crate) counters: Arc<Counters>,
    pub(crate) cells: Cells,
    pub(crate) targets: Targets,
    timers: Timers,
    pub(crate) count: Arc<Count>,
    pub(crate) gateway: Option<u32>,
    doors: BTreeMap<u32, Door>,
    next_door: u32,
    doors_rest_until: Option<Instant>,
    listeners: BTreeMap<u32, OwnListener>,
    pub(crate) table: Table,
    places: Places,
    queue: VecDeque<usize>,
    ended: bool,
    epoch: Instant,
}

impl KernelWorker {
    /// A worker without doors, for so many sockets at most.
    ///
    /// # Errors
    /// When no descriptor can be had.
    pub fn new(
        mail: Arc<Mail>,
        count: Arc<Count>,
        counters: Arc<Counters>,
        tenant: Arc<Tenant>,
        most_sockets: usize,
    ) -> Result<Self, Errno> {
        let mut cells = Cells::new()?;
        cells.spin_on_sockets();
        cells.watch_own(&mail.messages, INBOX)?;
        let mut caps = Caps::default();
        caps.set(&tenant, 0);
        Ok(Self {
            mail,
            messages: Vec::new(),
            tenant,
            kernels_congestion_control: kernels_congestion_control(),
            most_sockets,
            caps,
            counters,
            cells,
            targets: Targets::default(),
            timers: Timers::default(),
            count,
            gateway: None,
            doors: BTreeMap::new(),
            next_door: FIRST_DOOR,
            doors_rest_until: None,
            listeners: BTreeMap::new(),
            table: Table::default(),
            places: Places::default(),
            queue: VecDeque::new(),
            ended: false,
            epoch: Instant::now(),
        })
    }

    pub(crate) fn send_request(&self, request: StackRequest) {
        self.mail.requests.send(request);
    }

    /// Whether the tenant has as many connections as it may.
    pub(crate) fn is_full(&self) -> bool {
        let most = usize::try_from(self.tenant.connections).unwrap_or(usize::MAX);
        self.table.count() >= most.min(self.most_sockets)
    }

    /// Takes a socket up, and hears of its events. `None` where the kernel refuses to tell of them.
    pub(crate) fn add(&mut self, state: State, socket: OwnedFd) -> Option<Ticket> {
        let ticket = self.table.add(state, socket);
        let name = u32::try_from(ticket.number)
            .ok()?
            .checked_add(FIRST_CONNECTION);
        let connection = self.table.get(ticket)?;
        let watched = name.map(|name| self.cells.watch_edges(&connection.socket, name));
        if !matches!(watched, Some(Ok(()))) {
            self.table.remove(ticket.number);
            return None;
        }
        self.count_open();
        Some(ticket)
    }

    fn count_open(&self) {
        let open = u64::try_from(self.table.count()).unwrap_or(u64::MAX);
        self.counters.open.store(open, Ordering::Relaxed);
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
            self.send_request(StackRequest::Forget(end.number()));
        }
        self.cells.remove_link(key);
        self.places.remove_link(key);
    }

    /// A connection gets its turn.
    pub(crate) fn queue(&mut self, number: usize) {
        if let Some(connection) = self.table.at_mut(number)
            && !std::mem::replace(&mut connection.queued, true)
        {
            self.queue.push_back(number);
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
        }
        self.queue(number);
    }

    pub(crate) fn remove(&mut self, number: usize) {
        // The socket leaves the epoll set by being closed: nobody else has it.
        let Some(connection) = self.table.remove(number) else {
            return;
        };
        if let Some(place) = connection.place {
            self.places.remove(place);
            self.let_go(place.0);
        }
        self.count_open();
    }

    fn turn(&mut self, number: usize) {
        let now = self.now();
        let Some(connection) = self.table.at_mut(number) else {
            return;
        };
        connection.queued = false;
        match std::mem::replace(&mut connection.state, State::Changing) {
            State::Connecting(lane) => self.look_at_connect(number, lane),
            State::Open(mut lane) => {
                let mut shared = Shared {
                    caps: &mut self.caps,
                    counters: &self.counters,
                    now,
                };
                let turn = connection.pump(&mut lane, &mut shared);
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
            Turn::Idle | Turn::More | Turn::Capped(_) => connection.state = State::Open(lane),
            Turn::Finished => {
                lane.close(false);
                return self.remove(number);
            }
            Turn::Reset(errno) => {
                connection::make_reset(&connection.socket);
                if errno == Errno::TIMEDOUT {
                    lane.set_reset_error(errno.raw_os_error().unsigned_abs());
                }
                lane.close(true);
                return self.remove(number);
            }
        }
        match turn {
            Turn::More => self.queue(number),
            Turn::Capped(at) => {
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
                lane.set_flags(side_flags::ESTABLISHED | side_flags::ACCEPTED);
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

    /// Clients come in at a door.
    fn accept(&mut self, name: u32) {
        for _ in 0..MOST_ACCEPTED {
            if self.is_full() {
                return self.rest_doors();
            }
            let Some(door) = self.doors.get(&name).filter(|door| door.is_open()) else {
                return;
            };
            let (socket, client) = match door.accept() {
                Ok(accepted) => accepted,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return self.rest_doors();
                }
                Err(_) => return,
            };
            let server = door.server();
            let Some(listener) = door.listener(self.listeners.iter()) else {
                connection::make_reset(&socket);
                continue;
            };
            self.prepare(&socket);
            let destination = Destination {
                listener,
                client,
                server,
                since: Instant::now(),
            };
            if let Some(ticket) = self.add(State::Arriving(destination), socket) {
                add(&self.counters.accepted, 1);
                self.route(ticket);
            }
        }
    }

    /// No client can be taken now: those that come wait with the kernel.
    fn rest_doors(&mut self) {
        if self.doors_rest_until.is_none() {
            for door in self.doors.values() {
                self.cells.forget_own(door.socket());
            }
            self.doors_rest_until = Some(Instant::now() + DOOR_PAUSE);
        }
    }

    fn end_of_rest(&mut self) {
        let is_due = self
            .doors_rest_until
            .is_some_and(|until| until <= Instant::now());
        if is_due {
            self.doors_rest_until = None;
            for (name, door) in self.doors.iter().filter(|(_, door)| door.is_open()) {
                watch_door(&self.cells, *name, door);
            }
        }
    }

    /// Doors are open where somebody listens.
    fn look_at_doors(&mut self) {
        let rests = self.doors_rest_until.is_some();
        for (name, door) in &mut self.doors {
            let listens = door.listener(self.listeners.iter()).is_some();
            match door.set_open(listens) {
                Ok(Change::Opened) if !rests => watch_door(&self.cells, *name, door),
                Ok(Change::Shut) => self.cells.forget_own(door.socket()),
                Ok(_) => {}
                Err(errno) => tracing::warn!(
                    "tenant {}: no client can come in at {} ({errno})",
                    self.tenant.name,
                    door.publish().host
                ),
            }
        }
    }

    fn on_tenant(&mut self, tenant: Arc<Tenant>) {
        self.caps.set(&tenant, self.now());
        let (kept, gone) = std::mem::take(&mut self.doors)
            .into_iter()
            .partition(|(_, door)| tenant.publish.contains(&door.publish()));
        self.doors = kept;
        let gone: BTreeMap<u32, Door> = gone;
        for door in gone.values() {
            self.cells.forget_own(door.socket());
        }
        self.tenant = tenant;
    }
}

/// The congestion control of a new socket; empty where that can not be learned.
fn kernels_congestion_control() -> String {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
    let name = socket.and_then(sockopt::tcp_congestion);
    name.unwrap_or_default()
}

fn watch_door(cells: &Cells, name: u32, door: &Door) {
    if let Err(errno) = cells.watch_own(door.socket(), name) {
        tracing::warn!(
            "clients at {} are not heard of ({errno})",
            door.publish().host
        );
    }
}

impl Worker for KernelWorker {
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
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn deadline(&self) -> Option<Instant> {
        let timer = self.timers.next();
        let timer = timer.and_then(|at| self.epoch.checked_add(Duration::from_nanos(at)));
        let times = [timer, self.targets.next_retry(), self.doors_rest_until];
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
                self.listeners.insert(number, listener);
                self.look_at_doors();
            }
            Message::Listener(ListenerChange::Removed(number)) => {
                self.listeners.remove(&number);
                self.look_at_doors();
            }
            Message::Tenant(tenant) => self.on_tenant(tenant),
            Message::Doors(doors) => {
                for door in doors {
                    if self.next_door < FIRST_CONNECTION {
                        self.doors.insert(self.next_door, door);
                        self.next_door += 1;
                    }
                }
                self.look_at_doors();
            }
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
        self.queue(number);
        true
    }

    fn on_opened(&mut self, key: Key, opened: Opened) {
        self.dial(key, opened);
    }

    fn on_timer(&mut self, number: u32) {
        self.queue(usize::try_from(number).unwrap_or(usize::MAX));
    }

    fn on_own(&mut self, name: u32) {
        match name.checked_sub(FIRST_CONNECTION) {
            None => self.accept(name),
            Some(number) => self.on_socket(number, false),
        }
    }

    fn on_own_end(&mut self, name: u32) {
        match name.checked_sub(FIRST_CONNECTION) {
            None => self.accept(name),
            Some(number) => self.on_socket(number, true),
        }
    }

    fn on_pass(&mut self) {
        if self.doors_rest_until.is_some() {
            self.end_of_rest();
        }
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
