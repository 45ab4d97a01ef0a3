//! Ephemeral ports that programs may give to their virtual sockets without another request.
//!
//! They are outside the range from which the kernel picks, so that an address shown by `getsockname` is never that of a
//! kernel socket that was not bound explicitly.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The lowest port that is given.
const LEAST: u16 = 1024;
/// Ports below this one are given last, since servers use them.
const SERVERS: u16 = 10000;

/// A run of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The first.
    pub first: u16,
    /// How many.
    pub count: u16,
}

/// The free ports.
#[derive(Debug)]
pub struct Ports {
    /// Free runs by first port. They are never adjacent, and never cross a border of preference.
    free: BTreeMap<u16, u16>,
    borders: Vec<u16>,
    /// The end of the last block that was given.
    cursor: u16,
}

impl Ports {
    /// All ports outside the kernel's own range.
    #[must_use]
    pub fn outside(kernel: &RangeInclusive<u16>) -> Self {
        let mut free = BTreeMap::new();
        let mut add = |first: u16, last: u16| {
            if first <= last && last != 0 {
                free.insert(first, last - first + 1);
            }
        };
        if kernel.is_empty() {
            add(LEAST, SERVERS - 1);
            add(SERVERS, u16::MAX - 1);
        } else {
            let (start, end) = (*kernel.start(), *kernel.end());
            let below = start.saturating_sub(1);
            let above = end.saturating_add(1);
            add(LEAST, below.min(SERVERS - 1));
            add(SERVERS, below);
            if end < u16::MAX {
                add(above.max(LEAST), SERVERS - 1);
                add(above.max(SERVERS), u16::MAX - 1);
            }
        }
        let borders = free.keys().copied().collect();
        Self {
            free,
            borders,
            cursor: 0,
        }
    }

    /// The kernel's own range, `/proc/sys/net/ipv4/ip_local_port_range`.
    #[must_use]
    pub fn kernel_range() -> RangeInclusive<u16> {
        let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
        let text = text.unwrap_or_default();
        let mut words = text.split_whitespace().filter_map(|word| word.parse().ok());
        match (words.next(), words.next()) {
            (Some(first), Some(last)) => first..=last,
            // The default of Linux.
            _ => 32768..=60999,
        }
    }

    /// The number of free ports.
    #[must_use]
    pub fn count(&self) -> usize {
        self.free.values().map(|count| usize::from(*count)).sum()
    }

    /// Takes up to `count` consecutive ports; fewer where no run is long enough.
    pub fn take(&mut self, count: u16) -> Option<Block> {
        if count == 0 {
            return None;
        }
        let longest = || {
            let longest = self.free.iter().max_by_key(|(_, length)| **length);
            longest.map(|(first, length)| (*first, count.min(*length)))
        };
        let fits = self.next_fit(count).map(|first| (first, count));
        let (first, count) = fits.or_else(longest)?;
        self.cut(first, count);
        self.cursor = first.wrapping_add(count);
        Some(Block { first, count })
    }

    /// The start of the next run of `count` ports. The search begins after the last block, so that returned ports stay
    /// unused for long.
    fn next_fit(&self, count: u16) -> Option<u16> {
        let from = |least: u16, of_servers: bool| {
            let mut runs = self.free.iter();
            runs.find_map(|(first, length)| {
                let at = (*first).max(least);
                let end = u32::from(*first) + u32::from(*length);
                let fits = u32::from(at) + u32::from(count) <= end;
                (fits && (*first < SERVERS) == of_servers).then_some(at)
            })
        };
        from(self.cursor, false)
            .or_else(|| from(0, false))
            .or_else(|| from(0, true))
    }

    /// Removes ports from their free run.
    fn cut(&mut self, first: u16, count: u16) {
        let Some((&start, &length)) = self.free.range(..=first).next_back() else {
            return;
        };
        self.free.remove(&start);
        let (before, end) = (first - start, start + (length - 1));
        if before > 0 {
            self.free.insert(start, before);
        }
        let after = length - before - count;
        if after > 0 {
            self.free.insert(end - (after - 1), after);
        }
    }

    /// Begins at some port. No two daemons begin with the same ports, some of which programs of the former daemon may
    /// still use.
    pub const fn begin_at(&mut self, origin: u32) {
        let [low, high, ..] = origin.to_le_bytes();
        self.cursor = SERVERS + u16::from_le_bytes([low, high]) % (u16::MAX - SERVERS);
    }

    /// Returns a block.
    pub fn give(&mut self, block: Block) {
        let (mut first, mut count) = (block.first, block.count);
        if let Some((&before, &length)) = self.free.range(..first).next_back()
            && before.checked_add(length) == Some(first)
            && !self.borders.contains(&first)
        {
            self.free.remove(&before);
            first = before;
            count += length;
        }
        if let Some(next) = first.checked_add(count)
            && !self.borders.contains(&next)
            && let Some(length) = self.free.remove(&next)
        {
            count += length;
        }
        self.free.insert(first, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn servers_ports_come_last_and_the_kernels_never() {
        let mut ports = Ports::outside(&(32768..=60999));
        assert_eq!(
            ports.take(1024),
            Some(Block {
                first: 10000,
                count: 1024
            })
        );
        let mut seen = Vec::new();
        while let Some(block) = ports.take(1024) {
            seen.push(block.first);
            let last = block.first + (block.count - 1);
            assert!(last < 32768 || block.first > 60999, "{block:?}");
            assert!(block.first >= 1024);
        }
        let low = seen.iter().position(|first| *first < 10000).unwrap();
        assert!(
            seen.iter()
                .skip(low)
                .filter(|first| **first > 61000)
                .count()
                <= 2
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_port_is_given_twice_and_all_come_back(
            steps in proptest::collection::vec((any::<bool>(), 1u16..3000), 1..60),
            start in 1u16..65535, length in 0u16..40000,
        ) {
            let kernel = start..=start.saturating_add(length);
            let mut ports = Ports::outside(&kernel);
            let whole: u32 = ports.free.values().map(|count| u32::from(*count)).sum();
            let before = ports.free.clone();
            let mut held: Vec<Block> = Vec::new();
            let mut used = vec![false; 1 << 16];
            for (take, amount) in steps {
                if take {
                    if let Some(block) = ports.take(amount) {
                        prop_assert!(block.count >= 1 && block.count <= amount);
                        for port in block.first..=block.first + (block.count - 1) {
                            prop_assert!(!std::mem::replace(&mut used[usize::from(port)], true));
                            prop_assert!(!kernel.contains(&port));
                        }
                        held.push(block);
                    }
                } else if !held.is_empty() {
                    let block = held.swap_remove(usize::from(amount) % held.len());
                    for port in block.first..=block.first + (block.count - 1) {
                        used[usize::from(port)] = false;
                    }
                    ports.give(block);
                }
            }
            for block in held {
                ports.give(block);
            }
            let after: u32 = ports.free.values().map(|count| u32::from(*count)).sum();
            prop_assert_eq!(whole, after);
            prop_assert_eq!(before, ports.free);
        }
    }
}
