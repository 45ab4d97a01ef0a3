//! The processor's time-stamp counter. Programs use it to record when their loops last looked.

/// Cycles since a fixed moment.
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a counter.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanoseconds = seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0);
        nanoseconds.saturating_mul(5) / 2
    }
}
