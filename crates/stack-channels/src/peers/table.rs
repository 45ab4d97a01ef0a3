//! Channels that are not open yet, by age: bounded, and the oldest make room for new ones.

use super::half_open::HalfOpen;
use super::poll::Poll;
use netchannel_wire::Class;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

/// Channels that were refused and whose other end has not gone yet.
const MOST_PARTING: usize = 16;

/// Where a channel comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This host dialled it.
    Dialled {
        /// Whom.
        peer: u32,
        /// Class.
        class: Class,
        /// Number.
        number: u16,
    },
    /// It came in from an address of this peer.
    Accepted {
        /// Whose.
        peer: u32,
    },
    /// It was refused.
    Refused,
}

/// One of them.
pub struct Entry {
    /// Its handshake.
    pub half_open: HalfOpen,
    /// Where it comes from.
    pub origin: Origin,
    /// The other end.
    pub address: SocketAddr,
    /// When it is given up.
    pub deadline: Instant,
    /// The transport has taken what was said first.
    pub connected: bool,
    /// Room to write is waited for.
    waits_for_room: bool,
}

/// All of them.
pub struct Table {
    poll: Poll,
    entries: BTreeMap<u64, Entry>,
    last: u64,
}

/// Names from here on are for others that share the set.
pub const OTHERS: u64 = 1 << 63;

impl Table {
    /// An empty table.
    ///
    /// # Errors
    /// The errno of `epoll_create1`.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            poll: Poll::new()?,
            entries: BTreeMap::new(),
            last: 0,
        })
    }

    /// What wakes it.
    pub const fn poll(&self) -> &Poll {
        &self.poll
    }

    /// Takes one in.
    ///
    /// # Errors
    /// When it can not be watched.
    pub fn insert(
        &mut self,
        half_open: HalfOpen,
        origin: Origin,
        address: SocketAddr,
        deadline: Instant,
    ) -> Result<u64, Errno> {
        self.last += 1;
        let room = half_open.has_unsent();
        self.poll.add(half_open.descriptor(), self.last, room)?;
        let entry = Entry {
            half_open,
            origin,
            address,
            deadline,
            connected: false,
            waits_for_room: room,
        };
        self.entries.insert(self.last, entry);
        Ok(self.last)
    }

    /// One of them.
    pub fn get_mut(&mut self, name: u64) -> Option<&mut Entry> {
        self.entries.get_mut(&name)
    }

    /// Watches for what it waits for now.
    pub fn watch(&mut self, name: u64) {
        if let Some(entry) = self.entries.get_mut(&name) {
            let room = entry.half_open.has_unsent();
            if room != entry.waits_for_room {
                entry.waits_for_room = room;
                self.poll.change(entry.half_open.descriptor(), name, room);
            }
        }
    }

    /// Takes one out.
    pub fn remove(&mut self, name: u64) -> Option<Entry> {
        let entry = self.entries.remove(&name)?;
        self.poll.remove(entry.half_open.descriptor());
        Some(entry)
    }

    /// The oldest one that came in, if there are `most` or more of them.
    pub fn too_many(&self, most: usize) -> Option<u64> {
        let came = |origin| matches!(origin, Origin::Accepted { .. });
        self.oldest(came, most)
    }

    /// The oldest one that was refused, if there are too many of them.
    pub fn too_many_parting(&self) -> Option<u64> {
        self.oldest(|origin| origin == Origin::Refused, MOST_PARTING + 1)
    }

    fn oldest(&self, which: impl Fn(Origin) -> bool, most: usize) -> Option<u64> {
        let mut found = self.entries.iter().filter(|(_, entry)| which(entry.origin));
        let oldest = found.next().map(|(name, _)| *name);
        oldest.filter(|_| 1 + found.count() >= most)
    }

    /// Those of which the time is over.
    pub fn overdue(&self, now: Instant) -> Vec<u64> {
        let overdue = self.entries.iter().filter(|(_, one)| one.deadline <= now);
        overdue.map(|(name, _)| *name).collect()
    }

    /// Those of a peer.
    pub fn of_peer(&self, of: u32) -> Vec<u64> {
        let of_peer = self.entries.iter().filter(|(_, one)| match one.origin {
            Origin::Dialled { peer, .. } | Origin::Accepted { peer } => peer == of,
            Origin::Refused => false,
        });
        of_peer.map(|(name, _)| *name).collect()
    }

    /// When the next of them is overdue.
    pub fn deadline(&self) -> Option<Instant> {
        self.entries.values().map(|entry| entry.deadline).min()
    }

    /// How many came in and are not decided.
    pub fn accepted(&self) -> usize {
        let came = |entry: &&Entry| matches!(entry.origin, Origin::Accepted { .. });
        self.entries.values().filter(came).count()
    }

    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}
