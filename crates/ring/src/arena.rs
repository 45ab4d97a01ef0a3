//! Blocks of this side's arena: powers of two, naturally aligned, allocated from a private ledger.

use netchannel_abi::link::{Geometry, LEAST_RING_LOG2, MOST_RING_LOG2};

const CLASSES: usize = (MOST_RING_LOG2 - LEAST_RING_LOG2 + 1) as usize;

/// Bytes of free blocks whose pages are kept: frequent allocations find pages there, and the memory of a peak is
/// released.
pub const MOST_KEPT: u64 = 16 << 20;

/// The ledger.
#[derive(Debug)]
pub struct Arena {
    free: [Vec<u64>; CLASSES],
    /// Number of blocks without pages in each list, counted from its bottom. Blocks are taken from the top.
    without_pages: [usize; CLASSES],
    /// Bytes of free blocks that have pages, as far as this ledger knows.
    paged_bytes: u64,
    next: u64,
    /// The middle of the arena: beyond it, more than half of the arena was in use at once.
    half: u64,
    end: u64,
}

const fn size(class: usize) -> u64 {
    1 << (class + LEAST_RING_LOG2 as usize)
}

impl Arena {
    /// The arena from `start` (aligned to the largest ring) of `length` bytes.
    #[must_use]
    pub const fn new(start: u64, length: u64) -> Self {
        Self {
            free: [const { Vec::new() }; CLASSES],
            without_pages: [0; CLASSES],
            paged_bytes: 0,
            next: start,
            half: start + length / 2,
            end: start + length,
        }
    }

    /// Allocates a largest block for a process that can allocate no other later, as long as at least half of the arena
    /// is left.
    pub fn allocate_largest(&mut self) -> Option<Geometry> {
        let left = self.next < self.half || !self.free[CLASSES - 1].is_empty();
        left.then(|| self.allocate(MOST_RING_LOG2))?
    }

    /// Allocates a block of `1 << log2` bytes.
    pub fn allocate(&mut self, log2: u32) -> Option<Geometry> {
        let class = usize::try_from(log2.checked_sub(LEAST_RING_LOG2)?).ok()?;
        if let Some(offset) = self.pop(class) {
            return Some(Geometry { offset, log2 });
        }
        // Split the smallest larger block that is free.
        if let Some(larger) = (class + 1..CLASSES).find(|larger| !self.free[*larger].is_empty()) {
            let offset = self.pop(larger)?;
            for half in (class..larger).rev() {
                self.push(half, offset + size(half));
            }
            return Some(Geometry { offset, log2 });
        }
        let largest = size(CLASSES - 1);
        if self.next + largest > self.end {
            return None;
        }
        self.push(CLASSES - 1, self.next);
        self.next += largest;
        self.allocate(log2)
    }

    /// Frees a block. Blocks whose pages are not kept are passed to `release`, and stay free.
    pub fn free(&mut self, block: Geometry, mut release: impl FnMut(Geometry)) {
        let class = block.log2.checked_sub(LEAST_RING_LOG2);
        let class = class.and_then(|class| usize::try_from(class).ok());
        let Some(class) = class.filter(|class| *class < CLASSES) else {
            return;
        };
        self.push(class, block.offset);
        while self.paged_bytes > MOST_KEPT {
            // The largest first, since one call then releases most; of these the one that would be allocated last.
            let has_pages = |class: &usize| self.free[*class].len() > self.without_pages[*class];
            let Some(class) = (0..CLASSES).rev().find(has_pages) else {
                return;
            };
            let offset = self.free[class][self.without_pages[class]];
            self.without_pages[class] += 1;
            self.paged_bytes -= size(class);
            let log2 = size(class).trailing_zeros();
            release(Geometry { offset, log2 });
        }
    }

    fn push(&mut self, class: usize, offset: u64) {
        self.free[class].push(offset);
        self.paged_bytes += size(class);
    }

    fn pop(&mut self, class: usize) -> Option<u64> {
        let offset = self.free.get_mut(class)?.pop()?;
        let left = self.free[class].len();
        if self.without_pages[class] > left {
            self.without_pages[class] = left;
        } else {
            self.paged_bytes -= size(class);
        }
        Some(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_apart_leaves_half_for_everybody() {
        let mut arena = Arena::new(0, 64 << 20);
        let apart: Vec<_> = std::iter::from_fn(|| arena.allocate_largest()).collect();
        assert_eq!(apart.len(), 8);
        assert!(apart.iter().all(|block| block.log2 == MOST_RING_LOG2));
        assert!(arena.allocate(LEAST_RING_LOG2).is_some());
        arena.free(apart[3], |_| ());
        assert_eq!(arena.allocate_largest(), Some(apart[3]), "what came back");
    }

    /// Random allocations, with the pages counted separately.
    #[test]
    fn a_peak_does_not_last_and_no_block_is_lent_twice() {
        const LENGTH: u64 = 1 << 28;
        let mut arena = Arena::new(0, LENGTH);
        let mut lent: Vec<Geometry> = Vec::new();
        let grain = 1u64 << LEAST_RING_LOG2;
        let mut pages = vec![false; usize::try_from(LENGTH / grain).unwrap_or(0)];
        let grains = |block: Geometry| {
            let first = usize::try_from(block.offset / grain).unwrap_or(0);
            first..first + usize::try_from(block.size() / grain).unwrap_or(0)
        };
        let mut random = 0x1234_5678_9abc_def1_u64;
        for step in 0..20_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let log2 = LEAST_RING_LOG2 + u32::try_from(random % CLASSES as u64).unwrap_or(0);
            // The arena fills for a while, and empties for a while.
            if random >> 32 & 3 < if step / 2000 % 2 == 0 { 3 } else { 1 } {
                if let Some(block) = arena.allocate(log2) {
                    let overlaps = |one: &Geometry| {
                        one.offset < block.offset + block.size()
                            && block.offset < one.offset + one.size()
                    };
                    assert!(!lent.iter().any(overlaps), "{block:?}");
                    grains(block).for_each(|grain| pages[grain] = true);
                    lent.push(block);
                }
            } else if !lent.is_empty() {
                let index = usize::try_from(random >> 16).unwrap_or(0) % lent.len();
                let block = lent.swap_remove(index);
                arena.free(block, |without_pages| {
                    grains(without_pages).for_each(|grain| pages[grain] = false);
                });
            }
        }
        while let Some(block) = lent.pop() {
            arena.free(block, |without_pages| {
                grains(without_pages).for_each(|grain| pages[grain] = false);
            });
        }
        let left = pages.iter().filter(|page| **page).count() as u64 * grain;
        assert!(left <= MOST_KEPT, "{left} bytes stay");
    }
}
