//! What the daemon and the workers tell each other, and the threads.

use super::front::Front;
use super::mailbox::Mailbox;
use super::peer::Peer;
use super::worker::{Letter, Worker};
use crate::relay::anchor::Count;
use crate::relay::{self, Parts};
use netchannel_driver::Channel;
use netchannel_scheduler::{ChannelId, Class};
use netchannel_vns::Reason;
use netchannel_wire::{Address, GoAwayReason, Listen, ListenEnd, Unlisten, Violation};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// One channel that is or was up. Never used again: two channels can have one class and number for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(pub u64);

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
    /// This host ended it.
    Cut,
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
        /// Its class.
        class: Class,
        /// What to say.
        reason: GoAwayReason,
    },
    /// End a channel now: the peer has lost it.
    Cut {
        /// Which.
        line: LineId,
        /// Its class.
        class: Class,
    },
    /// Send whole frames on a channel, if it still is.
    Frames {
        /// Which.
        line: LineId,
        /// Its class.
        class: Class,
        /// The frames.
        bytes: Vec<u8>,
    },
    /// A listener of a peer has this number here.
    Listener {
        /// The number here.
        number: u32,
        /// Whose it is.
        peer: Arc<Peer>,
        /// The number there.
        theirs: u32,
    },
    /// A listener of a peer is gone.
    Unlisten(u32),
    /// All sockets with a peer fail: it is out of reach, or began anew.
    Fail {
        /// The peer.
        peer: Arc<Peer>,
        /// What its sockets are told.
        reason: Reason,
        /// It is no more: its channels end, too.
        ends: bool,
    },
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
}

/// An announcement of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// All its addresses, with the serial.
    Addresses(u64, Vec<Address>),
    /// A listener.
    Listen(Listen),
    /// A listener is gone.
    Unlisten(Unlisten),
    /// A full list was said.
    ListenEnd(ListenEnd),
}

/// The worker that works a class; the first is the front.
#[must_use]
pub const fn worker_of(class: Class) -> usize {
    match class {
        Class::Latency => FRONT,
        Class::Throughput => 1,
    }
}

/// The worker that takes new connections.
pub const FRONT: usize = 0;
/// How many there are.
const WORKERS: usize = 2;

/// What all workers share.
pub struct Shared {
    /// A mailbox for each worker.
    pub inboxes: Vec<Mailbox<Letter>>,
    /// What they tell.
    pub reports: Mailbox<Report>,
    /// Time zero of all times.
    pub epoch: Instant,
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
    threads: Vec<JoinHandle<()>>,
}

impl Hosts {
    /// Starts the workers.
    ///
    /// # Errors
    /// When descriptors or threads can not be had.
    pub fn start() -> Result<Self, Errno> {
        use rustix::process::{Resource, getrlimit};
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        // The other half is for programs to attach.
        let inboxes = (0..WORKERS).map(|_| Mailbox::new());
        let shared = Arc::new(Shared {
            inboxes: inboxes.collect::<Result<_, _>>()?,
            reports: Mailbox::new()?,
            epoch: Instant::now(),
        });
        let mut hosts = Self {
            shared: Arc::clone(&shared),
            count: Arc::new(Count::new(usize::try_from(limit / 2).unwrap_or(usize::MAX))),
            threads: Vec::new(),
        };
        for index in 0..WORKERS {
            let front = (index == FRONT).then(|| Front::new(Arc::clone(&hosts.count)));
            let worker = Worker::new(index, Arc::clone(&shared), front)?;
            let name = match index {
                FRONT => "hosts-L".to_owned(),
                1 => "hosts-T".to_owned(),
                other => format!("hosts-{other}"),
            };
            let thread = std::thread::Builder::new()
                .name(name)
                .spawn(move || worker.run())
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
            hosts.threads.push(thread);
        }
        Ok(hosts)
    }

    /// Tells the worker that it concerns, or all.
    pub fn tell(&self, command: Command) {
        let send = |worker: usize, letter| {
            if let Some(inbox) = self.shared.inboxes.get(worker) {
                inbox.send(letter);
            }
        };
        match command {
            Command::Channel {
                id: ChannelId { class, .. },
                ..
            }
            | Command::Retire { class, .. }
            | Command::Cut { class, .. }
            | Command::Frames { class, .. } => send(worker_of(class), Letter::Command(command)),
            Command::Relay(_) | Command::Listener { .. } | Command::Unlisten(_) => {
                send(FRONT, Letter::Command(command));
            }
            Command::Fail { peer, reason, ends } => {
                for worker in 0..WORKERS {
                    let peer = Arc::clone(&peer);
                    send(
                        worker,
                        Letter::Command(Command::Fail { peer, reason, ends }),
                    );
                }
            }
            Command::Stop => {
                for worker in 0..WORKERS {
                    send(worker, Letter::Command(Command::Stop));
                }
            }
        }
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

    /// What the workers have told.
    pub fn take_reports(&self) -> Vec<Report> {
        let reports = &self.shared.reports;
        reports.hear();
        reports.sleep();
        let mut taken = Vec::new();
        reports.take(&mut taken);
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
