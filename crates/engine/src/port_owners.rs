//! The user of each port: of ports in blocks that the daemon gave, and of ports that a program has bound in the kernel
//! and shown. Changes are returned, to be published in the directory.

use crate::ports::Block;
use netchannel_abi::directory::owner_word;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// A port, and its new word.
pub type Change = (u16, u64);

/// Why a port has its present word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortState {
    /// Nobody has the port. Its word still names the last owner, since a connection of that time may still wait for
    /// accept.
    Free,
    /// The port is part of a block.
    InBlock,
    /// A program has shown the port, in the name of this region.
    Shown(u64),
}

/// A published word, and its reason.
type Known = (u64, PortState);

/// Ports that have their words in one piece of memory, as many as a block has.
const SECTION: usize = 256;

/// The owners of all ports.
#[derive(Debug)]
pub struct PortOwners {
    /// The words of ports by section. One in which no port ever had an owner is not there: a tenant has few ports.
    sections: Vec<Option<Box<[Known; SECTION]>>>,
    /// Shown ports by region, in the order in which they were shown.
    by_region: HashMap<u64, VecDeque<u16>>,
    /// Ports with each region that has shown them, even where another one did so later, and the same pairs by region.
    regions: BTreeSet<(u16, u64)>,
    showed: BTreeSet<(u64, u16)>,
    /// The limit for one region.
    bound: usize,
}

impl PortOwners {
    /// No port has an owner. At most `bound` shown ports of one region are kept.
    #[must_use]
    pub fn new(bound: usize) -> Self {
        Self {
            sections: Vec::new(),
            by_region: HashMap::new(),
            regions: BTreeSet::new(),
            showed: BTreeSet::new(),
            bound: bound.max(1),
        }
    }

    /// Gives a block to a user.
    pub fn give(&mut self, block: Block, user: u32) -> Vec<Change> {
        let word = u64::from(owner_word(user));
        ports(block)
            .map(|port| {
                self.forget(port);
                self.set(port, word, PortState::InBlock)
            })
            .collect()
    }

    /// Takes a block back.
    pub fn take_back(&mut self, block: Block) {
        ports(block).for_each(|port| self.release(port));
    }

    /// A program of `user` has shown, by a bound socket, that it has a port at a place. Another user, or the same one
    /// at another place, may have bound the port too. The first one has it as long as its region lasts, so that nobody
    /// can take away a port on which another relies. Connections of the others go over kernel TCP.
    ///
    /// # Errors
    /// `ADDRINUSE` where another program has it.
    pub fn show(
        &mut self,
        port: u16,
        place: u32,
        user: u32,
        region: u64,
    ) -> Result<Vec<Change>, Errno> {
        let owner = u64::from(owner_word(user));
        let own = u64::from(place) << 32 | owner;
        let (word, held) = self.at(port);
        match held {
            PortState::Free => {}
            PortState::InBlock if word == owner => {
                self.note_shown(port, region);
                return Ok(Vec::new());
            }
            PortState::Shown(_) if word == own => self.forget(port),
            PortState::InBlock | PortState::Shown(_) => return Err(Errno::ADDRINUSE),
        }
        let before = self.by_region.entry(region).or_default();
        before.push_back(port);
        if before.len() > self.bound
            && let Some(oldest) = before.pop_front()
        {
            self.release(oldest);
        }
        self.note_shown(port, region);
        Ok(vec![self.set(port, own, PortState::Shown(region))])
    }

    /// A region is not used any more.
    pub fn forget_region(&mut self, region: u64) {
        let ports = self.by_region.remove(&region).unwrap_or_default();
        ports.into_iter().for_each(|port| self.release(port));
        let showed = self.showed.range((region, 0)..=(region, u16::MAX));
        for one in showed.copied().collect::<Vec<_>>() {
            self.showed.remove(&one);
            self.regions.remove(&(one.1, one.0));
        }
    }

    /// The regions that have shown a port.
    pub fn regions_of(&self, port: u16) -> impl Iterator<Item = u64> {
        let all = self.regions.range((port, 0)..=(port, u64::MAX));
        all.map(|(_, region)| *region)
    }

    fn note_shown(&mut self, port: u16, region: u64) {
        let known = self.showed.range((region, 0)..=(region, u16::MAX));
        if known.count() < self.bound {
            self.showed.insert((region, port));
            self.regions.insert((port, region));
        }
    }

    /// Removes a port from the shown ones.
    fn forget(&mut self, port: u16) {
        let (_, PortState::Shown(region)) = self.at(port) else {
            return;
        };
        if let Some(ports) = self.by_region.get_mut(&region) {
            ports.retain(|one| *one != port);
            if ports.is_empty() {
                self.by_region.remove(&region);
            }
        }
    }

    fn at(&self, port: u16) -> Known {
        let (section, index) = place(port);
        let section = self.sections.get(section).and_then(Option::as_deref);
        section.map_or(UNKNOWN, |section| section[index])
    }

    fn release(&mut self, port: u16) {
        let (section, index) = place(port);
        if let Some(Some(section)) = self.sections.get_mut(section) {
            section[index].1 = PortState::Free;
        }
    }

    fn set(&mut self, port: u16, word: u64, held: PortState) -> Change {
        let (section, index) = place(port);
        if self.sections.len() <= section {
            self.sections.resize(section + 1, None);
        }
        if let Some(section) = self.sections.get_mut(section) {
            let known = section.get_or_insert_with(|| Box::new([UNKNOWN; SECTION]));
            known[index] = (word, held);
        }
        (port, word)
    }
}

/// Of a port that nobody ever had.
const UNKNOWN: Known = (0, PortState::Free);

/// The section of a port, and its index there, which is below [`SECTION`].
fn place(port: u16) -> (usize, usize) {
    (usize::from(port) / SECTION, usize::from(port) % SECTION)
}

fn ports(block: Block) -> impl Iterator<Item = u16> {
    (0..block.count).filter_map(move |index| block.first.checked_add(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: Block = Block {
        first: 10000,
        count: 3,
    };

    #[test]
    fn a_block_is_its_users_until_it_goes_back() {
        let mut owners = PortOwners::new(4);
        let given = owners.give(BLOCK, 0);
        assert_eq!(given, [(10000, 1), (10001, 1), (10002, 1)]);
        assert_eq!(owners.show(10001, 0, 7, 1), Err(Errno::ADDRINUSE));
        assert_eq!(owners.show(10001, 9, 0, 1), Ok(Vec::new()));
        owners.take_back(BLOCK);
        assert_eq!(owners.at(10001), (1, PortState::Free), "who had it last");
        assert_eq!(owners.show(10001, 0, 7, 1), Ok(vec![(10001, 8)]));
    }

    #[test]
    fn who_shows_a_port_first_has_it_while_his_region_lasts() {
        let mut owners = PortOwners::new(4);
        let at = |place: u64, owner: u64| place << 32 | owner;
        assert_eq!(owners.show(80, 5, 7, 1), Ok(vec![(80, at(5, 8))]));
        assert_eq!(owners.show(80, 5, 9, 2), Err(Errno::ADDRINUSE));
        assert_eq!(owners.show(80, 6, 9, 2), Err(Errno::ADDRINUSE));
        assert_eq!(owners.show(80, 6, 7, 1), Err(Errno::ADDRINUSE));
        // Another program of the user has the socket now.
        assert_eq!(owners.show(80, 5, 7, 3), Ok(vec![(80, at(5, 8))]));
        owners.forget_region(1);
        assert_eq!(owners.show(80, 6, 9, 2), Err(Errno::ADDRINUSE));
        owners.forget_region(3);
        assert_eq!(owners.show(80, 6, 9, 2), Ok(vec![(80, at(6, 10))]));
        // A block takes it over.
        owners.show(10000, 5, 7, 3).unwrap();
        owners.give(BLOCK, 9);
        owners.forget_region(3);
        assert_eq!(owners.at(10000), (10, PortState::InBlock));
    }

    #[test]
    fn all_regions_that_have_shown_a_port_are_known() {
        let mut owners = PortOwners::new(2);
        owners.show(80, 5, 7, 1).unwrap();
        owners.show(80, 5, 7, 3).unwrap();
        owners.show(81, 5, 7, 3).unwrap();
        assert_eq!(owners.show(80, 5, 8, 4), Err(Errno::ADDRINUSE));
        let of = |owners: &PortOwners, port| owners.regions_of(port).collect::<Vec<_>>();
        assert_eq!(of(&owners, 80), [1, 3]);
        assert_eq!(of(&owners, 81), [3]);
        owners.show(82, 5, 7, 3).unwrap();
        assert!(of(&owners, 82).is_empty(), "no more than may be");
        owners.forget_region(3);
        assert_eq!(of(&owners, 80), [1]);
        assert!(of(&owners, 81).is_empty());
        assert!(owners.showed.len() == 1 && owners.regions.len() == 1);
    }

    #[test]
    fn the_oldest_that_a_region_showed_makes_room() {
        let mut owners = PortOwners::new(2);
        for port in [80, 81, 80, 82] {
            owners.show(port, 0, 7, 1).unwrap();
        }
        let held = [80, 81, 82].map(|port| owners.at(port).1);
        assert_eq!(
            held,
            [PortState::Shown(1), PortState::Free, PortState::Shown(1)]
        );
    }
}
