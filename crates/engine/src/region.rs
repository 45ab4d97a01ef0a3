//! The entries of one region. Entries whose pages were never written are skipped.

use crate::process_registry::ProcessRegistry;
use crate::program::ProgramRegion;
use crate::turn::Turn;
use netchannel_abi::address::{Address, INET, INET6};
use netchannel_abi::link::Role;
use netchannel_abi::program::{ENTRIES_OFFSET, Header, SocketEntry, State};
use netchannel_shm::{Outside, Snapshot};
use std::collections::HashSet;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Entries that are copied at once.
const ENTRIES_AT_ONCE: usize = 32;
/// The size of an entry.
const ENTRY: usize = size_of::<SocketEntry>();

/// Buffers for copies of shared memory, which each turn fills again.
#[derive(Debug)]
pub struct Copies {
    /// Some entries of a region.
    pub entries: Snapshot,
    /// A header, records of holders, or a slot.
    pub other: Snapshot,
}

impl Default for Copies {
    fn default() -> Self {
        Self {
            entries: Snapshot::new(ENTRIES_AT_ONCE * ENTRY),
            other: Snapshot::new(16 << 10),
        }
    }
}

/// A scan of a region, step by step.
#[derive(Debug)]
pub struct RegionScan {
    /// The number of entries that were ever used, as the region says.
    used: usize,
    next: usize,
    holders: ProcessRegistry,
}

/// The memory of a region, for reading.
fn memory(region: &ProgramRegion) -> Option<Outside> {
    let admitted = Outside::admit(region.memory.as_raw_fd(), region.size);
    admitted
        .inspect_err(|error| tracing::warn!("cannot look into a region ({error:?})"))
        .ok()
}

impl RegionScan {
    /// A scan that begins with the first entry.
    pub fn new(region: &ProgramRegion, copy: &mut Snapshot) -> Option<Self> {
        copy.fill(&memory(region)?, 0, size_of::<Header>()).ok()?;
        let header = copy.at::<Header>(0)?;
        let used = header.high_water.load(Acquire).min(region.entries);
        let entries = usize::try_from(region.entries).ok()?;
        Some(Self {
            used: usize::try_from(used).ok()?,
            next: 0,
            holders: ProcessRegistry::new(entries, header.holders.load(Acquire)),
        })
    }

    /// Whether no entry is left.
    pub const fn is_empty(&self) -> bool {
        self.next >= self.used
    }

    /// Continues for a turn, or until `visit` returns false. Returns whether the scan is complete.
    pub fn run_turn(
        &mut self,
        region: &ProgramRegion,
        copies: &mut Copies,
        turn: &Turn,
        mut visit: impl FnMut(&SocketEntry, State, &mut Snapshot) -> bool,
    ) -> bool {
        let Some(outside) = memory(region) else {
            return true;
        };
        let Copies { entries, other } = copies;
        if !self.holders.run_turn(&outside, other, turn) {
            return false;
        }
        while let Some(first) = next_page(&outside, self.next, self.used) {
            let count = copy_entries(&outside, entries, first, self.used);
            self.next = first + count;
            for index in first..first + count {
                let Some((entry, state)) = entry_at(entries, index) else {
                    continue;
                };
                let references = entry.references.load(Relaxed);
                if !self.holders.have_all_ended(index, references)
                    && (!visit(entry, state, other) || turn.is_over())
                {
                    self.next = index + 1;
                    return false;
                }
            }
            if turn.is_over() {
                return false;
            }
        }
        true
    }
}

/// The first entry from `next` on that begins in an existing page.
fn next_page(outside: &Outside, next: usize, used: usize) -> Option<usize> {
    if next >= used {
        return None;
    }
    let found = outside.next_data(ENTRIES_OFFSET + next * ENTRY)?;
    let first = (found - ENTRIES_OFFSET).div_ceil(ENTRY);
    Some(first).filter(|first| *first < used)
}

/// Copies some entries. Returns how many; at least one.
fn copy_entries(outside: &Outside, copy: &mut Snapshot, first: usize, used: usize) -> usize {
    let count = ENTRIES_AT_ONCE.min(used - first).max(1);
    // A failure leaves the copy empty, and no entry is shown.
    let _ = copy.fill(outside, ENTRIES_OFFSET + first * ENTRY, count * ENTRY);
    count
}

/// A copied entry, if it is in use.
fn entry_at(copy: &Snapshot, index: usize) -> Option<(&SocketEntry, State)> {
    let entry = copy.at::<SocketEntry>(ENTRIES_OFFSET + index * ENTRY)?;
    let state = State::from_word(entry.state.load(Acquire));
    (state != State::Free).then_some((entry, state))
}

/// Entries that are scanned in one go while a program waits for an answer.
const MOST_IN_ONE_GO: usize = 8192;

/// Visits the connected entries of a region, until `found` returns true. `None` where there are too many entries for
/// one go.
fn for_each_connected(
    region: &ProgramRegion,
    mut found: impl FnMut(&Outside, &mut Snapshot, u32, usize, &SocketEntry) -> bool,
) -> Option<bool> {
    let outside = memory(region)?;
    let mut copy = Snapshot::new(ENTRIES_AT_ONCE * ENTRY);
    let mut other = Snapshot::new(16 << 10);
    copy.fill(&outside, 0, size_of::<Header>()).ok()?;
    let header = copy.at::<Header>(0)?;
    let records = header.holders.load(Acquire);
    let used = header.high_water.load(Acquire);
    let used = usize::try_from(used.min(region.entries)).ok()?;
    let (mut next, mut examined) = (0, 0);
    while let Some(first) = next_page(&outside, next, used) {
        let count = copy_entries(&outside, &mut copy, first, used);
        next = first + count;
        examined += count;
        if examined > MOST_IN_ONE_GO {
            return None;
        }
        for index in first..next {
            if let Some((entry, State::Virtual)) = entry_at(&copy, index)
                && found(&outside, &mut other, records, index, entry)
            {
                return Some(true);
            }
        }
    }
    Some(false)
}

/// The links that entries of a region name; `None` where there are too many entries for one go.
pub fn named_links(region: &ProgramRegion) -> Option<HashSet<u64>> {
    let mut named = HashSet::new();
    for_each_connected(region, |_, _, _, _, entry| {
        named.insert(entry.link.load(Relaxed));
        false
    })?;
    Some(named)
}

/// Connections that conflict with a socket that a program is about to connect.
#[derive(Clone, Copy, Debug)]
pub struct ConflictQuery {
    /// The address to which that socket is bound.
    pub from: Address,
    /// Whether it is an IPv6 socket without IPv4.
    pub v6_only: bool,
    /// The destination.
    pub to: Address,
    /// Connections of this process do not count.
    pub process: u32,
}

impl ConflictQuery {
    fn has(&self, entry: &SocketEntry) -> bool {
        let (local, peer) = (entry.local.load(), entry.peer.load());
        entry.role.load(Relaxed) == Role::Client as u32
            && entry.process.load(Relaxed) != self.process
            && local.port == self.from.port
            && peer.unmapped() == self.to.unmapped()
            && self.covers(&local.unmapped())
    }

    /// Whether a socket with that binding also receives packets for `local`.
    fn covers(&self, local: &Address) -> bool {
        let plain = self.from.unmapped();
        if !self.from.is_wildcard() {
            return plain.family == local.family && plain.bytes == local.bytes;
        }
        match self.from.family {
            INET6 => !self.v6_only || local.family == INET6,
            _ => local.family == INET,
        }
    }
}

/// Whether connections of a region conflict; false where there are too many entries for one go.
pub fn has_conflict(region: &ProgramRegion, wanted: &ConflictQuery) -> bool {
    let mut holders = None;
    let found = for_each_connected(region, |outside, copy, header, index, entry| {
        if !wanted.has(entry) {
            return false;
        }
        let holders = holders.get_or_insert_with(|| {
            let mut holders = ProcessRegistry::new(region.entries as usize, header);
            while !holders.run_turn(outside, copy, &Turn::begin()) {}
            holders
        });
        !holders.have_all_ended(index, entry.references.load(Relaxed))
    });
    found == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchannel_shm::Access;
    use std::cell::{Cell, RefCell};

    #[test]
    fn links_are_found_between_holes_which_stay_holes() {
        let entries = 4096;
        let (region, size) = netchannel_service::memory::program_region(entries).unwrap();
        let mapped =
            netchannel_shm::Region::map(region.as_raw_fd(), size, Access::ReadWrite).unwrap();
        for index in [0, 1, 127, 128, 2000, 4095] {
            let offset = ENTRIES_OFFSET + index * size_of::<SocketEntry>();
            let entry: &SocketEntry = mapped.at(offset).unwrap();
            entry.state.store(State::Virtual as u32, Relaxed);
            entry.link.store(index as u64 + 7, Relaxed);
        }
        let region = ProgramRegion {
            program: 1,
            user: 1000,
            number: 1,
            memory: region,
            size,
            entries,
            ports: RefCell::default(),
            links: Cell::default(),
            requested_since_search: Cell::default(),
        };
        let header: &Header = mapped.at(0).unwrap();
        header.high_water.store(entries, Relaxed);
        let client: &SocketEntry = mapped
            .at(ENTRIES_OFFSET + 2000 * size_of::<SocketEntry>())
            .unwrap();
        let (own, to) = (Address::loopback(false, 700), Address::loopback(false, 80));
        client.role.store(Role::Client as u32, Relaxed);
        client.references.store(1, Relaxed);
        client.process.store(9, Relaxed);
        client.local.store(&own);
        client.peer.store(&to);
        let wanted = ConflictQuery {
            from: own,
            v6_only: false,
            to,
            process: 8,
        };
        let any = |port| Address::v6([0; 16], port, 0);
        let there = |wanted: ConflictQuery| has_conflict(&region, &wanted);
        assert!(there(wanted));
        assert!(there(ConflictQuery {
            from: any(700),
            ..wanted
        }));
        for other in [
            ConflictQuery { to: own, ..wanted },
            ConflictQuery {
                from: any(701),
                ..wanted
            },
            ConflictQuery {
                from: any(700),
                v6_only: true,
                ..wanted
            },
            ConflictQuery {
                process: 9,
                ..wanted
            },
        ] {
            assert!(!there(other), "{other:?}");
        }
        let before = netchannel_service::memory::occupied(&region.memory);
        let found = named_links(&region).unwrap();
        assert_eq!(found, HashSet::from([7, 8, 134, 135, 2007, 4102]));
        assert_eq!(netchannel_service::memory::occupied(&region.memory), before);
    }
}
