//! Which process this is, and whether its memory is another one's: a child of `vfork` runs in its parent's.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::ground::sys;

/// Number of this process.
#[unsafe(link_section = ".data.netchannel_start")]
static NUMBER: AtomicU32 = AtomicU32::new(0);
/// Threads that sleep until their child lets go of the memory.
#[unsafe(link_section = ".data.netchannel_start")]
static LENDERS: AtomicU32 = AtomicU32::new(0);

/// Number of this process, kept so that it costs no call.
#[inline]
pub fn number() -> u32 {
    NUMBER.load(Ordering::Relaxed)
}

/// Called at start and in a forked child.
pub fn renew() {
    NUMBER.store(sys::process(), Ordering::Relaxed);
}

/// Whether the calling thread is a child in its parent's memory.
#[inline]
pub fn is_guest() -> bool {
    LENDERS.load(Ordering::Relaxed) > 0 && sys::process() != number()
}

/// The calling thread is about to sleep while a child has its memory.
pub fn lend() {
    LENDERS.fetch_add(1, Ordering::Relaxed);
}

/// It has its memory back.
pub fn lent_back() {
    LENDERS.fetch_sub(1, Ordering::Relaxed);
}

/// In a forked child, where the threads that sleep do not exist.
pub fn reset_in_child() {
    if LENDERS.load(Ordering::Relaxed) > 0 {
        LENDERS.store(0, Ordering::Relaxed);
    }
}
