//! Blocks of this side's arena: powers of two, naturally aligned, allocated from a private ledger.

use std::collections::BTreeMap;

use netchannel_abi::link::{Geometry, LEAST_RING_LOG2, MOST_RING_LOG2};

const CLASSES: usize = (MOST_RING_LOG2 - LEAST_RING_LOG2 + 1) as usize;

/// Bytes of free blocks whose pages are kept: frequent allocations find pages there, and the memory of a peak is
/// released.
pub const MOST_KEPT: u64 = 16 << 20;
/// Of a lent block that has so few bytes with pages nothing is noted.
const FEW: u64 = 64 << 10;

/// The ledger.
#[derive(Debug)]
pub struct Arena {
    free: [Vec<Free>; CLASSES],
    /// Number of blocks without pages in each list, counted from its bottom. Blocks are taken from the top.
    without_pages: [usize; CLASSES],
    /// Bytes of free blocks that have pages, as far as this ledger knows.
    paged_bytes: u64,
    /// The same of each lent block that has more than [`FEW`], from before it was lent.
    lent: BTreeMap<u64, u64>,
    next: u64,
    /// The middle of the arena: beyond it, more than half of the arena was in use at once.
    half: u64,
    end: u64,
}

/// A free block, and how many of its bytes have pages: the first ones.
#[derive(Clone, Copy, Debug)]
struct Free {
    offset: u64,
    paged: u64,
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
            lent: BTreeMap::new(),
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
        if let Some(block) = self.pop(class) {
            if block.paged > FEW {
                self.lent.insert(block.offset, block.paged);
            }
            let offset = block.offset;
            return Some(Geometry { offset, log2 });
        }
        // Split the smallest larger block that is free.
        if let Some(larger) = (class + 1..CLASSES).find(|larger| !self.free[*larger].is_empty()) {
            let Free { offset, paged } = self.pop(larger)?;
            for half in (class..larger).rev() {
                let in_half = |before| paged.saturating_sub(before).min(size(half));
                self.push(half, offset + size(half), in_half(size(half)));
            }
            self.push(class, offset, paged.min(size(class)));
            return self.allocate(log2);
        }
        let largest = size(CLASSES - 1);
        if self.next + largest > self.end {
            return None;
        }
        self.push(CLASSES - 1, self.next, 0);
        self.next += largest;
        self.allocate(log2)
    }

    /// Frees a block. Blocks whose pages are not kept are passed to `release`, and stay free.
    pub fn free(&mut self, block: Geometry, release: impl FnMut(Geometry)) {
        self.free_used(block, block.size(), release);
    }

    /// As [`Self::free`], where at most the first `used` bytes of the block were used since it was lent.
    pub fn free_used(&mut self, block: Geometry, used: u64, mut release: impl FnMut(Geometry)) {
        let class = block.log2.checked_sub(LEAST_RING_LOG2);
        let class = class.and_then(|class| usize::try_from(class).ok());
        let Some(class) = class.filter(|class| *class < CLASSES) else {
            return;
        };
        let before = self.lent.remove(&block.offset).unwrap_or(0);
        self.push(class, block.offset, used.clamp(before, size(class)));
        while self.paged_bytes > MOST_KEPT {
            // The largest first, since one call then releases most; of these the one that would be allocated last.
            let has_pages = |class: &usize| self.free[*class].len() > self.without_pages[*class];
            let Some(class) = (0..CLASSES).rev().find(has_pages) else {
                return;
            };
            let block = &mut self.free[class][self.without_pages[class]];
            self.without_pages[class] += 1;
            let paged = core::mem::take(&mut block.paged);
            let (offset, log2) = (block.offset, size(class).trailing_zeros());
            if paged > 0 {
                self.paged_bytes -= paged;
                release(Geometry { offset, log2 });
            }
        }
    }

    fn push(&mut self, class: usize, offset: u64, paged: u64) {
        self.free[class].push(Free { offset, paged });
        self.paged_bytes += paged;
    }

    fn pop(&mut self, class: usize) -> Option<Free> {
        let block = self.free.get_mut(class)?.pop()?;
        let left = self.free[class].len();
        self.without_pages[class] = self.without_pages[class].min(left);
        self.paged_bytes -= block.paged;
        Some(block)
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

    /// What was used once counts until its pages are released, however little is used of it later.
    #[test]
    fn blocks_of_which_little_was_used_keep_their_pages() {
        let mut arena = Arena::new(0, 256 << 20);
        let round = |arena: &mut Arena, used: u64| {
            let blocks: Vec<_> = std::iter::from_fn(|| arena.allocate_largest())
                .take(12)
                .collect();
            let mut released = 0;
            for block in blocks {
                arena.free_used(block, used, |_| released += 1);
            }
            released
        };
        assert_eq!((round(&mut arena, 4096), round(&mut arena, 4096)), (0, 0));
        let most = usize::try_from(MOST_KEPT >> MOST_RING_LOG2).unwrap_or(0);
        assert_eq!(round(&mut arena, u64::MAX), 12 - most);
        let kept = arena.paged_bytes;
        assert_eq!(round(&mut arena, 0), 0);
        assert_eq!(arena.paged_bytes, kept);
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
