//! The threads, from the daemon's side.

use super::commands::{Command, Failing, Report};
use super::placement;
use super::shared::{FIRST_WORKER, Gauges, Letter, Shared, worker_name};
use super::worker::ChannelWorker;
use crate::line_id::LineId;
use netchannel_scheduler::Settings;
use netchannel_service::anchor::Count;
use netchannel_service::core_engine;
use netchannel_service::link::Parts;
use netchannel_service::mailbox::Mailbox;
use netchannel_service::published_ports::PublishedPorts;
use netchannel_service::stack::StackHandle;
use netchannel_service::worker;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

/// Reports that the daemon takes before others have their turn.
const MOST_REPORTS: usize = 64;
/// Most workers: a link has a cell for each.
const MOST_WORKERS: usize = 9;

/// The workers, from the daemon's side. Dropped, they end with all connections.
#[derive(Debug)]
pub struct DataPlane {
    shared: Arc<Shared>,
    /// Which worker has a channel.
    lines: RefCell<HashMap<LineId, usize>>,
    threads: Vec<JoinHandle<()>>,
}

impl DataPlane {
    /// Starts the workers: one for latency, and for throughput as many as are asked for, or one less than there are processors.
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
            crowded: AtomicU64::new(0),
            hurried: AtomicU64::new(0),
            watched: AtomicBool::new(false),
        });
        let mut hosts = Self {
            shared: Arc::clone(&shared),
            lines: RefCell::default(),
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

    /// Tells the worker that it concerns, or all.
    pub fn tell(&self, command: Command) {
        let workers = self.shared.inboxes.len();
        let send = |worker: usize, command| {
            if let Some(inbox) = self.shared.inboxes.get(worker) {
                inbox.send(Letter::Command(command));
            }
        };
        match command {
            Command::Channel { line, id, .. } => {
                let worker = self.shared.worker_of(id.class, id.number);
                self.lines.borrow_mut().insert(line, worker);
                send(worker, command);
            }
            Command::Retire { line, .. }
            | Command::Cut { line, .. }
            | Command::Frames { line, .. } => {
                // A line that is not known is lost, and that was told.
                if let Some(worker) = self.lines.borrow().get(&line) {
                    send(*worker, command);
                }
            }
            Command::Links(_) | Command::Listener { .. } | Command::Unlisten(_) => {
                send(FIRST_WORKER, command);
            }
            Command::Fail { peer, reason, what } => {
                if what == Failing::Start {
                    // Before any worker hears of it: what another one has read meanwhile comes too late.
                    peer.end();
                }
                if what == Failing::Connects {
                    peer.go_down();
                }
                for worker in 0..workers {
                    let peer = Arc::clone(&peer);
                    send(worker, Command::Fail { peer, reason, what });
                }
            }
            Command::Policies(policies) => {
                for worker in 0..workers {
                    send(worker, Command::Policies(Arc::clone(&policies)));
                }
            }
            Command::Stop => (0..workers).for_each(|worker| send(worker, Command::Stop)),
        }
    }

    /// What each worker says of itself.
    #[must_use]
    pub fn gauges(&self) -> &[Gauges] {
        &self.shared.gauges
    }

    /// Nanoseconds of the workers' clock.
    #[must_use]
    pub fn clock(&self) -> u64 {
        u64::try_from(self.shared.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether the daemon looks by itself how busy workers are; otherwise one that becomes busy tells.
    pub fn watch(&self, watches: bool) {
        self.shared.watched.store(watches, Ordering::Relaxed);
    }

    /// Rings when there are reports.
    #[must_use]
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.shared.reports.as_fd()
    }

    /// What the workers have told: the first of it where it is much, the doorbell rings for the rest.
    pub fn take_reports(&self) -> Vec<Report> {
        let taken = self.shared.reports.take_some(MOST_REPORTS);
        for report in &taken {
            if let Report::ChannelLost { line, .. } = report {
                self.lines.borrow_mut().remove(line);
            }
        }
        taken
    }

    /// Hands over a link, for tests.
    pub fn serve(&self, parts: Parts) {
        self.tell(Command::Links(core_engine::Command::Serve(parts)));
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        for thread in self.threads.drain(..) {
            // A thread that ended otherwise has said why.
            let _ = thread.join();
        }
    }
}

impl StackHandle for DataPlane {
    fn tell(&self, command: core_engine::Command) {
        self.tell(Command::Links(command));
    }

    fn descriptors(&self) -> usize {
        self.shared.count.held()
    }
}
