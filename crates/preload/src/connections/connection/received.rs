//! Sockets without a connection that this process has received in a message, or over an exec. Others have the same open
//! file, and may connect it or listen on it.

use core::sync::atomic::Ordering;

use netchannel_abi::program::State;

use super::accept::{is_listening, recognise_listener};
use super::{before_passing, flags, publish};
use crate::descriptors::table::Kind;
use crate::descriptors::{attach, limits, names};
use crate::ground::sys;
use crate::sockets::options;
use crate::sockets::socket::{self, status};

/// Whether it is a TCP socket that is not connected, as far as the kernel knows.
pub fn is_unconnected(fd: i32) -> bool {
    sys::option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
        && names::kernel_address(fd, true).is_none()
}

/// Makes such a socket known, with the options and flags that it has.
pub fn adopt_unconnected(fd: i32) {
    if limits::are_scarce() || attach::ensure().is_none() {
        return;
    }
    let Some(socket) = socket::allocate(Kind::Kernel, State::Kernel) else {
        return;
    };
    if let Ok(family) = sys::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) {
        socket.local.family.store(family, Ordering::Relaxed);
    }
    options::record_received(&socket, fd);
    let flags = sys::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
    flags::note(&socket, i32::try_from(flags).unwrap_or(0));
    socket.mark(status::SHARED | status::ELSEWHERE | status::PASSED);
    if names::kernel_address(fd, false).is_some_and(|address| address.port != 0) {
        socket.mark(status::BOUND);
    }
    publish(fd, socket);
}

/// After a successful `listen` of a socket of which this process knows nothing.
pub fn listen_received(fd: i32) {
    if is_listening(fd) {
        recognise_listener(fd);
        let _ = before_passing(fd);
    }
}
