//! Taking a connection away from its socket, which can be connected anew: after a connect that failed, and by a connect to nowhere
//! (`AF_UNSPEC`).

use core::sync::atomic::Ordering;

use netchannel_abi::link::{Geometry, Role, side_flags};
use netchannel_abi::program::State;

use super::{dealt_port, turn_into};
use crate::lane::Lane;
use crate::socket::{Socket, status};
use crate::table::{self, Kind};
use crate::{attach, clock, epoll, limits, lock, options, ports, sys, wait};

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
    let readers = socket.entry.receive.sleepers.load(Ordering::Acquire) % wait::WRITER;
    let error = if readers > 0 {
        libc::EPIPE
    } else {
        libc::ECONNRESET
    };
    // The error stands before the mark that makes others look for it.
    socket.entry.error.store(error, Ordering::Relaxed);
    socket.mark(status::REFUSED | status::RESET);
    socket.unmark(status::PENDING);
    lane.own().flags.fetch_or(reset, Ordering::AcqRel);
    lane.announce_flags();
    lane.rouse();
    epoll::changed(&socket);
}

/// A kernel socket that is not connected, as this one was before it was.
fn unconnected(socket: &Socket, bound: i32) -> Result<i32, i32> {
    let made = if bound > 0 {
        sys::duplicate(bound - 1, 0, true)?
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
    let lane = Lane::of(*socket, fd).ok_or(libc::EBADF)?;
    let entry = socket.entry;
    let bound = socket.local.reserve.load(Ordering::Relaxed);
    let made = unconnected(socket, bound)?;
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
    // It is not used again; closed by all it leaves the sets.
    socket.drop_spare();
    for number in &numbers {
        epoll::before_replace(*number, socket);
    }
    let replaced = replace_all(made, &numbers);
    sys::close(made);
    if replaced.is_ok() {
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
        entry.error.store(0, Ordering::Relaxed);
    }
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
