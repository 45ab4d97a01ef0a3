//! The addresses that steps use: this host's loopback, or those of two hosts, where a program runs between them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use netchannel_namespaces::Host;

/// The variable that holds the addresses of two hosts, those of this host first.
pub const VARIABLE: &str = "TORTURE_CALLS_HOSTS";

/// The addresses of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    pub v4: Ipv4Addr,
    pub v6: Ipv6Addr,
    /// A second address of the host.
    pub second: Ipv4Addr,
}

/// The addresses of both hosts. Where there is only one host, both are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    pub own: Addresses,
    pub other: Addresses,
}

const LOOPBACK: Addresses = Addresses {
    v4: Ipv4Addr::LOCALHOST,
    v6: Ipv6Addr::LOCALHOST,
    second: Ipv4Addr::new(127, 0, 0, 2),
};

impl Addresses {
    pub fn of(host: &Host) -> Self {
        Self {
            v4: host.v4(0),
            v6: host.v6(0),
            second: host.v4(1),
        }
    }
}

impl Network {
    /// The addresses of this process's network.
    pub fn get() -> Self {
        static OWN: OnceLock<Network> = OnceLock::new();
        *OWN.get_or_init(|| {
            let text = std::env::var(VARIABLE).ok();
            text.and_then(|text| Self::read(&text)).unwrap_or(Self {
                own: LOOPBACK,
                other: LOOPBACK,
            })
        })
    }

    /// Whether there are two hosts.
    pub fn is_between(self) -> bool {
        self.own != self.other
    }

    /// The text for the environment variable.
    pub fn text(self) -> String {
        let text = |host: Addresses| format!("{} {} {}", host.v4, host.v6, host.second);
        format!("{} {}", text(self.own), text(self.other))
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut host = || {
            Some(Addresses {
                v4: words.next()?.parse().ok()?,
                v6: words.next()?.parse().ok()?,
                second: words.next()?.parse().ok()?,
            })
        };
        Some(Self {
            own: host()?,
            other: host()?,
        })
    }

    /// The host that has an address, or this host if neither has.
    pub fn host_of(self, address: IpAddr) -> Addresses {
        let has = |host: &Addresses| {
            [host.v4, host.second].map(IpAddr::V4).contains(&address) || address == host.v6
        };
        [self.own, self.other]
            .into_iter()
            .find(has)
            .unwrap_or(self.own)
    }
}

#[cfg(test)]
mod tests {
    use super::{Addresses, LOOPBACK, Network};

    #[test]
    fn what_is_written_can_be_read_again() {
        let own = Addresses {
            v4: "10.77.1.1".parse().unwrap(),
            v6: "fd77:1::1".parse().unwrap(),
            second: "10.77.1.2".parse().unwrap(),
        };
        let network = Network {
            own,
            other: LOOPBACK,
        };
        assert_eq!(Network::read(&network.text()), Some(network));
        assert!(network.is_between());
        assert_eq!(network.host_of("10.77.1.2".parse().unwrap()), own);
        assert_eq!(network.host_of("::1".parse().unwrap()), LOOPBACK);
        assert_eq!(network.host_of("192.0.2.1".parse().unwrap()), own);
    }
}
