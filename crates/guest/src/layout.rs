//! Where things are in the region. Each side has a page that it alone writes, and a ring.
//!
//! ```text
//!  0 host's page | 4096 guest's page | 8192 ring host -> guest | ring guest -> host | what is left over
//! ```

/// Bytes of a side's page.
pub const PAGE: usize = 4096;
/// The smallest region.
pub const LEAST_SIZE: usize = 64 << 10;

/// What a side that speaks this version writes first: letters, and the version.
pub const IDENTITY: u64 = u64::from_le_bytes(*b"ncguest\x02");

/// Words of a page, by their offset. Those that change often have a cache line each.
pub mod word {
    /// [`super::IDENTITY`].
    pub const IDENTITY: usize = 0;
    /// The number of this start of the side; 0 while it is not there.
    pub const SESSION: usize = 8;
    /// The other side's session, for which this side's indices begin at 0.
    pub const PEER: usize = 16;
    /// 1 where this side rings a doorbell, 0 where the other has to look again and again.
    pub const RINGS: usize = 24;
    /// What this side has written of its ring.
    pub const TAIL: usize = 64;
    /// What this side has read of the other's ring.
    pub const HEAD: usize = 128;
    /// For what this side sleeps (two bits), and the number of that sleep.
    pub const ASLEEP: usize = 192;
}

/// One side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where the network is.
    Host,
    /// Where the programs are.
    Guest,
}

impl Side {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Host => Self::Guest,
            Self::Guest => Self::Host,
        }
    }

    /// Where its page begins.
    #[must_use]
    pub const fn page(self) -> usize {
        match self {
            Self::Host => 0,
            Self::Guest => PAGE,
        }
    }
}

/// A ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Where it begins.
    pub offset: usize,
    /// Its bytes, a multiple of a page.
    pub size: usize,
}

/// The ring that a side writes, in a region of so many bytes. `None` where that is too small.
#[must_use]
pub const fn ring(region: usize, writer: Side) -> Option<Ring> {
    if region < LEAST_SIZE {
        return None;
    }
    let size = (region - 2 * PAGE) / 2 / PAGE * PAGE;
    let offset = match writer {
        Side::Host => 2 * PAGE,
        Side::Guest => 2 * PAGE + size,
    };
    Some(Ring { offset, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_lie_beside_each_other_within_the_region() {
        assert_eq!(ring(LEAST_SIZE - 1, Side::Host), None);
        for size in [LEAST_SIZE, LEAST_SIZE + 5, 1 << 20, (1 << 24) - 1] {
            let host = ring(size, Side::Host).unwrap();
            let guest = ring(size, Side::Guest).unwrap();
            assert!(host.size > 0 && host.size.is_multiple_of(PAGE));
            assert_eq!(host.offset + host.size, guest.offset);
            assert!(guest.offset + guest.size <= size);
        }
    }
}
