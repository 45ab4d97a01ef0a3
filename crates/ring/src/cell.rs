//! The ready map and the sleep word of one event loop, which finds the slots with news without a scan of all slots.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Marks `slot` ready. True when the loop sleeps and the caller now owes it a token.
///
/// `summary` and `ready` are the maps of a cell; a slot beyond them is not marked. The caller comes from
/// `waiter::announce_*`, whose fence orders its publication before the look at the bit: a caller that finds the bit set
/// does not write it again, so nothing else would order it.
#[inline]
pub fn mark(asleep: &AtomicU32, summary: &[AtomicU64], ready: &[AtomicU64], slot: usize) -> bool {
    if !note(summary, ready, slot) {
        return false;
    }
    // Pairs with the fence in `sleep`.
    fence(Ordering::SeqCst);
    asleep.load(Ordering::Relaxed) == 1 && asleep.swap(0, Ordering::AcqRel) == 1
}

/// Marks `slot` ready, and leaves the loop asleep: for who knows that another one wakes it. False where the cell has no
/// such slot.
#[inline]
pub fn note(summary: &[AtomicU64], ready: &[AtomicU64], slot: usize) -> bool {
    let word = slot / 64;
    let (Some(bits), Some(above)) = (ready.get(word), summary.get(word / 64)) else {
        return false;
    };
    let bit = 1 << (slot % 64);
    // Release: pairs with the swap in `take`, so that the loop that takes the bit sees the publication.
    if bits.load(Ordering::Relaxed) & bit == 0 && bits.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
        let bit = 1 << (word % 64);
        if above.load(Ordering::Relaxed) & bit == 0 {
            above.fetch_or(bit, Ordering::AcqRel);
        }
    }
    true
}

/// Whether the caller may skip a token that it has just come to owe, if [`any_marked`] finds nothing marked when the
/// token is to be written: the loop that takes the present marks is awake, and looks once more before it sleeps. Where
/// nothing is marked now, the loop may have taken the mark before it fell asleep, and does not know of the claim.
#[inline]
#[must_use]
pub fn may_skip_token(summary: &[AtomicU64]) -> bool {
    // Behind the swap in `mark`, which reads the value that `sleep` stored. A loop took its marks before that store,
    // with the fence in `take` in between. So marks that it took before it slept are not seen here.
    any_marked(summary)
}

/// Whether any slot is marked. Cheap: reads only the summary.
#[inline]
#[must_use]
pub fn any_marked(summary: &[AtomicU64]) -> bool {
    summary.iter().any(|word| word.load(Ordering::Relaxed) != 0)
}

/// Takes all marks and calls `each` with every marked slot. The peer can write the maps: `each` must expect slots that
/// the link does not have, and slots without news.
pub fn take(summary: &[AtomicU64], ready: &[AtomicU64], mut each: impl FnMut(usize)) {
    for (high, above) in summary.iter().enumerate() {
        if above.load(Ordering::Relaxed) == 0 {
            continue;
        }
        // The summary is taken first: a mark made afterwards sets the summary again.
        let mut words = above.swap(0, Ordering::AcqRel);
        while words != 0 {
            let word = high * 64 + words.trailing_zeros() as usize;
            words &= words - 1;
            let Some(bits) = ready.get(word) else {
                continue;
            };
            // Acquire: pairs with the release in `mark`.
            let mut slots = bits.swap(0, Ordering::AcqRel);
            // Pairs with the fence in `waiter::announce_data`: the publication of a peer that found its bit already set
            // is seen.
            fence(Ordering::SeqCst);
            while slots != 0 {
                each(word * 64 + slots.trailing_zeros() as usize);
                slots &= slots - 1;
            }
        }
    }
}

/// Announces that the loop is about to sleep; afterwards the caller must look at [`any_marked`] once more.
#[inline]
pub fn sleep(asleep: &AtomicU32) {
    asleep.store(1, Ordering::Relaxed);
    // Pairs with the fence in `mark`.
    fence(Ordering::SeqCst);
}

/// Ends the sleep.
#[inline]
pub fn wake(asleep: &AtomicU32) {
    if asleep.load(Ordering::Relaxed) != 0 {
        asleep.store(0, Ordering::Relaxed);
    }
}
