//! The order in which a program tries addresses: that of the C library (RFC 3484), for a host with the tenant's addresses.

use core::cmp::Reverse;
use core::net::{IpAddr, Ipv6Addr};

/// Prefixes with their label and precedence, the longest first.
const POLICY: [(u128, u32, u8, u8); 8] = [
    (1, 128, 0, 50),
    (0xffff << 32, 96, 4, 10),
    (0, 96, 3, 20),
    (0x2001 << 112, 32, 7, 40),
    (0x2002 << 112, 16, 2, 30),
    (0xfec0 << 112, 10, 5, 40),
    (0xfc00 << 112, 7, 6, 40),
    (0, 0, 1, 40),
];
const LINK: u8 = 2;
const SITE: u8 = 5;
const GLOBAL: u8 = 14;

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Label and precedence.
fn policy(address: IpAddr) -> (u8, u8) {
    let bits = bits(address);
    let holds = |prefix: u128, length: u32| (prefix ^ bits).leading_zeros() >= length;
    let mut entries = POLICY.iter();
    let found = entries.find(|(prefix, length, ..)| holds(*prefix, *length));
    found.map_or((1, 40), |(_, _, label, precedence)| (*label, *precedence))
}

fn scope(address: IpAddr) -> u8 {
    let v6 = match address.to_canonical() {
        IpAddr::V4(v4) if v4.is_loopback() || v4.is_link_local() => return LINK,
        IpAddr::V4(_) => return GLOBAL,
        IpAddr::V6(v6) => v6,
    };
    let is_site = |address: Ipv6Addr| address.segments()[0] & 0xffc0 == 0xfec0;
    match v6.octets() {
        [0xff, scope, ..] => scope & 15,
        _ if v6.is_loopback() || v6.is_unicast_link_local() => LINK,
        _ if is_site(v6) => SITE,
        _ => GLOBAL,
    }
}

/// Puts those first to which a connection is most likely made; the others stay as they are. `source` is the address from which one
/// to an address starts.
pub fn sort(addresses: &mut [IpAddr], source: impl Fn(IpAddr) -> Option<IpAddr>) {
    // The rules one after the other; `false` goes before `true`.
    addresses.sort_by_key(|address| {
        let (label, precedence) = policy(*address);
        let from = source(*address);
        let scope_here = scope(*address);
        let prefix = match (address.to_canonical(), from) {
            (IpAddr::V6(_), Some(from)) => (bits(*address) ^ bits(from)).leading_zeros(),
            // Without the network's mask nothing can be said.
            _ => 0,
        };
        (
            from.is_none(),
            from.is_none_or(|from| scope(from) != scope_here),
            from.is_none_or(|from| policy(from).0 != label),
            Reverse(precedence),
            scope_here,
            Reverse(prefix),
        )
    });
}
