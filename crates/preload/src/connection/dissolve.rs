//! Taking a connection away from its socket, which can be connected anew: after a connect that failed, and by a connect to nowhere
//! (`AF_UNSPEC`).

use core::sync::atomic::Ordering;

use netchannel_abi::address::Address;
use netchannel_abi::link::side_flags;

use super::replacing::{become_kernel, make_kernel};
use crate::lane::Lane;
use crate::socket::{Socket, status};
use crate::{clock, epoll, limits, names, options, sys, wait};

/// How long threads that sleep in calls on the connection are waited for: they have been woken.
const PATIENCE: u64 = 100_000 * clock::MICROSECOND;

/// `connect` of a virtual socket to nowhere. The peer sees a reset, as with TCP. Where other processes have the socket, too, that is all:
/// they share no descriptor that could be another's from now on.
///
/// # Errors
/// Why no socket could be made for the place of it.
pub fn dissolve(fd: i32, socket: &Socket) -> Result<(), i32> {
    let lane = Lane::of(*socket, fd).ok_or(libc::EBADF)?;
    let reset = if lane.is_over() { 0 } else { side_flags::RESET };
    if reset != 0 {
        lane.explain_reset();
    }
    let alone = socket.entry.references.load(Ordering::Acquire) == 1 && !socket.is_foreign();
    if !alone || is_slept_in(socket) {
        break_off(&lane, reset);
    }
    if !alone {
        return Ok(());
    }
    let until = clock::now().wrapping_add(PATIENCE);
    while is_slept_in(socket) && clock::now() < until {
        sys::yield_now();
    }
    let made = make_kernel(socket)?;
    if reset != 0 || options::take_error(socket, fd) == libc::ECONNRESET {
        leave_error(made);
    }
    replace(
        fd,
        socket,
        made,
        side_flags::FIN | side_flags::CLOSED | reset,
    )
}

/// TCP leaves `ECONNRESET` with a socket whose connection was dissolved: the kernel shall dissolve one of this one, too. What can not be
/// done leaves none.
fn leave_error(fd: i32) {
    let six = sys::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_INET6);
    let family = if six { libc::AF_INET6 } else { libc::AF_INET };
    let Ok(listener) = limits::stream_socket(family) else {
        return;
    };
    let flags = sys::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
    // No connect shall be waited for.
    let _ = sys::fcntl(fd, libc::F_SETFL, flags | sys::int(libc::O_NONBLOCK));
    let nowhere = [0u8; 16];
    // SAFETY: no pointers, and an address of ours.
    unsafe {
        let _ = sys::raw(libc::SYS_listen, [sys::int(listener), 1, 0, 0, 0, 0]);
        let port = names::of_kernel(listener, false).map_or(0, |own| own.port);
        let _ = names::connect(fd, &Address::loopback(six, port));
        let words = [
            sys::int(fd),
            nowhere.as_ptr().addr(),
            nowhere.len(),
            0,
            0,
            0,
        ];
        let _ = sys::raw(libc::SYS_connect, words);
    }
    sys::close(listener);
    let _ = sys::fcntl(fd, libc::F_SETFL, flags);
}

fn is_slept_in(socket: &Socket) -> bool {
    let entry = socket.entry;
    entry.receive.sleepers.load(Ordering::Acquire) > 0
        || entry.transmit.sleepers.load(Ordering::Acquire) > 0
}

/// Ends the connection for calls that wait for something of it, and for the peer.
fn break_off(lane: &Lane, reset: u32) {
    let socket = lane.socket;
    let readers = socket.entry.receive.sleepers.load(Ordering::Acquire) % wait::WRITER;
    let error = if readers > 0 {
        libc::EPIPE
    } else {
        libc::ECONNRESET
    };
    // The error stands before the mark that makes others look for it.
    socket.entry.error.store(error, Ordering::Relaxed);
    socket.mark(status::REFUSED | status::RESET);
    socket.unmark(status::PENDING);
    lane.own().flags.fetch_or(reset, Ordering::AcqRel);
    lane.announce_flags();
    lane.rouse();
    epoll::changed(&socket);
}

/// Puts a kernel socket that is not connected in the place of a virtual one. The peer hears `flags`.
pub(super) fn disconnect(fd: i32, socket: &Socket, flags: u32) -> Result<(), i32> {
    replace(fd, socket, make_kernel(socket)?, flags)
}

fn replace(fd: i32, socket: &Socket, made: i32, flags: u32) -> Result<(), i32> {
    let turned = become_kernel(fd, socket, made, flags)?;
    turned.entry.error.store(0, Ordering::Relaxed);
    Ok(())
}
