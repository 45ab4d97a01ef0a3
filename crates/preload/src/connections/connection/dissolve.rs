//! Dissolving a connection: its socket can be connected again, after a connect that failed, or by a connect to
//! `AF_UNSPEC`.

use core::sync::atomic::Ordering;

use netchannel_abi::address::Address;
use netchannel_abi::link::side_flags;

use super::replacing::{become_kernel, make_kernel};
use crate::descriptors::{limits, names};
use crate::ground::{clock, sys};
use crate::sockets::lane::Lane;
use crate::sockets::options;
use crate::sockets::socket::{Socket, status};

/// How long to wait for threads that sleep in calls on the connection, after they were woken.
const SLEEPER_TIMEOUT: u64 = 100_000 * clock::MICROSECOND;

/// `connect` of a virtual socket to `AF_UNSPEC`. The peer sees a reset, as with TCP. Where other processes have the
/// socket, too, that is all: their descriptors can not be given another socket.
///
/// # Errors
/// Why no socket could be made in its place.
pub fn dissolve(fd: i32, socket: &Socket) -> Result<(), i32> {
    let lane = Lane::of(*socket, fd).ok_or(libc::EBADF)?;
    // A peer that has ended, too, is not reset.
    lane.check_peer_now();
    let reset = if lane.is_over() { 0 } else { side_flags::RESET };
    if reset != 0 {
        lane.publish_reset_error();
    }
    if !has_one_holder(socket) {
        end_connection(&lane, reset, unreported_error(socket, fd, reset));
        forget_address(socket);
        return Ok(());
    }
    if has_sleepers(socket) {
        let unreported = if reset != 0 { libc::ECONNRESET } else { 0 };
        end_connection(&lane, reset, unreported);
    }
    let until = clock::now().wrapping_add(SLEEPER_TIMEOUT);
    while has_sleepers(socket) && clock::now() < until {
        sys::yield_now();
    }
    let made = make_kernel(socket, false)?;
    // A sleeper that was woken takes its error itself.
    let unreported = unreported_error(socket, fd, reset);
    if unreported != 0 {
        leave_error(made, unreported);
    }
    replace(
        fd,
        socket,
        made,
        side_flags::FIN | side_flags::CLOSED | reset,
    )
}

/// The error that is left with the socket, 0 for none: that of a reset by this side, or one that was not told yet.
fn unreported_error(socket: &Socket, fd: i32, reset: u32) -> i32 {
    if reset != 0 {
        return libc::ECONNRESET;
    }
    match options::take_error(socket, fd) {
        error @ (libc::ECONNRESET | libc::EPIPE) => error,
        _ => 0,
    }
}

/// Whether no other process has it, so that another socket can take its place.
fn has_one_holder(socket: &Socket) -> bool {
    socket.entry.references.load(Ordering::Acquire) == 1 && !socket.is_foreign()
}

/// Called when a connect has failed and the failure is reported.
pub(super) fn after_failure(fd: i32, socket: &Socket) -> Result<(), i32> {
    let flags = side_flags::FIN | side_flags::CLOSED;
    if has_one_holder(socket) {
        return replace(fd, socket, make_kernel(socket, false)?, flags);
    }
    socket.mark(status::REFUSED | status::RESET | status::DISSOLVED);
    socket.unmark(status::PENDING | status::CONNECTING);
    forget_address(socket);
    // The slot belongs to the connection until its last holder closes it.
    if let Some(lane) = Lane::of(*socket, fd) {
        lane.wake_sleepers();
        lane.notify_of_change();
    }
    Ok(())
}

/// TCP leaves `ECONNRESET` with a socket whose connection was dissolved, or an `EPIPE` that was not reported. To get
/// the same, the kernel dissolves a connection of this socket. Failures are ignored.
pub fn leave_error(fd: i32, error: i32) {
    let six = sys::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_INET6);
    let family = if six { libc::AF_INET6 } else { libc::AF_INET };
    let Ok(listener) = limits::stream_socket(family) else {
        return;
    };
    let flags = sys::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
    // The connect must not block.
    let _ = sys::fcntl(fd, libc::F_SETFL, flags | sys::int(libc::O_NONBLOCK));
    let nowhere = [0u8; 16];
    // SAFETY: no pointers except to `nowhere`.
    unsafe {
        let _ = sys::raw(libc::SYS_listen, [sys::int(listener), 1, 0, 0, 0, 0]);
        let port = names::kernel_address(listener, false).map_or(0, |own| own.port);
        let _ = names::connect(fd, &Address::loopback(six, port));
        if error == libc::EPIPE {
            meet_closed_peer(fd, listener);
        }
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

/// Lets the bytes that `fd` sends meet a closed peer.
fn meet_closed_peer(fd: i32, listener: i32) {
    // With `TCP_DEFER_ACCEPT` the acknowledgement for which the accept waits would be delayed.
    let _ = sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1);
    // SAFETY: no pointers.
    let accepted = unsafe { sys::raw(libc::SYS_accept, [sys::int(listener), 0, 0, 0, 0, 0]) };
    if let Ok(accepted) = accepted.and_then(|fd| i32::try_from(fd).map_err(|_| libc::EBADF)) {
        sys::close(accepted);
        let _ = sys::send(fd, &[0], libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
    }
}

fn has_sleepers(socket: &Socket) -> bool {
    let entry = socket.entry;
    entry.receive.sleepers.load(Ordering::Acquire) > 0
        || entry.transmit.sleepers.load(Ordering::Acquire) > 0
}

/// Whether the program, or the listener that accepted the socket, has named its address. Others go with the connection.
pub(super) fn has_named_address(socket: &Socket) -> bool {
    let bound = socket.local.reserve.load(Ordering::Relaxed);
    socket.has(status::ADDRESS_NAMED)
        || bound > 0
            && names::kernel_address(bound - 1, false).is_some_and(|bound| !bound.is_wildcard())
}

/// Forgets the peer's address, and an own one that has not been named, except for the port.
fn forget_address(socket: &Socket) {
    socket.entry.peer.store(&Address::default());
    if !has_named_address(socket) {
        let entry = socket.entry;
        entry.local.store(&entry.local.load().unnamed());
    }
}

/// Ends the connection for the peer and for calls that wait on it. The error `unreported` is left with the socket.
fn end_connection(lane: &Lane, reset: u32, unreported: i32) {
    let socket = lane.socket;
    // Not for readers that sleep: they are told of the end of the connection only. The error is stored before the bits
    // that make others look for it.
    socket.entry.error.store(unreported, Ordering::Relaxed);
    socket.mark(status::REFUSED | status::RESET | status::DISSOLVED);
    // The ends of its directions go with it.
    socket.unmark(status::PENDING | status::SHUT_READ | status::SHUT_WRITE);
    lane.own().flags.fetch_or(reset, Ordering::AcqRel);
    lane.announce_flags();
    lane.wake_sleepers();
    lane.notify_of_change();
}

/// Puts an unconnected kernel socket in the place of a virtual one. The peer gets `flags`.
fn replace(fd: i32, socket: &Socket, made: i32, flags: u32) -> Result<(), i32> {
    let former = socket.entry.local.load().port;
    let shown = names::kernel_address(made, false).map_or(0, |own| own.port);
    let turned = become_kernel(fd, socket, made, flags, |_| Ok(()))?;
    turned.entry.error.store(0, Ordering::Relaxed);
    turned.local.former_port.note(shown, former);
    Ok(())
}
