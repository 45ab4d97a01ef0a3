//! Netlink messages and their attributes, read from bytes without trust.

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::os::fd::OwnedFd;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
const HEADER: usize = 16;

/// A netlink socket that receives notifications of `groups`. Without a protocol it is for rtnetlink.
pub fn socket(protocol: Option<Protocol>, groups: u32) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = AddressFamily::NETLINK;
    let socket = rustix::net::socket_with(family, SocketType::RAW, flags, protocol)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Requests a dump, and passes every message to `each`.
pub fn dump(
    protocol: Option<Protocol>,
    kind: u16,
    request: &[u8],
    each: &mut dyn FnMut(u16, &[u8]),
) -> Result<(), Errno> {
    let socket = socket(protocol, 0)?;
    send(&socket, kind, REQUEST | DUMP, request)?;
    let mut buffer = vec![0_u8; 65536];
    // The kernel answers a dump from within `recv`: this never waits.
    loop {
        let (_, length) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::DONTWAIT)?;
        if parse(buffer.get(..length).unwrap_or_default(), each)? {
            return Ok(());
        }
    }
}

/// Requests one object on a socket of [`socket`], and passes the answer to `each`. There is no answer where the object
/// does not exist.
pub fn ask(
    socket: &OwnedFd,
    kind: u16,
    request: &[u8],
    each: &mut dyn FnMut(u16, &[u8]),
) -> Result<(), Errno> {
    send(socket, kind, REQUEST, request)?;
    let mut buffer = [0_u8; 4096];
    // The kernel has answered from within `send`.
    let (_, length) = rustix::net::recv(socket, &mut buffer[..], RecvFlags::DONTWAIT)?;
    match parse(buffer.get(..length).unwrap_or_default(), each) {
        Ok(_) | Err(Errno::PROTO) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn send(socket: &OwnedFd, kind: u16, flags: u16, request: &[u8]) -> Result<(), Errno> {
    let length = u32::try_from(HEADER + request.len()).map_err(|_| Errno::INVAL)?;
    let mut message = Vec::with_capacity(HEADER + request.len());
    message.extend_from_slice(&length.to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(request);
    rustix::net::send(socket, &message, SendFlags::empty())?;
    Ok(())
}

/// Parses one datagram of a dump. Returns whether it was the last one.
pub fn parse(mut bytes: &[u8], each: &mut dyn FnMut(u16, &[u8])) -> Result<bool, Errno> {
    while bytes.len() >= HEADER {
        let length = usize::try_from(word(bytes, 0)).unwrap_or(0);
        let body = bytes.get(HEADER..length).ok_or(Errno::PROTO)?;
        match half(bytes, 4) {
            DONE => return Ok(true),
            ERROR => return Err(Errno::PROTO),
            kind => each(kind, body),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Passes the kind and value of every attribute to `each`, until one is malformed.
pub fn attributes(mut bytes: &[u8], each: &mut dyn FnMut(u16, &[u8])) {
    while bytes.len() >= 4 {
        let length = usize::from(half(bytes, 0));
        let Some(value) = bytes.get(4..length) else {
            return;
        };
        each(half(bytes, 2), value);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// Two bytes, or 0 where there are none.
pub fn half(bytes: &[u8], at: usize) -> u16 {
    let array = bytes.get(at..at + 2).and_then(|two| two.try_into().ok());
    array.map_or(0, u16::from_ne_bytes)
}

/// Four bytes, or 0 where there are none.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    let array = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    array.map_or(0, u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let mut count = 0;
            let _ = parse(&bytes, &mut |_, _| count += 1);
            attributes(&bytes, &mut |_, _| count += 1);
            prop_assert!(count <= bytes.len());
        }
    }
}
