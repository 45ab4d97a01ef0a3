//! Whether this process has kernel TCP only, and why: its calls come past the library ([`crate::sockets::rings`]), or it may not make those that
//! the library needs ([`crate::descriptors::confinement`]).

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use netchannel_abi::reason::Reason;

/// What is virtual goes on over a pump, and fresh sockets and listeners become the kernel's. Who can do all that registers it.
pub static LEAVE: OnceLock<fn(Reason)> = OnceLock::new();

/// What is virtual now does not stay so.
#[cold]
pub fn leave_library(why: Reason) {
    LEAVE.get().inspect(|leave| leave(why));
}

/// Why, as a word; 0 for a process whose sockets may be virtual.
static WHY: AtomicU32 = AtomicU32::new(0);

/// Why the process has kernel TCP only, if it has.
#[inline]
pub fn reason() -> Option<Reason> {
    match WHY.load(Ordering::Relaxed) {
        0 => None,
        word => Some(Reason::from_word(word)),
    }
}

/// Everything that is virtual, or could become so, is the kernel's from now on. False where that was so before.
#[cold]
pub fn withdraw(why: Reason) -> bool {
    let first = WHY
        .compare_exchange(0, why as u32, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok();
    if first {
        leave_library(why);
    }
    first
}
