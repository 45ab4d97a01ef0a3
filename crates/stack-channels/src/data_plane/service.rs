//! The workers, as the daemon's thread uses them.

use super::commands::{Command, FailureScope, Report};
use super::placement;
use super::shared::{FIRST_WORKER, Gauges, Shared, WorkerMessage, worker_name};
use super::worker::ChannelWorker;
use crate::channel_instance::ChannelInstance;
use crate::published::Ports;
use netchannel_scheduler::Settings;
use netchannel_service::anchor::Count;
use netchannel_service::core_engine;
use netchannel_service::link::Parts;
use netchannel_service::mailbox::Mailbox;
use netchannel_service::published_ports::PublishedPorts;
use netchannel_service::stack::{self, Crossing, Origin, StackHandle};
use netchannel_service::timers::nanoseconds;
use netchannel_service::worker;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

/// Reports that the daemon takes before other work has its turn.
const MOST_REPORTS: usize = 64;
/// The limit of workers: a link has a cell for each.
const MOST_WORKERS: usize = 9;

/// The workers, as the daemon's thread uses them. When this is dropped, they end with all connections.
#[derive(Debug)]
pub struct DataPlane {
    shared: Arc<Shared>,
    /// The worker of each channel.
    workers_of_channels: RefCell<HashMap<ChannelInstance, usize>>,
    threads: Vec<JoinHandle<()>>,
}

impl DataPlane {
    /// Starts the workers: one for latency, and for throughput as many as are configured, or one less than there are
    /// processors.
    ///
    /// # Errors
    /// When descriptors or threads can not be had.
    pub fn start(
        policies: &Settings,
        workers: Option<usize>,
        owners: PublishedPorts,
    ) -> Result<Self, Errno> {
        let cores = placement::cores();
        let workers = workers.unwrap_or(cores.len()).clamp(2, MOST_WORKERS);
        let inboxes = (0..workers).map(|_| Mailbox::new().map(Arc::new));
        let shared = Arc::new(Shared {
            count: Arc::new(Count::of_half()),
            inboxes: inboxes.collect::<Result<_, _>>()?,
            reports: Mailbox::new()?,
            epoch: Instant::now(),
            gauges: (0..workers).map(|_| Gauges::default()).collect(),
            cores,
            busy_until: AtomicU64::new(0),
            latency_active_until: AtomicU64::new(0),
            is_sampled: AtomicBool::new(false),
            deferring: Mutex::default(),
        });
        let mut hosts = Self {
            shared: Arc::clone(&shared),
            workers_of_channels: RefCell::default(),
            threads: Vec::new(),
        };
        let policies = Arc::new(policies.clone());
        for index in 0..workers {
            let (shared, policies) = (Arc::clone(&shared), Arc::clone(&policies));
            let worker = ChannelWorker::new(index, shared, policies, owners.clone())?;
            hosts
                .threads
                .push(worker::spawn(worker_name(index), worker)?);
        }
        Ok(hosts)
    }

    /// Sends a command to the worker that it concerns, or to all.
    pub fn send(&self, command: Command) {
        let workers = self.shared.inboxes.len();
        let deliver = |worker: usize, command| {
            if let Some(inbox) = self.shared.inboxes.get(worker) {
                inbox.send(WorkerMessage::Command(command));
            }
        };
        match command {
            Command::Channel { instance, id, .. } => {
                let worker = self.shared.worker_of(id.class, id.number);
                self.workers_of_channels
                    .borrow_mut()
                    .insert(instance, worker);
                deliver(worker, command);
            }
            Command::Retire { instance, .. }
            | Command::Close { instance, .. }
            | Command::Frames { instance, .. } => {
                // An unknown channel is lost, and that was reported.
                if let Some(worker) = self.workers_of_channels.borrow().get(&instance) {
                    deliver(*worker, command);
                }
            }
            Command::Links(_)
            | Command::Crossing(..)
            | Command::Listener { .. }
            | Command::Unlisten(_) => {
                deliver(FIRST_WORKER, command);
            }
            Command::Fail { peer, reason, what } => {
                if what == FailureScope::Start {
                    // This precedes the message to any worker: input that another worker has read meanwhile comes too
                    // late.
                    peer.end();
                }
                if what == FailureScope::Connects {
                    peer.go_down();
                }
                for worker in 0..workers {
                    let peer = Arc::clone(&peer);
                    deliver(worker, Command::Fail { peer, reason, what });
                }
            }
            Command::Policies(policies) => {
                for worker in 0..workers {
                    deliver(worker, Command::Policies(Arc::clone(&policies)));
                }
            }
            Command::Stop => (0..workers).for_each(|worker| deliver(worker, Command::Stop)),
        }
    }

    /// The kernel alone takes the connections of a listener from now on, or no longer: it can defer them. This holds
    /// for each connection that is asked for after this call.
    pub fn set_deferring(&self, listener: u32, defers: bool) {
        self.shared.set_deferring(listener, defers);
    }

    /// The gauges of each worker.
    #[must_use]
    pub fn gauges(&self) -> &[Gauges] {
        &self.shared.gauges
    }

    /// Nanoseconds of the workers' clock.
    #[must_use]
    pub fn clock(&self) -> u64 {
        nanoseconds(self.shared.epoch.elapsed())
    }

    /// Whether the daemon samples the load of the workers. If not, a worker that becomes busy reports it.
    pub fn set_sampled(&self, is_sampled: bool) {
        self.shared.is_sampled.store(is_sampled, Ordering::Relaxed);
    }

    /// Rings when there are reports.
    #[must_use]
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.shared.reports.as_fd()
    }

    /// Takes reports of the workers. Where there are many, only the first ones: the doorbell rings again for the rest.
    pub fn take_reports(&self) -> Vec<Report> {
        let taken = self.shared.reports.take_some(MOST_REPORTS);
        for report in &taken {
            if let Report::ChannelLost { instance, .. } = report {
                self.workers_of_channels.borrow_mut().remove(instance);
            }
        }
        taken
    }

    /// The way of tenants' connections.
    #[must_use]
    pub fn crossing(&self) -> Arc<dyn Crossing> {
        Arc::new(Way(Arc::clone(&self.shared)))
    }

    /// Hands over a link, for tests.
    pub fn serve(&self, parts: Parts) {
        self.send(Command::Links(core_engine::Command::Serve(parts)));
    }
}

/// The way of tenants' connections to the first worker, and back.
#[derive(Debug)]
struct Way(Arc<Shared>);

impl Crossing for Way {
    fn serve(&self, parts: Parts, origin: Arc<Origin>) {
        if let Some(inbox) = self.0.inboxes.get(FIRST_WORKER) {
            let command = Command::Crossing(parts, origin);
            inbox.send(WorkerMessage::Command(command));
        }
    }

    fn publish(&self, tenant: &str, at: Vec<SocketAddr>, entrance: Arc<dyn stack::Entrance>) {
        self.0.reports.send(Report::Published(Ports {
            tenant: tenant.to_owned(),
            at,
            entrance,
        }));
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.send(Command::Stop);
        for thread in self.threads.drain(..) {
            // A thread that ended with an error has already reported it.
            let _ = thread.join();
        }
    }
}

impl StackHandle for DataPlane {
    fn send(&self, command: core_engine::Command) {
        self.send(Command::Links(command));
    }

    fn descriptors(&self) -> usize {
        self.shared.count.held()
    }
}
