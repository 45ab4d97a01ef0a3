//! Addresses: which listener covers a destination, which source address a program may claim, and how addresses are
//! shown.

use netchannel_abi::address::{Address, INET, INET6};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::{PoisonError, RwLock};

/// The addresses of this host as they were last read. They are static because the process is on one host.
static OWN: RwLock<Vec<Address>> = RwLock::new(Vec::new());

/// Stores the addresses of this host for [`true_client`].
pub fn remember(locals: &[Address]) {
    let mut own = OWN.write().unwrap_or_else(PoisonError::into_inner);
    locals.clone_into(&mut own);
}

/// The address from which a program connects. This is the address that it claims if that one belongs to this host.
/// Otherwise it is the address to which it connects, which belongs to this host when the listener does.
pub fn true_client(claimed: Address, server: &Address) -> Address {
    let plain = claimed.unmapped();
    let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
    let known = |own: &Address| own.family == plain.family && own.bytes == plain.bytes;
    if plain.is_loopback() && server.is_loopback() || own.iter().any(known) {
        return claimed;
    }
    Address {
        port: claimed.port,
        ..*server
    }
}

/// Whether a listener at `local` covers `destination`: by exactly its address, or by the wildcard address.
pub fn covers(local: &Address, destination: &Address) -> bool {
    let any =
        local.is_wildcard() && (local.family == INET6 || destination.unmapped().family == INET);
    let (local, meant) = (local.unmapped(), destination.unmapped());
    local.port == meant.port && (any || local.bytes == meant.bytes)
}

/// An address in the form that commands show.
#[must_use]
pub fn shown(address: &Address) -> String {
    to_socket_address(address).map_or_else(|| "-".to_owned(), |address| address.to_string())
}

/// An address as the kernel's calls take it; `None` of another family.
#[must_use]
pub fn to_socket_address(address: &Address) -> Option<SocketAddr> {
    match address.family {
        INET => {
            let [a, b, c, d, ..] = address.bytes;
            Some(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), address.port).into())
        }
        INET6 => {
            let plain = Ipv6Addr::from(address.bytes);
            Some(SocketAddrV6::new(plain, address.port, 0, address.scope).into())
        }
        _ => None,
    }
}

/// An address that the kernel's calls gave.
#[must_use]
pub const fn from_socket_address(address: SocketAddr) -> Address {
    match address {
        SocketAddr::V4(v4) => Address::v4(v4.ip().octets(), v4.port()),
        SocketAddr::V6(v6) => Address::v6(v6.ip().octets(), v6.port(), v6.scope_id()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_usual() {
        assert_eq!(shown(&Address::v4([127, 0, 0, 1], 80)), "127.0.0.1:80");
        let loopback = Address::v6(1_u128.to_be_bytes(), 443, 0);
        assert_eq!(shown(&loopback), "[::1]:443");
        assert_eq!(shown(&Address::default()), "-");
    }

    #[test]
    fn a_program_connects_from_an_address_of_this_host() {
        // A network for documentation, which no other test uses.
        let own = Address::v4([192, 0, 2, 77], 0);
        remember(&[own]);
        let loopback = Address::v4([127, 0, 0, 1], 80);
        let far = Address::v4([198, 51, 100, 1], 80);
        let from = |address: Address| Address {
            port: 4000,
            ..address
        };
        for (claimed, server, shown) in [
            (loopback, loopback, loopback),
            (own, far, own),
            (own.mapped(), far, own.mapped()),
            (far, own, own),
            (loopback, own, own),
            (far, loopback, loopback),
        ] {
            assert_eq!(true_client(from(claimed), &server), from(shown));
        }
    }
}
