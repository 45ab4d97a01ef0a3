//! Those who ask name servers: the stack's end of each pair.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// As many as a tenant may have on the host.
const MOST: usize = 256;
/// Their names among the worker's own descriptors begin here.
pub const FIRST_ASKER: u32 = 16;

/// By number. A number is used again late, so that no answer finds another one.
#[derive(Debug, Default)]
pub struct Askers {
    ends: BTreeMap<u32, OwnedFd>,
    next: u32,
}

impl Askers {
    /// Adds one. Returns its number; `None` where there are too many.
    pub fn add(&mut self, end: OwnedFd) -> Option<u32> {
        if self.ends.len() >= MOST {
            return None;
        }
        while self.ends.contains_key(&self.next) {
            self.step();
        }
        let number = self.next;
        self.step();
        self.ends.insert(number, end);
        Some(number)
    }

    const fn step(&mut self) {
        self.next = (self.next + 1) % (u32::MAX - FIRST_ASKER);
    }

    /// The end of one.
    pub fn get(&self, number: u32) -> Option<&OwnedFd> {
        self.ends.get(&number)
    }

    /// Takes one out.
    pub fn remove(&mut self, number: u32) {
        self.ends.remove(&number);
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_not_used_again_at_once_and_there_are_not_too_many() {
        let end = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let mut askers = Askers::default();
        assert_eq!(askers.add(end()), Some(0));
        askers.remove(0);
        for number in 1..=256 {
            assert_eq!(askers.add(end()), Some(number));
        }
        assert_eq!(askers.add(end()), None);
        assert!(askers.get(256).is_some() && askers.get(0).is_none());
        askers.next = u32::MAX - FIRST_ASKER - 1;
        askers.remove(7);
        assert_eq!(askers.add(end()), Some(u32::MAX - FIRST_ASKER - 1));
        askers.remove(8);
        assert_eq!(askers.add(end()), Some(0));
    }
}
