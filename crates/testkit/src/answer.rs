//! Arguments and results of the C library's calls in Rust's forms: descriptors, errno values, addresses.

use std::fmt;
use std::mem::zeroed;
use std::net::{IpAddr, SocketAddr};

/// A descriptor as the C library knows it. Cases close their descriptors by hand, because closing is what they test.
pub type Descriptor = libc::c_int;

/// An `errno` value that prints its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub libc::c_int);

/// The result of a call.
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

/// The size of `T` in the type that the socket calls take.
#[must_use]
pub fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("no argument of a socket call is that large")
}

/// An address in the form that the C library takes.
#[derive(Clone, Copy)]
pub struct RawAddress {
    /// Room for any family.
    pub storage: libc::sockaddr_storage,
    /// How many bytes of `storage` are valid.
    pub length: libc::socklen_t,
}

impl RawAddress {
    /// An empty address of full length, for a call to write into.
    #[must_use]
    pub fn empty() -> Self {
        // SAFETY: a sockaddr_storage of zeroes is a valid value of it.
        let storage = unsafe { zeroed() };
        Self {
            storage,
            length: length_of::<libc::sockaddr_storage>(),
        }
    }

    /// The address in Rust's form, or `None` for another family.
    #[must_use]
    pub fn decode(&self) -> Option<SocketAddr> {
        let storage = (&raw const self.storage).cast::<u8>();
        match libc::c_int::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: storage is larger than and aligned for a sockaddr_in, all bytes initialised.
                let address = unsafe { storage.cast::<libc::sockaddr_in>().read() };
                let octets = address.sin_addr.s_addr.to_ne_bytes();
                Some(SocketAddr::new(
                    IpAddr::from(octets),
                    u16::from_be(address.sin_port),
                ))
            }
            libc::AF_INET6 => {
                // SAFETY: storage is larger than and aligned for a sockaddr_in6, all bytes initialised.
                let address = unsafe { storage.cast::<libc::sockaddr_in6>().read() };
                let octets = address.sin6_addr.s6_addr;
                Some(SocketAddr::new(
                    IpAddr::from(octets),
                    u16::from_be(address.sin6_port),
                ))
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        let mut raw = Self::empty();
        let storage = &raw mut raw.storage;
        match address {
            SocketAddr::V4(address) => {
                let value = libc::sockaddr_in {
                    sin_family: libc::sa_family_t::try_from(libc::AF_INET).unwrap_or_default(),
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(address.ip().octets()),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: storage is larger than and aligned for a sockaddr_in.
                unsafe { storage.cast::<libc::sockaddr_in>().write(value) };
                raw.length = length_of::<libc::sockaddr_in>();
            }
            SocketAddr::V6(address) => {
                let value = libc::sockaddr_in6 {
                    sin6_family: libc::sa_family_t::try_from(libc::AF_INET6).unwrap_or_default(),
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr {
                        s6_addr: address.ip().octets(),
                    },
                    sin6_scope_id: address.scope_id(),
                };
                // SAFETY: storage is larger than and aligned for a sockaddr_in6.
                unsafe { storage.cast::<libc::sockaddr_in6>().write(value) };
                raw.length = length_of::<libc::sockaddr_in6>();
            }
        }
        raw
    }
}
