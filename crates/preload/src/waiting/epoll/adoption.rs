//! A socket turns virtual while sets of the program watch it. The events they watch for are read from the kernel's list
//! of their members.

use std::fs;

use core::sync::atomic::Ordering;

use super::{EpollSet, NUMBER, all, own_data};
use crate::descriptors::table::Kind;
use crate::ground::sys;
use crate::sockets::socket::Socket;

/// A set, and the event that a descriptor has in it.
pub type WatchedMember = (&'static EpollSet, libc::epoll_event);

/// The sets that watch `fd`. `None` where the kernel's list can not be read.
pub fn watching(fd: i32) -> Option<Vec<WatchedMember>> {
    let mut found = Vec::new();
    for set in all() {
        if !set.is_open() {
            continue;
        }
        let number = set.fd.load(Ordering::Relaxed);
        let listed = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
        let members = listed.lines().filter_map(|line| parse_member_of(line, fd));
        found.extend(members.map(|event| (set, event)));
    }
    Some(found)
}

/// The event of `fd` in a line like `tfd: 5 events: 19 data: 7 pos:0 ino:8 sdev:9`, if the program added it.
fn parse_member_of(line: &str, fd: i32) -> Option<libc::epoll_event> {
    let (known, event) = parse_member(line)?;
    (known == fd && event.u64 & !NUMBER != own_data()).then_some(event)
}

/// The descriptor and the event of such a line.
pub(super) fn parse_member(line: &str) -> Option<(i32, libc::epoll_event)> {
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

/// Adds a socket to its sets as if it had been virtual when the program added it.
pub fn take_over(fd: i32, socket: &Socket, watched: &[WatchedMember]) {
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

/// Another file has a number that sets watch: adds it to them, as the program added the former one.
pub fn watch_instead(fd: i32, watched: &[WatchedMember]) {
    for (set, event) in watched {
        let outer = set.fd.load(Ordering::Relaxed);
        let _ = sys::epoll_control(outer, libc::EPOLL_CTL_ADD, fd, event.events, event.u64);
    }
}

#[cfg(test)]
mod tests {
    use super::parse_member_of;

    #[test]
    fn a_line_is_read_as_the_kernel_writes_it() {
        let line = "tfd:        5 events:       19 data:         7f0000000a  pos:0 ino:61af sdev:7";
        let event = parse_member_of(line, 5).unwrap();
        assert_eq!(({ event.events }, { event.u64 }), (0x19, 0x7f_0000_000a));
        assert!(parse_member_of(line, 6).is_none());
        for other in [
            "pos:\t0",
            "flags:\t02",
            "tfd: 5",
            "tfd: x events: 1 data: 1",
            "",
        ] {
            assert!(parse_member_of(other, 5).is_none(), "{other}");
        }
    }
}
