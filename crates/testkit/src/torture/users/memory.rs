//! Files mapped as atomic words, without a lifetime.

use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;

/// Maps the first `bytes` of a file. `None` where the kernel refuses.
pub fn map(file: RawFd, bytes: usize, writable: bool) -> Option<&'static [AtomicU64]> {
    let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
    // SAFETY: a new shared mapping, wherever the kernel puts it.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            protection,
            libc::MAP_SHARED,
            file,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: mapped for good, aligned to a page, and only used as atomics.
    Some(unsafe { std::slice::from_raw_parts(memory.cast(), bytes / 8) })
}

/// Removes a mapping that is no longer read.
pub fn unmap(words: &'static [AtomicU64]) {
    // SAFETY: made by `map` with this length; the caller keeps no other reference.
    unsafe { libc::munmap(words.as_ptr().cast_mut().cast(), words.len() * 8) };
}
