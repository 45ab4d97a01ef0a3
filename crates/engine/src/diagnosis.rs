//! Which socket listens where, according to the kernel: for a socket that a program has sent, by that socket; for any
//! other, by sock_diag.

use crate::namespace;
use crate::netlink::{self, dump, half, word};
use netchannel_abi::address::{Address, INET, INET6};
use rustix::io::Errno;
use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// The type of a request, and of its answers.
pub const BY_FAMILY: u16 = 20;
const TCP: u8 = 6;
const LISTENING: u32 = 1 << 10;
/// The size of a request. The requested port is at offset 8 in network byte order, then the other port, the addresses,
/// a device, and the cookie.
const REQUEST: usize = 56;
const ASKED_SOURCE: usize = 12;
const ASKED_COOKIE: usize = 48;
/// The offset of the state in an answer, and the state of a listener.
const STATE: usize = 1;
const LISTEN: u8 = 10;
/// The offsets of the compared fields.
const SOURCE_PORT: usize = 4;
const SOURCE: usize = 8;
const COOKIE: usize = 44;
const USER: usize = 64;

/// A claim that a TCP socket listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The address.
    pub address: Address,
    /// The socket's cookie in the kernel.
    pub cookie: u64,
    /// The user who made the socket, where that is compared.
    pub user: Option<u32>,
}

impl Claim {
    fn family(&self) -> u8 {
        if self.address.family == INET { 2 } else { 10 }
    }

    fn is_confirmed_by(&self, body: &[u8]) -> bool {
        let length = if self.address.family == INET { 4 } else { 16 };
        body.first() == Some(&self.family())
            && half(body, SOURCE_PORT) == self.address.port.to_be()
            && body.get(SOURCE..SOURCE + length) == self.address.bytes.get(..length)
            && cookie_of(body) == self.cookie
            && self.user.is_none_or(|user| word(body, USER) == user)
    }
}

/// The cookie in an answer, in two halves.
fn cookie_of(body: &[u8]) -> u64 {
    u64::from(word(body, COOKIE + 4)) << 32 | u64::from(word(body, COOKIE))
}

/// How often a missing socket is listed. A listing may miss an existing socket while others come and go.
const ASKED: usize = 3;

/// Whether each claim is true.
///
/// # Errors
/// Where the kernel does not answer.
pub fn are_true(claims: &[Claim]) -> Result<Vec<bool>, Errno> {
    let mut proved = find(claims)?;
    for _ in 0..ASKED {
        if proved.iter().all(|proved| *proved) {
            break;
        }
        list(claims, &mut proved)?;
    }
    Ok(proved)
}

/// Whether one claim is true. The kernel is asked once: a program whose claim is not believed may send the socket
/// instead.
///
/// # Errors
/// Where the kernel does not answer.
pub fn is_true(claim: &Claim) -> Result<bool, Errno> {
    let claims = std::slice::from_ref(claim);
    let mut proved = find(claims)?;
    if proved != [true] {
        list(claims, &mut proved)?;
    }
    Ok(proved == [true])
}

/// Looks each claim up as the kernel does for a packet to it. The cost does not depend on the number of other sockets,
/// and no socket is missed because others come and go. But in a group with one address the kernel finds any member, and
/// no member that is bound to a device.
fn find(claims: &[Claim]) -> Result<Vec<bool>, Errno> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let socket = netlink::socket(Some(SOCK_DIAG), 0)?;
    let find_one = |claim: &Claim| {
        let mut request = [0_u8; REQUEST];
        request[0] = claim.family();
        request[1] = TCP;
        request[8..10].copy_from_slice(&claim.address.port.to_be_bytes());
        request[ASKED_SOURCE..ASKED_SOURCE + 16].copy_from_slice(&claim.address.bytes);
        for (half, at) in [(claim.cookie, 0), (claim.cookie >> 32, 4)] {
            let half = (half & 0xffff_ffff) as u32;
            let at = ASKED_COOKIE + at;
            request[at..at + 4].copy_from_slice(&half.to_ne_bytes());
        }
        let mut found = false;
        netlink::ask(&socket, BY_FAMILY, &request, &mut |_, body| {
            found |= body.get(STATE) == Some(&LISTEN) && claim.is_confirmed_by(body);
        })?;
        Ok(found)
    };
    claims.iter().map(find_one).collect()
}

/// Makes one listing for each family that occurs, of one port where all claims have the same.
fn list(claims: &[Claim], proved: &mut [bool]) -> Result<(), Errno> {
    let first = claims.first().map_or(0, |claim| claim.address.port);
    let same = claims.iter().all(|claim| claim.address.port == first);
    let mut of_cookie: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, claim) in claims.iter().enumerate() {
        of_cookie.entry(claim.cookie).or_default().push(index);
    }
    for family in [2, 10] {
        if !claims.iter().any(|claim| claim.family() == family) {
            continue;
        }
        let mut request = [0_u8; REQUEST];
        request[0] = family;
        request[1] = TCP;
        request[4..8].copy_from_slice(&LISTENING.to_ne_bytes());
        if same {
            request[8..10].copy_from_slice(&first.to_be_bytes());
        }
        dump(Some(SOCK_DIAG), BY_FAMILY, &request, &mut |_, body| {
            let cookie = cookie_of(body);
            for index in of_cookie.get(&cookie).into_iter().flatten() {
                if let (Some(claim), Some(proved)) = (claims.get(*index), proved.get_mut(*index)) {
                    *proved |= claim.is_confirmed_by(body);
                }
            }
        })?;
    }
    Ok(())
}

/// The address to which a TCP socket of the network namespace `home` is bound, of the daemon's where that is `None`.
///
/// # Errors
/// `INVAL` where it is no bound TCP socket, `NONET` where it is one of another namespace, or that is not known.
pub fn bound_address(socket: &OwnedFd, home: Option<u64>) -> Result<Address, Errno> {
    let family = sockopt::socket_domain(socket)?;
    if !matches!(family, AddressFamily::INET | AddressFamily::INET6)
        || sockopt::socket_protocol(socket)? != Some(ipproto::TCP)
    {
        return Err(Errno::INVAL);
    }
    namespace::demand(socket, home)?;
    let address = match SocketAddr::try_from(rustix::net::getsockname(socket)?) {
        Ok(SocketAddr::V4(v4)) => Address::v4(v4.ip().octets(), v4.port()),
        Ok(SocketAddr::V6(v6)) => Address::v6(v6.ip().octets(), v6.port(), v6.scope_id()),
        Err(_) => return Err(Errno::INVAL),
    };
    if address.port == 0 {
        return Err(Errno::INVAL);
    }
    Ok(address)
}

/// Whether the socket that somebody shows is the one of his claim, and of the namespace `home`, as for [`bound_address`].
pub fn is_shown_by(claim: &Claim, socket: &OwnedFd, home: Option<u64>) -> bool {
    let there = |bound: Address| {
        matches!(bound.family, INET | INET6)
            && (bound.family, bound.port, bound.bytes)
                == (
                    claim.address.family,
                    claim.address.port,
                    claim.address.bytes,
                )
    };
    let looks_right = sockopt::socket_cookie(socket) == Ok(claim.cookie)
        && sockopt::socket_type(socket) == Ok(SocketType::STREAM)
        && sockopt::socket_acceptconn(socket) == Ok(true);
    looks_right
        && match bound_address(socket, home) {
            Ok(bound) => there(bound),
            // Before Linux 5.14 only a listing is known to be of this namespace.
            Err(Errno::NONET) => {
                home.is_none()
                    && namespace::is_own(socket).is_none()
                    && is_true(&Claim {
                        user: None,
                        ..*claim
                    }) == Ok(true)
            }
            Err(_) => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn listener() -> (OwnedFd, Claim) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let claim = Claim {
            address: Address::v4([127, 0, 0, 1], port),
            cookie: sockopt::socket_cookie(&listener).unwrap(),
            user: None,
        };
        (listener.into(), claim)
    }

    #[test]
    fn only_a_listener_that_exists_is_proved() {
        let (_socket, good) = listener();
        let own = rustix::process::geteuid().as_raw();
        let cookie = good.cookie + 1;
        let at = |address| Claim { address, ..good };
        let of = |user| Claim {
            user: Some(user),
            ..good
        };
        for (claim, wanted) in [
            (good, true),
            (of(own), true),
            (of(own + 1), false),
            (Claim { cookie, ..good }, false),
            (at(Address::v4([0; 4], good.address.port)), false),
            (
                at(Address::v4([127, 0, 0, 1], good.address.port ^ 1)),
                false,
            ),
            (at(good.address.mapped()), false),
        ] {
            assert_eq!(is_true(&claim), Ok(wanted), "{claim:?}");
        }
    }

    #[test]
    fn a_listener_is_found_without_a_listing() {
        let (_one, first) = listener();
        let wildcard = TcpListener::bind("[::]:0").unwrap();
        let any = Claim {
            address: Address::v6([0; 16], wildcard.local_addr().unwrap().port(), 0),
            cookie: sockopt::socket_cookie(&wildcard).unwrap(),
            user: None,
        };
        let cookie = first.cookie + 1;
        let other = Claim { cookie, ..first };
        assert_eq!(find(&[first, other, any]), Ok(vec![true, false, true]));
    }

    #[test]
    fn several_are_proved_at_once() {
        let (one, first) = listener();
        let (_two, second) = listener();
        assert_eq!(are_true(&[first, second]), Ok(vec![true, true]));
        drop(one);
        assert_eq!(are_true(&[first, second]), Ok(vec![false, true]));
        assert_eq!(are_true(&[]), Ok(Vec::new()));
    }

    #[test]
    fn a_socket_that_is_shown_must_be_the_one_that_listens_there() {
        let (socket, claim) = listener();
        assert!(is_shown_by(&claim, &socket, None));
        let (other, _) = listener();
        assert!(!is_shown_by(&claim, &other, None));
        let port = claim.address.port ^ 1;
        let address = Address::v4([127, 0, 0, 1], port);
        assert!(!is_shown_by(&Claim { address, ..claim }, &socket, None));
        let wildcard = Address::v4([0; 4], claim.address.port);
        let elsewhere = Claim {
            address: wildcard,
            ..claim
        };
        assert!(!is_shown_by(&elsewhere, &socket, None));
        // Bound, and not listening.
        let plain = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        assert_eq!(bound_address(&plain, None), Err(Errno::INVAL));
        rustix::net::bind(&plain, &any).unwrap();
        let address = bound_address(&plain, None).unwrap();
        let claim = Claim {
            address,
            cookie: sockopt::socket_cookie(&plain).unwrap(),
            user: None,
        };
        assert!(!is_shown_by(&claim, &plain, None));
        let datagram = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        rustix::net::bind(&datagram, &any).unwrap();
        assert_eq!(bound_address(&datagram, None), Err(Errno::INVAL));
    }
}
