//! The module, as CoreEngine and the daemon's loop have it.

use crate::counters::{Counters, Counts};
use crate::doors::Door;
use crate::worker::{KernelWorker, Mail, Message};
use netchannel_configuration::{Publish, Tenant};
use netchannel_service::anchor::Count;
use netchannel_service::core_engine::{Command, Engine, ListenerChange};
use netchannel_service::mailbox::Mailbox;
use netchannel_service::stack::{Stack, StackHandle};
use netchannel_service::worker;
use rustix::io::Errno;
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Requests of the worker that are answered before the daemon's loop goes on.
const MOST_REQUESTS: usize = 64;

#[derive(Debug)]
struct Handle {
    mail: Arc<Mail>,
    count: Arc<Count>,
}

impl StackHandle for Handle {
    fn send(&self, command: Command) {
        self.mail.messages.send(Message::Core(command));
    }

    fn descriptors(&self) -> usize {
        self.count.held()
    }
}

/// Changes a module while it runs, and tells what it has done; from any thread.
#[derive(Clone, Debug)]
pub struct Control {
    mail: Arc<Mail>,
    counters: Arc<Counters>,
    /// What is published now.
    published: Arc<Mutex<HashSet<Publish>>>,
}

impl Control {
    /// Another table of the tenant holds from now on: what it may reach and its congestion control for connections that are made from
    /// now on, caps at once. Ports that it publishes no more are given up, the others are kept or taken. Returns a sentence for each port that can not be had.
    pub fn configure(&self, tenant: &Arc<Tenant>) -> Vec<String> {
        let published = self.published.lock();
        let mut published = published.unwrap_or_else(PoisonError::into_inner);
        let (mut doors, mut problems) = (Vec::new(), Vec::new());
        published.retain(|one| tenant.publish.contains(one));
        // What is published no more is let go first: a port may come at another address.
        let kept = Message::Tenant(Arc::clone(tenant));
        self.mail.messages.send(kept);
        for publish in &tenant.publish {
            if published.contains(publish) {
                continue;
            }
            match Door::new(*publish, tenant) {
                Ok(door) => {
                    published.insert(*publish);
                    doors.push(door);
                }
                Err(errno) => problems.push(refused(tenant, publish, errno)),
            }
        }
        self.mail.messages.send(Message::Doors(doors));
        problems
    }

    /// What the tenant has moved.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counters.now()
    }
}

fn refused(tenant: &Tenant, publish: &Publish, errno: Errno) -> String {
    let (name, host) = (&tenant.name, publish.host);
    let hint = match errno {
        Errno::ADDRINUSE => "another program has the port; stop it, or publish another one",
        Errno::ADDRNOTAVAIL => "this host has no such address; write one that it has, or 0.0.0.0",
        Errno::ACCESS => "a port below 1024 needs CAP_NET_BIND_SERVICE; publish another one",
        _ => "publish another one",
    };
    format!("tenant {name}: {host} is not published ({errno}): {hint}")
}

/// The module: one worker, for one tenant.
#[derive(Debug)]
pub struct KernelStack {
    handle: Rc<Handle>,
    control: Control,
    /// The listener that stands for all the world, once CoreEngine has given its number.
    gateway: Option<u32>,
    thread: Option<JoinHandle<()>>,
}

impl KernelStack {
    /// Starts a worker for a tenant, which keeps at most so many `descriptors`: half of them for anchors, a quarter for sockets. What can
    /// not be published is told in a sentence each.
    ///
    /// # Errors
    /// When no thread or no descriptor can be had.
    pub fn start(tenant: &Arc<Tenant>, descriptors: usize) -> Result<(Self, Vec<String>), Errno> {
        let mail = Arc::new(Mail {
            messages: Mailbox::new()?,
            requests: Mailbox::new()?,
        });
        let count = Arc::new(Count::new(descriptors / 2));
        let control = Control {
            mail: Arc::clone(&mail),
            counters: Arc::default(),
            published: Arc::default(),
        };
        let counters = Arc::clone(&control.counters);
        let kernel = KernelWorker::new(
            Arc::clone(&mail),
            Arc::clone(&count),
            counters,
            Arc::clone(tenant),
            descriptors / 4,
        )?;
        // As much of the name as a thread's has room for.
        let name: String = format!("kernel-{}", tenant.name).chars().take(15).collect();
        let thread = worker::spawn(name, kernel)?;
        let problems = control.configure(tenant);
        let stack = Self {
            handle: Rc::new(Handle { mail, count }),
            control,
            gateway: None,
            thread: Some(thread),
        };
        Ok((stack, problems))
    }

    /// To change it while it runs.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }
}

impl Stack for KernelStack {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn handle(&self) -> Rc<dyn StackHandle> {
        Rc::clone(&self.handle) as Rc<dyn StackHandle>
    }

    fn doorbells(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.handle.mail.requests.as_fd()]
    }

    fn on_doorbell(&mut self, _: usize, engine: &mut dyn Engine, _: Instant) {
        for request in self.handle.mail.requests.take_some(MOST_REQUESTS) {
            engine.request(request);
        }
    }

    fn on_loop_pass(&mut self, engine: &mut dyn Engine, _: Instant) {
        if self.gateway.is_none() {
            let number = engine.next_remote();
            // First: a program can connect as soon as it sees the number.
            self.handle.mail.messages.send(Message::Gateway(number));
            engine.set_gateway(number);
            self.gateway = Some(number);
        }
    }

    fn on_listener(&mut self, change: ListenerChange) {
        self.handle.mail.messages.send(Message::Listener(change));
    }

    fn connections(&self) -> u64 {
        self.control.counts().open
    }
}

impl Drop for KernelStack {
    fn drop(&mut self) {
        self.handle.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A worker that has panicked has said so.
            let _ = thread.join();
        }
    }
}
