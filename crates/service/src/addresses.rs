//! Addresses: which listener is the one for a destination, where a program may say that it connects from, and how they are shown.

use netchannel_abi::address::{Address, INET, INET6};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::sync::{PoisonError, RwLock};

/// The addresses as they were last read: the process is on one host.
static OWN: RwLock<Vec<Address>> = RwLock::new(Vec::new());

/// Keeps the addresses for [`true_client`].
pub fn remember(locals: &[Address]) {
    let mut own = OWN.write().unwrap_or_else(PoisonError::into_inner);
    locals.clone_into(&mut own);
}

/// Where a program connects from: what it claims, if that is an address of this host; otherwise the
/// address it connects to, which is one where the listener is of this host too.
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

/// Whether a listener at `local` is the one for `destination`: its very address, or any.
pub fn covers(local: &Address, destination: &Address) -> bool {
    let any =
        local.is_wildcard() && (local.family == INET6 || destination.unmapped().family == INET);
    let (local, meant) = (local.unmapped(), destination.unmapped());
    local.port == meant.port && (any || local.bytes == meant.bytes)
}

/// An address as commands show it.
#[must_use]
pub fn shown(address: &Address) -> String {
    match address.family {
        INET => {
            let [a, b, c, d, ..] = address.bytes;
            SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), address.port).to_string()
        }
        INET6 => {
            let plain = Ipv6Addr::from(address.bytes);
            SocketAddrV6::new(plain, address.port, 0, address.scope).to_string()
        }
        _ => "-".to_owned(),
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
        // A network for documentation: no other test's.
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
