//! The process is another user's than its relatives: what it knows of its sets together with them it knows alone from now on, and a
//! socket that becomes another file is taken out of its sets and put in again.

use core::sync::atomic::Ordering;

use super::adoption::Watched;
use super::all;
use super::upkeep::{item_of, memberships};
use crate::ground::sys;
use crate::sockets::socket::Socket;

/// A set, the descriptor it was told of, and what of it.
pub struct Left {
    watched: Watched,
    fd: i32,
    /// Its one shot is not spent.
    enabled: bool,
}

/// No board is shared with other processes any more.
pub fn keep_boards() {
    for set in all() {
        if let Some(mut state) = set.state.lock()
            && let Some(board) = &mut state.board
            && !board.keep()
        {
            state.board = None;
            set.shared.store(false, Ordering::Relaxed);
        }
    }
}

/// Takes a socket out of all sets.
pub fn take_out(socket: &Socket) -> Vec<Left> {
    let mut left = Vec::new();
    for member in memberships(socket) {
        let set = member.set;
        let Some(mut state) = set.state.lock() else {
            continue;
        };
        set.end_lingering(&mut state, member.item, None);
        let Some(item) = item_of(&mut state, &member, socket).copied() else {
            continue;
        };
        // Relatives that have the socket go on with it in the set they share.
        let everywhere = socket.entry.references.load(Ordering::Acquire) <= 1;
        set.remove(&mut state, member.item, everywhere);
        left.push(Left {
            watched: (
                set,
                libc::epoll_event {
                    events: item.events,
                    u64: item.data,
                },
            ),
            fd: item.fd,
            enabled: item.enabled,
        });
    }
    socket.with_memberships(Vec::clear);
    left
}

/// Puts what is there now in the place of a socket that was taken out.
pub fn put_in(left: &[Left], socket: &Socket) {
    for one in left {
        let (set, event) = one.watched;
        let added = set.control_kernel(libc::EPOLL_CTL_ADD, one.fd, socket, Some(event));
        if added.is_ok() && !one.enabled {
            let outer = set.fd.load(Ordering::Relaxed);
            let silent = super::flag(libc::EPOLLONESHOT);
            let _ = sys::epoll_control(outer, libc::EPOLL_CTL_MOD, one.fd, silent, event.u64);
        }
        set.changed();
    }
}
