//! The loop: one thread that sleeps until an event occurs, and reads the clock.

use crate::admin::Commands;
use crate::bind::Bound;
use crate::configured::Configured;
use crate::metrics::Metrics;
use crate::options::{Launcher, Options, ServeError};
use crate::watch::{Subject, Watch, WatchEvent};
use netchannel_engine::directory::Directory;
use netchannel_engine::locals;
use netchannel_engine::region::Copies;
use netchannel_engine::{CoreEngine, StackId};
use netchannel_service::addresses::from_socket_address;
use netchannel_service::faults::Faults;
use netchannel_service::packet;
use netchannel_service::published_ports::PublishedPorts;
use netchannel_service::stack::Stack;
use netchannel_stack_channels::{ChannelsStack, random_number};
use netchannel_stack_local::LocalStack;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use half_open::HalfOpen;
use netchannel_scheduler::Settings;
use turns::Turns;

mod answers;
mod awaited;
mod commands;
mod half_open;
mod hosts;
mod meeting;
mod metrics;
mod programs;
mod stacks;
mod tenant_files;
mod tenants;
mod trust;
mod turns;
mod users;

use answers::Work;
use awaited::Awaited;
use tenants::Tenants;

/// Connections of one kind that are accepted in one pass.
const BATCH: usize = 32;

/// A daemon that is bound and ready to serve.
#[derive(Debug)]
pub struct Daemon {
    options: Options,
    core: CoreEngine,
    watch: Watch,
    bound: Bound,
    commands: Commands,
    /// Answers that take several turns, and buffers for their copies.
    works: VecDeque<Work>,
    copies: Copies,
    faults: Faults,
    addresses: Option<OwnedFd>,
    stop: (UnixStream, UnixStream),
    reload: (UnixStream, UnixStream),
    configured: Option<Configured>,
    /// The policies where there is no configuration. Only the copy policy is used then.
    unconfigured: Settings,
    /// The stack modules, in the order of their ids.
    stacks: Vec<Box<dyn Stack>>,
    ids: Vec<StackId>,
    /// Served beside the host's own programs, each by a CoreEngine of its own.
    tenants: Tenants,
    metrics: Option<Metrics>,
    /// How often the configuration was read again, and how often it had mistakes.
    reloads: [u64; 2],
    spare: Spare,
    half_open: HalfOpen,
    awaited: Awaited,
    started: Instant,
    idle_since: Option<Instant>,
    ending: bool,
}

/// Ends a daemon in good order, from any thread.
#[derive(Debug)]
pub struct Stopper(UnixStream);

impl Stopper {
    /// Requests the end.
    pub fn stop(&self) {
        // A full socket means that the end was requested already.
        let _ = rustix::net::send(&self.0, b"s", rustix::net::SendFlags::DONTWAIT);
    }

    /// The descriptor into which one byte requests the end, for signal handlers.
    #[must_use]
    pub fn into_inner(self) -> UnixStream {
        self.0
    }
}

impl Daemon {
    /// Takes the path and prepares everything: from now on connecting programs wait in the backlog.
    ///
    /// # Errors
    /// Why it can not serve.
    pub fn bind(options: Options) -> Result<Self, ServeError> {
        Self::bind_all(options, None, |_| Vec::new())
    }

    /// As [`Self::bind`], with a launcher, which starts stack processes.
    ///
    /// # Errors
    /// Why it can not serve.
    pub fn bind_with_launcher(options: Options, launcher: Launcher) -> Result<Self, ServeError> {
        Self::bind_all(options, Some(launcher), |_| Vec::new())
    }

    /// As [`Self::bind`], with further stack modules besides those of the options. They get the owners of ports.
    ///
    /// # Errors
    /// Why it can not serve.
    pub fn bind_with(
        options: Options,
        others: impl FnOnce(&PublishedPorts) -> Vec<Box<dyn Stack>>,
    ) -> Result<Self, ServeError> {
        Self::bind_all(options, None, others)
    }

    fn bind_all(
        mut options: Options,
        launcher: Option<Launcher>,
        others: impl FnOnce(&PublishedPorts) -> Vec<Box<dyn Stack>>,
    ) -> Result<Self, ServeError> {
        raise_descriptor_limit();
        let configured = options.configuration.take().map(Configured::new);
        let tenant = options.tenant.clone();
        if options.relay_local && configured.is_some() {
            return Err(ServeError::RelayAndHosts);
        }
        let directory = Directory::create().map_err(ServeError::Memory)?;
        let owners = directory.published_ports();
        let mut core = CoreEngine::new(options.limits, directory);
        core.number_from(random_number());
        if let Some(tenant) = &tenant {
            let own = tenant.addresses.iter();
            let own = own.map(|own| from_socket_address(SocketAddr::new(*own, 0)));
            core.serve_tenant(own.collect());
        }
        let watch = Watch::new().map_err(ServeError::Events)?;
        let bound = Bound::new(&options.socket, tenant.as_deref())?;
        let pair = || UnixStream::pair().map_err(|error| ServeError::Events(packet::errno(&error)));
        let mut stacks = others(&owners);
        if options.relay_local {
            let local = LocalStack::start(owners).map_err(ServeError::Events)?;
            stacks.push(Box::new(local));
        } else if let Some(configured) = &configured {
            let channels = ChannelsStack::start(configured.current(), owners);
            stacks.push(Box::new(channels?));
        }
        let ids: Vec<StackId> = stacks.iter().map(|one| core.add_stack(&**one)).collect();
        let (stop, reload) = (pair()?, pair()?);
        // It is read without waiting.
        let plain = reload.0.set_nonblocking(true);
        plain.map_err(|error| ServeError::Events(packet::errno(&error)))?;
        // The addresses of a tenant are those of its table.
        let addresses = match &tenant {
            Some(_) => None,
            None => locals::subscribe()
                .inspect_err(|error| tracing::warn!("changes of addresses are not seen ({error})"))
                .ok(),
        };
        let passed = packet::pass_credentials(&bound.attach);
        passed.map_err(ServeError::Events)?;
        let watched = || {
            watch.add(&bound.attach, Subject::Attach)?;
            watch.add(&bound.control, Subject::Control)?;
            watch.add(&stop.0, Subject::Stop)?;
            watch.add(&reload.0, Subject::Reload)?;
            for (number, stack) in stacks.iter().enumerate() {
                for (which, doorbell) in stack.doorbells().into_iter().enumerate() {
                    watch.add(doorbell, Subject::Stack(number, which))?;
                }
            }
            addresses
                .as_ref()
                .map_or(Ok(()), |one| watch.add(one, Subject::Addresses))
        };
        watched().map_err(ServeError::Events)?;
        let crossing = stacks.iter().find_map(|stack| stack.crossing());
        let tenants = Tenants::new(&options, launcher, crossing).map_err(ServeError::Events)?;
        let watched = watch.add(tenants.watched(), Subject::Stacks);
        watched.map_err(ServeError::Events)?;
        let now = Instant::now();
        let limits = &options.limits;
        let half_open = HalfOpen::new(limits.half_open_per_user, limits.half_open);
        let mut daemon = Self {
            tenants,
            options,
            core,
            watch,
            bound,
            commands: Commands::default(),
            works: VecDeque::new(),
            copies: Copies::default(),
            faults: Faults::default(),
            addresses,
            stop,
            reload,
            configured,
            unconfigured: Settings::default(),
            stacks,
            ids,
            metrics: None,
            reloads: [0; 2],
            spare: Spare {
                descriptor: spare_descriptor(),
                refused: Faults::default(),
            },
            half_open,
            awaited: Awaited::default(),
            started: now,
            idle_since: Some(now),
            ending: false,
        };
        daemon.refresh_addresses();
        daemon.publish_copy_rules();
        if let Some(configured) = &daemon.configured {
            let current = Arc::clone(configured.current());
            daemon
                .serve_metrics(current.metrics)
                .map_err(ServeError::Metrics)?;
            for sentence in
                daemon
                    .tenants
                    .configure(&current.tenants, &current.stacks, &current.peers)
            {
                tracing::error!("{sentence}");
            }
        }
        Ok(daemon)
    }

    /// A handle that ends the daemon.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn stopper(&self) -> Result<Stopper, ServeError> {
        let end = self.stop.1.try_clone();
        let end = end.map_err(|error| ServeError::Events(packet::errno(&error)))?;
        Ok(Stopper(end))
    }

    /// A socket on which a byte makes the daemon read its configuration again.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn reloader(&self) -> Result<UnixStream, ServeError> {
        let end = self.reload.1.try_clone();
        end.map_err(|error| ServeError::Events(packet::errno(&error)))
    }

    /// Serves until it is told to end, or was idle for long enough.
    ///
    /// # Errors
    /// When waiting for events fails.
    pub fn serve(mut self) -> Result<(), ServeError> {
        self.run()
    }

    fn run(&mut self) -> Result<(), ServeError> {
        while !self.ending {
            let patience = self.patience(Instant::now());
            if self.ending {
                break;
            }
            // Answers that take several turns continue, but events come first.
            let patience = if self.works.is_empty() {
                patience
            } else {
                Some(Duration::ZERO)
            };
            // There may be a thousand such threads, and most of their programs ask nothing for long.
            if patience.is_none() && self.options.tenant.is_some() {
                netchannel_service::thread_stack::give_back_unused();
            }
            let events = self.watch.wait(patience).map_err(ServeError::Events)?;
            let mut turns = Turns::default();
            for event in events {
                self.handle(event, &mut turns);
            }
            self.work();
        }
        self.core.directory_mut().end();
        if self.options.tenant.is_none() {
            tracing::info!("ended");
        }
        Ok(())
    }

    /// Handles what is overdue, and returns how long to sleep: without a limit where nothing has a deadline.
    fn patience(&mut self, now: Instant) -> Option<Duration> {
        for number in self.half_open.overdue(now) {
            self.detach(number, Some("a connection that never attached"));
        }
        let mut programs = self.core.programs().values();
        if !self.awaited.is_empty()
            || programs.any(netchannel_engine::program::Program::is_attached)
        {
            self.idle_since = None;
        } else {
            self.idle_since.get_or_insert(now);
        }
        // Programs of tenants are not counted here, and need the daemon all the same.
        let limit = self.options.idle_exit;
        let limit = limit.filter(|_| self.tenants.is_empty());
        let idle = limit.zip(self.idle_since);
        let idle = idle.and_then(|(limit, since)| since.checked_add(limit));
        if idle.is_some_and(|deadline| deadline <= now) {
            tracing::info!("no program for long enough");
            self.ending = true;
        }
        for sentence in self.core.quotas().log_messages(now) {
            tracing::warn!("{sentence}");
        }
        let attaching = self.half_open.deadline();
        let proofs = self.core.prove_exposed(now);
        let unheld = self.core.prove_unheld(now);
        let commands = self.commands.expire(now);
        let deposits = self.core.expire_deposits(now);
        let in_flight = self.core.in_flight_mut().expire(now);
        let stacks = self.run_stacks(now);
        let starts = self.tenants.deadline();
        if starts.is_some_and(|at| at <= now) {
            self.tenants.look(now);
        }
        let starts = self.tenants.deadline();
        let fetches = self.metrics.as_mut().and_then(|one| one.expire(now));
        [
            idle, attaching, proofs, unheld, commands, deposits, in_flight, stacks, starts, fetches,
        ]
        .into_iter()
        .flatten()
        .min()
        .map(|deadline| deadline.saturating_duration_since(now) + Duration::from_millis(1))
    }

    /// Gives each stack module its turn. Returns the time of the next turn.
    fn run_stacks(&mut self, now: Instant) -> Option<Instant> {
        self.tell_of_listeners();
        let mut next = None;
        for (stack, id) in self.stacks.iter_mut().zip(&self.ids) {
            stack.on_loop_pass(&mut self.core.for_stack(*id), now);
            next = next.into_iter().chain(stack.deadline(now)).min();
        }
        next
    }

    /// Tells the stack modules which listeners have come, changed or gone.
    fn tell_of_listeners(&mut self) {
        for one in self.core.take_changes() {
            for stack in &mut self.stacks {
                stack.on_listener(one);
            }
        }
    }

    fn handle(&mut self, event: WatchEvent, turns: &mut Turns) {
        match event.subject {
            Subject::Attach => self.accept_programs(),
            Subject::Control => self.accept_commands(),
            Subject::Stop => self.ending = true,
            Subject::Reload => {
                while let Ok(1..) = std::io::Read::read(&mut &self.reload.0, &mut [0; 64]) {}
                self.reload_on_signal();
            }
            Subject::Addresses => {
                if let Some(subscription) = &self.addresses {
                    locals::drain(subscription);
                }
                self.refresh_addresses();
            }
            Subject::Stacks => self.tenants.look(Instant::now()),
            Subject::Metrics => self.accept_fetches(),
            Subject::Fetch(number) => self.on_fetch(number, event),
            Subject::Stack(number, which) => {
                if let (Some(stack), Some(id)) = (self.stacks.get_mut(number), self.ids.get(number))
                {
                    stack.on_doorbell(which, &mut self.core.for_stack(*id), Instant::now());
                }
            }
            Subject::Program(number) => self.on_program(number, turns),
            Subject::Command(number) => self.on_command(number, event),
            Subject::Awaited(process) => self.awaited.remove(process),
        }
    }

    fn refresh_addresses(&mut self) {
        if self.options.tenant.is_some() {
            return;
        }
        match locals::list() {
            Ok(locals) => {
                netchannel_service::addresses::remember(&locals);
                for stack in &mut self.stacks {
                    stack.on_addresses(&locals);
                }
                self.core.directory_mut().set_locals(locals);
            }
            Err(error) => {
                tracing::warn!(
                    "addresses of this host are unknown, only loopback is local ({error})"
                );
            }
        }
    }
}

/// Accepts a connection. Without a free descriptor the connection is accepted with the spare one and closed: left in
/// the backlog it would wake the daemon again and again.
fn accept(listener: impl AsFd, spare: &mut Spare) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        match rustix::net::accept_with(&listener, flags) {
            Ok(socket) => return Some(socket),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(Errno::MFILE | Errno::NFILE) => {
                spare.descriptor.take()?;
                drop(rustix::net::accept_with(&listener, flags));
                spare.descriptor = spare_descriptor();
                if let Some(suppressed) = spare.refused.count(Instant::now()) {
                    tracing::warn!(
                        suppressed,
                        "no descriptor is left; a connection was refused"
                    );
                }
            }
            Err(_) => return None,
        }
    }
}

/// The spare descriptor of [`accept`], and how often it was used.
#[derive(Debug)]
struct Spare {
    descriptor: Option<OwnedFd>,
    refused: Faults,
}

fn spare_descriptor() -> Option<OwnedFd> {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok()
}

/// The user and process that made a connection. Permissions depend on the sender of each message instead
/// ([`netchannel_service::packet::Sender`]).
fn peer_credentials(socket: impl AsFd) -> Option<(u32, u32)> {
    let peer = rustix::net::sockopt::socket_peercred(socket).ok()?;
    let process = peer.pid.as_raw_nonzero().get().unsigned_abs();
    Some((peer.uid.as_raw(), process))
}

/// Raises the limit, since every link and every program needs descriptors.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("cannot raise the limit of descriptors ({error})");
    }
}
