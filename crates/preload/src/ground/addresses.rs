//! The limit of address space (`RLIMIT_AS`) that the program sets itself. What the library has mapped is not the program's: the kernel's
//! limit is higher by as much, and what the program asks for and is answered is its own.
//!
//! A limit that was there before the program began holds for both: nobody but root may raise it.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::c_int;
use netchannel_shm::mapped;

use crate::ground::lock::Lock;
use crate::ground::sys;

/// How far the kernel's hard limit lies beyond the program's: room for links to come. The soft one is exact.
const RESERVE: u64 = 1 << 40;

/// The program has set one.
static IS_SET: AtomicBool = AtomicBool::new(false);
/// What it has set, in bytes.
static SOFT: AtomicU64 = AtomicU64::new(libc::RLIM_INFINITY);
static HARD: AtomicU64 = AtomicU64::new(libc::RLIM_INFINITY);
/// Held while the kernel's limit is changed.
static CHANGING: Lock<()> = Lock::new(());

/// Whether `resource` is the address space.
pub fn is_meant(resource: c_int) -> bool {
    sys::is_limit(resource, libc::RLIMIT_AS)
}

/// The limit as the program set it; `None` where it has not.
pub fn limit() -> Option<libc::rlimit> {
    IS_SET.load(Ordering::Acquire).then(|| libc::rlimit {
        rlim_cur: SOFT.load(Ordering::Relaxed),
        rlim_max: HARD.load(Ordering::Relaxed),
    })
}

/// What the program is answered that asks for it.
///
/// # Errors
/// Those of `getrlimit`.
pub fn seen() -> Result<libc::rlimit, c_int> {
    limit().map_or_else(|| exchange(None), Ok)
}

/// The program sets it.
///
/// # Errors
/// Those of `setrlimit`.
pub fn set(new: &libc::rlimit) -> Result<(), c_int> {
    if new.rlim_cur > new.rlim_max {
        return Err(libc::EINVAL);
    }
    let _changing = CHANGING.lock();
    let kernels = exchange(None)?;
    let before = limit().unwrap_or(kernels);
    if new.rlim_max > before.rlim_max {
        // Whoever may raise the kernel's may raise this one.
        let raised = libc::rlimit {
            rlim_max: kernels.rlim_max.saturating_add(1),
            ..kernels
        };
        exchange(Some(&raised))?;
    }
    let wanted = libc::rlimit {
        rlim_max: new.rlim_max.saturating_add(RESERVE),
        ..kernels
    };
    if exchange(Some(&wanted)).is_err() {
        // Who may not raise it has what there is.
        let lowered = libc::rlimit {
            rlim_max: kernels.rlim_max.min(wanted.rlim_max),
            rlim_cur: kernels.rlim_cur.min(wanted.rlim_max),
        };
        exchange(Some(&lowered))?;
    }
    SOFT.store(new.rlim_cur, Ordering::Relaxed);
    HARD.store(new.rlim_max, Ordering::Relaxed);
    // Release: pairs with the acquire in `limit`.
    IS_SET.store(true, Ordering::Release);
    apply(0);
    Ok(())
}

/// Maps up to `bytes` for the library.
pub fn with_room<R>(bytes: usize, map: impl FnOnce() -> R) -> R {
    if !IS_SET.load(Ordering::Acquire) {
        return map();
    }
    let _changing = CHANGING.lock();
    apply(bytes);
    let result = map();
    apply(0);
    result
}

/// Runs `work`, in which another program may begin, with the limit that the program has set.
pub fn as_set<R>(work: impl FnOnce() -> R) -> R {
    let Some(wanted) = limit() else {
        return work();
    };
    let before = exchange(None);
    let _ = exchange(Some(&wanted));
    let result = work();
    if let Ok(before) = before
        && exchange(Some(&before)).is_err()
    {
        // Who is not root has lowered it for good: what the library has mapped counts from now on.
        IS_SET.store(false, Ordering::Release);
    }
    result
}

/// In a forked child nobody changes it.
pub fn reset_in_child() {
    CHANGING.reset();
}

/// Sets the kernel's soft limit to the program's, what the library has mapped, and `more`.
fn apply(more: usize) {
    let Ok(kernels) = exchange(None) else { return };
    let own = mapped().saturating_add(more) as u64;
    let soft = SOFT.load(Ordering::Relaxed).saturating_add(own);
    let exact = libc::rlimit {
        rlim_cur: soft.min(kernels.rlim_max),
        ..kernels
    };
    let _ = exchange(Some(&exact));
}

/// The kernel's limit, and sets another one.
fn exchange(new: Option<&libc::rlimit>) -> Result<libc::rlimit, c_int> {
    sys::limit(libc::RLIMIT_AS, new)
}
