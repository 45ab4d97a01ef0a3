//! A kernel socket in the place of a virtual one that came to nothing: of a connect that failed, or that the kernel carries on.

use core::sync::atomic::Ordering;

use netchannel_abi::link::{Geometry, side_flags};
use netchannel_abi::program::State;

use super::turn_into;
use crate::lane::Lane;
use crate::socket::{Socket, status};
use crate::table::{self, Kind};
use crate::{attach, epoll, limits, lock, options, ports, sys};

/// A kernel socket with all that the program has set on a virtual one, or the one that it bound before.
pub(super) fn make_kernel(socket: &Socket) -> Result<i32, i32> {
    // The anchor is not used again, and the socket may need its number.
    socket.drop_spare();
    let bound = socket.local.reserve.load(Ordering::Relaxed);
    let made = if bound > 0 {
        limits::make(|| sys::duplicate(bound - 1, 0, true))?
    } else {
        let six = socket.entry.local.load().family == netchannel_abi::address::INET6;
        let family = if six { libc::AF_INET6 } else { libc::AF_INET };
        let made = limits::make(|| sys::socket(family, libc::SOCK_STREAM, 0))?;
        options::replay(socket, made);
        made
    };
    let nonblocking = if socket.has(status::NONBLOCKING) {
        libc::O_NONBLOCK
    } else {
        0
    };
    let _ = sys::fcntl(made, libc::F_SETFL, sys::int(nonblocking));
    Ok(made)
}

/// Puts `made`, which is consumed, under the numbers of a virtual socket that came to nothing.
pub(super) fn become_kernel(fd: i32, socket: &Socket, made: i32) -> Result<Socket, i32> {
    let Some(lane) = Lane::of(*socket, fd) else {
        sys::close(made);
        return Err(libc::EBADF);
    };
    let entry = socket.entry;
    let mut others = Vec::new();
    if socket.local.descriptors.load(Ordering::Acquire) > 1 {
        table::for_each(|other, word| {
            if word == socket.word && other != fd {
                others.push(other);
            }
        });
    }
    lock::acquire(&entry.transmit.lock);
    lock::acquire(&entry.receive.lock);
    // Closed by all, the anchor leaves the sets.
    socket.drop_spare();
    let put = |fd| {
        epoll::before_replace(fd, socket);
        let close_on_exec = sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & 1 != 0);
        sys::replace(made, fd, close_on_exec)
    };
    let replaced = put(fd).map(|_| {
        // As the first one can be replaced, the others can: no number is needed.
        others.iter().for_each(|other| {
            let _ = put(*other);
        });
        let bound = socket.local.reserve.load(Ordering::Relaxed);
        let port = entry.local.load().port;
        let rings = [&entry.transmit.geometry, &entry.transmit.former_geometry]
            .map(|word| Geometry::from_word(word.load(Ordering::Relaxed)));
        let turned = turn_into(fd, socket, Kind::Kernel, State::Kernel);
        // While the slot is this connection's: the sets let go of it.
        epoll::replaced(fd, &turned);
        others.iter().for_each(|fd| epoll::replaced(*fd, &turned));
        let own = lane.own();
        own.waiter.store(0, Ordering::Release);
        let flags = side_flags::FIN | side_flags::CLOSED;
        own.flags.fetch_or(flags, Ordering::AcqRel);
        let handle = lane.handle();
        lane.link.finish(lane.slot(), handle, flags, None, rings);
        lane.link.used_less();
        if bound > 0 {
            socket.local.reserve.store(0, Ordering::Relaxed);
            attach::drop_kept(bound - 1);
            turned.mark(status::BOUND);
        } else if !socket.is_foreign() {
            ports::give(port, entry.process.load(Ordering::Relaxed));
        }
        turned.renew();
        turned
    });
    sys::close(made);
    lock::release(&entry.transmit.lock);
    lock::release(&entry.receive.lock);
    replaced
}
