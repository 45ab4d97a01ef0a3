//! Local sockets: pairs, and those with abstract names.

use libc::{c_int, sockaddr_un};
use netchannel_abi::link::ANCHOR_MARK;

use super::{Sys, close, descriptor, int, raw, set_option};

/// A new pair of connected `AF_UNIX` sockets, closed on exec.
pub fn socket_pair(kind: c_int) -> Sys<(c_int, c_int)> {
    let mut pair = [0; 2];
    let kind = kind | libc::SOCK_CLOEXEC;
    // SAFETY: `pair` has room for two descriptors.
    unsafe {
        raw(
            libc::SYS_socketpair,
            [
                int(libc::AF_UNIX),
                int(kind),
                0,
                pair.as_mut_ptr().addr(),
                0,
                0,
            ],
        )?;
    }
    Ok((pair[0], pair[1]))
}

/// A new pair of anchors. Both carry the mark by which a process that receives one recognises it.
pub fn anchor_pair() -> Sys<(c_int, c_int)> {
    let pair = socket_pair(libc::SOCK_STREAM)?;
    for fd in [pair.0, pair.1] {
        mark(fd)?;
    }
    Ok(pair)
}

/// The address of an abstract name, and its length.
fn address(name: &[u8]) -> (sockaddr_un, usize) {
    // SAFETY: all zero is a valid address.
    let mut address: sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or(0);
    for (place, byte) in address.sun_path.iter_mut().zip(name) {
        *place = byte.cast_signed();
    }
    (address, size_of::<libc::sa_family_t>() + name.len())
}

fn new(flags: c_int) -> Sys<c_int> {
    super::socket(
        libc::AF_UNIX,
        libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags,
        0,
    )
}

/// Closes a new descriptor whose setup failed.
fn or_close<R>(fd: c_int, made: Sys<R>) -> Sys<c_int> {
    if made.is_err() {
        close(fd);
    }
    made.map(|_| fd)
}

/// A non-blocking listener at an abstract name, with a backlog.
///
/// # Errors
/// Those of `socket`, `bind` and `listen`.
pub fn listener(name: &[u8], backlog: c_int) -> Sys<c_int> {
    let fd = new(libc::SOCK_NONBLOCK)?;
    let (address, length) = address(name);
    let place = (&raw const address).addr();
    // SAFETY: the address is a local of at least that length.
    let bound = unsafe { raw(libc::SYS_bind, [int(fd), place, length, 0, 0, 0]) };
    // SAFETY: no pointers.
    let listens = || unsafe { raw(libc::SYS_listen, [int(fd), int(backlog), 0, 0, 0, 0]) };
    or_close(fd, bound.and_then(|_| listens()))
}

/// Connects to the listener at the abstract name `to`, under the abstract name `own`, and returns the client's end of the
/// anchor.
///
/// # Errors
/// Those of `socket` and `bind`; those of `connect`: `EAGAIN` where the backlog is full, `ECONNREFUSED` where no process
/// listens.
pub fn connect(to: &[u8], own: &[u8]) -> Sys<c_int> {
    // Connecting must not wait for a full backlog.
    let fd = new(libc::SOCK_NONBLOCK)?;
    let call = |number, name: &[u8]| {
        let (address, length) = address(name);
        let place = (&raw const address).addr();
        // SAFETY: the address is a local of at least that length.
        unsafe { raw(number, [int(fd), place, length, 0, 0, 0]) }
    };
    let connected = call(libc::SYS_bind, own).and_then(|_| call(libc::SYS_connect, to));
    or_close(fd, connected)
}

/// The name of who has connected.
pub struct Name {
    address: sockaddr_un,
    /// Bytes of the address.
    length: libc::socklen_t,
}

impl Name {
    /// Calls `with` with its bytes, of which there are none where it has no name.
    pub fn read<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        let mut bytes = [0; size_of::<sockaddr_un>()];
        for (to, from) in bytes.iter_mut().zip(&self.address.sun_path) {
            *to = from.cast_unsigned();
        }
        let length = self.length as usize;
        let count = length.saturating_sub(size_of::<libc::sa_family_t>());
        with(bytes.get(..count).unwrap_or(&[]))
    }
}

/// Accepts the server's end of the anchor that has waited longest, with these flags of `accept4`, and its client's name.
///
/// # Errors
/// `EAGAIN` where none waits; `EMFILE`.
pub fn accept(fd: c_int, flags: c_int) -> Sys<(c_int, Name)> {
    let mut client = Name {
        address: address(&[]).0,
        length: libc::socklen_t::try_from(size_of::<sockaddr_un>()).unwrap_or(0),
    };
    let places = [
        (&raw mut client.address).addr(),
        (&raw mut client.length).addr(),
    ];
    // SAFETY: the places are locals, of the length that is said.
    let taken = unsafe {
        raw(
            libc::SYS_accept4,
            [int(fd), places[0], places[1], int(flags), 0, 0],
        )
    };
    Ok((descriptor(taken?), client))
}

/// Marks an anchor, so that a process that receives it recognises it.
///
/// # Errors
/// Those of `setsockopt`.
pub fn mark(fd: c_int) -> Sys<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_INCOMING_CPU, ANCHOR_MARK)
}

/// The credentials of the process that made the other end of a connected local socket.
///
/// # Errors
/// Those of `getsockopt`.
pub fn peer(fd: c_int) -> Sys<libc::ucred> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    let (level, name) = (int(libc::SOL_SOCKET), int(libc::SO_PEERCRED));
    let places = [(&raw mut credentials).addr(), (&raw mut length).addr()];
    // SAFETY: the places are locals.
    unsafe {
        raw(
            libc::SYS_getsockopt,
            [int(fd), level, name, places[0], places[1], 0],
        )
    }?;
    Ok(credentials)
}
