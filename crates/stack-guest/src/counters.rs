//! What the guest's connections have moved.

use std::sync::atomic::{AtomicU64, Ordering};

/// What was moved. One worker writes; relaxed, all: each word is read alone.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections there are.
    pub open: AtomicU64,
    /// Bytes to the host.
    pub bytes_out: AtomicU64,
    /// Bytes from the host.
    pub bytes_in: AtomicU64,
}

impl Counters {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, count: u64) {
        let now = counter.load(Ordering::Relaxed).wrapping_add(count);
        counter.store(now, Ordering::Relaxed);
    }
}
