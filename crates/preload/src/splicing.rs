//! `splice` between a virtual socket and a pipe. The kernel can not see the socket's bytes, so they
//! are copied; nothing is taken from one side before the other has room for it.

use libc::{c_int, c_uint};
use netchannel_abi::link::waiter as bits;

use crate::lane::Lane;
use crate::socket::status;
use crate::{sys, transfer, wait};

/// Moved at most in one call: what a pipe usually holds.
const MOST: usize = 65536;
/// What a pipe that has any room takes without blocking.
const CERTAIN: usize = 4096;

/// Whether `fd` is a pipe, the only thing that a socket is spliced with.
pub fn is_pipe(fd: c_int) -> bool {
    sys::fcntl(fd, libc::F_GETPIPE_SZ, 0).is_ok()
}

fn is_nonblocking(fd: c_int) -> bool {
    sys::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & sys::int(libc::O_NONBLOCK) != 0)
}

fn flags_of(flags: c_uint) -> c_int {
    if flags & libc::SPLICE_F_NONBLOCK != 0 {
        libc::MSG_DONTWAIT
    } else {
        0
    }
}

/// From a pipe into the socket.
///
/// # Errors
/// As `splice`.
pub fn to_socket(
    lane: &mut Lane,
    pipe: c_int,
    length: usize,
    flags: c_uint,
) -> Result<usize, c_int> {
    let nonblocking = flags_of(flags) != 0 || lane.socket.has(status::NONBLOCKING);
    let pipe_waits = flags_of(flags) == 0 && !is_nonblocking(pipe);
    let events = ready(pipe, libc::POLLIN, pipe_waits)?;
    if events == 0 {
        return Err(libc::EAGAIN);
    }
    while !lane.is_writable() {
        if nonblocking {
            if lane.want_space() {
                continue;
            }
            return Err(libc::EAGAIN);
        }
        wait::sleep_on(lane, bits::SPACE, Lane::is_writable)?;
    }
    let mut buffer = vec![0u8; length.min(lane.room()).min(MOST)];
    // SAFETY: the buffer is ours for its length.
    let got = unsafe {
        let words = [
            sys::int(pipe),
            buffer.as_mut_ptr().addr(),
            buffer.len(),
            0,
            0,
            0,
        ];
        sys::raw(libc::SYS_read, words)?
    };
    let mut done = 0;
    while done < got {
        // What was taken from the pipe must go, even if another thread took the room meanwhile.
        let rest = &buffer[done..got];
        // SAFETY: our own buffer.
        let sent = unsafe { transfer::send_fully(lane, rest.as_ptr(), rest.len()) };
        match sent {
            Ok(sent) => done += sent,
            Err(libc::EINTR) => {}
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(got)
}

/// From the socket into a pipe.
///
/// # Errors
/// As `splice`.
pub fn from_socket(
    lane: &mut Lane,
    pipe: c_int,
    length: usize,
    flags: c_uint,
) -> Result<usize, c_int> {
    let pipe_waits = flags_of(flags) == 0 && !is_nonblocking(pipe);
    let buffer = vec![0u8; length.min(MOST)];
    let vector = crate::hooks::vector(buffer.as_ptr().cast(), buffer.len());
    // SAFETY: our own buffer.
    let got = unsafe { transfer::receive(lane, &vector, libc::MSG_PEEK | flags_of(flags))? };
    let mut done = 0;
    while done < got {
        // Only for the first bytes a call waits.
        let events = ready(pipe, libc::POLLOUT, pipe_waits && done == 0);
        match events {
            Ok(events) if events & libc::POLLERR == 0 && events != 0 => {}
            Ok(0) if done == 0 => return Err(libc::EAGAIN),
            Err(error) if done == 0 => return Err(error),
            Ok(events) if done == 0 && events & libc::POLLERR != 0 => {}
            _ => break,
        }
        let part = &buffer[done..got.min(done + CERTAIN)];
        // SAFETY: the buffer is ours for its length.
        let put = unsafe {
            let words = [sys::int(pipe), part.as_ptr().addr(), part.len(), 0, 0, 0];
            sys::raw(libc::SYS_write, words)
        };
        match put {
            Ok(put) => done += put,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    // What the pipe has taken leaves the socket.
    let mut left = done;
    while left > 0 {
        let vector = crate::hooks::vector(core::ptr::null(), left);
        // SAFETY: nothing is copied.
        match unsafe { transfer::receive(lane, &vector, libc::MSG_TRUNC | libc::MSG_DONTWAIT) } {
            Ok(taken @ 1..) => left -= taken,
            _ => break,
        }
    }
    Ok(done)
}

/// What `fd` is ready for, waiting for it if asked to; 0 where it is not.
fn ready(fd: c_int, events: i16, waits: bool) -> Result<i16, c_int> {
    let mut set = [libc::pollfd {
        fd,
        events,
        revents: 0,
    }];
    if waits {
        wait::sleep_in_poll(&mut set, -1, core::ptr::null())?;
    } else {
        sys::poll(&mut set, 0, core::ptr::null())?;
    }
    Ok(set[0].revents)
}
