//! Short connections that others make: a bounded number, each with a deadline.

use std::collections::HashMap;
use std::time::Instant;

/// One connection.
pub trait Visitor {
    /// How many there are at once.
    const MOST: usize;

    /// When it is closed, unless it gets on.
    fn deadline(&self) -> Instant;
}

/// All connections of one kind.
#[derive(Debug)]
pub struct Visitors<V> {
    open: HashMap<u32, V>,
    last: u32,
}

impl<V> Default for Visitors<V> {
    fn default() -> Self {
        Self {
            open: HashMap::new(),
            last: 0,
        }
    }
}

impl<V: Visitor> Visitors<V> {
    /// Takes a connection. Where there are too many, the one that has lingered longest goes: whoever holds them half open must not
    /// lock the others out.
    pub fn add(&mut self, visitor: V) -> u32 {
        if self.open.len() >= V::MOST {
            let oldest = self.open.iter().min_by_key(|(_, one)| one.deadline());
            let oldest = oldest.map(|(number, _)| *number);
            oldest.and_then(|number| self.open.remove(&number));
        }
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.open.contains_key(&self.last) {
                break;
            }
        }
        self.open.insert(self.last, visitor);
        self.last
    }

    /// How many there are.
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

    /// Closes those that took too long. Returns when to come again.
    pub fn expire(&mut self, now: Instant) -> Option<Instant> {
        self.open.retain(|_, one| one.deadline() > now);
        self.open.values().map(V::deadline).min()
    }
}
