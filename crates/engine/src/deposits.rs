//! Deposits: states of connections for the process that gets their descriptor. A deposit stays as long as its
//! depositor, and beyond that as long as the descriptor exists: in a message, or with a program that `exec` has
//! started.

use crate::program::ProgramRegion;
use crate::quota::{Amounts, Kind, Quotas, Ticket};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// When the kernel is first asked whether the socket of an orphaned deposit still exists: long enough for an `exec`.
/// Each delay is twice the last one,
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// up to this one. Orphaned deposits also live this long where the kernel does not answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// One deposit.
#[derive(Clone, Debug)]
pub struct Deposit {
    /// The words of the deposit.
    pub words: [u64; 14],
    /// The link.
    pub link: Rc<OwnedFd>,
    /// Identifies its memory.
    identity: Identity,
    /// The region that contains the socket.
    pub region: Rc<ProgramRegion>,
    /// The program that left it.
    pub depositor: u32,
    /// The number of processes that may still fetch it.
    pub uses: u32,
    /// Set when its depositor has ended.
    orphaned: Option<Orphaned>,
    age: u64,
    /// The charge to its user.
    ticket: Rc<Ticket>,
}

#[derive(Clone, Copy, Debug)]
struct Orphaned {
    /// When its socket is next looked for.
    look: Instant,
    /// The delay between the last look and the next one.
    pause: Duration,
    /// When it is dropped if the kernel does not answer.
    end: Instant,
}

/// The device and inode of a link's memory.
type Identity = (u64, u64);

/// A link that deposits refer to. Its descriptor is charged to the user of the first of them.
type Named = (Weak<OwnedFd>, Ticket);

/// All deposits, by the cookie of the anchor and the user: only that user may fetch them. The number is bounded for
/// each user, and the user's oldest deposit makes room.
#[derive(Debug)]
pub struct Deposits {
    quotas: Quotas,
    next_age: u64,
    by_cookie: BTreeMap<(u64, u32), Deposit>,
    /// The cookies by user and age.
    by_age: BTreeMap<(u32, u64), u64>,
    /// The depositors, with the cookies and users of their deposits.
    by_depositor: BTreeSet<(u32, u64, u32)>,
    links: HashMap<Identity, Named>,
    /// No deposit is due before this time. May be too early.
    due: Option<Instant>,
    released: Vec<Rc<ProgramRegion>>,
}

impl Deposits {
    /// No deposits.
    #[must_use]
    pub fn new(quotas: Quotas) -> Self {
        Self {
            quotas,
            next_age: 0,
            by_cookie: BTreeMap::new(),
            by_age: BTreeMap::new(),
            by_depositor: BTreeSet::new(),
            links: HashMap::new(),
            due: None,
            released: Vec::new(),
        }
    }

    /// The number of deposits.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_cookie.len()
    }

    /// Keeps the state of the connection whose anchor has `cookie` for one more process, in the place of an older
    /// state.
    ///
    /// # Errors
    /// Where the descriptor can not be examined, and `NOBUFS` where the user may leave no more.
    pub fn leave(
        &mut self,
        cookie: u64,
        words: [u64; 14],
        link: OwnedFd,
        region: Rc<ProgramRegion>,
        user: u32,
        depositor: u32,
    ) -> Result<(), Errno> {
        // Thousands of connections may share one link: one descriptor is kept for all of them.
        let stat = rustix::fs::fstat(&link)?;
        let identity = (stat.st_dev, stat.st_ino);
        let known = self.links.get(&identity);
        let link = match known.and_then(|(link, _)| link.upgrade()) {
            Some(known) => known,
            None => {
                let kept = Amounts::of(Kind::Descriptors, 1);
                let ticket = self.quotas.charge(user, kept)?;
                let link = Rc::new(link);
                self.links.insert(identity, (Rc::downgrade(&link), ticket));
                link
            }
        };
        let key = (cookie, user);
        let before = self.remove(key).map_or(0, |deposit| deposit.uses);
        let Some(ticket) = self.make_room(user) else {
            self.forget_link(&link, identity);
            return Err(Errno::NOBUFS);
        };
        self.next_age += 1;
        let deposit = Deposit {
            words,
            link,
            identity,
            region,
            depositor,
            uses: before.saturating_add(1),
            orphaned: None,
            age: self.next_age,
            ticket,
        };
        self.by_age.insert((user, deposit.age), cookie);
        self.by_depositor.insert((depositor, cookie, user));
        self.by_cookie.insert(key, deposit);
        Ok(())
    }

    /// Makes room for another deposit of a user, if necessary by dropping the oldest one.
    fn make_room(&mut self, user: u32) -> Option<Rc<Ticket>> {
        if let Ok(ticket) = self.quotas.charge(user, Amounts::of(Kind::Deposits, 1)) {
            return Some(Rc::new(ticket));
        }
        let mut own = self.by_age.range((user, 0)..=(user, u64::MAX));
        let oldest = *own.next()?.1;
        Some(self.remove((oldest, user))?.ticket)
    }

    /// Fetches the deposit of `user` for `cookie`. It counts as fetched by one process, unless the same process will
    /// fetch it `again`.
    pub fn take(&mut self, cookie: u64, user: u32, again: bool) -> Option<Deposit> {
        let key = (cookie, user);
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

    /// The regions of dropped deposits, for the caller to settle.
    pub fn take_released(&mut self) -> Vec<Rc<ProgramRegion>> {
        std::mem::take(&mut self.released)
    }

    /// A depositor has ended: its deposits do not stay for ever. Only its own deposits are visited, since thousands of
    /// programs may end at once.
    pub fn on_depositor_ended(&mut self, depositor: u32, now: Instant) {
        let (look, end) = (now + FIRST_LOOK, now + LONGEST_PAUSE);
        let orphaned = Orphaned {
            look,
            pause: FIRST_LOOK,
            end,
        };
        let own = (depositor, 0, 0)..=(depositor, u64::MAX, u32::MAX);
        for (_, cookie, user) in self.by_depositor.range(own) {
            if let Some(deposit) = self.by_cookie.get_mut(&(*cookie, *user)) {
                deposit.orphaned.get_or_insert(orphaned);
                self.due = Some(self.due.map_or(look, |due| due.min(look)));
            }
        }
    }

    /// Drops deposits that can not be fetched any more. `drop_known` removes the cookies of existing sockets from a
    /// set, and returns false where the kernel does not answer. Returns the time of the next call.
    pub fn expire(
        &mut self,
        now: Instant,
        drop_known: impl FnOnce(&mut BTreeSet<u64>) -> bool,
    ) -> Option<Instant> {
        // This is called at every event, and seldom has anything to do.
        if self.due? > now {
            return self.due;
        }
        let is_due = |deposit: &Deposit| deposit.orphaned.is_some_and(|one| one.look <= now);
        let due = self.by_cookie.iter().filter(|(_, one)| is_due(one));
        let due: Vec<(u64, u32)> = due.map(|(key, _)| *key).collect();
        let mut missing: BTreeSet<u64> = due.iter().map(|(cookie, _)| *cookie).collect();
        let is_known = missing.is_empty() || drop_known(&mut missing);
        for key in due {
            let orphaned = self.by_cookie.get_mut(&key);
            let Some(orphaned) = orphaned.and_then(|one| one.orphaned.as_mut()) else {
                continue;
            };
            let gone = if is_known {
                orphaned.pause = (orphaned.pause * 2).min(LONGEST_PAUSE);
                orphaned.look = now + orphaned.pause;
                missing.contains(&key.0)
            } else {
                orphaned.look = orphaned.end;
                orphaned.end <= now
            };
            if gone {
                self.remove(key);
            }
        }
        let left = self.by_cookie.values();
        self.due = left.filter_map(|one| Some(one.orphaned?.look)).min();
        self.due
    }

    fn remove(&mut self, key: (u64, u32)) -> Option<Deposit> {
        let deposit = self.by_cookie.remove(&key)?;
        self.by_age.remove(&(key.1, deposit.age));
        self.by_depositor.remove(&(deposit.depositor, key.0, key.1));
        self.released.push(Rc::clone(&deposit.region));
        self.forget_link(&deposit.link, deposit.identity);
        Some(deposit)
    }

    /// Forgets a link that only `link` still holds.
    fn forget_link(&mut self, link: &Rc<OwnedFd>, identity: Identity) {
        if Rc::strong_count(link) == 1 {
            self.links.remove(&identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Bounds;
    use std::cell::{Cell, RefCell};

    fn deposits(each: usize) -> Deposits {
        let amounts = |deposits| Amounts::of(Kind::Deposits, deposits).and(Kind::Descriptors, 1000);
        Deposits::new(Quotas::new(Bounds {
            each: amounts(each),
            all: amounts(4 * each),
            shared: true,
        }))
    }

    fn memfd() -> OwnedFd {
        rustix::fs::memfd_create(c"test", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
    }

    fn region() -> Rc<ProgramRegion> {
        Rc::new(ProgramRegion {
            program: 7,
            user: 1000,
            number: 3,
            memory: memfd(),
            size: 0,
            entries: 0,
            ports: RefCell::new(Vec::new()),
            links: Cell::new(0),
            requested_since_search: Cell::new(0),
        })
    }

    fn leave(deposits: &mut Deposits, cookie: u64) {
        let words = [cookie; 14];
        let left = deposits.leave(cookie, words, memfd(), region(), 1000, 7);
        left.unwrap();
    }

    #[test]
    fn what_is_left_is_taken_once_and_by_its_user() {
        let mut deposits = deposits(4);
        leave(&mut deposits, 5);
        assert!(deposits.take(5, 1001, false).is_none());
        assert_eq!(deposits.take(5, 1000, true).unwrap().words, [5; 14]);
        assert_eq!(deposits.take(5, 1000, false).unwrap().words, [5; 14]);
        assert!(deposits.take(5, 1000, false).is_none());
        assert!(deposits.links.is_empty());
        leave(&mut deposits, 6);
        assert!(deposits.take(6, 0, false).is_none(), "not even root");
        assert_eq!(deposits.take_released().len(), 1);
    }

    #[test]
    fn left_for_two_it_is_taken_twice() {
        let mut deposits = deposits(4);
        leave(&mut deposits, 5);
        leave(&mut deposits, 5);
        assert!(deposits.take(5, 1000, false).is_some());
        assert!(deposits.take(5, 1000, false).is_some());
        assert!(deposits.take(5, 1000, false).is_none());
    }

    #[test]
    fn nobody_displaces_what_another_user_left() {
        let mut deposits = deposits(4);
        leave(&mut deposits, 5);
        deposits
            .leave(5, [0; 14], memfd(), region(), 1001, 8)
            .unwrap();
        assert_eq!(deposits.take(5, 1000, false).unwrap().words, [5; 14]);
    }

    #[test]
    fn ones_own_oldest_makes_room_and_never_anothers() {
        let mut deposits = deposits(2);
        let others = deposits.leave(9, [9; 14], memfd(), region(), 1001, 8);
        others.unwrap();
        for cookie in 1..=3 {
            leave(&mut deposits, cookie);
        }
        assert_eq!(deposits.len(), 3);
        assert!(deposits.take(1, 1000, false).is_none());
        assert!(deposits.take(3, 1000, false).is_some());
        assert!(deposits.take(9, 1001, false).is_some());
    }

    #[test]
    fn who_may_leave_none_is_told_and_keeps_no_descriptor() {
        let mut deposits = deposits(0);
        let left = deposits.leave(1, [0; 14], memfd(), region(), 1000, 7);
        assert_eq!(left, Err(Errno::NOBUFS));
        assert!(deposits.links.is_empty() && deposits.quotas.users().is_empty());
    }

    #[test]
    fn one_link_costs_one_descriptor() {
        let mut deposits = deposits(10);
        let link = memfd();
        for cookie in 1..=3 {
            let again = link.try_clone().unwrap();
            let left = deposits.leave(cookie, [0; 14], again, region(), 1, 1);
            left.unwrap();
        }
        let one = deposits.take(1, 1, false).unwrap();
        let other = deposits.take(2, 1, false).unwrap();
        assert!(Rc::ptr_eq(&one.link, &other.link));
    }

    #[test]
    fn they_outlive_their_program_as_long_as_their_sockets() {
        let mut deposits = deposits(10);
        leave(&mut deposits, 1);
        leave(&mut deposits, 2);
        let now = Instant::now();
        let nobody_asks = |_: &mut BTreeSet<u64>| -> bool { panic!("nothing is due") };
        assert_eq!(deposits.expire(now, nobody_asks), None);
        deposits.on_depositor_ended(7, now);
        let first = deposits.expire(now, nobody_asks).unwrap();
        assert_eq!(first, now + FIRST_LOOK);
        // One of the sockets is gone.
        let second = deposits.expire(first, |cookies| cookies.remove(&1));
        let second = second.unwrap();
        assert_eq!((deposits.len(), second), (1, first + 2 * FIRST_LOOK));
        let mut next = second;
        for _ in 0..20 {
            next = deposits.expire(next, |cookies| cookies.remove(&1)).unwrap();
        }
        assert_eq!(deposits.len(), 1);
        assert_eq!(deposits.expire(next, |_| true), None);
        assert_eq!((deposits.len(), deposits.links.len()), (0, 0));
    }

    #[test]
    fn where_the_kernel_does_not_tell_they_stay_for_a_while() {
        let mut deposits = deposits(10);
        leave(&mut deposits, 1);
        let now = Instant::now();
        deposits.on_depositor_ended(7, now);
        let end = deposits.expire(now + FIRST_LOOK, |_| false).unwrap();
        assert_eq!((end, deposits.len()), (now + LONGEST_PAUSE, 1));
        assert_eq!(deposits.expire(end, |_| false), None);
        assert_eq!(deposits.len(), 0);
    }
}
