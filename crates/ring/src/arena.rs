//! Blocks of this side's arena: powers of two, naturally aligned, handed out from a private ledger.

use netchannel_abi::link::{Geometry, LEAST_RING_LOG2, MOST_RING_LOG2};

const CLASSES: usize = (MOST_RING_LOG2 - LEAST_RING_LOG2 + 1) as usize;

/// The ledger.
#[derive(Debug)]
pub struct Arena {
    free: [Vec<u64>; CLASSES],
    next: u64,
    end: u64,
}

impl Arena {
    /// The arena from `start` (aligned to the largest ring) of `length` bytes.
    #[must_use]
    pub const fn new(start: u64, length: u64) -> Self {
        Self {
            free: [const { Vec::new() }; CLASSES],
            next: start,
            end: start + length,
        }
    }

    /// A block of `1 << log2` bytes.
    pub fn allocate(&mut self, log2: u32) -> Option<Geometry> {
        let class = usize::try_from(log2.checked_sub(LEAST_RING_LOG2)?).ok()?;
        if let Some(offset) = self.free.get_mut(class)?.pop() {
            return Some(Geometry { offset, log2 });
        }
        // Split the smallest larger block that is free.
        if let Some(larger) = (class + 1..CLASSES).find(|larger| !self.free[*larger].is_empty()) {
            let offset = self.free[larger].pop()?;
            for half in (class..larger).rev() {
                let bytes = 1u64 << (half + LEAST_RING_LOG2 as usize);
                self.free[half].push(offset + bytes);
            }
            return Some(Geometry { offset, log2 });
        }
        let size = 1u64 << MOST_RING_LOG2;
        if self.next + size > self.end {
            return None;
        }
        self.free[CLASSES - 1].push(self.next);
        self.next += size;
        self.allocate(log2)
    }

    /// Takes a block back.
    pub fn free(&mut self, block: Geometry) {
        if let Some(class) = block.log2.checked_sub(LEAST_RING_LOG2)
            && let Some(list) = self.free.get_mut(class as usize)
        {
            list.push(block.offset);
        }
    }
}
