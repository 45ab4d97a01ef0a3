//! Which connection has a slot of a link.

use netchannel_service::cells::Key;

/// No connection.
const NONE: u32 = u32::MAX;

/// Numbers of connections, by link and slot.
#[derive(Debug, Default)]
pub struct Places(Vec<Vec<u32>>);

impl Places {
    /// Connection `number` has a slot.
    pub fn set(&mut self, (key, slot): (Key, u32), number: usize) {
        let (link, slot) = (index(key), index(slot));
        if self.0.len() <= link {
            self.0.resize_with(link + 1, Vec::new);
        }
        if let Some(slots) = self.0.get_mut(link) {
            if slots.len() <= slot {
                slots.resize(slot + 1, NONE);
            }
            if let (Some(place), Ok(number)) = (slots.get_mut(slot), u32::try_from(number)) {
                *place = number;
            }
        }
    }

    /// The connection that has a slot.
    #[inline]
    pub fn get(&self, key: Key, slot: u32) -> Option<usize> {
        let number = *self.0.get(index(key))?.get(index(slot))?;
        (number != NONE).then_some(index(number))
    }

    /// No connection has the slot any more.
    pub fn remove(&mut self, (key, slot): (Key, u32)) {
        let slots = self.0.get_mut(index(key));
        if let Some(place) = slots.and_then(|slots| slots.get_mut(index(slot))) {
            *place = NONE;
        }
    }

    /// The link is gone, and its key may be another's.
    pub fn remove_link(&mut self, key: Key) {
        if let Some(slots) = self.0.get_mut(index(key)) {
            slots.clear();
        }
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_have_connections_until_they_are_removed() {
        let mut places = Places::default();
        assert_eq!(places.get(3, 7), None);
        places.set((3, 7), 42);
        places.set((0, 0), 1);
        assert_eq!((places.get(3, 7), places.get(0, 0)), (Some(42), Some(1)));
        assert_eq!((places.get(3, 6), places.get(2, 7)), (None, None));
        places.remove((3, 7));
        assert_eq!(places.get(3, 7), None);
        places.set((3, 1), 5);
        places.remove_link(3);
        assert_eq!(places.get(3, 1), None);
    }
}
