//! Moving a descriptor of the library when the program asks for its number. Every module that remembers such numbers is
//! notified here.

use crate::connections::connection;
use crate::descriptors::table::{self, Kind, Word};
use crate::descriptors::{attach, reserved_number};
use crate::ground::sys;
use crate::processes::in_transit;
use crate::sockets::{foreign, listener};
use crate::waiting::epoll;

/// Frees `fd` for the program if it is the library's. False when there is no other number for it.
pub fn make_way(fd: i32) -> bool {
    if table::get(fd).kind() != Kind::Internal {
        return true;
    }
    let close_on_exec = sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & 1 != 0);
    let Ok(moved) = attach::duplicate(fd) else {
        return false;
    };
    if !close_on_exec {
        let _ = sys::fcntl(moved, libc::F_SETFD, 0);
    }
    table::set(moved, Word::new(Kind::Internal, 0, 0));
    // The event loops first: they still use the former number.
    epoll::relocate(fd, moved);
    attach::relocate(fd, moved);
    in_transit::relocate(fd, moved);
    foreign::relocate(fd, moved);
    connection::relocate(fd, moved);
    listener::relocate(fd, moved);
    reserved_number::relocate(fd, moved);
    table::set(fd, Word::FOREIGN);
    true
}
