//! The addresses of a tenant, as messages name them: where a program of another tenant has a link to a program, they are those that it
//! may come from.

use crate::address::{Address, INET, INET6};

/// At most one address of each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantAddresses([u64; 3]);

impl TenantAddresses {
    /// The first address of each family.
    #[must_use]
    pub fn of(addresses: &[Address]) -> Self {
        let first = |family| addresses.iter().find(|one| one.family == family);
        let [_, v4, _] = first(INET).map_or([0; 3], Address::to_words);
        let [_, high, low] = first(INET6).map_or([0; 3], Address::to_words);
        Self([v4, high, low])
    }

    /// Reads what [`Self::to_words`] gave. Any words give some addresses.
    #[must_use]
    pub const fn from_words(words: [u64; 3]) -> Self {
        Self(words)
    }

    /// Its three words, all 0 where there is none.
    #[must_use]
    pub const fn to_words(self) -> [u64; 3] {
        self.0
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Whether an address is one of them, whatever its port.
    #[must_use]
    pub fn has(self, address: &Address) -> bool {
        let (Self([v4, high, low]), plain) = (self, address.unmapped());
        let [_, first, second] = plain.to_words();
        match plain.family {
            INET => v4 != 0 && first == v4,
            INET6 => (high, low) != (0, 0) && (first, second) == (high, low),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_its_addresses_and_no_others() {
        let (four, six) = (Address::v4([10, 88, 0, 2], 0), Address::v6([7; 16], 0, 0));
        let with_port = |address: Address| Address {
            port: 80,
            ..address
        };
        let both = TenantAddresses::of(&[six, four]);
        let both = TenantAddresses::from_words(both.to_words());
        assert!(both.has(&with_port(four)) && both.has(&with_port(six)));
        assert!(both.has(&with_port(four).mapped()));
        assert!(!both.has(&Address::v4([10, 88, 0, 3], 80)));
        assert!(!both.has(&Address::v6([8; 16], 80, 0)) && !both.has(&Address::default()));
        let one = TenantAddresses::of(&[four]);
        assert!(one.has(&four) && !one.has(&six) && !one.has(&Address::v6([0; 16], 80, 0)));
        assert!(TenantAddresses::of(&[]).is_none() && !one.is_none());
        assert!(!TenantAddresses::default().has(&Address::v4([0; 4], 80)));
    }
}
