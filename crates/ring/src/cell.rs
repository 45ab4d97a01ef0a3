//! The ready map and the sleep word of one event loop: what has news, found without a scan of all.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Marks `slot` ready. True when the loop sleeps and the caller now owes it a token.
///
/// `summary` and `ready` are the maps of a cell; a slot beyond them is not marked. The caller comes
/// from `waiter::announce_*`, whose fence orders what it published before the look at the bit: who
/// finds the bit set does not write it again, so nothing else would order it.
#[inline]
pub fn mark(asleep: &AtomicU32, summary: &[AtomicU64], ready: &[AtomicU64], slot: usize) -> bool {
    let word = slot / 64;
    let (Some(bits), Some(above)) = (ready.get(word), summary.get(word / 64)) else {
        return false;
    };
    let bit = 1 << (slot % 64);
    // Release: pairs with the swap in `take`, so that who takes the bit sees what was published.
    if bits.load(Ordering::Relaxed) & bit == 0 && bits.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
        let bit = 1 << (word % 64);
        if above.load(Ordering::Relaxed) & bit == 0 {
            above.fetch_or(bit, Ordering::AcqRel);
        }
    }
    // Pairs with the fence in `sleep`.
    fence(Ordering::SeqCst);
    asleep.load(Ordering::Relaxed) == 1 && asleep.swap(0, Ordering::AcqRel) == 1
}

/// Whether a token that has just come to be owed may be left unwritten, should [`any`] find nothing marked when it is to be
/// written: whoever takes what is marked now is awake, and sleeps only behind another look. Where nothing is marked, the loop
/// may have taken it before it fell asleep, and never hear that it was claimed since.
#[inline]
#[must_use]
pub fn may_be_left(summary: &[AtomicU64]) -> bool {
    // Behind the swap in `mark`, which reads what `sleep` stored; a loop took its marks before, and the fence in `take` lies
    // between. So what it took before it slept is not seen as marked here.
    any(summary)
}

/// Whether anything is marked. Cheap: reads only the summary.
#[inline]
#[must_use]
pub fn any(summary: &[AtomicU64]) -> bool {
    summary.iter().any(|word| word.load(Ordering::Relaxed) != 0)
}

/// Takes all marks, calling `each` with every slot that had one. The maps are the peer's to write:
/// `each` must expect slots that the link does not have, and slots without news.
pub fn take(summary: &[AtomicU64], ready: &[AtomicU64], mut each: impl FnMut(usize)) {
    for (high, above) in summary.iter().enumerate() {
        if above.load(Ordering::Relaxed) == 0 {
            continue;
        }
        // The summary goes first: a mark made after it sets the summary again.
        let mut words = above.swap(0, Ordering::AcqRel);
        while words != 0 {
            let word = high * 64 + words.trailing_zeros() as usize;
            words &= words - 1;
            let Some(bits) = ready.get(word) else {
                continue;
            };
            // Acquire: pairs with the release in `mark`.
            let mut slots = bits.swap(0, Ordering::AcqRel);
            // Pairs with the fence in `waiter::announce_data`: who found its bit already set is seen.
            fence(Ordering::SeqCst);
            while slots != 0 {
                each(word * 64 + slots.trailing_zeros() as usize);
                slots &= slots - 1;
            }
        }
    }
}

/// Declares that the loop is about to sleep; after it the caller must look at [`any`] once more.
#[inline]
pub fn sleep(asleep: &AtomicU32) {
    asleep.store(1, Ordering::Relaxed);
    // Pairs with the fence in `mark`.
    fence(Ordering::SeqCst);
}

/// The loop is awake again.
#[inline]
pub fn wake(asleep: &AtomicU32) {
    if asleep.load(Ordering::Relaxed) != 0 {
        asleep.store(0, Ordering::Relaxed);
    }
}
