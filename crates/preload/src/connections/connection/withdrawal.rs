//! Connections that were announced to one of several processes that have a listener. Over TCP they wait for any of them;
//! here they lie on a link of that one. So their client withdraws what nobody has accepted for long, or before it is
//! closed, and makes it anew through the kernel, whose queue is everybody's.

use core::sync::atomic::Ordering;

use super::reconnecting::withdraw;
use crate::descriptors::table::{self, Kind};
use crate::ground::clock;
use crate::sockets::lane::Lane;
use crate::sockets::socket::{self, Socket};
use crate::waiting::housekeeping::{ANNOUNCED, PATIENCE, UNACCEPTED, look_later};

/// [`PATIENCE`] in the units of the clock.
const LONG: u64 = PATIENCE / 1000 * clock::MICROSECOND;

/// Called when the wait of some connection may have become long: withdraws those that have waited for long.
pub fn withdraw_late() {
    UNACCEPTED.store(0, Ordering::Relaxed);
    let now = clock::now();
    let mut waits = false;
    for_each_waiting(|fd, socket| {
        let announced = socket.local.announced.load(Ordering::Relaxed);
        if now.wrapping_sub(announced) < LONG {
            waits = true;
        } else {
            // One that can not be withdrawn waits on, as it would if it could never be.
            socket.local.announced.store(0, Ordering::Relaxed);
            let _ = withdraw(fd, socket);
        }
    });
    if waits {
        look_later();
    }
}

/// Called when the process ends.
pub fn withdraw_all() {
    if ANNOUNCED.load(Ordering::Relaxed) {
        for_each_waiting(|fd, socket| {
            if has_sent(fd, socket) {
                let _ = withdraw(fd, socket);
            }
        });
    }
}

/// Before the last descriptor of a socket is closed: withdraws it where nobody has accepted it and it has sent anything.
/// True where it is the kernel's from now on.
#[inline]
pub(super) fn before_close(fd: i32, socket: &Socket) -> bool {
    socket.local.announced.load(Ordering::Relaxed) != 0 && withdraw_closed(fd, socket)
}

#[cold]
fn withdraw_closed(fd: i32, socket: &Socket) -> bool {
    socket.is_last_here() && has_sent(fd, socket) && withdraw(fd, socket)
}

/// Whether somebody would miss what it has sent. A reset drops that.
fn has_sent(fd: i32, socket: &Socket) -> bool {
    let resets = socket.entry.linger.load(Ordering::Relaxed) == 1;
    let sent = socket.entry.transmit.own.load(Ordering::Relaxed) > 0;
    sent && !resets && Lane::of(*socket, fd).is_some_and(|lane| lane.is_left_unaccepted())
}

fn for_each_waiting(mut each: impl FnMut(i32, &Socket)) {
    let mut found = Vec::new();
    table::for_each(|fd, word| {
        if word.kind() == Kind::Virtual
            && let Some(socket) = socket::of_word(word)
            && socket.local.announced.load(Ordering::Relaxed) != 0
        {
            match Lane::of(socket, fd) {
                Some(lane) if lane.is_left_unaccepted() => found.push((fd, socket)),
                _ => socket.local.announced.store(0, Ordering::Relaxed),
            }
        }
    });
    found.iter().for_each(|(fd, socket)| each(*fd, socket));
}
