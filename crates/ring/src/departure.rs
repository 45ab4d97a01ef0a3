//! The end of a queue's consumer: every element is taken by it, or seen not to be by who pushed it.
//!
//! ```text
//!  consumer: LEAVES, fence, pops what there is, LEFT      producer: pushes, fence, looks
//! ```
//!
//! Who pushes and then finds that the consumer stays was in time: the consumer's last look comes after its fence, and so after the push.
//! Who finds that it leaves waits until it has left, and compares the index up to which it popped.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The consumer takes what comes.
pub const STAYS: u32 = 0;
/// It looks once more.
pub const LEAVES: u32 = 1;
/// It has.
pub const LEFT: u32 = 2;

/// (consumer) Pops once more after this, until nothing is there, and then has [`left`].
pub fn leave(departure: &AtomicU32) {
    departure.store(LEAVES, Ordering::Relaxed);
    // Pairs with the producer's fence between its push and [`fate`].
    fence(Ordering::SeqCst);
}

/// (consumer) Nothing more is popped.
pub fn left(departure: &AtomicU32) {
    // Release: pairs with the acquire in `fate`, `head` is the last one.
    departure.store(LEFT, Ordering::Release);
}

/// What becomes of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is taken, now or later.
    Taken,
    /// The consumer left without it.
    Left,
    /// The consumer is leaving: look again.
    Unknown,
}

/// (producer) What becomes of the element after which its index was `position`, asked after the push and a fence.
#[inline]
pub fn fate(departure: &AtomicU32, head: &AtomicU64, position: u64) -> Fate {
    // Acquire: pairs with the release in `left`.
    match departure.load(Ordering::Acquire) {
        STAYS => Fate::Taken,
        LEAVES => Fate::Unknown,
        // What a hostile consumer writes harms nobody but those who connect to it.
        _ if head.load(Ordering::Acquire).wrapping_sub(position) < 1 << 63 => Fate::Taken,
        _ => Fate::Left,
    }
}
