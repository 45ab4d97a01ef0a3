//! The stack of a thread: what a rare deep call has touched of it is given back, where there are many threads that sleep.

use std::cell::OnceCell;
use std::hint::black_box;
use std::mem::MaybeUninit;

/// Bytes below this module's frame that stay: those of the system call's frame.
const KEPT: usize = 1 << 10;
const PAGE: usize = 4096;

/// Gives the memory of the calling thread's stack back that lies below what is in use. It comes again as zeroes when it
/// is touched.
#[inline(never)]
pub fn give_back_unused() {
    thread_local! {
        static LOWEST: OnceCell<Option<usize>> = const { OnceCell::new() };
    }
    let Some(lowest) = LOWEST.with(|known| *known.get_or_init(lowest)) else {
        return;
    };
    let mark = 0_u8;
    let here = black_box(&raw const mark).addr();
    let Some(end) = here.checked_sub(KEPT) else {
        return;
    };
    let end = end & !(PAGE - 1);
    if end > lowest {
        let start = std::ptr::without_provenance_mut(lowest);
        // SAFETY: the pages are this thread's stack, below all frames in use: `KEPT` has room for that of `madvise`.
        unsafe { libc::madvise(start, end - lowest, libc::MADV_DONTNEED) };
    }
}

/// The lowest usable address of the calling thread's stack. `None` where it is not known.
fn lowest() -> Option<usize> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the structure is a local, which the call fills where it succeeds, and which is destroyed after use.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let mut attributes = attributes.assume_init();
        let (mut start, mut size) = (std::ptr::null_mut(), 0);
        let stack =
            libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut size);
        libc::pthread_attr_destroy(&raw mut attributes);
        (stack == 0).then(|| start.addr().next_multiple_of(PAGE))
    }
}
