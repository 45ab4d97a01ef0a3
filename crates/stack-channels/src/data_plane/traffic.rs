//! What moved on a channel, and how its transport is: words that its workers write and anybody reads.

use netchannel_abi::link::MOST_RING_LOG2;
use netchannel_driver::Status;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A peer is near whose round trip takes less than so many nanoseconds.
const NEAR: u64 = 250_000;
/// From there a ring of this size keeps 30 Gbit/s on their way. A larger one would only hold more that the program has not read, and no
/// cache holds the rings of many such programs.
const NEAR_RING_LOG2: u32 = 20;

/// What moved, and in how many pieces. Whoever reads wants no order between them.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Bytes of streams given to the channel.
    pub bytes_sent: AtomicU64,
    /// Bytes of streams that it brought.
    pub bytes_received: AtomicU64,
    /// Segments given to it.
    pub segments_sent: AtomicU64,
    /// Segments that it brought.
    pub segments_received: AtomicU64,
    /// Frames without payload given to it.
    pub control_sent: AtomicU64,
    /// Frames without payload that it brought.
    pub control_received: AtomicU64,
    /// Calls that wrote to it.
    pub writes: AtomicU64,
    /// Calls that read from it.
    pub reads: AtomicU64,
    /// Of the bytes sent, those that had been sent before.
    pub bytes_repeated: AtomicU64,
}

impl Traffic {
    /// Counts.
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

    /// Takes in what another one counted.
    pub fn absorb(&self, other: &Self) {
        for (own, other) in self.all().into_iter().zip(other.all()) {
            Self::add(own, other.load(Ordering::Relaxed));
        }
    }

    /// As it is shown.
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

/// How the transport was when its worker looked last.
#[derive(Debug, Default)]
pub struct Seen {
    /// Bytes that it took and has not sent.
    pub unsent: AtomicU64,
    /// Bytes that it sent and that are not acknowledged.
    pub unacknowledged: AtomicU64,
    /// Round trip time in nanoseconds; 0 while not known.
    pub round_trip: AtomicU64,
    /// The shortest of late.
    pub least_round_trip: AtomicU64,
    /// Packets that it sent again.
    pub retransmissions: AtomicU64,
    /// It is held back by its congestion window.
    pub congestion_limited: AtomicBool,
}

impl Seen {
    /// How large a ring for what it brings is worth while, as a logarithm.
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

    /// Takes note.
    pub fn note(&self, status: &Status) {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
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
