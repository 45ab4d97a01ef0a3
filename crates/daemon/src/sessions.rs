//! Short connections of other processes: a bounded number, each with a deadline.

use std::collections::HashMap;
use std::time::Instant;

/// One connection.
pub trait Session {
    /// The limit of all users.
    const MOST: usize;
    /// The limit of one user.
    const MOST_OF_USER: usize;

    /// The user.
    fn user(&self) -> u32;

    /// When it is closed without progress.
    fn deadline(&self) -> Instant;

    /// Whether its answer is still being found.
    fn is_being_answered(&self) -> bool;
}

/// All connections of one kind.
#[derive(Debug)]
pub struct Sessions<V> {
    open: HashMap<u32, V>,
    last: u32,
}

impl<V> Default for Sessions<V> {
    fn default() -> Self {
        Self {
            open: HashMap::new(),
            last: 0,
        }
    }
}

impl<V: Session> Sessions<V> {
    /// Adds a connection. Where there are too many, of its user or of all, the oldest one is closed, of that user or of
    /// the user with the most. So a user who holds connections open does not lock the others out.
    pub fn add(&mut self, session: V) -> u32 {
        let counts = self.counts();
        let of_user = counts.get(&session.user()).copied().unwrap_or(0);
        let loser = if of_user >= V::MOST_OF_USER {
            Some(session.user())
        } else if self.open.len() >= V::MOST {
            let most = counts.iter().max_by_key(|(_, count)| **count);
            most.map(|(user, _)| *user)
        } else {
            None
        };
        if let Some(loser) = loser {
            let theirs = self.open.iter().filter(|(_, one)| one.user() == loser);
            let oldest = theirs.min_by_key(|(_, one)| (one.is_being_answered(), one.deadline()));
            let oldest = oldest.map(|(number, _)| *number);
            oldest.and_then(|number| self.open.remove(&number));
        }
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.open.contains_key(&self.last) {
                break;
            }
        }
        self.open.insert(self.last, session);
        self.last
    }

    fn counts(&self) -> HashMap<u32, usize> {
        let mut counts = HashMap::new();
        for one in self.open.values() {
            *counts.entry(one.user()).or_default() += 1;
        }
        counts
    }

    /// Whether the limit is reached, and all connections wait for an answer that is still being found.
    pub fn are_all_waiting(&self) -> bool {
        self.open.len() >= V::MOST && self.open.values().all(V::is_being_answered)
    }

    /// The numbers of all connections.
    pub fn numbers(&self) -> Vec<u32> {
        self.open.keys().copied().collect()
    }

    /// The number of connections.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// A connection.
    pub fn get(&mut self, number: u32) -> Option<&mut V> {
        self.open.get_mut(&number)
    }

    /// Closes a connection.
    pub fn close(&mut self, number: u32) {
        self.open.remove(&number);
    }

    /// Closes connections that are overdue, except those whose answer is still being found. Returns the time of the
    /// next call.
    pub fn expire(&mut self, now: Instant) -> Option<Instant> {
        self.open
            .retain(|_, one| one.is_being_answered() || one.deadline() > now);
        let others = self.open.values().filter(|one| !one.is_being_answered());
        others.map(V::deadline).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    struct Guest(u32, Instant, bool);

    impl Session for Guest {
        const MOST: usize = 8;
        const MOST_OF_USER: usize = 3;

        fn user(&self) -> u32 {
            self.0
        }

        fn deadline(&self) -> Instant {
            self.1
        }

        fn is_being_answered(&self) -> bool {
            self.2
        }
    }

    #[test]
    fn who_comes_too_often_loses_his_own() {
        let (mut guests, now) = (Sessions::default(), Instant::now());
        let honest = guests.add(Guest(1, now, false));
        let waiting = guests.add(Guest(2, now, true));
        let first = guests.add(Guest(2, now + Duration::from_secs(1), false));
        for second in 2..20 {
            guests.add(Guest(2, now + Duration::from_secs(second), false));
        }
        assert_eq!(guests.count(), 4);
        assert!(guests.get(honest).is_some());
        assert!(guests.get(waiting).is_some(), "it has asked");
        assert!(guests.get(first).is_none());
        // Several users together do not drive out a user with few connections either.
        for user in 3..20 {
            guests.add(Guest(user, now + Duration::from_secs(1), false));
            guests.add(Guest(2, now + Duration::from_secs(1), false));
        }
        assert_eq!(guests.count(), 8);
    }
}
