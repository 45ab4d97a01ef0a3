//! Descriptors that travel to other processes in `SCM_RIGHTS` messages.

use libc::msghdr;

/// Before a message is sent.
///
/// # Safety
/// `message` is the program's, or null.
pub unsafe fn sending(message: *const msghdr) {
    let _ = message;
}

/// After a message was received.
///
/// # Safety
/// `message` is the program's, filled in by the kernel.
pub unsafe fn received(message: *mut msghdr) {
    let _ = message;
}
