//! Connections that no program has accepted when their acceptor was killed, or that are
//! [withdrawn](super::withdrawal): they are made anew through the kernel, from the same address to the same listener,
//! under the same descriptors, and what was sent is sent again. As over TCP, another process that has the listener
//! accepts them.

use core::sync::atomic::Ordering;

use netchannel_abi::address::Address;
use netchannel_abi::reason::Reason;

use super::deferred::{bind, connect_at_once};
use super::replacing::{go_on_in_kernel, make_kernel};
use super::{REPLACING, falls_back, flags};
use crate::descriptors::table;
use crate::descriptors::{attach, names};
use crate::ground::{process, sys};
use crate::sockets::lane::Lane;
use crate::sockets::socket::{Socket, status};

/// Makes the connection anew, or notes that its peer has ended. The caller holds no lock of a socket or an event loop.
#[cold]
pub fn connect_anew(fd: i32, socket: &Socket) {
    let replacing = REPLACING.lock();
    let Some(lane) = unaccepted(fd, socket) else {
        return;
    };
    let connected = by_kernel(fd, socket, false);
    if connected.is_err() {
        lane.note_end();
    }
    drop(replacing);
    if connected.is_err() {
        lane.notify_of_change();
    }
}

/// Makes a connection anew that waits at a process which lives. False where it was accepted, or can not be: it waits on.
/// The caller holds no lock of a socket or an event loop.
#[cold]
pub(super) fn withdraw(fd: i32, socket: &Socket) -> bool {
    let _replacing = REPLACING.lock();
    let bytes = socket.entry.transmit.own.load(Ordering::Relaxed);
    let most = match socket.entry.transmit.limit.load(Ordering::Relaxed) {
        0 => MOST_AT_ONCE,
        _ => LEAST_AT_ONCE,
    };
    // A child that runs in its parent's memory must not touch it.
    let is_own = || sys::process() == process::number();
    unaccepted(fd, socket).is_some()
        && bytes <= most
        && is_own()
        && by_kernel(fd, socket, true).is_ok()
}

/// So many bytes the kernel takes on loopback at once.
const MOST_AT_ONCE: u64 = 1 << 16;
/// So many it takes however small the program has made its buffer.
const LEAST_AT_ONCE: u64 = 1 << 11;

/// The lane, unless another thread was quicker, or the socket was closed.
fn unaccepted(fd: i32, socket: &Socket) -> Option<Lane> {
    let lane = Lane::of(*socket, fd)?;
    (table::get(fd) == socket.word && lane.is_left_unaccepted()).then_some(lane)
}

/// Whether its listener is the one that it connected to. A connection to one that was closed is over.
fn is_for_same_listener(socket: &Socket, peer: &Address) -> bool {
    let local = socket.entry.local.load();
    let target = attach::current().map(|own| names::find_listener(own, peer, &local));
    let number = socket.entry.listener.load(Ordering::Relaxed);
    target.is_some_and(|found| found.is_ok_and(|target| target.listener == number))
}

/// `waits`: its acceptor lives, and may accept it as long as it is not withdrawn.
fn by_kernel(fd: i32, socket: &Socket, waits: bool) -> Result<(), i32> {
    let peer = socket.entry.peer.load();
    if !is_for_same_listener(socket, &peer) {
        return Err(libc::ECONNRESET);
    }
    let made = make_kernel(socket, true)?;
    if socket.local.reserve.load(Ordering::Relaxed) == 0 {
        // Where the kernel has given the port to another socket, it is another one.
        let _ = bind(made, &socket.entry.local.load());
    }
    let kernel = go_on_in_kernel(fd, socket, made, |lane| {
        // While no thread can see what the acceptor does with a connection that was withdrawn.
        if waits && !lane.link.withdraw(lane.handle()) {
            return Err(libc::EISCONN);
        }
        let is_connected = sys::fcntl(made, libc::F_SETFL, sys::int(libc::O_NONBLOCK)).is_ok()
            && connect_at_once(made, socket, &peer);
        if !is_connected {
            if waits {
                lane.link.mark_waiting(lane.handle());
            }
            return Err(libc::ECONNRESET);
        }
        send_again(lane, made)?;
        flags::apply(socket, made);
        Ok(())
    })?;
    kernel.local.announced.store(0, Ordering::Relaxed);
    falls_back(&kernel, Reason::LinkFailed, Some(peer));
    Ok(())
}

/// Sends what the lane has sent, and its end. Of urgent bytes only the last one matters, since nobody has read any.
fn send_again(lane: &Lane, made: i32) -> Result<(), i32> {
    let bytes = lane.sent_bytes().ok_or(libc::ECONNRESET)?;
    let behind_urgent = lane.socket.entry.urgent_sent.load(Ordering::Relaxed);
    let behind_urgent = usize::try_from(behind_urgent).unwrap_or(0);
    match bytes.split_at_checked(behind_urgent) {
        Some((before @ [.., _], after)) => {
            let (ordinary, urgent) = before.split_at(before.len() - 1);
            send_all(made, ordinary, 0)?;
            send_all(made, urgent, libc::MSG_OOB)?;
            send_all(made, after, 0)?;
        }
        _ => send_all(made, &bytes, 0)?,
    }
    for (shut, how) in [
        (status::SHUT_WRITE, libc::SHUT_WR),
        (status::SHUT_READ, libc::SHUT_RD),
    ] {
        if lane.socket.has(shut) {
            let words = [sys::int(made), sys::int(how), 0, 0, 0, 0];
            // SAFETY: no pointers.
            unsafe { sys::raw(libc::SYS_shutdown, words) }?;
        }
    }
    Ok(())
}

fn send_all(made: i32, mut left: &[u8], flags: i32) -> Result<(), i32> {
    while !left.is_empty() {
        let sent = sys::send(made, left, flags | libc::MSG_DONTWAIT)?;
        left = left.get(sent..).unwrap_or_default();
    }
    Ok(())
}
