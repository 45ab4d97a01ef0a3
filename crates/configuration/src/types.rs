//! The configuration, checked.

use core::fmt;
use core::time::Duration;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::OnceLock;

use netchannel_scheduler::{Class, Setting, Settings};
use netchannel_wire::{Key, LEAST_PAYLOAD, MOST_PAYLOAD};

use crate::prefix::Prefix;
use crate::stack::StackTable;
use crate::tenant::Tenant;

/// Port of an address that names none.
pub const DEFAULT_PORT: u16 = 7117;
/// Port of `metrics.listen` where it names none.
pub const METRICS_PORT: u16 = 9117;
/// Most channels of a class to one peer.
pub const MOST_CHANNELS: u16 = 32;

/// The contents of `netchannel.toml`, with defaults.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The file it was read from, absolute.
    pub file: PathBuf,
    /// This host.
    pub host: Host,
    /// The others, in the order of the file. Names, addresses and prefixes are each of one peer only.
    pub peers: Vec<Peer>,
    /// The tenants, whose programs have no network of their own, in the order of the file. Each name, socket and
    /// published port belongs to one tenant only.
    pub tenants: Vec<Tenant>,
    /// Stacks as processes of their own, which serve tenants, in the order of the file.
    pub stacks: Vec<StackTable>,
    /// Policies of NetScheduler. For the number of channels see [`Peer::scale`].
    pub scheduler: Settings,
    /// The transport of channels, by its name in [`netchannel_driver::TRANSPORTS`].
    pub carrier: String,
    /// How channels of each class use the transport.
    pub transport: PerClass<ChannelOptions>,
    /// Times.
    pub times: Times,
    /// Limits.
    pub limits: Limits,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<SocketAddr>,
}

/// This host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name, in logs and answers; 1 to 64 letters, digits, dots, hyphens and underscores.
    pub name: String,
    /// The addresses at which other hosts may dial; may be empty.
    pub listen: Vec<SocketAddr>,
}

/// Another host.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its name, in logs, answers and labels of metrics, of the same letters as [`Host::name`].
    pub name: String,
    /// The addresses at which it is dialled, in this order; may be empty, then the peer dials. A channel that comes
    /// from one of these addresses (with any port), or from within [`Self::prefixes`], belongs to this peer: see
    /// [`Configuration::peer_from`].
    pub addresses: Vec<SocketAddr>,
    /// Addresses whose listeners this peer may announce. Never empty.
    pub prefixes: Vec<Prefix>,
    /// The key that both hosts have.
    pub key: SharedKey,
    /// The file of the key.
    pub key_file: PathBuf,
    /// The number of channels of each class.
    pub channels: PerClass<Bounds>,
    /// The policy for the number of channels, within those bounds.
    pub scale: Setting,
    /// The channels in the file.
    pub(crate) asked: PerClass<AskedBounds>,
}

/// A value for each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerClass<T> {
    /// Of latency (L).
    pub latency: T,
    /// Of throughput (T).
    pub throughput: T,
}

impl<T> PerClass<T> {
    /// The value of a class.
    pub const fn get(&self, class: Class) -> &T {
        match class {
            Class::Latency => &self.latency,
            Class::Throughput => &self.throughput,
        }
    }

    /// The value of a class, to change it.
    pub const fn get_mut(&mut self, class: Class) -> &mut T {
        match class {
            Class::Latency => &mut self.latency,
            Class::Throughput => &mut self.throughput,
        }
    }
}

/// The number of channels, 1 to [`MOST_CHANNELS`]; least is at most most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The number that is kept up.
    pub least: u16,
    /// No more are made.
    pub most: u16,
}

/// The channels of a class in a peer's section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AskedBounds {
    pub least: Option<u16>,
    pub most: Option<u16>,
}

/// How a channel uses its transport. An unset value is left to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelOptions {
    /// `TCP_CONGESTION`, 1 to 15 bytes.
    pub congestion_control: Option<String>,
    /// `SO_SNDBUF` in bytes, 4 KiB to 1 GiB.
    pub send_buffer: Option<u32>,
    /// `SO_RCVBUF` in bytes, 4 KiB to 1 GiB.
    pub receive_buffer: Option<u32>,
    /// `SO_PRIORITY`, 0 to 6.
    pub priority: Option<u8>,
    /// The upper six bits of `IP_TOS` and `IPV6_TCLASS`, 0 to 63.
    pub dscp: Option<u8>,
}

/// Times of channels and virtual sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The longest time until a dialled transport is connected, 10 ms to 5 minutes.
    pub dial: Duration,
    /// Longest time from there to the end of the handshake, 10 ms to 5 minutes.
    pub handshake: Duration,
    /// A channel is dead after this time without a frame, 100 ms to 1 hour.
    pub silence: Duration,
    /// Pause after the first failed attempt to dial, 1 ms to 1 hour; it doubles each time.
    pub retry_least: Duration,
    /// Longest such pause, not less than [`Self::retry_least`], to 1 hour.
    pub retry_most: Duration,
    /// A peer's connections are lost (`ETIMEDOUT`) after this time without a channel, 100 ms to 1 day.
    pub unreachable: Duration,
    /// Longest time that a program's `connect` waits for the other host, 100 ms to 1 hour.
    pub connect: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(5),
            handshake: Duration::from_secs(5),
            silence: Duration::from_secs(15),
            retry_least: Duration::from_millis(100),
            retry_most: Duration::from_secs(30),
            unreachable: Duration::from_secs(60),
            connect: Duration::from_secs(127),
        }
    }
}

/// The limits of peers on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Virtual sockets with one peer, 1 to 1,048,576.
    pub sockets_per_peer: u32,
    /// Listeners that one peer may announce, and that are announced to it, 1 to 4096.
    pub listeners_per_peer: u32,
    /// Transport connections whose handshake is not complete, 1 to 4096.
    pub half_open: u32,
    /// Most payload bytes of a DATA frame that this host takes, 4 KiB to 1 MiB.
    pub segment: u32,
    /// Threads that move bytes between hosts, 2 to 9; 0: by the number of processors.
    pub workers: u32,
}

impl Limits {
    /// The number of threads that move bytes between hosts, if it is given.
    #[must_use]
    pub fn workers(&self) -> Option<usize> {
        let count = usize::try_from(self.workers).ok()?;
        (count > 0).then_some(count)
    }
}

/// Bounds of [`Limits::segment`].
pub(crate) const SEGMENT: (u64, u64) = (LEAST_PAYLOAD as u64, MOST_PAYLOAD as u64);

impl Default for Limits {
    fn default() -> Self {
        Self {
            sockets_per_peer: 1 << 20,
            listeners_per_peer: 1024,
            half_open: 64,
            segment: 1 << 18,
            workers: 0,
        }
    }
}

/// A key, and a mark that identifies it without showing it.
#[derive(Clone)]
pub struct SharedKey {
    key: Key,
    mark: u64,
}

impl SharedKey {
    pub(crate) fn new(key: Key, contents: &[u8]) -> Self {
        // Random for each process: it reveals nothing about the key.
        static MARKS: OnceLock<RandomState> = OnceLock::new();
        let mark = MARKS.get_or_init(RandomState::new).hash_one(contents);
        Self { key, mark }
    }

    /// The key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// Whether both were read from the same contents.
    #[must_use]
    pub const fn is_same(&self, other: &Self) -> bool {
        self.mark == other.mark
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SharedKey(..)")
    }
}

impl Configuration {
    /// The tenant of that name.
    #[must_use]
    pub fn tenant(&self, name: &str) -> Option<&Tenant> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }

    /// The stack process of that name.
    #[must_use]
    pub fn stack(&self, name: &str) -> Option<&StackTable> {
        self.stacks.iter().find(|stack| stack.name == name)
    }

    /// A peer by its name.
    #[must_use]
    pub fn peer(&self, name: &str) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.name == name)
    }

    /// The peer of a channel that comes from `source`: the peer that has it as an address, or else one whose prefixes
    /// contain it.
    #[must_use]
    pub fn peer_from(&self, source: IpAddr) -> Option<&Peer> {
        let source = source.to_canonical();
        let named = |peer: &&Peer| {
            let mut addresses = peer.addresses.iter();
            addresses.any(|address| address.ip().to_canonical() == source)
        };
        self.peers
            .iter()
            .find(named)
            .or_else(|| self.peer_for(source))
    }

    /// The peer that may announce listeners at `destination`.
    #[must_use]
    pub fn peer_for(&self, destination: IpAddr) -> Option<&Peer> {
        let mut peers = self.peers.iter();
        peers.find(|peer| peer.may_announce(destination))
    }
}

impl Peer {
    /// Whether listeners at this address may be this peer's.
    #[must_use]
    pub fn may_announce(&self, address: IpAddr) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(address))
    }
}
