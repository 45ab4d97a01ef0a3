//! The tenants of a daemon. Each has a CoreEngine of its own, with its own programs, listeners, links, ports, quotas and directory, on a
//! thread of its own: nothing that one does is seen, or waited for, by another.
//!
//! ```text
//!  daemon's thread: Tenants --start, stop--> tenant's thread: Daemon (tenant's attach socket, CoreEngine)
//!                      |                          |
//!                      +--Control: reach, caps--> stack-kernel's worker
//! ```

use super::{Daemon, Stopper};
use crate::options::{Options, ServeError};
use netchannel_configuration::Tenant;
use netchannel_control::tenants::TenantView;
use netchannel_engine::limits::Limits;
use netchannel_service::memory::half_of_the_hosts;
use netchannel_stack_kernel::{Control, KernelStack};
use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

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
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has said so.
            let _ = thread.join();
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
    served: Vec<Served>,
}

impl Tenants {
    /// None yet. Their sizes and quotas are those of the daemon, for each tenant.
    pub fn new(options: &Options) -> Self {
        Self {
            daemon_socket: options.socket.clone(),
            limits: options.limits,
            version: options.version.clone(),
            served: Vec::new(),
        }
    }

    /// Serves these tenants and no others. Those that are served already go on: with other caps, other ports and another reach, where
    /// their tables say so. Returns a sentence for each thing that can not be done.
    pub fn configure(&mut self, tenants: &[Tenant]) -> Vec<String> {
        let mut problems = Vec::new();
        self.served.retain(|one| {
            let now = tenants.iter().find(|now| now.name == one.tenant.name);
            let stays = now.is_some_and(|now| is_same_place(&one.tenant, now));
            if !stays {
                tracing::info!("tenant {} is served no more", one.tenant.name);
            }
            stays
        });
        for tenant in tenants {
            let known = self.served.iter_mut();
            match known.into_iter().find(|one| one.tenant.name == tenant.name) {
                Some(known) if *known.tenant == *tenant => {}
                Some(known) => {
                    known.tenant = Arc::new(tenant.clone());
                    problems.extend(known.control.configure(&known.tenant));
                }
                None => match self.start(tenant, tenants.len()) {
                    Ok((served, told)) => {
                        let shown = served.socket.display();
                        tracing::info!("tenant {} is served at {shown}", tenant.name);
                        self.served.push(served);
                        problems.extend(told);
                    }
                    Err(sentence) => problems.push(sentence),
                },
            }
        }
        problems
    }

    fn start(&self, tenant: &Tenant, count: usize) -> Result<(Served, Vec<String>), String> {
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
            configuration: None,
            tenant: Some(Arc::clone(&tenant)),
        };
        let (sender, receiver) = mpsc::channel();
        let thread_name: String = format!("tenant-{name}").chars().take(15).collect();
        let thread = std::thread::Builder::new()
            .name(thread_name)
            .spawn(move || {
                let _stack = netchannel_service::signal_stack::AlternateStack::new();
                match bind(options) {
                    Ok((daemon, ready)) => {
                        let heard = sender.send(Ok(ready));
                        if heard.is_ok()
                            && let Err(error) = daemon.serve()
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
        let served = Served {
            tenant,
            socket,
            control: ready.control,
            stopper: ready.stopper,
            thread: Some(thread),
        };
        Ok((served, ready.problems))
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
    pub fn show(&self) -> Vec<TenantView> {
        self.served.iter().map(show).collect()
    }
}

/// What another thread needs of a tenant's.
struct Ready {
    stopper: Stopper,
    control: Control,
    problems: Vec<String>,
}

/// On the tenant's thread.
fn bind(options: Options) -> Result<(Daemon, Ready), ServeError> {
    let tenant = options.tenant.clone().ok_or(ServeError::NoTenant)?;
    let descriptors = options.limits.descriptors;
    let started = KernelStack::start(&tenant, descriptors);
    let (stack, problems) = started.map_err(ServeError::Events)?;
    let control = stack.control();
    let daemon = Daemon::bind_with(options, |_| vec![Box::new(stack)])?;
    let stopper = daemon.stopper()?;
    let ready = Ready {
        stopper,
        control,
        problems,
    };
    Ok((daemon, ready))
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
        stack: "kernel".to_owned(),
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
    }
}

fn strings<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant() -> Tenant {
        Tenant::new("web", vec![[10, 88, 0, 2].into()])
    }

    fn tenants(place: &Path) -> Tenants {
        Tenants {
            daemon_socket: place.join("nc.sock"),
            limits: Limits::default(),
            version: "test".to_owned(),
            served: Vec::new(),
        }
    }

    #[test]
    fn tenants_come_change_and_go() {
        let place = tempfile::tempdir().unwrap();
        let mut tenants = tenants(place.path());
        let nothing = Vec::<String>::new();
        assert_eq!(tenants.configure(&[tenant()]), nothing);
        let socket = place.path().join("tenants/web/nc.sock");
        assert!(socket.exists());
        let mut changed = tenant();
        changed.reach = vec!["10.0.0.0/8".parse().unwrap()];
        assert_eq!(tenants.configure(&[changed.clone()]), nothing);
        let shown = tenants.show();
        assert_eq!(
            (shown.len(), &shown[0].reach[..]),
            (1, &["10.0.0.0/8".to_owned()][..])
        );
        changed.addresses = vec![[10, 88, 0, 3].into()];
        assert_eq!(tenants.configure(&[changed]), nothing);
        assert_eq!(tenants.show()[0].addresses, ["10.88.0.3"]);
        assert_eq!(tenants.configure(&[]), nothing);
        assert!(!socket.exists() && tenants.show().is_empty());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_can_not_be_done_is_told_and_the_rest_goes_on() {
        let place = tempfile::tempdir().unwrap();
        let mut tenants = tenants(place.path());
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let mut web = tenant();
        web.publish = vec![format!("127.0.0.1:{port}:80").parse().unwrap()];
        let mut other = tenant();
        other.name = "other".to_owned();
        other.socket = Some("/proc/no/such.sock".into());
        let problems = tenants.configure(&[other, web]);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(
            problems[0].starts_with("tenant other is not served: "),
            "{problems:?}"
        );
        assert!(
            problems[1].contains("another program has the port"),
            "{problems:?}"
        );
        assert_eq!(tenants.show().len(), 1);
    }
}
