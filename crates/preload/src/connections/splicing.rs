//! `splice` between a virtual socket and a pipe. The kernel can not see the socket's bytes, so they
//! are copied; nothing is taken from one side before the other has room for it.

use libc::{c_int, c_uint};
use netchannel_abi::link::waiter as bits;

use crate::connections::transfer;
use crate::descriptors::{limits, user};
use crate::ground::{real, sys};
use crate::sockets::lane::{Lane, ReceiveMode, Stop};
use crate::sockets::socket::status;
use crate::waiting::{signals, wait};

/// Moved at most in one call: what a pipe usually holds.
const MOST: usize = 65536;
/// What a pipe that has any room takes without blocking.
const CERTAIN: usize = 4096;

/// One call of `splice` with a socket and another file.
pub struct Call {
    /// The other file.
    pub pipe: c_int,
    /// It is read from.
    pub reads: bool,
    /// The positions given for it, and for the socket; null for none.
    pub offsets: [*mut i64; 2],
    /// Bytes at most.
    pub length: usize,
    /// `SPLICE_F_*`.
    pub flags: c_uint,
}

/// Whether a socket can be spliced so, as the kernel looks at it.
///
/// # Errors
/// As `splice`.
///
/// # Safety
/// The positions are the program's.
pub unsafe fn check(call: &Call) -> Result<(), c_int> {
    const KNOWN: c_uint =
        libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;
    if call.flags & !KNOWN != 0 {
        return Err(libc::EINVAL);
    }
    let open = access(call.pipe)?;
    let is_pipe = sys::fcntl(call.pipe, libc::F_GETPIPE_SZ, 0).is_ok();
    if is_pipe && !call.offsets[0].is_null() {
        return Err(libc::ESPIPE);
    }
    for offset in call.offsets {
        if !offset.is_null() {
            // SAFETY: the caller's promise.
            unsafe { user::read(offset)? };
        }
    }
    let other = if call.reads {
        libc::O_WRONLY
    } else {
        libc::O_RDONLY
    };
    if open == other {
        return Err(libc::EBADF);
    }
    let [_, of_socket] = call.offsets;
    if !is_pipe || !of_socket.is_null() || isize::try_from(call.length).is_err() {
        return Err(libc::EINVAL);
    }
    Ok(())
}

/// Whether a file only appends, to which nothing is spliced.
pub fn appends(fd: c_int) -> bool {
    sys::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & sys::int(libc::O_APPEND) != 0)
}

/// How a file was opened.
///
/// # Errors
/// `EBADF` for one that is only named.
pub fn access(fd: c_int) -> Result<c_int, c_int> {
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
pub fn source(fd: c_int, positioned: bool, nothing: bool) -> Result<Source, c_int> {
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
        libc::S_IFREG if about.st_size == 0 && !is_spliced(fd) => Err(libc::EINVAL),
        libc::S_IFREG | libc::S_IFBLK => Ok(Source::File),
        // What the kernel has made for a call of its own, such as an eventfd.
        0 if positioned => Err(libc::ESPIPE),
        libc::S_IFCHR if about.st_rdev == libc::makedev(1, 5) => Ok(Source::Endless),
        // Only what is to be read from is looked at more closely.
        _ if nothing => Ok(Source::Endless),
        _ => Err(libc::EINVAL),
    }
}

/// Whether the kernel gives the bytes of a file to `sendfile`: of those in `/proc`, which have no size, it gives some and not others.
fn is_spliced(fd: c_int) -> bool {
    let Ok((near, far)) = limits::for_library(|| sys::socket_pair(libc::SOCK_STREAM)) else {
        return true;
    };
    let mut start: libc::off_t = 0;
    // SAFETY: a local; what is sent goes with the pair.
    let sent = unsafe { real::sendfile(near, fd, &raw mut start, 1) };
    let refused = sent < 0 && real::errno() == libc::EINVAL;
    sys::close(near);
    sys::close(far);
    !refused
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

/// From a pipe into the socket: what is in the pipe, and what the socket takes.
///
/// # Errors
/// As `splice`.
pub fn to_socket(
    lane: &mut Lane,
    pipe: c_int,
    length: usize,
    flags: c_uint,
) -> Result<usize, c_int> {
    let pipe_waits = waits_for(pipe, flags);
    let more = flags & libc::SPLICE_F_MORE != 0;
    let mut total = 0;
    while total < length {
        let rest = length - total;
        match move_to_socket(lane, pipe, rest, pipe_waits && total == 0, more) {
            Ok(0) => break,
            Ok(moved) => total += moved,
            Err(_) if total > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

/// Moves some of what is in the pipe; nothing where nobody writes to it any more.
fn move_to_socket(
    lane: &mut Lane,
    pipe: c_int,
    length: usize,
    pipe_waits: bool,
    more: bool,
) -> Result<usize, c_int> {
    let events = ready(pipe, libc::POLLIN, pipe_waits)?;
    if events == 0 {
        return Err(libc::EAGAIN);
    }
    if events & libc::POLLIN == 0 {
        return Ok(0);
    }
    // Nothing leaves the pipe that can not be sent.
    // SAFETY: nothing is copied.
    unsafe { transfer::send(lane, &[], 0)? };
    let length = length.min(waiting_in(pipe)).min(MOST);
    let mut room = lane.make_room(length);
    while !lane.is_writable() {
        if lane.socket.has(status::NONBLOCKING) {
            if lane.want_space() {
                continue;
            }
            return Err(libc::EAGAIN);
        }
        wait::sleep_on(lane, bits::SPACE, Lane::is_writable)?;
        room = lane.make_room(length);
    }
    let mut buffer = vec![0u8; room.max(1)];
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
        let sent = unsafe { transfer::send_fully(lane, rest.as_ptr(), rest.len(), more) };
        match sent {
            Ok(sent) => done += sent,
            Err(libc::EINTR) => {}
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(got)
}

/// How many bytes are in a pipe.
fn waiting_in(pipe: c_int) -> usize {
    let mut count: c_int = 0;
    let place = (&raw mut count).addr();
    // SAFETY: the kernel writes an int of ours.
    let asked = unsafe {
        let words = [sys::int(pipe), libc::FIONREAD as usize, place, 0, 0, 0];
        sys::raw(libc::SYS_ioctl, words)
    };
    asked.map_or(0, |_| usize::try_from(count).unwrap_or(0))
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
    let mut pipe_waits = waits_for(pipe, flags);
    let mut buffer = vec![0u8; length.min(MOST)];
    let mut total = 0;
    while total < buffer.len() {
        // The pipe first, as in the kernel: only for the first bytes a call waits.
        let events = match ready(pipe, libc::POLLOUT, pipe_waits) {
            Err(_) if total > 0 => break,
            events => events?,
        };
        if events & libc::POLLERR != 0 && total == 0 {
            // Nobody reads from it.
            // SAFETY: a signal to the calling thread, as the kernel would raise it.
            unsafe { libc::raise(libc::SIGPIPE) };
            return Err(libc::EPIPE);
        }
        if events & libc::POLLOUT == 0 {
            if total == 0 {
                return Err(libc::EAGAIN);
            }
            break;
        }
        let most = buffer.len().min(total + CERTAIN);
        let got = match take(lane, &mut buffer[total..most], total == 0) {
            Err(error) if total > 0 => {
                if error != libc::EAGAIN && !lane.socket.has(status::FAULT) {
                    // The next call tells it.
                    lane.socket.unmark(status::RESET);
                }
                break;
            }
            got => got?,
        };
        if got == 0 {
            break;
        }
        let part = &buffer[total..total + got];
        // SAFETY: the buffer is ours for its length.
        let put = unsafe {
            let words = [sys::int(pipe), part.as_ptr().addr(), part.len(), 0, 0, 0];
            sys::raw(libc::SYS_write, words)
        };
        let put = match put {
            Err(_) if total > 0 => break,
            put => put?,
        };
        discard(lane, put);
        total += put;
        pipe_waits = false;
    }
    Ok(total)
}

/// Looks at the next bytes of the socket, and waits for the first where it waits; none at the end.
fn take(lane: &mut Lane, buffer: &mut [u8], first: bool) -> Result<usize, c_int> {
    let mode = ReceiveMode {
        peek: true,
        ..ReceiveMode::default()
    };
    loop {
        if lane.is_before_urgent() {
            // TCP's splice comes no further than a mark, whether the byte is read in line or not.
            let waits = !lane.socket.has(status::NONBLOCKING);
            return if !first || waits || lane.is_complete() {
                Ok(0)
            } else {
                Err(libc::EAGAIN)
            };
        }
        // SAFETY: our own buffer.
        match unsafe { lane.receive(buffer.as_mut_ptr(), buffer.len(), mode) } {
            Ok(got) => return Ok(got),
            Err(Stop::End) => return Ok(0),
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::Wait) if !first => return Ok(0),
            Err(Stop::Wait) if lane.socket.has(status::NONBLOCKING) => {
                if !transfer::finds_end(lane) {
                    return Err(libc::EAGAIN);
                }
            }
            Err(Stop::Wait) => wait::sleep_on(lane, bits::DATA, Lane::has_input)?,
        }
    }
}

/// What the pipe has taken leaves the socket.
fn discard(lane: &mut Lane, mut left: usize) {
    while left > 0 {
        let vector = crate::descriptors::user::vector(core::ptr::null(), left);
        // SAFETY: nothing is copied.
        match unsafe { transfer::receive(lane, &vector, libc::MSG_TRUNC | libc::MSG_DONTWAIT) } {
            Ok(taken @ 1..) => left -= taken,
            _ => break,
        }
    }
}

/// What `fd` is ready for, waiting for it if asked to; 0 where it is not.
fn ready(fd: c_int, events: i16, waits: bool) -> Result<i16, c_int> {
    let mut set = [libc::pollfd {
        fd,
        events,
        revents: 0,
    }];
    if waits {
        signals::sleep_in_poll(&mut set, -1, core::ptr::null())?;
    } else {
        sys::poll(&mut set, 0, core::ptr::null())?;
    }
    Ok(set[0].revents)
}
