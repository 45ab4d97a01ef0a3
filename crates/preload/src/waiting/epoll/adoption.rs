//! A socket becomes ours that sets of the program watch already. What they were told of it stands in
//! the kernel's list of their members.

use std::fs;

use core::sync::atomic::Ordering;

use super::{EpollSet, NUMBER, all, own_data};
use crate::descriptors::table::Kind;
use crate::ground::sys;
use crate::sockets::socket::Socket;

/// A set, and what it was told of a descriptor.
pub type Watched = (&'static EpollSet, libc::epoll_event);

/// The sets that watch `fd`. `None` where that can not be seen.
pub fn watching(fd: i32) -> Option<Vec<Watched>> {
    let mut found = Vec::new();
    for set in all() {
        if !set.is_open() {
            continue;
        }
        let number = set.fd.load(Ordering::Relaxed);
        let listed = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
        let members = listed.lines().filter_map(|line| member(line, fd));
        found.extend(members.map(|event| (set, event)));
    }
    Some(found)
}

/// What a line like `tfd: 5 events: 19 data: 7 pos:0 ino:8 sdev:9` says of `fd`, if the program said it.
fn member(line: &str, fd: i32) -> Option<libc::epoll_event> {
    let (known, event) = any_member(line)?;
    (known == fd && event.u64 & !NUMBER != own_data()).then_some(event)
}

/// What such a line says, and of which descriptor.
pub(super) fn any_member(line: &str) -> Option<(i32, libc::epoll_event)> {
    let mut words = line.split_whitespace();
    let mut after = |name| {
        let word = words.next()?;
        (word == name).then(|| words.next())?
    };
    let fd = after("tfd:")?.parse().ok()?;
    let events = u32::from_str_radix(after("events:")?, 16).ok()?;
    let data = u64::from_str_radix(after("data:")?, 16).ok()?;
    Some((fd, libc::epoll_event { events, u64: data }))
}

/// Sets hear of a socket as if it had been ours when they were told of it.
pub fn take_over(fd: i32, socket: &Socket, watched: &[Watched]) {
    for (set, event) in watched {
        let outer = set.fd.load(Ordering::Relaxed);
        // Another file that had the number: not this socket.
        if sys::epoll_control(outer, libc::EPOLL_CTL_DEL, fd, 0, 0).is_err() {
            continue;
        }
        let add = libc::EPOLL_CTL_ADD;
        let added = match socket.word.kind() {
            Kind::Virtual => set.control(add, fd, socket, Some(*event)),
            _ => set.control_kernel(add, fd, socket, Some(*event)),
        };
        if added.is_err() {
            let _ = sys::epoll_control(outer, add, fd, event.events, event.u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::member;

    #[test]
    fn a_line_is_read_as_the_kernel_writes_it() {
        let line = "tfd:        5 events:       19 data:         7f0000000a  pos:0 ino:61af sdev:7";
        let event = member(line, 5).unwrap();
        assert_eq!(({ event.events }, { event.u64 }), (0x19, 0x7f_0000_000a));
        assert!(member(line, 6).is_none());
        for other in [
            "pos:\t0",
            "flags:\t02",
            "tfd: 5",
            "tfd: x events: 1 data: 1",
            "",
        ] {
            assert!(member(other, 5).is_none(), "{other}");
        }
    }
}
