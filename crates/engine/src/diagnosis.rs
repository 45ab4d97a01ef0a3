//! The kernel's own word on who listens where, by sock_diag.

use crate::netlink::{dump, half, word};
use netchannel_abi::address::{Address, INET};
use rustix::net::netlink::SOCK_DIAG;

const BY_FAMILY: u16 = 20;
const TCP: u8 = 6;
const LISTENING: u32 = 1 << 10;
/// Bytes of a request; the port asked for stands at 8, in network byte order.
const REQUEST: usize = 56;
/// Where an answer holds what is compared.
const SOURCE_PORT: usize = 4;
const SOURCE: usize = 8;
const COOKIE: usize = 44;
const USER: usize = 64;

/// Whether a TCP socket with this cookie listens at `address` that `user` made, where that counts.
/// `false` also where the kernel does not tell.
pub fn is_listener(address: &Address, cookie: u64, user: Option<u32>) -> bool {
    let mut request = [0_u8; REQUEST];
    request[0] = if address.family == INET { 2 } else { 10 };
    request[1] = TCP;
    request[4..8].copy_from_slice(&LISTENING.to_ne_bytes());
    request[8..10].copy_from_slice(&address.port.to_be_bytes());
    let mut proved = false;
    let result = dump(Some(SOCK_DIAG), BY_FAMILY, &request, &mut |_, body| {
        proved |= matches(body, address, cookie, user);
    });
    if let Err(error) = result {
        tracing::warn!("the kernel does not tell who listens where ({error})");
    }
    proved
}

fn matches(body: &[u8], address: &Address, cookie: u64, user: Option<u32>) -> bool {
    let low = u64::from(word(body, COOKIE));
    let high = u64::from(word(body, COOKIE + 4));
    let length = if address.family == INET { 4 } else { 16 };
    body.first().copied().map(u16::from) == Some(address.family)
        && half(body, SOURCE_PORT) == address.port.to_be()
        && body.get(SOURCE..SOURCE + length) == address.bytes.get(..length)
        && high << 32 | low == cookie
        && user.is_none_or(|user| word(body, USER) == user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn only_a_listener_that_exists_is_proved() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let cookie = rustix::net::sockopt::socket_cookie(&listener).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let user = Some(own);
        let address = Address::v4([127, 0, 0, 1], port);
        assert!(is_listener(&address, cookie, user));
        assert!(is_listener(&address, cookie, None));
        assert!(!is_listener(&address, cookie + 1, user));
        assert!(!is_listener(&address, cookie, Some(own + 1)));
        assert!(!is_listener(&address, cookie + 1, None));
        let wildcard = Address::v4([0; 4], port);
        assert!(!is_listener(&wildcard, cookie, user));
        let other = Address::v4([127, 0, 0, 1], port ^ 1);
        assert!(!is_listener(&other, cookie, user));
    }
}
