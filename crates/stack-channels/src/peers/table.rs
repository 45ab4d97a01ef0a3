//! Channels that are not open yet, by age. Their number is bounded, and the oldest make room for new ones.

use super::half_open::HalfOpen;
use super::poll::Poll;
use netchannel_wire::Class;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

/// The limit of refused channels whose other end has not closed yet.
const MOST_REFUSED: usize = 16;

/// The origin of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This host dialled it.
    Dialled {
        /// The dialled peer.
        peer: u32,
        /// The class.
        class: Class,
        /// The number.
        number: u16,
    },
    /// It came in from an address of this peer.
    Accepted {
        /// The peer.
        peer: u32,
    },
    /// It was refused.
    Refused,
}

/// A channel that is not open yet.
pub struct Entry {
    /// Its handshake.
    pub half_open: HalfOpen,
    /// The origin.
    pub origin: Origin,
    /// The address of the other end.
    pub address: SocketAddr,
    /// When it times out.
    pub deadline: Instant,
    /// The transport has taken the first frame.
    pub connected: bool,
    /// Room to write is waited for.
    waits_for_room: bool,
}

/// All channels that are not open yet.
pub struct Table {
    poll: Poll,
    entries: BTreeMap<u64, Entry>,
    last: u64,
}

/// Names from this one on are for other descriptors in the same set.
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

    /// The epoll set that is readable when there is work.
    pub const fn poll(&self) -> &Poll {
        &self.poll
    }

    /// Adds a channel.
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

    /// A channel by its name.
    pub fn get_mut(&mut self, name: u64) -> Option<&mut Entry> {
        self.entries.get_mut(&name)
    }

    /// Updates the events for which it waits.
    pub fn watch(&mut self, name: u64) {
        if let Some(entry) = self.entries.get_mut(&name) {
            let room = entry.half_open.has_unsent();
            if room != entry.waits_for_room {
                entry.waits_for_room = room;
                self.poll.change(entry.half_open.descriptor(), name, room);
            }
        }
    }

    /// Removes a channel.
    pub fn remove(&mut self, name: u64) -> Option<Entry> {
        let entry = self.entries.remove(&name)?;
        self.poll.remove(entry.half_open.descriptor());
        Some(entry)
    }

    /// The oldest accepted channel, if there are `most` or more of them.
    pub fn excess_accepted(&self, most: usize) -> Option<u64> {
        let came = |origin| matches!(origin, Origin::Accepted { .. });
        self.oldest(came, most)
    }

    /// The oldest refused channel, if there are too many of them.
    pub fn excess_refused(&self) -> Option<u64> {
        self.oldest(|origin| origin == Origin::Refused, MOST_REFUSED + 1)
    }

    fn oldest(&self, which: impl Fn(Origin) -> bool, most: usize) -> Option<u64> {
        let mut found = self.entries.iter().filter(|(_, entry)| which(entry.origin));
        let oldest = found.next().map(|(name, _)| *name);
        oldest.filter(|_| 1 + found.count() >= most)
    }

    /// The channels that have timed out.
    pub fn overdue(&self, now: Instant) -> Vec<u64> {
        let overdue = self.entries.iter().filter(|(_, one)| one.deadline <= now);
        overdue.map(|(name, _)| *name).collect()
    }

    /// The channels of a peer.
    pub fn of_peer(&self, of: u32) -> Vec<u64> {
        let of_peer = self.entries.iter().filter(|(_, one)| match one.origin {
            Origin::Dialled { peer, .. } | Origin::Accepted { peer } => peer == of,
            Origin::Refused => false,
        });
        of_peer.map(|(name, _)| *name).collect()
    }

    /// The time of the next time-out.
    pub fn deadline(&self) -> Option<Instant> {
        self.entries.values().map(|entry| entry.deadline).min()
    }

    /// The number of accepted channels that are undecided.
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
