//! Closing: the flags for the peer, the anchor's return to the pool, and the state that outlives the descriptor.

use core::sync::atomic::Ordering;

use netchannel_abi::link::{Role, side_flags};

use super::leaving::Leaving;
use super::{deferred, ephemeral_port, withdrawal};
use crate::descriptors::table::{self, Kind, Word};
use crate::descriptors::{attach, ports};
use crate::ground::gate::{self, Inside};
use crate::ground::{lock, sys, thread};
use crate::sockets::lane::Lane;
use crate::sockets::link::Loan;
use crate::sockets::owner_table;
use crate::sockets::socket::{self, Socket, status};
use crate::waiting::epoll;

/// Closes a descriptor of a socket of the library.
pub fn close(fd: i32, socket: &Socket) -> Result<(), i32> {
    let turned = match socket.word.kind() {
        // The end of a deferred connection is announced, too.
        Kind::Deferred => deferred::announce_end(fd, socket),
        Kind::Virtual => withdrawal::before_close(fd, socket),
        _ => false,
    };
    if turned {
        return socket::of(fd).map_or(Err(libc::EBADF), |now| close(fd, &now));
    }
    // To a forked child the socket is either open or closed, in the table and in the count.
    let inside = gate::enter();
    if !table::change(fd, socket.word, Word::FOREIGN) {
        return Err(libc::EBADF);
    }
    epoll::forget(fd, socket);
    let kept = socket.is_last_here() || socket.word.kind() == Kind::Virtual;
    if kept && keep_for_sleepers(fd, socket) {
        return close_kernel(fd);
    }
    remove_descriptor(fd, socket, inside)
}

/// Called when the kernel has returned `fd` for a new file: the library's knowledge of that number is about a
/// descriptor that was closed by a call that it did not see.
#[inline]
pub fn forget_closed(fd: i32) {
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
                // The number is another file's by now.
                let _ = remove_descriptor(NO_DESCRIPTOR, &socket, inside);
            }
        }
    }
}

const NO_DESCRIPTOR: i32 = -1;

/// Removes one descriptor from the socket, which ends with the last.
fn remove_descriptor(fd: i32, socket: &Socket, inside: Inside) -> Result<(), i32> {
    let stays_here = !socket.close_descriptor();
    // The rest may take long: `SO_LINGER`, the daemon.
    drop(inside);
    if stays_here {
        socket.drop_spare();
        return close_kernel(fd);
    }
    if !socket.release_if_alone() {
        socket.drop_spare();
        let leaving = Leaving::begin(fd, socket);
        if !socket.release() {
            leaving.leave(socket);
            let closed = close_kernel(fd);
            owner_table::collect_if_due();
            return closed;
        }
        leaving.undo(socket);
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
            // The kernel's listener first: a process that the daemon tells of the close asks the kernel next.
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

/// A call that sleeps in the socket, or that a signal handler has interrupted, keeps the socket open, as it keeps the
/// kernel's file: the socket continues under a descriptor of the library's until the call ends.
fn keep_for_sleepers(fd: i32, socket: &Socket) -> bool {
    let entry = socket.entry;
    // Of a socket that relatives have, too, the first count is theirs, too.
    let used = socket.is_unshared() && entry.receive.sleepers.load(Ordering::Acquire) > 0
        || is_held_by_another(socket)
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

/// Whether another thread of this process sleeps on it. The calling thread does not count: a handler that closes it has
/// ended its call, and may never return to it.
fn is_held_by_another(socket: &Socket) -> bool {
    let holder = &socket.local.holder;
    match socket.local.holds.load(Ordering::Acquire) {
        0 => false,
        1 => holder.load(Ordering::Relaxed) != thread::number(),
        _ => true,
    }
}

fn close_kernel(fd: i32) -> Result<(), i32> {
    // SAFETY: the descriptor is the program's to close.
    unsafe { sys::raw(libc::SYS_close, [sys::int(fd), 0, 0, 0, 0, 0]) }.map(|_| ())
}

/// `SO_LINGER` of some seconds: close waits while many of the sent bytes are unread. Bytes that fit into a TCP
/// receiver's buffer count as delivered.
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
            lane.give_up_unaccepted();
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
        // A reset drops held-back bytes.
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
    // What is over is not reset any more.
    let aborts = entry.linger.load(Ordering::Relaxed) == 1 || lane.has_bytes();
    let abort = aborts && !lane.is_over();
    let releases_held = !abort && lane.end_releases_held();
    let reset = if abort || releases_held {
        side_flags::RESET
    } else {
        0
    };
    let (slot, own) = (lane.slot(), lane.own());
    // A reset by this side stays.
    let reset_before = own.flags.load(Ordering::Relaxed) & side_flags::RESET;
    let flags = side_flags::FIN | side_flags::CLOSED | reset | reset_before;
    // This side needs no more wake-ups.
    own.waiter.store(0, Ordering::Release);
    if abort {
        lane.publish_reset_error();
    } else if releases_held {
        lane.publish_broken_pipe();
    }
    if socket.has(status::PEER_GONE) {
        // The peer may have been killed: then the link is dead, and its pool only holds descriptors.
        lane.link.check();
    }
    let keep = lane.link.wants_anchor()
        && lane.peer_flags() & side_flags::ANCHOR_GONE == 0
        && !socket.has(status::SHARED | status::PEER_GONE | status::FAULT)
        && entry.receive.sleepers.load(Ordering::Acquire) == 0
        // A sleeper in poll must see the end of the anchor, which a pooled anchor does not show.
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
    let port = ephemeral_port(socket, bound);
    // The peer is notified first: once the slot is given up it may carry the next connection, whose wake-ups must not
    // be taken.
    own.flags.fetch_or(flags, Ordering::AcqRel);
    if loan.is_none() && fd != NO_DESCRIPTOR {
        lane.announce_close();
    } else {
        lane.announce_flags();
    }
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
