//! One transfer in parts that several threads copy: who takes which part, which are there, and that what describes the
//! transfer is not written anew while anybody still reads it.
//!
//! ```text
//!  owner:   describe -> open (Release) ----------> claim ... close -> all that were claimed done? (Acquire) -> describe the next
//!  helper:               claim (Acquire) -> read the description -> copy -> finish (Release)
//! ```
//!
//! A part is claimed once: the word that is compared and swapped has the number of the transfer in it, so that who looked at a
//! former transfer claims nothing of a later one. Who has claimed a part may read the description until it has said that
//! the part is there, since the owner waits for that.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Most parts of a transfer: a bit each, and one for the owner that sleeps.
pub const MOST: u32 = 31;
/// Bit of the word of done parts: the owner sleeps on it.
const WAITS: u32 = 1 << 31;

/// The part that is claimed next, in the lower 16 bits of the word of claims; how many there are, in the next 16; the
/// number of the transfer above.
const NEXT: u64 = 0xffff;

/// What threads tell each other of a transfer.
#[derive(Debug)]
pub struct Parts {
    claims: AtomicU64,
    done: AtomicU32,
}

impl Default for Parts {
    fn default() -> Self {
        Self::new()
    }
}

const fn next(claims: u64) -> u32 {
    (claims & NEXT) as u32
}

const fn count(claims: u64) -> u32 {
    (claims >> 16 & 0xffff) as u32
}

/// So many bits, from the lowest on.
const fn first_bits(count: u32) -> u32 {
    if count >= MOST {
        WAITS - 1
    } else {
        (1 << count) - 1
    }
}

impl Parts {
    /// No transfer.
    #[cfg(not(all(test, loom)))]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            claims: AtomicU64::new(0),
            done: AtomicU32::new(0),
        }
    }

    /// No transfer.
    #[cfg(all(test, loom))]
    #[must_use]
    pub fn new() -> Self {
        Self {
            claims: AtomicU64::new(0),
            done: AtomicU32::new(0),
        }
    }

    /// Opens a transfer of `parts` parts (at most [`MOST`]), the first `own` of which are the owner's without a claim. Only
    /// the owner, who has described it, and only when the transfer before is closed and done.
    pub fn open(&self, own: u32, parts: u32) {
        let parts = parts.min(MOST);
        let number = (self.claims.load(Ordering::Relaxed) >> 32).wrapping_add(1) << 32;
        // Relaxed: nobody adds to it before a claim, which the release below comes before.
        self.done.store(0, Ordering::Relaxed);
        let claims = number | u64::from(parts) << 16 | u64::from(own.min(parts));
        // Release: pairs with the acquire in `claim`, the description is there.
        self.claims.store(claims, Ordering::Release);
    }

    /// Takes the next part that nobody has.
    #[inline]
    pub fn claim(&self) -> Option<u32> {
        let mut seen = self.claims.load(Ordering::Relaxed);
        while next(seen) < count(seen) {
            // Acquire: pairs with the release in `open`, through the claims of others.
            match self.claims.compare_exchange_weak(
                seen,
                seen + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(next(seen)),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Whether a look suggests that parts can be claimed.
    #[inline]
    pub fn any(&self) -> bool {
        let seen = self.claims.load(Ordering::Relaxed);
        next(seen) < count(seen)
    }

    /// A part is there, or will not be. True when the owner sleeps on [`Self::word`] and must be woken.
    pub fn finish(&self, part: u32) -> bool {
        // Release: pairs with the acquire in `done`, its bytes are there and the description is no longer read.
        self.done.fetch_or(1 << part, Ordering::Release) & WAITS != 0
    }

    /// Lets nobody claim any more. Returns the parts that were claimed or are the owner's, a bit each.
    pub fn close(&self) -> u32 {
        // Relaxed: what was claimed is seen in this very word, what came of it in the other.
        let seen = self.claims.fetch_or(NEXT, Ordering::Relaxed);
        first_bits(next(seen).min(count(seen)))
    }

    /// The parts that are there, a bit each.
    #[inline]
    pub fn done(&self) -> u32 {
        // Acquire: pairs with the release in `finish`.
        self.done.load(Ordering::Acquire) & !WAITS
    }

    /// The owner is about to sleep until the next `finish`: what [`Self::word`] holds meanwhile. It looks once more.
    pub fn lie_down(&self) -> u32 {
        self.done.fetch_or(WAITS, Ordering::Acquire) | WAITS
    }

    /// The word to sleep on.
    pub const fn word(&self) -> &AtomicU32 {
        &self.done
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_claimed_once_and_told() {
        let parts = Parts::new();
        assert_eq!(parts.claim(), None);
        parts.open(1, 4);
        assert!(parts.any());
        assert_eq!(
            [parts.claim(), parts.claim(), parts.claim()],
            [Some(1), Some(2), Some(3)]
        );
        assert_eq!(parts.claim(), None);
        assert!(!parts.any());
        assert!(!parts.finish(0) && !parts.finish(2));
        assert_eq!(parts.done(), 0b101);
        assert_eq!(parts.lie_down(), WAITS | 0b101);
        assert!(parts.finish(1) && parts.finish(3));
        assert_eq!((parts.close(), parts.done()), (0b1111, 0b1111));
    }

    #[test]
    fn what_is_closed_is_claimed_by_nobody() {
        let parts = Parts::new();
        parts.open(0, 8);
        assert_eq!(parts.claim(), Some(0));
        assert_eq!(parts.close(), 1);
        assert_eq!(parts.claim(), None);
        parts.open(2, 2);
        assert_eq!((parts.claim(), parts.close()), (None, 0b11));
    }

    #[test]
    fn all_bits_are_used() {
        let parts = Parts::new();
        parts.open(0, 100);
        for part in 0..MOST {
            assert_eq!(parts.claim(), Some(part));
            parts.finish(part);
        }
        assert_eq!(parts.claim(), None);
        assert_eq!((parts.close(), parts.done()), (WAITS - 1, WAITS - 1));
    }
}
