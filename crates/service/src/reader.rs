//! Where reading of what a program wrote has come to.

use netchannel_abi::link::Geometry;
use std::cell::Cell;

/// Where reading has come to. Private: never read back from shared memory.
#[derive(Debug)]
pub(super) struct Reader {
    /// Sequence up to which bytes were consumed.
    pub head: u64,
    /// The ring that holds the byte at `head`.
    pub ring: Geometry,
    /// Sequence of the last move that was adopted.
    pub adopted: u64,
    /// Up to there it was seen what was written: that can not be held back any more.
    pub shown: Cell<u64>,
    /// As much is never held back; programs of one host see to that themselves.
    pub piece: u64,
}

impl Reader {
    pub const fn new(ring: Geometry) -> Self {
        Self {
            head: 0,
            ring,
            adopted: 0,
            shown: Cell::new(0),
            piece: u64::MAX,
        }
    }
}
