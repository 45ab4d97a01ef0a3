//! Control data of received messages, where options ask for it: the time of receipt, and the number of unread bytes.

use core::sync::atomic::Ordering;

use libc::{c_int, msghdr};
use netchannel_abi::link::side_flags;

use crate::descriptors::user;
use crate::sockets::lane::Lane;
use crate::sockets::socket::Socket;

/// The control data written so far.
#[derive(Default)]
pub struct Ancillary {
    /// Bytes written.
    pub used: usize,
    /// `MSG_CTRUNC` where there was no room.
    pub flags: c_int,
}

/// The options that ask for a timestamp, of which the last one that was set holds; and whether it is in nanoseconds.
const STAMPS: [(c_int, bool); 4] = [
    (libc::SO_TIMESTAMP, false),
    (libc::SO_TIMESTAMPNS, true),
    (SO_TIMESTAMP_NEW, false),
    (SO_TIMESTAMPNS_NEW, true),
];
const SO_TIMESTAMP_NEW: c_int = 63;
const SO_TIMESTAMPNS_NEW: c_int = 64;

/// In the flags of an entry: the timestamp option, counted from one, and `TCP_INQ`.
const STAMP: u32 = 7 << STAMP_SHIFT;
const STAMP_SHIFT: u32 = 8;
const INQ: u32 = 1 << 11;

/// Whether an option asks for control data.
#[inline]
pub fn is_asked_for(socket: &Socket) -> bool {
    socket.entry.flags.load(Ordering::Relaxed) & (STAMP | INQ) != 0
}

/// Notes an option that the kernel would take. False where it is none of these.
pub fn note(socket: &Socket, level: c_int, name: c_int, on: bool) -> bool {
    let (all, value) = match level {
        libc::IPPROTO_TCP if name == libc::TCP_INQ => (INQ, INQ),
        libc::SOL_SOCKET => {
            let Some(number) = (1..).zip(STAMPS).find(|(_, (stamp, _))| *stamp == name) else {
                return false;
            };
            (STAMP, number.0 << STAMP_SHIFT)
        }
        _ => return false,
    };
    if all == STAMP && stamp(socket).is_none() {
        // Bytes that have already arrived have no timestamp.
        let arrived = Lane::of(*socket, -1).map_or(0, |lane| lane.arrived());
        let noted = &socket.entry.receive.noted;
        noted.store(arrived, Ordering::Relaxed);
    }
    let flags = &socket.entry.flags;
    flags.fetch_and(!all, Ordering::AcqRel);
    if on {
        flags.fetch_or(value, Ordering::AcqRel);
    }
    true
}

/// The options that are set, to be set again on another socket.
pub fn set_options(socket: &Socket) -> impl Iterator<Item = (c_int, c_int)> {
    let more = wants_unread_count(socket).then_some((libc::IPPROTO_TCP, libc::TCP_INQ));
    let stamp = stamp(socket).map(|(name, _)| (libc::SOL_SOCKET, name));
    more.into_iter().chain(stamp)
}

fn stamp(socket: &Socket) -> Option<(c_int, bool)> {
    let number = (socket.entry.flags.load(Ordering::Relaxed) & STAMP) >> STAMP_SHIFT;
    STAMPS.get((number as usize).checked_sub(1)?).copied()
}

fn wants_unread_count(socket: &Socket) -> bool {
    socket.entry.flags.load(Ordering::Relaxed) & INQ != 0
}

const HEADER: usize = size_of::<libc::cmsghdr>();

/// Writes the control data of a receive of `count` bytes, or of a peek at them. What can not be written is left out.
///
/// # Safety
/// `message` is the program's message.
#[cold]
pub unsafe fn write_control(
    lane: &Lane,
    message: &msghdr,
    count: usize,
    peeked: bool,
) -> Ancillary {
    let mut ancillary = Ancillary::default();
    let receive = &lane.socket.entry.receive;
    let end = receive.own.load(Ordering::Relaxed) + if peeked { count as u64 } else { 0 };
    // Bytes carry no time: the timestamp is that of the receive.
    if count > 0
        && end > receive.noted.load(Ordering::Relaxed)
        && let Some((name, nanoseconds)) = stamp(&lane.socket)
    {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: a local.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
        let fraction = if nanoseconds {
            now.tv_nsec
        } else {
            now.tv_nsec / 1000
        };
        let time = [now.tv_sec, fraction];
        // SAFETY: the caller's promise.
        unsafe { ancillary.put(message, libc::SOL_SOCKET, name, &time) };
    }
    if wants_unread_count(&lane.socket) {
        // The end of the stream counts as one byte.
        let end = u64::from(lane.peer_flags() & side_flags::FIN != 0);
        let more = i32::try_from(lane.readable() + end).unwrap_or(i32::MAX);
        // SAFETY: the caller's promise.
        unsafe { ancillary.put(message, libc::IPPROTO_TCP, libc::TCP_CM_INQ, &[more]) };
    }
    ancillary
}

impl Ancillary {
    unsafe fn put<T: Copy>(&mut self, message: &msghdr, level: c_int, kind: c_int, data: &[T]) {
        let left = message.msg_controllen.saturating_sub(self.used);
        if message.msg_control.is_null() || left < HEADER {
            self.flags |= libc::MSG_CTRUNC;
            return;
        }
        let whole = HEADER + size_of_val(data);
        let length = whole.min(left);
        if length < whole {
            self.flags |= libc::MSG_CTRUNC;
        }
        let header = libc::cmsghdr {
            cmsg_len: length,
            cmsg_level: level,
            cmsg_type: kind,
        };
        let at = message.msg_control.cast::<u8>().wrapping_add(self.used);
        // SAFETY: the program's room for control data, of which `length` bytes are left.
        let written = unsafe {
            user::write(at.cast(), header).and_then(|()| {
                user::copy_bytes(
                    at.wrapping_add(HEADER),
                    data.as_ptr().cast(),
                    length - HEADER,
                )
            })
        };
        if written.is_ok() {
            self.used += length.next_multiple_of(size_of::<usize>()).min(left);
        }
    }
}
