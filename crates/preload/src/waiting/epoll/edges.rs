//! When an edge-triggered member is reported again: only for a change since its last report, however many paths bring
//! the news of it.

use libc::{EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLRDHUP, EPOLLRDNORM, EPOLLWRNORM};

const fn bits(value: i32) -> u32 {
    value.cast_unsigned()
}

const ENDS: u32 = bits(EPOLLRDHUP | EPOLLHUP | EPOLLERR);
const READS: u32 = bits(EPOLLIN | EPOLLPRI | EPOLLRDNORM);
const WRITES: u32 = bits(EPOLLOUT | EPOLLWRNORM);

/// The state of a member at one moment.
#[derive(Clone, Copy, Default)]
pub struct Snapshot {
    /// All events that hold, asked for or not.
    pub mask: u32,
    /// Counts arrivals: bytes, connections, events of a set.
    pub arrived: u64,
    /// Counts how often a writer found no room.
    pub full: u32,
    /// Counts other wake-ups, of all processes that have the socket.
    pub news: u32,
    /// Bytes have come that are held back.
    pub held: bool,
    /// Bytes have come, but too few to make the member readable: as in TCP, they wake nobody.
    pub too_few: bool,
}

/// The state of a member at its last report.
#[derive(Clone, Copy, Default)]
pub struct Reported {
    arrived: u64,
    ends: u32,
    full: u32,
    news: u32,
}

/// What processes that share a set tell each other of a reported edge.
#[derive(Clone, Copy)]
pub struct Edge {
    pub arrived: u64,
    pub ends: u32,
    pub news: u32,
}

impl Snapshot {
    /// The ends that have come.
    const fn ends(&self) -> u32 {
        self.mask & ENDS
    }

    pub const fn edge(&self) -> Edge {
        Edge {
            arrived: self.arrived,
            ends: self.ends(),
            news: self.news,
        }
    }
}

impl Reported {
    /// Notes a snapshot. While there is no room, the edge for room stays due.
    pub const fn note(&mut self, snapshot: &Snapshot) {
        self.arrived = snapshot.arrived;
        self.ends = snapshot.ends();
        self.news = snapshot.news;
        if snapshot.mask & WRITES != 0 {
            self.full = snapshot.full;
        }
    }

    /// Notes an edge that another process that shares the set has reported.
    pub const fn follow(&mut self, edge: Edge) {
        self.arrived = edge.arrived;
        self.ends |= edge.ends;
        self.news = edge.news;
    }

    pub const fn edge(&self) -> Edge {
        Edge {
            arrived: self.arrived,
            ends: self.ends,
            news: self.news,
        }
    }

    /// The state before the first report, where a writer has found no room so often.
    pub const fn before(full: u32) -> Self {
        Self {
            arrived: 0,
            ends: 0,
            full,
            news: 0,
        }
    }

    /// The state of a member that was just added. Where there is no room now, the edge for room is due.
    pub const fn start(snapshot: &Snapshot) -> Self {
        let room = snapshot.mask & WRITES != 0;
        Self {
            arrived: snapshot.arrived,
            ends: snapshot.ends(),
            news: snapshot.news,
            full: if room {
                snapshot.full
            } else {
                snapshot.full.wrapping_sub(1)
            },
        }
    }

    /// As [`Self::start`], where another process, or the former image, has reported this edge of the member. An end since
    /// then is due, and so is room where a writer of this process has found none.
    pub const fn start_after(&self, snapshot: &Snapshot, edge: Edge) -> Self {
        let room = snapshot.mask & WRITES != 0;
        Self {
            arrived: edge.arrived,
            ends: edge.ends,
            news: edge.news,
            full: if room {
                self.full
            } else {
                snapshot.full.wrapping_sub(1)
            },
        }
    }

    /// Whether there was a change that these events ask for: more arrived, an end came, or there is room again where a
    /// writer found none.
    pub const fn differs(&self, snapshot: &Snapshot, events: u32) -> bool {
        snapshot.arrived != self.arrived && !snapshot.too_few && events & READS != 0
            || snapshot.news != self.news
            || snapshot.ends() & !self.ends != 0
            || snapshot.mask & WRITES != 0 && snapshot.full != self.full && events & WRITES != 0
    }
}
