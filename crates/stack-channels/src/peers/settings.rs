//! The settings of the peers, as plain values that were checked before.

use crate::prefix::Prefix;
pub use netchannel_configuration::{Bounds, PerClass, Times};
use netchannel_driver as driver;
use netchannel_wire::Key;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// All settings of the peers.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The addresses at which other hosts may dial; may be empty.
    pub listen: Vec<SocketAddr>,
    /// The peers. Each name belongs to one peer only.
    pub peers: Vec<PeerSettings>,
    /// How channels use their transport. The source address and the time-out of unanswered bytes are set here, see
    /// [`Settings::source`] and [`Times::silence`].
    pub options: PerClass<driver::Options>,
    /// Times.
    pub times: Times,
    /// Limits.
    pub limits: PeerLimits,
}

/// The settings of one peer.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// Its name, in logs and answers.
    pub name: String,
    /// The addresses at which it is dialled, in this order; may be empty, then the peer dials. A channel that comes
    /// from one of these addresses, with any port, belongs to this peer.
    pub addresses: Vec<SocketAddr>,
    /// The addresses at which it may announce listeners. A channel that comes from one of them, and from no peer's
    /// `addresses`, belongs to this peer too.
    pub prefixes: Vec<Prefix>,
    /// The common key of both hosts. Another `Arc` counts as another key: channels are made again.
    pub key: Arc<Key>,
    /// The number of channels.
    pub channels: PerClass<Bounds>,
}

/// The limits of peers and strangers on this host. Limits that HELLO announces are fixed for the daemon's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLimits {
    /// The largest payload of a DATA frame that this host accepts.
    pub payload: u32,
    /// Virtual sockets with one peer.
    pub sockets: u32,
    /// Listeners that one peer may announce, and that are announced to it; also the limit of its entries in the
    /// directory.
    pub listeners: usize,
    /// Incoming channels whose handshake is not complete.
    pub half_open: usize,
}

impl Default for PeerLimits {
    fn default() -> Self {
        Self {
            payload: 1 << 18,
            sockets: 1 << 20,
            listeners: 1024,
            half_open: 64,
        }
    }
}

impl Settings {
    /// The address from which a peer at `to` is dialled, by which the peer recognizes this host: the only listening
    /// address of that family, if `to` can be reached from it.
    #[must_use]
    pub fn source(&self, to: IpAddr) -> Option<IpAddr> {
        let family = |one: &&IpAddr| one.is_ipv4() == to.is_ipv4();
        let listen: Vec<IpAddr> = self.listen.iter().map(SocketAddr::ip).collect();
        match listen.iter().filter(family).collect::<Vec<_>>()[..] {
            [one] if !one.is_unspecified() && (!one.is_loopback() || to.is_loopback()) => {
                Some(*one)
            }
            _ => None,
        }
    }
}

impl PeerSettings {
    /// Whether the peer is dialled at this address, with any port.
    #[must_use]
    pub fn is_at(&self, source: IpAddr) -> bool {
        let source = source.to_canonical();
        let mut addresses = self.addresses.iter();
        addresses.any(|address| address.ip().to_canonical() == source)
    }

    /// Whether listeners at this address may belong to this peer.
    #[must_use]
    pub fn may_announce(&self, address: IpAddr) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(address: &str, length: u8) -> Prefix {
        let address = address.parse().unwrap();
        Prefix { address, length }
    }

    #[test]
    fn addresses_are_within_a_prefix_or_not() {
        let within = |prefix: Prefix, address: &str| prefix.contains(address.parse().unwrap());
        assert!(within(prefix("10.1.0.0", 16), "10.1.255.255"));
        assert!(within(prefix("10.1.0.0", 16), "::ffff:10.1.2.3"));
        assert!(!within(prefix("10.1.0.0", 16), "10.2.0.0"));
        assert!(within(prefix("0.0.0.0", 0), "1.2.3.4"));
        assert!(!within(prefix("0.0.0.0", 0), "fd00::1"));
        assert!(within(prefix("::", 0), "fd00::1"));
        assert!(within(prefix("fd00::1", 128), "fd00::1"));
        assert!(!within(prefix("fd00::1", 128), "fd00::2"));
        assert!(!within(prefix("10.0.0.1", 32), "10.0.0.0"));
    }

    #[test]
    fn a_peer_is_dialled_from_the_one_address_that_is_listened_at() {
        let source = |listen: &[&str], to: &str| {
            let settings = Settings {
                listen: listen.iter().map(|one| one.parse().unwrap()).collect(),
                ..Settings::default()
            };
            settings
                .source(to.parse().unwrap())
                .map(|ip| ip.to_string())
        };
        assert_eq!(
            source(&["10.0.0.1:1"], "10.0.0.2").as_deref(),
            Some("10.0.0.1")
        );
        assert_eq!(
            source(&["10.0.0.1:1", "[fd00::1]:1"], "fd00::2").as_deref(),
            Some("fd00::1")
        );
        assert_eq!(source(&["10.0.0.1:1", "10.9.0.1:1"], "10.0.0.2"), None);
        assert_eq!(source(&["0.0.0.0:1"], "10.0.0.2"), None);
        assert_eq!(source(&["127.0.0.1:1"], "10.0.0.2"), None);
        assert_eq!(
            source(&["127.0.0.5:1"], "127.0.0.2").as_deref(),
            Some("127.0.0.5")
        );
    }
}
