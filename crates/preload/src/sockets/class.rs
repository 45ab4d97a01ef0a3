//! What the program says about the class of its sockets: kept in the shared entry, and told to whoever sends for the
//! socket in the side's own words. Nothing here is on the way of a byte.

use core::ffi::CStr;
use core::sync::atomic::Ordering;

use libc::{c_int, c_void, socklen_t};
use netchannel_abi::class::{Hints, LATENCY, NONE, SO_APP_TYPE, SOL_NETCHANNEL, THROUGHPUT};

use crate::descriptors::table::Kind;
use crate::descriptors::user;
use crate::sockets::lane::Lane;
use crate::sockets::socket::{self, Record, Socket};

/// At the start: what the environment says.
pub fn arrive() {
    // SAFETY: getenv returns null or a C string; no other thread runs yet.
    let said = unsafe {
        let value = libc::getenv(c"NETCHANNEL_CLASS".as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    };
    let run = match said {
        Some(b"latency") => LATENCY,
        Some(b"throughput") => THROUGHPUT,
        _ => NONE,
    };
    let hints = Hints {
        run,
        ..Hints::default()
    };
    socket::begin_with(hints.to_word());
}

/// Whether an option is NetChannel's own.
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
        // Relaxed: it orders nothing, and is looked at when something else is done for the socket.
        lane.own().hints.store(word, Ordering::Relaxed);
    }
}

/// Takes note of an option that says something about the class.
pub fn note(socket: &Socket, fd: c_int, record: &Record) {
    let [a, b, c, d, ..] = record.value;
    let number = if record.length >= 4 {
        i32::from_ne_bytes([a, b, c, d])
    } else {
        // As the kernel takes IP_TOS.
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
