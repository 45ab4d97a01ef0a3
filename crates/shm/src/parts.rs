//! A region that is mapped part by part, as it is used: the file of a link is large and sparse, and what a process maps counts against
//! its limits whether it uses it or not.
//!
//! ```text
//!  base      part 0       part 1                 part 6
//!   |-------- mapped | .. nobody's .. | ... | -- mapped | ... size
//! ```
//!
//! All parts lie where they would lie in a mapping of the whole, so that an offset is checked and turned into an address as ever; that
//! the part is there is one bit more to look at. Addresses between them are reserved by nothing but being out of everybody's way: the
//! kernel gives out addresses from the top, and regions lie far below, each with room for the whole. Who is there all the same is
//! noticed, and never replaced.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Words of a map of parts: of most regions each part has a mebibyte.
const WORDS: usize = 16;
const MOST: usize = WORDS * 64;
const LEAST_LOG2: u32 = 20;
/// Of a region that is mapped as a whole.
const WHOLE_LOG2: u32 = usize::BITS - 1;

/// Which parts are mapped.
#[derive(Debug)]
pub(crate) struct Parts {
    /// A part has so many bytes, as a logarithm.
    log2: u32,
    /// A bit for each part that holds the region's bytes. Set once it does, and never taken back while the region is used.
    mapped: [AtomicU64; WORDS],
    /// A bit for each part whose addresses are the region's, whatever lies there.
    held: [AtomicU64; WORDS],
}

const fn none() -> [AtomicU64; WORDS] {
    [const { AtomicU64::new(0) }; WORDS]
}

impl Parts {
    /// One part, which is mapped.
    pub const fn whole() -> Self {
        let (mut mapped, mut held) = (none(), none());
        mapped[0] = AtomicU64::new(1);
        held[0] = AtomicU64::new(1);
        Self {
            log2: WHOLE_LOG2,
            mapped,
            held,
        }
    }

    /// No part of `size` bytes is mapped yet.
    pub fn of(size: usize) -> Self {
        let least = size.div_ceil(MOST).next_power_of_two();
        Self {
            log2: least.trailing_zeros().max(LEAST_LOG2),
            mapped: none(),
            held: none(),
        }
    }

    /// The same addresses.
    pub fn copy(&self) -> Self {
        let copy = |map: &[AtomicU64; WORDS]| {
            core::array::from_fn(|word| AtomicU64::new(map[word].load(Ordering::Acquire)))
        };
        Self {
            log2: self.log2,
            mapped: copy(&self.mapped),
            held: copy(&self.held),
        }
    }

    /// The same addresses, for the bytes of another file: none is mapped yet.
    pub fn again(self) -> Self {
        if self.is_whole() {
            return self;
        }
        Self {
            mapped: none(),
            ..self
        }
    }

    pub const fn is_whole(&self) -> bool {
        self.log2 == WHOLE_LOG2
    }

    /// Whether `length` bytes from `offset` on, which lie within the region, are mapped.
    #[inline(always)]
    pub fn has(&self, offset: usize, length: usize) -> bool {
        let first = offset >> self.log2;
        let last = offset.wrapping_add(length.saturating_sub(1)) >> self.log2;
        // Acquire: pairs with the release in `note`.
        let has = |part: usize| {
            let word = self.mapped.get(part / 64);
            word.is_some_and(|word| word.load(Ordering::Acquire) >> (part % 64) & 1 == 1)
        };
        has(first) && (first == last || (first + 1..=last).all(has))
    }

    pub fn is_held(&self, part: usize) -> bool {
        let word = self.held.get(part / 64);
        word.is_some_and(|word| word.load(Ordering::Acquire) >> (part % 64) & 1 == 1)
    }

    /// A part holds the region's bytes.
    pub fn note(&self, part: usize) {
        for map in [&self.held, &self.mapped] {
            if let Some(word) = map.get(part / 64) {
                // Release: who sees the bit sees the mapping.
                word.fetch_or(1 << (part % 64), Ordering::Release);
            }
        }
    }

    /// The parts in which `length` bytes from `offset` on lie.
    pub fn range(&self, offset: usize, length: usize) -> core::ops::RangeInclusive<usize> {
        offset >> self.log2..=offset.wrapping_add(length.saturating_sub(1)) >> self.log2
    }

    /// Where a part lies in a region of `size` bytes: its offset and how many bytes it has.
    pub fn place(&self, part: usize, size: usize) -> (usize, usize) {
        let start = (part << self.log2).min(size);
        let part = 1_usize << self.log2;
        (start, part.min(size - start))
    }

    /// Runs of addresses that are the region's: offset and length of each.
    pub fn runs(&self, size: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let count = if self.is_whole() {
            1
        } else {
            size.div_ceil(1 << self.log2)
        };
        let mut next = 0;
        core::iter::from_fn(move || {
            let first = (next..count).find(|part| self.is_held(*part))?;
            let end = (first..count).find(|part| !self.is_held(*part));
            next = end.unwrap_or(count);
            if self.is_whole() {
                return Some((0, size));
            }
            let (start, _) = self.place(first, size);
            let (last, length) = self.place(next - 1, size);
            Some((start, last + length - start))
        })
    }
}

/// Where regions lie that are mapped in parts, on machines whose addresses have 47 bits and more.
const AREA: usize = 0x2000_0000_0000;
const AREA_LOG2: u32 = 45;
/// Between two of them, so that none is in the way of another's parts.
const APART_LOG2: u32 = 30;

/// Addresses for another region of `size` bytes, which nobody else should have. Elsewhere in each program.
pub(crate) fn address(size: usize) -> Option<usize> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let places = 1_usize << (AREA_LOG2 - APART_LOG2);
    let wanted = size.div_ceil(1 << APART_LOG2);
    if usize::BITS < 64 || wanted > places / 16 {
        return None;
    }
    if NEXT.load(Ordering::Relaxed) == 0 {
        // SAFETY: the kernel gives each program an address of random bytes.
        let random = unsafe { libc::getauxval(libc::AT_RANDOM) };
        let random = core::ptr::with_exposed_provenance::<u64>(usize::try_from(random).ok()?);
        // SAFETY: sixteen bytes lie there, for as long as the program runs; their place is aligned to nothing.
        let random = (!random.is_null()).then(|| unsafe { random.read_unaligned() });
        let start = usize::try_from(random.unwrap_or(0) >> 20).unwrap_or(0) % places + 1;
        let (order, other) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = NEXT.compare_exchange(0, start, order, other);
    }
    let place = NEXT.fetch_add(wanted, Ordering::Relaxed) % places;
    // One that would reach beyond the end begins anew.
    let place = if place + wanted > places { 0 } else { place };
    Some(AREA + (place << APART_LOG2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_there_when_all_of_its_parts_are() {
        let size = 5 << 20;
        let parts = Parts::of(size);
        let mebibyte = 1 << 20;
        assert!(!parts.has(0, 1) && !parts.has(0, 0));
        parts.note(0);
        parts.note(1);
        parts.note(3);
        assert!(parts.has(0, 2 * mebibyte) && parts.has(mebibyte - 1, 2));
        assert!(!parts.has(mebibyte, mebibyte + 1) && !parts.has(2 * mebibyte, 1));
        assert!(!parts.has(mebibyte, 3 * mebibyte), "a hole between");
        assert!(!parts.has(usize::MAX, 9));
        let runs: Vec<_> = parts.runs(size).collect();
        assert_eq!(runs, [(0, 2 * mebibyte), (3 * mebibyte, mebibyte)]);
        let again = parts.again();
        assert!(!again.has(0, 1));
        assert_eq!(again.runs(size).count(), 2, "its addresses stay");
    }

    #[test]
    fn a_whole_is_one_part() {
        let parts = Parts::whole();
        assert!(parts.has(0, 1) && parts.has(12345, 1 << 40));
        assert_eq!(parts.runs(4096).collect::<Vec<_>>(), [(0, 4096)]);
    }

    #[test]
    fn large_files_have_large_parts() {
        let size = 33 << 30;
        let parts = Parts::of(size);
        assert!(size >> parts.log2 <= MOST);
        parts.note((size - 1) >> parts.log2);
        assert!(parts.has(size - 4096, 4096));
        let (start, length) = parts.place((size - 1) >> parts.log2, size);
        assert_eq!(start + length, size);
    }

    #[test]
    fn no_two_regions_are_in_each_others_way() {
        let sizes = [1 << 20, 3 << 30, 584 << 20, 1 << 30];
        let mut all: Vec<_> = sizes
            .iter()
            .map(|size| (address(*size).unwrap(), *size))
            .collect();
        all.sort_unstable();
        for pair in all.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0);
        }
        assert_eq!(address(1 << 45), None);
    }
}
