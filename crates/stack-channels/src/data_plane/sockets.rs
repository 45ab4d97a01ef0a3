//! The sockets with one peer, by this host's handle and by the peer's handle.

use super::shares::Shares;
use super::tombstone::Tombstone;
use netchannel_vns::{ChannelId, Full, Handle, HandleTable, Lookup};
use netchannel_wire::Refusal;
use std::sync::Arc;

/// How long an ended socket is remembered, in nanoseconds, where there is room.
const REMEMBER: u64 = 30_000_000_000;
/// The limit of indices of the peer's handles, whatever the peer announced.
const MOST_INDEX: u32 = 1 << 20;

/// A socket in the table: it counts for a user of this host.
pub trait Counted {
    /// The user whose program connected, if a program of this host did.
    fn user(&self) -> Option<u32>;
}

/// The result of a look-up by this host's handle.
#[derive(Debug)]
pub enum Found<S> {
    /// A living socket.
    Live(Arc<S>),
    /// A socket that has ended.
    Ended(Tombstone),
    /// An unknown socket.
    Unknown,
}

/// The state of the peer's socket with a certain index.
#[derive(Clone, Copy, Debug, Default)]
struct PeerSocket {
    generation: u32,
    answer: Answer,
}

#[derive(Clone, Copy, Debug, Default)]
enum Answer {
    /// Not decided yet.
    #[default]
    Due,
    Ours(Handle),
    Refused(Refusal),
}

/// The classification of an NCSYN.
#[derive(Debug)]
pub enum OpenRequest<S> {
    /// The first NCSYN of its handle: must be decided.
    New,
    /// A repetition, for this socket.
    Again(Arc<S>),
    /// A repetition of one that was refused.
    Refused(Refusal),
    /// A late one, one that is being decided, or one of a socket that has ended.
    Ignored,
    /// Its index is beyond the limit.
    TooMany,
}

/// All sockets with one peer.
#[derive(Debug)]
pub struct Sockets<S> {
    table: HandleTable<Arc<S>, Tombstone>,
    shares: Shares,
    peer_sockets: Vec<PeerSocket>,
    most_theirs: u32,
}

impl<S: Counted> Sockets<S> {
    /// An empty table, for at most `most` sockets of this host, and for handles of the peer below `most_theirs`.
    pub fn new(most: u32, most_theirs: u32) -> Self {
        Self {
            table: HandleTable::new(most, REMEMBER),
            shares: Shares::new(most),
            peer_sockets: Vec::new(),
            most_theirs,
        }
    }

    /// Whether there is room for another socket, over a link of this user.
    pub fn has_room(&self, user: Option<u32>) -> bool {
        self.shares.has_room(user)
    }

    /// The number of living sockets.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// All living sockets.
    pub fn all(&self) -> Vec<Arc<S>> {
        self.table.iter().map(|(_, one)| Arc::clone(one)).collect()
    }

    /// At most `most` living sockets whose index is not below `first`.
    pub fn page(&self, first: u32, most: usize) -> Vec<(u32, Arc<S>)> {
        let behind = self.table.iter_from(first).take(most);
        behind
            .map(|(handle, one)| (handle.index, Arc::clone(one)))
            .collect()
    }

    /// Inserts a socket under a new handle.
    pub fn insert(
        &mut self,
        make: impl FnOnce(Handle) -> Arc<S>,
        now: u64,
    ) -> Result<Arc<S>, Full> {
        let handle = self.table.insert_with(make, now)?;
        match self.table.get(handle) {
            Lookup::Live(connection) => {
                self.shares.take(connection.user());
                Ok(Arc::clone(connection))
            }
            _ => Err(Full),
        }
    }

    /// The ended sockets whose last control frame was on a lost channel. The frame is taken out of the tombstone.
    pub fn take_lost_final_states(&mut self, lost: ChannelId) -> Vec<Tombstone> {
        let ended = self.table.ended_mut().map(|(_, tombstone)| tombstone);
        let take_lost_final_states = ended.filter(|tombstone| tombstone.last == Some(lost));
        // It is sent again only once: if it is lost again, the peer asks for it.
        take_lost_final_states
            .map(|tombstone| Tombstone {
                last: tombstone.last.take(),
                ..*tombstone
            })
            .collect()
    }

    /// Removes a socket that has ended.
    pub fn remove(&mut self, handle: Handle, tombstone: Tombstone, now: u64) -> Option<Arc<S>> {
        let removed = self.table.remove(handle, tombstone, now)?;
        self.shares.give_back(removed.user());
        Some(removed)
    }

    /// Looks a socket up by the handle in a frame.
    pub fn find(&self, handle: Handle) -> Found<S> {
        match self.table.get(handle) {
            Lookup::Live(connection) => Found::Live(Arc::clone(connection)),
            Lookup::Ended(tombstone) => Found::Ended(*tombstone),
            Lookup::Unknown => Found::Unknown,
        }
    }

    fn peer_socket(&mut self, handle: Handle) -> Option<&mut PeerSocket> {
        let index = usize::try_from(handle.index).ok()?;
        if handle.index >= self.most_theirs.min(MOST_INDEX) {
            return None;
        }
        if self.peer_sockets.len() <= index {
            self.peer_sockets.resize(index + 1, PeerSocket::default());
        }
        self.peer_sockets.get_mut(index)
    }

    /// The socket whose peer has this handle.
    pub fn find_by_peer_handle(&mut self, handle: Handle) -> Option<Arc<S>> {
        let known = *self.peer_socket(handle)?;
        let Answer::Ours(ours) = known.answer else {
            return None;
        };
        match self.find(ours) {
            Found::Live(connection) if known.generation == handle.generation => Some(connection),
            _ => None,
        }
    }

    /// Records the peer's handle of a socket. False where the handle is invalid.
    pub fn set_peer_handle(&mut self, handle: Handle, ours: Handle) -> bool {
        self.set(handle, Answer::Ours(ours))
    }

    /// Records that an NCSYN was refused.
    pub fn refuse(&mut self, handle: Handle, refusal: Refusal) {
        self.set(handle, Answer::Refused(refusal));
    }

    fn set(&mut self, handle: Handle, answer: Answer) -> bool {
        let Some(place) = self.peer_socket(handle) else {
            return false;
        };
        *place = PeerSocket {
            generation: handle.generation,
            answer,
        };
        true
    }

    /// Classifies an NCSYN with this handle of the peer.
    pub fn classify_open(&mut self, handle: Handle) -> OpenRequest<S> {
        let Some(place) = self.peer_socket(handle) else {
            return OpenRequest::TooMany;
        };
        let known = *place;
        if known.generation == 0 || is_newer(handle.generation, known.generation) {
            *place = PeerSocket {
                generation: handle.generation,
                answer: Answer::Due,
            };
            return OpenRequest::New;
        }
        match known.answer {
            _ if known.generation != handle.generation => OpenRequest::Ignored,
            Answer::Due => OpenRequest::Ignored,
            Answer::Refused(refusal) => OpenRequest::Refused(refusal),
            Answer::Ours(ours) => match self.find(ours) {
                Found::Live(connection) => OpenRequest::Again(connection),
                _ => OpenRequest::Ignored,
            },
        }
    }
}

/// Whether a generation is newer. Generations wrap around.
const fn is_newer(one: u32, other: u32) -> bool {
    one != other && one.wrapping_sub(other) < 1 << 31
}
