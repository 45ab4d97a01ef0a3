//! The addresses that a connection with a peer may have. Both the peer's claims and a program's claims are checked.

use crate::prefix::{Prefix, ip, is_unicast};
use netchannel_abi::address::Address;
use netchannel_wire::NcSyn;
use std::net::IpAddr;

/// The configuration of a peer, and this host's addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The networks of the peer's programs.
    pub peer: Vec<Prefix>,
    /// This host's addresses, besides loopback.
    pub own: Vec<Address>,
    /// The connect time-out in nanoseconds; that of TCP where it is not configured.
    pub connect: Option<u64>,
    /// Whether the peer has more than one address.
    pub has_others: bool,
}

impl Rules {
    /// Whether a connection may come from the peer. Its source must be an address of the peer that this host does not
    /// have itself, however wide the peer's prefixes are. Its destination must be an address of this host that others
    /// can reach: listeners at loopback are not for other hosts.
    #[must_use]
    pub fn admits(&self, syn: &NcSyn) -> bool {
        let client = ip(&syn.client);
        let of_peer = |ip: IpAddr| is_unicast(ip) && self.peer.iter().any(|one| one.contains(ip));
        syn.client.port != 0
            && client.is_some_and(of_peer)
            && !self.is_own(&syn.client)
            && self.is_own(&syn.server)
    }

    /// Whether an address is this host's, and not loopback.
    #[must_use]
    pub fn is_own(&self, address: &Address) -> bool {
        let plain = address.unmapped();
        let same = |own: &Address| own.family == plain.family && own.bytes == plain.bytes;
        !plain.is_loopback() && self.own.iter().any(same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchannel_wire::Handle;

    #[test]
    fn a_peer_speaks_for_itself_only() {
        let prefix = Prefix {
            // This host's own address is within.
            address: IpAddr::from([10, 0, 0, 0]),
            length: 14,
        };
        let rules = Rules {
            peer: vec![prefix],
            own: vec![Address::v4([10, 1, 0, 1], 0)],
            connect: None,
            has_others: false,
        };
        let admits = |client: Address, server: Address| {
            rules.admits(&NcSyn {
                handle: Handle {
                    index: 0,
                    generation: 1,
                },
                client,
                server,
                limit: 0,
                listener: 1,
                class: None,
            })
        };
        let (client, server) = (
            Address::v4([10, 2, 0, 1], 7),
            Address::v4([10, 1, 0, 1], 80),
        );
        assert!(admits(client, server));
        assert!(admits(client.mapped(), server.mapped()));
        for other in [[127, 0, 0, 1], [10, 1, 0, 1], [10, 4, 0, 1], [0; 4]] {
            let other = Address::v4(other, 7);
            assert!(!admits(other, server), "{other:?}");
            assert!(!admits(other.mapped(), server), "{other:?}");
        }
        assert!(!admits(Address { port: 0, ..client }, server));
        for other in [[127, 0, 0, 1], [10, 1, 0, 2], [10, 2, 0, 1], [0; 4]] {
            assert!(!admits(client, Address::v4(other, 80)), "{other:?}");
        }
    }
}
