//! Prefixes of addresses.

use core::fmt;
use core::str::FromStr;
use std::net::IpAddr;

/// The addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// Why a text is no prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrefixError {
    /// No address, or no length.
    NotAPrefix,
    /// More bits than the address has.
    TooLong {
        /// The number of its bits.
        most: u8,
    },
    /// Bits beyond the length are set.
    BitsBeyond {
        /// The prefix that is probably meant.
        meant: Prefix,
    },
    /// An IPv4 address in the clothes of IPv6.
    Mapped,
    /// Addresses that never leave a host, or that no listener has.
    NotRemote,
}

impl fmt::Display for PrefixError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAPrefix => formatter.write_str(
                "is not a prefix: write an address and how many of its bits count, like 10.1.0.0/16 or fd00::/64",
            ),
            Self::TooLong { most } => {
                write!(formatter, "has more bits than the address: at most /{most}")
            }
            Self::BitsBeyond { meant } => {
                write!(formatter, "has bits beyond its length: write {meant}")
            }
            Self::Mapped => formatter.write_str(
                "is an IPv4 address within IPv6: write it as an IPv4 prefix, like 10.1.0.0/16",
            ),
            Self::NotRemote => formatter.write_str(
                "holds addresses that no other host has (loopback or multicast): remove it",
            ),
        }
    }
}

impl std::error::Error for PrefixError {}

const fn bits(address: IpAddr) -> u128 {
    match address {
        // At the upper end, so that lengths count from the same place.
        IpAddr::V4(address) => (address.to_bits() as u128) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

const fn mask(length: u8) -> u128 {
    match length {
        0 => 0,
        length => u128::MAX << (128 - length as u32),
    }
}

impl Prefix {
    /// A prefix of one address.
    #[must_use]
    pub const fn host(address: IpAddr) -> Self {
        let address = address.to_canonical();
        let length = if address.is_ipv4() { 32 } else { 128 };
        Self { address, length }
    }

    /// A prefix of the first `length` bits of `address`.
    ///
    /// # Errors
    /// The mistake.
    pub fn new(address: IpAddr, length: u8) -> Result<Self, PrefixError> {
        let prefix = Self::of_any(address, length)?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        if length > 0 && (address.is_loopback() || address.is_multicast())
            || (length == whole && address.is_unspecified())
        {
            return Err(PrefixError::NotRemote);
        }
        Ok(prefix)
    }

    /// The same, also for addresses that never leave a host.
    ///
    /// # Errors
    /// The mistake in its form.
    pub fn of_any(address: IpAddr, length: u8) -> Result<Self, PrefixError> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        if length > most {
            return Err(PrefixError::TooLong { most });
        }
        if address.to_canonical() != address {
            return Err(PrefixError::Mapped);
        }
        let prefix = Self { address, length };
        let kept = bits(address) & mask(length);
        if kept != bits(address) {
            let meant = match address {
                IpAddr::V4(_) => IpAddr::V4(u32::try_from(kept >> 96).unwrap_or(0).into()),
                IpAddr::V6(_) => IpAddr::V6(kept.into()),
            };
            let meant = Self {
                address: meant,
                length,
            };
            return Err(PrefixError::BitsBeyond { meant });
        }
        Ok(prefix)
    }

    /// Whether an address begins with these bits; an IPv4 address may be mapped into IPv6.
    #[must_use]
    pub const fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4()
            && bits(address) & mask(self.length) == bits(self.address)
    }

    /// Whether some address is within both.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        // The shorter one holds the first address of the longer one.
        if self.length <= other.length {
            self.contains(other.address)
        } else {
            other.contains(self.address)
        }
    }

    /// The first address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The length in bits.
    #[must_use]
    pub const fn length(&self) -> u8 {
        self.length
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = text.split_once('/').ok_or(PrefixError::NotAPrefix)?;
        let address: IpAddr = address.parse().map_err(|_| PrefixError::NotAPrefix)?;
        let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number {
            return Err(PrefixError::NotAPrefix);
        }
        Self::new(address, length.parse().unwrap_or(u8::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_no_prefix_is_refused() {
        let error = |text: &str| text.parse::<Prefix>().unwrap_err();
        for text in [
            "",
            "10.0.0.0",
            "10.0.0/8",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "a/8",
        ] {
            assert_eq!(error(text), PrefixError::NotAPrefix, "{text}");
        }
        assert_eq!(error("10.0.0.0/33"), PrefixError::TooLong { most: 32 });
        assert_eq!(error("fd00::/999"), PrefixError::TooLong { most: 128 });
        let meant = prefix("10.0.0.0/24");
        assert_eq!(error("10.0.0.1/24"), PrefixError::BitsBeyond { meant });
        let meant = prefix("fd00::/8");
        assert_eq!(error("fdff::/8"), PrefixError::BitsBeyond { meant });
        assert_eq!(error("::ffff:10.0.0.0/104"), PrefixError::Mapped);
        for text in ["127.0.0.0/8", "::1/128", "224.0.0.0/4", "0.0.0.0/32"] {
            assert_eq!(error(text), PrefixError::NotRemote, "{text}");
        }
    }

    #[test]
    fn addresses_are_within_or_not() {
        let within = |text: &str, address: &str| prefix(text).contains(address.parse().unwrap());
        assert!(within("10.1.0.0/16", "10.1.255.255"));
        assert!(within("10.1.0.0/16", "::ffff:10.1.2.3"));
        assert!(!within("10.1.0.0/16", "10.2.0.0"));
        assert!(!within("0.0.0.0/0", "fd00::1"));
        assert!(within("::/0", "fd00::1"));
        assert!(within("fd00::/64", "fd00::ffff:ffff"));
        assert!(!within("fd00::/64", "fd00:0:0:1::"));
    }

    proptest! {
        #[test]
        fn overlapping_is_having_an_address_in_common(
            (a, a_length) in (any::<u32>(), 0..=32u8),
            (b, b_length) in (any::<u32>(), 0..=32u8),
        ) {
            let cut = |address: u32, length: u8| {
                let kept = address & u32::try_from(mask(length) >> 96).unwrap();
                Prefix { address: IpAddr::V4(kept.into()), length }
            };
            let (a, b) = (cut(a, a_length), cut(b, b_length));
            let common = a.contains(b.address()) || b.contains(a.address());
            prop_assert_eq!(a.overlaps(&b), common);
            prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
            prop_assert!(a.overlaps(&a));
        }
    }
}
