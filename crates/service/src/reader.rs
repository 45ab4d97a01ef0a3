//! The read position in the bytes that a program wrote.

use netchannel_abi::link::Geometry;
use std::cell::Cell;

/// The read position. It is private: never read back from shared memory.
#[derive(Debug)]
pub(super) struct Reader {
    /// Sequence up to which bytes were consumed.
    pub head: u64,
    /// The ring that holds the byte at `head`.
    pub ring: Geometry,
    /// Sequence of the last move that was adopted.
    pub adopted: u64,
    /// The sequence up to which bytes were available once: they can not be held back any more.
    pub seen: Cell<u64>,
    /// Bytes that fill a packet of this size are never held back. Programs of one host hold back by themselves.
    pub packet: u64,
}

impl Reader {
    pub const fn new(ring: Geometry) -> Self {
        Self {
            head: 0,
            ring,
            adopted: 0,
            seen: Cell::new(0),
            packet: u64::MAX,
        }
    }
}
