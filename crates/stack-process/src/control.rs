//! A tenant's stack, as the daemon's thread has it: its table, the sockets of its published ports, its sessions and what they have moved.

use crate::counters::{Counters, Counts};
use crate::message::SessionLimits;
use netchannel_configuration::{Prefix, Publish, Tenant};
use netchannel_service::link::Parts;
use netchannel_service::mailbox::Mailbox;
use netchannel_service::neighbour::{Neighbour, Onlooker, Trusted};
use netchannel_service::stack::Entrance;
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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

/// A message to the tenant's thread.
#[derive(Debug)]
pub(crate) enum Change {
    /// Another table of the tenant.
    Tenant(Arc<Tenant>),
    /// Published ports were bound or given up.
    Publish,
    /// A session takes new connections; with its counters, and their memory for the stack.
    Session(NewSession, Arc<Counters>, OwnedFd),
    /// Connections of other hosts come over this link.
    Enter(Parts),
    /// The other hosts.
    Hosts(Arc<[NamedHost]>),
    /// Tenants with whose programs this one's have links, and what it shows to them.
    Trust(Arc<Neighbour>, Vec<Trusted>),
    /// One of those has news.
    Look,
}

/// Another host: its name, and where its programs are.
pub type NamedHost = (String, Vec<Prefix>);

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
    /// The tenant's thread looks at its neighbours soon.
    looks: AtomicBool,
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
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self(Arc::new(Inner {
            changes: Mailbox::new()?,
            ports: Mutex::default(),
            sessions: Mutex::default(),
            looks: AtomicBool::new(false),
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

    /// Where programs of other hosts are, who come in over channels.
    pub fn name_hosts(&self, hosts: Arc<[NamedHost]>) {
        self.0.changes.send(Change::Hosts(hosts));
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
        let (counters, memory) = Counters::new()?;
        let counters = Arc::new(counters);
        let shown = (session.stack.clone(), Arc::clone(&counters));
        lock(&self.0.sessions).present.push(shown);
        self.0
            .changes
            .send(Change::Session(session, counters, memory));
        Ok(())
    }

    /// The tenant as those that trust it see it.
    #[must_use]
    pub fn neighbour(&self) -> Arc<Neighbour> {
        Arc::new(Neighbour::new(self.onlooker()))
    }

    /// The tenant's thread, for those whose listeners it is to be told of.
    #[must_use]
    pub fn onlooker(&self) -> Weak<dyn Onlooker> {
        let inner: Arc<dyn Onlooker> = Arc::clone(&self.0) as _;
        Arc::downgrade(&inner)
    }

    /// Programs of these tenants and of this one, which shows itself by `own`, have links from now on, and those of no others.
    pub fn trust(&self, own: Arc<Neighbour>, others: Vec<Trusted>) {
        self.0.changes.send(Change::Trust(own, others));
    }

    /// Before the tenant's thread looks at its neighbours: what changes from now on is a message of its own.
    pub(crate) fn is_looking(&self) {
        // AcqRel: pairs with the swap in `look`. What was changed before it is seen.
        self.0.looks.swap(false, Ordering::AcqRel);
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

    /// Readable while there are changes.
    pub(crate) fn doorbell(&self) -> BorrowedFd<'_> {
        self.0.changes.as_fd()
    }

    /// The first changes.
    pub(crate) fn take_changes(&self, most: usize) -> Vec<Change> {
        self.0.changes.take_some(most)
    }

    /// The socket of a published port, if it is bound.
    pub(crate) fn socket_of(&self, port: &Publish) -> Option<OwnedFd> {
        lock(&self.0.ports).get(port)?.try_clone().ok()
    }

    /// A stack has bound a published port.
    pub(crate) fn keep_socket(&self, port: Publish, socket: OwnedFd) {
        lock(&self.0.ports).insert(port, socket);
    }

    /// A session has ended: what it has moved stays.
    pub(crate) fn session_ended(&self, counters: &Arc<Counters>) {
        let mut shown = lock(&self.0.sessions);
        shown.present.retain(|(_, one)| !Arc::ptr_eq(one, counters));
        shown.past = shown.past.plus(counters.now().of_the_past());
    }
}

impl Onlooker for Inner {
    fn look(&self) {
        // However often it changes, one message waits. AcqRel: pairs with the swap in `is_looking`.
        if !self.looks.swap(true, Ordering::AcqRel) {
            self.changes.send(Change::Look);
        }
    }
}

impl Entrance for Control {
    fn enter(&self, parts: Parts) {
        self.0.changes.send(Change::Enter(parts));
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
