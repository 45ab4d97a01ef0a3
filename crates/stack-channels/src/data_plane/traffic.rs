//! The traffic of a channel and the status of its transport. Its workers write these words, and any thread reads them.

use netchannel_abi::link::MOST_RING_LOG2;
use netchannel_driver::Status;
use netchannel_service::timers::nanoseconds;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A peer with a shorter round trip than this, in nanoseconds, is near.
const NEAR: u64 = 250_000;
/// For a near peer a ring of this size keeps 30 Gbit/s in flight. A larger one would only hold more bytes that the
/// program has not read, and no cache could hold the rings of many such programs.
const NEAR_RING_LOG2: u32 = 20;

/// Counters of bytes and pieces. Readers need no order between them.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Stream bytes given to the channel.
    pub bytes_sent: AtomicU64,
    /// Stream bytes received from it.
    pub bytes_received: AtomicU64,
    /// Segments given to it.
    pub segments_sent: AtomicU64,
    /// Segments received from it.
    pub segments_received: AtomicU64,
    /// Frames without payload given to it.
    pub control_sent: AtomicU64,
    /// Frames without payload received from it.
    pub control_received: AtomicU64,
    /// Calls that wrote to it.
    pub writes: AtomicU64,
    /// Calls that read from it.
    pub reads: AtomicU64,
    /// The part of the sent bytes that was sent before.
    pub bytes_repeated: AtomicU64,
}

impl Traffic {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Ordering::Relaxed);
    }

    fn all(&self) -> [&AtomicU64; 9] {
        [
            &self.bytes_sent,
            &self.bytes_received,
            &self.segments_sent,
            &self.segments_received,
            &self.control_sent,
            &self.control_received,
            &self.writes,
            &self.reads,
            &self.bytes_repeated,
        ]
    }

    /// Adds the counters of another channel.
    pub fn absorb(&self, other: &Self) {
        for (own, other) in self.all().into_iter().zip(other.all()) {
            Self::add(own, other.load(Ordering::Relaxed));
        }
    }

    /// The counters for display.
    #[must_use]
    pub fn shown(&self) -> netchannel_control::hosts::Traffic {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        netchannel_control::hosts::Traffic {
            sent_bytes: read(&self.bytes_sent),
            received_bytes: read(&self.bytes_received),
            sent_segments: read(&self.segments_sent),
            received_segments: read(&self.segments_received),
            sent_control: read(&self.control_sent),
            received_control: read(&self.control_received),
            repeated_bytes: read(&self.bytes_repeated),
            writes: read(&self.writes),
            reads: read(&self.reads),
        }
    }
}

/// The last known status of the transport.
#[derive(Debug, Default)]
pub struct Seen {
    /// Bytes that it took and has not sent.
    pub unsent: AtomicU64,
    /// Bytes that it sent and that are not acknowledged.
    pub unacknowledged: AtomicU64,
    /// Round trip time in nanoseconds; 0 while not known.
    pub round_trip: AtomicU64,
    /// The shortest recent round trip time.
    pub least_round_trip: AtomicU64,
    /// The number of retransmitted packets.
    pub retransmissions: AtomicU64,
    /// The congestion window limits the transport.
    pub congestion_limited: AtomicBool,
}

impl Seen {
    /// The largest useful receive ring for this channel, as a logarithm.
    pub fn most_ring(&self) -> u32 {
        match self.least_round_trip.load(Ordering::Relaxed) {
            1..NEAR => NEAR_RING_LOG2,
            _ => MOST_RING_LOG2,
        }
    }

    /// Whether the peer is known to be far.
    pub fn is_far(&self) -> bool {
        self.least_round_trip.load(Ordering::Relaxed) >= NEAR
    }

    /// Stores a status.
    pub fn note(&self, status: &Status) {
        let set = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
        set(&self.unsent, status.unsent);
        let sent = status.unacknowledged.saturating_sub(status.unsent);
        set(&self.unacknowledged, sent);
        set(&self.round_trip, nanoseconds(status.round_trip));
        set(&self.least_round_trip, nanoseconds(status.least_round_trip));
        set(&self.retransmissions, status.retransmissions);
        self.congestion_limited
            .store(status.congestion_limited, Ordering::Relaxed);
    }
}
