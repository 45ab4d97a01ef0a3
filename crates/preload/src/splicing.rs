//! `splice` between a virtual socket and a pipe. The kernel can not see the socket's bytes, so they
//! are copied; nothing is taken from one side before the other has room for it.

use libc::{c_int, c_uint};
use netchannel_abi::link::waiter as bits;

use crate::lane::Lane;
use crate::socket::status;
use crate::{real, sys, transfer, wait};

/// Moved at most in one call: what a pipe usually holds.
const MOST: usize = 65536;
/// What a pipe that has any room takes without blocking.
const CERTAIN: usize = 4096;

/// Whether a socket can be spliced with `pipe`, as the kernel looks at it: the pipe is read from or written to; `named` says whether a
/// position was given for it, and for the socket.
///
/// # Errors
/// As `splice`.
pub fn check(
    pipe: c_int,
    reads: bool,
    named: [bool; 2],
    length: usize,
    flags: c_uint,
) -> Result<(), c_int> {
    const KNOWN: c_uint =
        libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;
    if flags & !KNOWN != 0 {
        return Err(libc::EINVAL);
    }
    let open = access(pipe)?;
    if sys::fcntl(pipe, libc::F_GETPIPE_SZ, 0).is_err() {
        return Err(libc::EINVAL);
    }
    let [pipe_named, socket_named] = named;
    if pipe_named {
        return Err(libc::ESPIPE);
    }
    let other = if reads {
        libc::O_WRONLY
    } else {
        libc::O_RDONLY
    };
    if open == other {
        return Err(libc::EBADF);
    }
    if socket_named || isize::try_from(length).is_err() {
        return Err(libc::EINVAL);
    }
    Ok(())
}

/// How a file was opened.
fn access(fd: c_int) -> Result<c_int, c_int> {
    let flags = c_int::try_from(sys::fcntl(fd, libc::F_GETFL, 0)?).unwrap_or(0);
    if flags & libc::O_PATH != 0 {
        return Err(libc::EBADF);
    }
    Ok(flags & libc::O_ACCMODE)
}

/// What `sendfile` takes bytes from.
pub enum Source {
    /// A file, in which it goes on.
    File,
    /// A device that gives zeros wherever one is.
    Endless,
}

/// Whether `sendfile` may send from `fd`, as the kernel looks at it.
///
/// # Errors
/// As `sendfile`.
pub fn source(fd: c_int, positioned: bool) -> Result<Source, c_int> {
    if access(fd)? == libc::O_WRONLY {
        return Err(libc::EBADF);
    }
    // SAFETY: all zero is a valid structure.
    let mut about: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: a local; a seek to where it is changes nothing.
    let seeks = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } >= 0;
    // SAFETY: a local.
    if unsafe { libc::fstat(fd, &raw mut about) } < 0 {
        return Err(real::errno());
    }
    match about.st_mode & libc::S_IFMT {
        _ if !seeks && positioned => Err(libc::ESPIPE),
        _ if !seeks => Err(libc::EINVAL),
        libc::S_IFREG | libc::S_IFBLK => Ok(Source::File),
        // What the kernel has made for a call of its own, such as an eventfd.
        0 if positioned => Err(libc::ESPIPE),
        libc::S_IFCHR if about.st_rdev == libc::makedev(1, 5) => Ok(Source::Endless),
        _ => Err(libc::EINVAL),
    }
}

/// How much of `count` bytes from `base` on one call moves; `None` where they can not be.
pub fn length(base: i64, count: usize) -> Option<usize> {
    /// As much as the kernel moves in one call.
    const MOST: i64 = 0x7fff_f000;
    let count = i64::try_from(count).ok()?;
    base.checked_add(count)?;
    usize::try_from(count.min(MOST)).ok()
}

fn is_nonblocking(fd: c_int) -> bool {
    sys::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & sys::int(libc::O_NONBLOCK) != 0)
}

/// Whether the call waits for the pipe. Whether it waits for the socket is the socket's to say.
fn waits_for(pipe: c_int, flags: c_uint) -> bool {
    flags & libc::SPLICE_F_NONBLOCK == 0 && !is_nonblocking(pipe)
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
    let nonblocking = lane.socket.has(status::NONBLOCKING);
    let pipe_waits = waits_for(pipe, flags);
    let events = ready(pipe, libc::POLLIN, pipe_waits)?;
    if events == 0 {
        return Err(libc::EAGAIN);
    }
    if events & libc::POLLIN != 0 {
        // Nothing leaves the pipe that can not be sent.
        // SAFETY: nothing is copied.
        unsafe { transfer::send(lane, &[], 0)? };
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
    if lane.is_before_urgent() {
        // TCP's splice comes no further than a mark, whether the byte is read in line or not.
        return if lane.socket.has(status::NONBLOCKING) {
            Err(libc::EAGAIN)
        } else {
            Ok(0)
        };
    }
    let pipe_waits = waits_for(pipe, flags);
    let buffer = vec![0u8; length.min(MOST)];
    let vector = crate::hooks::vector(buffer.as_ptr().cast(), buffer.len());
    // SAFETY: our own buffer.
    let got = unsafe { transfer::receive(lane, &vector, libc::MSG_PEEK)? };
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
