//! The listeners of this host that the relay leads to: the links to their programs, and who waits
//! for one.

use super::cells::Key;
use super::link::LinkEnd;
use std::collections::HashMap;
use std::sync::Arc;

/// More links than this to one listener are not made.
const MOST_LINKS: usize = 16;

/// One listener.
#[derive(Debug, Default)]
struct Target {
    links: Vec<Key>,
    /// Several processes hold it: only one that will accept soon is taken.
    shared: bool,
    /// CoreEngine was asked for a link, and has not answered.
    asked: bool,
    /// Connections that wait for the answer, with their stamps.
    waiting: Vec<(usize, u64)>,
}

/// All listeners that were connected to, by number.
#[derive(Debug, Default)]
pub struct Targets(HashMap<u32, Target>);

/// How a connection gets to its listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Over this link; true where its program was claimed for it.
    Link(Key, bool),
    /// CoreEngine is to be asked for a link.
    Ask,
    /// It was asked.
    Wait,
}

impl Targets {
    /// Chooses a link, of those that `find` knows.
    pub fn choose<'a>(
        &mut self,
        listener: u32,
        find: impl Fn(Key) -> Option<&'a Arc<LinkEnd>>,
    ) -> Choice {
        let target = self.0.entry(listener).or_default();
        target
            .links
            .retain(|key| find(*key).is_some_and(|end| end.check()));
        let claims = |key: &Key| find(*key).is_some_and(|end| end.claim());
        let found = if target.shared {
            target.links.iter().copied().find(claims)
        } else {
            target.links.first().copied()
        };
        match found {
            Some(key) => Choice::Link(key, target.shared),
            None if target.links.len() >= MOST_LINKS => {
                // All are busy: the first will hand it on, or take it.
                target.links.rotate_left(1);
                let first = target.links.first().copied();
                first.map_or(Choice::Wait, |key| Choice::Link(key, false))
            }
            None if std::mem::replace(&mut target.asked, true) => Choice::Wait,
            None => Choice::Ask,
        }
    }

    /// A connection waits for the answer of CoreEngine.
    pub fn wait(&mut self, listener: u32, number: usize, stamp: u64) {
        let target = self.0.entry(listener).or_default();
        target.waiting.push((number, stamp));
    }

    /// CoreEngine has answered: who waited.
    pub fn answered(&mut self, listener: u32) -> Vec<(usize, u64)> {
        let Some(target) = self.0.get_mut(&listener) else {
            return Vec::new();
        };
        target.asked = false;
        std::mem::take(&mut target.waiting)
    }

    /// A link to a listener.
    pub fn add(&mut self, listener: u32, key: Key, shared: bool) {
        let target = self.0.entry(listener).or_default();
        target.links.push(key);
        target.shared = shared;
    }

    /// Whether several processes hold a listener.
    pub fn share(&mut self, listener: u32, shared: bool) {
        if let Some(target) = self.0.get_mut(&listener) {
            target.shared = shared;
        }
    }

    /// A listener is gone: the links to it.
    pub fn remove(&mut self, listener: u32) -> Vec<Key> {
        let target = self.0.remove(&listener);
        target.map_or_else(Vec::new, |target| target.links)
    }

    /// A link brings nobody any connection any more.
    pub fn forget_link(&mut self, key: Key) {
        for target in self.0.values_mut() {
            target.links.retain(|one| *one != key);
        }
    }
}
