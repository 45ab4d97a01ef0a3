//! The limit of address space (`RLIMIT_AS`) that the program sets itself. The mappings of the library do not count for
//! the program: the kernel's limit is higher by their size, and the program is shown only the limit that it has set.
//!
//! A limit that was set before the program began holds for both: only root may raise it.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::c_int;
use netchannel_shm::mapped;

use crate::ground::lock::Lock;
use crate::ground::sys;

/// How far the kernel's hard limit lies above the program's: room for future links. The soft limit is exact.
const RESERVE: u64 = 1 << 40;

/// Whether the program has set a limit.
static IS_SET: AtomicBool = AtomicBool::new(false);
/// The limit that the program has set, in bytes.
static SOFT: AtomicU64 = AtomicU64::new(libc::RLIM_INFINITY);
static HARD: AtomicU64 = AtomicU64::new(libc::RLIM_INFINITY);
/// Held while the kernel's limit is changed.
#[unsafe(link_section = ".data.netchannel_start")]
static CHANGING: Lock<()> = Lock::new(());

/// Whether `resource` is the address space.
pub fn is_address_space(resource: c_int) -> bool {
    sys::is_limit(resource, libc::RLIMIT_AS)
}

/// The limit that the program has set; `None` where it has set none.
pub fn limit() -> Option<libc::rlimit> {
    IS_SET.load(Ordering::Acquire).then(|| libc::rlimit {
        rlim_cur: SOFT.load(Ordering::Relaxed),
        rlim_max: HARD.load(Ordering::Relaxed),
    })
}

/// The limit that `getrlimit` returns to the program.
///
/// # Errors
/// Those of `getrlimit`.
pub fn visible() -> Result<libc::rlimit, c_int> {
    limit().map_or_else(|| exchange(None), Ok)
}

/// Sets the limit for the program.
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
        // A process that may raise the kernel's limit may raise this one.
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
        // A process that may not raise the kernel's limit gets as much as that limit allows.
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

/// Runs `work`, which may execute another program, under the limit that the program has set.
pub fn with_program_limit<R>(work: impl FnOnce() -> R) -> R {
    let Some(wanted) = limit() else {
        return work();
    };
    let before = exchange(None);
    let _ = exchange(Some(&wanted));
    let result = work();
    if let Ok(before) = before
        && exchange(Some(&before)).is_err()
    {
        // A process that is not root can not raise the limit again: from now on the library's mappings count.
        IS_SET.store(false, Ordering::Release);
    }
    result
}

/// A forked child has no thread that is changing the limit.
pub fn reset_in_child() {
    CHANGING.reset();
}

/// Sets the kernel's soft limit to the program's limit plus the library's mappings plus `more`.
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

/// Returns the kernel's limit, and sets a new one if there is one.
fn exchange(new: Option<&libc::rlimit>) -> Result<libc::rlimit, c_int> {
    sys::limit(libc::RLIMIT_AS, new)
}
