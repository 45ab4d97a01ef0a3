//! The values of socket options: those that were recorded, those of the connection, and those of TCP for the rest.

use core::sync::atomic::Ordering;

use libc::{c_int, c_void, socklen_t};
use netchannel_abi::address::{Address, INET6};
use netchannel_abi::link::{Role, side_flags};

use super::carried::Answered;
use super::{get_raw, with_scratch};
use crate::descriptors::table::Kind;
use crate::descriptors::{names, user};
use crate::ground::{real, sys};
use crate::sockets::lane::Lane;
use crate::sockets::socket::flag;
use crate::sockets::socket::{Socket, status};

/// `getsockopt` of a fresh or virtual socket.
///
/// # Errors
/// Those of TCP.
///
/// # Safety
/// `value` points at `*length` writable bytes.
pub unsafe fn get(
    socket: &Socket,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> Result<(), c_int> {
    let mut buffer = [0u8; 512];
    let as_kernel = || {
        with_scratch(socket, |scratch| {
            // SAFETY: the caller's pointers.
            let get = || unsafe { real::getsockopt(scratch, level, name, value, length) };
            let got = real::uninterrupted(get);
            if got < 0 { Err(real::errno()) } else { Ok(()) }
        })
    };
    // SAFETY: the caller's pointer.
    let asked = match unsafe { names::room(length) } {
        Ok(asked) => asked,
        // IPv6 takes it as a large one.
        Err(libc::EINVAL) if level == libc::IPPROTO_IPV6 => buffer.len(),
        // The kernel knows which of several errors it returns.
        Err(_) => return as_kernel()?,
    };
    let room = asked.min(buffer.len());
    let known = match flag(socket, level, name) {
        None if socket.has(status::HANDED_OVER) => answer_handed_over(fd, level, name),
        None if is_connected(socket) => answer_virtual(socket, fd, level, name),
        known => known,
    };
    let size = if level == libc::SOL_SOCKET && name == libc::SO_COOKIE {
        let cookie = sys::cookie(fd)?;
        buffer[..8].copy_from_slice(&cookie.to_ne_bytes());
        if room < 8 {
            return Err(libc::EINVAL);
        }
        8
    } else if let Some(number) = known {
        buffer[..4].copy_from_slice(&number.to_ne_bytes());
        match room {
            // Into less than a word the kernel writes small numbers of this level as one byte.
            1..4 if level == libc::IPPROTO_IP && (0..256).contains(&number) => 1,
            room => room.min(4),
        }
    } else if level == libc::SOL_SOCKET && name == libc::SO_PEERNAME && is_connected(socket) {
        let peer = socket.entry.peer.load();
        if peer == Address::default() {
            return Err(libc::ENOTCONN);
        }
        let (name, size) = names::to_sockaddr(&peer);
        if asked > size {
            return Err(libc::EINVAL);
        }
        // SAFETY: the structure is longer than `size`, the buffer than any name.
        unsafe { user::copy_bytes(buffer.as_mut_ptr(), (&raw const name).cast(), size)? };
        asked
    } else {
        let got = with_scratch(socket, |scratch| {
            get_raw(scratch, level, name, &mut buffer[..room])
        })?;
        got?
    };
    if is_connected(socket) && level == libc::IPPROTO_TCP && size > 0 {
        match name {
            libc::TCP_INFO => {
                match Answered::ask(socket, fd) {
                    Some(answered) => copy(&mut buffer, answered.information()),
                    None => describe_connection(&mut buffer),
                }
                buffer[0] = state(socket, fd);
            }
            libc::TCP_CONGESTION => {
                if let Some(answered) = Answered::ask(socket, fd) {
                    copy(&mut buffer, answered.congestion_control());
                }
            }
            _ => {}
        }
    }
    // SAFETY: the caller's buffer has room for `size` bytes.
    unsafe {
        if user::copy_bytes(value.cast(), buffer.as_ptr(), size).is_err() {
            // Whether the length is written in that case differs between options.
            as_kernel()?.ok();
            return Err(libc::EFAULT);
        }
        user::write(length, socklen_t::try_from(size).unwrap_or(0))
    }
}

fn copy(buffer: &mut [u8; 512], bytes: &[u8]) {
    buffer[..bytes.len()].copy_from_slice(bytes);
}

fn is_connected(socket: &Socket) -> bool {
    matches!(socket.word.kind(), Kind::Virtual | Kind::Deferred) || socket.has(status::HANDED_OVER)
}

/// The segment size of loopback TCP.
const MAXIMUM_SEGMENT: i32 = 65483;

/// The fields of `tcp_info` that a program may look at, as in a loopback connection.
fn describe_connection(info: &mut [u8; 512]) {
    let mut put = |offset: usize, value: u32| {
        info[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
    };
    let segment = MAXIMUM_SEGMENT.cast_unsigned();
    put(8, 201_000); // rto, microseconds
    put(16, segment); // snd_mss
    put(20, segment); // rcv_mss
    put(60, 65535); // pmtu
    put(68, 20); // rtt, microseconds
    put(72, 10); // rttvar
    put(80, 10); // snd_cwnd
    put(84, segment); // advmss
}

/// `TCP_ESTABLISHED`.
pub(super) const ESTABLISHED: u8 = 1;
/// `TCP_SYN_SENT`.
const SYN_SENT: u8 = 2;
/// `TCP_CLOSE`.
pub(super) const CLOSED: u8 = 7;

/// The state of the connection in TCP's terms.
pub(super) fn state(socket: &Socket, fd: c_int) -> u8 {
    if socket.has(status::HANDED_OVER) || socket.word.kind() == Kind::Deferred {
        return ESTABLISHED;
    }
    let Some(lane) = Lane::of(*socket, fd) else {
        return CLOSED;
    };
    if lane.is_connecting() {
        return SYN_SENT;
    }
    if !socket.has(status::PEER_GONE) {
        // A killed peer leaves no word.
        lane.check_peer_now();
    }
    if socket.has(status::HOLDS) {
        lane.end_expired_hold();
    }
    if lane.is_over() {
        return CLOSED;
    }
    let ended = lane.peer_flags() & side_flags::FIN != 0 || socket.has(status::PEER_GONE);
    match (socket.has(status::SHUT_WRITE), ended) {
        (false, false) => ESTABLISHED,
        (true, false) => 5,
        (false, true) => 8,
        (true, true) => CLOSED,
    }
}

/// Options that the local socket itself answers.
fn answer_handed_over(fd: c_int, level: c_int, name: c_int) -> Option<i32> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => sys::option(fd, level, name).ok(),
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => sys::option(fd, level, name).ok(),
        (libc::SOL_SOCKET, libc::SO_INCOMING_CPU) => Some(sys::processor()),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => Some(MAXIMUM_SEGMENT),
        _ => None,
    }
}

/// The default hop limit.
const HOP_LIMIT: i32 = 64;
/// The number of the loopback interface.
const LOOPBACK: i32 = 1;

fn answer_virtual(socket: &Socket, fd: c_int, level: c_int, name: c_int) -> Option<i32> {
    let six = socket.entry.local.load().family == INET6;
    let accepted = socket.link().is_some_and(|link| link.role == Role::Server);
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => {
            Some(socket.entry.peek_offset.load(Ordering::Relaxed))
        }
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => window_clamp(socket),
        // An accepted socket has these from the packet that opened it.
        (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL) if accepted => {
            // The peer's address goes with a bind after the end.
            let lane = Lane::of(*socket, fd)?;
            let client = lane.slot().meta.client.load();
            (client.unmapped().family != INET6).then_some(HOP_LIMIT)
        }
        (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS) if accepted && six => Some(HOP_LIMIT),
        (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF) if accepted && six => Some(LOOPBACK),
        (libc::SOL_SOCKET, libc::SO_ERROR) => Some(take_error(socket, fd)),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
            let answered = Answered::ask(socket, fd);
            Some(answered.map_or(MAXIMUM_SEGMENT, |one| one.segment()))
        }
        // Bytes are delivered by the processor that asks for them.
        (libc::SOL_SOCKET, libc::SO_INCOMING_CPU) => Some(sys::processor()),
        (libc::IPPROTO_IPV6, libc::IPV6_ADDRFORM)
            if socket.entry.local.load().family == INET6 && state(socket, fd) == ESTABLISHED =>
        {
            Some(libc::AF_INET6)
        }
        (libc::IPPROTO_IP, libc::IP_MTU) | (libc::IPPROTO_IPV6, libc::IPV6_MTU) => {
            if let Some(answered) = Answered::ask(socket, fd) {
                return Some(answered.path());
            }
            let ask = |towards| sys::option(towards, level, name).ok();
            let peer = socket.entry.peer.load();
            let known = peer != Address::default();
            known.then(|| names::with_route_to(&peer, ask).flatten())?
        }
        _ => None,
    }
}

/// The window clamp: the value that was set, otherwise half of the receive buffer, with which the kernel begins.
fn window_clamp(socket: &Socket) -> Option<i32> {
    let ask = |scratch| {
        let clamp = sys::option(scratch, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP)?;
        let buffer = sys::option(scratch, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
        Ok::<_, c_int>(if clamp == 0 { buffer / 2 } else { clamp })
    };
    with_scratch(socket, ask).ok()?.ok()
}

/// `SO_ERROR`: the pending error, once.
pub fn take_error(socket: &Socket, fd: c_int) -> i32 {
    let lane = Lane::of(*socket, fd);
    if let Some(lane) = &lane {
        // Notes the progress of a connect.
        lane.is_connecting();
    }
    let pending = socket.entry.error.swap(0, Ordering::AcqRel);
    if pending != 0 {
        return pending;
    }
    let Some(lane) = lane else { return 0 };
    // Only this finds a peer that has ended silently.
    lane.check_peer();
    let error = if lane.peer_flags() & side_flags::RESET != 0 {
        lane.reset_error()
    } else if socket.has(status::WRITE_MET_CLOSED) {
        libc::EPIPE
    } else if socket.has(status::PEER_GONE) && lane.ended_by_reset() {
        lane.reset_error()
    } else {
        return 0;
    };
    if socket.mark(status::RESET) == 0 {
        error
    } else {
        0
    }
}
