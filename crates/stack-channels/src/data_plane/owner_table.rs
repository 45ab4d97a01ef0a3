//! The connections that a worker owns, by entry and by link and slot, and their timers.

use super::connection::Connection;
use netchannel_service::cells::Key;
use netchannel_service::timers::{NEVER, Timers};
use std::sync::Arc;

/// A connection in its owner's table.
#[derive(Debug)]
pub struct Owned {
    /// The socket.
    pub connection: Arc<Connection>,
    /// The worker's key of the link of its lane.
    pub key: Key,
    /// `None` once it has no lane.
    slot: Option<u32>,
}

/// All connections of a worker.
#[derive(Debug, Default)]
pub struct OwnerTable {
    owned: Vec<Option<Owned>>,
    unused: Vec<u32>,
    /// By link and slot: the entry plus one.
    by_slot: Vec<Vec<u32>>,
    /// The number of sockets of each link.
    users: Vec<u32>,
    /// The timers of the sockets.
    pub timers: Timers,
}

impl OwnerTable {
    /// Adds a socket. Returns its entry.
    pub fn add(&mut self, connection: &Arc<Connection>, key: Key, slot: Option<u32>) -> u32 {
        let number = self.unused.pop().unwrap_or_else(|| {
            self.owned.push(None);
            u32::try_from(self.owned.len() - 1).unwrap_or(u32::MAX)
        });
        let entry = Owned {
            connection: Arc::clone(connection),
            key,
            slot,
        };
        if let Some(place) = self.owned.get_mut(index(number)) {
            *place = Some(entry);
        }
        if let Some(place) = slot.and_then(|slot| self.place(key, slot)) {
            *place = number.wrapping_add(1);
        }
        if let Some(users) = self.users(key) {
            *users += 1;
        }
        number
    }

    /// Removes a socket.
    pub fn remove(&mut self, number: u32) -> Option<Owned> {
        let entry = self.owned.get_mut(index(number))?.take()?;
        self.unused.push(number);
        self.timers.set(number, NEVER);
        // Another connection may have the slot by now.
        if let Some(slot) = entry.slot
            && let Some(place) = self.place(entry.key, slot)
            && *place == number.wrapping_add(1)
        {
            *place = 0;
        }
        if let Some(users) = self.users(entry.key) {
            *users -= 1;
        }
        Some(entry)
    }

    /// The lane of a socket is in another link now. Returns the key of the former link.
    pub fn move_lane(&mut self, number: u32, key: Key, slot: u32) -> Option<Key> {
        let entry = self.remove(number)?;
        // The entry that was freed last is taken first.
        let same = self.add(&entry.connection, key, Some(slot));
        debug_assert_eq!(same, number);
        Some(entry.key)
    }

    /// The number of sockets.
    pub const fn len(&self) -> usize {
        self.owned.len() - self.unused.len()
    }

    /// A socket by its entry.
    pub fn get(&self, number: u32) -> Option<&Arc<Connection>> {
        let entry = self.owned.get(index(number))?.as_ref()?;
        Some(&entry.connection)
    }

    /// The socket whose lane is in a slot.
    pub fn of_slot(&self, key: Key, slot: u32) -> Option<&Arc<Connection>> {
        let number = *self.by_slot.get(index(key))?.get(index(slot))?;
        self.get(number.checked_sub(1)?)
    }

    /// The sockets whose lanes are in a link.
    pub fn of_link(&self, key: Key) -> impl Iterator<Item = &Arc<Connection>> {
        let slots = self.by_slot.get(index(key)).into_iter().flatten();
        slots.filter_map(|number| self.get(number.checked_sub(1)?))
    }

    /// The number of sockets whose lanes are in a link.
    pub fn users_of(&self, key: Key) -> u32 {
        self.users.get(index(key)).copied().unwrap_or(0)
    }

    /// A link was removed; its key may be given to another.
    pub fn forget_link(&mut self, key: Key) {
        if let Some(slots) = self.by_slot.get_mut(index(key)) {
            *slots = Vec::new();
        }
    }

    fn place(&mut self, key: Key, slot: u32) -> Option<&mut u32> {
        let (key, slot) = (index(key), index(slot));
        if self.by_slot.len() <= key {
            self.by_slot.resize_with(key + 1, Vec::new);
        }
        let slots = self.by_slot.get_mut(key)?;
        if slots.len() <= slot {
            slots.resize(slot + 1, 0);
        }
        slots.get_mut(slot)
    }

    fn users(&mut self, key: Key) -> Option<&mut u32> {
        let key = index(key);
        if self.users.len() <= key {
            self.users.resize(key + 1, 0);
        }
        self.users.get_mut(key)
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
