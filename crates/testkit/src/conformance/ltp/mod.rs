//! The socket cases of the Linux Test Project, written anew from its list: the checks of each of its programs, under
//! its name.
//!
//! Programs that do not concern TCP are left out: datagrams, local sockets, packet sockets, and options that only a
//! kernel module has.

pub mod moving;
pub mod naming;
pub mod options;
pub mod readiness;

use libc::{c_int, c_void};
use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

/// A number that no program has open.
const NOT_OPEN: Descriptor = 400;

/// The result of a call.
fn result_of<T: Into<i64>>(result: T) -> Result<i64, Errno> {
    match result.into() {
        ..0 => Err(sys::last_errno()),
        result => Ok(result),
    }
}

/// An invalid address.
fn invalid_pointer<T>() -> *mut T {
    std::ptr::without_provenance_mut(usize::MAX)
}

/// A file that is no socket.
fn null_device() -> Descriptor {
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero.
    let opened = unsafe { libc::open(c"/dev/null".as_ptr(), flags) };
    assert!(opened >= 0, "open: {:?}", sys::last_errno());
    opened
}

/// Checks the result of each call.
fn expect(name: &str, calls: &[(&str, Result<i64, Errno>, c_int)]) {
    for (what, got, errno) in calls {
        assert_eq!(*got, Err(Errno(*errno)), "{name}: {what}");
    }
}

/// A name of the family, with port 0.
fn any_name(family: Family) -> sys::RawAddress {
    sys::RawAddress::from(family.any(0))
}

fn place(name: &sys::RawAddress) -> *const libc::sockaddr {
    (&raw const name.storage).cast()
}

fn nothing() -> *mut c_void {
    std::ptr::null_mut()
}
