//! `errno`, as the C library has it.

use core::ffi::c_int;

/// Sets `errno` of the calling thread.
pub fn set_errno(error: c_int) {
    // SAFETY: errno is a valid thread-local.
    unsafe { *libc::__errno_location() = error };
}
