//! Anchors of connections that this process can not have: nobody knows them any more, or the program has no number left
//! for their memory. Bytes that it wrote into an anchor would be lost without an error.

use netchannel_abi::link::ANCHOR_MARK;

use crate::descriptors::limits;
use crate::descriptors::table::{self, Kind};
use crate::ground::sys;

/// Whether a descriptor is an anchor of an unknown connection.
pub fn is_unknown_anchor(fd: i32) -> bool {
    table::get(fd).kind() == Kind::Foreign
        && sys::option(fd, libc::SOL_SOCKET, libc::SO_INCOMING_CPU) == Ok(ANCHOR_MARK)
        && sys::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_UNIX)
}

/// Replaces an anchor whose connection can not be had by a socket that is reset: a call on it gets `ECONNRESET`,
/// instead of waiting forever on an anchor without tokens.
pub fn replace_by_reset(anchor: i32) {
    if let Ok(end) = reset_socket() {
        replace(anchor, end);
    }
}

/// At the start of a program: ends the connections among inherited `descriptors` that were not taken up, as where a hard
/// limit leaves the library too few numbers. Where both ends are among them, their anchors are a pair that passes bytes
/// on by itself.
#[cold]
pub fn end_inherited(descriptors: Vec<i32>) {
    let inherited = descriptors.into_iter();
    let anchors: Vec<_> = inherited.filter(|fd| is_unknown_anchor(*fd)).collect();
    for anchor in &anchors {
        if leads_to_any_of(*anchor, &anchors) {
            continue;
        }
        // A kernel socket without a connection needs one number, and a pair two.
        if let Ok(end) = reset_socket().or_else(|_| limits::stream_socket(libc::AF_INET)) {
            replace(*anchor, end);
        }
    }
}

/// Whether a byte that is sent by `anchor` comes to one of the others. Tokens that lie there are nobody's.
fn leads_to_any_of(anchor: i32, others: &[i32]) -> bool {
    let waiting = |fd: &i32| sys::file::count(*fd, libc::FIONREAD).unwrap_or(0);
    let before: Vec<_> = others.iter().map(waiting).collect();
    if sys::send(anchor, &[0], libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) != Ok(1) {
        return false;
    }
    let mut told = others.iter().zip(before);
    let Some((peer, _)) = told.find(|(fd, before)| waiting(fd) > *before) else {
        return false;
    };
    while sys::receive(*peer, &mut [0; 64], libc::MSG_DONTWAIT).is_ok_and(|got| got > 0) {}
    true
}

/// An end for which the kernel reports a reset: the other one was closed with unread bytes.
fn reset_socket() -> Result<i32, i32> {
    let (end, other) = limits::for_library(|| sys::socket_pair(libc::SOCK_STREAM))?;
    let _ = sys::send(end, &[0], 0);
    sys::close(other);
    Ok(end)
}

/// Puts `end` in the place of an anchor, with its flags.
fn replace(anchor: i32, end: i32) {
    let status = sys::fcntl(anchor, libc::F_GETFL, 0).unwrap_or(0);
    let flags = sys::fcntl(anchor, libc::F_GETFD, 0).unwrap_or(0);
    let _ = sys::fcntl(end, libc::F_SETFL, status);
    let _ = sys::replace(end, anchor, flags & libc::FD_CLOEXEC as usize != 0);
    sys::close(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_broken_off_is_reset_and_not_waited_for() {
        let (anchor, other) = sys::socket_pair(libc::SOCK_STREAM).unwrap();
        sys::fcntl(anchor, libc::F_SETFL, libc::O_NONBLOCK as usize).unwrap();
        sys::fcntl(anchor, libc::F_SETFD, libc::FD_CLOEXEC as usize).unwrap();
        replace_by_reset(anchor);
        assert!(sys::has_hung_up(other), "nobody else has it");
        let flags = sys::fcntl(anchor, libc::F_GETFL, 0).unwrap();
        assert_ne!(flags & libc::O_NONBLOCK as usize, 0);
        assert_eq!(
            sys::fcntl(anchor, libc::F_GETFD, 0),
            Ok(libc::FD_CLOEXEC as usize)
        );
        let mut bytes = [0; 8];
        assert_eq!(sys::receive(anchor, &mut bytes, 0), Err(libc::ECONNRESET));
        assert_eq!(sys::receive(anchor, &mut bytes, 0), Ok(0));
        assert_eq!(
            sys::send(anchor, &bytes, libc::MSG_NOSIGNAL),
            Err(libc::EPIPE)
        );
        sys::close(anchor);
        sys::close(other);
    }

    #[test]
    fn an_anchor_leads_to_the_other_end_of_its_pair_alone() {
        let (one, other) = sys::anchor_pair().unwrap();
        let (third, far) = sys::anchor_pair().unwrap();
        let here = [one, other, third];
        assert!(leads_to_any_of(one, &here) && leads_to_any_of(other, &here));
        assert!(!leads_to_any_of(third, &here));
        let mut bytes = [0; 8];
        for end in [one, other] {
            let left = sys::receive(end, &mut bytes, libc::MSG_DONTWAIT);
            assert_eq!(left, Err(libc::EAGAIN));
        }
        [one, other, third, far].into_iter().for_each(sys::close);
    }
}
