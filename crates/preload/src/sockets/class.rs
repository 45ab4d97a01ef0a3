//! The class that a program gives its sockets: kept in the shared entry, and published in the side's own words to the
//! process that sends for the socket. No byte passes here.

use core::sync::atomic::Ordering;

use libc::{c_int, c_void, socklen_t};
use netchannel_abi::class::{Hints, LATENCY, NONE, SO_APP_TYPE, SOL_NETCHANNEL, THROUGHPUT};

use crate::descriptors::table::Kind;
use crate::descriptors::user;
use crate::sockets::lane::Lane;
use crate::sockets::socket::{self, Record, Socket};

/// Takes the class that the environment gives, at the start.
#[inline]
pub fn begin(text: Option<&[u8]>) {
    let run = match text {
        Some(b"latency") => LATENCY,
        Some(b"throughput") => THROUGHPUT,
        _ => NONE,
    };
    let hints = Hints {
        run,
        ..Hints::default()
    };
    socket::set_initial_hints(hints.to_word());
}

/// Whether an option is one of NetChannel.
#[inline]
pub const fn is_own(level: c_int) -> bool {
    level == SOL_NETCHANNEL
}

fn change(socket: &Socket, fd: c_int, with: impl FnOnce(&mut Hints)) {
    let mut hints = Hints::from_word(socket.entry.hints.load(Ordering::Relaxed));
    with(&mut hints);
    let word = hints.to_word();
    socket.entry.hints.store(word, Ordering::Relaxed);
    if socket.word.kind() == Kind::Virtual
        && let Some(lane) = Lane::of(*socket, fd)
    {
        // Relaxed: it orders nothing, and is read together with other work for the socket.
        lane.own().hints.store(word, Ordering::Relaxed);
    }
}

/// Notes an option that concerns the class.
pub fn note(socket: &Socket, fd: c_int, record: &Record) {
    let [a, b, c, d, ..] = record.value;
    let number = if record.length >= 4 {
        i32::from_ne_bytes([a, b, c, d])
    } else {
        // The kernel reads one byte of IP_TOS, too.
        i32::from(a)
    };
    match (record.level, record.name) {
        (libc::SOL_SOCKET, libc::SO_PRIORITY) => change(socket, fd, |hints| {
            hints.priority = u16::try_from(number.cast_unsigned()).unwrap_or(u16::MAX);
        }),
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            // The default of IPV6_TCLASS is set by -1.
            let [low, ..] = number.max(0).to_le_bytes();
            change(socket, fd, |hints| hints.dscp = low >> 2);
        }
        _ => {}
    }
}

/// `setsockopt` at [`SOL_NETCHANNEL`].
///
/// # Errors
/// As the kernel has them for its own options.
///
/// # Safety
/// `value` points at `length` readable bytes.
pub unsafe fn set(
    socket: &Socket,
    fd: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> Result<(), c_int> {
    if name != SO_APP_TYPE {
        return Err(libc::ENOPROTOOPT);
    }
    if (length as usize) < size_of::<c_int>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's pointer; any bytes are an int.
    let number: c_int = unsafe { user::read(value.cast())? };
    match u8::try_from(number) {
        Ok(class @ (NONE | LATENCY | THROUGHPUT)) => {
            change(socket, fd, |hints| hints.option = class);
            Ok(())
        }
        _ => Err(libc::EINVAL),
    }
}

/// `getsockopt` at [`SOL_NETCHANNEL`].
///
/// # Errors
/// As the kernel has them for its own options.
///
/// # Safety
/// `value` points at `*length` writable bytes.
pub unsafe fn get(
    socket: &Socket,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> Result<(), c_int> {
    if name != SO_APP_TYPE {
        return Err(libc::ENOPROTOOPT);
    }
    // SAFETY: the caller's pointer.
    let room = unsafe { user::read(length)? } as usize;
    let hints = Hints::from_word(socket.entry.hints.load(Ordering::Relaxed));
    let bytes = c_int::from(hints.option).to_ne_bytes();
    let size = room.min(bytes.len());
    // SAFETY: the caller's buffer has room for `size` bytes.
    unsafe {
        user::copy_bytes(value.cast(), bytes.as_ptr(), size)?;
        user::write(length, socklen_t::try_from(size).unwrap_or(0))
    }
}
