//! The shares of the users of this host in the sockets with a peer: a user with many sockets leaves some to the others.

use std::collections::HashMap;

/// One of this many parts is reserved for users who have few sockets.
const PARTS: u32 = 4;
/// A user has few sockets below one in this many.
const LITTLE: u32 = 16;

/// The number of sockets of each user. Connections that the peer makes belong to no user.
#[derive(Debug)]
pub struct Shares {
    most: u32,
    total: u32,
    by_user: HashMap<Option<u32>, u32>,
}

impl Shares {
    /// No sockets yet, of at most `most`.
    pub fn new(most: u32) -> Self {
        Self {
            most,
            total: 0,
            by_user: HashMap::new(),
        }
    }

    /// Whether a user may have another socket.
    pub fn has_room(&self, user: Option<u32>) -> bool {
        let own = self.by_user.get(&user).copied().unwrap_or(0);
        let plenty = self.total < self.most - self.most / PARTS;
        plenty || self.total < self.most && own < (self.most / LITTLE).max(1)
    }

    /// Adds a socket of a user.
    pub fn take(&mut self, user: Option<u32>) {
        self.total += 1;
        *self.by_user.entry(user).or_default() += 1;
    }

    /// Removes a socket of a user.
    pub fn give_back(&mut self, user: Option<u32>) {
        if let Some(own) = self.by_user.get_mut(&user) {
            *own -= 1;
            self.total -= 1;
            if *own == 0 {
                self.by_user.remove(&user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_greedy_leaves_some_to_the_others() {
        let mut shares = Shares::new(160);
        let fill = |user, shares: &mut Shares| {
            let mut taken = 0;
            while shares.has_room(user) {
                shares.take(user);
                taken += 1;
            }
            taken
        };
        assert_eq!(fill(Some(1), &mut shares), 120);
        assert_eq!(fill(Some(2), &mut shares), 10);
        assert_eq!(fill(None, &mut shares), 10);
        // What one gives back another one may have.
        shares.give_back(Some(1));
        assert!(!shares.has_room(Some(1)) && !shares.has_room(Some(2)));
        assert_eq!(fill(Some(3), &mut shares), 10);
        for (user, count) in [(Some(1), 119), (Some(2), 10), (None, 10), (Some(3), 10)] {
            (0..count).for_each(|_| shares.give_back(user));
        }
        assert_eq!((shares.total, shares.by_user.len()), (0, 0));
        shares.give_back(Some(1));
        assert_eq!(fill(Some(2), &mut shares), 120);
    }

    #[test]
    fn the_smallest_bound_is_one() {
        let mut shares = Shares::new(1);
        assert!(shares.has_room(Some(1)));
        shares.take(Some(1));
        assert!(!shares.has_room(Some(2)));
    }
}
