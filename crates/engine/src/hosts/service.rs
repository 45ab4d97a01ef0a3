//! What the daemon and the workers tell each other, and the threads.

use super::front::{Front, Listed};
use super::mailbox::Mailbox;
use super::peer::Peer;
use super::placing;
use super::worker::{Letter, Worker};
use crate::AlternateStack;
use crate::announcement::Announcement;
use crate::line_id::LineId;
use crate::published_ports::PublishedPorts;
use crate::relay::anchor::Count;
use crate::relay::{self, Parts};
use netchannel_driver::Channel;
use netchannel_scheduler::placement::Core;
use netchannel_scheduler::{ChannelId, Class, Settings};
use netchannel_vns::Reason;
use netchannel_wire::{GoAwayReason, Violation};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

/// Why a channel is no more.
#[derive(Debug)]
pub enum Lost {
    /// Both ends have said GOAWAY.
    Parted,
    /// The transport ended without it.
    Ended,
    /// The transport failed.
    Failed(io::Error),
    /// The peer broke the contract.
    Violation(Violation),
    /// Nothing was heard for too long.
    Silent,
    /// Nothing was acknowledged for a while, and the peer has other addresses.
    Stalled,
    /// This host ended it.
    Cut,
}

/// What fails of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// Connects of programs here that have no answer yet.
    Connects,
    /// All sockets.
    Sockets,
    /// Its start is over: its channels end, too.
    Start,
}

/// What is told to the workers.
pub enum Command {
    /// From CoreEngine, about links of this host.
    Relay(relay::Command),
    /// A channel is up. `rest` are bytes that came behind its handshake.
    Channel {
        /// Where it leads.
        peer: Arc<Peer>,
        /// Its name on this host.
        line: LineId,
        /// Class and number.
        id: ChannelId,
        /// The transport.
        channel: Box<dyn Channel>,
        /// Bytes that were read of it already.
        rest: Vec<u8>,
    },
    /// Say GOAWAY on a channel, let what is on its way come, and end it.
    Retire {
        /// Which.
        line: LineId,
        /// What to say.
        reason: GoAwayReason,
    },
    /// End a channel now: the peer has lost it.
    Cut {
        /// Which.
        line: LineId,
    },
    /// Send whole frames on a channel, if it still is.
    Frames {
        /// Which.
        line: LineId,
        /// The frames.
        bytes: Vec<u8>,
    },
    /// A listener of a peer has this number here.
    Listener {
        /// The number here.
        number: u32,
        /// Which.
        listed: Listed,
    },
    /// A listener of a peer is gone.
    Unlisten(u32),
    /// Sockets with a peer fail: it is out of reach, or began anew.
    Fail {
        /// The peer.
        peer: Arc<Peer>,
        /// What its sockets are told.
        reason: Reason,
        /// Which of them.
        what: Failing,
    },
    /// Other policies choose from now on.
    Policies(Arc<Settings>),
    /// The daemon ends.
    Stop,
}

/// What workers tell.
#[derive(Debug)]
pub enum Report {
    /// They ask CoreEngine for something.
    Ask(relay::Ask),
    /// A channel is no more.
    ChannelLost {
        /// Which.
        line: LineId,
        /// Why.
        reason: Lost,
    },
    /// The peer said GOAWAY on a channel.
    GoAway {
        /// On which.
        line: LineId,
        /// Why.
        reason: GoAwayReason,
    },
    /// The peer announced something, on this channel.
    Heard {
        /// On which.
        line: LineId,
        /// What.
        announcement: Announcement,
    },
    /// A worker has much to do, and nobody watches.
    Busy,
}

/// The worker that takes new connections, and works channels of latency.
pub const FRONT: usize = 0;
/// Reports that the daemon takes before others have their turn.
const MOST_REPORTS: usize = 64;
/// The worker that works channels of throughput; those behind it do, too.
const FIRST_T: usize = 1;

/// Most workers: a link has a cell for each.
const MOST_WORKERS: usize = 9;

/// What all workers share.
pub struct Shared {
    /// A mailbox for each worker.
    pub inboxes: Vec<Mailbox<Letter>>,
    /// What they tell.
    pub reports: Mailbox<Report>,
    /// Time zero of all times.
    pub epoch: Instant,
    /// What each worker is and does.
    pub gauges: Vec<Gauges>,
    /// Processors of this process.
    pub cores: Vec<Core>,
    /// Until when processors are too few and too busy to spin on, in nanoseconds since the epoch.
    pub crowded: AtomicU64,
    /// Until when programs that want latency count as at work, in nanoseconds since the epoch.
    pub hurried: AtomicU64,
    /// The daemon looks how busy workers are, and need not be told.
    pub watched: AtomicBool,
}

/// What a worker says of itself.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Nanoseconds that it neither slept nor waited.
    pub busy: AtomicU64,
    /// Times that it went to sleep.
    pub sleeps: AtomicU64,
    /// Channels that it has.
    pub channels: AtomicU64,
    /// Sockets for which it sends.
    pub sockets: AtomicU64,
    /// The processor it is bound to, plus one.
    pub core: AtomicU64,
}

impl Shared {
    /// The worker of a channel, or of a socket, with this number in its class.
    pub fn worker_of(&self, class: Class, number: u32) -> usize {
        let throughput = self.inboxes.len().saturating_sub(FIRST_T).max(1);
        match class {
            Class::Latency => FRONT,
            Class::Throughput => FIRST_T + usize::try_from(number).unwrap_or(0) % throughput,
        }
    }
}

/// Name of the thread of a worker.
#[must_use]
pub fn worker_name(index: usize) -> String {
    match index {
        FRONT => "hosts-L".to_owned(),
        FIRST_T => "hosts-T".to_owned(),
        other => format!("hosts-T{other}"),
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// The workers, from the daemon's side. Dropped, they end with all connections.
#[derive(Debug)]
pub struct Hosts {
    shared: Arc<Shared>,
    count: Arc<Count>,
    /// Which worker has a channel.
    lines: RefCell<HashMap<LineId, usize>>,
    threads: Vec<JoinHandle<()>>,
}

impl Hosts {
    /// Starts the workers: one for latency, and for throughput as many as are asked for, or one less than there are processors.
    ///
    /// # Errors
    /// When descriptors or threads can not be had.
    pub fn start(
        policies: &Settings,
        workers: Option<usize>,
        owners: PublishedPorts,
    ) -> Result<Self, Errno> {
        use rustix::process::{Resource, getrlimit};
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let cores = placing::cores();
        let workers = workers.unwrap_or(cores.len()).clamp(2, MOST_WORKERS);
        let inboxes = (0..workers).map(|_| Mailbox::new());
        let shared = Arc::new(Shared {
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
            // The other half is for programs to attach.
            count: Arc::new(Count::new(usize::try_from(limit / 2).unwrap_or(usize::MAX))),
            lines: RefCell::default(),
            threads: Vec::new(),
        };
        let policies = Arc::new(policies.clone());
        for index in 0..workers {
            let front = (index == FRONT)
                .then(|| Front::new(Arc::clone(&hosts.count), shared.epoch, owners.clone()));
            let (shared, policies) = (Arc::clone(&shared), Arc::clone(&policies));
            let worker = Worker::new(index, shared, policies, front)?;
            let thread = std::thread::Builder::new()
                .name(worker_name(index))
                .spawn(move || {
                    let _stack = AlternateStack::new();
                    worker.run()
                })
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
            hosts.threads.push(thread);
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
            Command::Relay(_) | Command::Listener { .. } | Command::Unlisten(_) => {
                send(FRONT, command);
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

    /// Descriptors they hold besides a few for each link and channel.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.count.held()
    }

    /// Rings when there are reports.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.shared.reports.as_fd()
    }

    /// What the workers have told: the first of it where it is much, the bell rings for the rest.
    pub fn take_reports(&self) -> Vec<Report> {
        let taken = self.shared.reports.take_some(MOST_REPORTS);
        for report in &taken {
            if let Report::ChannelLost { line, .. } = report {
                self.lines.borrow_mut().remove(line);
            }
        }
        taken
    }

    /// Hands over a link, for tests and the front.
    pub fn serve(&self, parts: Parts) {
        self.tell(Command::Relay(relay::Command::Serve(parts)));
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        for thread in self.threads.drain(..) {
            // A thread that ended otherwise has said why.
            let _ = thread.join();
        }
    }
}
