//! How a server waits for one connection, takes it and serves it.

use netchannel_testkit::support::uninterrupted;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::read_number;
use crate::script::Role;

use super::board::Board;
use super::conduct::conduct;
use super::shape::Plan;

/// The next connection. `None` at the end of the round.
pub(super) fn accept(listening: Descriptor, board: &Board) -> Option<Descriptor> {
    let socket = uninterrupted(|| sys::accept(listening)).expect("accept");
    if board.ends() {
        sys::close(socket).expect("close");
        return None;
    }
    Some(socket)
}

/// Takes a connection from a listener that does not block, if there is one.
pub(super) fn accept_and_serve(listening: Descriptor, plan: &Plan, board: &Board) -> bool {
    match uninterrupted(|| sys::accept(listening)) {
        Ok(socket) if board.ends() => sys::close(socket).expect("close"),
        Ok(socket) => serve_one(socket, plan, board, false),
        Err(errno) => {
            assert_eq!(errno, Errno(libc::EAGAIN), "accept");
            return false;
        }
    }
    true
}

/// Serves the connection whose client says its number.
pub(super) fn serve_one(socket: Descriptor, plan: &Plan, board: &Board, has_threads: bool) {
    // A client of the end of the round says nothing.
    match read_number(socket) {
        Some(number) => conduct(socket, plan, board, number, Role::Server, has_threads),
        None => sys::close(socket).expect("close"),
    }
}

pub(super) fn set_with(listening: Descriptor, events: u32) -> Descriptor {
    let set = sys::epoll_create().expect("epoll_create");
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, events, 0).expect("epoll_ctl");
    set
}
