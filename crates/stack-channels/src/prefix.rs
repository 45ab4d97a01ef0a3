//! Addresses without ports: prefixes, and addresses that another host can have.

use netchannel_abi::address::{Address, INET, INET6};
use std::net::IpAddr;

/// The addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// An address.
    pub address: IpAddr,
    /// The length of the prefix in bits.
    pub length: u8,
}

impl Prefix {
    /// Whether an address is within the prefix. An IPv4 address may be mapped into IPv6.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let (own, other) = (self.address.to_canonical(), address.to_canonical());
        let (own, other, width) = match (own, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (u128::from(own.to_bits()), u128::from(other.to_bits()), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits(), other.to_bits(), 128),
            _ => return false,
        };
        let beyond = width - u32::from(self.length).min(width);
        // A shift by the full width leaves no bits that differ.
        (own ^ other).checked_shr(beyond).unwrap_or(0) == 0
    }
}

/// An address without its port.
#[must_use]
pub fn ip(address: &Address) -> Option<IpAddr> {
    match address.family {
        INET => address
            .bytes
            .first_chunk::<4>()
            .map(|bytes| IpAddr::from(*bytes)),
        INET6 => Some(IpAddr::from(address.bytes).to_canonical()),
        _ => None,
    }
}

/// Whether another host can have this address.
#[must_use]
pub fn is_unicast(ip: IpAddr) -> bool {
    let elsewhere = match ip {
        IpAddr::V4(ip) => !ip.is_broadcast(),
        // A link-local address has no meaning without its interface.
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    };
    elsewhere && !ip.is_loopback() && !ip.is_multicast() && !ip.is_unspecified()
}
