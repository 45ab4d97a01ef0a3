//! The sockets with one peer: by own handle, and by the peer's.

use super::shares::Shares;
use super::tombstone::Tombstone;
use netchannel_vns::{ChannelId, Full, Handle, HandleTable, Lookup};
use netchannel_wire::Refusal;
use std::sync::Arc;

/// How long an ended socket is remembered, in nanoseconds, where there is room.
const REMEMBER: u64 = 30_000_000_000;
/// The peer's handles are kept for no larger indices than this, whatever it announced.
const MOST_INDEX: u32 = 1 << 20;

/// A socket of a table: it counts for a user of this host.
pub trait Counted {
    /// The user whose program connected, if a program of this host did.
    fn user(&self) -> Option<u32>;
}

/// What a handle of this host names.
#[derive(Debug)]
pub enum Found<S> {
    /// A socket.
    Live(Arc<S>),
    /// One that has ended.
    Ended(Tombstone),
    /// Nothing that is known.
    Unknown,
}

/// What became of the peer's socket of some index.
#[derive(Clone, Copy, Debug, Default)]
struct Theirs {
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

/// What an NCSYN is.
#[derive(Debug)]
pub enum Asked<S> {
    /// The first of its handle: to be decided.
    New,
    /// It was said again, for this socket.
    Again(Arc<S>),
    /// It was said again, and was refused.
    Refused(Refusal),
    /// It came late, is being decided, or belongs to a socket that has ended.
    Ignored,
    /// Its index is beyond what may be.
    TooMany,
}

/// All sockets with one peer.
#[derive(Debug)]
pub struct Sockets<S> {
    table: HandleTable<Arc<S>, Tombstone>,
    shares: Shares,
    theirs: Vec<Theirs>,
    most_theirs: u32,
}

impl<S: Counted> Sockets<S> {
    /// None yet; `most` of this host's, and handles of the peer below `most_theirs`.
    pub fn new(most: u32, most_theirs: u32) -> Self {
        Self {
            table: HandleTable::new(most, REMEMBER),
            shares: Shares::new(most),
            theirs: Vec::new(),
            most_theirs,
        }
    }

    /// Whether another one can be had, over a link of this user's.
    pub fn has_room(&self, user: Option<u32>) -> bool {
        self.shares.has_room(user)
    }

    /// How many live.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// All that live.
    pub fn all(&self) -> Vec<Arc<S>> {
        self.table.iter().map(|(_, one)| Arc::clone(one)).collect()
    }

    /// At most so many of those that live whose index is not below `first`.
    pub fn some(&self, first: u32, most: usize) -> Vec<(u32, Arc<S>)> {
        let behind = self.table.iter_from(first).take(most);
        behind
            .map(|(handle, one)| (handle.index, Arc::clone(one)))
            .collect()
    }

    /// Gives a socket its handle.
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

    /// The ended ones whose last word went down with a channel.
    pub fn unheard(&mut self, lost: ChannelId) -> Vec<Tombstone> {
        let ended = self.table.ended_mut().map(|(_, tombstone)| tombstone);
        let unheard = ended.filter(|tombstone| tombstone.last == Some(lost));
        // It is said again once: what is lost then, the peer asks for.
        unheard
            .map(|tombstone| Tombstone {
                last: tombstone.last.take(),
                ..*tombstone
            })
            .collect()
    }

    /// Takes an ended socket out.
    pub fn remove(&mut self, handle: Handle, tombstone: Tombstone, now: u64) -> Option<Arc<S>> {
        let removed = self.table.remove(handle, tombstone, now)?;
        self.shares.give_back(removed.user());
        Some(removed)
    }

    /// What a frame's handle names.
    pub fn find(&self, handle: Handle) -> Found<S> {
        match self.table.get(handle) {
            Lookup::Live(connection) => Found::Live(Arc::clone(connection)),
            Lookup::Ended(tombstone) => Found::Ended(*tombstone),
            Lookup::Unknown => Found::Unknown,
        }
    }

    fn theirs(&mut self, handle: Handle) -> Option<&mut Theirs> {
        let index = usize::try_from(handle.index).ok()?;
        if handle.index >= self.most_theirs.min(MOST_INDEX) {
            return None;
        }
        if self.theirs.len() <= index {
            self.theirs.resize(index + 1, Theirs::default());
        }
        self.theirs.get_mut(index)
    }

    /// The socket whose peer has this handle.
    pub fn of_theirs(&mut self, handle: Handle) -> Option<Arc<S>> {
        let known = *self.theirs(handle)?;
        let Answer::Ours(ours) = known.answer else {
            return None;
        };
        match self.find(ours) {
            Found::Live(connection) if known.generation == handle.generation => Some(connection),
            _ => None,
        }
    }

    /// The peer's handle of a socket is known. False where it can not be one.
    pub fn set_theirs(&mut self, handle: Handle, ours: Handle) -> bool {
        self.set(handle, Answer::Ours(ours))
    }

    /// An NCSYN was refused.
    pub fn refuse(&mut self, handle: Handle, refusal: Refusal) {
        self.set(handle, Answer::Refused(refusal));
    }

    fn set(&mut self, handle: Handle, answer: Answer) -> bool {
        let Some(place) = self.theirs(handle) else {
            return false;
        };
        *place = Theirs {
            generation: handle.generation,
            answer,
        };
        true
    }

    /// An NCSYN came with this handle of the peer.
    pub fn ask(&mut self, handle: Handle) -> Asked<S> {
        let Some(place) = self.theirs(handle) else {
            return Asked::TooMany;
        };
        let known = *place;
        if known.generation == 0 || is_newer(handle.generation, known.generation) {
            *place = Theirs {
                generation: handle.generation,
                answer: Answer::Due,
            };
            return Asked::New;
        }
        match known.answer {
            _ if known.generation != handle.generation => Asked::Ignored,
            Answer::Due => Asked::Ignored,
            Answer::Refused(refusal) => Asked::Refused(refusal),
            Answer::Ours(ours) => match self.find(ours) {
                Found::Live(connection) => Asked::Again(connection),
                _ => Asked::Ignored,
            },
        }
    }
}

/// Generations go round.
const fn is_newer(one: u32, other: u32) -> bool {
    one != other && one.wrapping_sub(other) < 1 << 31
}
