//! Socket addresses as shared memory and messages hold them.

use core::sync::atomic::{AtomicU64, Ordering};

/// An IPv4 or IPv6 address with its port, in 24 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Address {
    /// `AF_INET` (2), `AF_INET6` (10), or 0 where there is none.
    pub family: u16,
    /// Port in host byte order.
    pub port: u16,
    /// IPv6 scope, 0 otherwise.
    pub scope: u32,
    /// The address in network byte order; IPv4 uses the first four bytes, the rest is zero.
    pub bytes: [u8; 16],
}

/// `AF_INET` as Linux numbers it.
pub const INET: u16 = 2;
/// `AF_INET6` as Linux numbers it.
pub const INET6: u16 = 10;

impl Address {
    /// An IPv4 address.
    #[must_use]
    pub const fn v4(octets: [u8; 4], port: u16) -> Self {
        let mut bytes = [0; 16];
        bytes[0] = octets[0];
        bytes[1] = octets[1];
        bytes[2] = octets[2];
        bytes[3] = octets[3];
        Self {
            family: INET,
            port,
            scope: 0,
            bytes,
        }
    }

    /// An IPv6 address.
    #[must_use]
    pub const fn v6(bytes: [u8; 16], port: u16, scope: u32) -> Self {
        Self {
            family: INET6,
            port,
            scope,
            bytes,
        }
    }

    /// The host's own address, `[::1]` or `127.0.0.1`.
    #[must_use]
    pub const fn loopback(six: bool, port: u16) -> Self {
        if six {
            Self::v6(1u128.to_be_bytes(), port, 0)
        } else {
            Self::v4([127, 0, 0, 1], port)
        }
    }

    /// The unspecified address of this family, with this port.
    #[must_use]
    pub fn unnamed(&self) -> Self {
        if self.family == INET6 {
            Self::v6([0; 16], self.port, 0)
        } else {
            Self::v4([0; 4], self.port)
        }
    }

    /// Whether this is the unspecified address (`0.0.0.0` or `::`).
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.bytes == [0; 16]
    }

    /// Whether this is 127.0.0.0/8, `::1`, or its mapped form.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let plain = self.unmapped();
        match plain.family {
            INET => plain.bytes[0] == 127,
            INET6 => plain.bytes == 1u128.to_be_bytes(),
            _ => false,
        }
    }

    /// `::ffff:a.b.c.d` as the IPv4 address it stands for; anything else unchanged.
    #[must_use]
    pub fn unmapped(&self) -> Self {
        let prefix = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        if self.family == INET6 && self.bytes[..12] == prefix {
            let b = self.bytes;
            return Self::v4([b[12], b[13], b[14], b[15]], self.port);
        }
        *self
    }

    /// An IPv4 address as a dual-stack IPv6 socket shows it; anything else unchanged.
    #[must_use]
    pub fn mapped(&self) -> Self {
        if self.family != INET {
            return *self;
        }
        let mut bytes = [0; 16];
        bytes[10] = 0xff;
        bytes[11] = 0xff;
        bytes[12..].copy_from_slice(&self.bytes[..4]);
        Self::v6(bytes, self.port, 0)
    }

    /// The three words in which messages and shared memory hold an address.
    #[must_use]
    pub fn to_words(&self) -> [u64; 3] {
        let head =
            u64::from(self.family) | u64::from(self.port) << 16 | u64::from(self.scope) << 32;
        let whole = u128::from_be_bytes(self.bytes);
        [head, low(whole >> 64), low(whole)]
    }

    /// Reads what [`Address::to_words`] wrote. Any words give some address.
    #[must_use]
    pub fn from_words(words: [u64; 3]) -> Self {
        let [a, b, c, d, e, f, g, h] = words[0].to_le_bytes();
        Self {
            family: u16::from_le_bytes([a, b]),
            port: u16::from_le_bytes([c, d]),
            scope: u32::from_le_bytes([e, f, g, h]),
            bytes: (u128::from(words[1]) << 64 | u128::from(words[2])).to_be_bytes(),
        }
    }
}

/// The low half of a 128-bit word.
const fn low(word: u128) -> u64 {
    let b = word.to_le_bytes();
    u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])
}

/// An [`Address`] in shared memory. Not atomic as a whole: written before it is published.
#[derive(Debug, Default)]
#[repr(C)]
pub struct SharedAddress([AtomicU64; 3]);

impl SharedAddress {
    /// Stores the three words, relaxed; the publication of the structure around it orders them.
    pub fn store(&self, address: &Address) {
        for (word, value) in self.0.iter().zip(address.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Loads the three words, relaxed.
    #[must_use]
    pub fn load(&self) -> Address {
        let word = |index: usize| self.0[index].load(Ordering::Relaxed);
        Address::from_words([word(0), word(1), word(2)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for address in [
            Address::v4([127, 0, 0, 1], 80),
            Address::v6([0x20; 16], 65535, 7),
            Address::default(),
        ] {
            assert_eq!(Address::from_words(address.to_words()), address);
        }
    }

    #[test]
    fn mapping_round_trips() {
        let plain = Address::v4([10, 1, 2, 3], 443);
        assert_eq!(plain.mapped().family, INET6);
        assert_eq!(plain.mapped().unmapped(), plain);
        assert!(Address::v4([127, 9, 9, 9], 1).mapped().is_loopback());
    }
}
