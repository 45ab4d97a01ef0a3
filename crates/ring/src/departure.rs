//! The end of a queue's consumer: the consumer takes every element, or its producer sees that it did not.
//!
//! ```text
//!  consumer: LEAVES, fence, pops what there is, LEFT      producer: pushes, fence, looks
//! ```
//!
//! A producer that pushes and then finds that the consumer stays was in time: the consumer's last look comes after its
//! fence, and so after the push. A producer that finds that the consumer leaves waits until it has left, and compares
//! the index up to which it popped.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The consumer takes new elements.
pub const STAYS: u32 = 0;
/// The consumer looks once more.
pub const LEAVES: u32 = 1;
/// The consumer has left.
pub const LEFT: u32 = 2;

/// (consumer) Begins to leave: afterwards the consumer pops until the queue is empty, and calls [`finish`].
pub fn leave(departure: &AtomicU32) {
    departure.store(LEAVES, Ordering::Relaxed);
    // Pairs with the producer's fence between its push and [`fate`].
    fence(Ordering::SeqCst);
}

/// (consumer) Ends the departure: no more elements are popped.
pub fn finish(departure: &AtomicU32) {
    // Release: pairs with the acquire in `fate`; `head` is final.
    departure.store(LEFT, Ordering::Release);
}

/// The fate of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is taken, now or later.
    Taken,
    /// The consumer left without it.
    Left,
    /// The consumer is leaving: look again.
    Unknown,
}

/// (producer) The fate of the element behind which its index was `position`. Called after the push and a fence.
#[inline]
pub fn fate(departure: &AtomicU32, head: &AtomicU64, position: u64) -> Fate {
    // Acquire: pairs with the release in `finish`.
    match departure.load(Ordering::Acquire) {
        STAYS => Fate::Taken,
        LEAVES => Fate::Unknown,
        // A hostile consumer harms only programs that connect to it.
        _ if head.load(Ordering::Acquire).wrapping_sub(position) < 1 << 63 => Fate::Taken,
        _ => Fate::Left,
    }
}
