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
