//! Atomics of the machine, or loom's when its models run.

#[cfg(not(all(test, loom)))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(all(test, loom))]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
