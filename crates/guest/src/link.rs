//! Who is at the other side, and since when: each start of a side has a number of its own. Both begin with empty rings whenever one of
//! them has begun anew. And who sleeps: whoever shows something rings where the other does.
//!
//! ```text
//!  one side     session A, peer -  ------------------> peer B  ==up==>
//!  the other    session -          session B, peer A   ==up=========>
//! ```

use crate::layout::{IDENTITY, Side, word};
use crate::ring::at;
use crate::violation::Violation;
use netchannel_shm::Region;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Something to read.
const WANTS_DATA: u64 = 1;
/// Room to write.
const WANTS_ROOM: u64 = 2;

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing new.
    None,
    /// The other side is another one than before, or has begun to listen: own indices begin anew, then [`Link::follow`].
    New(u64),
    /// Both sides are there.
    Up,
    /// The other side has gone, or begun anew.
    Down,
}

/// The words about the sides themselves.
#[derive(Debug)]
pub struct Link {
    region: Arc<Region>,
    own: usize,
    peer: usize,
    /// Numbers of starts: this side's, 0 while it rests, and the other's that is known.
    session: u64,
    known: u64,
    is_up: bool,
    /// The number of this side's sleep, above the two bits.
    sleep: u64,
    /// The sleep of the other side for which the bell was rung.
    rung: u64,
}

impl Link {
    /// The words of a side that is not there yet.
    #[must_use]
    pub const fn new(region: Arc<Region>, side: Side) -> Self {
        Self {
            region,
            own: side.page(),
            peer: side.other().page(),
            session: 0,
            known: 0,
            is_up: false,
            sleep: 0,
            rung: 0,
        }
    }

    fn store(&self, place: usize, value: u64, ordering: Ordering) {
        // It fails only in a region that is too small, which no side was made for.
        if let Ok(word) = at(&self.region, self.own + place) {
            word.store(value, ordering);
        }
    }

    fn load(&self, place: usize) -> Result<u64, Violation> {
        // Acquire: pairs with the release of the other side. What it stored before is seen: indices that begin anew.
        Ok(at(&self.region, self.peer + place)?.load(Ordering::Acquire))
    }

    /// This side is there from now on, under a number that it never had. Its rings are at their beginning.
    pub fn begin(&mut self, session: u64) {
        self.is_up = false;
        self.known = 0;
        self.session = session;
        self.store(word::PEER, 0, Ordering::Relaxed);
        self.store(word::IDENTITY, IDENTITY, Ordering::Relaxed);
        // Release: whoever sees the session sees all that was stored before it.
        self.store(word::SESSION, session, Ordering::Release);
    }

    /// This side is not there any more.
    pub fn end(&mut self) {
        self.is_up = false;
        self.session = 0;
        self.store(word::SESSION, 0, Ordering::Release);
        self.store(word::PEER, 0, Ordering::Release);
    }

    /// Whether this side is there.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.session != 0
    }

    /// Tells whether this side has a doorbell that works.
    pub fn tell_of_bell(&self, works: bool) {
        self.store(word::RINGS, u64::from(works), Ordering::Release);
    }

    /// Whether the other side rings.
    #[must_use]
    pub fn is_rung_for(&self) -> bool {
        self.load(word::RINGS) == Ok(1)
    }

    /// Whether both sides are there.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.is_up
    }

    /// Whether the other side speaks another version. Only while it is there.
    #[must_use]
    pub fn is_of_another_version(&self) -> bool {
        self.load(word::SESSION).is_ok_and(|there| there != 0)
            && self.load(word::IDENTITY) != Ok(IDENTITY)
    }

    /// Looks who is there.
    ///
    /// # Errors
    /// Never in a region that holds the pages.
    pub fn look(&mut self) -> Result<Change, Violation> {
        let there = self.load(word::SESSION)?;
        let seen = self.load(word::PEER)?;
        if self.is_up {
            if there == self.known && seen == self.session {
                return Ok(Change::None);
            }
            self.is_up = false;
            return Ok(Change::Down);
        }
        if self.session == 0 || there == 0 {
            return Ok(Change::None);
        }
        if there != self.known {
            return Ok(match self.load(word::IDENTITY)? {
                IDENTITY => Change::New(there),
                _ => Change::None,
            });
        }
        if seen == self.session {
            self.is_up = true;
            return Ok(Change::Up);
        }
        Ok(Change::None)
    }

    /// Own indices are at their beginning, for that session of the other side.
    pub fn follow(&mut self, session: u64) {
        self.known = session;
        // Release: the other side sees the indices that were stored before.
        self.store(word::PEER, session, Ordering::Release);
    }

    /// Whether [`Self::look`] would find something.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let there = self.load(word::SESSION).unwrap_or(0);
        let seen = self.load(word::PEER).unwrap_or(0);
        if self.is_up {
            return there != self.known || seen != self.session;
        }
        let knows_version = self.load(word::IDENTITY) == Ok(IDENTITY);
        self.session != 0
            && there != 0
            && knows_version
            && (there != self.known || seen == self.session)
    }

    /// This side is about to sleep until it is rung for. The caller looks once more.
    pub fn fall_asleep(&mut self, wants_room: bool) {
        self.sleep += 4;
        let room = if wants_room { WANTS_ROOM } else { 0 };
        self.store(
            word::ASLEEP,
            self.sleep | WANTS_DATA | room,
            Ordering::Relaxed,
        );
        // Pairs with the fence in `rings`: either this side sees what was shown, or the other sees that this one sleeps.
        fence(Ordering::SeqCst);
    }

    /// This side is awake.
    pub fn wake(&self) {
        self.store(word::ASLEEP, self.sleep, Ordering::Relaxed);
    }

    /// Whether the other side is to be rung for, where frames or room were shown to it.
    pub fn rings(&mut self, data: bool, room: bool) -> bool {
        // Pairs with the fence in `fall_asleep`.
        fence(Ordering::SeqCst);
        let asleep = self.load(word::ASLEEP).unwrap_or(0);
        let wanted = asleep & WANTS_DATA != 0 && data || asleep & WANTS_ROOM != 0 && room;
        // Once for each sleep.
        wanted && std::mem::replace(&mut self.rung, asleep) != asleep
    }
}
