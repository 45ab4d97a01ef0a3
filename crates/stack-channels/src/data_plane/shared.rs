//! The state that all workers share, and their messages.

use super::commands::{Command, Report};
use super::connection::{Connection, Peer};
use netchannel_scheduler::Class;
use netchannel_scheduler::placement::Core;
use netchannel_service::anchor::Count;
use netchannel_service::mailbox::Mailbox;
use netchannel_vns::{ChannelId, Hold};
use netchannel_wire::{Frame, NcSyn};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The worker that takes new connections, and runs the channels of latency.
pub const FIRST_WORKER: usize = 0;
/// The first worker that runs channels of throughput. All workers after it do too.
const FIRST_T: usize = 1;

/// With fewer processors than this, workers are not pinned and not preferred to programs: all share the processors, and
/// the kernel sees who waits.
pub const LEAST_CORES: usize = 4;

/// A message to a worker.
pub enum WorkerMessage {
    /// A command of the daemon.
    Command(Command),
    /// A socket must be settled by this worker.
    Settle(Arc<Connection>),
    /// This worker becomes the owner of a connection.
    Adopt(Arc<Connection>, Class),
    /// Bytes to send on a channel of this worker.
    Segment {
        /// The connection.
        connection: Arc<Connection>,
        /// The sequence of the first byte.
        sequence: u64,
        /// The number of bytes.
        length: u32,
        /// Keeps the bytes in their ring.
        hold: Option<Hold>,
        /// The channel.
        key: ChannelId,
    },
    /// A control frame to send on a channel of this worker.
    Control {
        /// The connection.
        connection: Arc<Connection>,
        /// The frame.
        frame: Frame<'static>,
        /// The channel.
        key: ChannelId,
    },
    /// (first worker) A peer requests a connection.
    ConnectionRequest(Arc<Peer>, NcSyn),
    /// The channels of a peer have changed.
    RoutesChanged(Arc<Peer>),
    /// A channel to a peer has stalled on this path.
    Probe(Arc<Peer>, Option<(IpAddr, IpAddr)>),
    /// A link brings no new connection any more.
    LinkEnded(u64),
    /// (first worker) The last connection of a link may have ended.
    LinkUnused(u64),
    /// A token that was to wake this worker for a link reached another worker.
    LookAtLink(u64),
}

/// What all workers share.
pub struct Shared {
    /// The number of anchors of all links.
    pub count: Arc<Count>,
    /// A mailbox for each worker.
    pub inboxes: Vec<Arc<Mailbox<WorkerMessage>>>,
    /// The reports of the workers to the daemon.
    pub reports: Mailbox<Report>,
    /// The origin of all times.
    pub epoch: Instant,
    /// The gauges of each worker.
    pub gauges: Vec<Gauges>,
    /// The processors of this process.
    pub cores: Vec<Core>,
    /// Until this time processors are too few and too busy to spin on them, in nanoseconds since the epoch.
    pub busy_until: AtomicU64,
    /// Until this time programs that need latency count as active, in nanoseconds since the epoch.
    pub latency_active_until: AtomicU64,
    /// The daemon samples the load of the workers, which need not report it.
    pub is_sampled: AtomicBool,
    /// The listeners whose connections the kernel alone takes, as it defers them. A peer may not know it yet.
    pub deferring: Mutex<BTreeSet<u32>>,
}

/// The gauges of a worker.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Nanoseconds in which it neither slept nor waited.
    pub busy: AtomicU64,
    /// The number of sleeps.
    pub sleeps: AtomicU64,
    /// The number of its channels.
    pub channels: AtomicU64,
    /// The number of sockets for which it sends.
    pub sockets: AtomicU64,
    /// The processor to which it is bound, plus one.
    pub core: AtomicU64,
}

impl Shared {
    /// Whether only the kernel takes connections for a listener.
    pub fn defers(&self, listener: u32) -> bool {
        self.deferring().contains(&listener)
    }

    /// From now on only the kernel takes connections for a listener, or no longer.
    pub fn set_deferring(&self, listener: u32, defers: bool) {
        let mut deferring = self.deferring();
        if defers {
            deferring.insert(listener);
        } else {
            deferring.remove(&listener);
        }
    }

    fn deferring(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.deferring
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker of a channel, or of a socket, with this number in its class.
    pub fn worker_of(&self, class: Class, number: u32) -> usize {
        let throughput = self.inboxes.len().saturating_sub(FIRST_T).max(1);
        match class {
            Class::Latency => FIRST_WORKER,
            Class::Throughput => FIRST_T + usize::try_from(number).unwrap_or(0) % throughput,
        }
    }
}

/// The name of a worker's thread.
#[must_use]
pub fn worker_name(index: usize) -> String {
    match index {
        FIRST_WORKER => "channels-L".to_owned(),
        FIRST_T => "channels-T".to_owned(),
        other => format!("channels-T{other}"),
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}
