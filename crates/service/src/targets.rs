//! The listeners of this host that a worker has connected to: the links to their programs, and the connections that
//! wait for a link.

use super::cells::Key;
use super::core_engine::{AcceptMode, Ticket};
use super::link::LinkEnd;
use crate::addresses;
use netchannel_abi::address::Address;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The limit of links to one listener.
const MOST_LINKS: usize = 16;
/// How often a full backlog is examined.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// When a listener that had no room is tried again. A server that is busy with what waits has room in a moment.
const FIRST_RETRY: Duration = Duration::from_millis(1);
/// Each try that finds no room doubles the pause, up to this.
const LAST_RETRY: Duration = Duration::from_millis(20);

/// A link to a listener.
#[derive(Debug)]
struct KnownLink {
    key: Key,
    /// Several processes have held the listener while the link existed. It is not known which of them has the link: it
    /// may be one that holds the listener no longer.
    shared: bool,
}

/// One listener.
#[derive(Debug, Default)]
struct Target {
    links: Vec<KnownLink>,
    /// The link whose connections are offered one by one, and the other end of its channel.
    offer_link: Option<(Key, OwnedFd)>,
    /// How the listener takes connections. Of links that several processes may have, only one whose program will accept
    /// soon is used.
    mode: AcceptMode,
    /// Connections that waited for accept when they were last examined.
    unaccepted: VecDeque<Ticket>,
    /// When they were last examined.
    looked: Option<Instant>,
    /// CoreEngine was asked for a link and has not answered yet.
    asked: bool,
    /// Connections that wait for the answer. CoreEngine was asked for the first of them.
    waiting: Vec<Ticket>,
    /// Connections that wait for room at the listener, oldest first.
    waiting_for_room: VecDeque<Ticket>,
    /// The tries since a connection was announced.
    tries: u32,
}

impl Target {
    fn set_mode(&mut self, mode: AcceptMode) {
        self.mode = mode;
        for link in &mut self.links {
            link.shared |= mode.shared;
        }
    }
}

/// All listeners that connections were routed to, by number.
#[derive(Debug, Default)]
pub struct Targets {
    all: HashMap<u32, Target>,
    /// Listeners at which connections wait for room, with the time of the next try. Each listener occurs at most once,
    /// and the soonest is first.
    retries: VecDeque<(Instant, u32)>,
}

/// How a connection gets to its listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Over this link. True where its program was claimed for the connection.
    Link(Key, bool),
    /// Offered over this link to the process that accepts first.
    Offer(Key),
    /// CoreEngine must be asked for a link.
    RequestLink,
    /// CoreEngine must be asked for a link whose connections are offered one by one.
    RequestOfferLink,
    /// CoreEngine was asked already.
    Wait,
}

impl Targets {
    /// Chooses one of the links that `find` knows and that are alive.
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
                // All known processes are busy: the process that accepts first shall get the connection.
                if let Some((key, _)) = &target.offer_link {
                    return Choice::Offer(*key);
                }
                if std::mem::replace(&mut target.asked, true) {
                    return Choice::Wait;
                }
                Choice::RequestOfferLink
            }
            None if std::mem::replace(&mut target.asked, true) => Choice::Wait,
            None => Choice::RequestLink,
        }
    }

    /// The connection waits for the answer of CoreEngine.
    pub fn wait(&mut self, listener: u32, ticket: Ticket) {
        let target = self.all.entry(listener).or_default();
        target.waiting.push(ticket);
    }

    /// The listener has no room: the connection waits behind older ones.
    pub fn wait_for_room(&mut self, listener: u32, ticket: Ticket, now: Instant) {
        let target = self.all.entry(listener).or_default();
        if target.waiting_for_room.is_empty() {
            let pause = FIRST_RETRY.saturating_mul(1 << target.tries.min(8));
            let at = now + pause.min(LAST_RETRY);
            let place = self.retries.partition_point(|(other, _)| *other <= at);
            self.retries.insert(place, (at, listener));
        }
        let place = target
            .waiting_for_room
            .partition_point(|one| one.stamp < ticket.stamp);
        target.waiting_for_room.insert(place, ticket);
    }

    /// The time of the next try.
    #[inline]
    pub fn next_retry(&self) -> Option<Instant> {
        self.retries.front().map(|(at, _)| *at)
    }

    /// A listener whose next try is due, with all connections that wait for room. The caller routes as many as there is
    /// room for.
    pub fn take_waiting_for_room(&mut self, now: Instant) -> Option<(u32, VecDeque<Ticket>)> {
        if self.next_retry()? > now {
            return None;
        }
        let (_, listener) = self.retries.pop_front()?;
        let target = self.all.get_mut(&listener);
        let waiting_for_room = target.map(|target| {
            target.tries = target.tries.saturating_add(1);
            std::mem::take(&mut target.waiting_for_room)
        });
        Some((listener, waiting_for_room.unwrap_or_default()))
    }

    /// Whether connections wait for room at a listener.
    pub fn has_waiting_for_room(&self, listener: u32) -> bool {
        let target = self.all.get(&listener);
        target.is_some_and(|target| !target.waiting_for_room.is_empty())
    }

    /// Puts connections back that are behind one for which there was no room.
    pub fn put_back(&mut self, listener: u32, mut waiting_for_room: VecDeque<Ticket>) {
        if let Some(target) = self.all.get_mut(&listener) {
            target.waiting_for_room.append(&mut waiting_for_room);
        }
    }

    /// CoreEngine has answered: returns the connections that waited.
    pub fn answered(&mut self, listener: u32) -> Vec<Ticket> {
        let Some(target) = self.all.get_mut(&listener) else {
            return Vec::new();
        };
        target.asked = false;
        std::mem::take(&mut target.waiting)
    }

    /// Adds a link to a listener.
    pub fn add(&mut self, listener: u32, key: Key, mode: AcceptMode) {
        let target = self.all.entry(listener).or_default();
        let shared = mode.shared;
        target.links.push(KnownLink { key, shared });
        target.set_mode(mode);
    }

    /// Adds the link to a listener whose connections are offered one by one.
    pub fn add_offer_link(&mut self, listener: u32, key: Key, channel: OwnedFd) {
        let target = self.all.entry(listener).or_default();
        target.offer_link = Some((key, channel));
    }

    /// Whether a listener covers a destination, as far as its address is known.
    pub fn is_at(&self, listener: u32, destination: &Address) -> bool {
        let known = self.all.get(&listener).and_then(|one| one.mode.address);
        known.is_none_or(|address| addresses::covers(&address, destination))
    }

    /// Sets how a listener takes connections.
    pub fn set_mode(&mut self, listener: u32, mode: AcceptMode) {
        if let Some(target) = self.all.get_mut(&listener) {
            target.set_mode(mode);
        }
    }

    /// A connection was announced to a listener, and waits for accept.
    pub fn note(&mut self, listener: u32, ticket: Ticket) {
        if let Some(target) = self.all.get_mut(&listener) {
            target.unaccepted.push_back(ticket);
            target.tries = 0;
        }
    }

    /// Whether the backlog of a listener is full. `waits` says whether a connection still waits for accept; it is
    /// called seldom.
    pub fn is_full(&mut self, listener: u32, now: Instant, waits: impl Fn(Ticket) -> bool) -> bool {
        let Some(target) = self
            .all
            .get_mut(&listener)
            .filter(|one| !one.links.is_empty())
        else {
            return false;
        };
        // Linux counts the same way: one more than the backlog.
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

    /// A listener is closed: returns the links to it, and the connections that waited for room.
    pub fn remove(&mut self, listener: u32) -> (Vec<Key>, VecDeque<Ticket>) {
        let Some(target) = self.all.remove(&listener) else {
            return Default::default();
        };
        self.retries.retain(|(_, one)| *one != listener);
        let links = target.links.into_iter().map(|link| link.key);
        let offer_link = target.offer_link.map(|(key, _)| key);
        (links.chain(offer_link).collect(), target.waiting_for_room)
    }

    /// No connection comes over this link any more.
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
        assert_eq!(targets.take_waiting_for_room(start), None);
        let later = start + LAST_RETRY;
        let (listener, mut waiting_for_room) = targets.take_waiting_for_room(later).unwrap();
        assert_eq!((listener, waiting_for_room.len()), (3, 1000));
        // The first is routed. There is no room for the second.
        waiting_for_room.pop_front();
        targets.wait_for_room(3, waiting_for_room.pop_front().unwrap(), later);
        assert!(targets.has_waiting_for_room(3));
        targets.put_back(3, waiting_for_room);
        assert_eq!(targets.take_waiting_for_room(later).unwrap().0, 4);
        assert_eq!(targets.take_waiting_for_room(later), None);
        let (_, waiting_for_room) = targets.take_waiting_for_room(later + LAST_RETRY).unwrap();
        assert!(waiting_for_room.iter().map(|one| one.stamp).eq(1..1000));
    }

    #[test]
    fn a_listener_without_room_is_tried_less_and_less_often() {
        let (mut now, one) = (
            Instant::now(),
            Ticket {
                number: 0,
                stamp: 1,
            },
        );
        let mut targets = Targets::default();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            targets.wait_for_room(3, one, now);
            let next = targets.next_retry().unwrap();
            pauses.push((next - now).as_millis());
            now = next;
            assert!(targets.take_waiting_for_room(now).is_some());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 20, 20]);
        // One was accepted, and there was room for another.
        targets.note(3, one);
        targets.wait_for_room(3, one, now);
        assert_eq!(targets.next_retry(), Some(now + FIRST_RETRY));
        // The soonest is first.
        targets.wait_for_room(4, one, now - FIRST_RETRY / 2);
        assert_eq!(targets.next_retry(), Some(now + FIRST_RETRY / 2));
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
