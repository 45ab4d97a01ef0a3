//! Shutting down and closing: what the other end is told, what goes back to the pool, and what
//! outlives the descriptor.

use core::sync::atomic::Ordering;

use netchannel_abi::link::{Role, side_flags};

use super::{dealt_port, deferred};
use crate::descriptors::table::{self, Kind, Word};
use crate::descriptors::{attach, ports};
use crate::ground::gate::{self, Inside};
use crate::ground::{lock, sys, thread};
use crate::sockets::lane::Lane;
use crate::sockets::link::Loan;
use crate::sockets::owner_table;
use crate::sockets::socket::{self, RemainingHolders, Socket, status};
use crate::waiting::epoll;

/// Closes a descriptor that is one of our sockets.
pub fn close(fd: i32, socket: &Socket) -> Result<(), i32> {
    if socket.word.kind() == Kind::Deferred && deferred::ends(fd, socket) {
        // Its end is a word, too.
        return socket::of(fd).map_or(Err(libc::EBADF), |now| close(fd, &now));
    }
    // To a forked child, either the socket is open or it is not, in the table and in the count.
    let inside = gate::enter();
    if !table::change(fd, socket.word, Word::FOREIGN) {
        return Err(libc::EBADF);
    }
    epoll::forget(fd, socket);
    let kept = socket.is_last() || socket.word.kind() == Kind::Virtual && socket.is_unshared();
    if kept && keep_for_sleepers(fd, socket) {
        return close_kernel(fd);
    }
    let_go(fd, socket, inside)
}

/// The kernel has made `fd` anew: what was known of that number is of a descriptor that was closed
/// by a call the library did not see.
#[inline]
pub fn forget_unseen(fd: i32) {
    let word = table::get(fd);
    if word != Word::FOREIGN {
        forget_former(fd, word);
    }
}

#[cold]
fn forget_former(fd: i32, word: Word) {
    match word.kind() {
        Kind::Foreign | Kind::Internal => {}
        Kind::Epoll => epoll::closed(fd, word),
        _ => {
            let Some(socket) = socket::of_word(word) else {
                return;
            };
            let inside = gate::enter();
            if table::change(fd, word, Word::FOREIGN) {
                epoll::forget(fd, &socket);
                // The number is another file's now.
                let _ = let_go(NO_DESCRIPTOR, &socket, inside);
            }
        }
    }
}

const NO_DESCRIPTOR: i32 = -1;

/// One descriptor less names the socket, which ends with the last.
fn let_go(fd: i32, socket: &Socket, inside: Inside) -> Result<(), i32> {
    let left = socket.drop_descriptor();
    // What follows may take long: `SO_LINGER`, the daemon.
    drop(inside);
    if left != RemainingHolders::None {
        socket.drop_spare();
        match socket.listener() {
            _ if left == RemainingHolders::ThisProcess => {}
            Some(listener) => listener.close(false),
            None if socket.word.kind() == Kind::Virtual => leave_virtual(fd, socket),
            None => {}
        }
        let closed = close_kernel(fd);
        if left == RemainingHolders::OtherProcesses {
            owner_table::collect_if_due();
        }
        return closed;
    }
    match socket.word.kind() {
        Kind::Virtual => close_virtual(fd, socket),
        Kind::Deferred => {
            deferred::release(socket);
            let result = close_kernel(fd);
            socket.free();
            result
        }
        Kind::Listener => {
            // The kernel's first: who is told by the daemon that nobody listens asks the kernel next.
            let result = close_kernel(fd);
            if let Some(listener) = socket.listener() {
                listener.close(true);
            }
            socket.free();
            result
        }
        _ => {
            let result = close_kernel(fd);
            socket.free();
            result
        }
    }
}

/// This process has no descriptor of the connection any more, others have.
fn leave_virtual(fd: i32, socket: &Socket) {
    let Some(lane) = Lane::of(*socket, fd) else {
        return;
    };
    // Whoever began to copy before the descriptor was closed has finished then.
    for direction in [&socket.entry.transmit, &socket.entry.receive] {
        if !lock::acquire(&direction.lock) {
            return;
        }
        lock::release(&direction.lock);
    }
    let link = &socket.local.link;
    if link.swap(core::ptr::null_mut(), Ordering::AcqRel).is_null() {
        // Another thread closed another descriptor of it at the same time.
        return;
    }
    let bound = socket.local.reserve.swap(0, Ordering::Relaxed);
    let port = dealt_port(socket, bound);
    if bound > 0 {
        attach::close_internal(bound - 1);
    }
    lane.link.leave(lane.handle(), lane.rings(), port);
    lane.link.remove_user();
    if socket.is_foreign() {
        socket.leave();
    }
}

/// A call that sleeps in the socket, or that a signal handler has interrupted, keeps it, as it keeps
/// the kernel's file: it goes on under a descriptor of the library's until the call ends.
fn keep_for_sleepers(fd: i32, socket: &Socket) -> bool {
    let entry = socket.entry;
    let used = entry.receive.sleepers.load(Ordering::Acquire) > 0
        || is_polled_by_another(socket)
        || lock::is_mine(&entry.transmit.lock)
        || lock::is_mine(&entry.receive.lock);
    if !used || socket.local.orphan.load(Ordering::Acquire) != 0 {
        return false;
    }
    let Ok(kept) = attach::duplicate(fd) else {
        return false;
    };
    socket.mark(status::SHARED);
    table::set(kept, socket.word);
    socket.local.orphan.store(kept + 1, Ordering::Release);
    true
}

/// Whether another thread sleeps on it in `poll`. This one does no more: a handler that closes it has ended its call, and may never return to it.
fn is_polled_by_another(socket: &Socket) -> bool {
    let poller = &socket.local.poller;
    match socket.local.polled.load(Ordering::Acquire) {
        0 => false,
        1 => poller.load(Ordering::Relaxed) != thread::number(),
        _ => true,
    }
}

fn close_kernel(fd: i32) -> Result<(), i32> {
    // SAFETY: the descriptor is the program's to close.
    unsafe { sys::raw(libc::SYS_close, [sys::int(fd), 0, 0, 0, 0, 0]) }.map(|_| ())
}

/// `SO_LINGER` of some seconds: close waits while much of what was sent is still unread. What fits
/// a TCP receiver's buffer counts as delivered.
fn linger(lane: &Lane) {
    let seconds = u64::from(
        lane.socket
            .entry
            .linger
            .load(Ordering::Relaxed)
            .saturating_sub(1),
    );
    if seconds == 0 {
        return;
    }
    let until =
        crate::ground::clock::nanoseconds().saturating_add(seconds.saturating_mul(1_000_000_000));
    while !lane.is_drained() {
        let left = until.saturating_sub(crate::ground::clock::nanoseconds());
        if left == 0 {
            return;
        }
        lane.arm(netchannel_abi::link::waiter::SPACE);
        if !lane.is_drained() {
            let mut set = [libc::pollfd {
                fd: lane.fd,
                events: libc::POLLIN,
                revents: 0,
            }];
            let left = i64::try_from(left).unwrap_or(i64::MAX);
            if sys::poll(&mut set, left, core::ptr::null()).is_err() {
                return;
            }
            lane.take_tokens(None);
        }
    }
}

fn close_virtual(fd: i32, socket: &Socket) -> Result<(), i32> {
    let Some(mut lane) = Lane::of(*socket, fd) else {
        socket.free();
        return close_kernel(fd);
    };
    let entry = socket.entry;
    if socket.has(status::HOLDS) {
        let held = lock::acquire(&entry.transmit.lock);
        // A reset drops what is held back still.
        let aborts = entry.linger.load(Ordering::Relaxed) == 1 || lane.has_bytes();
        if !aborts || lane.held_count() == 0 {
            lane.release_held();
        }
        if held {
            lock::release(&entry.transmit.lock);
        }
    }
    if fd != NO_DESCRIPTOR {
        linger(&lane);
    }
    lock::acquire(&entry.transmit.lock);
    lock::acquire(&entry.receive.lock);
    let abort = entry.linger.load(Ordering::Relaxed) == 1 || lane.has_bytes();
    let let_go = !abort && lane.end_releases_held();
    let reset = if abort || let_go {
        side_flags::RESET
    } else {
        0
    };
    let (slot, own) = (lane.slot(), lane.own());
    // What this side has met before stays true.
    let met = own.flags.load(Ordering::Relaxed) & side_flags::RESET;
    let flags = side_flags::FIN | side_flags::CLOSED | reset | met;
    // Nobody is woken on our behalf any more.
    own.waiter.store(0, Ordering::Release);
    if abort {
        lane.publish_reset_error();
    } else if let_go {
        lane.publish_broken_pipe();
    }
    if socket.has(status::PEER_GONE) {
        // Killed, perhaps: then the whole link is of no use, and its pool only holds descriptors.
        lane.link.check();
    }
    let keep = lane.link.wants_anchor()
        && lane.peer_flags() & side_flags::ANCHOR_GONE == 0
        && !socket.has(status::SHARED | status::PEER_GONE | status::FAULT)
        && entry.receive.sleepers.load(Ordering::Acquire) == 0
        // Who sleeps on it in poll must see its end: in the pool it has none.
        && entry.transmit.sleepers.load(Ordering::Acquire) == 0;
    let kept = if keep {
        socket.take_spare().or_else(|| attach::duplicate(fd).ok())
    } else {
        socket.drop_spare();
        None
    };
    if let Some(anchor) = kept {
        table::set(anchor, Word::new(Kind::Internal, 0, 0));
        lane.fd = anchor;
    }
    let rings = lane.rings();
    let loan = kept.map(|anchor| Loan {
        handle: lane.handle(),
        anchor,
        nonblocking: socket.has(status::NONBLOCKING),
    });
    let is_client = lane.link.role == Role::Client;
    let bound = socket.local.reserve.swap(0, Ordering::Relaxed);
    let port = dealt_port(socket, bound);
    // The peer is told first: once the slot is given up it may carry the next connection, whose
    // wake-ups are not ours to take.
    own.flags.fetch_or(flags, Ordering::AcqRel);
    lane.announce_flags();
    lane.link.finish(slot, lane.handle(), flags, loan, rings);
    lane.link.remove_user();
    let result = close_kernel(fd);
    if bound > 0 {
        attach::close_internal(bound - 1);
    }
    if is_client && !socket.is_foreign() {
        ports::give(port, entry.process.load(Ordering::Relaxed));
    }
    socket.free();
    result
}
