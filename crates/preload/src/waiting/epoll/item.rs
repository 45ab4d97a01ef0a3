//! One member of a set: what it shows, and whether that is to be told.

use core::sync::atomic::Ordering;

use libc::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP};
use netchannel_abi::link::side_flags;

use super::edges::{Look, Seen};
use super::{EpollSet, by_index, flag};
use crate::descriptors::table::{Kind, Word};
use crate::sockets::lane::Lane;
use crate::sockets::socket::{self, status};

/// A member.
#[derive(Clone, Copy)]
pub(super) struct Item {
    /// The descriptor it was added under.
    pub fd: i32,
    /// A descriptor by which it can be used now: another one when `fd` was closed.
    pub through: i32,
    /// The socket or set.
    pub word: Word,
    /// What the program asked for.
    pub events: u32,
    /// What it is told with.
    pub data: u64,
    /// In use.
    pub alive: bool,
    /// Not silenced by a one-shot event.
    pub enabled: bool,
    /// Added or changed since it was last looked at: told if it has anything.
    pub fresh: bool,
    /// Its anchor is in the inner set.
    pub registered: bool,
    /// The program took it out, and its anchor is in the inner set still: it may come back.
    pub lingers: bool,
    /// The kernel itself reports it; kept because it may still turn virtual.
    pub native: bool,
    /// Its cell, of those of the set.
    pub cell: Option<usize>,
    /// Its life on the board of a shared set; 0 where it is not there.
    pub life: u32,
    /// The last change of it on the board that was taken over.
    pub change: u32,
    /// The look of the set that told of it last.
    pub round: u32,
    /// As last told.
    pub seen: Seen,
    /// As last counted for the sets around this one.
    pub noted: Seen,
}

/// What a virtual socket has to report.
pub fn readiness(lane: &Lane) -> u32 {
    if lane.is_connecting() {
        return 0;
    }
    let flags = lane.peer_flags();
    // Before the status, in which it may note something.
    let writable = lane.is_writable();
    let seen = lane.socket.entry.status.load(Ordering::Relaxed);
    let mut mask = 0;
    if seen & status::DISSOLVED != 0 {
        return dissolved(lane);
    }
    if lane.is_readable() {
        mask |= EPOLLIN | libc::EPOLLRDNORM;
    }
    if lane.is_urgent() {
        mask |= libc::EPOLLPRI;
    }
    if writable {
        mask |= EPOLLOUT | libc::EPOLLWRNORM;
    }
    let reset = flags & side_flags::RESET != 0;
    let gone = seen & status::PEER_GONE != 0;
    let ended = flags & side_flags::FIN != 0 || reset || gone;
    if ended || seen & status::SHUT_READ != 0 {
        mask |= EPOLLRDHUP;
    }
    let shut = seen & status::SHUT_WRITE != 0;
    let met_closed = seen & (status::WRITE_MET_CLOSED | status::RESET) == status::WRITE_MET_CLOSED;
    let torn = reset || met_closed || seen & (status::RESET | status::FAULT) != 0;
    if torn || shut && (ended || seen & status::SHUT_READ != 0) {
        mask |= EPOLLHUP;
    }
    let refused = seen & status::REFUSED != 0;
    if seen & status::LEFT_ERROR != 0 && lane.socket.entry.error.load(Ordering::Relaxed) != 0 {
        mask |= EPOLLERR;
    }
    if reset && seen & status::RESET == 0
        || refused && lane.socket.entry.error.load(Ordering::Relaxed) != 0
        || met_closed
        || gone && seen & status::RESET == 0 && lane.ended_by_reset()
    {
        mask |= EPOLLERR | EPOLLHUP;
    }
    u32::try_from(mask).unwrap_or(0)
}

/// The same where there is no connection any more.
#[cold]
fn dissolved(lane: &Lane) -> u32 {
    let untold = lane.socket.entry.error.load(Ordering::Relaxed) != 0;
    let error = if untold { EPOLLERR } else { 0 };
    let end = if lane.socket.has(status::SHUT_READ) {
        EPOLLIN | libc::EPOLLRDNORM | EPOLLRDHUP
    } else {
        0
    };
    u32::try_from(EPOLLOUT | libc::EPOLLWRNORM | EPOLLHUP | error | end).unwrap_or(0)
}

impl Item {
    pub fn new(fd: i32, word: Word, events: u32, data: u64) -> Self {
        Self {
            fd,
            through: fd,
            word,
            events,
            data,
            alive: true,
            enabled: true,
            fresh: true,
            registered: false,
            lingers: false,
            native: matches!(word.kind(), Kind::Kernel | Kind::Deferred),
            cell: None,
            life: 0,
            change: 1,
            round: 0,
            seen: Seen::default(),
            noted: Seen::default(),
        }
    }

    /// A place without a member.
    pub fn dead() -> Self {
        Self {
            alive: false,
            ..Self::new(-1, Word::FOREIGN, 0, 0)
        }
    }

    /// The connection, while its descriptor still names it.
    pub fn lane(&self) -> Option<Lane> {
        if self.word.kind() != Kind::Virtual {
            return None;
        }
        let found = socket::of_word(self.word)?;
        if !found.is(self.through) {
            return None;
        }
        Lane::of(found, self.through)
    }

    /// The set that is a member, while it lives.
    pub fn set(&self) -> Option<&'static EpollSet> {
        if self.word.kind() != Kind::Epoll {
            return None;
        }
        by_index(self.word.index()).filter(|set| set.is(self.word))
    }

    /// What it shows now. The counts are taken before the mask: what comes in between is told and
    /// perhaps told again, but never passed over.
    pub fn look(&self) -> Look {
        let input = flag(EPOLLIN | libc::EPOLLRDNORM);
        let shown = |any: bool| if any { input } else { 0 };
        let (mut arrived, mut full, mut news, mut held) = (0, 0, 0, false);
        let mask = match self.word.kind() {
            Kind::Virtual => self.lane().map_or(0, |lane| {
                // First of all: what is held back no longer is seen by the others.
                held = lane.held_for().is_some();
                (arrived, full, news) = (lane.arrived(), lane.times_full(), lane.news());
                readiness(&lane)
            }),
            Kind::Listener => socket::of_word(self.word)
                .and_then(|found| found.listener())
                .map_or(0, |listener| {
                    if self.events & flag(libc::EPOLLET) != 0 {
                        listener.gather();
                    }
                    arrived = listener.arrived();
                    shown(listener.has_pending())
                }),
            Kind::Epoll => self.set().map_or(0, |set| {
                // The first look takes the news and counts them.
                let _ = set.has_events();
                arrived = set.edges.load(Ordering::Acquire);
                shown(set.has_events())
            }),
            _ => 0,
        };
        Look {
            mask,
            arrived,
            full,
            news,
            held,
        }
    }

    /// What of a look the program wants to hear.
    pub const fn wanted(&self, look: &Look) -> u32 {
        look.mask & (self.events | flag(EPOLLERR | EPOLLHUP))
    }

    pub const fn is_edge(&self) -> bool {
        self.events & flag(EPOLLET) != 0
    }

    pub const fn is_oneshot(&self) -> bool {
        self.events & flag(EPOLLONESHOT) != 0
    }

    pub const fn wants_room(&self) -> bool {
        self.events & flag(EPOLLOUT | libc::EPOLLWRNORM) != 0
    }

    /// Whether this side may tell anything of it at all.
    pub const fn is_due(&self) -> bool {
        self.alive && self.enabled && !self.native
    }

    /// Whether a look is to be told.
    pub const fn tells(&self, look: &Look) -> bool {
        self.wanted(look) != 0
            && (self.fresh || !self.is_edge() || self.seen.differs(look, self.events))
    }

    /// Whether it would be told now.
    pub fn would_tell(&self) -> bool {
        self.is_due() && self.tells(&self.look())
    }
}
