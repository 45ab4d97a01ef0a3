//! `accept`: virtual connections and the kernel's, from one listener.

use core::sync::atomic::Ordering;

use netchannel_abi::address::Address;

use crate::connections::connection::{self, flags};
use crate::descriptors::limits;
use crate::descriptors::reserved_number::ReservedNumber;
use crate::descriptors::table::{self, Kind};
use crate::ground::{cancel, process, sys};
use crate::sockets::listener::daemon_renewal;
use crate::sockets::listener::wake_ups;
use crate::sockets::listener::{self, Listener};
use crate::sockets::socket::{self, Socket, status};
use crate::waiting::signals::BlockedSignals;
use crate::waiting::{exclusive_sleep, holds, housekeeping, poll, signals};

/// What an accept found.
pub enum Accepted {
    /// A virtual connection, under this descriptor, from this address.
    Virtual(i32, Address),
    /// The kernel's accept on this descriptor will not wait, or must return the error.
    Kernel(i32),
    /// The kernel's accept is tried, and if it finds nothing, everything is looked at.
    Try(i32),
}

/// Accepts from either queue; waits if the listener is blocking.
///
/// # Errors
/// As `accept`.
pub fn accept(fd: i32, socket: &Socket, flags: i32) -> Result<Accepted, i32> {
    let Some(listener) = socket.listener() else {
        return Ok(Accepted::Kernel(fd));
    };
    daemon_renewal::follow();
    listener.begin_accept();
    listener.settle_relatives(socket);
    listener.begin_looking(socket.entry);
    let blocking = !socket.has(status::NONBLOCKING);
    let waits_among = blocking && socket.has(status::SHARED);
    let alone = waits_among && listener.begin_waiting_accept();
    let mut place = None;
    let accepted = find_connection(fd, socket, listener, flags, &mut place);
    place.inspect(|place| place.leave());
    if waits_among && accepted.is_ok() {
        listener.end_waiting_accept();
    }
    if alone {
        if accepted.is_ok() {
            listener.note_accept();
        }
    } else if socket.has(status::SHARED) && (blocking || listener.keeps_taken()) {
        listener::withdraw();
    } else if !blocking && accepted.is_ok() {
        listener.note_accept();
        if socket.has(status::SHARED) && !wake_ups::has_serving_loop() {
            listener::expect_no_more();
        }
    } else {
        // One connection was for this accept: the others are for the next acceptor.
        listener.share();
    }
    accepted
}

/// Called at the end of a call: if its socket was closed during the sleep, the last sleeper releases it.
pub fn release(socket: &Socket) {
    let orphan = socket.local.orphan.load(Ordering::Acquire);
    if orphan > 0
        && socket.is(orphan - 1)
        && socket.local.holds.load(Ordering::Acquire) == 0
        && socket.local.orphan.swap(0, Ordering::AcqRel) == orphan
    {
        let _ = connection::close(orphan - 1, socket);
    }
}

/// In a forked child no thread sleeps on sockets that the program has closed.
pub fn reset_in_child() {
    let mut kept = Vec::new();
    table::for_each(|fd, word| {
        if let Some(socket) = socket::of_word(word)
            && !matches!(word.kind(), Kind::Foreign | Kind::Internal | Kind::Epoll)
            && socket.local.orphan.load(Ordering::Relaxed) == fd + 1
        {
            kept.push((fd, socket));
        }
    });
    for (fd, socket) in kept {
        socket.local.orphan.store(0, Ordering::Relaxed);
        let _ = connection::close(fd, &socket);
    }
}

fn find_connection(
    mut fd: i32,
    socket: &Socket,
    listener: &'static Listener,
    flags: i32,
    place: &mut Option<ReservedNumber>,
) -> Result<Accepted, i32> {
    let mut held = None;
    // Where the sleep itself tells of the kernel's queue, a look before it would say no more.
    let mut told = None;
    if socket.has(status::NONBLOCKING) && listener.may_try_kernel() {
        return Ok(Accepted::Try(fd));
    }
    loop {
        housekeeping::announce_due();
        let look = || {
            let (kernel, offers) = ready(fd, listener.channel());
            // As long as connections come through the queue, no other call takes offers.
            if offers {
                listener.take_offers();
            }
            kernel
        };
        if listener::kernel_first(listener, look) {
            return Ok(Accepted::Kernel(fd));
        }
        while let Some(pending) = listener.take(flags) {
            if pending.in_place && pending.link.is_queued() {
                let loops = socket.has(status::NONBLOCKING) && wake_ups::has_serving_loop();
                pending.link.set_awake(loops || listener.accepts_alone());
            }
            match connection::accept(socket, pending, flags, place) {
                Ok((made, peer)) => {
                    release(socket);
                    return Ok(Accepted::Virtual(made, peer));
                }
                Err(0) => {}
                Err(error) => return Err(error),
            }
        }
        listener.forget_eras();
        if socket.has(status::NONBLOCKING)
            && listener.may_skip_kernel()
            && !listener.is_starved()
            && is_nonblocking(fd, socket, listener)
        {
            let used_up = limits::are_exhausted(fd);
            return Err(if used_up { libc::EMFILE } else { libc::EAGAIN });
        }
        let used_up = place.is_none() && limits::are_exhausted(fd);
        if !socket.has(status::NONBLOCKING) && !used_up {
            // TCP reserves a number before it looks for a connection. Nobody else opens files where there is one thread.
            let alone = process::is_single_threaded() && !signals::any_restarts();
            *place = place.or_else(|| (!alone).then(|| ReservedNumber::reserve(fd))?);
        }
        if !told.unwrap_or_else(|| sleeps_exclusively(socket, listener)) {
            // One poll of both: an accept that finds nothing costs the kernel ten times as much.
            listener.begin_kernel_look();
            let (kernel, offers) = ready(fd, listener.channel());
            if kernel {
                listener.note_kernel_report();
            }
            if offers && listener.take_offers() {
                continue;
            }
            if kernel {
                return Ok(Accepted::Kernel(fd));
            }
        }
        if listener.is_starved() || used_up {
            return Err(libc::EMFILE);
        }
        let would_wait = !socket.has(status::NONBLOCKING);
        if is_nonblocking(fd, socket, listener) {
            listener.end_report();
            return Err(libc::EAGAIN);
        }
        if !would_wait {
            // It blocks now: a number is reserved first.
            continue;
        }
        holds::hold(socket);
        socket.entry.receive.sleepers.fetch_add(1, Ordering::AcqRel);
        let number = *place;
        let undo = || {
            socket.entry.receive.sleepers.fetch_sub(1, Ordering::AcqRel);
            number.inspect(|place| place.leave());
            holds::release(socket);
        };
        // No signal may be missed between two sleeps: the kernel's accept sleeps only once.
        held = held.or_else(BlockedSignals::new);
        let woken = cancel::guarded(undo, || wait(fd, socket, listener, held.as_ref()));
        socket.entry.receive.sleepers.fetch_sub(1, Ordering::AcqRel);
        holds::let_go(socket);
        if !socket.is(fd) {
            // Closed or replaced meanwhile: the sleeping call keeps the listener.
            let orphan = socket.local.orphan.load(Ordering::Acquire) - 1;
            let other = if orphan >= 0 && socket.is(orphan) {
                Some(orphan)
            } else {
                table::find(socket.word)
            };
            match other {
                Some(other) => fd = other,
                None => {
                    woken?;
                    return Ok(Accepted::Kernel(fd));
                }
            }
        }
        told = Some(woken?);
    }
}

/// Whether an accept that finds nothing may not wait. Another process with the same file may have changed it.
fn is_nonblocking(fd: i32, socket: &Socket, listener: &Listener) -> bool {
    if listener.has_other_holders() {
        flags::follow(socket, fd);
    }
    socket.has(status::NONBLOCKING)
}

/// Whether an accept that finds nothing sleeps in [`exclusive_sleep`].
fn sleeps_exclusively(socket: &Socket, listener: &Listener) -> bool {
    !socket.has(status::NONBLOCKING)
        && socket.entry.receive_timeout.load(Ordering::Relaxed) == 0
        && exclusive_sleep::is_possible(listener)
}

/// Whether the kernel's accept would not wait, and whether there is an offer of the daemon.
fn ready(fd: i32, channel: i32) -> (bool, bool) {
    let mut set = [fd, channel].map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    match sys::poll(&mut set, 0, core::ptr::null()) {
        Ok(1..) => (set[0].revents != 0, set[1].revents != 0),
        _ => (false, false),
    }
}

/// Sleeps until a connection may be there. True where the kernel's queue need not be looked at.
fn wait(
    fd: i32,
    socket: &Socket,
    listener: &Listener,
    held: Option<&BlockedSignals>,
) -> Result<bool, i32> {
    if sleeps_exclusively(socket, listener)
        && let Some(slept) = exclusive_sleep::sleep(fd, listener, held)
    {
        return slept.map(|by_kernel| !by_kernel);
    }
    let limit = socket.entry.receive_timeout.load(Ordering::Relaxed);
    let timeout = if limit == 0 {
        -1
    } else {
        crate::waiting::wait::nanoseconds(limit)
    };
    if limit == 0 {
        // As the kernel's accept would continue after some handlers.
        let sleep = |set: &mut [libc::pollfd], mask| {
            housekeeping::announce_due();
            poll::wait_for_connection(set, housekeeping::bounded_sleep(timeout), mask)
        };
        return signals::sleep_restarting(fd, held, sleep).map(|_| false);
    }
    let mut set = [libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }];
    match poll::wait_for_connection(&mut set, timeout, BlockedSignals::mask(held)) {
        Ok(0) => Err(libc::EAGAIN),
        Ok(_) => Ok(false),
        Err(error) => Err(error),
    }
}
