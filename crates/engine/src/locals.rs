//! The addresses of this host, and word of their changes, over rtnetlink.

use netchannel_abi::address::{Address, INET, INET6};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::os::fd::OwnedFd;

const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTMGRP_IPV4_IFADDR: u32 = 0x10;
const RTMGRP_IPV6_IFADDR: u32 = 0x100;
const MESSAGE_HEADER: usize = 16;
const ADDRESS_HEADER: usize = 8;

fn socket(groups: u32) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::RAW;
    let family = AddressFamily::NETLINK;
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// A socket that becomes readable when an address comes or goes.
///
/// # Errors
/// Where the host refuses it, as some sandboxes do.
pub fn subscribe() -> Result<OwnedFd, Errno> {
    socket(RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR)
}

/// Takes all that a subscription says: what changed does not matter, the list is read anew.
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
/// Where the host does not tell.
pub fn list() -> Result<Vec<Address>, Errno> {
    let socket = socket(0)?;
    let mut request = Vec::with_capacity(24);
    request.extend_from_slice(&24_u32.to_ne_bytes());
    request.extend_from_slice(&RTM_GETADDR.to_ne_bytes());
    request.extend_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    request.resize(24, 0);
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    let mut found = Vec::new();
    let mut buffer = vec![0_u8; 65536];
    // A dump is answered from within `recv`: what is there is all there is.
    loop {
        let (_, length) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::DONTWAIT)?;
        if parse(buffer.get(..length).unwrap_or_default(), &mut found)? {
            break;
        }
    }
    found.retain(|address| !address.is_loopback());
    found.sort_by_key(Address::to_words);
    found.dedup();
    Ok(found)
}

/// Reads one datagram of a dump. Returns whether it was the last.
fn parse(mut bytes: &[u8], found: &mut Vec<Address>) -> Result<bool, Errno> {
    while bytes.len() >= MESSAGE_HEADER {
        let length = usize::try_from(word(bytes, 0)).unwrap_or(0);
        let Some(body) = bytes.get(MESSAGE_HEADER..length) else {
            return Err(Errno::PROTO);
        };
        match half(bytes, 4) {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => return Err(Errno::PROTO),
            RTM_NEWADDR => found.extend(address(body)),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The address in the body of an `RTM_NEWADDR`: `IFA_LOCAL` where there is one, as point-to-point
/// interfaces name their peer in `IFA_ADDRESS`.
fn address(body: &[u8]) -> Option<Address> {
    let family = u16::from(*body.first()?);
    let interface = word(body, 4);
    let mut attributes = body.get(ADDRESS_HEADER..)?;
    let (mut local, mut plain) = (None, None);
    while attributes.len() >= 4 {
        let length = usize::from(half(attributes, 0));
        let value = attributes.get(4..length)?;
        let read = match family {
            INET => value.try_into().ok().map(|octets| Address::v4(octets, 0)),
            INET6 => value.try_into().ok().map(|bytes: [u8; 16]| {
                let link_local = bytes[0] == 0xfe && bytes[1] & 0xc0 == 0x80;
                Address::v6(bytes, 0, if link_local { interface } else { 0 })
            }),
            _ => None,
        };
        match half(attributes, 2) {
            IFA_LOCAL => local = read,
            IFA_ADDRESS => plain = read,
            _ => {}
        }
        attributes = attributes
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
    }
    local.or(plain)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    let array = bytes.get(at..at + 2).and_then(|two| two.try_into().ok());
    array.map_or(0, u16::from_ne_bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let array = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    array.map_or(0, u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        body.extend(attribute(IFA_ADDRESS, &[10, 0, 0, 2]));
        body.extend(attribute(IFA_LOCAL, &[10, 0, 0, 1]));
        assert_eq!(address(&body), Some(Address::v4([10, 0, 0, 1], 0)));
    }

    #[test]
    fn loopback_is_left_out() {
        let found = list().unwrap();
        assert!(found.iter().all(|address| !address.is_loopback()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let mut found = Vec::new();
            let _ = parse(&bytes, &mut found);
            let _ = address(&bytes);
            prop_assert!(found.len() <= bytes.len());
        }
    }
}
