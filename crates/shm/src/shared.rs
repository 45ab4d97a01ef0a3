//! The types that may be accessed in memory that another process writes.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};
use netchannel_abi::{answer, directory, link, program};

/// Types that stay valid whatever bytes another process writes into them at any time.
///
/// # Safety
/// Only for types made of atomics (and padding words that no code reads): every bit pattern is valid and concurrent
/// writes are no data race.
pub unsafe trait Shared {}

macro_rules! shared {
    ($($type:ty),* $(,)?) => {
        $(
            // SAFETY: atomics, and structures of atomics with unread padding words.
            unsafe impl Shared for $type {}
        )*
    };
}

shared!(
    AtomicI32,
    AtomicU32,
    AtomicU64,
    [AtomicU64; 4],
    answer::Answer,
    link::Header,
    link::QueueIndices,
    link::Cell,
    link::Slot,
    program::Header,
    program::Holder,
    program::SocketEntry,
    directory::Header,
    directory::Entry,
);
