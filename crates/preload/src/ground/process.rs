//! The number of this process, and whether its memory belongs to another one: a child of `vfork` runs in its parent's
//! memory.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::ground::sys;

/// Number of this process.
#[unsafe(link_section = ".data.netchannel_start")]
static NUMBER: AtomicU32 = AtomicU32::new(0);
/// Threads that sleep in `vfork` until their child lets go of the memory.
#[unsafe(link_section = ".data.netchannel_start")]
static VFORK_PARENTS: AtomicU32 = AtomicU32::new(0);

/// Number of this process, cached so that it costs no system call.
#[inline]
pub fn number() -> u32 {
    NUMBER.load(Ordering::Relaxed)
}

/// Called at start and in a forked child.
pub fn renew() {
    NUMBER.store(sys::process(), Ordering::Relaxed);
}

/// Whether the calling thread is a child of `vfork` in its parent's memory.
#[inline]
pub fn is_vfork_child() -> bool {
    VFORK_PARENTS.load(Ordering::Relaxed) > 0 && sys::process() != number()
}

/// The calling thread is about to sleep while a child of `vfork` uses its memory.
pub fn lend_memory() {
    VFORK_PARENTS.fetch_add(1, Ordering::Relaxed);
}

/// The child has let go of the memory.
pub fn reclaim_memory() {
    VFORK_PARENTS.fetch_sub(1, Ordering::Relaxed);
}

/// Resets the count in a forked child, where the sleeping threads do not exist.
pub fn reset_in_child() {
    if VFORK_PARENTS.load(Ordering::Relaxed) > 0 {
        VFORK_PARENTS.store(0, Ordering::Relaxed);
    }
}
