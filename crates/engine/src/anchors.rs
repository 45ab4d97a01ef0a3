//! Whether anchors still exist: held by a process, or in flight in a message.

use crate::diagnosis::BY_FAMILY;
use crate::netlink::{dump, word};
use rustix::io::Errno;
use rustix::net::netlink::SOCK_DIAG;
use std::collections::BTreeSet;

const LOCAL: u8 = 1;
/// The size of a request. The requested states are at offset 4.
const REQUEST: usize = 24;
const ASKED_STATES: usize = 4;
/// The offset of the cookie in an answer, as two halves.
const COOKIE: usize = 8;

/// How many listings must miss a socket before it counts as closed. One listing may miss an existing socket while
/// others come and go.
const ASKED: usize = 3;

/// Removes the cookies of existing local sockets from a set.
///
/// # Errors
/// Where the kernel does not answer.
pub fn drop_known(cookies: &mut BTreeSet<u64>) -> Result<(), Errno> {
    let mut request = [0_u8; REQUEST];
    request[0] = LOCAL;
    request[ASKED_STATES..ASKED_STATES + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
    for _ in 0..ASKED {
        if cookies.is_empty() {
            break;
        }
        dump(Some(SOCK_DIAG), BY_FAMILY, &request, &mut |_, body| {
            let (low, high) = (word(body, COOKIE), word(body, COOKIE + 4));
            cookies.remove(&(u64::from(high) << 32 | u64::from(low)));
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchannel_service::packet;
    use rustix::net::sockopt;

    #[test]
    fn a_socket_is_there_until_nobody_has_it() {
        let (one, other) = packet::anchor_pair().unwrap();
        let cookies = [&one, &other].map(|socket| sockopt::socket_cookie(socket).unwrap());
        let missing = || {
            let mut left = BTreeSet::from(cookies);
            drop_known(&mut left).map(|()| left)
        };
        assert_eq!(missing(), Ok(BTreeSet::new()));
        drop(one);
        assert_eq!(missing(), Ok(BTreeSet::from([cookies[0]])));
        drop(other);
        assert_eq!(missing(), Ok(BTreeSet::from(cookies)));
    }
}
