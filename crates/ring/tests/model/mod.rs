//! One body per structure: arbitrary bytes become a start index and a series of operations, which the structure and a
//! plain model both carry out. The tests next to this folder run the bodies with bytes from proptest, the targets of
//! `fuzz/` with bytes from a fuzzer.
#![allow(dead_code, reason = "each user of the bodies calls some of them")]

pub mod bytes;
pub mod cell;
pub mod queue;

/// Reads decisions from arbitrary bytes; when they have run out, every decision is 0.
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(core::array::from_fn(|_| self.byte()))
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }

    /// An index to start from: often so near the end that it wraps at once.
    pub fn start(&mut self) -> u64 {
        match self.byte() % 4 {
            0 => 0,
            1 => u64::MAX - u64::from(self.byte()),
            2 => (1 << 32) - u64::from(self.byte()),
            _ => self.word(),
        }
    }
}
