//! A tenant's stack, as its CoreEngine has it: the session that takes new connections, and former ones whose last connections go on.
//!
//! ```text
//!  other threads --Change--> Control            program --> CoreEngine --Command--> Handle --> current session
//!                               |                              ^                      +--> asker, for an answer
//!                               +--> SessionStack --------------+--requests of any session
//! ```

use crate::control::{Change, Control, NamedHost, refusal};
use crate::counters::Counters;
use crate::endpoint::{Endpoint, MOST_DESCRIPTORS, Received};
use crate::message::{CHANNELS, Instruction, Report, ReportText};
use netchannel_abi::address::Address;
use netchannel_abi::link::side_flags;
use netchannel_configuration::{Publish, Tenant};
use netchannel_service::addresses::to_socket_address;
use netchannel_service::anchor::Count;
use netchannel_service::core_engine::{
    AcceptMode, Command, Engine, ListenerChange, OwnListener, StackRequest,
};
use netchannel_service::link::Parts;
use netchannel_service::stack::{Crossing, Origin, Stack, StackHandle};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ports of which one message tells: a descriptor each.
const MOST_PORTS: usize = MOST_DESCRIPTORS - 1;

/// Messages of one session that are handled before the daemon's loop goes on.
const MOST_MESSAGES: usize = 64;
/// Links that wait for a stack that is being started, at most.
const MOST_WAITING: usize = 1024;
/// Links of one session to the channels to other hosts at one time, at most: one is used, and former ones go with their connections.
const MOST_CROSSINGS: usize = 4;
/// How long they wait: about as long as TCP tries a host that is being started.
const PATIENCE: Duration = Duration::from_secs(30);

/// A session in use.
#[derive(Debug)]
struct Session {
    stack: String,
    endpoint: Endpoint,
    counters: Arc<Counters>,
    binds_ports: bool,
    /// Links to listeners of the tenant for which it has asked.
    links: HashSet<u64>,
    /// Of these, links to the channels to other hosts.
    crossings: HashSet<u64>,
    /// Published ports at which clients may come in over channels.
    doors: HashSet<Publish>,
    drains: bool,
    /// It has ended, or does not keep to the rules.
    is_over: bool,
    waits_for_room: bool,
}

impl Session {
    fn send(&mut self, message: Instruction) {
        let Some((text, with)) = message.pack() else {
            return;
        };
        match self.endpoint.send(&text, with) {
            Ok(_) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => self.is_over = true,
            Err(errno) => {
                tracing::error!("stack {} takes no messages ({errno})", self.stack);
                self.is_over = true;
            }
        }
    }
}

/// Where CoreEngine sends commands.
#[derive(Debug)]
struct Handle {
    sessions: RefCell<Vec<Session>>,
    /// The session whose request CoreEngine answers now.
    asker: Cell<Option<usize>>,
    /// Links of programs that wait for a session.
    waiting: RefCell<Vec<(Instant, Parts)>>,
}

impl StackHandle for Handle {
    fn send(&self, command: Command) {
        let mut sessions = self.sessions.borrow_mut();
        match &command {
            Command::Serve(_) => {
                let taker = sessions.iter_mut().find(|one| !one.drains && !one.is_over);
                match (taker, command) {
                    (Some(taker), command) => taker.send(Instruction::Core(command)),
                    (None, Command::Serve(parts)) => {
                        let mut waiting = self.waiting.borrow_mut();
                        if waiting.len() < MOST_WAITING {
                            waiting.push((Instant::now(), parts));
                        }
                    }
                    _ => {}
                }
            }
            // Without a session the program's end is closed.
            Command::Names(_) => {
                let mut takers = sessions.iter_mut();
                if let Some(taker) = takers.find(|one| !one.drains && !one.is_over) {
                    taker.send(Instruction::Core(command));
                }
            }
            Command::AcceptMode(listener, mode) => {
                for session in &mut *sessions {
                    session.send(Instruction::Core(Command::AcceptMode(*listener, *mode)));
                }
            }
            Command::ListenerClosed(listener) => {
                for session in &mut *sessions {
                    session.send(Instruction::Core(Command::ListenerClosed(*listener)));
                }
            }
            _ => {
                let asker = self.asker.get().and_then(|asker| sessions.get_mut(asker));
                if let Some(asker) = asker {
                    if let Command::Link(_, Ok((parts, _)))
                    | Command::OfferLink(_, Ok((parts, _))) = &command
                    {
                        asker.links.insert(parts.number);
                    }
                    asker.send(Instruction::Core(command));
                }
            }
        }
    }

    fn descriptors(&self) -> usize {
        let sessions = self.sessions.borrow();
        let held = sessions.iter().map(|one| one.counters.now().descriptors);
        usize::try_from(held.sum::<u64>()).unwrap_or(usize::MAX)
    }
}

/// The stack of a tenant, wherever it runs.
#[derive(Debug)]
pub struct SessionStack {
    handle: Rc<Handle>,
    control: Control,
    /// All sockets of sessions, and the doorbell of changes.
    watched: OwnedFd,
    tenant: Arc<Tenant>,
    /// The other hosts, of which a connection over channels shows the name.
    hosts: Arc<[NamedHost]>,
    /// The listener that stands for all the world, once CoreEngine has given its number.
    gateway: Option<u32>,
    listeners: BTreeMap<u32, OwnListener>,
    /// The channels to other hosts, and whose links to them are.
    crossing: Option<(Arc<dyn Crossing>, Arc<Origin>)>,
    /// Where clients come in over these.
    published: Vec<SocketAddr>,
}

impl SessionStack {
    /// A stack without a session: programs that connect wait for one.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new(tenant: Arc<Tenant>) -> Result<Self, Errno> {
        let control = Control::new()?;
        let watched = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(
            &watched,
            control.doorbell(),
            EventData::new_u64(0),
            EventFlags::IN,
        )?;
        Ok(Self {
            handle: Rc::new(Handle {
                sessions: RefCell::default(),
                asker: Cell::new(None),
                waiting: RefCell::default(),
            }),
            control,
            watched,
            tenant,
            hosts: Arc::default(),
            gateway: None,
            listeners: BTreeMap::new(),
            crossing: None,
            published: Vec::new(),
        })
    }

    /// The same, whose connections may go over channels to other hosts. It holds so many `anchors` for these at most.
    #[must_use]
    pub fn with_crossing(mut self, crossing: Arc<dyn Crossing>, anchors: usize) -> Self {
        let origin = Origin {
            tenant: self.tenant.name.clone(),
            addresses: self.tenant.addresses.clone(),
            count: Arc::new(Count::new(anchors)),
        };
        self.crossing = Some((crossing, Arc::new(origin)));
        self
    }

    /// A session asks for a link to the channels to other hosts.
    fn cross(&self, which: usize, engine: &mut dyn Engine) {
        let held = {
            let sessions = self.handle.sessions.borrow();
            let session = sessions.get(which).filter(|one| !one.drains);
            session.map(|one| one.crossings.len())
        };
        let crossing = self.crossing.as_ref();
        let made = match crossing.filter(|_| self.tenant.uses_channels()).zip(held) {
            None => Err(Errno::NETUNREACH),
            Some((_, held)) if held >= MOST_CROSSINGS => Err(Errno::NOBUFS),
            // CoreEngine asks how much the sessions hold.
            Some(((crossing, origin), _)) => engine.own_link().map(|[client, server]| {
                crossing.serve(server, Arc::clone(origin));
                // The channels say by themselves when there is no room.
                let mode = AcceptMode {
                    backlog: usize::MAX,
                    ..AcceptMode::default()
                };
                (client, mode)
            }),
        };
        let mut sessions = self.handle.sessions.borrow_mut();
        let Some(session) = sessions.get_mut(which) else {
            return;
        };
        if let Ok((client, _)) = &made {
            session.links.insert(client.number);
            session.crossings.insert(client.number);
        }
        session.send(Instruction::Core(Command::Link(CHANNELS, made)));
    }

    /// The name of the host whose programs have an address.
    fn host_of(&self, address: IpAddr) -> Option<String> {
        let hosts = self.hosts.iter();
        let bits = |(_, prefixes): &&NamedHost| {
            let around = prefixes.iter().filter(|one| one.contains(address));
            around.map(|one| one.length()).max()
        };
        let found = hosts.filter(|one| bits(one).is_some()).max_by_key(bits);
        found.map(|(name, _)| name.clone())
    }

    /// To change it while it runs.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    fn on_change(&mut self, change: Change, engine: &mut dyn Engine) {
        let mut sessions = self.handle.sessions.borrow_mut();
        match change {
            Change::Tenant(tenant) => {
                self.tenant = tenant;
                for session in &mut *sessions {
                    session.send(Instruction::Tenant(Box::new((*self.tenant).clone())));
                }
            }
            Change::Hosts(hosts) => self.hosts = hosts,
            // CoreEngine asks how much the sessions hold.
            Change::Trust(own, others) => {
                drop(sessions);
                engine.trust(own, others);
            }
            Change::Look => {
                drop(sessions);
                self.control.is_looking();
                engine.look_at_neighbours();
            }
            Change::Enter(parts) => {
                drop(sessions);
                self.handle.send(Command::Serve(parts));
            }
            Change::Publish => {
                for session in sessions.iter_mut().filter(|one| !one.drains) {
                    session
                        .doors
                        .retain(|port| self.tenant.publish.contains(port));
                    publish(&self.control, &self.tenant, session);
                }
            }
            Change::Session(new, counters, memory) => {
                for former in &mut *sessions {
                    if !std::mem::replace(&mut former.drains, true) {
                        former.send(Instruction::Keep(Vec::new()));
                        former.send(Instruction::Drain);
                    }
                }
                let data = EventData::new_u64(1);
                let watched = epoll::add(&self.watched, &new.socket, data, EventFlags::IN);
                let mut session = Session {
                    stack: new.stack,
                    endpoint: Endpoint::new(new.socket),
                    counters,
                    binds_ports: new.binds_ports,
                    links: HashSet::new(),
                    crossings: HashSet::new(),
                    doors: HashSet::new(),
                    drains: false,
                    is_over: false,
                    waits_for_room: false,
                };
                let Ok(()) = watched else {
                    tracing::error!("stack {}: no descriptor is left", session.stack);
                    return self.control.session_ended(&session.counters);
                };
                session.send(Instruction::Begin(new.limits, memory));
                session.send(Instruction::Tenant(Box::new((*self.tenant).clone())));
                if let Some(gateway) = self.gateway {
                    session.send(Instruction::Gateway(gateway));
                }
                for (number, listener) in &self.listeners {
                    let change = ListenerChange::Added(*number, *listener);
                    session.send(Instruction::Listener(change));
                }
                // Last: a door is open while a listener is known.
                publish(&self.control, &self.tenant, &mut session);
                for (_, parts) in self.handle.waiting.borrow_mut().drain(..) {
                    session.send(Instruction::Core(Command::Serve(parts)));
                }
                sessions.push(session);
            }
        }
    }

    /// Handles what a session has sent.
    fn hear(&self, which: usize, engine: &mut dyn Engine) {
        for _ in 0..MOST_MESSAGES {
            let mut sessions = self.handle.sessions.borrow_mut();
            let Some(session) = sessions.get_mut(which).filter(|one| !one.is_over) else {
                return;
            };
            let report = match session.endpoint.receive::<ReportText>() {
                Received::Message(text, with) => Report::unpack(text, with),
                Received::Nothing => return,
                Received::Ended => {
                    session.is_over = true;
                    return;
                }
                Received::Garbage => None,
            };
            match report {
                None => {
                    tracing::error!(
                        "stack {} sends garbage; its session is ended",
                        session.stack
                    );
                    session.is_over = true;
                }
                Some(Report::Drained) => session.is_over = session.drains,
                Some(Report::Published(port, bound)) => {
                    note_port(&self.control, &self.tenant, session, port, bound);
                }
                Some(Report::Door(port, is_open)) => {
                    session.doors.remove(&port);
                    if is_open && self.tenant.publish.contains(&port) {
                        session.doors.insert(port);
                    }
                }
                Some(Report::Request(StackRequest::Link(CHANNELS, _))) => {
                    drop(sessions);
                    self.cross(which, engine);
                }
                Some(Report::Request(request)) => {
                    if let StackRequest::Forget(link) = &request {
                        session.crossings.remove(link);
                    }
                    if let StackRequest::Forget(link) = &request
                        && !session.links.remove(link)
                    {
                        continue;
                    }
                    if let StackRequest::Offer { link, .. } = &request
                        && !session.links.contains(link)
                    {
                        continue;
                    }
                    drop(sessions);
                    self.handle.asker.set(Some(which));
                    engine.request(request);
                    self.handle.asker.set(None);
                }
            }
        }
    }

    /// Sessions that have ended go, with what they had of CoreEngine.
    fn clear(&self, engine: &mut dyn Engine) {
        let over: Vec<Session> = {
            let mut sessions = self.handle.sessions.borrow_mut();
            sessions.extract_if(.., |one| one.is_over).collect()
        };
        for session in over {
            self.control.session_ended(&session.counters);
            for link in session.links {
                engine.request(StackRequest::Forget(link));
            }
        }
    }

    /// Tells the channels where clients come in: at the ports that are open in the host's own network, and not in that of a stack.
    fn publish_over_channels(&mut self) {
        let Some((crossing, _)) = &self.crossing else {
            return;
        };
        let open = |port: &Publish| {
            let sessions = self.handle.sessions.borrow();
            let mut present = sessions.iter().filter(|one| !one.drains && !one.is_over);
            present.any(|one| !one.binds_ports && one.doors.contains(port))
        };
        let ports = self.tenant.publish.iter().filter(|port| open(port));
        let published: Vec<SocketAddr> = ports.map(|port| port.host).collect();
        if published != self.published {
            let entrance = Arc::new(self.control.clone());
            crossing.publish(&self.tenant.name, published.clone(), entrance);
            self.published = published;
        }
    }

    /// Watches sockets for room as long as messages are kept for them.
    fn watch_for_room(&self) {
        for session in &mut *self.handle.sessions.borrow_mut() {
            let waits = session.endpoint.is_blocked();
            if waits != std::mem::replace(&mut session.waits_for_room, waits) {
                let flags = if waits {
                    EventFlags::IN | EventFlags::OUT
                } else {
                    EventFlags::IN
                };
                // It fails only for a socket that is not watched.
                let _ = epoll::modify(
                    &self.watched,
                    &session.endpoint,
                    EventData::new_u64(1),
                    flags,
                );
            }
        }
    }
}

/// Tells a session of the ports that are published, with the sockets that there are.
fn publish(control: &Control, tenant: &Tenant, session: &mut Session) {
    session.send(Instruction::Keep(tenant.publish.clone()));
    for some in tenant.publish.chunks(MOST_PORTS) {
        let some = some.iter().filter_map(|port| {
            let socket = control.socket_of(port);
            (session.binds_ports || socket.is_some()).then_some((*port, socket))
        });
        session.send(Instruction::Publish(some.collect()));
    }
}

fn note_port(
    control: &Control,
    tenant: &Tenant,
    session: &Session,
    port: Publish,
    bound: Result<OwnedFd, Errno>,
) {
    if session.drains || !session.binds_ports || !tenant.publish.contains(&port) {
        return;
    }
    match bound {
        Ok(socket) => control.keep_socket(port, socket),
        Err(errno) => tracing::error!("{}", refusal(tenant, &port, errno)),
    }
}

impl Drop for SessionStack {
    fn drop(&mut self) {
        if let Some((crossing, _)) = &self.crossing
            && !self.published.is_empty()
        {
            let entrance = Arc::new(self.control.clone());
            crossing.publish(&self.tenant.name, Vec::new(), entrance);
        }
    }
}

impl Stack for SessionStack {
    fn name(&self) -> &'static str {
        "session"
    }

    fn handle(&self) -> Rc<dyn StackHandle> {
        Rc::clone(&self.handle) as Rc<dyn StackHandle>
    }

    fn doorbells(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.watched.as_fd()]
    }

    fn on_doorbell(&mut self, _: usize, engine: &mut dyn Engine, _: Instant) {
        for change in self.control.take_changes(MOST_MESSAGES) {
            self.on_change(change, engine);
        }
        let count = self.handle.sessions.borrow().len();
        for which in 0..count {
            if let Some(session) = self.handle.sessions.borrow_mut().get_mut(which)
                && session.endpoint.is_blocked()
                && session.endpoint.flush().is_err()
            {
                session.is_over = true;
            }
            self.hear(which, engine);
        }
        self.clear(engine);
    }

    fn on_loop_pass(&mut self, engine: &mut dyn Engine, now: Instant) {
        if self.gateway.is_none() {
            let number = engine.next_remote();
            // First: a program can connect as soon as it sees the number.
            for session in &mut *self.handle.sessions.borrow_mut() {
                session.send(Instruction::Gateway(number));
            }
            engine.set_gateway(number);
            self.gateway = Some(number);
        }
        if self.handle.sessions.borrow().iter().any(|one| one.is_over) {
            self.clear(engine);
        }
        let mut waiting = self.handle.waiting.borrow_mut();
        waiting.retain(|(since, _)| now.duration_since(*since) < PATIENCE);
        drop(waiting);
        self.watch_for_room();
        self.publish_over_channels();
    }

    fn deadline(&self, _: Instant) -> Option<Instant> {
        let waiting = self.handle.waiting.borrow();
        waiting.first().map(|(since, _)| *since + PATIENCE)
    }

    fn on_listener(&mut self, change: ListenerChange) {
        match change {
            ListenerChange::Added(number, listener) => {
                self.listeners.insert(number, listener);
            }
            ListenerChange::Removed(number) => {
                self.listeners.remove(&number);
            }
        }
        for session in &mut *self.handle.sessions.borrow_mut() {
            session.send(Instruction::Listener(change));
        }
    }

    fn name_of_way(&self, peer: &Address, flags: u32) -> Option<(&'static str, Option<String>)> {
        if flags & side_flags::OVER_CHANNELS != 0 {
            let peer = to_socket_address(&peer.unmapped()).map(|peer| peer.ip());
            return Some(("channels", peer.and_then(|peer| self.host_of(peer))));
        }
        let has_socket = flags & side_flags::ANSWERS != 0;
        Some((if has_socket { "kernel" } else { "local" }, None))
    }

    fn connections(&self) -> u64 {
        self.control.counts().open
    }
}
