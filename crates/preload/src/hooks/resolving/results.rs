//! Where the functions of `gethostbyname` leave their results, and their errors in `h_errno`.

use core::net::IpAddr;

use libc::{c_char, c_int, c_void, hostent};

use super::hosts::Host;
use crate::ground::lock::Lock;
use crate::ground::real;
use crate::resolver::Failure;

/// Values of `h_errno`.
pub const INTERNAL: c_int = -1;
const HOST_NOT_FOUND: c_int = 1;
pub const TRY_AGAIN: c_int = 2;
const NO_RECOVERY: c_int = 3;
const NO_DATA: c_int = 4;

unsafe extern "C" {
    fn __h_errno_location() -> *mut c_int;
}

/// `h_errno` of the calling thread.
pub fn error_place() -> *mut c_int {
    // SAFETY: no argument.
    unsafe { __h_errno_location() }
}

/// What `h_errno` says of a failure.
pub fn error_of(failure: Failure) -> c_int {
    match failure {
        Failure::NotFound => HOST_NOT_FOUND,
        Failure::NoData => NO_DATA,
        Failure::TryAgain | Failure::Unanswered => TRY_AGAIN,
        Failure::NoRecovery => NO_RECOVERY,
    }
}

/// Where the functions without a buffer leave their result, until they are called again.
struct Kept {
    entry: hostent,
    buffer: [usize; 1024],
}

// SAFETY: the pointers lead to the buffer beside them.
unsafe impl Send for Kept {}

static KEPT: Lock<Kept> = Lock::new(Kept {
    entry: hostent {
        h_name: core::ptr::null_mut(),
        h_aliases: core::ptr::null_mut(),
        h_addrtype: 0,
        h_length: 0,
        h_addr_list: core::ptr::null_mut(),
    },
    buffer: [0; 1024],
});
/// More has no place there.
const MOST_ADDRESSES: usize = 32;
const MOST_ALIASES: usize = 16;

/// The result of a function without a buffer.
pub fn keep(host: Result<Host, Failure>) -> *mut hostent {
    let failure = match host {
        Ok(mut host) => {
            host.shorten(MOST_ADDRESSES, MOST_ALIASES);
            let Some(mut kept) = KEPT.lock() else {
                return core::ptr::null_mut();
            };
            let room = size_of_val(&kept.buffer);
            let (entry, buffer) = (&raw mut kept.entry, (&raw mut kept.buffer).cast());
            // SAFETY: the buffer has this room, and stays where it is.
            if unsafe { host.write(entry, buffer, room) } {
                return entry;
            }
            Failure::NoRecovery
        }
        Err(failure) => failure,
    };
    // SAFETY: a thread-local.
    unsafe { error_place().write(error_of(failure)) };
    core::ptr::null_mut()
}

/// Where a function with a buffer leaves its result.
pub struct Room {
    pub entry: *mut hostent,
    pub buffer: *mut c_char,
    pub room: usize,
    pub result: *mut *mut hostent,
    pub error: *mut c_int,
}

impl Room {
    /// Whether the C library said that it does not know the host.
    ///
    /// # Safety
    /// The C function has returned `code`.
    pub unsafe fn is_unknown(&self, code: c_int) -> bool {
        // SAFETY: it has written the result, and an error where there is none.
        unsafe { code != libc::ERANGE && (*self.result).is_null() && *self.error != INTERNAL }
    }

    /// Writes the result, and returns what the C function does.
    ///
    /// # Safety
    /// The program gave all of it to be written.
    pub unsafe fn write(&self, host: Result<Host, Failure>) -> c_int {
        // SAFETY: the caller's promise.
        unsafe {
            let (error, code) = match host {
                Ok(host) if host.write(self.entry, self.buffer, self.room) => {
                    self.result.write(self.entry);
                    return 0;
                }
                Ok(_) => (INTERNAL, libc::ERANGE),
                // What servers said, of whatever kind, is a result; that they said nothing is an error.
                Err(Failure::Unanswered) => (TRY_AGAIN, libc::EAGAIN),
                Err(failure) => (error_of(failure), 0),
            };
            self.result.write(core::ptr::null_mut());
            self.error.write(error);
            // The C library leaves it there, too, and Python looks at no other place.
            error_place().write(error);
            if code != 0 {
                real::set_errno(code);
            }
            code
        }
    }
}

/// The address that a program gave; `None` where its length is not that of its family.
///
/// # Safety
/// The program gave `address` to be read, with `length` bytes.
pub unsafe fn address(address: *const c_void, length: u32, family: c_int) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    unsafe {
        match (family, length) {
            (libc::AF_INET, 4) => Some(address.cast::<[u8; 4]>().read().into()),
            (libc::AF_INET6, 16) => Some(address.cast::<[u8; 16]>().read().into()),
            _ => None,
        }
    }
}
