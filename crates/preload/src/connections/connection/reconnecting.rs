//! Connections that no program has accepted when their acceptor was killed: they are made anew through the kernel, from
//! the same address to the same listener, under the same descriptors, and what was sent is sent again. As over TCP,
//! another process that has the listener accepts them.

use core::sync::atomic::Ordering;

use netchannel_abi::address::Address;
use netchannel_abi::reason::Reason;

use super::deferred::{bind, connect_at_once};
use super::replacing::{go_on_in_kernel, make_kernel};
use super::{REPLACING, falls_back, flags};
use crate::descriptors::table;
use crate::descriptors::{attach, names};
use crate::ground::sys;
use crate::sockets::lane::Lane;
use crate::sockets::socket::{Socket, status};

/// Makes the connection anew, or notes that its peer has ended. The caller holds no lock of a socket or an event loop.
#[cold]
pub fn connect_anew(fd: i32, socket: &Socket) {
    let replacing = REPLACING.lock();
    let Some(lane) = Lane::of(*socket, fd) else {
        return;
    };
    if table::get(fd) != socket.word || !lane.is_left_unaccepted() {
        // Another thread was quicker, or the socket was closed.
        return;
    }
    let peer = socket.entry.peer.load();
    let connected = by_kernel(fd, socket, &peer);
    match &connected {
        Ok(kernel) => falls_back(kernel, Reason::LinkFailed, Some(peer)),
        Err(_) => lane.note_end(),
    }
    drop(replacing);
    if connected.is_err() {
        lane.notify_of_change();
    }
}

/// Whether its listener is the one that it connected to. A connection to one that was closed is over.
fn is_for_same_listener(socket: &Socket, peer: &Address) -> bool {
    let local = socket.entry.local.load();
    let target = attach::current().map(|own| names::find_listener(own, peer, &local));
    let number = socket.entry.listener.load(Ordering::Relaxed);
    target.is_some_and(|found| found.is_ok_and(|target| target.listener == number))
}

fn by_kernel(fd: i32, socket: &Socket, peer: &Address) -> Result<Socket, i32> {
    if !is_for_same_listener(socket, peer) {
        return Err(libc::ECONNRESET);
    }
    let made = make_kernel(socket, true)?;
    if socket.local.reserve.load(Ordering::Relaxed) == 0 {
        // Where the kernel has given the port to another socket, it is another one.
        let _ = bind(made, &socket.entry.local.load());
    }
    let is_connected = sys::fcntl(made, libc::F_SETFL, sys::int(libc::O_NONBLOCK)).is_ok()
        && connect_at_once(made, socket, peer);
    if !is_connected {
        sys::close(made);
        return Err(libc::ECONNRESET);
    }
    go_on_in_kernel(fd, socket, made, |lane| {
        send_again(lane, made)?;
        flags::apply(socket, made);
        Ok(())
    })
}

/// Sends what the lane has sent, and its end.
fn send_again(lane: &Lane, made: i32) -> Result<(), i32> {
    let bytes = lane.sent_bytes().ok_or(libc::ECONNRESET)?;
    let mut left = bytes.as_slice();
    while !left.is_empty() {
        let sent = sys::send(made, left, libc::MSG_DONTWAIT)?;
        left = left.get(sent..).unwrap_or_default();
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
