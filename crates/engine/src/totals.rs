//! The counters of programs, summed up by user, including programs that have ended: a counter must not decrease when a
//! program ends.

use crate::program::ProgramRegion;
use netchannel_abi::program::Header;
use netchannel_abi::reason::Reason;
use netchannel_shm::{Outside, Snapshot};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The number of users with counters of their own. Further users are counted as one.
const MOST_USERS: usize = 1024;
/// The user that stands for these further users.
pub const OTHERS: u32 = u32::MAX;
/// More than any program can count in its life. A larger value is false, and is clamped to this.
const MOST: u64 = 1 << 48;

/// The counters of one or more programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections made over shared memory.
    pub connects: u64,
    /// Connections accepted over shared memory.
    pub accepts: u64,
    /// Wake-ups written to sleeping peers.
    pub tokens: u64,
    /// Times a thread slept for a socket.
    pub sleeps: u64,
    /// Faults found in what peers wrote.
    pub faults: u64,
    /// Sockets that fell back to kernel TCP, in the order of [`Reason::ALL`].
    pub fallbacks: [u64; Reason::ALL.len()],
}

impl Totals {
    /// The counters in the region of a program. They may be false.
    pub fn of(region: &ProgramRegion, copy: &mut Snapshot) -> Self {
        let outside = Outside::admit(region.memory.as_raw_fd(), region.size);
        let filled = outside.and_then(|outside| copy.fill(&outside, 0, size_of::<Header>()));
        let Some(header) = filled.ok().and_then(|()| copy.at::<Header>(0)) else {
            return Self::default();
        };
        let count = |word: &AtomicU64| word.load(Relaxed).min(MOST);
        let mut totals = Self {
            connects: count(&header.connects),
            accepts: count(&header.accepts),
            tokens: count(&header.tokens),
            sleeps: count(&header.sleeps),
            faults: count(&header.faults),
            ..Self::default()
        };
        for (sum, word) in totals.fallbacks.iter_mut().zip(&header.fallbacks) {
            *sum = count(word);
        }
        totals
    }

    /// Adds other counters.
    pub fn add(&mut self, other: &Self) {
        let words = [
            (&mut self.connects, other.connects),
            (&mut self.accepts, other.accepts),
            (&mut self.tokens, other.tokens),
            (&mut self.sleeps, other.sleeps),
            (&mut self.faults, other.faults),
        ];
        let fallbacks = self.fallbacks.iter_mut().zip(other.fallbacks);
        for (sum, count) in words.into_iter().chain(fallbacks) {
            *sum = sum.saturating_add(count);
        }
    }
}

/// Totals by user.
#[derive(Clone, Debug, Default)]
pub struct Users(BTreeMap<u32, Totals>);

impl Users {
    /// Adds the counters of a program of a user.
    pub fn add(&mut self, user: u32, totals: &Totals) {
        let known = self.0.contains_key(&user) || self.0.len() < MOST_USERS;
        let user = if known { user } else { OTHERS };
        self.0.entry(user).or_default().add(totals);
    }

    /// A region is not used any more: keeps its counters.
    pub fn keep(&mut self, region: &ProgramRegion) {
        let mut copy = Snapshot::new(size_of::<Header>());
        self.add(region.user, &Totals::of(region, &mut copy));
    }

    /// The counters of each user.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Totals)> {
        self.0.iter().map(|(user, totals)| (*user, totals))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchannel_shm::{Access, Region};

    #[test]
    fn users_are_told_apart_up_to_a_bound() {
        let mut users = Users::default();
        let one = Totals {
            connects: 1,
            ..Totals::default()
        };
        for user in 0..2000 {
            users.add(user, &one);
        }
        users.add(3, &one);
        let counts: Vec<(u32, u64)> = users
            .iter()
            .map(|(user, one)| (user, one.connects))
            .collect();
        assert_eq!(counts.len(), MOST_USERS + 1);
        assert_eq!(counts[3], (3, 2));
        assert_eq!(counts[MOST_USERS], (OTHERS, 2000 - MOST_USERS as u64));
    }

    #[test]
    fn sums_do_not_wrap() {
        let mut totals = Totals {
            tokens: u64::MAX - 1,
            ..Totals::default()
        };
        totals.add(&Totals {
            tokens: MOST,
            ..Totals::default()
        });
        assert_eq!(totals.tokens, u64::MAX);
    }

    #[test]
    fn what_a_program_counted_stays_and_lies_are_bounded() {
        let (region, size) = netchannel_service::memory::program_region(16).unwrap();
        let mapped = Region::map(region.as_raw_fd(), size, Access::ReadWrite).unwrap();
        let header: &Header = mapped.at(0).unwrap();
        header.accepts.store(5, Relaxed);
        header.tokens.store(u64::MAX, Relaxed);
        header.fallbacks[3].store(2, Relaxed);
        let region = ProgramRegion {
            program: 1,
            user: 1000,
            number: 1,
            memory: region,
            size,
            entries: 16,
            ports: std::cell::RefCell::default(),
            links: std::cell::Cell::default(),
            requested_since_search: std::cell::Cell::default(),
        };
        let mut users = Users::default();
        users.keep(&region);
        users.keep(&region);
        let (user, totals) = users.iter().next().unwrap();
        assert_eq!((user, totals.accepts, totals.tokens), (1000, 10, 2 * MOST));
        assert_eq!(totals.fallbacks[3], 4);
    }
}
