//! The time slice of a thread. A thread that waits for packets asks for a short slice: the kernel then lets it run at
//! once when it wakes, beside threads that could run on for milliseconds.
//!
//! Linux from 6.12 on accepts a slice from every thread. It affects when the thread runs, not how much. Older kernels
//! ignore it.

use rustix::io::Errno;
use std::time::Duration;

/// The slice of threads that need low latency: the minimum that the kernel accepts.
pub const LATENCY: Duration = Duration::from_micros(100);

/// Sets the slice of the calling thread. Its children and the program that it executes inherit it. Threads with another
/// scheduling policy than the normal one keep theirs.
///
/// # Errors
/// The errno of `sched_getattr` or `sched_setattr`.
pub fn set(slice: Duration) -> Result<(), Errno> {
    // SAFETY: plain numbers, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { core::mem::zeroed() };
    let size = u32::try_from(size_of::<libc::sched_attr>()).unwrap_or(0);
    // SAFETY: 0 is the calling thread; the kernel writes at most `size` bytes into a structure of that size.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    checked(got)?;
    if attributes.sched_policy != libc::SCHED_OTHER.unsigned_abs() {
        return Ok(());
    }
    attributes.size = size;
    attributes.sched_runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: the kernel reads the structure, whose size is in it.
    checked(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) })
}

fn checked(result: libc::c_long) -> Result<(), Errno> {
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_niceness_with_another_slice() {
        let niceness = || rustix::process::getpriority_process(Some(rustix::thread::gettid()));
        let before = niceness().unwrap();
        set(LATENCY).unwrap();
        assert_eq!(niceness().unwrap(), before);
    }
}
