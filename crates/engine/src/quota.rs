//! The resources that each user has, and the limits. Each resource is charged by a [`Ticket`], which returns the charge
//! when it is dropped: nothing is counted by hand.
//!
//! A user may have at most his bound, and where there are other users, at most half of what those have left. So a user
//! who comes late finds some resources, however many the users before him have taken.

use crate::limits::{DESCRIPTOR_RESERVE, Limits, MOST_LISTENERS};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Attached programs, and announced children.
    Programs,
    /// Listeners that his programs announced first.
    Listeners,
    /// Links that his programs asked for.
    Links,
    /// Deposits.
    Deposits,
    /// Ephemeral ports of virtual sockets.
    Ports,
    /// Descriptors that the daemon keeps for the user.
    Descriptors,
    /// Descriptors that the daemon has sent to his programs and that they have not received.
    InFlight,
}

impl Kind {
    /// All kinds, in the order of [`Amounts`].
    pub const ALL: [Self; 7] = [
        Self::Programs,
        Self::Listeners,
        Self::Links,
        Self::Deposits,
        Self::Ports,
        Self::Descriptors,
        Self::InFlight,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Programs => "programs",
            Self::Listeners => "listeners",
            Self::Links => "links",
            Self::Deposits => "connections on their way to another process",
            Self::Ports => "ports",
            Self::Descriptors => "descriptors of the daemon",
            Self::InFlight => "descriptors that it was sent and has not read",
        }
    }
}

/// An amount of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts([usize; Kind::ALL.len()]);

impl Amounts {
    /// An amount of one kind.
    #[must_use]
    pub fn of(kind: Kind, amount: usize) -> Self {
        Self::default().and(kind, amount)
    }

    /// Adds an amount of another kind.
    #[must_use]
    pub fn and(mut self, kind: Kind, amount: usize) -> Self {
        if let Some(known) = self.0.get_mut(kind as usize) {
            *known = known.saturating_add(amount);
        }
        self
    }

    /// The amount of a kind.
    #[must_use]
    pub fn get(&self, kind: Kind) -> usize {
        self.0.get(kind as usize).copied().unwrap_or(0)
    }

    fn add(&mut self, other: &Self) {
        for (sum, amount) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(amount);
        }
    }

    fn take(&mut self, other: &Self) {
        for (sum, amount) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_sub(amount);
        }
    }
}

/// The bound for one user, and the total for all.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The bound for one user.
    pub each: Amounts,
    /// The total for all. Where there is no limit it is more than a user can reach.
    pub all: Amounts,
    /// Whether there may be several users.
    pub shared: bool,
}

impl Bounds {
    /// The bounds of a daemon with this number of `ports` and `descriptors`. Only root's daemon serves several users.
    #[must_use]
    pub fn of(limits: &Limits, ports: usize, descriptors: usize) -> Self {
        let shared = rustix::process::geteuid().is_root();
        let each = Amounts::of(Kind::Programs, limits.programs_per_user)
            .and(Kind::Listeners, limits.listeners_per_user)
            .and(Kind::Links, limits.links_per_user)
            .and(Kind::Deposits, limits.deposits_per_user)
            .and(Kind::Ports, limits.ports_per_user)
            .and(Kind::Descriptors, usize::MAX)
            .and(Kind::InFlight, limits.in_flight_per_user);
        let all = Amounts::of(Kind::Programs, limits.programs)
            .and(Kind::Listeners, MOST_LISTENERS)
            .and(Kind::Links, usize::MAX)
            .and(Kind::Deposits, limits.deposits)
            .and(Kind::Ports, ports)
            .and(
                Kind::Descriptors,
                descriptors.saturating_sub(DESCRIPTOR_RESERVE),
            )
            // The kernel applies the same limit to descriptors in flight, and also counts those of other programs of
            // the daemon's user.
            .and(Kind::InFlight, descriptors / 2);
        Self { each, all, shared }
    }
}

/// The user to whom the daemon's own resources for stack modules are charged. Without a bound of its own.
pub const DAEMON: u32 = u32::MAX;
/// The minimum time between two messages in the log about one user and kind.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The number of users and kinds whose last message is remembered.
const MOST_LOGGED: usize = 1024;

#[derive(Debug)]
struct Table {
    bounds: Bounds,
    users: BTreeMap<u32, Amounts>,
    sum: Amounts,
    /// Bounds that were reached since the last message.
    reached: BTreeMap<(u32, Kind), usize>,
    last_logged: HashMap<(u32, Kind), Instant>,
}

impl Table {
    fn bound(&self, user: u32, kind: Kind) -> usize {
        if user == DAEMON {
            return usize::MAX;
        }
        let own = self.users.get(&user).map_or(0, |amounts| amounts.get(kind));
        let others = self.sum.get(kind).saturating_sub(own);
        let left = self.bounds.all.get(kind).saturating_sub(others);
        // The last one is not halved away.
        let share = if self.bounds.shared {
            left.div_ceil(2)
        } else {
            left
        };
        self.bounds.each.get(kind).min(share)
    }
}

/// What all users have.
#[derive(Clone, Debug)]
pub struct Quotas(Rc<RefCell<Table>>);

impl Quotas {
    /// No user has anything.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self(Rc::new(RefCell::new(Table {
            bounds,
            users: BTreeMap::new(),
            sum: Amounts::default(),
            reached: BTreeMap::new(),
            last_logged: HashMap::new(),
        })))
    }

    /// Charges amounts to a user, until the ticket is dropped.
    ///
    /// # Errors
    /// `NOBUFS` where that exceeds the bound.
    pub fn charge(&self, user: u32, amounts: Amounts) -> Result<Ticket, Errno> {
        let mut table = self.0.borrow_mut();
        let own = table.users.get(&user).copied().unwrap_or_default();
        for kind in Kind::ALL {
            let (more, bound) = (amounts.get(kind), table.bound(user, kind));
            if more > 0 && own.get(kind).saturating_add(more) > bound {
                table.reached.insert((user, kind), bound);
                return Err(Errno::NOBUFS);
            }
        }
        table.users.entry(user).or_default().add(&amounts);
        table.sum.add(&amounts);
        Ok(Ticket {
            quotas: self.clone(),
            user,
            amounts,
        })
    }

    /// How much more of a kind a user may have now.
    #[must_use]
    pub fn room(&self, user: u32, kind: Kind) -> usize {
        let table = self.0.borrow();
        let own = table
            .users
            .get(&user)
            .map_or(0, |amounts| amounts.get(kind));
        table.bound(user, kind).saturating_sub(own)
    }

    /// How much of a kind a user has.
    #[must_use]
    pub fn use_of(&self, user: u32, kind: Kind) -> usize {
        let table = self.0.borrow();
        table
            .users
            .get(&user)
            .map_or(0, |amounts| amounts.get(kind))
    }

    /// How much of a kind all users have.
    #[must_use]
    pub fn sum(&self, kind: Kind) -> usize {
        self.0.borrow().sum.get(kind)
    }

    /// Each user with the amount of each kind, and the present bound.
    #[must_use]
    pub fn users(&self) -> Vec<(u32, [(usize, usize); Kind::ALL.len()])> {
        let table = self.0.borrow();
        let users = table.users.iter().filter(|(user, _)| **user != DAEMON);
        users
            .map(|(user, amounts)| {
                let shown = |kind| (amounts.get(kind), table.bound(*user, kind));
                (*user, Kind::ALL.map(shown))
            })
            .collect()
    }

    /// Messages for the log about reached bounds: at most one a minute of each user and kind.
    #[must_use]
    pub fn log_messages(&self, now: Instant) -> Vec<String> {
        let mut table = self.0.borrow_mut();
        if table.reached.is_empty() {
            return Vec::new();
        }
        let fresh = |at: &Instant| now.saturating_duration_since(*at) < LOG_INTERVAL;
        table.last_logged.retain(|_, at| fresh(at));
        let mut sentences = Vec::new();
        for ((user, kind), bound) in std::mem::take(&mut table.reached) {
            let key = (user, kind);
            if table.last_logged.len() < MOST_LOGGED && !table.last_logged.contains_key(&key) {
                table.last_logged.insert(key, now);
                sentences.push(format!(
                    "user {user} may have no more {} than {bound}: what its programs ask for beyond goes over kernel TCP or fails; \
                     end or close some (`netchannel status` shows who has what)",
                    kind.name()
                ));
            }
        }
        sentences
    }
}

/// A charge to a user. It is returned when the ticket is dropped.
#[derive(Debug)]
pub struct Ticket {
    quotas: Quotas,
    user: u32,
    amounts: Amounts,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut table = self.quotas.0.borrow_mut();
        table.sum.take(&self.amounts);
        if let Some(own) = table.users.get_mut(&self.user) {
            own.take(&self.amounts);
            if *own == Amounts::default() {
                table.users.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas(each: usize, all: usize) -> Quotas {
        Quotas::new(Bounds {
            each: Amounts::of(Kind::Ports, each).and(Kind::Links, each),
            all: Amounts::of(Kind::Ports, all).and(Kind::Links, usize::MAX),
            shared: true,
        })
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let quotas = quotas(3, 100);
        let many = |amount| quotas.charge(7, Amounts::of(Kind::Ports, amount));
        let (one, two) = (many(1).unwrap(), many(2).unwrap());
        assert_eq!(many(1).unwrap_err(), Errno::NOBUFS);
        assert_eq!(quotas.users()[0].1[Kind::Ports as usize], (3, 3));
        drop(two);
        assert_eq!(
            (quotas.room(7, Kind::Ports), quotas.sum(Kind::Ports)),
            (2, 1)
        );
        drop(one);
        assert!(quotas.users().is_empty());
        assert_eq!(quotas.sum(Kind::Ports), 0);
    }

    #[test]
    fn nothing_is_charged_where_one_kind_is_refused() {
        let quotas = quotas(3, 100);
        let amounts = Amounts::of(Kind::Links, 1).and(Kind::Ports, 4);
        assert!(quotas.charge(7, amounts).is_err());
        assert!(quotas.users().is_empty());
    }

    #[test]
    fn however_many_are_greedy_another_finds_something() {
        let quotas = quotas(60, 100);
        let mut held = Vec::new();
        for user in 0..5 {
            let before = held.len();
            while let Ok(ticket) = quotas.charge(user, Amounts::of(Kind::Ports, 1)) {
                held.push(ticket);
            }
            assert!(held.len() > before, "{user} got nothing");
        }
        assert!(held.len() <= 100);
        assert!(quotas.charge(DAEMON, Amounts::of(Kind::Ports, 1)).is_ok());
    }

    #[test]
    fn the_log_says_it_once_a_minute() {
        let quotas = quotas(0, 100);
        let now = Instant::now();
        let refused = || assert!(quotas.charge(7, Amounts::of(Kind::Links, 1)).is_err());
        refused();
        refused();
        let last_logged = quotas.log_messages(now);
        assert!(
            matches!(&last_logged[..], [one] if one.contains("user 7") && one.contains("links"))
        );
        refused();
        assert!(quotas.log_messages(now + LOG_INTERVAL / 2).is_empty());
        refused();
        assert_eq!(quotas.log_messages(now + LOG_INTERVAL).len(), 1);
    }
}
