//! Taking a connection away from its socket, which can be connected anew: after a connect that failed, and by a connect to nowhere
//! (`AF_UNSPEC`).

use core::sync::atomic::Ordering;

use netchannel_abi::link::{Geometry, Role, side_flags};
use netchannel_abi::program::State;

use super::{dealt_port, turn_into};
use crate::lane::Lane;
use crate::socket::{Socket, status};
use crate::table::{self, Kind};
use crate::{attach, clock, epoll, limits, lock, options, ports, sys};

/// How long threads that sleep in calls on the connection are waited for: they have been woken.
const PATIENCE: u64 = 100_000 * clock::MICROSECOND;

/// `connect` of a virtual socket to nowhere. The peer sees a reset, as with TCP. Where other processes have the socket, too, that is all:
/// they share no descriptor that could be another's from now on.
///
/// # Errors
/// Why no socket could be made for the place of it.
pub fn dissolve(fd: i32, socket: &Socket) -> Result<(), i32> {
    let lane = Lane::of(*socket, fd).ok_or(libc::EBADF)?;
    let reset = if lane.is_over() { 0 } else { side_flags::RESET };
    let alone = socket.entry.references.load(Ordering::Acquire) == 1 && !socket.is_foreign();
    if !alone || is_slept_in(socket) {
        break_off(&lane, reset);
    }
    if !alone {
        return Ok(());
    }
    let until = clock::now().wrapping_add(PATIENCE);
    while is_slept_in(socket) && clock::now() < until {
        sys::yield_now();
    }
    disconnect(fd, socket, side_flags::FIN | side_flags::CLOSED | reset)
}

fn is_slept_in(socket: &Socket) -> bool {
    let entry = socket.entry;
    entry.receive.sleepers.load(Ordering::Acquire) > 0
        || entry.transmit.sleepers.load(Ordering::Acquire) > 0
}

/// Ends the connection for calls that wait for something of it, and for the peer.
fn break_off(lane: &Lane, reset: u32) {
    let socket = lane.socket;
    // The error stands before the mark that makes others look for it.
    socket.entry.error.store(libc::EPIPE, Ordering::Relaxed);
    socket.mark(status::REFUSED | status::RESET | status::SHARED | status::ANCHOR_SHUT);
    socket.unmark(status::PENDING);
    let flags = side_flags::ANCHOR_SHUT | reset;
    lane.own().flags.fetch_or(flags, Ordering::AcqRel);
    lane.announce_flags();
    // SAFETY: no pointers.
    let _ = unsafe {
        let how = sys::int(libc::SHUT_RD);
        sys::raw(libc::SYS_shutdown, [sys::int(lane.fd), how, 0, 0, 0, 0])
    };
    epoll::changed(&socket);
}

/// A kernel socket that is not connected, with all that the program has set on a virtual one, or the one that it bound before.
pub(super) fn make_kernel(socket: &Socket) -> Result<i32, i32> {
    // The anchor is not used again, and the new one may need its number.
    socket.drop_spare();
    let bound = socket.local.reserve.load(Ordering::Relaxed);
    let made = if bound > 0 {
        limits::make(|| sys::duplicate(bound - 1, 0, true))?
    } else {
        let six = socket.entry.local.load().family == netchannel_abi::address::INET6;
        let family = if six { libc::AF_INET6 } else { libc::AF_INET };
        limits::make(|| sys::socket(family, libc::SOCK_STREAM, 0))?
    };
    options::replay(socket, made);
    let nonblocking = if socket.has(status::NONBLOCKING) {
        libc::O_NONBLOCK
    } else {
        0
    };
    let _ = sys::fcntl(made, libc::F_SETFL, sys::int(nonblocking));
    Ok(made)
}

/// Puts a kernel socket that is not connected in the place of a virtual one. The peer hears `flags`.
pub(super) fn disconnect(fd: i32, socket: &Socket, flags: u32) -> Result<(), i32> {
    let made = make_kernel(socket)?;
    let turned = become_kernel(fd, socket, made, flags)?;
    turned.entry.error.store(0, Ordering::Relaxed);
    Ok(())
}

/// Puts `made`, which is consumed, in the place of a virtual socket that is over. The peer hears `flags`.
pub(super) fn become_kernel(
    fd: i32,
    socket: &Socket,
    made: i32,
    flags: u32,
) -> Result<Socket, i32> {
    let Some(lane) = Lane::of(*socket, fd) else {
        sys::close(made);
        return Err(libc::EBADF);
    };
    let entry = socket.entry;
    let bound = socket.local.reserve.load(Ordering::Relaxed);
    let mut numbers = vec![fd];
    table::for_each(|other, word| {
        if word == socket.word && other != fd {
            numbers.push(other);
        }
    });
    lock::acquire(&entry.transmit.lock);
    lock::acquire(&entry.receive.lock);
    // The peer is told first, by the anchor that goes.
    lane.own().flags.fetch_or(flags, Ordering::AcqRel);
    lane.announce_flags();
    // Closed by all, the anchor leaves the sets.
    socket.drop_spare();
    for number in &numbers {
        epoll::before_replace(*number, socket);
    }
    let replaced = replace_all(made, &numbers);
    sys::close(made);
    let replaced = replaced.map(|()| {
        let rings = [&entry.transmit.geometry, &entry.transmit.former_geometry]
            .map(|word| Geometry::from_word(word.load(Ordering::Relaxed)));
        let turned = turn_into(fd, socket, Kind::Kernel, State::Kernel);
        // While the slot is this connection's: the sets let go of it.
        for number in &numbers {
            epoll::replaced(*number, &turned);
        }
        lane.own().waiter.store(0, Ordering::Release);
        let (slot, handle) = (lane.slot(), lane.handle());
        lane.link.finish(slot, handle, flags, None, rings);
        lane.link.used_less();
        if lane.link.role == Role::Client && !socket.is_foreign() {
            let process = entry.process.load(Ordering::Relaxed);
            ports::give(dealt_port(socket, bound), process);
        }
        if bound > 0 {
            socket.local.reserve.store(0, Ordering::Relaxed);
            attach::drop_kept(bound - 1);
            turned.mark(status::BOUND);
        }
        turned.renew();
        turned
    });
    lock::release(&entry.transmit.lock);
    lock::release(&entry.receive.lock);
    replaced
}

fn replace_all(made: i32, numbers: &[i32]) -> Result<(), i32> {
    for number in numbers {
        let close_on_exec = sys::fcntl(*number, libc::F_GETFD, 0).is_ok_and(|flags| flags & 1 != 0);
        sys::replace(made, *number, close_on_exec)?;
    }
    Ok(())
}
