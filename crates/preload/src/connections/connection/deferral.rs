//! A deferred connection, see [`super::deferred`]: its begin, and a second `connect` of it.

use super::{REPLACING, flags, turn_into};
use crate::descriptors::limits;
use crate::descriptors::table::{self, Kind};
use crate::ground::clock;
use crate::sockets::options;
use crate::sockets::placeholder::Pair;
use crate::sockets::socket::{Socket, status};
use crate::waiting::epoll;
use crate::waiting::housekeeping::{DEFERRED, NEXT};
use core::sync::atomic::Ordering;
use netchannel_abi::address::Address;
use netchannel_abi::program::State;

/// A second in nanoseconds.
pub(super) const SECOND: u64 = 1_000_000_000;

/// Turns a fresh socket into a deferred connection. The port of `local` belongs to it.
pub(super) fn begin(fd: i32, socket: &Socket, local: &Address, peer: &Address) -> Result<(), i32> {
    let pair = Pair::take()?;
    flags::set(socket, pair.first);
    let replacing = REPLACING.lock();
    let replaced = if table::get(fd) == socket.word {
        let close_on_exec = socket.has(status::CLOSE_ON_EXEC);
        limits::replace(pair.first, fd, close_on_exec)
    } else {
        // Another thread was quicker, and used the socket in another way.
        Err(libc::EBADF)
    };
    if let Err(error) = replaced {
        pair.close();
        return Err(error);
    }
    socket.entry.local.store(local);
    socket.entry.peer.store(peer);
    let now = clock::nanoseconds();
    pair.stand_for(socket);
    socket.local.deferred_at.store(now, Ordering::Relaxed);
    let first = now + options::silence_after(1) * SECOND;
    if DEFERRED.fetch_add(1, Ordering::Relaxed) == 0 {
        NEXT.store(first, Ordering::Relaxed);
    } else {
        NEXT.fetch_min(first, Ordering::Relaxed);
    }
    let turned = turn_into(fd, socket, Kind::Deferred, State::Fresh);
    drop(replacing);
    epoll::replaced(fd, &turned);
    Ok(())
}

/// `connect` of a deferred connection.
pub(super) fn connect_again(socket: &Socket) -> Result<(), i32> {
    if !socket.has(status::CONNECTING) {
        return Err(libc::EISCONN);
    }
    socket.unmark(status::CONNECTING);
    Ok(())
}
