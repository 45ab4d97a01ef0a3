//! Connects that take time: the daemon's relay reports that the other side has accepted the connection, or refuses it.
//! Until then the program sees what TCP shows between SYN and its answer.

use core::sync::atomic::Ordering;

use libc::{sockaddr, socklen_t};
use netchannel_abi::address::Address;
use netchannel_abi::link::{side_flags, waiter as bits};

use super::dissolve::after_failure;
use super::refused_connects;
use crate::descriptors::table::Kind;
use crate::descriptors::{limits, names};
use crate::ground::sys;
use crate::sockets::lane::{Lane, Progress};
use crate::sockets::options;
use crate::sockets::socket::{Socket, status};
use crate::waiting::wait;

/// Handles a connect that the relay refuses, or a connection whose acceptor has ended without accepting it: the kernel
/// carries it on, or it fails.
pub fn carry_on_or_fail(lane: &Lane) -> Progress {
    if !lane.socket.has(status::PENDING) {
        return if refused_connects::note(lane) {
            Progress::Pending
        } else {
            Progress::Failed
        };
    }
    let error = lane.refusal_error();
    if refused_connects::may_carry(&lane.socket, error) && refused_connects::note(lane) {
        return Progress::Pending;
    }
    lane.fail_with(error);
    Progress::Failed
}

impl Lane {
    /// Fails the connect.
    pub(super) fn fail_with(&self, error: i32) {
        // The error is stored before the bits that make others look for it.
        self.socket.entry.error.store(error, Ordering::Relaxed);
        self.socket.mark(status::REFUSED | status::RESET);
        self.socket.unmark(status::PENDING);
    }

    /// Whether the relay has not answered, for a thread that waits in `connect` and falls back to the kernel itself.
    fn is_unanswered(&self) -> bool {
        self.relay_answer() == Progress::Pending
    }
}

/// Waits for a connect that was begun.
///
/// # Errors
/// As `connect`.
pub fn wait_connected(fd: i32, socket: &Socket) -> Result<(), i32> {
    let Some(mut lane) = Lane::of(*socket, fd) else {
        return Err(libc::EBADF);
    };
    loop {
        match lane.relay_answer() {
            Progress::Connected => {
                socket.unmark(status::CONNECTING);
                return Ok(());
            }
            Progress::Failed => {
                if socket.has(status::PENDING) {
                    lane.fail_with(lane.refusal_error());
                }
                return Err(fail(fd, socket));
            }
            Progress::Pending => {}
        }
        let slept = wait::sleep_on(&mut lane, bits::SPACE, |lane| !lane.is_unanswered());
        if let Err(error) = slept {
            // It continues without the caller.
            socket.mark(status::CONNECTING);
            return Err(if error == libc::EAGAIN {
                libc::EINPROGRESS
            } else {
                error
            });
        }
    }
}

/// `connect` of a socket whose connect was begun before, and that the kernel does not carry on.
///
/// # Errors
/// As `connect`.
pub fn connect_again(fd: i32, socket: &Socket) -> Result<(), i32> {
    if socket.has(status::DISCONNECTING) {
        return Err(libc::EINVAL);
    }
    let progress = Lane::of(*socket, fd).map_or(Progress::Connected, |lane| lane.progress());
    match progress {
        Progress::Pending if socket.has(status::NONBLOCKING) => Err(libc::EALREADY),
        Progress::Pending => wait_connected(fd, socket).map_err(|error| match error {
            libc::EINPROGRESS => libc::EALREADY,
            error => error,
        }),
        Progress::Failed => Err(fail(fd, socket)),
        Progress::Connected => {
            let first = socket.has(status::CONNECTING);
            socket.unmark(status::CONNECTING);
            let over = || {
                Lane::of(*socket, fd).is_some_and(|lane| {
                    lane.check_peer_now();
                    lane.is_over()
                })
            };
            if first && over() {
                // The connection ended before its establishment was reported.
                socket
                    .entry
                    .error
                    .store(options::take_error(socket, fd), Ordering::Relaxed);
                return Err(fail(fd, socket));
            }
            if first { Ok(()) } else { Err(libc::EISCONN) }
        }
    }
}

/// `connect` of a send with `MSG_FASTOPEN`, which has no address.
///
/// # Errors
/// As of the send.
pub fn connect_to_send(fd: i32, socket: &Socket) -> Result<(), i32> {
    if socket.has(status::DISSOLVED) {
        return Err(libc::EINVAL);
    }
    connect_again(fd, socket)
}

/// The family of a socket that has no connection yet, or of which it was dissolved.
fn unconnected_family(socket: &Socket) -> Option<i32> {
    if socket.word.kind() == Kind::Fresh {
        return Some(socket.local.family.load(Ordering::Relaxed));
    }
    let is_dissolved = socket.has(status::DISSOLVED);
    is_dissolved.then(|| names::socket_family(&socket.entry.local.load()))
}

/// `connect` of a socket without a connection to an address of another family, or one that is too short: what the kernel
/// says of the address. The socket stays as it is. `None` for any other connect.
///
/// # Safety
/// The program gave `address` to be read, with `length` bytes; it names `target`.
pub unsafe fn refuse_address(
    socket: &Socket,
    target: Option<Address>,
    address: *const sockaddr,
    length: socklen_t,
) -> Option<Result<(), i32>> {
    let family = unconnected_family(socket)?;
    if target.is_some_and(|to| i32::from(to.family) == family) {
        return None;
    }
    let scratch = match limits::stream_socket(family) {
        Ok(scratch) => scratch,
        Err(error) => return Some(Err(error)),
    };
    let words = [sys::int(scratch), address.addr(), length as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    let refused = unsafe { sys::raw(libc::SYS_connect, words).map(drop) };
    sys::close(scratch);
    Some(refused)
}

/// `shutdown` of a socket whose connect is under way abandons the connect.
pub fn abandon(lane: &Lane) {
    let socket = lane.socket;
    socket
        .entry
        .error
        .store(libc::ECONNRESET, Ordering::Relaxed);
    socket.mark(status::REFUSED | status::RESET);
    socket.unmark(status::PENDING);
    lane.own()
        .flags
        .fetch_or(side_flags::RESET, Ordering::AcqRel);
    lane.announce_flags();
    lane.notify_of_change();
}

/// Returns the error of a failed `connect`, and leaves a socket that can be connected again.
fn fail(fd: i32, socket: &Socket) -> i32 {
    let error = socket.entry.error.swap(0, Ordering::AcqRel);
    // Without a number for the new socket the failed one stays.
    let _ = after_failure(fd, socket);
    if error == 0 {
        libc::ECONNABORTED
    } else {
        error
    }
}
