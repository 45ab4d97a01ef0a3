//! The input of the policies: plain values, filled in by the engine.

use core::fmt;
use core::str::FromStr;

use crate::rate::Rate;

/// What a socket, a channel or a worker is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Short messages, which must not wait (L).
    Latency,
    /// Bulk data (T).
    Throughput,
}

impl Class {
    /// Both, the more urgent one first.
    pub const ALL: [Self; 2] = [Self::Latency, Self::Throughput];

    /// 0 for latency, 1 for throughput.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Latency => 0,
            Self::Throughput => 1,
        }
    }

    /// The one that this is not.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Latency => Self::Throughput,
            Self::Throughput => Self::Latency,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
        })
    }
}

/// A word that names no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownClass;

impl fmt::Display for UnknownClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a class is latency (or L), or throughput (or T)")
    }
}

impl std::error::Error for UnknownClass {}

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(text: &str) -> Result<Self, UnknownClass> {
        match text {
            "latency" | "l" | "L" => Ok(Self::Latency),
            "throughput" | "t" | "T" => Ok(Self::Throughput),
            _ => Err(UnknownClass),
        }
    }
}

/// A channel to one peer. The class is part of the name: both ends state it in HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId {
    /// The class of its traffic.
    pub class: Class,
    /// The number within the class, as in HELLO.
    pub number: u32,
}

impl fmt::Display for ChannelId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.class {
            Class::Latency => 'L',
            Class::Throughput => 'T',
        };
        write!(formatter, "{letter}{}", self.number)
    }
}

/// A worker thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

/// A logical processor, as the kernel numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(pub u16);

/// A tenant, as a small number: tables are as long as the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

/// A virtual socket, as a small number: tables are as long as the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u32);

/// The phase of a channel's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Being dialled, or before its HELLO is answered.
    Opening,
    /// Carries segments.
    Up,
    /// Finishes what it has; takes no new segment.
    Draining,
}

/// One channel to the peer in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelView {
    /// Its name, which includes the class.
    pub id: ChannelId,
    /// Its worker.
    pub worker: WorkerId,
    /// Whether it takes segments.
    pub phase: Phase,
    /// Bytes that wait for the worker.
    pub queued: u64,
    /// Bytes that the transport took and has not sent yet (`SIOCOUTQNSD`).
    pub unsent: u64,
    /// Round trip time in nanoseconds; 0 while not known.
    pub round_trip: u64,
    /// The transport is held back by its congestion window.
    pub congestion_limited: bool,
}

impl ChannelView {
    /// A channel that is up and has nothing to do.
    #[must_use]
    pub const fn idle(id: ChannelId, worker: WorkerId) -> Self {
        Self {
            id,
            worker,
            phase: Phase::Up,
            queued: 0,
            unsent: 0,
            round_trip: 0,
            congestion_limited: false,
        }
    }

    /// Bytes that a new segment would have before it.
    #[must_use]
    pub const fn occupancy(&self) -> u64 {
        self.queued.saturating_add(self.unsent)
    }

    /// Whether it takes segments.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up)
    }
}

/// One virtual socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketView {
    /// Its number.
    pub id: SocketId,
    /// The tenant.
    pub tenant: TenantId,
    /// See [`crate::classify()`].
    pub class: Class,
    /// Bytes in its transmit ring that have not been sent.
    pub ready: u64,
    /// Bytes that the receiver still has room for.
    pub window: u64,
    /// The channel of its last segment.
    pub last_channel: Option<ChannelId>,
}

impl SocketView {
    /// Bytes that may be sent now: never beyond the window, so that no socket can block another on a channel.
    #[must_use]
    pub fn sendable(&self) -> u64 {
        self.ready.min(self.window)
    }
}

/// One worker, over the time since the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// Its number.
    pub id: WorkerId,
    /// Its core, if it is placed.
    pub core: Option<CoreId>,
    /// Share of the time that it worked, 0 to 1000.
    pub utilisation: u16,
}

/// The entitlements of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantView {
    /// Its number.
    pub id: TenantId,
    /// Share against other tenants; 0 counts as 1.
    pub weight: u16,
    /// Cap in bytes per second.
    pub bytes: Option<Rate>,
    /// Cap in operations per second: segments granted, and what [`crate::OrderPolicy::admit`] is asked for.
    pub operations: Option<Rate>,
}

impl TenantView {
    /// Weight 1, no caps.
    #[must_use]
    pub const fn unlimited(id: TenantId) -> Self {
        Self {
            id,
            weight: 1,
            bytes: None,
            operations: None,
        }
    }
}
