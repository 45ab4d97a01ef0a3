//! The process becomes another user's than its relatives: it makes its copies of shared sets private, and a socket that
//! becomes another file is removed from its sets and added again.

use core::sync::atomic::Ordering;

use super::adoption::WatchedMember;
use super::all;
use super::upkeep::{item_of, memberships};
use crate::ground::sys;
use crate::sockets::socket::Socket;

/// A set, the removed descriptor, and its event.
pub struct RemovedMember {
    watched: WatchedMember,
    fd: i32,
    /// Its one-shot event was not reported.
    enabled: bool,
}

/// Makes the boards of all sets private.
pub fn make_boards_private() {
    for set in all() {
        if let Some(mut state) = set.state.lock()
            && let Some(board) = &mut state.board
            && !board.make_private()
        {
            state.board = None;
            set.shared.store(false, Ordering::Relaxed);
        }
    }
}

/// Removes a socket from all sets.
pub fn remove_from_sets(socket: &Socket) -> Vec<RemovedMember> {
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
        // Relatives that hold the socket keep it as a member of the shared set.
        let everywhere = socket.entry.references.load(Ordering::Acquire) <= 1;
        set.remove(&mut state, member.item, everywhere);
        left.push(RemovedMember {
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

/// Adds the file that took the place of a removed socket.
pub fn add_again(left: &[RemovedMember], socket: &Socket) {
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
