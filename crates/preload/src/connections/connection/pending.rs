//! Connections that take time: the daemon's relay says when the other side has taken them up, or why
//! it will not. What the program sees meanwhile is what TCP shows between SYN and its answer.

use core::sync::atomic::Ordering;

use netchannel_abi::link::{side_flags, waiter as bits};

use super::dissolve::after_failure;
use super::refused_connects;
use crate::sockets::lane::{Lane, Progress};
use crate::sockets::options;
use crate::sockets::socket::{Socket, status};
use crate::waiting::{epoll, wait};

/// What becomes of a connect that the relay refuses.
pub fn carry_on_or_fail(lane: &Lane) -> Progress {
    let error = lane.refusal_error();
    if refused_connects::may_carry(&lane.socket, error) && refused_connects::note(lane) {
        return Progress::Pending;
    }
    lane.fail_with(error);
    Progress::Failed
}

impl Lane {
    /// The connect fails.
    pub(super) fn fail_with(&self, error: i32) {
        // The error stands before the mark that makes others look for it.
        self.socket.entry.error.store(error, Ordering::Relaxed);
        self.socket.mark(status::REFUSED | status::RESET);
        self.socket.unmark(status::PENDING);
    }

    /// The same for who waits in `connect`, and goes to the kernel himself.
    fn is_undecided(&self) -> bool {
        self.relay_answer() == Progress::Pending
    }
}

/// The program waits for a connect that was begun.
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
        let slept = wait::sleep_on(&mut lane, bits::SPACE, |lane| !lane.is_undecided());
        if let Err(error) = slept {
            // It goes on without the caller.
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
                // It ended before the program was told that it is there.
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

/// `shutdown` of a socket whose connect is under way takes it back.
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
    epoll::changed(&socket, None);
}

/// `connect` tells the error, and leaves a socket that can be connected anew.
fn fail(fd: i32, socket: &Socket) -> i32 {
    let error = socket.entry.error.swap(0, Ordering::AcqRel);
    // Without a descriptor for the new socket it stays the one that failed.
    let _ = after_failure(fd, socket);
    if error == 0 {
        libc::ECONNABORTED
    } else {
        error
    }
}
