//! The stack of a thread: what a rare deep call has touched of it is given back, where there are many threads that sleep.

use std::cell::OnceCell;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Bytes below this module's frame that stay: those of the system call's frame.
const KEPT: usize = 1 << 10;
const PAGE: usize = 4096;

/// Gives the memory of the calling thread's stack back that lies below what is in use. It comes again as zeroes when it
/// is touched.
#[inline(never)]
pub fn give_back_unused() {
    thread_local! {
        static STACK: OnceCell<Option<Range<usize>>> = const { OnceCell::new() };
    }
    let Some(stack) = STACK.with(|known| known.get_or_init(stack).clone()) else {
        return;
    };
    let mark = 0_u8;
    let here = black_box(&raw const mark).addr();
    // Sanitizers keep variables elsewhere.
    if !stack.contains(&here) {
        return;
    }
    let end = here.saturating_sub(KEPT) & !(PAGE - 1);
    if end > stack.start {
        let (start, length) = (stack.start, end - stack.start);
        let start = std::ptr::without_provenance_mut(start);
        // SAFETY: the pages are this thread's stack, below all frames in use: `KEPT` has room for that of `madvise`.
        unsafe { libc::madvise(start, length, libc::MADV_DONTNEED) };
    }
}

/// The addresses of the calling thread's stack. `None` where they are not known.
fn stack() -> Option<Range<usize>> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the structure is a local, which the call fills where it succeeds, and which is destroyed after use.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let mut attributes = attributes.assume_init();
        let (mut start, mut size) = (std::ptr::null_mut(), 0);
        let known =
            libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut size);
        libc::pthread_attr_destroy(&raw mut attributes);
        (known == 0).then(|| start.addr().next_multiple_of(PAGE)..start.addr() + size)
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT, PAGE, give_back_unused, stack};
    use std::hint::black_box;

    /// Pages of this thread's stack that have memory, from below up to where the caller is. `None` where a sanitizer
    /// keeps variables elsewhere.
    fn resident() -> Option<usize> {
        let (stack, mark) = (stack().unwrap(), 0_u8);
        let here = black_box(&raw const mark).addr() & !(PAGE - 1);
        if !stack.contains(&here) {
            return None;
        }
        let mut pages = vec![0_u8; (here - stack.start) / PAGE];
        let start = std::ptr::without_provenance_mut(stack.start);
        // SAFETY: the kernel writes a byte for each page of the range.
        let asked = unsafe { libc::mincore(start, here - stack.start, pages.as_mut_ptr()) };
        assert_eq!(asked, 0);
        Some(pages.iter().filter(|page| **page & 1 != 0).count())
    }

    #[inline(never)]
    fn deep(bytes: usize) -> u8 {
        let frame = black_box([1_u8; 64 << 10]);
        black_box(frame[bytes])
    }

    #[test]
    fn what_a_deep_call_has_touched_is_given_back() {
        let thread = std::thread::spawn(|| {
            assert_eq!(deep(KEPT), 1);
            let touched = resident();
            give_back_unused();
            let left = resident();
            assert_eq!(deep(KEPT), 1);
            if let (Some(touched), Some(left)) = (touched, left) {
                assert!(touched >= 16 && left <= 4, "{left} of {touched}");
            }
        });
        thread.join().unwrap();
    }
}
