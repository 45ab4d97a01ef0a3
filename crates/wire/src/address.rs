//! Addresses in payloads: family, port, bytes. The scope of an IPv6 address has no meaning on another host and is left
//! out.

use netchannel_abi::address::{Address, INET, INET6};

use crate::bytes::{put, take, u16_at};
use crate::layout::address::{BYTES, FAMILY, PORT, SIZE};

/// The bytes of an address.
#[must_use]
pub fn to_bytes(address: &Address) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    put(&mut bytes, FAMILY, &address.family.to_le_bytes());
    put(&mut bytes, PORT, &address.port.to_le_bytes());
    put(&mut bytes, BYTES, &address.bytes);
    bytes
}

/// Reads what [`to_bytes`] wrote. None if the family is neither IPv4 nor IPv6, or an IPv4 address
/// has bytes beyond its four.
#[must_use]
pub fn from_bytes(bytes: &[u8; SIZE]) -> Option<Address> {
    let address = Address {
        family: u16_at(bytes, FAMILY),
        port: u16_at(bytes, PORT),
        scope: 0,
        bytes: take(bytes, BYTES),
    };
    let well_formed = match address.family {
        INET => address.bytes[4..] == [0; 12],
        INET6 => true,
        _ => false,
    };
    well_formed.then_some(address)
}

/// The addresses of an ADDRESSES frame: all are well-formed, with port zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressList<'a>(&'a [[u8; SIZE]]);

impl<'a> AddressList<'a> {
    /// Checks a payload, whose length must be a multiple of an address. The error is the number of the first address
    /// that is malformed or has a port.
    pub(crate) fn new(payload: &'a [u8]) -> Result<Self, usize> {
        let (elements, _) = payload.as_chunks();
        let wrong = |bytes: &[u8; SIZE]| from_bytes(bytes).is_none_or(|it| it.port != 0);
        match elements.iter().position(wrong) {
            Some(number) => Err(number),
            None => Ok(Self(elements)),
        }
    }

    /// The number of addresses.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no address.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The addresses, in the order of the frame.
    pub fn iter(&self) -> impl Iterator<Item = Address> + 'a {
        self.0.iter().filter_map(from_bytes)
    }

    pub(crate) const fn as_bytes(&self) -> &'a [u8] {
        self.0.as_flattened()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_without_their_scope() {
        let plain = Address::v4([10, 1, 2, 3], 443);
        assert_eq!(from_bytes(&to_bytes(&plain)), Some(plain));
        let scoped = Address::v6([0xfe; 16], 1, 7);
        let read = from_bytes(&to_bytes(&scoped));
        assert_eq!(read, Some(Address { scope: 0, ..scoped }));
    }

    #[test]
    fn families_and_padding_are_checked() {
        assert_eq!(from_bytes(&[0; SIZE]), None);
        let mut bytes = to_bytes(&Address::v4([1, 2, 3, 4], 5));
        bytes[SIZE - 1] = 1;
        assert_eq!(from_bytes(&bytes), None);
    }
}
