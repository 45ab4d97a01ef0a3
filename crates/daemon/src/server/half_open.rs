//! Connections to the attach socket that have not attached yet. They are bounded, for each user and for all. A user who
//! holds them open loses his own before another user loses one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a connection may stay without attaching.
const PATIENCE: Duration = Duration::from_secs(10);

/// All half-open connections, by number.
#[derive(Debug)]
pub struct HalfOpen {
    each: usize,
    all: usize,
    open: BTreeMap<u32, (u32, Instant)>,
}

impl HalfOpen {
    /// No connections; at most `each` of one user, and `all` together.
    #[must_use]
    pub const fn new(each: usize, all: usize) -> Self {
        Self {
            each,
            all,
            open: BTreeMap::new(),
        }
    }

    /// Adds a connection of `user`. Returns the one that must be closed for it, if any: the user's own oldest, or the
    /// oldest of the user with the most.
    pub fn add(&mut self, number: u32, user: u32, now: Instant) -> Option<u32> {
        let of_user = self.of(user);
        let mut goes = None;
        if of_user >= self.each {
            goes = self.oldest_of(user);
        } else if self.open.len() >= self.all {
            // The new connection counts too: where no user has more than this one, his own oldest is closed.
            let most = self.open.values().map(|(owner, _)| *owner);
            let most = most.max_by_key(|owner| (self.of(*owner), *owner == user));
            goes = most.and_then(|owner| self.oldest_of(owner));
        }
        if let Some(goes) = goes {
            self.open.remove(&goes);
        }
        self.open.insert(number, (user, now));
        goes
    }

    /// A connection has attached or ended.
    pub fn remove(&mut self, number: u32) {
        self.open.remove(&number);
    }

    /// Whether a connection is half-open.
    #[must_use]
    pub fn has(&self, number: u32) -> bool {
        self.open.contains_key(&number)
    }

    /// The number of a user's connections.
    #[must_use]
    pub fn of(&self, user: u32) -> usize {
        let same = self.open.values().filter(|(owner, _)| *owner == user);
        same.count()
    }

    /// The connections that are overdue.
    #[must_use]
    pub fn overdue(&self, now: Instant) -> Vec<u32> {
        let late = |since: &Instant| now.saturating_duration_since(*since) >= PATIENCE;
        let open = self.open.iter();
        let overdue = open.filter(|(_, (_, since))| late(since));
        overdue.map(|(number, _)| *number).collect()
    }

    /// When the next one is overdue.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let since = self.open.values().map(|(_, since)| *since);
        since.min().map(|since| since + PATIENCE)
    }

    fn oldest_of(&self, user: u32) -> Option<u32> {
        let own = self.open.iter().filter(|(_, (owner, _))| *owner == user);
        own.min_by_key(|(_, (_, since))| *since)
            .map(|(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_too_many_loses_his_own_oldest() {
        let mut open = HalfOpen::new(2, 10);
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(open.add(1, 7, now), None);
        assert_eq!(open.add(2, 9, now), None);
        assert_eq!(open.add(3, 7, later(1)), None);
        assert_eq!(open.add(4, 7, later(2)), Some(1));
        assert_eq!(open.add(5, 7, later(3)), Some(3));
        assert_eq!((open.of(7), open.of(9)), (2, 1));
        assert_eq!(open.deadline(), Some(now + PATIENCE));
        assert_eq!(open.overdue(now + PATIENCE), [2]);
        open.remove(2);
        assert!(!open.has(2) && open.has(5));
    }

    #[test]
    fn where_there_are_too_many_of_all_who_has_most_loses_one() {
        let mut open = HalfOpen::new(3, 4);
        let now = Instant::now();
        for number in 1..=3 {
            assert_eq!(open.add(number, 7, now), None);
        }
        assert_eq!(open.add(4, 8, now), None);
        assert_eq!(open.add(5, 9, now), Some(1));
        assert_eq!(open.add(6, 8, now), Some(2));
        assert_eq!(open.add(7, 9, now), Some(4));
        assert_eq!(open.add(8, 7, now), Some(5), "another has more than he");
        assert_eq!(open.add(9, 6, now), Some(3));
        assert_eq!(open.open.len(), 4);
    }
}
