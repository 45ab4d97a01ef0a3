//! The listeners of this host that the relay leads to: the links to their programs, and who waits
//! for one.

use super::cells::Key;
use super::link::LinkEnd;
use super::service::{Manner, Ticket};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// More links than this to one listener are not made.
const MOST_LINKS: usize = 16;
/// A full backlog is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// One listener.
#[derive(Debug, Default)]
struct Target {
    links: Vec<Key>,
    /// The link whose connections are offered one by one, and its channel's other end.
    float: Option<(Key, OwnedFd)>,
    /// Where several processes hold it, only one that will accept soon is taken.
    manner: Manner,
    /// Connections that, when last looked at, waited to be accepted.
    unaccepted: VecDeque<Ticket>,
    /// When they were last looked at.
    looked: Option<Instant>,
    /// CoreEngine was asked for a link, and has not answered.
    asked: bool,
    /// Connections that wait for the answer, with their stamps.
    waiting: Vec<Ticket>,
}

/// All listeners that were connected to, by number.
#[derive(Debug, Default)]
pub struct Targets(HashMap<u32, Target>);

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
    AskFloat,
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
        let target = self.0.entry(listener).or_default();
        target.links.retain(|key| find(*key).is_some());
        let claims = |key: &Key| find(*key).is_some_and(|end| end.claim());
        let found = if target.manner.shared {
            target.links.iter().copied().find(claims)
        } else {
            target.links.first().copied()
        };
        match found {
            Some(key) => Choice::Link(key, target.manner.shared),
            None if target.links.len() >= MOST_LINKS => {
                // All who are known are busy: who accepts first shall have it.
                if let Some((key, _)) = &target.float {
                    return Choice::Offer(*key);
                }
                if std::mem::replace(&mut target.asked, true) {
                    return Choice::Wait;
                }
                Choice::AskFloat
            }
            None if std::mem::replace(&mut target.asked, true) => Choice::Wait,
            None => Choice::Ask,
        }
    }

    /// A connection waits for the answer of CoreEngine.
    pub fn wait(&mut self, listener: u32, ticket: Ticket) {
        let target = self.0.entry(listener).or_default();
        target.waiting.push(ticket);
    }

    /// CoreEngine has answered: who waited.
    pub fn answered(&mut self, listener: u32) -> Vec<Ticket> {
        let Some(target) = self.0.get_mut(&listener) else {
            return Vec::new();
        };
        target.asked = false;
        std::mem::take(&mut target.waiting)
    }

    /// A link to a listener.
    pub fn add(&mut self, listener: u32, key: Key, manner: Manner) {
        let target = self.0.entry(listener).or_default();
        target.links.push(key);
        target.manner = manner;
    }

    /// The link to a listener whose connections are offered one by one.
    pub fn add_float(&mut self, listener: u32, key: Key, channel: OwnedFd) {
        let target = self.0.entry(listener).or_default();
        target.float = Some((key, channel));
    }

    /// How a listener takes connections.
    pub fn set_manner(&mut self, listener: u32, manner: Manner) {
        if let Some(target) = self.0.get_mut(&listener) {
            target.manner = manner;
        }
    }

    /// A connection was led to a listener, and is to be accepted.
    pub fn note(&mut self, listener: u32, ticket: Ticket) {
        if let Some(target) = self.0.get_mut(&listener) {
            target.unaccepted.push_back(ticket);
        }
    }

    /// Whether the backlog of a listener is full. `waits` says of a connection whether it still has
    /// to be accepted; it is asked seldom.
    pub fn is_full(&mut self, listener: u32, now: Instant, waits: impl Fn(Ticket) -> bool) -> bool {
        let Some(target) = self
            .0
            .get_mut(&listener)
            .filter(|one| !one.links.is_empty())
        else {
            return false;
        };
        // As Linux counts: one more than the backlog says.
        let most = target.manner.backlog;
        let fresh = target
            .looked
            .is_some_and(|looked| now.duration_since(looked) < LOOK_EVERY);
        if target.unaccepted.len() > most && !fresh {
            target.looked = Some(now);
            target.unaccepted.retain(|ticket| waits(*ticket));
        }
        target.unaccepted.len() > most
    }

    /// A listener is gone: the links to it.
    pub fn remove(&mut self, listener: u32) -> Vec<Key> {
        let Some(target) = self.0.remove(&listener) else {
            return Vec::new();
        };
        let float = target.float.map(|(key, _)| key);
        target.links.into_iter().chain(float).collect()
    }

    /// A link brings nobody any connection any more.
    pub fn forget_link(&mut self, key: Key) {
        for target in self.0.values_mut() {
            target.links.retain(|one| *one != key);
            target.float.take_if(|(one, _)| *one == key);
        }
    }
}
