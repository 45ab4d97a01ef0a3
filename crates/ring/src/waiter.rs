//! The waiter word of one side of a connection: which sleepers the peer must wake.
//!
//! The sleeper sets its bits and looks again; the peer publishes and looks at the bits. The two sequentially consistent
//! fences make sure that at least one of them sees the other (Dekker). So no wake-up is lost, and none is sent while
//! both are awake.

use crate::sync::{AtomicU32, Ordering, fence};
use netchannel_abi::link::waiter::{CELL_MASK, CELL_SHIFT, CELL_SPACE, DATA, SPACE};

/// What the peer of a sleeper has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// Write one token to the anchor: a thread sleeps on this very socket.
    pub token: bool,
    /// Mark the socket ready in this cell.
    pub cell: Option<usize>,
}

/// Announces that the caller is about to sleep for `bits` ([`DATA`], [`SPACE`]). Afterwards the caller must look once
/// more at what it waits for.
#[inline]
pub fn arm(word: &AtomicU32, bits: u32) {
    word.fetch_or(bits, Ordering::Relaxed);
    // Pairs with the fence in `announce`.
    fence(Ordering::SeqCst);
}

/// Takes `bits` back.
#[inline]
pub fn disarm(word: &AtomicU32, bits: u32) {
    if word.load(Ordering::Relaxed) & bits != 0 {
        word.fetch_and(!bits, Ordering::Relaxed);
    }
}

/// Assigns the socket to the event loop of `cell`, or to none. Afterwards the caller must look once more: earlier
/// announcements went to the former loop, or to none.
pub fn attach_cell(word: &AtomicU32, cell: Option<usize>) {
    let number = cell
        .and_then(|index| u32::try_from(index).ok()?.checked_add(1))
        .unwrap_or(0);
    word.fetch_and(!CELL_MASK, Ordering::Relaxed);
    arm(word, number << CELL_SHIFT & CELL_MASK);
}

/// Called after bytes, an end or a reset were published to the owner of `word`.
#[inline]
pub fn announce_data(word: &AtomicU32) -> Option<Wake> {
    // Pairs with the fence in `arm`.
    fence(Ordering::SeqCst);
    let seen = word.load(Ordering::Relaxed);
    if seen & (DATA | CELL_MASK) == 0 {
        return None;
    }
    Some(wake(word, seen, DATA))
}

/// Called after room was published to the owner of `word`.
#[inline]
pub fn announce_space(word: &AtomicU32) -> Option<Wake> {
    // Pairs with the fence in `arm`.
    fence(Ordering::SeqCst);
    let seen = word.load(Ordering::Relaxed);
    if seen & (SPACE | CELL_SPACE) == 0 {
        return None;
    }
    Some(wake(word, seen, SPACE | CELL_SPACE))
}

/// Takes `bits` and returns what they ask for. The bits that were taken count, not those that were seen before: a bit
/// that was armed in between is taken too.
#[cold]
fn wake(word: &AtomicU32, seen: u32, bits: u32) -> Wake {
    let taken = if seen & bits == 0 {
        seen
    } else {
        // Acquire: the sleeper's stores before it armed are seen. Release: pairs with its next arm.
        word.fetch_and(!bits, Ordering::AcqRel)
    };
    let wants_cell = bits & DATA != 0 || taken & CELL_SPACE != 0;
    Wake {
        token: taken & bits & (DATA | SPACE) != 0,
        cell: cell_of(taken).filter(|_| wants_cell),
    }
}

/// The cell whose event loop has the socket, according to the word `seen`.
#[inline]
pub const fn cell_of(seen: u32) -> Option<usize> {
    let number = (seen & CELL_MASK) >> CELL_SHIFT;
    (number as usize).checked_sub(1)
}
