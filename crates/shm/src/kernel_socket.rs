//! What the kernel says of its sockets, and what it is told, where no other crate has the call.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Whether the next byte of a socket is the urgent one, or comes right behind it. `false` for what is no socket.
pub fn is_at_mark(socket: impl AsFd) -> bool {
    let mut answer: libc::c_int = 0;
    // SAFETY: the request stores one int.
    let result = unsafe { libc::ioctl(raw(&socket.as_fd()), SIOCATMARK, &raw mut answer) };
    result == 0 && answer != 0
}

/// `SIOCATMARK` of asm/sockios.h, which libc does not have.
const SIOCATMARK: libc::Ioctl = 0x8905;

/// `TCP_NOTSENT_LOWAT`: bytes that a socket takes before they are sent, or about as many; 0 for the kernel's default. The kernel refuses it
/// only for what is none of TCP.
pub fn set_unsent_limit(socket: impl AsFd, bytes: u32) {
    let size = libc::socklen_t::try_from(size_of::<u32>()).unwrap_or(0);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads one integer.
    unsafe {
        libc::setsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size,
        );
    }
}

/// `TCP_DEFER_ACCEPT` of a listener, in seconds. The kernel refuses it only for what is none of TCP.
pub fn set_defer_accept(socket: impl AsFd, seconds: u32) {
    let seconds = libc::c_int::try_from(seconds).unwrap_or(libc::c_int::MAX);
    set(
        &socket.as_fd(),
        libc::IPPROTO_TCP,
        libc::TCP_DEFER_ACCEPT,
        seconds,
    );
}

/// `TCP_INFO`: as many bytes of it as the kernel knows, which are returned. 0 for what is none of TCP.
pub fn tcp_info(socket: impl AsFd, into: &mut [u8]) -> usize {
    let mut length = libc::socklen_t::try_from(into.len()).unwrap_or(0);
    // SAFETY: the kernel writes at most `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            raw(&socket.as_fd()),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            into.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 { 0 } else { length as usize }
}

fn set(socket: &BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(0);
    // SAFETY: the value is a live int of the length given.
    unsafe { libc::setsockopt(raw(socket), level, name, (&raw const value).cast(), length) };
}

fn raw(socket: &BorrowedFd<'_>) -> libc::c_int {
    socket.as_raw_fd()
}
