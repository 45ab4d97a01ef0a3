//! `sendfile` and `splice`.

use libc::{c_int, c_uint, off_t, size_t, ssize_t};

use crate::connections::connection::{self, deferred, flags, lane};
use crate::connections::splicing::{self, Source};
use crate::connections::transfer;
use crate::descriptors::table::{self, Kind};
use crate::descriptors::user::vector;
use crate::descriptors::{attach, limits, user};
use crate::ground::{real, sys};
use crate::sockets::lane::Lane;
use crate::sockets::socket;

/// Sends at most `length` bytes that `fill` reads from a file or another descriptor.
unsafe fn send_from(
    lane: &mut Lane,
    length: usize,
    flags: c_int,
    mut fill: impl FnMut(&mut [u8]) -> Result<usize, i32>,
) -> Result<usize, i32> {
    let mut buffer = vec![0u8; length.clamp(1, 65536)];
    let mut total = 0;
    while total < length {
        let most = (length - total).min(buffer.len());
        let got = match fill(&mut buffer[..most]) {
            Ok(0) => break,
            Ok(got) => got,
            Err(_) if total > 0 => break,
            Err(error) => return Err(error),
        };
        // SAFETY: the library's own buffer.
        match unsafe { transfer::send(lane, &vector(buffer.as_ptr().cast(), got), flags) } {
            Ok(sent) => {
                total += sent;
                if sent < got {
                    break;
                }
            }
            Err(_) if total > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

/// The answer of the kernel to a call for a listener, whose own file has other flags than the program has set: on a
/// temporary socket, with the error that a connection has left which the listener had before. `None` for any other socket.
fn on_listener(from: c_int, fd: c_int, call: impl Fn(c_int) -> ssize_t) -> Option<ssize_t> {
    let word = table::get(fd);
    let flags = match word.kind() {
        Kind::Listener => flags::of(&socket::of_word(word)?),
        // Another process may have made it a listener.
        Kind::Kernel if flags::may_be_marked(&socket::of_word(word)?) => flags::of_marked(fd)?,
        _ => return None,
    };
    let is_readable = splicing::access(from).is_ok_and(|access| access != libc::O_WRONLY);
    // A call that has no source does not come to the error. For another one there may be no number.
    let made = is_readable.then(|| limits::stream_socket(libc::AF_INET).ok());
    let Some(made) = made.flatten() else {
        return Some(flags::with_shown(fd, flags, || call(fd)));
    };
    let left = sys::option(fd, libc::SOL_SOCKET, libc::SO_ERROR).unwrap_or(0);
    if left != 0 {
        connection::leave_error(made, left);
    }
    flags::end_listening(made, flags);
    // Not among the numbers that the program may name.
    let made = attach::make_internal(made);
    let answer = call(made);
    attach::close_internal(made);
    Some(answer)
}

hook! {
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        if let Some(answer) = on_listener(from, to, |to| real::sendfile(to, from, offset, count)) {
            return answer;
        }
        if deferred::at(to).is_some() {
            // Only a byte announces it.
            let has_byte = FileSource::check(to, from, offset, count)
                .and_then(|checked| checked.has_byte(from));
            match has_byte {
                Ok(true) => {}
                Ok(false) => return 0,
                Err(error) => return real::fail(error),
            }
        }
        let Some(mut lane) = lane(to) else { return sendfile_to_file(to, from, offset, count) };
        let FileSource { base, source, count } = match FileSource::check(to, from, offset, count) {
            Ok(checked) => checked,
            Err(error) => return real::fail(error),
        };
        let mut position = base;
        let sent = send_from(&mut lane, count, 0, |buffer| {
            let got = real::pread(from, buffer.as_mut_ptr().cast(), buffer.len(), position);
            if got < 0 {
                return Err(real::errno());
            }
            position += got as off_t;
            Ok(got.cast_unsigned())
        });
        if let Ok(sent) = sent {
            let end = match source {
                Source::File => base + sent as off_t,
                Source::Endless => base,
            };
            if offset.is_null() {
                libc::lseek(from, end, libc::SEEK_SET);
            } else if let Err(error) = user::write(offset, end) {
                return real::fail(error);
            }
        }
        transfer::result(sent)
    }

    fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        sendfile(to, from, offset, count)
    }

    fn splice(
        from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, length: size_t,
        flags: c_uint,
    ) -> ssize_t {
        let on = |to| real::splice(from, from_offset, to, to_offset, length, flags);
        if let Some(answer) = on_listener(from, to, on) {
            return answer;
        }
        let (source, target) = (lane(from), lane(to));
        if source.is_none() && target.is_none() {
            return real::splice(from, from_offset, to, to_offset, length, flags);
        }
        if length == 0 {
            return 0;
        }
        let reads = target.is_some();
        let (pipe, socket) = if reads { (from, to) } else { (to, from) };
        if table::get(pipe).kind() == Kind::Internal {
            return real::fail(libc::EBADF);
        }
        let offsets = if reads { [from_offset, to_offset] } else { [to_offset, from_offset] };
        let call = splicing::Call { pipe, reads, offsets, length, flags };
        if let Err(error) = splicing::check(&call) {
            return real::fail(error);
        }
        if reads && splicing::appends(socket) {
            return real::fail(libc::EINVAL);
        }
        transfer::result(match (source, target) {
            (_, Some(mut lane)) => splicing::to_socket(&mut lane, pipe, length, flags),
            (Some(mut lane), None) => splicing::from_socket(&mut lane, pipe, length, flags),
            (None, None) => Err(libc::EINVAL),
        })
    }
}

/// What `sendfile` sends of, and from where on.
struct FileSource {
    base: off_t,
    source: Source,
    /// Bytes at most.
    count: usize,
}

impl FileSource {
    /// What the arguments name.
    ///
    /// # Errors
    /// As `sendfile`.
    ///
    /// # Safety
    /// The arguments are the program's.
    unsafe fn check(
        to: c_int,
        from: c_int,
        offset: *const off_t,
        count: size_t,
    ) -> Result<Self, c_int> {
        // SAFETY: the program's pointer; a seek by zero changes nothing.
        let base = unsafe {
            if offset.is_null() {
                // The file's own position, which the kernel would use, too.
                libc::lseek(from, 0, libc::SEEK_CUR)
            } else {
                user::read(offset)?
            }
        };
        let source = splicing::source(from, !offset.is_null(), count == 0)?;
        match splicing::length(base, count) {
            Some(count) if base >= 0 && !splicing::appends(to) => Ok(Self {
                base,
                source,
                count,
            }),
            _ => Err(libc::EINVAL),
        }
    }

    /// Whether there is a byte to send.
    ///
    /// # Errors
    /// As `pread`.
    fn has_byte(&self, from: c_int) -> Result<bool, c_int> {
        let mut byte = [0u8];
        // SAFETY: a local.
        match unsafe { real::pread(from, byte.as_mut_ptr().cast(), self.count.min(1), self.base) } {
            got @ 0.. => Ok(got > 0),
            _ => Err(real::errno()),
        }
    }
}

/// `sendfile` to a file that is no virtual socket. The kernel's source may be a virtual socket where the target is a
/// pipe.
unsafe fn sendfile_to_file(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    let is_pipe = || sys::fcntl(to, libc::F_GETPIPE_SZ, 0).is_ok();
    // SAFETY: the program's arguments.
    unsafe {
        match lane(from) {
            Some(mut lane) if offset.is_null() && is_pipe() => {
                if splicing::access(to) == Ok(libc::O_RDONLY) {
                    return real::fail(libc::EBADF);
                }
                let Some(count) = splicing::length(0, count) else {
                    return real::fail(libc::EINVAL);
                };
                if count == 0 {
                    return 0;
                }
                transfer::result(splicing::from_socket(&mut lane, to, count, 0))
            }
            _ => real::sendfile(to, from, offset, count),
        }
    }
}
