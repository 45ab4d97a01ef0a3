//! Lists of small numbers in which every operation takes constant time, whatever their length.

/// Numbers, each at most once, in no order.
#[derive(Default)]
pub struct NumberSet {
    members: Vec<u32>,
    /// Position of each number in `members` plus one; 0 where it is absent.
    positions: Vec<u32>,
}

impl NumberSet {
    /// Adds a number, unless it is in the set.
    pub fn insert(&mut self, number: u32) {
        let index = number as usize;
        if self.positions.len() <= index {
            self.positions.resize(index + 1, 0);
        }
        if self.positions[index] == 0 {
            self.members.push(number);
            self.positions[index] = u32::try_from(self.members.len()).unwrap_or(0);
        }
    }

    /// Removes a number. Whether it was in the set.
    pub fn remove(&mut self, number: u32) -> bool {
        let Some(place) = self.positions.get_mut(number as usize) else {
            return false;
        };
        let Some(index) = core::mem::take(place).checked_sub(1) else {
            return false;
        };
        self.members.swap_remove(index as usize);
        if let Some(moved) = self.members.get(index as usize) {
            self.positions[*moved as usize] = index + 1;
        }
        true
    }

    /// Removes an arbitrary number.
    pub fn pop(&mut self) -> Option<u32> {
        let number = self.members.pop()?;
        self.positions[number as usize] = 0;
        Some(number)
    }

    /// All numbers.
    pub fn as_slice(&self) -> &[u32] {
        &self.members
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

/// Neighbours of a number in a [`Queue`].
#[derive(Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
}

/// Marks a number that is not in the queue.
const ABSENT: u32 = u32::MAX;
/// Marks an end of the queue.
const END: u32 = u32::MAX - 1;

/// Numbers, each at most once, first in first out.
pub struct Queue {
    links: Vec<Link>,
    first: u32,
    last: u32,
    length: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            first: END,
            last: END,
            length: 0,
        }
    }
}

impl Queue {
    /// Adds a number at the end, unless it is in the queue.
    pub fn push(&mut self, number: u32) {
        let index = number as usize;
        if number >= END || self.contains(number) {
            return;
        }
        if self.links.len() <= index {
            let absent = Link {
                before: ABSENT,
                after: ABSENT,
            };
            self.links.resize(index + 1, absent);
        }
        self.links[index] = Link {
            before: self.last,
            after: END,
        };
        match self.links.get_mut(self.last as usize) {
            Some(last) => last.after = number,
            None => self.first = number,
        }
        self.last = number;
        self.length += 1;
    }

    /// Removes a number from anywhere in the queue.
    pub fn remove(&mut self, number: u32) {
        let Some(place) = self.links.get_mut(number as usize) else {
            return;
        };
        let Link { before, after } = *place;
        if before == ABSENT {
            return;
        }
        place.before = ABSENT;
        place.after = ABSENT;
        match self.links.get_mut(before as usize) {
            Some(neighbour) => neighbour.after = after,
            None => self.first = after,
        }
        match self.links.get_mut(after as usize) {
            Some(neighbour) => neighbour.before = before,
            None => self.last = before,
        }
        self.length -= 1;
    }

    /// The first number.
    pub fn front(&self) -> Option<u32> {
        (self.first != END).then_some(self.first)
    }

    /// Takes the first number.
    pub fn pop(&mut self) -> Option<u32> {
        let first = self.front()?;
        self.remove(first);
        Some(first)
    }

    /// Whether the number is in the queue.
    pub fn contains(&self, number: u32) -> bool {
        self.links
            .get(number as usize)
            .is_some_and(|link| link.before != ABSENT)
    }

    /// The number of elements.
    pub const fn len(&self) -> usize {
        self.length
    }
}

/// A map from descriptors to numbers.
#[derive(Default)]
pub struct DescriptorMap {
    numbers: Vec<u32>,
}

impl DescriptorMap {
    /// The number of a descriptor.
    pub fn get(&self, fd: i32) -> Option<u32> {
        self.numbers.get(usize::try_from(fd).ok()?)?.checked_sub(1)
    }

    /// Sets the number of a descriptor.
    pub fn set(&mut self, fd: i32, number: u32) {
        let Ok(index) = usize::try_from(fd) else {
            return;
        };
        if self.numbers.len() <= index {
            self.numbers.resize(index + 1, 0);
        }
        self.numbers[index] = number + 1;
    }

    /// Removes a descriptor, if its number is `number`.
    pub fn clear(&mut self, fd: i32, number: u32) {
        if self.get(fd) == Some(number)
            && let Some(place) = usize::try_from(fd)
                .ok()
                .and_then(|i| self.numbers.get_mut(i))
        {
            *place = 0;
        }
    }
}
