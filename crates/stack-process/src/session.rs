//! A tenant's stack, as its CoreEngine has it: the session that takes new connections, and former ones whose last connections go on.
//!
//! ```text
//!  other threads --Change--> Control            program --> CoreEngine --Command--> Handle --> current session
//!                               |                              ^                      +--> asker, for an answer
//!                               +--> SessionStack --------------+--requests of any session
//! ```

use crate::counters::{Counters, Counts};
use crate::endpoint::{Endpoint, MOST_DESCRIPTORS, Received};
use crate::message::{Instruction, Report, ReportText, SessionLimits};
use netchannel_configuration::{Publish, Tenant};
use netchannel_service::core_engine::{Command, Engine, ListenerChange, OwnListener, StackRequest};
use netchannel_service::link::Parts;
use netchannel_service::mailbox::Mailbox;
use netchannel_service::stack::{Stack, StackHandle};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Ports of which one message tells: a descriptor each.
const MOST_PORTS: usize = MOST_DESCRIPTORS - 1;

/// Messages of one session that are handled before the daemon's loop goes on.
const MOST_MESSAGES: usize = 64;
/// Links that wait for a stack that is being started, at most.
const MOST_WAITING: usize = 1024;
/// How long they wait: about as long as TCP tries a host that is being started.
const PATIENCE: Duration = Duration::from_secs(30);

/// A session that is ready to be used.
#[derive(Debug)]
pub struct NewSession {
    /// The name of the stack, as it is shown.
    pub stack: String,
    /// CoreEngine's end.
    pub socket: OwnedFd,
    /// What the stack may use.
    pub limits: SessionLimits,
    /// Whether its published ports are bound by the stack itself, which has another network namespace.
    pub binds_ports: bool,
}

/// A message of another thread.
#[derive(Debug)]
enum Change {
    Tenant(Arc<Tenant>),
    /// Published ports were bound or given up.
    Publish,
    Session(NewSession, Arc<Counters>),
}

/// Binds a published port, in the network namespace of the caller.
pub type Bind = fn(&Publish) -> Result<OwnedFd, Errno>;

/// Changes a tenant's stack while it runs, and tells what it has done; from any thread.
#[derive(Clone, Debug)]
pub struct Control(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    changes: Mailbox<Change>,
    /// The sockets of published ports. They outlive a stack, so that its restart refuses nobody.
    ports: Mutex<HashMap<Publish, OwnedFd>>,
    sessions: Mutex<Shown>,
}

/// What is shown of sessions.
#[derive(Debug, Default)]
struct Shown {
    past: Counts,
    /// With the name of the stack; the one that takes new connections is the last.
    present: Vec<(String, Arc<Counters>)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    fn new() -> Result<Self, Errno> {
        Ok(Self(Arc::new(Inner {
            changes: Mailbox::new()?,
            ports: Mutex::default(),
            sessions: Mutex::default(),
        })))
    }

    /// Another table of the tenant holds from now on. Ports that it publishes no more are given up. With `bind` the others are bound
    /// here, where they are not yet; without it, by the stack. Returns the ports that can not be bound.
    pub fn configure(&self, tenant: &Arc<Tenant>, bind: Option<Bind>) -> Vec<(Publish, Errno)> {
        let mut problems = Vec::new();
        let mut ports = lock(&self.0.ports);
        ports.retain(|port, socket| {
            let stays = tenant.publish.contains(port);
            if !stays {
                // The stack still has the socket, perhaps: the port may come at another address now.
                let _ = rustix::net::shutdown(socket, Shutdown::Both);
            }
            stays
        });
        let missing = tenant
            .publish
            .iter()
            .filter(|port| !ports.contains_key(port));
        let missing: Vec<Publish> = missing.copied().collect();
        for (port, bind) in missing.into_iter().zip(std::iter::repeat(bind)) {
            match bind.map(|bind| bind(&port)) {
                Some(Ok(socket)) => drop(ports.insert(port, socket)),
                Some(Err(errno)) => problems.push((port, errno)),
                None => {}
            }
        }
        drop(ports);
        self.0.changes.send(Change::Tenant(Arc::clone(tenant)));
        self.0.changes.send(Change::Publish);
        problems
    }

    /// Gives up all published ports: those of a stack in another network namespace take their place.
    pub fn give_up_ports(&self) {
        lock(&self.0.ports).clear();
    }

    /// New connections go over this session from now on. Those of the former one stay with it.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn use_session(&self, session: NewSession) -> Result<(), Errno> {
        let counters = Arc::new(Counters::new()?);
        let shown = (session.stack.clone(), Arc::clone(&counters));
        lock(&self.0.sessions).present.push(shown);
        self.0.changes.send(Change::Session(session, counters));
        Ok(())
    }

    /// What the tenant has moved, over all sessions.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let shown = lock(&self.0.sessions);
        let present = shown.present.iter().map(|(_, counters)| counters.now());
        present.fold(shown.past, Counts::plus)
    }

    /// The stacks that serve the tenant, and the connections of each; the one that takes new connections first.
    #[must_use]
    pub fn stacks(&self) -> Vec<(String, u64)> {
        let shown = lock(&self.0.sessions);
        let present = shown.present.iter().rev();
        present
            .map(|(name, counters)| (name.clone(), counters.now().open))
            .collect()
    }

    /// The published ports that are bound.
    #[must_use]
    pub fn bound_ports(&self) -> Vec<Publish> {
        lock(&self.0.ports).keys().copied().collect()
    }

    fn session_ended(&self, counters: &Arc<Counters>) {
        let mut shown = lock(&self.0.sessions);
        shown.present.retain(|(_, one)| !Arc::ptr_eq(one, counters));
        shown.past = shown.past.plus(counters.now().of_the_past());
    }
}

/// A session in use.
#[derive(Debug)]
struct Session {
    stack: String,
    endpoint: Endpoint,
    counters: Arc<Counters>,
    binds_ports: bool,
    /// Links to listeners of the tenant for which it has asked.
    links: HashSet<u64>,
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
    /// The listener that stands for all the world, once CoreEngine has given its number.
    gateway: Option<u32>,
    listeners: BTreeMap<u32, OwnListener>,
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
            &control.0.changes,
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
            gateway: None,
            listeners: BTreeMap::new(),
        })
    }

    /// To change it while it runs.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    fn on_change(&mut self, change: Change) {
        let mut sessions = self.handle.sessions.borrow_mut();
        match change {
            Change::Tenant(tenant) => {
                self.tenant = tenant;
                for session in &mut *sessions {
                    session.send(Instruction::Tenant(Box::new((*self.tenant).clone())));
                }
            }
            Change::Publish => {
                for session in sessions.iter_mut().filter(|one| !one.drains) {
                    publish(&self.control, &self.tenant, session);
                }
            }
            Change::Session(new, counters) => {
                for former in &mut *sessions {
                    if !std::mem::replace(&mut former.drains, true) {
                        former.send(Instruction::Keep(Vec::new()));
                        former.send(Instruction::Drain);
                    }
                }
                let memory = counters.memory().try_clone_to_owned();
                let data = EventData::new_u64(1);
                let watched = epoll::add(&self.watched, &new.socket, data, EventFlags::IN);
                let mut session = Session {
                    stack: new.stack,
                    endpoint: Endpoint::new(new.socket),
                    counters,
                    binds_ports: new.binds_ports,
                    links: HashSet::new(),
                    drains: false,
                    is_over: false,
                    waits_for_room: false,
                };
                let (Ok(memory), Ok(())) = (memory, watched) else {
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
                Some(Report::Request(request)) => {
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
        let ports = lock(&control.0.ports);
        let some = some.iter().filter_map(|port| {
            let socket = ports.get(port).and_then(|socket| socket.try_clone().ok());
            (session.binds_ports || socket.is_some()).then_some((*port, socket))
        });
        let some: Vec<_> = some.collect();
        drop(ports);
        session.send(Instruction::Publish(some));
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
        Ok(socket) => drop(lock(&control.0.ports).insert(port, socket)),
        Err(errno) => tracing::error!("{}", refusal(tenant, &port, errno)),
    }
}

/// Why a port is not published, and what to do, in a sentence.
#[must_use]
pub fn refusal(tenant: &Tenant, publish: &Publish, errno: Errno) -> String {
    let (name, host) = (&tenant.name, publish.host);
    let hint = match errno {
        Errno::ADDRINUSE => "another program has the port; stop it, or publish another one",
        Errno::ADDRNOTAVAIL => "this host has no such address; write one that it has, or 0.0.0.0",
        Errno::ACCESS => "a port below 1024 needs CAP_NET_BIND_SERVICE; publish another one",
        _ => "publish another one",
    };
    format!("tenant {name}: {host} is not published ({errno}): {hint}")
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
        for change in self.control.0.changes.take_some(MOST_MESSAGES) {
            self.on_change(change);
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

    fn connections(&self) -> u64 {
        self.control.counts().open
    }
}
