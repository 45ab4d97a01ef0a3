//! Handles: an index with a generation, so that a frame for an ended connection never reaches the one that has its
//! index now.
//!
//! ```text
//!   insert --> live, generation g --remove(memory)--> remembered, generation g --kept long enough--> live, generation g + 1
//! ```

use std::collections::VecDeque;

use netchannel_abi::handle::Handle;

/// The table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The result of a look-up.
#[derive(Debug, PartialEq, Eq)]
pub enum Lookup<L, M> {
    /// A living connection.
    Live(L),
    /// An ended connection, and its remaining state.
    Ended(M),
    /// Unknown: never made, or forgotten.
    Unknown,
}

#[derive(Debug)]
enum Place<T, M> {
    Live(T),
    Ended(M),
}

#[derive(Debug)]
struct Slot<T, M> {
    generation: u32,
    place: Place<T, M>,
}

/// The limit of ended connections that are remembered, as a kernel bounds its TIME_WAIT. Without it each connection of
/// a burst would take a place of its own.
const MOST_REMEMBERED: usize = 1 << 16;

/// Connections by handle. Places of ended connections are used again, oldest first. This happens only after they were
/// remembered for a while, unless the table is full or 65,536 have ended since.
#[derive(Debug)]
pub struct HandleTable<T, M> {
    slots: Vec<Slot<T, M>>,
    /// The places of ended connections, oldest first, with the time of their end.
    ended: VecDeque<(u32, u64)>,
    most: u32,
    remember: u64,
}

impl<T, M> HandleTable<T, M> {
    /// A table of at most `most` places. Ended connections are remembered for `remember` nanoseconds where there is
    /// room.
    #[must_use]
    pub const fn new(most: u32, remember: u64) -> Self {
        Self {
            slots: Vec::new(),
            ended: VecDeque::new(),
            most,
            remember,
        }
    }

    /// Inserts `value` under a new handle. The first generation of a place is 1; 0 is never used.
    ///
    /// # Errors
    /// [`Full`], where the table has as many living connections as allowed.
    pub fn insert(&mut self, value: T, now: u64) -> Result<Handle, Full> {
        self.insert_with(|_| value, now)
    }

    /// As [`Self::insert`], for a value that knows its own handle.
    ///
    /// # Errors
    /// [`Full`]
    pub fn insert_with(
        &mut self,
        make: impl FnOnce(Handle) -> T,
        now: u64,
    ) -> Result<Handle, Full> {
        let next = u32::try_from(self.slots.len()).map_err(|_| Full)?;
        let oldest = self.ended.front().copied();
        let crowded = next >= self.most || self.ended.len() >= MOST_REMEMBERED;
        let old_enough =
            oldest.filter(|(_, at)| crowded || now.saturating_sub(*at) >= self.remember);
        if let Some((index, _)) = old_enough {
            self.ended.pop_front();
            let slot = &mut self.slots[index as usize];
            // After 2^32 connections of one place the generations begin again, without 0.
            slot.generation = slot.generation.checked_add(1).unwrap_or(1);
            let handle = Handle {
                index,
                generation: slot.generation,
            };
            slot.place = Place::Live(make(handle));
            return Ok(handle);
        }
        if next >= self.most {
            return Err(Full);
        }
        let handle = Handle {
            index: next,
            generation: 1,
        };
        self.slots.push(Slot {
            generation: 1,
            place: Place::Live(make(handle)),
        });
        Ok(handle)
    }

    /// Looks up `handle`.
    #[must_use]
    pub fn get(&self, handle: Handle) -> Lookup<&T, &M> {
        match self.slots.get(handle.index as usize) {
            Some(slot) if slot.generation == handle.generation => match &slot.place {
                Place::Live(value) => Lookup::Live(value),
                Place::Ended(memory) => Lookup::Ended(memory),
            },
            _ => Lookup::Unknown,
        }
    }

    /// Looks up `handle`, to change the value.
    #[must_use]
    pub fn get_mut(&mut self, handle: Handle) -> Lookup<&mut T, &mut M> {
        match self.slots.get_mut(handle.index as usize) {
            Some(slot) if slot.generation == handle.generation => match &mut slot.place {
                Place::Live(value) => Lookup::Live(value),
                Place::Ended(memory) => Lookup::Ended(memory),
            },
            _ => Lookup::Unknown,
        }
    }

    /// Removes a living connection and keeps `memory` in its place.
    pub fn remove(&mut self, handle: Handle, memory: M, now: u64) -> Option<T> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        if slot.generation != handle.generation || matches!(slot.place, Place::Ended(_)) {
            return None;
        }
        self.ended.push_back((handle.index, now));
        match std::mem::replace(&mut slot.place, Place::Ended(memory)) {
            Place::Live(value) => Some(value),
            Place::Ended(_) => None,
        }
    }

    /// The living connections.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.iter_from(0)
    }

    /// The living connections whose index is not below `first`.
    pub fn iter_from(&self, first: u32) -> impl Iterator<Item = (Handle, &T)> {
        let behind = usize::try_from(first).ok();
        let behind = behind.and_then(|first| self.slots.get(first..));
        let slots = (first..).zip(behind.unwrap_or_default());
        slots.filter_map(|(index, slot)| match &slot.place {
            Place::Live(value) => Some((
                Handle {
                    index,
                    generation: slot.generation,
                },
                value,
            )),
            Place::Ended(_) => None,
        })
    }

    /// The living connections, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Handle, &mut T)> {
        let slots = (0_u32..).zip(&mut self.slots);
        slots.filter_map(|(index, slot)| match &mut slot.place {
            Place::Live(value) => Some((
                Handle {
                    index,
                    generation: slot.generation,
                },
                value,
            )),
            Place::Ended(_) => None,
        })
    }

    /// The ended connections that are remembered. A final frame that was lost with a channel must be sent again:
    /// otherwise the peer would learn of a Reset only when it sends something itself.
    pub fn ended_mut(&mut self) -> impl Iterator<Item = (Handle, &mut M)> {
        let slots = (0_u32..).zip(&mut self.slots);
        slots.filter_map(|(index, slot)| match &mut slot.place {
            Place::Ended(memory) => Some((
                Handle {
                    index,
                    generation: slot.generation,
                },
                memory,
            )),
            Place::Live(_) => None,
        })
    }

    /// The number of living connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.ended.len()
    }

    /// Whether there is no living connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_handle_is_recognised() {
        let mut table = HandleTable::new(10, 100);
        let first = table.insert("first", 0).unwrap();
        assert_eq!(table.get(first), Lookup::Live(&"first"));
        assert_eq!(table.remove(first, 'm', 0), Some("first"));
        assert_eq!(table.get(first), Lookup::Ended(&'m'));
        assert_eq!(table.remove(first, 'n', 0), None);
        let second = table.insert("second", 100).unwrap();
        assert_eq!(second.index, first.index);
        assert_eq!(second.generation, first.generation + 1);
        assert_eq!(table.get(first), Lookup::Unknown);
        assert_eq!(table.get_mut(second), Lookup::Live(&mut "second"));
        assert_eq!(table.get_mut(first), Lookup::Unknown);
        assert_eq!(table.remove(first, 'n', 0), None);
        for word in [0, 1, u64::MAX, 1 << 32 | 77] {
            assert_eq!(table.get(Handle::from_word(word)), Lookup::Unknown);
        }
    }

    #[test]
    fn a_burst_of_short_connections_takes_no_more_places_than_are_remembered() {
        let mut table = HandleTable::new(u32::MAX, 100);
        for at in 0..200_000 {
            let handle = table.insert(at, 0).unwrap();
            assert_eq!(table.remove(handle, (), 0), Some(at));
            assert_eq!(table.get(handle), Lookup::Ended(&()));
        }
        assert_eq!(table.slots.len(), MOST_REMEMBERED);
    }

    #[test]
    fn the_ended_are_remembered_while_there_is_room() {
        let mut table = HandleTable::new(3, 100);
        let handles: Vec<_> = (0..3).map(|at| table.insert(at, 0).unwrap()).collect();
        assert_eq!(table.insert(9, 0), Err(Full));
        table.remove(handles[1], (), 10);
        table.remove(handles[0], (), 20);
        assert_eq!(table.len(), 1);
        let again = table.insert(7, 30).unwrap();
        assert_eq!(again.index, handles[1].index, "the oldest when full");

        let mut table = HandleTable::new(3, 100);
        let first = table.insert(0, 0).unwrap();
        table.remove(first, (), 0);
        let second = table.insert(1, 99).unwrap();
        assert_ne!(second.index, first.index);
        let third = table.insert(2, 100).unwrap();
        assert_eq!(third.index, first.index);
        let live: Vec<_> = table.iter().map(|(handle, _)| handle).collect();
        assert_eq!(live, [third, second]);
        assert_eq!(table.iter_mut().count(), 2);
        assert!(!table.is_empty());
    }
}
