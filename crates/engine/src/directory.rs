//! The writer of the directory, which every program reads.

use crate::limits::MOST_LISTENERS;
use netchannel_abi::address::Address;
use netchannel_abi::copying::Rules;
use netchannel_abi::directory::{
    ENTRIES, ENTRIES_OFFSET, Entry, Header, LEFT, LOCAL_ADDRESSES, MAGIC, NETWORKS, SIZE, bucket,
    entry_flags,
};
use netchannel_service::memory;
use netchannel_service::published_ports::PublishedPorts;
use netchannel_shm::Region;
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// The content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The listener's number, never 0.
    pub listener: u32,
    /// `entry_flags`.
    pub flags: u32,
    /// The address of the listener.
    pub address: Address,
    /// A program that holds it.
    pub program: u32,
    /// The queue of its holders, 0 for none.
    pub queue: u64,
    /// The user of the programs that accept from the queue.
    pub queue_user: u32,
}

/// The state of a place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Empty,
    /// A removed listener: probes continue here.
    Left,
    Taken,
}

/// The directory. Nothing is ever read back from it: `rows` has its content, `places` the state of each place, from the
/// first listener on.
#[derive(Debug)]
pub struct Directory {
    descriptor: Rc<OwnedFd>,
    region: Arc<Region>,
    rows: HashMap<u32, (Row, usize)>,
    places: Vec<Place>,
    left: usize,
    sequence: u64,
    locals: Vec<Address>,
    networks: Vec<(Address, u32, bool)>,
}

/// This many removed places cause a rewrite of the table.
const MOST_LEFT: usize = ENTRIES / 4;

impl Directory {
    /// An empty directory.
    ///
    /// # Errors
    /// When the memory can not be allocated.
    pub fn create() -> Result<Self, Errno> {
        let (descriptor, region) = memory::published(c"netchannel-directory", SIZE)?;
        let directory = Self {
            descriptor: Rc::new(descriptor),
            region: Arc::new(region),
            rows: HashMap::new(),
            places: Vec::new(),
            left: 0,
            sequence: 0,
            locals: Vec::new(),
            networks: Vec::new(),
        };
        if let Some(header) = directory.header() {
            header.magic.store(MAGIC, Ordering::Release);
        }
        Ok(directory)
    }

    /// The descriptor that programs map, read-only.
    #[must_use]
    pub fn descriptor(&self) -> Rc<OwnedFd> {
        Rc::clone(&self.descriptor)
    }

    /// The owners of ports.
    #[must_use]
    pub fn published_ports(&self) -> PublishedPorts {
        PublishedPorts::new(Arc::clone(&self.region))
    }

    /// The local addresses in the directory.
    #[must_use]
    pub fn locals(&self) -> &[Address] {
        &self.locals
    }

    /// Adds a listener.
    ///
    /// # Errors
    /// `NOBUFS` when the directory is full.
    pub fn insert(&mut self, row: Row) -> Result<(), Errno> {
        if self.rows.len() >= MOST_LISTENERS {
            return Err(Errno::NOBUFS);
        }
        self.begin();
        self.place(row);
        self.commit();
        Ok(())
    }

    /// Removes a listener. Its place is marked as left, so that no probe ends early.
    pub fn remove(&mut self, listener: u32) {
        let Some((_, index)) = self.rows.remove(&listener) else {
            return;
        };
        if self.left >= MOST_LEFT {
            return self.rewrite();
        }
        self.begin();
        if let Some(entry) = self.entry(index) {
            entry.listener.store(LEFT, Ordering::Relaxed);
        }
        self.commit();
        self.set(index, Place::Left);
        self.left += 1;
    }

    /// Sets another program as the holder of a listener.
    pub fn assign(&mut self, listener: u32, program: u32) {
        self.change(listener, |row| row.program = program);
    }

    /// Sets the number of processes that hold a listener.
    pub fn hold(&mut self, listener: u32, holders: usize) {
        let count = u32::try_from(holders).map_or(entry_flags::MOST_HOLDERS, |count| {
            count.min(entry_flags::MOST_HOLDERS)
        });
        let shared = if holders > 1 { entry_flags::SHARED } else { 0 };
        self.change(listener, |row| {
            let others = row.flags & ((1 << entry_flags::HOLDERS_SHIFT) - 1) & !entry_flags::SHARED;
            row.flags = others | shared | count << entry_flags::HOLDERS_SHIFT;
        });
    }

    /// Sets how many retransmissions a silent client may need before it is accepted.
    pub fn defer(&mut self, listener: u32, times: u32) {
        let bits = times.min(entry_flags::MOST_DEFERS) << entry_flags::DEFERS_SHIFT;
        self.change(listener, |row| {
            row.flags = row.flags & !(entry_flags::MOST_DEFERS << entry_flags::DEFERS_SHIFT) | bits;
        });
    }

    /// Sets the queue from which all accepting programs, which are of `user`, accept; 0 for none.
    pub fn set_queue(&mut self, listener: u32, queue: u64, user: u32) {
        self.change(listener, |row| (row.queue, row.queue_user) = (queue, user));
    }

    fn change(&mut self, listener: u32, change: impl FnOnce(&mut Row)) {
        let Some((row, index)) = self.rows.get_mut(&listener) else {
            return;
        };
        let before = *row;
        change(row);
        let (row, index) = (*row, *index);
        if row != before {
            self.begin();
            self.write(&row, index);
            self.commit();
        }
    }

    /// Replaces the host's own addresses. Addresses that do not fit are left out: programs then treat them as remote,
    /// which is slower and correct.
    pub fn set_locals(&mut self, mut locals: Vec<Address>) {
        locals.truncate(LOCAL_ADDRESSES);
        if locals == self.locals {
            return;
        }
        self.begin();
        if let Some(header) = self.header() {
            for (shared, address) in header.local.iter().zip(&locals) {
                shared.store(address);
            }
            let count = u32::try_from(locals.len()).unwrap_or(0);
            header.locals.store(count, Ordering::Relaxed);
        }
        self.commit();
        self.locals = locals;
    }

    /// Replaces the networks of other hosts: an address, its prefix length in bits, and whether that host is up.
    /// Networks that do not fit are left out, which only makes the reason of a fallback less precise.
    pub fn set_networks(&mut self, mut networks: Vec<(Address, u32, bool)>) {
        networks.truncate(NETWORKS);
        if networks == self.networks {
            return;
        }
        self.begin();
        if let Some(header) = self.header() {
            for (shared, (address, bits, up)) in header.network.iter().zip(&networks) {
                shared.address.store(address);
                shared.bits.store(*bits, Ordering::Relaxed);
                shared.up.store(u32::from(*up), Ordering::Relaxed);
            }
            let count = u32::try_from(networks.len()).unwrap_or(0);
            header.networks.store(count, Ordering::Relaxed);
        }
        self.commit();
        self.networks = networks;
    }

    /// Publishes the owners of ports, as `owner_word` and `place_word` encode them.
    pub fn set_ports(&mut self, changes: &[(u16, u64)]) {
        let owners = self.published_ports();
        for (port, word) in changes {
            owners.set(*port, *word);
        }
    }

    /// Names the listener for every destination that has no entry.
    pub fn set_gateway(&mut self, number: u32) {
        if let Some(header) = self.header() {
            header.gateway.store(number, Ordering::Relaxed);
        }
    }

    /// Sets how large transfers are shared with copy workers.
    pub fn set_copying(&mut self, rules: &Rules) {
        if let Some(header) = self.header() {
            header.copying.store(rules);
        }
    }

    /// Marks that this daemon has ended in good order.
    pub fn end(&mut self) {
        self.rows.clear();
        self.rewrite();
        if let Some(header) = self.header() {
            header.ended.store(1, Ordering::Release);
        }
    }

    fn rewrite(&mut self) {
        self.begin();
        for index in 0..ENTRIES {
            if self
                .places
                .get(index)
                .is_some_and(|place| *place != Place::Empty)
                && let Some(entry) = self.entry(index)
            {
                entry.listener.store(0, Ordering::Relaxed);
            }
        }
        self.places.fill(Place::Empty);
        self.left = 0;
        for (row, _) in std::mem::take(&mut self.rows).into_values() {
            self.place(row);
        }
        self.commit();
    }

    /// Puts a row at the first free place of its probe sequence.
    fn place(&mut self, row: Row) {
        let start = bucket(row.address.port);
        let free = (0..ENTRIES)
            .map(|step| (start + step) & (ENTRIES - 1))
            .find(|index| self.places.get(*index) != Some(&Place::Taken));
        let Some(index) = free else { return };
        if self.places.get(index) == Some(&Place::Left) {
            self.left -= 1;
        }
        self.write(&row, index);
        self.set(index, Place::Taken);
        self.rows.insert(row.listener, (row, index));
    }

    fn write(&self, row: &Row, index: usize) {
        if let Some(entry) = self.entry(index) {
            entry.flags.store(row.flags, Ordering::Relaxed);
            entry.address.store(&row.address);
            entry.program.store(row.program, Ordering::Relaxed);
            entry.queue.store(row.queue, Ordering::Relaxed);
            entry.queue_user.store(row.queue_user, Ordering::Relaxed);
            entry.listener.store(row.listener, Ordering::Relaxed);
        }
    }

    fn set(&mut self, index: usize, place: Place) {
        self.places.resize(ENTRIES, Place::Empty);
        if let Some(known) = self.places.get_mut(index) {
            *known = place;
        }
    }

    /// Makes the sequence odd before any later write of this thread can be seen: pairs with the
    /// reader's acquire fence before it looks at the sequence again.
    fn begin(&mut self) {
        self.sequence += 1;
        if let Some(header) = self.header() {
            header.sequence.store(self.sequence, Ordering::Relaxed);
        }
        fence(Ordering::Release);
    }

    /// Makes the sequence even: pairs with the reader's acquire load of it.
    fn commit(&mut self) {
        self.sequence += 1;
        if let Some(header) = self.header() {
            header.sequence.store(self.sequence, Ordering::Release);
        }
    }

    fn header(&self) -> Option<&Header> {
        self.region.at(0)
    }

    fn entry(&self, index: usize) -> Option<&Entry> {
        self.region.at(ENTRIES_OFFSET + index * size_of::<Entry>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(listener: u32, port: u16) -> Row {
        Row {
            listener,
            flags: 0,
            address: Address::v4([127, 0, 0, 1], port),
            program: 1,
            queue: 0,
            queue_user: 0,
        }
    }

    /// What a program sees: every listener on a port, by probing until an empty entry.
    fn probe(directory: &Directory, port: u16) -> Vec<u32> {
        let mut found = Vec::new();
        for step in 0..ENTRIES {
            let entry = directory
                .entry((bucket(port) + step) & (ENTRIES - 1))
                .unwrap();
            let listener = entry.listener.load(Ordering::Relaxed);
            if listener == 0 {
                break;
            }
            if listener != LEFT && entry.address.load().port == port {
                found.push(listener);
            }
        }
        found
    }

    #[test]
    fn listeners_of_one_port_are_all_found_and_survive_each_others_removal() {
        let mut directory = Directory::create().unwrap();
        for listener in 1..=4 {
            directory.insert(row(listener, 80)).unwrap();
        }
        // 8272 = 80 + 8192 falls into the same bucket.
        directory.insert(row(9, 8272)).unwrap();
        directory.remove(2);
        assert_eq!(probe(&directory, 80), [1, 3, 4]);
        assert_eq!(probe(&directory, 8272), [9]);
        assert_eq!(directory.sequence % 2, 0);
    }

    #[test]
    fn places_that_were_left_are_used_again_and_do_not_pile_up() {
        let mut directory = Directory::create().unwrap();
        directory.insert(row(1, 80)).unwrap();
        for listener in 2..30_000 {
            let port = u16::try_from(1 + listener % 60_000).unwrap();
            directory.insert(row(listener, port)).unwrap();
            directory.remove(listener);
            assert!(directory.left <= MOST_LEFT);
        }
        directory.defer(1, 3);
        directory.hold(1, 300);
        directory.defer(1, 900);
        let said = directory.rows[&1].0.flags >> entry_flags::DEFERS_SHIFT;
        assert_eq!(said & entry_flags::MOST_DEFERS, entry_flags::MOST_DEFERS);
        directory.defer(1, 0);
        directory.assign(1, 7);
        assert_eq!(probe(&directory, 80), [1]);
        let entry = directory.entry(bucket(80)).unwrap();
        assert_eq!(entry.program.load(Ordering::Relaxed), 7);
        let flags = entry_flags::SHARED | 255 << entry_flags::HOLDERS_SHIFT;
        assert_eq!(entry.flags.load(Ordering::Relaxed), flags);
    }

    #[test]
    fn the_copy_policy_stands_in_the_header() {
        let mut directory = Directory::create().unwrap();
        let said = |directory: &Directory| directory.header().unwrap().copying.load();
        assert_eq!(said(&directory).workers, 0);
        let rules = Rules {
            workers: 2,
            ..said(&directory)
        };
        directory.set_copying(&rules);
        assert_eq!(said(&directory), rules);
    }

    #[test]
    fn it_is_never_more_than_half_full() {
        let mut directory = Directory::create().unwrap();
        for listener in 1..=u32::try_from(MOST_LISTENERS).unwrap() {
            let port = u16::try_from(listener % 60000).unwrap();
            directory.insert(row(listener, port)).unwrap();
        }
        assert_eq!(directory.insert(row(9999, 1)), Err(Errno::NOBUFS));
        directory.end();
        assert!(probe(&directory, 5).is_empty());
        let header = directory.header().unwrap();
        assert_eq!(header.ended.load(Ordering::Relaxed), 1);
    }
}
