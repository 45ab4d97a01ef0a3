//! Addresses as frames hold them, and as calls take them.

use netchannel_abi::address::{Address, INET};
use nix::sys::socket::SockaddrStorage;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// For a call.
pub fn to_call(address: &Address) -> SockaddrStorage {
    if address.family == INET {
        let [a, b, c, d, ..] = address.bytes;
        return SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), address.port).into();
    }
    let plain = Ipv6Addr::from(address.bytes);
    SocketAddrV6::new(plain, address.port, 0, address.scope).into()
}

/// From a call.
pub fn from_call(address: SocketAddr) -> Address {
    match address {
        SocketAddr::V4(v4) => Address::v4(v4.ip().octets(), v4.port()),
        SocketAddr::V6(v6) => Address::v6(v6.ip().octets(), v6.port(), v6.scope_id()),
    }
}
