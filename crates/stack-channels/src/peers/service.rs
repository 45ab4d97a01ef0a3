//! All peers, as the daemon's thread uses them.

use super::acceptors::{Acceptors, CannotListen};
use super::advertised::Own;
use super::learned::Listings;
use super::output::{ChannelInstance, ChannelRef, Output};
use super::peer::Peer;
use super::settings::{Settings, Times};
use super::table::{OTHERS, Table};
use netchannel_driver::Transport;
use netchannel_service::faults::Faults;
use netchannel_wire::{HostId, Identity, Limits, Nonce};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// Why the peers can not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeersError {
    /// An address is in use, or is not this host's.
    #[error(transparent)]
    Listen(#[from] CannotListen),
    /// The kernel refuses a descriptor.
    #[error("cannot prepare for other hosts ({0})")]
    System(#[from] Errno),
}

/// The counters of strangers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StrangerCounters {
    /// Incoming channels from addresses of no peer.
    pub refused: u64,
    /// Incoming channels that were closed before their handshake was complete, because too many newer ones came.
    pub displaced: u64,
    /// How often no channel could be accepted because descriptors or memory were exhausted.
    pub exhausted: u64,
}

/// The messages in the log, limited to one per burst.
#[derive(Debug, Default)]
pub(super) struct LogLimits {
    pub stranger: Faults,
    pub displaced: Faults,
    pub exhausted: Faults,
}

/// The other hosts.
pub struct Peers {
    pub(super) settings: Settings,
    pub(super) transport: Box<dyn Transport>,
    pub(super) host: HostId,
    epoch: u64,
    /// The limits that HELLO announces, fixed for the daemon's life.
    pub(super) limits: Limits,
    /// By their numbers, in the order of the configuration.
    pub(super) peers: BTreeMap<u32, Peer>,
    pub(super) acceptors: Acceptors,
    pub(super) table: Table,
    /// The channels of the data plane, with the peer of each.
    pub(super) channels: HashMap<ChannelInstance, (u32, ChannelRef)>,
    pub(super) own: Own,
    pub(super) outputs: Vec<Output>,
    /// Directory entries of starts that have ended.
    pub(super) orphaned_entries: Vec<u32>,
    pub(super) last_peer: u32,
    pub(super) last_channel: u64,
    pub(super) last_start: u32,
    pub(super) strangers: StrangerCounters,
    /// Incoming channels that were refused, by the reason that was sent.
    pub(super) refused: BTreeMap<&'static str, u64>,
    pub(super) log_limits: LogLimits,
}

impl Peers {
    /// Starts listening. No peer is dialled before the first [`Peers::work`].
    ///
    /// # Errors
    /// The first error.
    pub fn new(settings: Settings, transport: Box<dyn Transport>) -> Result<Self, PeersError> {
        let silence = u32::try_from(settings.times.silence.as_millis()).unwrap_or(u32::MAX);
        let mut peers = Self {
            host: HostId(random()?),
            epoch: u64::from_le_bytes(random()?),
            limits: Limits {
                payload: settings.limits.payload,
                sockets: settings.limits.sockets.max(1),
                silence: silence.max(1),
            },
            transport,
            peers: BTreeMap::new(),
            acceptors: Acceptors::default(),
            table: Table::new()?,
            channels: HashMap::new(),
            own: Own::default(),
            outputs: Vec::new(),
            orphaned_entries: Vec::new(),
            last_peer: 0,
            last_channel: 0,
            last_start: 0,
            strangers: StrangerCounters::default(),
            refused: BTreeMap::new(),
            log_limits: LogLimits::default(),
            settings: Settings::default(),
        };
        peers.apply(settings, Instant::now())?;
        Ok(peers)
    }

    /// The epoch of this start of the host's daemon.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The identity of this host, until the daemon ends.
    #[must_use]
    pub const fn host(&self) -> HostId {
        self.host
    }

    /// Readable when there is work.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.table.poll().as_fd()
    }

    /// The latest time of the next work; `None` where only events matter.
    #[must_use]
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let dials = self.peers.values().filter_map(|peer| peer.next_dial(now));
        let unreachable = self.settings.times.unreachable;
        let down = self.peers.values().filter_map(|peer| peer.down_since);
        let given_up = down.filter_map(|since| since.checked_add(unreachable));
        let others = [self.table.deadline(), self.acceptors.deadline()];
        let others = others.into_iter().flatten();
        dials.chain(given_up).chain(others).min()
    }

    /// Does the work that is due, within bounds. The caller then takes the outputs and calls publish.
    pub fn work(&mut self, now: Instant) {
        for name in self.table.poll().ready() {
            if name >= OTHERS {
                self.accept(name, now);
            } else {
                self.advance(name, now);
            }
        }
        self.expire(now);
        self.acceptors.reopen(self.table.poll(), now);
        self.dial(now);
    }

    fn expire(&mut self, now: Instant) {
        for name in self.table.overdue(now) {
            self.time_out(name, now);
        }
        let patience = self.settings.times.unreachable;
        for peer in self.peers.values_mut() {
            let late = |since: Instant| now.saturating_duration_since(since) >= patience;
            if peer.down_since.is_some_and(late) {
                peer.down_since = None;
                if let Some(start) = &peer.start {
                    let name = &peer.name;
                    tracing::warn!("peer {name} is out of reach: its connections are given up");
                    self.outputs.push(Output::Unreachable(start.id));
                }
            }
        }
    }

    /// The tasks for the data plane, in this order.
    #[must_use]
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Brings the directory up to date. This must follow the outputs: the data plane must know of a start before
    /// programs can.
    pub fn publish(&mut self, listings: &mut dyn Listings, now: Instant) {
        for number in std::mem::take(&mut self.orphaned_entries) {
            listings.remove(number);
        }
        let most = self.settings.limits.listeners;
        for peer in self.peers.values_mut() {
            let up = peer.is_up();
            let Some(start) = &mut peer.start else {
                continue;
            };
            let before = start.learned.left_out.beyond;
            start
                .learned
                .publish(start.id, up, most, &self.own.addresses, listings);
            let beyond = start.learned.left_out.beyond - before;
            if beyond > 0
                && let Some(suppressed) = peer.log_limits.left_out.count(now)
            {
                let name = &peer.name;
                tracing::warn!(
                    suppressed,
                    "peer {name} announces more listeners than there is room for: connections to the others go over kernel TCP"
                );
            }
        }
    }

    /// The identity that this host states on one channel.
    pub(super) fn identity(&self) -> Result<Identity, Errno> {
        Ok(Identity {
            host: self.host,
            epoch: self.epoch,
            limits: self.limits,
            nonce: Nonce(random()?),
        })
    }

    pub(super) const fn times(&self) -> &Times {
        &self.settings.times
    }
}

/// Random bytes of the system.
fn random<const N: usize>() -> Result<[u8; N], Errno> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match getrandom(rest, GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes)
}

/// A random number for delays. Without one the delays are the same on all hosts, which does no harm.
pub fn random_number() -> u32 {
    random().map_or(0, u32::from_le_bytes)
}
