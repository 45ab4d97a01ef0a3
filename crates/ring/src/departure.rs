//! The end of a queue's consumer: the consumer takes every element, or its producer sees that it did not.
//!
//! ```text
//!  consumer: LEAVES, fence, pops what there is, LEFT      producer: pushes, fence, looks
//! ```
//!
//! A producer that pushes and then finds that the consumer stays was in time: the consumer's last look comes after its
//! fence, and so after the push. A producer that finds that the consumer leaves waits until it has left, and compares
//! the index up to which it popped. A producer that waits no longer asks for another look, which the consumer may stop
//! before: its element is taken.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The consumer takes new elements.
pub const STAYS: u32 = 0;
/// The consumer looks once more.
pub const LEAVES: u32 = 1;
/// The consumer has left.
pub const LEFT: u32 = 2;
/// A producer counts on another look of the consumer that leaves.
pub const LOOKS_AGAIN: u32 = 3;

/// (consumer) Begins to leave: afterwards the consumer pops until the queue is empty, and calls [`finish`].
pub fn leave(departure: &AtomicU32) {
    departure.store(LEAVES, Ordering::Relaxed);
    // Pairs with the producer's fence between its push and [`fate`].
    fence(Ordering::SeqCst);
}

/// (consumer) Ends the departure: no more elements are popped. False when a producer counts on another look: the
/// consumer pops until the queue is empty, and calls this again.
#[must_use]
pub fn finish(departure: &AtomicU32) -> bool {
    // Release: pairs with the acquire in `fate`; `head` is final.
    let ended = departure.compare_exchange(LEAVES, LEFT, Ordering::Release, Ordering::Relaxed);
    if ended == Err(LOOKS_AGAIN) {
        leave(departure);
        return false;
    }
    true
}

/// (consumer) Ends the departure, whatever a producer counts on: a hostile one asks without end.
pub fn force(departure: &AtomicU32) {
    // Release: as in `finish`.
    departure.store(LEFT, Ordering::Release);
}

/// The fate of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is taken, now or later.
    Taken,
    /// The consumer left without it.
    Left,
    /// The consumer is leaving: look again, or [`insist`].
    Unknown,
}

/// (producer) The fate of the element behind which its index was `position`. Called after the push and a fence.
#[inline]
pub fn fate(departure: &AtomicU32, head: &AtomicU64, position: u64) -> Fate {
    // Acquire: pairs with the release in `finish`.
    match departure.load(Ordering::Acquire) {
        // After `LOOKS_AGAIN` the consumer writes `LEAVES`, fences and pops.
        STAYS | LOOKS_AGAIN => Fate::Taken,
        LEAVES => Fate::Unknown,
        // A hostile consumer harms only programs that connect to it.
        _ if head.load(Ordering::Acquire).wrapping_sub(position) < 1 << 63 => Fate::Taken,
        _ => Fate::Left,
    }
}

/// (producer) The fate of an element of which it is unknown, without waiting: asks the consumer for another look where it
/// still leaves. Called after the push and a fence. `Unknown` is not returned.
pub fn insist(departure: &AtomicU32, head: &AtomicU64, position: u64) -> Fate {
    loop {
        match fate(departure, head, position) {
            Fate::Unknown => {
                // Relaxed: the consumer's fence in `leave` pairs with the caller's.
                let (asked, failed) = (Ordering::Relaxed, Ordering::Relaxed);
                if departure
                    .compare_exchange(LEAVES, LOOKS_AGAIN, asked, failed)
                    .is_ok()
                {
                    return Fate::Taken;
                }
            }
            known => return known,
        }
    }
}
