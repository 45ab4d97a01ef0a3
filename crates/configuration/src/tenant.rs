//! Tenants: whose programs have no network of their own, and what of the host's network they may use.

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use netchannel_scheduler::Rate;

use crate::destination::{Destination, Way};
use crate::prefix::{Prefix, PrefixError};

/// Connections of one tenant where its table does not say how many.
pub const TENANT_CONNECTIONS: u32 = 65_536;

/// The largest weight of a tenant.
pub const MOST_WEIGHT: u16 = 1000;

/// A tenant. Its programs attach at its own socket; what comes in by that is the tenant's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name, in logs, answers and labels of metrics, of the same letters as [`crate::Host::name`].
    pub name: String,
    /// Where its programs attach; by default `tenants/NAME/nc.sock` beside the daemon's own socket.
    pub socket: Option<PathBuf>,
    /// The user to whom that socket belongs; by default the daemon's.
    pub user: Option<u32>,
    /// The access mode of that socket.
    pub mode: u32,
    /// The addresses that its programs have: at most one of each family, at least one in all.
    pub addresses: Vec<IpAddr>,
    /// The destinations of its programs. All others are refused.
    pub reach: Vec<Reach>,
    /// Which of its ports are ports of the host.
    pub publish: Vec<Publish>,
    /// The operator's DNS server: what its programs find at port 53 of their own address, unless one of them listens there.
    pub resolver: Option<SocketAddr>,
    /// `TCP_CONGESTION` of its connections, 1 to 15 bytes; by default the kernel's.
    pub congestion_control: Option<String>,
    /// A cap of what its programs receive, in bytes.
    pub rate_in: Option<Rate>,
    /// A cap of what they send, in bytes.
    pub rate_out: Option<Rate>,
    /// Connections that it may have at one time.
    pub connections: u32,
    /// The stack of `[[stacks]]` that serves it; by default one of its own, within the daemon.
    pub stack: Option<String>,
    /// Its share of a stack that serves several tenants: 1 to [`MOST_WEIGHT`] times that of one of weight 1.
    pub weight: u16,
    /// Tenants whose addresses its programs reach, and whose programs reach its own. Each names the other.
    pub meets: Vec<Met>,
    /// Of these, the tenants with whose programs its own share memory. Each names the other.
    pub trusts: Vec<String>,
    /// Where its connections go by another stack than `kernel`: the longest prefix first.
    pub destinations: Vec<Destination>,
}

/// Another tenant that a tenant may meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

impl Tenant {
    /// A tenant that reaches and publishes nothing, with the defaults of its table.
    #[must_use]
    pub fn new(name: &str, addresses: Vec<IpAddr>) -> Self {
        Self {
            name: name.to_owned(),
            socket: None,
            user: None,
            mode: 0o600,
            addresses,
            reach: Vec::new(),
            publish: Vec::new(),
            resolver: None,
            congestion_control: None,
            rate_in: None,
            rate_out: None,
            connections: TENANT_CONNECTIONS,
            stack: None,
            weight: 1,
            meets: Vec::new(),
            trusts: Vec::new(),
            destinations: Vec::new(),
        }
    }

    /// By which way its programs' connections to an address go, as far as they may reach it.
    #[must_use]
    pub fn way_to(&self, address: IpAddr) -> Way {
        self.destination_of(address)
            .map_or(Way::Kernel, |found| found.way)
    }

    /// The entry of its table that an address belongs to.
    #[must_use]
    pub fn destination_of(&self, address: IpAddr) -> Option<&Destination> {
        let mut destinations = self.destinations.iter();
        destinations.find(|one| one.prefix.contains(address))
    }

    /// Whether some of its connections go over channels.
    #[must_use]
    pub fn uses_channels(&self) -> bool {
        let mut destinations = self.destinations.iter();
        destinations.any(|one| one.way == Way::Channels)
    }

    /// The address that its programs have of the family of `other`.
    #[must_use]
    pub fn address_like(&self, other: IpAddr) -> Option<IpAddr> {
        let is_v4 = other.to_canonical().is_ipv4();
        let mut addresses = self.addresses.iter();
        addresses.find(|own| own.is_ipv4() == is_v4).copied()
    }

    /// The tenant that it may meet at an address.
    #[must_use]
    pub fn met_at(&self, address: IpAddr) -> Option<&Met> {
        let mut met = self.meets.iter();
        met.find(|one| one.addresses.contains(&address.to_canonical()))
    }

    /// Whether it may meet the tenant of a name.
    #[must_use]
    pub fn may_meet(&self, name: &str) -> bool {
        self.meets.iter().any(|one| one.name == name)
    }

    /// Whether its programs share memory with those of the tenant of a name, as far as that one says the same.
    #[must_use]
    pub fn does_trust(&self, name: &str) -> bool {
        self.trusts.iter().any(|one| one == name)
    }

    /// Whether its programs may connect to a destination.
    #[must_use]
    pub fn may_reach(&self, destination: SocketAddr) -> bool {
        self.reach.iter().any(|reach| reach.holds(destination))
    }
}

/// Destinations: addresses, and of these some or all ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The addresses.
    pub prefix: Prefix,
    /// The ports.
    pub ports: RangeInclusive<u16>,
}

impl Reach {
    /// Whether it contains a destination. What the host is to itself and to its neighbours is contained only in a prefix within
    /// loopback or the link-local addresses (where clouds serve their keys). The unspecified address (`0.0.0.0`), which the kernel takes
    /// for loopback, is never contained.
    #[must_use]
    pub fn holds(&self, destination: SocketAddr) -> bool {
        let address = destination.ip().to_canonical();
        !address.is_unspecified()
            && (!address.is_loopback() || self.prefix.address().is_loopback())
            && (!is_link_local(address) || is_link_local(self.prefix.address()))
            && self.prefix.contains(address)
            && self.ports.contains(&destination.port())
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, length) = (self.prefix.address(), self.prefix.length());
        match address {
            IpAddr::V4(address) => write!(formatter, "{address}/{length}")?,
            IpAddr::V6(address) => write!(formatter, "[{address}]/{length}")?,
        }
        match (*self.ports.start(), *self.ports.end()) {
            (1, u16::MAX) => Ok(()),
            (first, last) if first == last => write!(formatter, ":{first}"),
            (first, last) => write!(formatter, ":{first}-{last}"),
        }
    }
}

/// A mistake in a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReachError {
    /// Its form.
    Form,
    /// Its prefix.
    Prefix(PrefixError),
}

impl fmt::Display for ReachError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => formatter.write_str(
                "is no destination: write a prefix, and if wanted its ports, like 10.1.0.0/16, 0.0.0.0/0:443 or [fd00::]/8:8000-8099",
            ),
            Self::Prefix(error) => error.fmt(formatter),
        }
    }
}

impl FromStr for Reach {
    type Err = ReachError;

    fn from_str(text: &str) -> Result<Self, ReachError> {
        let bracketed = text.strip_prefix('[');
        let end = if bracketed.is_some() { "]/" } else { "/" };
        let parts = bracketed.unwrap_or(text).split_once(end);
        let (address, rest) = parts.ok_or(ReachError::Form)?;
        // Without brackets a port can not be told from an address.
        if address.contains(':') != bracketed.is_some() {
            return Err(ReachError::Form);
        }
        let (length, ports) = match rest.split_once(':') {
            None => (rest, 1..=u16::MAX),
            Some((length, ports)) => (length, port_range(ports).ok_or(ReachError::Form)?),
        };
        let address: IpAddr = address.parse().map_err(|_| ReachError::Form)?;
        let length = number(length).ok_or(ReachError::Form)?;
        let prefix = Prefix::of_any(address, length).map_err(ReachError::Prefix)?;
        Ok(Self { prefix, ports })
    }
}

/// A number in plain digits.
fn number<T: FromStr>(text: &str) -> Option<T> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

fn port_range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u16, u16) = (number(first)?, number(last)?);
    (first != 0 && first <= last).then_some(first..=last)
}

/// A port of the host that leads to a port of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Publish {
    /// The address and port of the host.
    pub host: SocketAddr,
    /// The port at which a program of the tenant listens.
    pub port: u16,
}

impl Publish {
    /// Whether the two conflict.
    #[must_use]
    pub fn meets(&self, other: SocketAddr) -> bool {
        let (one, two) = (self.host.ip(), other.ip());
        self.host.port() == other.port()
            && one.is_ipv4() == two.is_ipv4()
            && (one == two || one.is_unspecified() || two.is_unspecified())
    }
}

impl fmt::Display for Publish {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

impl FromStr for Publish {
    type Err = ();

    /// `ADDRESS:PORT:TENANT-PORT`, or without the address for every IPv4 address of the host.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (host, port) = text.rsplit_once(':').ok_or(())?;
        let port = number(port).filter(|port| *port != 0).ok_or(())?;
        let everywhere = || Some(SocketAddr::from((Ipv4Addr::UNSPECIFIED, number(host)?)));
        let host: SocketAddr = host.parse().ok().or_else(everywhere).ok_or(())?;
        if host.port() == 0 {
            return Err(());
        }
        Ok(Self { host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(reach: &str, destination: &str) -> bool {
        let reach: Reach = reach.parse().unwrap();
        reach.holds(destination.parse().unwrap())
    }

    #[test]
    fn destinations_are_held_by_address_and_port() {
        assert!(holds("10.0.0.0/8", "10.1.2.3:1") && holds("10.0.0.0/8", "10.1.2.3:65535"));
        assert!(!holds("10.0.0.0/8", "11.1.2.3:1"));
        assert!(holds("0.0.0.0/0:443", "192.0.2.1:443") && !holds("0.0.0.0/0:443", "192.0.2.1:80"));
        assert!(
            holds("0.0.0.0/0:80-90", "192.0.2.1:90") && !holds("0.0.0.0/0:80-90", "192.0.2.1:91")
        );
        assert!(holds("[fd00::]/8:443", "[fd00::7]:443") && !holds("0.0.0.0/0", "[fd00::7]:443"));
        assert!(holds("10.0.0.0/8", "[::ffff:10.0.0.1]:5"));
    }

    #[test]
    fn loopback_of_the_host_is_reached_by_its_name_only() {
        for destination in [
            "127.0.0.1:80",
            "127.8.8.8:80",
            "0.0.0.0:80",
            "[::ffff:127.0.0.1]:80",
            "169.254.169.254:80",
            "[::ffff:169.254.169.254]:80",
        ] {
            assert!(!holds("0.0.0.0/0", destination), "{destination}");
        }
        assert!(!holds("[::]/0", "[fe80::1%1]:80"));
        assert!(holds("169.254.169.254/32", "169.254.169.254:80"));
        assert!(!holds("[::]/0", "[::1]:80") && !holds("[::]/0", "[::]:80"));
        assert!(!holds("[::]/0", "[::ffff:127.0.0.1]:80"));
        assert!(holds("127.0.0.1/32:6379", "127.0.0.1:6379"));
        assert!(!holds("127.0.0.1/32:6379", "127.0.0.2:6379"));
        assert!(holds("[::1]/128", "[::1]:80") && !holds("127.0.0.0/8", "0.0.0.0:80"));
    }

    #[test]
    fn destinations_read_as_they_are_shown() {
        for text in [
            "10.1.0.0/16",
            "0.0.0.0/0:443",
            "[fd00::]/8:8000-8099",
            "[::1]/128",
        ] {
            assert_eq!(text.parse::<Reach>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/8:",
            "10.0.0.0/8:0",
            "10.0.0.0/8:9-8",
            "10.0.0.0/+8",
            "fd00::/8:80",
            "10.0.0.0/8:x",
        ] {
            assert_eq!(text.parse::<Reach>(), Err(ReachError::Form), "{text}");
        }
        assert!(matches!(
            "10.0.0.1/8".parse::<Reach>(),
            Err(ReachError::Prefix(_))
        ));
    }

    #[test]
    fn ports_are_published_as_they_are_shown() {
        for text in ["0.0.0.0:8080:80", "[::1]:443:8443"] {
            assert_eq!(text.parse::<Publish>().unwrap().to_string(), text);
        }
        assert_eq!(
            "8080:80".parse::<Publish>().unwrap().to_string(),
            "0.0.0.0:8080:80"
        );
        for text in [
            "",
            "80",
            "0:80",
            "80:0",
            "a:80",
            "1.2.3.4:80",
            "80:x",
            "localhost:80:80",
        ] {
            assert_eq!(text.parse::<Publish>(), Err(()), "{text}");
        }
        let one: Publish = "10.0.0.1:80:80".parse().unwrap();
        for (other, meets) in [
            ("10.0.0.1:80", true),
            ("0.0.0.0:80", true),
            ("10.0.0.2:80", false),
            ("10.0.0.1:81", false),
            ("[::]:80", false),
        ] {
            assert_eq!(one.meets(other.parse().unwrap()), meets, "{other}");
        }
    }
}
