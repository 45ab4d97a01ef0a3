//! Whether this process uses kernel TCP only, and why: its calls bypass the library ([`crate::sockets::rings`]), or it
//! may not make the calls that the library needs ([`crate::descriptors::confinement`]).

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use netchannel_abi::reason::Reason;

/// Moves virtual sockets to a pump, and turns fresh sockets and listeners into the kernel's. Registered by the module
/// that can do both.
pub static LEAVE_LIBRARY: OnceLock<fn(Reason)> = OnceLock::new();

/// Moves all virtual sockets of the process out of the library.
#[cold]
pub fn leave_library(why: Reason) {
    LEAVE_LIBRARY.get().inspect(|leave| leave(why));
}

/// The reason, as a word; 0 for a process whose sockets may be virtual.
static REASON: AtomicU32 = AtomicU32::new(0);

/// The reason why the process uses kernel TCP only, if it does.
#[inline]
pub fn reason() -> Option<Reason> {
    match REASON.load(Ordering::Relaxed) {
        0 => None,
        word => Some(Reason::from_word(word)),
    }
}

/// Turns every socket that is virtual, or could become so, into the kernel's, for good. False where the process had
/// done so before.
#[cold]
pub fn withdraw(why: Reason) -> bool {
    let first = REASON
        .compare_exchange(0, why as u32, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok();
    if first {
        leave_library(why);
    }
    first
}
