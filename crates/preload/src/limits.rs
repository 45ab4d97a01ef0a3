//! Room for the library's descriptors when the program has used up its own. What the library needs
//! lies beyond the program's soft limit then: the limit is raised for the one call that makes the
//! descriptor, as far as the hard limit allows. The program never sees it raised.

use core::sync::atomic::{AtomicBool, Ordering};

use libc::c_int;

use crate::lock::Lock;
use crate::sys;

/// Held while the limit is raised, and while the program asks for it or changes it.
static LIMIT: Lock<()> = Lock::new(());

fn exchange(new: Option<&libc::rlimit64>) -> Option<libc::rlimit64> {
    let mut old = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let new = new.map_or(core::ptr::null(), core::ptr::from_ref);
    let resource = libc::RLIMIT_NOFILE as usize;
    // SAFETY: both limits are locals of the right size, or null.
    unsafe {
        let words = [0, resource, new.addr(), (&raw mut old).addr(), 0, 0];
        sys::raw(libc::SYS_prlimit64, words)
    }
    .ok()?;
    Some(old)
}

/// Runs `work` with as many descriptors as the process may ever have.
pub fn with_room<R>(work: impl FnOnce() -> R) -> R {
    let Some(_guard) = LIMIT.lock() else {
        return work();
    };
    let Some(before) = exchange(None).filter(|limit| limit.rlim_cur < limit.rlim_max) else {
        return work();
    };
    let raised = libc::rlimit64 {
        rlim_cur: before.rlim_max,
        ..before
    };
    if exchange(Some(&raised)).is_none() {
        return work();
    }
    let result = work();
    exchange(Some(&before));
    result
}

/// Makes a descriptor for the library: again with more room where the program has none left.
///
/// # Errors
/// Those of `make`.
pub fn make<R>(make: impl Fn() -> Result<R, c_int>) -> Result<R, c_int> {
    match make() {
        // What is asked for lies beyond the soft limit: EINVAL.
        Err(libc::EMFILE | libc::EINVAL) => with_room(make),
        result => result,
    }
}

/// Receives a message with descriptors, which must not be lost for want of room.
///
/// # Errors
/// Those of `recvmsg`.
pub fn receive_message(
    fd: c_int,
    bytes: &mut [u8],
    descriptors: &mut [c_int; sys::MOST],
) -> Result<(usize, usize), c_int> {
    let mut first = [0];
    let look = libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_TRUNC;
    let length = sys::receive(fd, &mut first, look)?;
    let mut receive = || sys::receive_message(fd, bytes, descriptors, libc::MSG_DONTWAIT);
    if length > 1 {
        with_room(receive)
    } else {
        receive()
    }
}

/// The program asks for its limits or changes them, which must not fall in between.
pub fn undisturbed<R>(resource: c_int, work: impl FnOnce() -> R) -> R {
    let files = resource == c_int::try_from(libc::RLIMIT_NOFILE).unwrap_or(-1);
    let _guard = if files { LIMIT.lock() } else { None };
    work()
}

/// Whether [`before_fork`] holds the lock.
static FORKING: AtomicBool = AtomicBool::new(false);

/// Before a fork: the child must not inherit a raised limit.
pub fn before_fork() {
    if let Some(guard) = LIMIT.lock() {
        core::mem::forget(guard);
        FORKING.store(true, Ordering::Relaxed);
    }
}

/// After it, in both processes.
pub fn after_fork() {
    if FORKING.swap(false, Ordering::Relaxed) {
        LIMIT.reset();
    }
}
