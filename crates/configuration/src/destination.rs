//! By which stack the connections of a tenant go, by their destination.

use core::cmp::Reverse;
use core::fmt;
use core::str::FromStr;

use crate::prefix::Prefix;

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Kernel TCP: the stack `kernel`.
    Kernel,
    /// Over channels to a peer: the stack `channels`, and that of kernel TCP where it does not lead there now.
    Channels,
    /// None: such a connect fails as where no network is.
    None,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Channels, Self::Kernel, Self::None];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Channels => "channels",
            Self::None => "none",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Way {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut all = Self::ALL.into_iter();
        all.find(|way| way.name() == text).ok_or(())
    }
}

/// Addresses, and the way to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The addresses.
    pub prefix: Prefix,
    /// The way.
    pub way: Way,
    /// The peer to which the channels lead.
    pub peer: Option<String>,
}

impl Destination {
    /// What comes first: the longest prefix is the first that holds an address.
    pub(crate) const fn rank(&self) -> (Reverse<u8>, bool, std::net::IpAddr) {
        let address = self.prefix.address();
        (Reverse(self.prefix.length()), address.is_ipv6(), address)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} = {}", self.prefix, self.way)
    }
}
