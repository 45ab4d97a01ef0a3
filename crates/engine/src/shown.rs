//! Addresses as logs and commands show them.

use netchannel_abi::address::{Address, INET, INET6};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

/// An address as commands show it.
pub fn shown_address(address: &Address) -> String {
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
        assert_eq!(
            shown_address(&Address::v4([127, 0, 0, 1], 80)),
            "127.0.0.1:80"
        );
        let loopback = Address::v6(1_u128.to_be_bytes(), 443, 0);
        assert_eq!(shown_address(&loopback), "[::1]:443");
        assert_eq!(shown_address(&Address::default()), "-");
    }
}
