//! `splice` between a virtual socket and a pipe. The kernel can not see the socket's bytes, so they are copied. Bytes
//! are taken from one side only when the other has room for them.

use libc::{c_int, c_uint};
use netchannel_abi::link::waiter as bits;

use crate::connections::{replaced, transfer};
use crate::descriptors::{limits, user};
use crate::ground::{real, sys};
use crate::sockets::lane::{Lane, ReceiveMode, Stop};
use crate::sockets::options;
use crate::sockets::socket::status;
use crate::waiting::{signals, wait};

/// Most bytes of one call: the usual size of a pipe.
const MOST: usize = 65536;
/// Bytes that a pipe with any room takes without blocking.
const GUARANTEED_ROOM: usize = 4096;

/// One call of `splice` with a socket and another file.
pub struct Call {
    /// The other file.
    pub pipe: c_int,
    /// The other file is the source.
    pub reads: bool,
    /// The offsets given for the other file and for the socket; null for none.
    pub offsets: [*mut i64; 2],
    /// Most bytes to move.
    pub length: usize,
    /// `SPLICE_F_*`.
    pub flags: c_uint,
}

/// Checks the call as the kernel does.
///
/// # Errors
/// As `splice`.
///
/// # Safety
/// The offsets are the program's.
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

/// Whether a file is in append mode, to which the kernel splices nothing.
pub fn appends(fd: c_int) -> bool {
    sys::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & sys::int(libc::O_APPEND) != 0)
}

/// The access mode of a file.
///
/// # Errors
/// `EBADF` for a file opened with `O_PATH`.
pub fn access(fd: c_int) -> Result<c_int, c_int> {
    let flags = c_int::try_from(sys::fcntl(fd, libc::F_GETFL, 0)?).unwrap_or(0);
    if flags & libc::O_PATH != 0 {
        return Err(libc::EBADF);
    }
    Ok(flags & libc::O_ACCMODE)
}

/// The source of a `sendfile`.
pub enum Source {
    /// A file with a position.
    File,
    /// A device that reads as zeros at any position.
    Endless,
}

/// Whether `sendfile` may read from `fd`, checked as the kernel does.
///
/// # Errors
/// As `sendfile`.
pub fn source(fd: c_int, positioned: bool, is_empty_call: bool) -> Result<Source, c_int> {
    if access(fd)? == libc::O_WRONLY {
        return Err(libc::EBADF);
    }
    // SAFETY: all zero is a valid structure.
    let mut about: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: a local; a seek by zero changes nothing.
    let seeks = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } >= 0;
    // SAFETY: a local.
    if unsafe { libc::fstat(fd, &raw mut about) } < 0 {
        return Err(real::errno());
    }
    match about.st_mode & libc::S_IFMT {
        _ if !seeks && positioned => Err(libc::ESPIPE),
        _ if !seeks => Err(libc::EINVAL),
        libc::S_IFREG if about.st_size == 0 && !is_readable_by_sendfile(fd) => Err(libc::EINVAL),
        libc::S_IFREG | libc::S_IFBLK => Ok(Source::File),
        // A file that the kernel makes for a system call, such as an eventfd.
        0 if positioned => Err(libc::ESPIPE),
        libc::S_IFCHR if about.st_rdev == libc::makedev(1, 5) => Ok(Source::Endless),
        // The kernel checks the file further only if there are bytes to read.
        _ if is_empty_call => Ok(Source::Endless),
        _ => Err(libc::EINVAL),
    }
}

/// Whether `sendfile` can read a file: of those in `/proc`, which have size 0, it can read some.
fn is_readable_by_sendfile(fd: c_int) -> bool {
    let Ok((near, far)) = limits::for_library(|| sys::socket_pair(libc::SOCK_STREAM)) else {
        return true;
    };
    let mut start: libc::off_t = 0;
    // SAFETY: a local; the byte that is sent is dropped with the pair.
    let sent = unsafe { real::sendfile(near, fd, &raw mut start, 1) };
    let refused = sent < 0 && real::errno() == libc::EINVAL;
    sys::close(near);
    sys::close(far);
    !refused
}

/// How many of `count` bytes from `base` on one call moves; `None` where the range is invalid.
pub fn length(base: i64, count: usize) -> Option<usize> {
    /// Most bytes that the kernel moves in one call.
    const MOST: i64 = 0x7fff_f000;
    let count = i64::try_from(count).ok()?;
    base.checked_add(count)?;
    usize::try_from(count.min(MOST)).ok()
}

/// Whether the call waits for the pipe. Whether it waits for the socket depends on the socket.
fn may_wait_for(pipe: c_int, flags: c_uint) -> bool {
    flags & libc::SPLICE_F_NONBLOCK == 0 && !sys::is_nonblocking(pipe)
}

/// From a pipe into the socket: as many bytes as the pipe has and the socket takes.
///
/// # Errors
/// As `splice`.
pub fn to_socket(
    lane: &mut Lane,
    pipe: c_int,
    length: usize,
    flags: c_uint,
) -> Result<usize, c_int> {
    let pipe_waits = may_wait_for(pipe, flags);
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

/// Moves some bytes of the pipe; none where the pipe has no more writers.
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
    let room = wait_for_room(lane, length.min(bytes_in_pipe(pipe)).min(MOST))?;
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
        // Bytes that were taken from the pipe must be sent, even if another thread took the room meanwhile.
        let rest = &buffer[done..got];
        // SAFETY: the library's own buffer.
        let sent = unsafe { transfer::send_fully(lane, rest.as_ptr(), rest.len(), more) };
        match sent {
            Ok(sent) => done += sent,
            Err(libc::EINTR | libc::EAGAIN) => {}
            // The connection has ended meanwhile. The bytes count as some that were sent before, and the next call
            // finds the end.
            Err(libc::EPIPE) => break,
            Err(error) => {
                lane.put_back_error(error);
                break;
            }
        }
    }
    Ok(got)
}

/// Waits until the socket has room, and returns for how many of `length` bytes. After an error the bytes stay in the
/// pipe.
fn wait_for_room(lane: &mut Lane, length: usize) -> Result<usize, c_int> {
    loop {
        // SAFETY: nothing is copied.
        unsafe { transfer::send(lane, &[], 0)? };
        let room = lane.make_room(length);
        if lane.is_writable() {
            return Ok(room);
        }
        if !lane.socket.has(status::NONBLOCKING) {
            wait::sleep_on(lane, bits::SPACE, Lane::is_writable)?;
            replaced::give_up(lane);
        } else if !lane.want_space() {
            return Err(libc::EAGAIN);
        }
    }
}

/// The number of bytes in a pipe.
fn bytes_in_pipe(pipe: c_int) -> usize {
    let count = sys::file::count(pipe, libc::FIONREAD);
    count.map_or(0, |count| usize::try_from(count).unwrap_or(0))
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
    let mut pipe_waits = may_wait_for(pipe, flags);
    let mut buffer = vec![0u8; length.min(MOST)];
    let mut total = 0;
    while total < buffer.len() {
        // The pipe first, as in the kernel: a call waits only for its first bytes.
        let events = match ready(pipe, libc::POLLOUT, pipe_waits) {
            Err(_) if total > 0 => break,
            events => events?,
        };
        if events & libc::POLLERR != 0 && total == 0 {
            // The pipe has no readers.
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
        let most = buffer.len().min(total + GUARANTEED_ROOM);
        let got = match peek(lane, &mut buffer[total..most], total == 0) {
            Err(error) if total > 0 => {
                if error != libc::EAGAIN {
                    lane.put_back_error(error);
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

/// Peeks at the next bytes of the socket, and waits for the first where the socket blocks; none at the end.
fn peek(lane: &mut Lane, buffer: &mut [u8], first: bool) -> Result<usize, c_int> {
    let mode = ReceiveMode {
        peek: true,
        ..ReceiveMode::default()
    };
    loop {
        if lane.is_before_urgent() {
            // TCP's splice stops at a mark, whether the byte is read in line or not.
            let blocks = !lane.socket.has(status::NONBLOCKING);
            if first && let Some(error) = error_at_mark(lane) {
                return Err(error);
            }
            return if !first || blocks || lane.is_complete() {
                Ok(0)
            } else {
                Err(libc::EAGAIN)
            };
        }
        // SAFETY: the library's own buffer.
        match unsafe { lane.receive(buffer.as_mut_ptr(), buffer.len(), mode) } {
            Ok(got) => return Ok(got),
            Err(Stop::End) => return Ok(0),
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::Wait) if !first => return Ok(0),
            Err(Stop::Wait) if lane.socket.has(status::NONBLOCKING) => {
                if !lane.finds_end() {
                    return Err(libc::EAGAIN);
                }
            }
            Err(Stop::Wait) => {
                wait::sleep_on(lane, bits::DATA, Lane::has_input)?;
                replaced::give_up(lane);
            }
        }
    }
}

/// The error of a connection whose stream has not ended.
fn error_at_mark(lane: &Lane) -> Option<c_int> {
    lane.check_peer_now();
    if lane.had_end() {
        return None;
    }
    match options::take_error(&lane.socket, lane.fd) {
        0 => None,
        error => Some(error),
    }
}

/// Takes the bytes from the socket that the pipe has taken.
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

/// The events of `fd`, waiting for them if asked to; 0 where there are none.
fn ready(fd: c_int, events: i16, blocks: bool) -> Result<i16, c_int> {
    let mut set = [libc::pollfd {
        fd,
        events,
        revents: 0,
    }];
    if blocks {
        signals::sleep_in_poll(&mut set, -1, core::ptr::null())?;
    } else {
        sys::poll(&mut set, 0, core::ptr::null())?;
    }
    Ok(set[0].revents)
}
