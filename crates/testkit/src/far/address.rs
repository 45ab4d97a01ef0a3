//! Loopback addresses of a case, and the addresses of the two hosts that stand for them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::{is_listened_on, not_between, other};

/// The addresses of this host and of the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Addresses of this host, IPv4 and IPv6.
    pub near: (Ipv4Addr, Ipv6Addr),
    /// Addresses of the other host.
    pub far: (Ipv4Addr, Ipv6Addr),
}

impl FromStr for Addresses {
    type Err = std::net::AddrParseError;

    /// Four addresses with commas: those of this host, then those of the other.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<&str> = text.split(',').collect();
        let word = |index: usize| words.get(index).copied().unwrap_or_default();
        Ok(Self {
            near: (word(0).parse()?, word(1).parse()?),
            far: (word(2).parse()?, word(3).parse()?),
        })
    }
}

impl std::fmt::Display for Addresses {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { near, far } = self;
        write!(formatter, "{},{},{},{}", near.0, near.1, far.0, far.1)
    }
}

/// The loopback address in place of an address of a host, in the same form: IPv4, mapped into IPv6, or IPv6.
#[must_use]
fn loopback_of(address: IpAddr, hosts: &Addresses) -> IpAddr {
    let ours = [hosts.near, hosts.far];
    match address {
        IpAddr::V4(v4) if ours.iter().any(|(known, _)| *known == v4) => {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        }
        IpAddr::V6(v6) if ours.iter().any(|(_, known)| *known == v6) => {
            IpAddr::V6(Ipv6Addr::LOCALHOST)
        }
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) if ours.iter().any(|(known, _)| *known == v4) => {
                IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped())
            }
            _ => address,
        },
        IpAddr::V4(_) => address,
    }
}

/// An address of a host in place of the loopback address, in the same form.
fn host_of(address: IpAddr, host: (Ipv4Addr, Ipv6Addr)) -> IpAddr {
    match address {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => IpAddr::V4(host.0),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => IpAddr::V6(host.1),
        IpAddr::V6(v6) if v6.to_ipv4_mapped() == Some(Ipv4Addr::LOCALHOST) => {
            IpAddr::V6(host.0.to_ipv6_mapped())
        }
        other => other,
    }
}

/// An address that the system returned, translated to the address that a case on one host would see.
#[must_use]
pub fn near_loopback(mut address: SocketAddr) -> SocketAddr {
    if let Some(other) = other() {
        address.set_ip(loopback_of(address.ip(), &other.addresses));
    }
    address
}

/// The address to which a near or far socket is bound.
pub(crate) fn to_bind(mut address: SocketAddr, is_far: bool) -> SocketAddr {
    if let Some(other) = other() {
        let hosts = &other.addresses;
        let own = if is_far { hosts.far } else { hosts.near };
        address.set_ip(host_of(address.ip(), own));
    }
    address
}

/// The address to which a near or far socket is connected, and whether that address is on the other host as seen from
/// the socket.
pub(crate) fn to_connect(mut address: SocketAddr, is_far: bool) -> (SocketAddr, bool) {
    let Some(other) = other() else {
        return (address, false);
    };
    let hosts = &other.addresses;
    let on_near = is_listened_on(address.port());
    if address.ip().is_unspecified() && on_near == is_far {
        not_between("a wildcard as destination");
    }
    let target_host = if on_near { hosts.near } else { hosts.far };
    let before = address.ip();
    address.set_ip(host_of(before, target_host));
    (address, on_near == is_far && address.ip() != before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_their_form() {
        let text = "10.77.1.1,fd77:1::1,10.77.2.1,fd77:2::1";
        let hosts: Addresses = text.parse().unwrap();
        assert_eq!(hosts.to_string(), text);
        for loopback in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let address: IpAddr = loopback.parse().unwrap();
            let far_address = host_of(address, hosts.far);
            assert_ne!(far_address, address);
            assert_eq!(loopback_of(far_address, &hosts), address);
            assert_eq!(loopback_of(host_of(address, hosts.near), &hosts), address);
        }
        for other in ["0.0.0.0", "::", "10.77.3.1", "127.0.0.2"] {
            let address: IpAddr = other.parse().unwrap();
            assert_eq!(host_of(address, hosts.far), address);
            assert_eq!(loopback_of(address, &hosts), address);
        }
    }
}
