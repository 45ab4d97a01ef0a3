//! The tenants of a daemon. Each has a CoreEngine of its own, with its own programs, listeners, links, ports, quotas and directory, on a
//! thread of its own: nothing that one does is seen, or waited for, by another.
//!
//! ```text
//!  daemon's thread: Tenants --start, stop--> tenant's thread: Daemon (tenant's attach socket, CoreEngine, SessionStack)
//!                      |  |                                                                              ^
//!                      |  +--Control: tables, published ports, sessions--------------------------------- + sessions
//!                      +--Stacks: processes, and a thread of its own for a tenant that names none -------+
//! ```

use super::stacks::Stacks;
use super::tenant_files::Files;
use super::{Daemon, Stopper, meeting, trust};
use crate::options::{Launcher, Options, ServeError};
use netchannel_configuration::{Peer, StackTable, Tenant};
use netchannel_control::tenants::{FormerStack, OverChannels, TenantView};
use netchannel_engine::limits::Limits;
use netchannel_service::addresses::from_socket_address;
use netchannel_service::memory::half_of_the_hosts;
use netchannel_service::neighbour::{Neighbour, Trusted};
use netchannel_service::stack::Crossing;
use netchannel_stack_kernel::KernelThread;
use netchannel_stack_process::control::{Bind, Control, NamedHost, NewSession, refusal};
use netchannel_stack_process::message::SessionLimits;
use netchannel_stack_process::session::SessionStack;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

/// Descriptors that a tenant has however many there are: as many as CoreEngine keeps free, and as many for use.
const LEAST_DESCRIPTORS: usize = 256;
/// Bytes that programs of a tenant have however many there are.
const LEAST_MEMORY: u64 = 64 << 20;

/// A tenant that is served.
#[derive(Debug)]
struct Served {
    tenant: Arc<Tenant>,
    socket: PathBuf,
    control: Control,
    /// The tenant as those that trust it see it, and those.
    neighbour: Arc<Neighbour>,
    neighbours: Vec<Arc<Neighbour>>,
    /// The stack that takes new connections; none until that of its table is attached.
    stack: Option<String>,
    /// Stacks of its own, within the daemon, which it shares with tenants that it may meet; the last is in use, if the tenant has no other.
    own: Vec<Arc<KernelThread>>,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

/// The name of a stack of the tenant's own.
const OWN: &str = "kernel";

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Served {
    /// The stack of its own that takes its new connections.
    fn own_in_use(&self) -> Option<&Arc<KernelThread>> {
        let is_used = self.stack.as_deref() == Some(OWN);
        self.own.last().filter(|_| is_used)
    }

    /// As tenants see it that trust it.
    fn as_seen(&self) -> Trusted {
        let addresses = self.tenant.addresses.iter();
        let addresses = addresses.map(|one| from_socket_address(SocketAddr::new(*one, 0)));
        Trusted {
            shows: Arc::clone(&self.neighbour),
            addresses: addresses.collect(),
        }
    }

    fn stop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has said so.
            let _ = thread.join();
        }
    }

    /// A daemon that ends leaves folders to the next one, for containers that have mounted them; a tenant that is no more takes its own along.
    fn end(&mut self, files: &mut Files, is_last: bool) {
        self.stop();
        files.remove(&self.socket);
        if is_last {
            files.remove_copies();
        }
        if self.tenant.socket.is_none() {
            // The folders that were made for it, where nothing else lies in them.
            let mut folders = self.socket.ancestors().skip(1).take(2);
            let _ = folders.try_for_each(std::fs::remove_dir);
        }
    }
}

/// All of them.
#[derive(Debug)]
pub struct Tenants {
    /// Beside it the sockets of tenants lie whose tables name none.
    daemon_socket: PathBuf,
    limits: Limits,
    version: String,
    stacks: Stacks,
    files: Files,
    /// The channels to other hosts, if there are any.
    crossing: Option<Arc<dyn Crossing>>,
    served: Vec<Served>,
}

impl Tenants {
    /// None yet. Their sizes and quotas are those of the daemon, for each tenant. Their connections to other hosts may go by `crossing`.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new(
        options: &Options,
        launcher: Option<Launcher>,
        crossing: Option<Arc<dyn Crossing>>,
    ) -> Result<Self, Errno> {
        Ok(Self {
            daemon_socket: options.socket.clone(),
            limits: options.limits,
            version: options.version.clone(),
            stacks: Stacks::new(&options.socket, launcher)?,
            files: Files::new(options.library.as_deref(), &options.socket),
            crossing,
            served: Vec::new(),
        })
    }

    /// A descriptor that is readable when something has happened to a stack process.
    pub fn watched(&self) -> BorrowedFd<'_> {
        self.stacks.watched()
    }

    /// When a stack process is to be started.
    pub fn deadline(&self) -> Option<Instant> {
        self.stacks.deadline()
    }

    /// Something has happened to a stack process, or one is to be started. A stack that is attached serves its tenants from now on.
    pub fn look(&mut self, now: Instant) {
        for name in self.stacks.look(now) {
            for place in 0..self.served.len() {
                let served = self.served.get(place);
                if served.is_some_and(|one| one.tenant.stack.as_ref() == Some(&name)) {
                    self.give_stack(place, true);
                }
            }
        }
    }

    /// Serves these tenants and no others, with these stack processes. Those that are served already go on: with other caps, other ports and another reach, where
    /// their tables say so. Returns a sentence for each thing that can not be done.
    pub fn configure(
        &mut self,
        tenants: &[Tenant],
        stacks: &[StackTable],
        peers: &[Peer],
    ) -> Vec<String> {
        let mut problems = self.stacks.configure(stacks);
        let files = &mut self.files;
        self.served.retain_mut(|one| {
            let now = tenants.iter().find(|now| now.name == one.tenant.name);
            let stays = now.is_some_and(|now| is_same_place(&one.tenant, now));
            if !stays {
                one.end(files, tenants.is_empty());
                tracing::info!("tenant {} is served no more", one.tenant.name);
            }
            stays
        });
        for tenant in tenants {
            let known = self.served.iter_mut();
            match known.into_iter().find(|one| one.tenant.name == tenant.name) {
                Some(known) if *known.tenant == *tenant => {}
                Some(known) => known.tenant = Arc::new(tenant.clone()),
                None => match self.start(tenant, tenants.len()) {
                    Ok(served) => {
                        let shown = served.socket.display();
                        tracing::info!("tenant {} is served at {shown}", tenant.name);
                        let placed = self.files.place(&served.socket);
                        self.served.push(served);
                        problems.extend(
                            placed
                                .err()
                                .map(|sentence| format!("tenant {}: {sentence}", tenant.name)),
                        );
                    }
                    Err(sentence) => problems.push(sentence),
                },
            }
        }
        let hosts = peers.iter();
        let hosts = hosts.map(|peer| (peer.name.clone(), peer.prefixes.clone()));
        let hosts: Arc<[NamedHost]> = hosts.collect();
        for served in &self.served {
            served.control.name_hosts(Arc::clone(&hosts));
        }
        // Once all tables are known: they say who has a stack together.
        for place in 0..self.served.len() {
            problems.extend(self.apply(place));
            problems.extend(self.give_stack(place, false));
        }
        self.trust();
        problems
    }

    /// Tells each tenant whom it trusts, where that has changed.
    fn trust(&mut self) {
        let tenants: Vec<&Tenant> = self.served.iter().map(|one| &*one.tenant).collect();
        let all: Vec<Vec<usize>> = (0..tenants.len())
            .map(|place| trust::trusted(&tenants, place))
            .collect();
        // What each shows comes from its own thread: the others look at it from then on.
        for (one, trusted) in self.served.iter().zip(&all) {
            let others = trusted.iter().filter_map(|place| self.served.get(*place));
            one.neighbour
                .tell(others.map(|other| other.control.onlooker()).collect());
        }
        for (place, trusted) in all.iter().enumerate() {
            let others = trusted.iter().filter_map(|place| self.served.get(*place));
            let others: Vec<Trusted> = others.map(Served::as_seen).collect();
            let Some(served) = self.served.get_mut(place) else {
                return;
            };
            let now: Vec<_> = others.iter().map(|one| Arc::clone(&one.shows)).collect();
            let stays = now
                .iter()
                .map(Arc::as_ptr)
                .eq(served.neighbours.iter().map(Arc::as_ptr));
            if !stays {
                served.neighbours = now;
                served.control.trust(Arc::clone(&served.neighbour), others);
            }
        }
    }

    /// The tenant's table holds from now on.
    fn apply(&mut self, place: usize) -> Vec<String> {
        let Some(served) = self.served.get(place) else {
            return Vec::new();
        };
        let namespace = |name: &str| {
            self.stacks
                .table(name)
                .and_then(|one| one.namespace.as_ref())
        };
        let wanted = served.tenant.stack.as_deref().and_then(namespace);
        let present = served.stack.as_deref().and_then(namespace);
        if wanted != present {
            // Ports of another network namespace.
            served.control.give_up_ports();
        }
        let bind: Option<Bind> = wanted.is_none().then_some(netchannel_stack_kernel::BIND);
        let problems = served.control.configure(&served.tenant, bind);
        let told = problems.into_iter();
        told.map(|(port, errno)| refusal(&served.tenant, &port, errno))
            .collect()
    }

    /// The stack of the tenant's table takes its new connections, as soon as it is there; a process that was started `anew` even where the tenant had it before.
    fn give_stack(&mut self, place: usize, anew: bool) -> Option<String> {
        let limits = self.share(self.served.len());
        let common = self.common_stack(place);
        let served = self.served.get_mut(place)?;
        let wanted = served
            .tenant
            .stack
            .clone()
            .unwrap_or_else(|| OWN.to_owned());
        let is_common = match (&common, served.own_in_use()) {
            (Some(common), Some(own)) => Arc::ptr_eq(common, own),
            (None, Some(_)) => false,
            (_, None) => true,
        };
        if served.stack.as_ref() == Some(&wanted) && is_common && !anew {
            return None;
        }
        let name = &served.tenant.name;
        let (socket, binds_ports) = if served.tenant.stack.is_none() {
            let session = match common {
                Some(common) => Ok(common),
                None => KernelThread::start(name).map(Arc::new),
            }
            .and_then(|own| Ok((own.session()?, own)));
            match session {
                Ok((socket, own)) => {
                    served.own.push(own);
                    (socket, false)
                }
                Err(errno) => return Some(format!("tenant {name} has no stack ({errno})")),
            }
        } else {
            match self.stacks.session(&wanted) {
                Some(session) => session,
                None => {
                    // It is told when it is attached.
                    let absence = self.stacks.absence(&wanted)?;
                    tracing::info!("tenant {name} waits: {absence}");
                    return None;
                }
            }
        };
        let limits = SessionLimits {
            anchors: limits.descriptors / 2,
            sockets: limits.descriptors / 4,
        };
        let session = NewSession {
            stack: wanted.clone(),
            socket,
            limits,
            binds_ports,
        };
        match served.control.use_session(session) {
            Ok(()) => {
                if let Some(former) = served
                    .stack
                    .replace(wanted.clone())
                    .filter(|one| *one != wanted)
                {
                    tracing::info!(
                        "tenant {name}: new connections go to stack {wanted} instead of {former}"
                    );
                }
                None
            }
            Err(errno) => Some(format!("tenant {name} has no stack ({errno})")),
        }
    }

    /// The stack within the daemon that serves a tenant, and those that it may meet, and nobody else; none where one is to be started.
    fn common_stack(&self, place: usize) -> Option<Arc<KernelThread>> {
        let tenants: Vec<&Tenant> = self.served.iter().map(|one| &*one.tenant).collect();
        let group = meeting::group(&tenants, place);
        let candidates = group.iter().filter_map(|place| self.served.get(*place));
        let mut candidates = candidates.filter_map(Served::own_in_use);
        let is_strangers = |stack: &&Arc<KernelThread>| {
            let numbered = self.served.iter().enumerate();
            let mut strangers = numbered.filter(|(place, _)| !group.contains(place));
            strangers.any(|(_, one)| one.own_in_use().is_some_and(|own| Arc::ptr_eq(own, stack)))
        };
        candidates.find(|stack| !is_strangers(stack)).cloned()
    }

    fn start(&self, tenant: &Tenant, count: usize) -> Result<Served, String> {
        let name = &tenant.name;
        let fail = |error: String| format!("tenant {name} is not served: {error}");
        let socket = socket_of(tenant, &self.daemon_socket);
        let tenant = Arc::new(tenant.clone());
        let options = Options {
            socket: socket.clone(),
            idle_exit: None,
            limits: self.share(count),
            version: self.version.clone(),
            relay_local: false,
            library: None,
            configuration: None,
            tenant: Some(Arc::clone(&tenant)),
        };
        let crossing = self.crossing.clone();
        let (sender, receiver) = mpsc::channel();
        let thread_name: String = format!("tenant-{name}").chars().take(15).collect();
        let thread = std::thread::Builder::new()
            .name(thread_name)
            .spawn(move || {
                let _stack = netchannel_service::signal_stack::AlternateStack::new();
                match bind(options, crossing) {
                    Ok((mut daemon, ready)) => {
                        let heard = sender.send(Ok(ready));
                        if heard.is_ok()
                            && let Err(error) = daemon.run()
                        {
                            tracing::error!("a tenant is served no more: {error}");
                        }
                    }
                    Err(error) => drop(sender.send(Err(error.to_string()))),
                }
            });
        let thread = thread.map_err(|error| fail(format!("no thread can be had ({error})")))?;
        let ended = || fail("its thread has ended".to_owned());
        let ready = receiver.recv().map_err(|_| ended())?.map_err(fail)?;
        Ok(Served {
            tenant,
            socket,
            neighbour: ready.control.neighbour(),
            neighbours: Vec::new(),
            control: ready.control,
            stack: None,
            own: Vec::new(),
            stopper: ready.stopper,
            thread: Some(thread),
        })
    }

    /// The limits of one of `count` tenants. What the process has as a whole is shared out, with one share for the host's own programs, so
    /// that no tenant can use up what others need.
    fn share(&self, count: usize) -> Limits {
        let shares = count + 1;
        let open = getrlimit(Resource::Nofile).current;
        let open = open.map_or(usize::MAX, |open| {
            usize::try_from(open).unwrap_or(usize::MAX)
        });
        let memory = match self.limits.memory_per_user {
            0 => half_of_the_hosts(),
            bytes => bytes,
        };
        Limits {
            descriptors: (open / shares).max(LEAST_DESCRIPTORS),
            memory_per_user: (memory / u64::try_from(shares).unwrap_or(u64::MAX)).max(LEAST_MEMORY),
            ..self.limits
        }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.served.is_empty()
    }

    /// What is shown of them.
    pub fn show(&mut self) -> Vec<TenantView> {
        for served in &mut self.served {
            let sessions = served.control.stacks();
            let own = sessions.iter().filter(|(name, _)| name == OWN).count();
            // Those whose last connection has ended.
            let ended = served.own.len().saturating_sub(own);
            served.own.drain(..ended);
        }
        self.served.iter().map(show).collect()
    }
}

/// What another thread needs of a tenant's.
struct Ready {
    stopper: Stopper,
    control: Control,
}

/// On the tenant's thread, whose stack is to hold little while it sleeps.
#[inline(never)]
fn bind(
    options: Options,
    crossing: Option<Arc<dyn Crossing>>,
) -> Result<(Box<Daemon>, Ready), ServeError> {
    let tenant = options.tenant.clone().ok_or(ServeError::NoTenant)?;
    let mut stack = SessionStack::new(tenant).map_err(ServeError::Events)?;
    if let Some(crossing) = crossing {
        // Half of the tenant's descriptors are for anchors of its stack, and a quarter for sockets.
        stack = stack.with_crossing(crossing, options.limits.descriptors / 8);
    }
    let control = stack.control();
    let daemon = Daemon::bind_with(options, |_| vec![Box::new(stack)])?;
    let stopper = daemon.stopper()?;
    Ok((Box::new(daemon), Ready { stopper, control }))
}

/// Where the programs of a tenant attach.
fn socket_of(tenant: &Tenant, daemon_socket: &Path) -> PathBuf {
    let folder = daemon_socket.parent().unwrap_or(Path::new("."));
    let usual = || folder.join("tenants").join(&tenant.name).join("nc.sock");
    tenant.socket.clone().unwrap_or_else(usual)
}

/// Whether a table says the same of what can not change while programs are attached.
fn is_same_place(old: &Tenant, new: &Tenant) -> bool {
    let place = |one: &Tenant| {
        (
            one.socket.clone(),
            one.user,
            one.mode,
            one.addresses.clone(),
        )
    };
    place(old) == place(new)
}

fn show(served: &Served) -> TenantView {
    let (tenant, counts) = (&served.tenant, served.control.counts());
    let rate = |rate: Option<netchannel_scheduler::Rate>| rate.map(|rate| rate.per_second());
    TenantView {
        name: tenant.name.clone(),
        socket: served.socket.display().to_string(),
        addresses: strings(&tenant.addresses),
        reach: strings(&tenant.reach),
        publish: strings(&tenant.publish),
        stack: served
            .stack
            .clone()
            .unwrap_or_else(|| "none yet".to_owned()),
        former_stacks: former_stacks(served),
        weight: tenant.weight,
        congestion_control: tenant.congestion_control.clone(),
        rate_in: rate(tenant.rate_in),
        rate_out: rate(tenant.rate_out),
        most_connections: u64::from(tenant.connections),
        connections: counts.open,
        dialed: counts.dialed,
        accepted: counts.accepted,
        denied: counts.denied,
        over_limit: counts.over_limit,
        bytes_in: counts.bytes_in,
        bytes_out: counts.bytes_out,
        turns: counts.turns,
        processor_nanoseconds: counts.nanoseconds,
        destinations: strings(&tenant.destinations),
        channels: OverChannels {
            connections: counts.open_over_channels,
            dialed: counts.dialed_over_channels,
            accepted: counts.accepted_over_channels,
            fell_back: counts.fell_back,
            bytes_in: counts.bytes_in_over_channels,
            bytes_out: counts.bytes_out_over_channels,
        },
    }
}

/// Stacks on which connections of the tenant go on, that began before it had another one.
fn former_stacks(served: &Served) -> Vec<FormerStack> {
    let mut sessions = served.control.stacks().into_iter();
    let present = sessions.next();
    drop(present);
    sessions
        .map(|(name, connections)| FormerStack { name, connections })
        .collect()
}

fn strings<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
