//! Its thread: each connection is a lane and a socket of the kernel's, with bytes copied between them.

use crate::connection::{Connection, Over, State, connected, priority, reset, set_priority};
use crate::module::note_options;
use netchannel_abi::address::{Address, INET};
use netchannel_abi::link::{Role, side_flags};
use netchannel_service::addresses;
use netchannel_service::anchor::Count;
use netchannel_service::cells::{Cells, Key};
use netchannel_service::core_engine::{Command, ListenerChange, OwnListener, StackRequest, Ticket};
use netchannel_service::jobs::Opened;
use netchannel_service::lane::Lane;
use netchannel_service::mailbox::Mailbox;
use netchannel_service::routing::{Destination, Refused, Router};
use netchannel_service::targets::Targets;
use netchannel_service::timers::Timers;
use netchannel_service::worker::{INBOX, Worker};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// Name of the door; sockets come behind it.
const DOOR: u32 = 1;

/// What the thread is told.
#[derive(Debug)]
pub enum Letter {
    Core(Command),
    Remote(u32, Address),
    Listener(ListenerChange),
}

/// Both ways between the thread and the daemon's.
#[derive(Debug)]
pub struct Mail {
    pub letters: Mailbox<Letter>,
    pub requests: Mailbox<StackRequest>,
}

pub struct Kernel {
    mail: Arc<Mail>,
    letters: Vec<Letter>,
    cells: Cells,
    targets: Targets,
    timers: Timers,
    count: Arc<Count>,
    door: Option<(TcpListener, Address)>,
    remotes: HashMap<u32, Address>,
    listeners: BTreeMap<u32, OwnListener>,
    connections: Vec<Option<Connection>>,
    by_slot: HashMap<(Key, u32), usize>,
    queue: VecDeque<usize>,
    stamps: u64,
    ended: bool,
    epoch: Instant,
}

impl Kernel {
    pub fn new(
        mail: Arc<Mail>,
        count: Arc<Count>,
        door: Option<(TcpListener, Address)>,
    ) -> Result<Self, Errno> {
        let cells = Cells::new()?;
        cells.watch_own(&mail.letters, INBOX)?;
        if let Some((door, _)) = &door {
            door.set_nonblocking(true).unwrap();
            cells.watch_own(door, DOOR)?;
        }
        Ok(Self {
            mail,
            letters: Vec::new(),
            cells,
            targets: Targets::default(),
            timers: Timers::default(),
            count,
            door,
            remotes: HashMap::new(),
            listeners: BTreeMap::new(),
            connections: Vec::new(),
            by_slot: HashMap::new(),
            queue: VecDeque::new(),
            stamps: 0,
            ended: false,
            epoch: Instant::now(),
        })
    }

    fn add(&mut self, state: State, socket: OwnedFd) -> Ticket {
        self.stamps += 1;
        let stamp = self.stamps;
        let number = self.connections.len();
        let name = u32::try_from(number).unwrap() + DOOR + 1;
        self.cells.watch_edges(&socket, name).unwrap();
        self.connections.push(Some(Connection {
            stamp,
            state,
            socket,
            place: None,
            said_end: false,
            heard_end: false,
        }));
        Ticket { number, stamp }
    }

    fn get(&self, ticket: Ticket) -> Option<&Connection> {
        let connection = self.connections.get(ticket.number)?.as_ref()?;
        (connection.stamp == ticket.stamp).then_some(connection)
    }

    fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(ticket.number)?.as_mut()?;
        (connection.stamp == ticket.stamp).then_some(connection)
    }

    /// Makes a lane known under its slot, and listens to it.
    fn settle_in(&mut self, number: usize, key: Key, lane: &mut Lane) -> bool {
        let slot = lane.handle().index;
        let watched = self.cells.watch_anchor(key, slot, lane.anchor_mut());
        let (Ok(()), Some(cell)) = (watched, self.cells.cell(key)) else {
            return false;
        };
        lane.attach_cell(cell);
        self.by_slot.insert((key, slot), number);
        if let Some(Some(connection)) = self.connections.get_mut(number) {
            connection.place = Some((key, slot));
        }
        true
    }

    /// Clients of the kernel's come in.
    fn accept(&mut self) {
        while let Some((door, to)) = &self.door
            && let Ok((stream, from)) = door.accept()
        {
            let server = *to;
            stream.set_nonblocking(true).unwrap();
            let SocketAddr::V4(from) = from else { continue };
            let mut listeners = self.listeners.iter();
            let found = listeners.find(|(_, one)| addresses::covers(&one.address, &server));
            let socket = OwnedFd::from(stream);
            let Some((listener, _)) = found else {
                reset(&socket);
                continue;
            };
            let destination = Destination {
                listener: *listener,
                client: Address::v4(from.ip().octets(), from.port()),
                server,
                since: Instant::now(),
            };
            let ticket = self.add(State::Coming(destination), socket);
            self.route(ticket);
        }
    }

    /// A link that is not used any more goes.
    fn let_go(&mut self, key: Key) {
        self.cells.wake_link(key);
        let Some(end) = self.cells.link(key) else {
            return;
        };
        if end.is_alive() || end.connections() > 0 {
            return;
        }
        if end.role() == Role::Client {
            self.request(StackRequest::Forget(end.number()));
        }
        self.cells.remove_link(key);
        self.by_slot.retain(|(one, _), _| *one != key);
    }

    fn turn(&mut self, number: usize) {
        let Some(Some(connection)) = self.connections.get_mut(number) else {
            return;
        };
        match std::mem::replace(&mut connection.state, State::Changing) {
            State::Going(lane) => match connected(&connection.socket) {
                Ok(true) => {
                    lane.set_flags(side_flags::ESTABLISHED | side_flags::ACCEPTED);
                    connection.state = State::Open(lane);
                    self.turn(number);
                }
                Ok(false) => connection.state = State::Going(lane),
                Err(errno) => {
                    lane.refuse(errno.raw_os_error().unsigned_abs());
                    self.remove(number);
                }
            },
            State::Open(mut lane) => match connection.pump(&mut lane) {
                None => connection.state = State::Open(lane),
                Some(over) => {
                    let resets = matches!(over, Over::Reset);
                    if resets {
                        reset(&connection.socket);
                    }
                    lane.close(resets);
                    self.remove(number);
                }
            },
            other => connection.state = other,
        }
    }

    fn remove(&mut self, number: usize) {
        let Some(connection) = self.connections.get_mut(number).and_then(Option::take) else {
            return;
        };
        self.cells.forget_own(&connection.socket);
        if let Some(place) = connection.place {
            self.by_slot.remove(&place);
            self.let_go(place.0);
        }
    }

    fn dial(&mut self, key: Key, opened: Opened) -> Option<()> {
        let end = Arc::clone(self.cells.link(key)?);
        let lane = Lane::accepted(&end, opened.loan).of_daemon();
        let known = self.remotes.get(&opened.listener);
        let meant = known.is_some_and(|one| addresses::covers(one, &opened.server));
        let server = opened.server.unmapped();
        let (true, INET, Some(octets)) = (meant, server.family, server.bytes.first_chunk::<4>())
        else {
            lane.refuse(Errno::CONNREFUSED.raw_os_error().unsigned_abs());
            return None;
        };
        let to = SocketAddr::from((Ipv4Addr::from(*octets), server.port));
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::STREAM;
        let socket = rustix::net::socket_with(AddressFamily::INET, kind, flags, None).unwrap();
        let hints = lane.hints();
        sockopt::set_ip_tos(&socket, hints.dscp << 2).unwrap();
        set_priority(&socket, hints.priority);
        match rustix::net::connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => {
                lane.refuse(errno.raw_os_error().unsigned_abs());
                return None;
            }
        }
        let from = rustix::net::getsockname(&socket).unwrap();
        let from = SocketAddr::try_from(from).unwrap();
        let tos = sockopt::ip_tos(&socket).unwrap();
        note_options(from, (tos, priority(&socket)));
        let number = self.add(State::Changing, socket).number;
        let mut lane = lane;
        if !self.settle_in(number, key, &mut lane) {
            lane.refuse(Errno::NOBUFS.raw_os_error().unsigned_abs());
            self.remove(number);
            return None;
        }
        self.connections[number].as_mut()?.state = State::Going(lane);
        self.queue.push_back(number);
        Some(())
    }

    /// Gives a connection that waits its lane.
    fn give(&mut self, ticket: Ticket, next: impl FnOnce(Destination) -> State) {
        if let Some(connection) = self.get_mut(ticket) {
            match std::mem::replace(&mut connection.state, State::Changing) {
                State::Coming(destination) => connection.state = next(destination),
                other => connection.state = other,
            }
        }
        self.queue.push_back(ticket.number);
    }
}

impl Router for Kernel {
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

    fn request(&self, request: StackRequest) {
        self.mail.requests.send(request);
    }

    fn destination(&self, ticket: Ticket) -> Option<Destination> {
        match self.get(ticket)?.state {
            State::Coming(destination) => Some(destination),
            _ => None,
        }
    }

    fn redirect(&mut self, ticket: Ticket, listener: u32) {
        if let Some(connection) = self.get_mut(ticket)
            && let State::Coming(destination) = &mut connection.state
        {
            destination.listener = listener;
        }
    }

    fn is_unaccepted(&self, ticket: Ticket) -> bool {
        match self.get(ticket).map(|one| &one.state) {
            Some(State::Offered(..)) => true,
            Some(State::Open(lane)) => lane.waits_for_accept(),
            _ => false,
        }
    }

    fn established(&mut self, ticket: Ticket, lane: Lane, _: Key) -> Option<Ticket> {
        self.give(ticket, |_| State::Open(lane));
        Some(ticket)
    }

    fn offered(&mut self, ticket: Ticket, lane: Lane, key: Key) -> Option<Ticket> {
        self.give(ticket, |destination| State::Offered(destination, lane, key));
        Some(ticket)
    }

    fn taken(&mut self, ticket: Ticket) -> Option<Ticket> {
        let (lane, _) = self.take_back(ticket)?;
        self.give(ticket, |_| State::Open(lane));
        None
    }

    fn take_back(&mut self, ticket: Ticket) -> Option<(Lane, Key)> {
        let connection = self.get_mut(ticket)?;
        match std::mem::replace(&mut connection.state, State::Changing) {
            State::Offered(destination, lane, key) => {
                connection.state = State::Coming(destination);
                Some((lane, key))
            }
            other => {
                connection.state = other;
                None
            }
        }
    }

    fn refuse(&mut self, ticket: Ticket, _: Refused) {
        if let Some(connection) = self.get(ticket) {
            reset(&connection.socket);
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

    fn watch(&mut self, ticket: Ticket, key: Key, lane: &mut Lane) -> bool {
        self.settle_in(ticket.number, key, lane)
    }

    fn unwatch(&mut self, key: Key, slot: u32) {
        self.by_slot.remove(&(key, slot));
    }
}

impl Worker for Kernel {
    type Message = Letter;

    fn cells_and_inbox(&mut self) -> (&mut Cells, &Mailbox<Letter>) {
        (&mut self.cells, &self.mail.letters)
    }

    fn message_buffer(&mut self) -> &mut Vec<Letter> {
        &mut self.letters
    }

    fn timers(&mut self) -> &mut Timers {
        &mut self.timers
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap()
    }

    fn deadline(&self) -> Option<Instant> {
        self.targets.next_retry()
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn on_message(&mut self, letter: Letter) {
        match letter {
            Letter::Core(command) => self.ended |= !self.on_command(command),
            Letter::Remote(number, address) => {
                self.remotes.insert(number, address);
            }
            Letter::Listener(ListenerChange::Added(number, listener)) => {
                self.listeners.insert(number, listener);
            }
            Letter::Listener(ListenerChange::Removed(number)) => {
                self.listeners.remove(&number);
            }
        }
    }

    fn on_ready(&mut self, key: Key, slot: u32) {
        if let Some(number) = self.by_slot.get(&(key, slot)) {
            self.queue.push_back(*number);
        }
    }

    fn on_lane_token(&mut self, key: Key, slot: u32, end: bool) -> bool {
        let Some(number) = self.by_slot.get(&(key, slot)).copied() else {
            return false;
        };
        if let Some(Some(connection)) = self.connections.get_mut(number)
            && let State::Going(lane) | State::Open(lane) | State::Offered(_, lane, _) =
                &mut connection.state
        {
            lane.on_token(end);
        }
        self.queue.push_back(number);
        true
    }

    fn on_opened(&mut self, key: Key, opened: Opened) {
        self.dial(key, opened);
    }

    fn on_timer(&mut self, _: u32) {}

    fn on_own(&mut self, name: u32) {
        match name.checked_sub(DOOR + 1) {
            None => self.accept(),
            Some(number) => self.queue.push_back(usize::try_from(number).unwrap()),
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
