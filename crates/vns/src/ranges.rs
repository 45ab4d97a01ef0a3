//! The ranges of placed bytes beyond the contiguous ones.

/// The limit of ranges out of order that a socket remembers. If another one comes, the furthest is forgotten, and its
/// sender sends it again.
pub const MOST_RANGES: usize = 512;

/// Ranges of offsets in ascending order, which neither overlap nor touch.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    ranges: Vec<(u64, u64)>,
}

impl Ranges {
    /// Adds `[start, end)`. Returns the range that had to be forgotten for it.
    pub(crate) fn insert(&mut self, start: u64, end: u64) -> Option<(u64, u64)> {
        let first = self.ranges.partition_point(|range| range.1 < start);
        let behind = self.ranges.partition_point(|range| range.0 <= end);
        if first < behind {
            let merged = (
                start.min(self.ranges[first].0),
                end.max(self.ranges[behind - 1].1),
            );
            self.ranges[first] = merged;
            self.ranges.drain(first + 1..behind);
            return None;
        }
        let mut forgotten = None;
        if self.ranges.len() == MOST_RANGES {
            if first == self.ranges.len() {
                return Some((start, end));
            }
            forgotten = self.ranges.pop();
        }
        self.ranges.insert(first, (start, end));
        forgotten
    }

    /// The end of the contiguous bytes when all before `frontier` are placed. Removes the ranges that it reaches.
    pub(crate) fn absorb(&mut self, mut frontier: u64) -> u64 {
        let reached = self.ranges.iter().take_while(|range| {
            let reaches = range.0 <= frontier;
            if reaches {
                frontier = frontier.max(range.1);
            }
            reaches
        });
        let reached = reached.count();
        self.ranges.drain(..reached);
        frontier
    }

    /// `[start, end)` without the placed parts at its ends; `None` if all of it is placed.
    pub(crate) fn missing(&self, mut start: u64, mut end: u64) -> Option<(u64, u64)> {
        let mut at = self.ranges.partition_point(|range| range.1 <= start);
        if let Some(range) = self.ranges.get(at)
            && range.0 <= start
        {
            start = range.1;
            at += 1;
        }
        if start >= end {
            return None;
        }
        let last = self.ranges.partition_point(|range| range.0 < end);
        if last > at && self.ranges[last - 1].1 >= end {
            end = self.ranges[last - 1].0;
        }
        (start < end).then_some((start, end))
    }

    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    #[cfg(test)]
    pub(crate) fn as_slice(&self) -> &[(u64, u64)] {
        &self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ranges: &[(u64, u64)]) -> Ranges {
        let mut set = Ranges::default();
        for range in ranges {
            set.insert(range.0, range.1);
        }
        set
    }

    #[test]
    fn neighbours_merge() {
        assert_eq!(of(&[(10, 20), (20, 30)]).as_slice(), [(10, 30)]);
        assert_eq!(of(&[(20, 30), (10, 20)]).as_slice(), [(10, 30)]);
        assert_eq!(
            of(&[(10, 12), (14, 16), (18, 20), (11, 19)]).as_slice(),
            [(10, 20)]
        );
        assert_eq!(of(&[(10, 20), (12, 14)]).as_slice(), [(10, 20)]);
        assert_eq!(of(&[(14, 16), (10, 12)]).as_slice(), [(10, 12), (14, 16)]);
    }

    #[test]
    fn the_frontier_absorbs_what_it_reaches() {
        let mut set = of(&[(10, 12), (14, 16), (20, 30)]);
        assert_eq!(set.absorb(9), 9);
        assert_eq!(set.absorb(11), 12);
        assert_eq!(set.absorb(15), 16);
        assert_eq!(set.absorb(40), 40);
        assert_eq!(set.len(), 0);
    }

    #[test]
    fn only_the_hull_of_what_misses_is_asked_for() {
        let set = of(&[(10, 20), (30, 40)]);
        assert_eq!(set.missing(0, 5), Some((0, 5)));
        assert_eq!(set.missing(0, 15), Some((0, 10)));
        assert_eq!(set.missing(10, 20), None);
        assert_eq!(set.missing(12, 18), None);
        assert_eq!(set.missing(12, 35), Some((20, 30)));
        assert_eq!(set.missing(5, 45), Some((5, 45)));
        assert_eq!(set.missing(20, 30), Some((20, 30)));
        assert_eq!(set.missing(35, 45), Some((40, 45)));
    }

    #[test]
    fn when_full_the_furthest_is_forgotten() {
        let mut set = Ranges::default();
        for at in 0..MOST_RANGES as u64 {
            assert_eq!(set.insert(100 + 10 * at, 105 + 10 * at), None);
        }
        let last = 100 + 10 * (MOST_RANGES as u64 - 1);
        let further = (1_000_000, 1_000_007);
        assert_eq!(set.insert(further.0, further.1), Some(further));
        assert_eq!(set.insert(50, 51), Some((last, last + 5)));
        assert_eq!(set.len(), MOST_RANGES);
        assert_eq!(set.insert(106, 109), Some((last - 10, last - 5)));
        assert_eq!(set.insert(105, 106), None, "merging needs no room");
    }

    #[test]
    fn it_agrees_with_a_set_of_bytes() {
        let mut random = 1_u64;
        let mut next = |most: u64| {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (random >> 33) % most
        };
        for _ in 0..300 {
            let mut set = Ranges::default();
            let mut model = [false; 200];
            let mut frontier = 0;
            for _ in 0..40 {
                let start = frontier + 1 + next(150);
                let end = (start + 1 + next(20)).min(200);
                if start >= end {
                    continue;
                }
                let (from, to) = (
                    usize::try_from(start).unwrap(),
                    usize::try_from(end).unwrap(),
                );
                let mut absent = (from..to).filter(|at| !model[*at]);
                let first = absent.next();
                let hull = first.map(|first| (first, absent.next_back().unwrap_or(first) + 1));
                let missing = set.missing(start, end).map(|(start, end)| {
                    (
                        usize::try_from(start).unwrap(),
                        usize::try_from(end).unwrap(),
                    )
                });
                assert_eq!(missing, hull);
                set.insert(start, end);
                model[from..to].fill(true);
                if next(4) == 0 {
                    frontier += next(5);
                    let to = usize::try_from(frontier).unwrap();
                    model[..to].fill(true);
                    frontier = set.absorb(frontier);
                    let contiguous = model.iter().take_while(|placed| **placed).count() as u64;
                    assert_eq!(frontier, contiguous);
                }
                if frontier > 150 {
                    break;
                }
            }
        }
    }
}
