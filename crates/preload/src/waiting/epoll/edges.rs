//! When an edge-triggered member is told again: only for a change since it was last told, however
//! many paths bring the news of it.

use libc::{EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLRDHUP, EPOLLRDNORM, EPOLLWRNORM};

const fn bits(value: i32) -> u32 {
    value.cast_unsigned()
}

const ENDS: u32 = bits(EPOLLRDHUP | EPOLLHUP | EPOLLERR);
const READS: u32 = bits(EPOLLIN | EPOLLPRI | EPOLLRDNORM);
const WRITES: u32 = bits(EPOLLOUT | EPOLLWRNORM);

/// What a member shows at one moment.
#[derive(Clone, Copy, Default)]
pub struct Look {
    /// Everything that is true of it, wanted or not.
    pub mask: u32,
    /// Counts what has arrived: bytes, connections, events of a set.
    pub arrived: u64,
    /// Counts how often a writer found no room.
    pub full: u32,
    /// Counts other wake-ups.
    pub news: u32,
    /// More has come that is held back.
    pub held: bool,
}

/// What a member showed when it was last told.
#[derive(Clone, Copy, Default)]
pub struct Seen {
    arrived: u64,
    ends: u32,
    full: u32,
    news: u32,
}

impl Look {
    /// The ends that have come.
    pub const fn ends(&self) -> u32 {
        self.mask & ENDS
    }
}

impl Seen {
    /// Notes a look. While there is no room, the edge of room stays due.
    pub const fn note(&mut self, look: &Look) {
        self.arrived = look.arrived;
        self.ends = look.ends();
        self.news = look.news;
        if look.mask & WRITES != 0 {
            self.full = look.full;
        }
    }

    /// Another process that shares the set was told, when so much had arrived and these ends had come.
    pub const fn follow(&mut self, look: &Look, arrived: u64, ends: u32) {
        self.arrived = arrived;
        self.ends |= ends;
        if look.arrived == arrived && look.ends() == ends {
            self.news = look.news;
        }
    }

    /// What had arrived.
    pub const fn arrived(&self) -> u64 {
        self.arrived
    }

    /// The ends that had come.
    pub const fn ends(&self) -> u32 {
        self.ends
    }

    /// A member that was just added. Where there is no room now, the edge of room is due.
    pub const fn start(look: &Look) -> Self {
        let room = look.mask & WRITES != 0;
        Self {
            arrived: look.arrived,
            ends: look.ends(),
            news: look.news,
            full: if room {
                look.full
            } else {
                look.full.wrapping_sub(1)
            },
        }
    }

    /// Whether something changed that a member with these events is told of: more arrived, an end
    /// came, or there is room again where a writer found none.
    pub const fn differs(&self, look: &Look, events: u32) -> bool {
        look.arrived != self.arrived && events & READS != 0
            || look.news != self.news
            || look.ends() & !self.ends != 0
            || look.mask & WRITES != 0 && look.full != self.full && events & WRITES != 0
    }
}
