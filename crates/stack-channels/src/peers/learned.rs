//! The announcements of a peer, and their part that goes into the directory: at most what the configuration lets the
//! peer announce, as entries for single addresses.
//!
//! ```text
//!  LISTEN, UNLISTEN, LISTEN_END --> listeners, by port --+
//!  ADDRESSES --> usable: within its prefixes, not ours --+--> wanted entries of a port <--> present ones
//! ```

use super::settings::PeerSettings;
pub use crate::announcement::Announcement;
use crate::prefix::{ip, is_unicast};
use netchannel_abi::address::{Address, INET, INET6};
use netchannel_wire::Listen;
use netchannel_wire::announce::ReceivedSerials;
use std::collections::{BTreeMap, BTreeSet};

/// The limit of a peer's listeners on one port: as many as a host has that gives each processor one. A look-up of a
/// listener visits all of them.
const MOST_ON_A_PORT: usize = 256;

/// The directory, as peers use it.
pub trait Listings {
    /// Shows a listener of a peer to programs: number `theirs` on the peer, at `address`. Returns its number on this
    /// host, or `None` where there is no room.
    fn insert(&mut self, start: super::StartId, theirs: u32, address: &Address) -> Option<u32>;

    /// Removes an entry.
    fn remove(&mut self, number: u32);
}

#[derive(Clone, Copy, Debug)]
struct KnownListener {
    serial: u64,
    address: Address,
    v6_only: bool,
}

/// An entry of the directory: the address, and the number of the peer's listener.
type Row = ([u64; 3], u32);

/// Announcements that were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Listeners at addresses that the peer may not announce.
    pub outside: u64,
    /// Listeners and entries beyond the limits.
    pub beyond: u64,
}

/// The announcements of one start of a peer.
#[derive(Debug, Default)]
pub struct Learned {
    serials: ReceivedSerials,
    listeners: BTreeMap<u32, KnownListener>,
    ports: BTreeMap<u16, BTreeSet<u32>>,
    addresses: Vec<Address>,
    usable: Vec<Address>,
    rows: BTreeMap<u16, BTreeMap<Row, u32>>,
    entries: usize,
    dirty: BTreeSet<u16>,
    /// The number of announcements left out so far.
    pub left_out: LeftOut,
}

impl Learned {
    /// Handles an announcement. `most` is the limit of listeners that the peer may announce.
    pub fn take(&mut self, announcement: Announcement, peer: &PeerSettings, most: usize) {
        let serial = match &announcement {
            Announcement::Addresses(serial, _) => *serial,
            Announcement::Listen(it) => it.serial,
            Announcement::Unlisten(it) => it.serial,
            Announcement::ListenEnd(it) => it.serial,
        };
        if !self.serials.is_news(serial) {
            return;
        }
        match announcement {
            Announcement::Addresses(_, addresses) => self.addresses = addresses,
            Announcement::Listen(listen) => self.listen(&listen, peer, most),
            Announcement::Unlisten(unlisten) => self.remove(unlisten.listener),
            Announcement::ListenEnd(end) => {
                let mut known = self.listeners.iter();
                let gone = known.by_ref().filter(|(_, known)| known.serial < end.first);
                for listener in gone.map(|(listener, _)| *listener).collect::<Vec<_>>() {
                    self.remove(listener);
                }
            }
        }
    }

    fn listen(&mut self, listen: &Listen, peer: &PeerSettings, most: usize) {
        let address = listen.address.unmapped();
        self.remove(listen.listener);
        let allowed = listen.address.is_wildcard()
            || ip(&address).is_some_and(|ip| is_unicast(ip) && peer.may_announce(ip));
        if !allowed || address.port == 0 {
            self.left_out.outside += 1;
            return;
        }
        let same_port = self.ports.get(&address.port).map_or(0, BTreeSet::len);
        if self.listeners.len() >= most || same_port >= MOST_ON_A_PORT {
            self.left_out.beyond += 1;
            return;
        }
        let known = KnownListener {
            serial: listen.serial,
            address,
            v6_only: listen.v6_only,
        };
        self.listeners.insert(listen.listener, known);
        self.ports
            .entry(address.port)
            .or_default()
            .insert(listen.listener);
        self.dirty.insert(address.port);
    }

    fn remove(&mut self, listener: u32) {
        let Some(known) = self.listeners.remove(&listener) else {
            return;
        };
        let port = known.address.port;
        if let Some(same) = self.ports.get_mut(&port) {
            same.remove(&listener);
            if same.is_empty() {
                self.ports.remove(&port);
            }
        }
        self.dirty.insert(port);
    }

    /// Applies a change of the peer's addresses, of this host's addresses, or of the networks that the peer may
    /// announce. `own` are this host's addresses.
    pub fn review(&mut self, peer: &PeerSettings, own: &[Address]) {
        let is_own = |address: &Address| own.iter().any(|own| own.bytes == address.bytes);
        let usable = self
            .addresses
            .iter()
            .map(Address::unmapped)
            .filter(|address| {
                let may = |ip| is_unicast(ip) && peer.may_announce(ip);
                ip(address).is_some_and(may) && !is_own(address)
            });
        let mut usable: Vec<Address> = usable.collect();
        usable.sort_by_key(Address::to_words);
        usable.dedup();
        // An exact address may be outside the prefixes now, or this host's own.
        let lost = self.listeners.iter().filter(|(_, known)| {
            let may = |ip| peer.may_announce(ip);
            !known.address.is_wildcard() && !ip(&known.address).is_some_and(may)
        });
        for listener in lost.map(|(listener, _)| *listener).collect::<Vec<_>>() {
            self.remove(listener);
            self.left_out.outside += 1;
        }
        self.usable = usable;
        self.dirty.extend(self.ports.keys());
        self.dirty.extend(self.rows.keys());
    }

    /// Brings the directory up to date. While the peer is not `up` it has no entries: connections go over kernel TCP at
    /// once.
    pub fn publish(
        &mut self,
        start: super::StartId,
        up: bool,
        most: usize,
        own: &[Address],
        listings: &mut dyn Listings,
    ) {
        for port in std::mem::take(&mut self.dirty) {
            let wanted = if up {
                self.wanted(port, own)
            } else {
                BTreeSet::new()
            };
            let present = self.rows.entry(port).or_default();
            let before = present.len();
            present.retain(|row, number| {
                let stays = wanted.contains(row);
                if !stays {
                    listings.remove(*number);
                }
                stays
            });
            self.entries -= before - present.len();
            for row in wanted {
                if present.contains_key(&row) {
                    continue;
                }
                let address = Address::from_words(row.0);
                let room = self.entries < most;
                match room
                    .then(|| listings.insert(start, row.1, &address))
                    .flatten()
                {
                    Some(number) => {
                        present.insert(row, number);
                        self.entries += 1;
                    }
                    None => self.left_out.beyond += 1,
                }
            }
            if present.is_empty() {
                self.rows.remove(&port);
            }
        }
    }

    /// Marks everything for an update: the peer came up or went down.
    pub fn mark_all_dirty(&mut self) {
        self.dirty.extend(self.ports.keys());
        self.dirty.extend(self.rows.keys());
    }

    /// The entries that a port must have. As in the kernel, an exact address precedes a wildcard, and the same family
    /// precedes dual stack.
    fn wanted(&self, port: u16, own: &[Address]) -> BTreeSet<Row> {
        let listeners = self.ports.get(&port).into_iter().flatten();
        let listeners = listeners.filter_map(|one| Some((*one, *self.listeners.get(one)?)));
        let listeners: Vec<(u32, KnownListener)> = listeners.collect();
        let exact = listeners.iter().map(|(_, known)| known.address);
        let exact = exact.filter(|address| !address.is_wildcard());
        let exact = exact.filter(|exact| !own.iter().any(|own| own.bytes == exact.bytes));
        let mut wanted = BTreeSet::new();
        for address in self.usable.iter().copied().chain(exact) {
            let address = Address {
                port,
                scope: 0,
                ..address
            };
            let scores = listeners.iter().map(|(_, known)| score(known, &address));
            let best = scores.max().unwrap_or(0);
            if best > 0 {
                let best = listeners
                    .iter()
                    .filter(|(_, one)| score(one, &address) == best);
                wanted.extend(best.map(|(listener, _)| (address.to_words(), *listener)));
            }
        }
        wanted
    }

    /// Forgets everything. Returns the numbers of its entries.
    pub fn take_entries(&mut self) -> Vec<u32> {
        let rows = std::mem::take(self).rows.into_values();
        rows.flat_map(BTreeMap::into_values).collect()
    }

    /// Entries in the directory.
    #[must_use]
    pub const fn entries(&self) -> usize {
        self.entries
    }

    /// The ports with entries.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        let rows = self.rows.iter().filter(|(_, rows)| !rows.is_empty());
        rows.map(|(port, _)| *port).collect()
    }

    /// The number of known listeners.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.listeners.len()
    }
}

fn score(known: &KnownListener, address: &Address) -> u8 {
    if !known.address.is_wildcard() {
        return if known.address.bytes == address.bytes && known.address.family == address.family {
            3
        } else {
            0
        };
    }
    match (known.address.family, address.family) {
        (INET, INET) | (INET6, INET6) => 2,
        (INET6, INET) if !known.v6_only => 1,
        _ => 0,
    }
}
