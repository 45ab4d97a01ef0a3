//! The addresses of this host, and notifications of their changes.

use crate::netlink::{attributes, dump, socket, word};
use netchannel_abi::address::{Address, INET, INET6};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::os::fd::OwnedFd;

const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const IPV4_GROUP: u32 = 0x10;
const IPV6_GROUP: u32 = 0x100;
/// The bytes before the attributes of an address.
const HEADER: usize = 8;

/// A socket that becomes readable when an address is added or removed.
///
/// # Errors
/// Where the host refuses it, as some sandboxes do.
pub fn subscribe() -> Result<OwnedFd, Errno> {
    socket(None, IPV4_GROUP | IPV6_GROUP)
}

/// Reads all notifications of a subscription. Their content does not matter, since the list is read again.
pub fn drain(subscription: &OwnedFd) {
    let mut buffer = [0_u8; 8192];
    loop {
        match rustix::net::recv(subscription, &mut buffer[..], RecvFlags::DONTWAIT) {
            Ok(_) | Err(Errno::INTR | Errno::NOBUFS) => {}
            Err(_) => return,
        }
    }
}

/// The host's own addresses besides loopback, sorted.
///
/// # Errors
/// Where the kernel does not answer.
pub fn list() -> Result<Vec<Address>, Errno> {
    let mut found = Vec::new();
    dump(None, GET_ADDRESS, &[0; HEADER], &mut |kind, body| {
        if kind == NEW_ADDRESS {
            found.extend(address(body));
        }
    })?;
    found.retain(|address| !address.is_loopback());
    found.sort_by_key(Address::to_words);
    found.dedup();
    Ok(found)
}

/// The local address where there is one. Point-to-point interfaces also report their peer's address.
fn address(body: &[u8]) -> Option<Address> {
    let family = u16::from(*body.first()?);
    let interface = word(body, 4);
    let (mut local, mut plain) = (None, None);
    attributes(body.get(HEADER..)?, &mut |kind, value| {
        let read = match family {
            INET => value.try_into().ok().map(|octets| Address::v4(octets, 0)),
            INET6 => value.try_into().ok().map(|bytes: [u8; 16]| {
                let link_local = bytes[0] == 0xfe && bytes[1] & 0xc0 == 0x80;
                Address::v6(bytes, 0, if link_local { interface } else { 0 })
            }),
            _ => None,
        };
        match kind {
            LOCAL => local = read,
            ADDRESS => plain = read,
            _ => {}
        }
    });
    local.or(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len() + 4).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn a_point_to_point_address_is_the_local_one() {
        let mut body = vec![2, 24, 0, 0, 3, 0, 0, 0];
        body.extend(attribute(ADDRESS, &[10, 0, 0, 2]));
        body.extend(attribute(LOCAL, &[10, 0, 0, 1]));
        assert_eq!(address(&body), Some(Address::v4([10, 0, 0, 1], 0)));
    }

    #[test]
    fn a_link_local_address_has_its_interface() {
        let mut body = vec![10, 64, 0, 0, 7, 0, 0, 0];
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&[0xfe, 0x80]);
        body.extend(attribute(ADDRESS, &bytes));
        assert_eq!(address(&body), Some(Address::v6(bytes, 0, 7)));
    }

    #[test]
    fn loopback_is_left_out() {
        let found = list().unwrap();
        assert!(found.iter().all(|address| !address.is_loopback()));
    }
}
