//! The loop: one thread that sleeps until something happens, and knows the time.

use crate::admin::{Commands, Step};
use crate::bind::Bound;
use crate::core::{CoreEngine, Refusal};
use crate::faults::Faults;
use crate::locals;
use crate::options::{Options, ServeError};
use crate::packet::{self, Received};
use crate::program::Credentials;
use crate::watch::{Happening, Subject, Watch};
use netchannel_abi::message::{Message, Operation};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

mod answers;

/// Messages of one program handled before others have their turn.
const BATCH: usize = 32;
/// How long a connection may stay without attaching.
const HALF_OPEN: Duration = Duration::from_secs(10);

/// A daemon that is bound and ready to serve.
#[derive(Debug)]
pub struct Daemon {
    options: Options,
    core: CoreEngine,
    watch: Watch,
    bound: Bound,
    commands: Commands,
    faults: Faults,
    addresses: Option<OwnedFd>,
    stop: (UnixStream, UnixStream),
    spare: Option<OwnedFd>,
    half_open: HashMap<u32, Instant>,
    started: Instant,
    idle_since: Option<Instant>,
    ending: bool,
}

/// Makes a daemon end in good order, from anywhere.
#[derive(Debug)]
pub struct Stopper(UnixStream);

impl Stopper {
    /// Asks for the end.
    pub fn stop(&self) {
        // A full socket means that it was asked already.
        let _ = rustix::net::send(&self.0, b"s", rustix::net::SendFlags::DONTWAIT);
    }

    /// The descriptor into which one byte asks for the end, for signal handlers.
    #[must_use]
    pub fn into_inner(self) -> UnixStream {
        self.0
    }
}

impl Daemon {
    /// Takes the path and makes everything ready, so that whoever connects from now on is served.
    ///
    /// # Errors
    /// Why it can not serve.
    pub fn bind(options: Options) -> Result<Self, ServeError> {
        raise_descriptor_limit();
        let core = CoreEngine::new(options.limits).map_err(ServeError::Memory)?;
        let watch = Watch::new().map_err(ServeError::Events)?;
        let bound = Bound::new(&options.socket)?;
        let stop = UnixStream::pair().map_err(|error| ServeError::Events(from_io(&error)))?;
        let addresses = locals::subscribe()
            .inspect_err(|error| tracing::warn!("changes of addresses are not seen ({error})"))
            .ok();
        let watched = || {
            watch.add(&bound.attach, Subject::Attach)?;
            watch.add(&bound.control, Subject::Control)?;
            watch.add(&stop.0, Subject::Stop)?;
            addresses
                .as_ref()
                .map_or(Ok(()), |one| watch.add(one, Subject::Addresses))
        };
        watched().map_err(ServeError::Events)?;
        let now = Instant::now();
        let mut daemon = Self {
            options,
            core,
            watch,
            bound,
            commands: Commands::default(),
            faults: Faults::default(),
            addresses,
            stop,
            spare: spare(),
            half_open: HashMap::new(),
            started: now,
            idle_since: Some(now),
            ending: false,
        };
        daemon.refresh_addresses();
        Ok(daemon)
    }

    /// Something with which to end it.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn stopper(&self) -> Result<Stopper, ServeError> {
        let end = self.stop.1.try_clone();
        let end = end.map_err(|error| ServeError::Events(from_io(&error)))?;
        Ok(Stopper(end))
    }

    /// Serves until it is told to end, or has been idle long enough.
    ///
    /// # Errors
    /// When waiting for events fails.
    pub fn serve(mut self) -> Result<(), ServeError> {
        while !self.ending {
            let patience = self.patience(Instant::now());
            if self.ending {
                break;
            }
            let happenings = self.watch.wait(patience).map_err(ServeError::Events)?;
            for happening in happenings {
                self.handle(happening);
            }
        }
        self.core.directory_mut().end();
        tracing::info!("ended");
        Ok(())
    }

    /// Drops what is overdue, and tells how long to sleep: for ever where nothing has a deadline.
    fn patience(&mut self, now: Instant) -> Option<Duration> {
        let late = |since: &Instant| now.duration_since(*since) >= HALF_OPEN;
        let overdue: Vec<u32> = self
            .half_open
            .iter()
            .filter(|(_, since)| late(since))
            .map(|(number, _)| *number)
            .collect();
        for number in overdue {
            self.detach(number, Some("a connection that never attached"));
        }
        let programs = self.core.programs().values();
        if programs.clone().any(crate::program::Program::is_attached) {
            self.idle_since = None;
        } else {
            self.idle_since.get_or_insert(now);
        }
        let idle = self.options.idle_exit.zip(self.idle_since);
        let idle = idle.and_then(|(limit, since)| since.checked_add(limit));
        if idle.is_some_and(|deadline| deadline <= now) {
            tracing::info!("no program for long enough");
            self.ending = true;
        }
        let attaching = self
            .half_open
            .values()
            .min()
            .map(|since| *since + HALF_OPEN);
        let commands = self.commands.expire(now);
        let deposits = self.core.deposits_mut().expire(now);
        [idle, attaching, commands, deposits]
            .into_iter()
            .flatten()
            .min()
            .map(|deadline| deadline.saturating_duration_since(now) + Duration::from_millis(1))
    }

    fn handle(&mut self, happening: Happening) {
        match happening.subject {
            Subject::Attach => self.accept_programs(),
            Subject::Control => self.accept_commands(),
            Subject::Stop => self.ending = true,
            Subject::Addresses => {
                if let Some(subscription) = &self.addresses {
                    locals::drain(subscription);
                }
                self.refresh_addresses();
            }
            Subject::Program(number) => self.on_program(number),
            Subject::Command(number) => self.on_command(number, happening),
        }
    }

    fn refresh_addresses(&mut self) {
        match locals::list() {
            Ok(locals) => self.core.directory_mut().set_locals(locals),
            Err(error) => {
                tracing::warn!(
                    "addresses of this host are unknown, only loopback is local ({error})"
                );
            }
        }
    }

    fn accept_programs(&mut self) {
        while let Some(socket) = accept(&self.bound.attach, &mut self.spare) {
            let Some(credentials) = credentials(&socket) else {
                continue;
            };
            // Whoever holds connections open without attaching must not lock the others out.
            if self.half_open.len() >= self.options.limits.half_open {
                let oldest = self.half_open.iter().min_by_key(|(_, since)| **since);
                let oldest = oldest.map(|(number, _)| *number);
                if let Some(oldest) = oldest {
                    self.detach(oldest, Some("too many connections that did not attach"));
                }
            }
            let Ok(number) = self.core.on_connected(socket, credentials) else {
                self.fault("too many programs of one user");
                continue;
            };
            self.half_open.insert(number, Instant::now());
            self.watch_program(number);
        }
    }

    fn watch_program(&mut self, number: u32) {
        let socket = self.core.programs().get(&number).map(|one| &one.socket);
        let socket = socket.map(Rc::clone);
        let watched = socket.map(|socket| self.watch.add(&*socket, Subject::Program(number)));
        if let Some(Err(errno)) = watched {
            tracing::warn!("cannot watch a program ({errno})");
            self.detach(number, None);
        }
    }

    fn on_program(&mut self, number: u32) {
        for _ in 0..BATCH {
            let Some(program) = self.core.programs().get(&number) else {
                return;
            };
            let socket = Rc::clone(&program.socket);
            match packet::receive(&*socket) {
                Received::Nothing => return,
                Received::Ended => return self.detach(number, None),
                Received::Garbage => return self.detach(number, Some("garbage")),
                Received::Message {
                    message,
                    descriptors,
                    lost,
                } => {
                    // Without word of changes the addresses are looked at when they may matter.
                    if self.addresses.is_none() && message.operation == Operation::Listen as u32 {
                        self.refresh_addresses();
                    }
                    let result = self
                        .core
                        .handle_request(number, &message, descriptors, lost);
                    if let Some(fault) = self.reply(number, &socket, &message, result) {
                        return self.detach(number, Some(fault));
                    }
                }
            }
        }
    }

    /// Sends the answer to a request. Returns the fault for which the program is to be detached.
    fn reply(
        &mut self,
        number: u32,
        socket: &OwnedFd,
        request: &Message,
        result: Result<crate::core::Answer, Refusal>,
    ) -> Option<&'static str> {
        let mut answer = Message {
            status: 0,
            words: [0; 14],
            ..*request
        };
        let mut descriptors = Vec::new();
        match result {
            Ok(done) => {
                if let Some(adopted) = done.adopted {
                    self.watch_program(adopted);
                }
                if request.operation == Operation::Attach as u32 {
                    self.half_open.remove(&number);
                }
                answer.words = done.words;
                descriptors = done.descriptors;
            }
            Err(Refusal::Errno(errno)) => answer.status = errno.raw_os_error().unsigned_abs(),
            Err(Refusal::Fault(fault)) => return Some(fault),
        }
        match packet::send(socket, &answer, &descriptors) {
            Ok(()) => None,
            Err(Errno::AGAIN) => Some("it does not read its answers"),
            // It is gone, or descriptors in flight are used up: either way it can not go on.
            Err(Errno::PIPE | Errno::CONNRESET) => Some("gone before its answer"),
            Err(_) => Some("its answer could not be sent"),
        }
    }

    /// Lets go of a program, for a fault of its own or because it hung up.
    fn detach(&mut self, number: u32, fault: Option<&'static str>) {
        if let Some(fault) = fault {
            let program = self.core.programs().get(&number);
            let (process, name) =
                program.map_or((0, String::new()), |one| (one.process, one.name.clone()));
            self.fault_of(fault, process, &name);
        }
        if let Some(program) = self.core.programs().get(&number) {
            // Its socket may live on in a forked child of the daemon's peer: epoll must not.
            self.watch.remove(&*program.socket);
            let _ = rustix::net::shutdown(&*program.socket, rustix::net::Shutdown::Both);
        }
        self.half_open.remove(&number);
        self.core.on_gone(number, Instant::now());
    }

    fn fault(&mut self, fault: &'static str) {
        self.fault_of(fault, 0, "");
    }

    fn fault_of(&mut self, fault: &'static str, process: u32, name: &str) {
        if let Some(unsaid) = self.faults.count(Instant::now()) {
            tracing::warn!(process, name, unsaid, "a program was detached: {fault}");
        }
    }

    fn accept_commands(&mut self) {
        while let Some(socket) = accept(&self.bound.control, &mut self.spare) {
            let Some(credentials) = credentials(&socket) else {
                continue;
            };
            let now = Instant::now();
            let number = self.commands.open(socket, credentials.user, now);
            let added = self
                .commands
                .get(number)
                .map(|command| self.watch.add(&command.socket, Subject::Command(number)));
            if !matches!(added, Some(Ok(()))) {
                self.commands.close(number);
            }
        }
    }

    fn on_command(&mut self, number: u32, happening: Happening) {
        let Some(command) = self.commands.get(number) else {
            return;
        };
        let user = command.user;
        let mut step = if happening.writable {
            command.on_writable(Some(Instant::now()))
        } else if happening.readable {
            command.on_readable()
        } else {
            return;
        };
        if let Step::Answer(request) = step {
            let response = self.respond(request, user);
            let Some(command) = self.commands.get(number) else {
                return;
            };
            step = command.answer(&response);
        }
        match step {
            Step::AwaitRequest | Step::Answer(_) => {}
            Step::Close => self.commands.close(number),
            Step::AwaitRoom => {
                let waits = self.commands.get(number).is_some_and(|command| {
                    let subject = Subject::Command(number);
                    self.watch.await_room(&command.socket, subject).is_ok()
                });
                if !waits {
                    self.commands.close(number);
                }
            }
        }
    }
}

/// Takes a connection. Without a free descriptor the connection is taken with the spare one and
/// closed: left in the queue it would wake the daemon for ever.
fn accept(listener: &OwnedFd, spare_descriptor: &mut Option<OwnedFd>) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        match rustix::net::accept_with(listener, flags) {
            Ok(socket) => return Some(socket),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(Errno::MFILE | Errno::NFILE) => {
                spare_descriptor.take()?;
                drop(rustix::net::accept_with(listener, flags));
                *spare_descriptor = spare();
                tracing::warn!("no descriptor is left; a connection was refused");
            }
            Err(_) => return None,
        }
    }
}

fn spare() -> Option<OwnedFd> {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok()
}

fn credentials(socket: impl AsFd) -> Option<Credentials> {
    let peer = rustix::net::sockopt::socket_peercred(socket).ok()?;
    Some(Credentials {
        process: peer.pid.as_raw_nonzero().get().unsigned_abs(),
        user: peer.uid.as_raw(),
    })
}

/// Every link and every program costs descriptors.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("cannot raise the limit of descriptors ({error})");
    }
}

fn from_io(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
