//! Time on the hot path: the processor's counter, in cycles; good for "a few microseconds ago".

use core::sync::atomic::{AtomicU64, Ordering};

/// About a second. Counters tick at 1-5 GHz, and no user of this constant needs it exact.
pub const SECOND: u64 = 2_500_000_000;
/// About a microsecond.
pub const MICROSECOND: u64 = SECOND / 1_000_000;

/// Cycles since an arbitrary moment.
#[inline]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a counter.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        nanoseconds().saturating_mul(5) / 2
    }
}

/// Nanoseconds of the monotonic clock, for deadlines that a program gave.
pub fn nanoseconds() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is a local; the call goes to the vDSO.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Nanoseconds left of a timeout that began at `start`.
pub fn remaining(timeout: i64, start: u64) -> i64 {
    if timeout < 0 {
        return -1;
    }
    let spent = i64::try_from(nanoseconds().saturating_sub(start)).unwrap_or(i64::MAX);
    timeout.saturating_sub(spent).max(0)
}

/// Whether more than `every` cycles have passed since `last`, which is then set to now. Of several threads that ask at
/// once only one gets true.
pub fn is_due(last: &AtomicU64, every: u64) -> bool {
    let (now, before) = (now(), last.load(Ordering::Relaxed));
    now.wrapping_sub(before) > every
        && last
            .compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
}
