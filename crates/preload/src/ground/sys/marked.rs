//! System calls that a supervisor of the program (`netchannel run --static=plain`, tenants) knows as the library's own.

use libc::c_long;
use netchannel_abi::supervision;
use netchannel_shm::system::{self, Sys};

/// A system call. One that a supervisor of the program holds back is marked as the library's own: the supervisor would
/// let the kernel make it all the same, later, and a signal would end it.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// As the call: what the kernel reads and writes is the caller's to give.
#[inline(always)]
pub unsafe fn raw(number: c_long, mut words: [usize; 6]) -> Sys<usize> {
    const HELD_BACK: [c_long; 11] = [
        libc::SYS_socket,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_listen,
        libc::SYS_accept,
        libc::SYS_accept4,
        libc::SYS_getsockname,
        libc::SYS_getpeername,
        libc::SYS_getsockopt,
        libc::SYS_setsockopt,
        libc::SYS_shutdown,
    ];
    if HELD_BACK.contains(&number) {
        words[5] = supervision::WORD;
    }
    // SAFETY: the caller's promise.
    unsafe { system::raw(number, words) }
}
