//! A socket, as the tunnel has it.

use netchannel_guest::{Sink, Taken};
use netchannel_shm::run::{gather_write, scatter_read};
use netchannel_shm::{Room, Run};
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A socket. Its events are told once each, so that what they said is kept until a call says otherwise.
#[derive(Debug)]
pub struct SocketSink {
    socket: OwnedFd,
    is_readable: bool,
    /// An end or an error was told: a read that brings less than it has room for is not the last.
    was_told_end: bool,
    has_ended: bool,
}

impl SocketSink {
    /// The sink of a socket. Should this process end unexpectedly, the connection counts as reset: its end is no end of the guest's stream.
    pub fn new(socket: OwnedFd) -> Self {
        set_reset(&socket, true);
        Self {
            socket,
            is_readable: true,
            was_told_end: false,
            has_ended: false,
        }
    }

    /// Something happened; with `end` the other side has ended its stream, or there is an error.
    pub const fn on_event(&mut self, end: bool) {
        self.is_readable = true;
        self.was_told_end |= end;
    }

    /// Whether a connect has succeeded; false while it is under way.
    ///
    /// # Errors
    /// Why it has failed.
    pub fn is_connected(&self) -> Result<bool, u32> {
        let peer = nix::sys::socket::getpeername::<nix::sys::socket::SockaddrStorage>(
            self.socket.as_raw_fd(),
        );
        match (peer, self.error()) {
            (Ok(_), _) => Ok(true),
            (Err(_), 0) => Ok(false),
            (Err(_), errno) => Err(errno),
        }
    }

    fn error(&self) -> u32 {
        getsockopt(&self.socket, sockopt::SocketError).map_or(0, i32::unsigned_abs)
    }
}

impl AsFd for SocketSink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Sink for SocketSink {
    fn take(&mut self, room: &[Room<'_>]) -> Taken {
        let asked: usize = room.iter().map(Room::length).sum();
        if self.has_ended {
            return match self.was_told_end.then(|| self.error()) {
                None | Some(0) => Taken::End,
                Some(errno) => Taken::Failed(errno),
            };
        }
        if asked == 0 || !self.is_readable {
            return Taken::Nothing;
        }
        loop {
            match scatter_read(self.socket.as_raw_fd(), room) {
                Ok(0) => {
                    self.has_ended = true;
                    return Taken::End;
                }
                Ok(count) => {
                    // All that there was: what comes from now on is told by another event.
                    self.is_readable = count == asked || self.was_told_end;
                    return Taken::Bytes(count);
                }
                Err(libc_errno) => match Errno::from_raw(libc_errno) {
                    Errno::EINTR => {}
                    Errno::EAGAIN => {
                        self.is_readable = false;
                        return Taken::Nothing;
                    }
                    errno => return Taken::Failed(number(errno)),
                },
            }
        }
    }

    fn put(&mut self, bytes: &[Run<'_>]) -> Result<usize, u32> {
        loop {
            match gather_write(self.socket.as_raw_fd(), bytes) {
                Ok(count) => return Ok(count),
                Err(libc_errno) => match Errno::from_raw(libc_errno) {
                    Errno::EINTR => {}
                    Errno::EAGAIN => return Ok(0),
                    errno => return Err(number(errno)),
                },
            }
        }
    }

    fn end(&mut self) {
        // It fails where the other host has reset the connection, which the next read tells.
        let how = nix::sys::socket::Shutdown::Write;
        let _ = nix::sys::socket::shutdown(self.socket.as_raw_fd(), how);
    }

    fn accepted(&mut self) {}

    fn close(self, error: Option<u32>, _: bool) {
        if error.is_none() {
            set_reset(&self.socket, false);
        }
    }
}

/// Whether the end of a socket is a reset.
fn set_reset(socket: &OwnedFd, resets: bool) {
    let linger = nix::libc::linger {
        l_onoff: resets.into(),
        l_linger: 0,
    };
    // It fails only for a socket that is none of TCP.
    let _ = setsockopt(socket, sockopt::Linger, &linger);
}

/// As in frames.
pub fn number(errno: Errno) -> u32 {
    (errno as i32).unsigned_abs()
}
