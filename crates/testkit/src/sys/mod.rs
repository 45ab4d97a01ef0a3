//! One thin function per C library call: the call, its result as a `Result`, nothing else.
//!
//! They go through the dynamic symbols of the C library, so a preloaded library is in the way
//! exactly as it would be for a C program; those in `number` through `syscall` on purpose.

mod descriptor;
mod limits;
mod message;
mod number;
mod process;
mod ready;
mod ring;
mod socket;
mod transfer;

pub use descriptor::*;
pub use limits::*;
pub use message::*;
pub use number::*;
pub use process::*;
pub use ready::*;
pub use ring::*;
pub use socket::*;
pub use transfer::*;

use std::fmt;

/// A descriptor as the C library knows it; cases close theirs by hand, that being what they test.
pub type Descriptor = libc::c_int;

/// An `errno` value that prints its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub libc::c_int);

/// What a call answers.
pub type Outcome<T> = Result<T, Errno>;

const NAMES: &[(libc::c_int, &str)] = &[
    (libc::EAGAIN, "EAGAIN"),
    (libc::EINTR, "EINTR"),
    (libc::EBADF, "EBADF"),
    (libc::EFAULT, "EFAULT"),
    (libc::EINVAL, "EINVAL"),
    (libc::EMFILE, "EMFILE"),
    (libc::ENOTTY, "ENOTTY"),
    (libc::EPIPE, "EPIPE"),
    (libc::ESPIPE, "ESPIPE"),
    (libc::EPERM, "EPERM"),
    (libc::EEXIST, "EEXIST"),
    (libc::ENOENT, "ENOENT"),
    (libc::ELOOP, "ELOOP"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::ENOBUFS, "ENOBUFS"),
    (libc::ENOTSOCK, "ENOTSOCK"),
    (libc::EDESTADDRREQ, "EDESTADDRREQ"),
    (libc::EMSGSIZE, "EMSGSIZE"),
    (libc::ENOPROTOOPT, "ENOPROTOOPT"),
    (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
    (libc::EADDRINUSE, "EADDRINUSE"),
    (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
    (libc::ECONNABORTED, "ECONNABORTED"),
    (libc::ECONNRESET, "ECONNRESET"),
    (libc::EISCONN, "EISCONN"),
    (libc::ENOTCONN, "ENOTCONN"),
    (libc::ETIMEDOUT, "ETIMEDOUT"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::EALREADY, "EALREADY"),
    (libc::EINPROGRESS, "EINPROGRESS"),
];

impl fmt::Debug for Errno {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => formatter.write_str(name),
            None => write!(formatter, "errno {}", self.0),
        }
    }
}

/// The calling thread's `errno`.
#[must_use]
pub fn last_errno() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

pub(crate) fn check(result: libc::c_int) -> Outcome<libc::c_int> {
    if result < 0 {
        Err(last_errno())
    } else {
        Ok(result)
    }
}

pub(crate) fn check_unit(result: libc::c_int) -> Outcome<()> {
    check(result).map(|_| ())
}

pub(crate) fn check_size(result: isize) -> Outcome<usize> {
    usize::try_from(result).map_err(|_| last_errno())
}

/// The size of `T` as the socket calls want it.
#[must_use]
pub fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("no argument of a socket call is that large")
}
