//! What a tenant's connections have moved. One worker writes; commands and metrics read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of one tenant. Relaxed, all: each word is read alone.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections there are.
    pub(crate) open: AtomicU64,
    /// Connections that programs made.
    pub(crate) dialed: AtomicU64,
    /// Connections that came in at published ports.
    pub(crate) accepted: AtomicU64,
    /// Destinations that `reach` does not hold.
    pub(crate) denied: AtomicU64,
    /// Connections refused because the tenant had as many as it may.
    pub(crate) over_limit: AtomicU64,
    /// Bytes to the network.
    pub(crate) bytes_out: AtomicU64,
    /// Bytes from the network.
    pub(crate) bytes_in: AtomicU64,
}

/// The values of [`Counters`] at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections there are.
    pub open: u64,
    /// Connections that programs made.
    pub dialed: u64,
    /// Connections that came in at published ports.
    pub accepted: u64,
    /// Destinations that `reach` does not hold.
    pub denied: u64,
    /// Connections refused because the tenant had as many as it may.
    pub over_limit: u64,
    /// Bytes to the network.
    pub bytes_out: u64,
    /// Bytes from the network.
    pub bytes_in: u64,
}

impl Counters {
    /// The values now.
    #[must_use]
    pub fn now(&self) -> Counts {
        Counts {
            open: self.open.load(Relaxed),
            dialed: self.dialed.load(Relaxed),
            accepted: self.accepted.load(Relaxed),
            denied: self.denied.load(Relaxed),
            over_limit: self.over_limit.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
        }
    }
}

/// Adds to a counter that no other thread writes.
pub fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
}
