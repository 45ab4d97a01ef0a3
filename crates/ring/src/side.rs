//! One side of a slot: its words are set up for a connection, and its flags say how far that has come.
//!
//! A slot is used again while the flags of its former connection still stand there. So the generation is read before
//! the flags: read after them it may be that of a connection which has begun meanwhile, and whose end those flags, of the
//! one before, seem to show.

#[cfg(not(all(test, loom)))]
use netchannel_abi::link::{Geometry, Side};

use crate::sync::{AtomicU32, Ordering};

/// (o) Sets the words of this side up for a connection with this generation, whose transmit ring is `ring`.
#[cfg(not(all(test, loom)))]
pub fn set_up(side: &Side, generation: u32, ring: Geometry) {
    side.geometry.store(ring.to_word(), Ordering::Relaxed);
    for word in [
        &side.tail,
        &side.head,
        &side.switch_sequence,
        &side.held,
        &side.urgent,
        &side.passed,
        &side.liveness,
        &side.congestion[0],
        &side.congestion[1],
    ] {
        word.store(0, Ordering::Relaxed);
    }
    for word in [
        &side.tokens,
        &side.hints,
        &side.row,
        &side.wanted_ring,
        &side.asked,
        &side.waiter,
        &side.error,
    ] {
        word.store(0, Ordering::Relaxed);
    }
    begin(&side.flags, &side.generation, generation);
}

/// The flags of a side for the connection with this generation; none while the side is not set up for it.
#[cfg(not(all(test, loom)))]
#[inline]
#[must_use]
pub fn flags(side: &Side, generation: u32) -> u32 {
    flags_of(&side.flags, &side.generation, generation)
}

#[inline]
pub(crate) fn begin(flags: &AtomicU32, generation: &AtomicU32, of: u32) {
    flags.store(0, Ordering::Relaxed);
    // Release: pairs with the acquire in `flags_of`. Who sees the generation sees the words of this connection.
    generation.store(of, Ordering::Release);
}

#[inline]
pub(crate) fn flags_of(flags: &AtomicU32, generation: &AtomicU32, of: u32) -> u32 {
    // Acquire: pairs with the release in `begin`. The flags below are of this connection, or of a later one.
    if generation.load(Ordering::Acquire) != of {
        return 0;
    }
    // Acquire: pairs with the releases with which the side sets its flags. What it did before is seen.
    flags.load(Ordering::Acquire)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn flags_are_of_one_connection() {
        let [word, generation] = [(); 2].map(|()| AtomicU32::new(0));
        begin(&word, &generation, 7);
        word.store(5, Ordering::Release);
        assert_eq!(flags_of(&word, &generation, 7), 5);
        assert_eq!(flags_of(&word, &generation, 8), 0);
        begin(&word, &generation, 8);
        assert_eq!(flags_of(&word, &generation, 8), 0);
        assert_eq!(flags_of(&word, &generation, 7), 0);
    }
}
