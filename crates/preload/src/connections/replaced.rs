//! Calls that sleep on a virtual socket while the kernel takes it over: they go on there, under the same number.

use libc::{c_int, iovec};

use crate::descriptors::table::{self, Kind, Word};
use crate::ground::real;
use crate::sockets::lane::Lane;
use crate::waiting::housekeeping;

/// Whether the socket is the kernel's by now. Carries on what is noted. The caller holds no lock of a socket.
#[inline]
pub fn is_replaced(lane: &Lane) -> bool {
    (housekeeping::are_due() || !lane.socket.is(lane.fd)) && is_kernel(lane)
}

#[cold]
fn is_kernel(lane: &Lane) -> bool {
    housekeeping::carry();
    table::get(lane.fd) == Word(lane.socket.word.0 & !0xff | Kind::Kernel as u64)
}

/// For a call that can not go on in the kernel: a connection that waits to be made anew is over.
#[inline]
pub fn give_up(lane: &Lane) {
    if housekeeping::are_due() {
        lane.give_up_unaccepted();
    }
}

/// Receives in the kernel.
///
/// # Errors
/// The errno of `recvmsg`.
///
/// # Safety
/// The vectors are the program's.
#[cold]
pub unsafe fn receive(fd: i32, vectors: &[iovec], flags: c_int) -> Result<usize, i32> {
    let mut message = message_of(vectors);
    // SAFETY: the caller's promise.
    result(unsafe { real::recvmsg(fd, &raw mut message, flags) })
}

/// Sends in the kernel what the call has left: of the first of `vectors` all but `done` bytes. Without a signal, which the
/// caller raises.
///
/// # Errors
/// The errno of `sendmsg`.
///
/// # Safety
/// The vectors are the program's.
#[cold]
pub unsafe fn send(fd: i32, vectors: &[iovec], done: usize, flags: c_int) -> Result<usize, i32> {
    let mut left = vectors.to_vec();
    if let Some(first) = left.first_mut() {
        first.iov_base = first.iov_base.cast::<u8>().wrapping_add(done).cast();
        first.iov_len -= done;
    }
    let message = message_of(&left);
    // SAFETY: the caller's promise.
    result(unsafe { real::sendmsg(fd, &raw const message, flags | libc::MSG_NOSIGNAL) })
}

fn message_of(vectors: &[iovec]) -> libc::msghdr {
    // SAFETY: all zeroes are a message without address, buffers and control data.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = vectors.as_ptr().cast_mut();
    message.msg_iovlen = vectors.len();
    message
}

fn result(returned: isize) -> Result<usize, i32> {
    usize::try_from(returned).map_err(|_| real::errno())
}
