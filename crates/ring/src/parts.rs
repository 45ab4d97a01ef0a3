//! One transfer in parts that several threads copy: which thread takes which part, which parts are done, and when the
//! description of the transfer may be overwritten.
//!
//! ```text
//!  owner:   describe -> open (Release) ----------> claim ... close -> all claimed parts done? (Acquire) -> describe...
//!  helper:               claim (Acquire) -> read the description -> copy -> finish (Release)
//! ```
//!
//! A part is claimed once. The word that is compared and swapped contains the number of the transfer, so a thread that
//! looked at a former transfer claims nothing of a later one. A thread that has claimed a part may read the description
//! until it has finished the part, since the owner waits for that.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Most parts of a transfer: a bit each, and one bit for the owner's sleep.
pub const MOST: u32 = 31;
/// Bit of the word of done parts: the owner sleeps on the word.
const OWNER_SLEEPS: u32 = 1 << 31;

/// The word of claims: the next part to claim in the lower 16 bits, the number of parts in the next 16, the number of
/// the transfer above.
const NEXT: u64 = 0xffff;

/// The shared words of a transfer.
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

/// The lowest `count` bits.
const fn first_bits(count: u32) -> u32 {
    if count >= MOST {
        OWNER_SLEEPS - 1
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

    /// Opens a transfer of `parts` parts (at most [`MOST`]), of which the owner has the first `own` without a claim.
    /// Called by the owner after describing the transfer, when the one before is closed and done.
    pub fn open(&self, own: u32, parts: u32) {
        let parts = parts.min(MOST);
        let number = (self.claims.load(Ordering::Relaxed) >> 32).wrapping_add(1) << 32;
        // Relaxed: no thread changes it before a claim, which comes after the release below.
        self.done.store(0, Ordering::Relaxed);
        let claims = number | u64::from(parts) << 16 | u64::from(own.min(parts));
        // Release: pairs with the acquire in `claim`; the description is complete.
        self.claims.store(claims, Ordering::Release);
    }

    /// Claims the next part.
    #[inline]
    pub fn claim(&self) -> Option<u32> {
        let mut seen = self.claims.load(Ordering::Relaxed);
        while next(seen) < count(seen) {
            // Acquire: pairs with the release in `open`, also through the claims of other threads.
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

    /// Whether there seem to be parts to claim.
    #[inline]
    pub fn has_parts(&self) -> bool {
        let seen = self.claims.load(Ordering::Relaxed);
        next(seen) < count(seen)
    }

    /// Finishes a part, copied or not. True when the owner sleeps on [`Self::word`] and must be woken.
    pub fn finish(&self, part: u32) -> bool {
        // Release: pairs with the acquire in `done`; the bytes are there and the description is no longer read.
        self.done.fetch_or(1 << part, Ordering::Release) & OWNER_SLEEPS != 0
    }

    /// Ends the claims. Returns the parts that were claimed or are the owner's, a bit each.
    pub fn close(&self) -> u32 {
        // Relaxed: the claims are in this very word, the finished parts in the other.
        let seen = self.claims.fetch_or(NEXT, Ordering::Relaxed);
        first_bits(next(seen).min(count(seen)))
    }

    /// The finished parts, a bit each.
    #[inline]
    pub fn done(&self) -> u32 {
        // Acquire: pairs with the release in `finish`.
        self.done.load(Ordering::Acquire) & !OWNER_SLEEPS
    }

    /// Announces that the owner is about to sleep until the next `finish`, and returns the value of [`Self::word`] to
    /// sleep on. The owner looks once more.
    pub fn announce_sleep(&self) -> u32 {
        self.done.fetch_or(OWNER_SLEEPS, Ordering::Acquire) | OWNER_SLEEPS
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
        assert!(parts.has_parts());
        assert_eq!(
            [parts.claim(), parts.claim(), parts.claim()],
            [Some(1), Some(2), Some(3)]
        );
        assert_eq!(parts.claim(), None);
        assert!(!parts.has_parts());
        assert!(!parts.finish(0) && !parts.finish(2));
        assert_eq!(parts.done(), 0b101);
        assert_eq!(parts.announce_sleep(), OWNER_SLEEPS | 0b101);
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
        assert_eq!(
            (parts.close(), parts.done()),
            (OWNER_SLEEPS - 1, OWNER_SLEEPS - 1)
        );
    }
}
