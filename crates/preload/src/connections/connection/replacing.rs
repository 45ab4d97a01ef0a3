//! A kernel socket in the place of a virtual one that came to nothing: of a connect that failed, or that the kernel carries on.

use core::sync::atomic::Ordering;

use netchannel_abi::address::Address;
use netchannel_abi::link::{Role, side_flags};
use netchannel_abi::program::State;

use super::{dealt_port, flags, turn_into};
use crate::descriptors::table::{self, Kind};
use crate::descriptors::{attach, limits, names, ports};
use crate::ground::{lock, sys};
use crate::sockets::lane::Lane;
use crate::sockets::socket::{Socket, status};
use crate::sockets::{options, signal_owner, socket};
use crate::waiting::epoll;

/// A kernel socket that is not connected, with all that the program has set on a virtual one, or the one that it bound before, which
/// `keeps` also a port that the kernel chose.
pub(super) fn make_kernel(socket: &Socket, keeps: bool) -> Result<i32, i32> {
    // The anchor is not used again, and the new one may need its number.
    socket.drop_spare();
    let bound = socket.local.reserve.load(Ordering::Relaxed);
    let keeps = keeps || options::keeps_port(socket);
    let made = if bound > 0 && keeps {
        limits::for_library(|| sys::duplicate(bound - 1, 0, true))?
    } else {
        let six = socket.entry.local.load().family == netchannel_abi::address::INET6;
        let family = if six { libc::AF_INET6 } else { libc::AF_INET };
        limits::for_library(|| sys::socket(family, libc::SOCK_STREAM, 0))?
    };
    options::replay(socket, made);
    let address = match bound {
        _ if keeps => None,
        0 => socket
            .has(status::ADDRESS_NAMED)
            .then(|| socket.entry.local.load()),
        bound => names::kernel_address(bound - 1, false),
    };
    if let Some(own) = address.filter(|own| !own.is_wildcard()) {
        bind_without_port(socket, made, own);
    }
    flags::put_on(socket, made);
    Ok(made)
}

/// A port that the kernel chose goes with the connection, the address stays.
fn bind_without_port(socket: &Socket, made: i32, own: Address) {
    let (level, name) = (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT);
    if sys::set_option(made, level, name, 1).is_err() {
        return;
    }
    let (own, size) = names::to_sockaddr(&Address { port: 0, ..own });
    let words = [sys::int(made), (&raw const own).addr(), size, 0, 0, 0];
    // SAFETY: the kernel reads an address of ours. What is bound already says so.
    let _ = unsafe { sys::raw(libc::SYS_bind, words) };
    if !socket::is_on(socket, level, name) {
        let _ = sys::set_option(made, level, name, 0);
    }
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
    // What this side has met before stays true.
    let met = lane.own().flags.load(Ordering::Relaxed) & side_flags::RESET;
    let flags = flags | met;
    // The peer is told first, by the anchor that goes.
    lane.own().flags.fetch_or(flags, Ordering::AcqRel);
    lane.announce_flags();
    // Closed by all, the anchor leaves the sets.
    socket.drop_spare();
    for number in &numbers {
        epoll::before_replace(*number, socket);
    }
    signal_owner::copy(fd, made);
    let replaced = replace_all(made, &numbers);
    sys::close(made);
    let replaced = replaced.map(|()| {
        let rings = lane.rings();
        let turned = turn_into(fd, socket, Kind::Kernel, State::Kernel);
        // While the slot is this connection's: the sets let go of it.
        for number in &numbers {
            epoll::replaced(*number, &turned);
        }
        lane.own().waiter.store(0, Ordering::Release);
        let (slot, handle) = (lane.slot(), lane.handle());
        lane.link.finish(slot, handle, flags, None, rings);
        lane.link.remove_user();
        if lane.link.role == Role::Client && !socket.is_foreign() {
            let process = entry.process.load(Ordering::Relaxed);
            ports::give(dealt_port(socket, bound), process);
        }
        if bound > 0 {
            socket.local.reserve.store(0, Ordering::Relaxed);
            attach::close_internal(bound - 1);
            turned.mark(status::BOUND);
        }
        turned.reset_connection();
        turned
    });
    lock::release(&entry.transmit.lock);
    lock::release(&entry.receive.lock);
    replaced
}

fn replace_all(made: i32, numbers: &[i32]) -> Result<(), i32> {
    for number in numbers {
        let close_on_exec = sys::fcntl(*number, libc::F_GETFD, 0).is_ok_and(|flags| flags & 1 != 0);
        limits::replace(made, *number, close_on_exec)?;
    }
    Ok(())
}
