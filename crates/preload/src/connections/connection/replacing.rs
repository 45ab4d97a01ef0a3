//! A kernel socket in the place of a virtual one: after a connect that failed, or that the kernel carries on.

use core::sync::atomic::Ordering;

use netchannel_abi::address::Address;
use netchannel_abi::link::{Role, side_flags};
use netchannel_abi::program::State;

use super::{ephemeral_port, flags, turn_into};
use crate::descriptors::table::{self, Kind};
use crate::descriptors::{attach, limits, names, ports};
use crate::ground::{lock, sys};
use crate::sockets::lane::Lane;
use crate::sockets::socket::{Socket, status};
use crate::sockets::{options, signal_owner, socket};
use crate::waiting::{epoll, replacement};

/// An unconnected kernel socket with the options of a virtual one, or the kernel socket that it bound before. With
/// `keeps` it also keeps a port that the kernel chose.
pub(super) fn make_kernel(socket: &Socket, keeps: bool) -> Result<i32, i32> {
    // The anchor is not used again, and the new socket may need its number.
    socket.drop_spare();
    let bound = socket.local.reserve.load(Ordering::Relaxed);
    let keeps = keeps || socket.has(status::PORT_NAMED);
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
    flags::apply(socket, made);
    Ok(made)
}

/// Binds the address without the port: a port that the kernel chose goes with the connection.
fn bind_without_port(socket: &Socket, made: i32, own: Address) {
    let (level, name) = (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT);
    if sys::set_option(made, level, name, 1).is_err() {
        return;
    }
    let (own, size) = names::to_sockaddr(&Address { port: 0, ..own });
    let words = [sys::int(made), (&raw const own).addr(), size, 0, 0, 0];
    // SAFETY: the kernel reads a local address. An existing bind is no failure.
    let _ = unsafe { sys::raw(libc::SYS_bind, words) };
    if !socket::is_on(socket, level, name) {
        let _ = sys::set_option(made, level, name, 0);
    }
}

/// Puts `made`, which is consumed, in the place of a virtual socket that is over. The peer gets `flags`. `carry` is run
/// while no thread can send or receive; where it fails, all stays as it is.
pub(super) fn become_kernel(
    fd: i32,
    socket: &Socket,
    made: i32,
    flags: u32,
    carry: impl FnOnce(&Lane) -> Result<(), i32>,
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
    if let Err(error) = carry(&lane) {
        lock::release(&entry.transmit.lock);
        lock::release(&entry.receive.lock);
        sys::close(made);
        return Err(error);
    }
    // A reset by this side stays.
    let reset_before = lane.own().flags.load(Ordering::Relaxed) & side_flags::RESET;
    let flags = flags | reset_before;
    // The peer is notified first, over the anchor, which is then closed.
    lane.own().flags.fetch_or(flags, Ordering::AcqRel);
    lane.announce_flags();
    // Once all its descriptors are closed, the anchor leaves the sets.
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
        // While the slot is still this connection's: the sets release it.
        for number in &numbers {
            epoll::replaced(*number, &turned);
        }
        lane.own().waiter.store(0, Ordering::Release);
        let (slot, handle) = (lane.slot(), lane.handle());
        lane.link.finish(slot, handle, flags, None, rings);
        lane.link.remove_user();
        if lane.link.role == Role::Client && !socket.is_foreign() {
            let process = entry.process.load(Ordering::Relaxed);
            ports::give(ephemeral_port(socket, bound), process);
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

/// As [`become_kernel`], for a connection that the kernel goes on with: threads that sleep on it in poll find `made`.
pub(super) fn go_on_in_kernel(
    fd: i32,
    socket: &Socket,
    made: i32,
    carry: impl FnOnce(&Lane) -> Result<(), i32>,
) -> Result<Socket, i32> {
    let woken = replacement::begin(fd);
    let flags = side_flags::FIN | side_flags::CLOSED;
    let replaced = become_kernel(fd, socket, made, flags, carry);
    if woken {
        replacement::end();
    }
    replaced
}

fn replace_all(made: i32, numbers: &[i32]) -> Result<(), i32> {
    for number in numbers {
        let close_on_exec = sys::fcntl(*number, libc::F_GETFD, 0).is_ok_and(|flags| flags & 1 != 0);
        limits::replace(made, *number, close_on_exec)?;
    }
    Ok(())
}
