//! What all workers share, and what they tell each other.

use super::commands::{Command, Report};
use super::connection::{Connection, Peer};
use netchannel_scheduler::Class;
use netchannel_scheduler::placement::Core;
use netchannel_service::anchor::Count;
use netchannel_service::mailbox::Mailbox;
use netchannel_vns::{ChannelId, Hold};
use netchannel_wire::{Frame, NcSyn};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

/// The worker that takes new connections, and works channels of latency.
pub const FIRST_WORKER: usize = 0;
/// The worker that works channels of throughput; those behind it do, too.
const FIRST_T: usize = 1;

/// Below so many processors nothing is pinned or goes before programs: they share them all, and the kernel sees who waits.
pub const LEAST_CORES: usize = 4;

/// What a worker is told.
pub enum Letter {
    /// From the daemon.
    Command(Command),
    /// A socket has something for this worker.
    Touch(Arc<Connection>),
    /// This worker owns a connection from now on.
    Adopt(Arc<Connection>, Class),
    /// Bytes to send on a channel of this worker.
    Segment {
        /// Whose.
        connection: Arc<Connection>,
        /// Which.
        sequence: u64,
        /// How many.
        length: u32,
        /// Keeps them where they are.
        hold: Option<Hold>,
        /// On which.
        key: ChannelId,
    },
    /// A control frame to send on a channel of this worker.
    Control {
        /// Whose.
        connection: Arc<Connection>,
        /// Which.
        frame: Frame<'static>,
        /// On which.
        key: ChannelId,
    },
    /// (first worker) A peer asks for a connection.
    Asked(Arc<Peer>, NcSyn),
    /// The channels of a peer have changed.
    Routes(Arc<Peer>),
    /// A channel to a peer has stalled, on this path.
    Doubt(Arc<Peer>, Option<(IpAddr, IpAddr)>),
    /// A link brings no new connection any more.
    LinkEnded(u64),
    /// (first worker) The last connection of a link may have ended.
    LetGo(u64),
    /// A token that was to wake this worker for a link went to another one.
    Look(u64),
}

/// What all workers share.
pub struct Shared {
    /// Anchors that all links hold.
    pub count: Arc<Count>,
    /// A mailbox for each worker.
    pub inboxes: Vec<Arc<Mailbox<Letter>>>,
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
            Class::Latency => FIRST_WORKER,
            Class::Throughput => FIRST_T + usize::try_from(number).unwrap_or(0) % throughput,
        }
    }
}

/// Name of the thread of a worker.
#[must_use]
pub fn worker_name(index: usize) -> String {
    match index {
        FIRST_WORKER => "hosts-L".to_owned(),
        FIRST_T => "hosts-T".to_owned(),
        other => format!("hosts-T{other}"),
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}
