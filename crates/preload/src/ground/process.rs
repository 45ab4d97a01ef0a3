//! The number of this process, whether it has other threads, and whether its memory belongs to another one: a child of
//! `vfork` runs in its parent's memory.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::OnceLock;

use crate::ground::{older, sys};

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

/// Called at start.
pub fn renew() {
    NUMBER.store(sys::process(), Ordering::Relaxed);
}

/// Called in a forked child. Whether it has its number in the same namespace as its parent; false where its parent has
/// ended. A child in another namespace has no parent there.
pub fn renew_in_child() -> bool {
    let parent = number();
    renew();
    sys::parent_process() == parent
}

/// Whether the kernel lets other processes of the user look at this one's descriptors.
pub fn is_dumpable() -> bool {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE) == 1 }
}

/// Whether the C library knows of no other thread in this process. False where it does not say: before 2.32.
pub fn is_single_threaded() -> bool {
    static SAYS: OnceLock<Option<&'static AtomicU8>> = OnceLock::new();
    let says = SAYS.get_or_init(|| {
        // SAFETY: a variable of one byte that lives as long as the program.
        unsafe {
            let found = older::find_if_there(libc::RTLD_DEFAULT, c"__libc_single_threaded");
            found.cast::<AtomicU8>().as_ref()
        }
    });
    says.is_some_and(|says| says.load(Ordering::Relaxed) != 0)
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
