//! The unit of every time of this crate: nanoseconds of any monotonic clock.

/// Length of one second.
pub const SECOND: u64 = 1_000_000_000;

/// Length of one millisecond.
pub const MILLISECOND: u64 = 1_000_000;
