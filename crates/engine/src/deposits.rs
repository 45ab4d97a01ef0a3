//! States of connections that wait for the process which gets their descriptor.

use crate::program::Estate;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// How long a deposit outlives the program that left it: long enough for an `exec`.
pub const LIFE_AFTER_DEPOSITOR: Duration = Duration::from_secs(300);

/// One deposit.
#[derive(Clone, Debug)]
pub struct Deposit {
    /// The words as deposited.
    pub words: [u64; 14],
    /// The link.
    pub link: Rc<OwnedFd>,
    /// The region that has the socket.
    pub estate: Rc<Estate>,
    /// Program that left it.
    pub depositor: u32,
    /// Processes that may still fetch it.
    pub uses: u32,
    expires: Option<Instant>,
    age: u64,
}

/// All deposits, by the cookie of the anchor and the user who left it. Bounded: the oldest makes
/// room.
#[derive(Debug, Default)]
pub struct Deposits {
    bound: usize,
    next_age: u64,
    by_cookie: BTreeMap<(u64, u32), Deposit>,
    by_age: BTreeMap<u64, (u64, u32)>,
    links: HashMap<(u64, u64), Weak<OwnedFd>>,
    /// Nothing expires before; may be early.
    due: Option<Instant>,
    released: Vec<Rc<Estate>>,
}

impl Deposits {
    /// None yet, and never more than `bound`.
    #[must_use]
    pub fn new(bound: usize) -> Self {
        Self {
            bound,
            ..Self::default()
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_cookie.len()
    }

    /// Descriptors they cost.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.links.len()
    }

    /// Keeps the state of the connection whose anchor has `cookie` for one more process, in place
    /// of an older state.
    ///
    /// # Errors
    /// When the descriptor can not be told from others.
    pub fn leave(
        &mut self,
        cookie: u64,
        words: [u64; 14],
        link: OwnedFd,
        estate: Rc<Estate>,
        user: u32,
        depositor: u32,
    ) -> Result<(), Errno> {
        // Thousands of connections may share one link: one descriptor serves them all.
        let stat = rustix::fs::fstat(&link)?;
        let identity = (stat.st_dev, stat.st_ino);
        let known = self.links.get(&identity).and_then(Weak::upgrade);
        let link = known.unwrap_or_else(|| Rc::new(link));
        self.links.insert(identity, Rc::downgrade(&link));
        let key = (cookie, user);
        let before = self.remove(key).map_or(0, |deposit| deposit.uses);
        while self.by_cookie.len() >= self.bound {
            let Some((_, oldest)) = self.by_age.first_key_value() else {
                break;
            };
            self.remove(*oldest);
        }
        self.next_age += 1;
        let deposit = Deposit {
            words,
            link,
            estate,
            depositor,
            uses: before.saturating_add(1),
            expires: None,
            age: self.next_age,
        };
        self.by_age.insert(deposit.age, key);
        self.by_cookie.insert(key, deposit);
        Ok(())
    }

    /// Fetches what `user`, or for root anybody, left for `cookie`. Unless `again` is to come,
    /// it counts as one of the processes it was left for.
    pub fn take(&mut self, cookie: u64, user: u32, again: bool) -> Option<Deposit> {
        let mut key = (cookie, user);
        if user == 0 && !self.by_cookie.contains_key(&key) {
            let mut of_cookie = self.by_cookie.range((cookie, 0)..=(cookie, u32::MAX));
            key = *of_cookie.next()?.0;
        }
        let found = self.by_cookie.get_mut(&key)?;
        if !again {
            found.uses -= 1;
        }
        if found.uses == 0 {
            self.remove(key)
        } else {
            Some(found.clone())
        }
    }

    /// The regions of deposits that went, to be settled by the caller.
    pub fn take_released(&mut self) -> Vec<Rc<Estate>> {
        std::mem::take(&mut self.released)
    }

    /// The program that left some is gone: they do not stay for ever.
    pub fn on_gone(&mut self, depositor: u32, now: Instant) {
        let expires = now + LIFE_AFTER_DEPOSITOR;
        for deposit in self.by_cookie.values_mut() {
            if deposit.depositor == depositor {
                deposit.expires.get_or_insert(expires);
                self.due.get_or_insert(expires);
            }
        }
    }

    /// Drops what has expired. Returns when to come again.
    pub fn expire(&mut self, now: Instant) -> Option<Instant> {
        // Asked at every event, and seldom due.
        if self.due? > now {
            return self.due;
        }
        let overdue: Vec<(u64, u32)> = self
            .by_cookie
            .iter()
            .filter(|(_, deposit)| deposit.expires.is_some_and(|at| at <= now))
            .map(|(key, _)| *key)
            .collect();
        for key in overdue {
            self.remove(key);
        }
        let left = self.by_cookie.values();
        self.due = left.filter_map(|deposit| deposit.expires).min();
        self.due
    }

    fn remove(&mut self, key: (u64, u32)) -> Option<Deposit> {
        let deposit = self.by_cookie.remove(&key)?;
        self.by_age.remove(&deposit.age);
        self.released.push(Rc::clone(&deposit.estate));
        if Rc::strong_count(&deposit.link) == 1 {
            let gone = Rc::downgrade(&deposit.link);
            self.links.retain(|_, link| !link.ptr_eq(&gone));
        }
        Some(deposit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    fn memfd() -> OwnedFd {
        rustix::fs::memfd_create(c"test", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
    }

    fn estate() -> Rc<Estate> {
        Rc::new(Estate {
            program: 7,
            user: 1000,
            number: 3,
            region: memfd(),
            size: 0,
            entries: 0,
            ports: RefCell::new(Vec::new()),
            links: Cell::new(0),
        })
    }

    fn leave(deposits: &mut Deposits, cookie: u64) {
        let words = [cookie; 14];
        let left = deposits.leave(cookie, words, memfd(), estate(), 1000, 7);
        left.unwrap();
    }

    #[test]
    fn what_is_left_is_taken_once_and_by_its_user() {
        let mut deposits = Deposits::new(4);
        leave(&mut deposits, 5);
        assert!(deposits.take(5, 1001, false).is_none());
        assert_eq!(deposits.take(5, 1000, true).unwrap().words, [5; 14]);
        assert_eq!(deposits.take(5, 1000, false).unwrap().words, [5; 14]);
        assert!(deposits.take(5, 1000, false).is_none());
        leave(&mut deposits, 6);
        assert!(deposits.take(6, 0, false).is_some());
        assert!(deposits.links.is_empty());
        assert_eq!(deposits.take_released().len(), 2);
    }

    #[test]
    fn left_for_two_it_is_taken_twice() {
        let mut deposits = Deposits::new(4);
        leave(&mut deposits, 5);
        leave(&mut deposits, 5);
        assert!(deposits.take(5, 1000, false).is_some());
        assert!(deposits.take(5, 1000, false).is_some());
        assert!(deposits.take(5, 1000, false).is_none());
    }

    #[test]
    fn nobody_displaces_what_another_user_left() {
        let mut deposits = Deposits::new(4);
        leave(&mut deposits, 5);
        deposits
            .leave(5, [0; 14], memfd(), estate(), 1001, 8)
            .unwrap();
        assert_eq!(deposits.take(5, 1000, false).unwrap().words, [5; 14]);
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut deposits = Deposits::new(2);
        for cookie in 1..=3 {
            leave(&mut deposits, cookie);
        }
        assert_eq!(deposits.len(), 2);
        assert!(deposits.take(1, 1000, false).is_none());
        assert!(deposits.take(3, 1000, false).is_some());
    }

    #[test]
    fn one_link_costs_one_descriptor() {
        let mut deposits = Deposits::new(10);
        let link = memfd();
        for cookie in 1..=3 {
            let again = link.try_clone().unwrap();
            let left = deposits.leave(cookie, [0; 14], again, estate(), 1, 1);
            left.unwrap();
        }
        let one = deposits.take(1, 1, false).unwrap();
        let other = deposits.take(2, 1, false).unwrap();
        assert!(Rc::ptr_eq(&one.link, &other.link));
    }

    #[test]
    fn they_outlive_their_program_for_a_while_only() {
        let mut deposits = Deposits::new(10);
        leave(&mut deposits, 1);
        let now = Instant::now();
        assert_eq!(deposits.expire(now), None);
        deposits.on_gone(7, now);
        let due = deposits.expire(now).unwrap();
        assert_eq!(deposits.len(), 1);
        assert_eq!(deposits.expire(due), None);
        assert_eq!((deposits.len(), deposits.descriptors()), (0, 0));
    }
}
