//! The listeners of this host that a worker has led to: the links to their programs, and who waits
//! for one.

use super::cells::Key;
use super::core_engine::{AcceptMode, Ticket};
use super::link::LinkEnd;
use crate::addresses;
use netchannel_abi::address::Address;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// More links than this to one listener are not made.
const MOST_LINKS: usize = 16;
/// A full backlog is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A listener that had no room is tried again after this.
const RETRY: Duration = Duration::from_millis(20);

/// A link to a listener.
#[derive(Debug)]
struct Known {
    key: Key,
    /// Several processes have held the listener while the link was there. Which of them has it nobody knows: it may be one that holds
    /// the listener no longer.
    shared: bool,
}

/// One listener.
#[derive(Debug, Default)]
struct Target {
    links: Vec<Known>,
    /// The link whose connections are offered one by one, and its channel's other end.
    offer_link: Option<(Key, OwnedFd)>,
    /// Over a link that several processes may have, only one that will accept soon is taken.
    mode: AcceptMode,
    /// Connections that, when last looked at, waited to be accepted.
    unaccepted: VecDeque<Ticket>,
    /// When they were last looked at.
    looked: Option<Instant>,
    /// CoreEngine was asked for a link, and has not answered.
    asked: bool,
    /// Connections that wait for the answer. The first is the one for which CoreEngine was asked.
    waiting: Vec<Ticket>,
    /// Connections that wait for room at the listener, oldest first.
    crowd: VecDeque<Ticket>,
}

impl Target {
    fn set_mode(&mut self, mode: AcceptMode) {
        self.mode = mode;
        for link in &mut self.links {
            link.shared |= mode.shared;
        }
    }
}

/// All listeners that were connected to, by number.
#[derive(Debug, Default)]
pub struct Targets {
    all: HashMap<u32, Target>,
    /// Listeners at which connections wait for room, and when they are tried again: each at most once, soonest first.
    retries: VecDeque<(Instant, u32)>,
}

/// How a connection gets to its listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Over this link; true where its program was claimed for it.
    Link(Key, bool),
    /// Offered over this link to whoever accepts first.
    Offer(Key),
    /// CoreEngine is to be asked for a link.
    Ask,
    /// CoreEngine is to be asked for a link whose connections are offered one by one.
    AskOfferLink,
    /// It was asked.
    Wait,
}

impl Targets {
    /// Chooses a link, of those that `find` knows and that live.
    pub fn choose<'a>(
        &mut self,
        listener: u32,
        find: impl Fn(Key) -> Option<&'a Arc<LinkEnd>>,
    ) -> Choice {
        let target = self.all.entry(listener).or_default();
        target.links.retain(|link| find(link.key).is_some());
        let claims = |key: Key| find(key).is_some_and(|end| end.claim());
        let mut links = target.links.iter();
        let own = links.clone().find(|link| !link.shared);
        match own.or_else(|| links.find(|link| claims(link.key))) {
            Some(link) => Choice::Link(link.key, link.shared),
            None if target.links.len() >= MOST_LINKS => {
                // All who are known are busy: who accepts first shall have it.
                if let Some((key, _)) = &target.offer_link {
                    return Choice::Offer(*key);
                }
                if std::mem::replace(&mut target.asked, true) {
                    return Choice::Wait;
                }
                Choice::AskOfferLink
            }
            None if std::mem::replace(&mut target.asked, true) => Choice::Wait,
            None => Choice::Ask,
        }
    }

    /// A connection waits for the answer of CoreEngine.
    pub fn wait(&mut self, listener: u32, ticket: Ticket) {
        let target = self.all.entry(listener).or_default();
        target.waiting.push(ticket);
    }

    /// The listener has no room: the connection waits behind those that came before it.
    pub fn wait_for_room(&mut self, listener: u32, ticket: Ticket, now: Instant) {
        let target = self.all.entry(listener).or_default();
        if target.crowd.is_empty() {
            self.retries.push_back((now + RETRY, listener));
        }
        let place = target.crowd.partition_point(|one| one.stamp < ticket.stamp);
        target.crowd.insert(place, ticket);
    }

    /// When a listener is to be tried again.
    #[inline]
    pub fn next_retry(&self) -> Option<Instant> {
        self.retries.front().map(|(at, _)| *at)
    }

    /// A listener whose time has come, with all that wait for room: the caller leads on as many as there is room for.
    pub fn take_crowd(&mut self, now: Instant) -> Option<(u32, VecDeque<Ticket>)> {
        if self.next_retry()? > now {
            return None;
        }
        let (_, listener) = self.retries.pop_front()?;
        let target = self.all.get_mut(&listener);
        let crowd = target.map(|target| std::mem::take(&mut target.crowd));
        Some((listener, crowd.unwrap_or_default()))
    }

    /// Whether connections wait for room at a listener.
    pub fn is_crowded(&self, listener: u32) -> bool {
        let target = self.all.get(&listener);
        target.is_some_and(|target| !target.crowd.is_empty())
    }

    /// Those behind one for whom there was no room wait on.
    pub fn put_back(&mut self, listener: u32, mut crowd: VecDeque<Ticket>) {
        if let Some(target) = self.all.get_mut(&listener) {
            target.crowd.append(&mut crowd);
        }
    }

    /// CoreEngine has answered: who waited.
    pub fn answered(&mut self, listener: u32) -> Vec<Ticket> {
        let Some(target) = self.all.get_mut(&listener) else {
            return Vec::new();
        };
        target.asked = false;
        std::mem::take(&mut target.waiting)
    }

    /// A link to a listener.
    pub fn add(&mut self, listener: u32, key: Key, mode: AcceptMode) {
        let target = self.all.entry(listener).or_default();
        let shared = mode.shared;
        target.links.push(Known { key, shared });
        target.set_mode(mode);
    }

    /// The link to a listener whose connections are offered one by one.
    pub fn add_offer_link(&mut self, listener: u32, key: Key, channel: OwnedFd) {
        let target = self.all.entry(listener).or_default();
        target.offer_link = Some((key, channel));
    }

    /// Whether a listener, as far as it is known, is at a destination.
    pub fn is_at(&self, listener: u32, destination: &Address) -> bool {
        let known = self.all.get(&listener).and_then(|one| one.mode.address);
        known.is_none_or(|address| addresses::covers(&address, destination))
    }

    /// How a listener takes connections.
    pub fn set_mode(&mut self, listener: u32, mode: AcceptMode) {
        if let Some(target) = self.all.get_mut(&listener) {
            target.set_mode(mode);
        }
    }

    /// A connection was led to a listener, and is to be accepted.
    pub fn note(&mut self, listener: u32, ticket: Ticket) {
        if let Some(target) = self.all.get_mut(&listener) {
            target.unaccepted.push_back(ticket);
        }
    }

    /// Whether the backlog of a listener is full. `waits` says of a connection whether it still has
    /// to be accepted; it is asked seldom.
    pub fn is_full(&mut self, listener: u32, now: Instant, waits: impl Fn(Ticket) -> bool) -> bool {
        let Some(target) = self
            .all
            .get_mut(&listener)
            .filter(|one| !one.links.is_empty())
        else {
            return false;
        };
        // As Linux counts: one more than the backlog says.
        let most = target.mode.backlog;
        let fresh = target
            .looked
            .is_some_and(|looked| now.duration_since(looked) < LOOK_EVERY);
        if target.unaccepted.len() > most && !fresh {
            target.looked = Some(now);
            target.unaccepted.retain(|ticket| waits(*ticket));
        }
        target.unaccepted.len() > most
    }

    /// A listener is gone: the links to it, and who waited for room.
    pub fn remove(&mut self, listener: u32) -> (Vec<Key>, VecDeque<Ticket>) {
        let Some(target) = self.all.remove(&listener) else {
            return Default::default();
        };
        self.retries.retain(|(_, one)| *one != listener);
        let links = target.links.into_iter().map(|link| link.key);
        let offer_link = target.offer_link.map(|(key, _)| key);
        (links.chain(offer_link).collect(), target.crowd)
    }

    /// A link brings nobody any connection any more.
    pub fn forget_link(&mut self, key: Key) {
        for target in self.all.values_mut() {
            target.links.retain(|one| one.key != key);
            target.offer_link.take_if(|(one, _)| *one == key);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can not go on fails")]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_room_costs_by_listener() {
        let start = Instant::now();
        let mut targets = Targets::default();
        let ticket = |stamp: u64| Ticket {
            number: usize::try_from(stamp).unwrap(),
            stamp,
        };
        for stamp in 0..1000 {
            targets.wait_for_room(3, ticket(stamp), start);
        }
        targets.wait_for_room(4, ticket(1000), start);
        assert_eq!(targets.retries.len(), 2);
        assert_eq!(targets.take_crowd(start), None);
        let later = start + RETRY;
        let (listener, mut crowd) = targets.take_crowd(later).unwrap();
        assert_eq!((listener, crowd.len()), (3, 1000));
        // The first is led on, for the second there is no room.
        crowd.pop_front();
        targets.wait_for_room(3, crowd.pop_front().unwrap(), later);
        assert!(targets.is_crowded(3));
        targets.put_back(3, crowd);
        assert_eq!(targets.take_crowd(later).unwrap().0, 4);
        assert_eq!(targets.take_crowd(later), None);
        let (_, crowd) = targets.take_crowd(later + RETRY).unwrap();
        assert!(crowd.iter().map(|one| one.stamp).eq(1..1000));
    }

    #[test]
    fn a_listener_that_is_gone_lets_go_of_all() {
        let mut targets = Targets::default();
        let one = Ticket {
            number: 0,
            stamp: 1,
        };
        targets.wait_for_room(3, one, Instant::now());
        assert_eq!(targets.remove(3), (Vec::new(), [one].into()));
        assert_eq!((targets.next_retry(), targets.remove(3).1.len()), (None, 0));
    }
}
