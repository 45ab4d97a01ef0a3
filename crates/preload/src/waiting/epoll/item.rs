//! A member of a set: its state, and whether that is to be reported.

use core::sync::atomic::Ordering;

use libc::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP};
use netchannel_abi::link::side_flags;

use super::edges::{Reported, Snapshot};
use super::{EpollSet, by_index, flag};
use crate::descriptors::table::{Kind, Word};
use crate::sockets::lane::Lane;
use crate::sockets::listener::Listener;
use crate::sockets::socket::{self, status};

/// A member.
#[derive(Clone, Copy)]
pub(super) struct Item {
    /// The descriptor under which it was added.
    pub fd: i32,
    /// An open descriptor of it: another one when `fd` was closed.
    pub current_fd: i32,
    /// The socket or set, as a word of the table.
    pub word: Word,
    /// The events that the program asked for.
    pub events: u32,
    /// The data word that the program gave.
    pub data: u64,
    /// In use.
    pub alive: bool,
    /// Not disabled by a one-shot event.
    pub enabled: bool,
    /// Added or changed since the last snapshot: reported if any event holds.
    pub fresh: bool,
    /// Its anchor is in the inner set.
    pub registered: bool,
    /// The program has removed it, and its anchor is still in the inner set: it may be added again.
    pub lingers: bool,
    /// The kernel itself reports it to the program, or will; kept because it may still turn virtual.
    pub native: bool,
    /// The index of its cell.
    pub cell: Option<usize>,
    /// Its life on the board of a shared set; 0 where it has none.
    pub life: u32,
    /// The last change on the board that this process has seen.
    pub change: u32,
    /// A set of which the kernel has told since the last pass.
    pub told: bool,
    /// The pass of the set that reported it last.
    pub round: u32,
    /// Its state at the last report.
    pub reported: Reported,
    /// Its state when it was last counted for the sets around this one.
    pub counted: Reported,
}

/// The events of a virtual socket.
pub fn readiness(lane: &Lane) -> u32 {
    if lane.is_connecting() {
        return 0;
    }
    let flags = lane.peer_flags();
    // Before the status is read: these may change it.
    if lane.socket.has(status::HOLDS) {
        lane.end_expired_hold();
    }
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

/// The events of a socket whose connection was dissolved.
#[cold]
fn dissolved(lane: &Lane) -> u32 {
    let pending_error = lane.socket.entry.error.load(Ordering::Relaxed) != 0;
    let error = if pending_error { EPOLLERR } else { 0 };
    let end = if lane.socket.has(status::SHUT_READ) {
        EPOLLIN | libc::EPOLLRDNORM | EPOLLRDHUP
    } else {
        0
    };
    u32::try_from(EPOLLOUT | libc::EPOLLWRNORM | EPOLLHUP | error | end).unwrap_or(0)
}

impl Item {
    pub fn new(fd: i32, word: Word, events: u32, data: u64) -> Self {
        let is_virtual = word.kind() == Kind::Virtual;
        let socket = is_virtual.then(|| socket::of_word(word)).flatten();
        let full = socket.map_or(0, |found| found.local.full.load(Ordering::Relaxed));
        Self {
            fd,
            current_fd: fd,
            word,
            events,
            data,
            alive: true,
            enabled: true,
            fresh: true,
            registered: false,
            lingers: false,
            native: matches!(word.kind(), Kind::Fresh | Kind::Kernel | Kind::Deferred),
            cell: None,
            life: 0,
            change: 1,
            told: false,
            round: 0,
            reported: Reported::before(full),
            counted: Reported::default(),
        }
    }

    /// An unused item.
    pub fn unused() -> Self {
        Self {
            alive: false,
            ..Self::new(-1, Word::FOREIGN, 0, 0)
        }
    }

    /// The connection, as long as the descriptor names it.
    pub fn lane(&self) -> Option<Lane> {
        if self.word.kind() != Kind::Virtual {
            return None;
        }
        let found = socket::of_word(self.word)?;
        if !found.is(self.current_fd) {
            return None;
        }
        Lane::of(found, self.current_fd)
    }

    /// The set that is a member, as long as it is open.
    pub fn set(&self) -> Option<&'static EpollSet> {
        if self.word.kind() != Kind::Epoll {
            return None;
        }
        by_index(self.word.index()).filter(|set| set.is(self.word))
    }

    /// The present state. The counts are taken before the mask: a change in between is reported, perhaps twice, but
    /// never missed.
    pub fn snapshot(&self) -> Snapshot {
        self.take_snapshot(Listener::has_pending)
    }

    /// As [`Self::snapshot`], where the links of listeners were looked at just before.
    pub fn snapshot_after_look(&self) -> Snapshot {
        self.take_snapshot(Listener::has_pending_here)
    }

    #[inline(always)]
    fn take_snapshot(&self, has_pending: impl FnOnce(&Listener) -> bool) -> Snapshot {
        let input = flag(EPOLLIN | libc::EPOLLRDNORM);
        let shown = |any: bool| if any { input } else { 0 };
        let (mut arrived, mut full, mut news) = (0, 0, 0);
        let (mut held, mut too_few) = (false, false);
        let mask = match self.word.kind() {
            Kind::Virtual => self.lane().map_or(0, |lane| {
                // First of all: bytes whose hold has just expired are seen by the calls that follow.
                held = lane.next_look().is_some();
                (arrived, full, news) = (lane.arrived(), lane.full_count(), lane.news());
                let mask = readiness(&lane);
                too_few = mask & (input | flag(libc::EPOLLPRI)) == 0 && lane.waits_for_low_water();
                mask
            }),
            Kind::Listener => socket::of_word(self.word)
                .and_then(|found| found.listener().map(|listener| (found, listener)))
                .map_or(0, |(found, listener)| {
                    if self.keeps_connections() {
                        if self.wants_room() {
                            news = found.entry.transmit.news.load(Ordering::Relaxed);
                        }
                        listener.count_arrivals();
                        arrived = listener.arrived();
                        return shown(listener.has_pending_for_edges());
                    }
                    arrived = listener.arrived();
                    shown(has_pending(listener))
                }),
            Kind::Epoll => self.set().map_or(0, |set| {
                // The first call takes the news and counts them.
                let _ = set.has_events();
                arrived = set.edges.load(Ordering::Acquire);
                shown(set.has_events())
            }),
            _ => 0,
        };
        Snapshot {
            mask,
            arrived,
            full,
            news,
            held,
            too_few,
        }
    }

    /// The events of a snapshot that the program asked for.
    pub const fn requested(&self, snapshot: &Snapshot) -> u32 {
        snapshot.mask & (self.events | flag(EPOLLERR | EPOLLHUP))
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

    /// Whether the program is to be told of connections, where it is a listener.
    pub const fn asks_for_connections(&self) -> bool {
        self.enabled && self.events & flag(EPOLLIN | libc::EPOLLRDNORM) != 0
    }

    /// Whether a process keeps the connections of a listener of which its set has told: they would come back without
    /// an edge. A one-shot member is told of all that waits when it is enabled again.
    pub const fn keeps_connections(&self) -> bool {
        self.is_edge() && !self.is_oneshot() && self.asks_for_connections()
    }

    /// Whether the library may report it at all.
    pub const fn is_due(&self) -> bool {
        self.alive && self.enabled && !self.native
    }

    /// Whether a snapshot is to be reported.
    pub const fn must_report(&self, snapshot: &Snapshot) -> bool {
        self.requested(snapshot) != 0
            && (self.fresh || !self.is_edge() || self.reported.differs(snapshot, self.events))
    }

    /// Whether it would be reported now.
    pub fn would_report(&self) -> bool {
        self.is_due() && self.must_report(&self.snapshot())
    }
}
