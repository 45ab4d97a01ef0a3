//! Going to sleep in the kernel without missing anything: everybody who may bring news is told
//! first, then all is looked at once more.

use core::sync::atomic::Ordering;

use libc::{EPOLLIN, EPOLLRDHUP};
use netchannel_abi::link::waiter as bits;
use netchannel_abi::program::RELAY;
use netchannel_ring::cell;

use super::{EpollSet, State, flag, inside};
use crate::descriptors::table::Kind;
use crate::ground::sys;
use crate::sockets::listener::{self, Listener};
use crate::sockets::listener::{sleeping, wake_ups};
use crate::sockets::socket::{self, status};

/// After a member has left, a wake-up may be on its way to it: the first sleep is bounded.
const CAUTIOUS: i64 = 50_000_000;
/// Where another process uses the set, it may take a token that was meant for this one.
const TOGETHER: i64 = 10_000_000;
/// Where an anchor brings no tokens any more.
const BLIND: i64 = 1_000_000;
/// Watched members that are looked at while spinning.
const SPUN: usize = 64;

/// The sets for which a thread sleeps: one and those within it.
pub struct Asleep {
    sets: Vec<&'static EpollSet>,
    /// How many of them have listeners.
    listening: usize,
}

impl Asleep {
    /// The thread is awake.
    pub fn wake(self) {
        self.sets.iter().for_each(|set| set.rise());
        (0..self.listening).for_each(|_| sleeping::rise(true));
    }
}

impl EpollSet {
    /// Prepares to sleep in the kernel on the set's descriptor. The caller looks once more at what
    /// it waits for before it does.
    pub fn fall_asleep(&'static self) -> Asleep {
        let mut asleep = Asleep {
            sets: Vec::new(),
            listening: 0,
        };
        self.lie_down(&mut asleep);
        asleep
    }

    /// As [`Self::fall_asleep`], for a wait. `None` when something came meanwhile. Also says
    /// for how many nanoseconds it is safe to sleep.
    pub(super) fn arm(&'static self) -> Option<(Asleep, i64)> {
        let asleep = self.fall_asleep();
        if self.peek() {
            asleep.wake();
            return None;
        }
        let mut limit = i64::MAX;
        let mut news = false;
        if let Some(mut state) = self.state.lock() {
            let (told, blind) = Self::rest(&mut state);
            // Other threads may have queued several since the last look, while nobody slept whom they would have woken.
            news = told | self.look_at_queues(&mut state) | self.finds_ready(&mut state);
            if core::mem::take(&mut state.left) {
                limit = CAUTIOUS;
            }
            if self.has_others(&state) {
                limit = TOGETHER;
                Self::watch_all(&mut state);
            } else if blind {
                limit = BLIND;
            }
            limit = limit.min(Self::longest(&state));
        }
        if news {
            asleep.wake();
            return None;
        }
        Some((asleep, limit))
    }

    /// Looks into the queues that listeners of the set have together with relatives: where one of these uses the set too, it may have
    /// been told in place of this process. True when a listener has something to tell.
    pub(super) fn look_at_queues(&self, state: &mut State) -> bool {
        if state.listeners.is_empty() {
            return false;
        }
        // Before they are counted.
        listener::poll_jobs();
        let mut any = false;
        for index in 0..state.listeners.as_slice().len() {
            let number = state.listeners.as_slice().get(index).copied();
            let Some(number) = number else { break };
            let waits = state.items.get(number as usize).is_some_and(|item| {
                let listener = socket::of_word(item.word).and_then(|socket| socket.listener());
                listener.is_some_and(Listener::has_queues) && item.would_tell()
            });
            if waits {
                state.ready.push(number);
                any = true;
            }
        }
        any
    }

    /// Members that were watched, are armed and have no news, need not be looked at: a token tells.
    /// Says whether one has news, which came before it was armed, and whether some are left that
    /// no token will tell of.
    fn rest(state: &mut State) -> (bool, bool) {
        let (mut news, mut blind) = (false, false);
        for index in (0..state.watched.as_slice().len()).rev() {
            let number = state.watched.as_slice()[index];
            let Some(item) = state.items.get(number as usize) else {
                continue;
            };
            let Some(lane) = item.lane() else { continue };
            if !item.registered {
                blind |= item.enabled && !lane.socket.has(status::PEER_GONE);
                continue;
            }
            let armed = lane.own().waiter.load(Ordering::Relaxed) & bits::DATA != 0;
            // Looked at after the bit was seen: the peer takes it, or we see what it did.
            core::sync::atomic::fence(Ordering::SeqCst);
            let look = item.look();
            if look.held {
                state.holding.insert(number);
            }
            if item.is_due() && item.tells(&look) {
                news = true;
            } else if armed {
                state.watched.remove(number);
            }
        }
        (news, blind)
    }

    /// What another process has taken the token of is found by looking only.
    fn watch_all(state: &mut State) {
        for (number, item) in (0u32..).zip(&state.items) {
            if item.alive && item.cell.is_none() && item.word.kind() == Kind::Virtual {
                state.watched.insert(number);
            }
        }
    }

    fn lie_down(&'static self, asleep: &mut Asleep) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        asleep.sets.push(self);
        if !self.is_active() {
            return;
        }
        let Some(mut guard) = self.state.lock() else {
            return;
        };
        let state = &mut *guard;
        self.arm_members(state);
        if !state.listeners.is_empty() {
            sleeping::lie_down();
            asleep.listening += 1;
        }
        let nested: Vec<_> = state
            .nested
            .as_slice()
            .iter()
            .filter_map(|number| state.items.get(*number as usize)?.set())
            .collect();
        drop(guard);
        for set in nested {
            set.lie_down(asleep);
        }
    }

    /// Whoever brings news of a member wakes a thread that sleeps in the set.
    fn arm_members(&self, state: &mut State) {
        self.register(state);
        for used in &state.cells {
            if let Some(link) = used.link
                && let Some(shared) = link.cell(link.role, used.cell)
                && shared.asleep.load(Ordering::Relaxed) == 0
            {
                cell::sleep(&shared.asleep);
            }
        }
        for number in state.watched.as_slice() {
            if let Some(item) = state.items.get(*number as usize)
                && item.enabled
                && let Some(lane) = item.lane()
            {
                let full = item.wants_room() && !lane.is_writable();
                lane.arm(if full {
                    bits::DATA | bits::SPACE
                } else {
                    bits::DATA
                });
            }
        }
    }

    /// The calling thread, which is awake, has taken what was to wake one that sleeps in the set, and that one may sleep on: it is to be
    /// woken by the next news. What comes before that is found by the caller, who looks at all members after this, or wakes a sleeper.
    pub(super) fn arm_in_place_of_sleepers(&self) {
        if self.sleepers.load(Ordering::SeqCst) == 0 {
            return;
        }
        let Some(mut state) = self.state.lock() else {
            return;
        };
        self.arm_members(&mut state);
        if !state.listeners.is_empty() && wake_ups::anybody_sleeps() {
            let _ = listener::listen_for_jobs();
        }
        // Pairs with the fence of a peer: it sees who sleeps, or what it did is seen by the caller's look.
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Threads may sleep in the set while a member joins: its news is to wake one of them, who need not be awake before. True where one
    /// must be woken at once.
    pub(super) fn arm_for_sleepers(&self, state: &mut State, number: u32) -> bool {
        if self.sleepers.load(Ordering::SeqCst) == 0 {
            return true;
        }
        self.register(state);
        let Some(item) = state.items.get(number as usize) else {
            return true;
        };
        let cell = item.cell.and_then(|cell| state.cells.get(cell));
        let shared = cell.and_then(|used| used.link?.cell(used.link?.role, used.cell));
        match (shared, item.lane()) {
            (Some(shared), _) => cell::sleep(&shared.asleep),
            (None, Some(lane)) => lane.arm(bits::DATA),
            (None, None) => return true,
        }
        // Pairs with the fence of the peer: it sees who sleeps, or what it did is seen here.
        core::sync::atomic::fence(Ordering::SeqCst);
        !item.registered || item.wants_room() || item.would_tell()
    }

    /// Puts the anchors of new members into the inner set.
    pub(super) fn register(&self, state: &mut State) {
        let inner = self.inner.load(Ordering::Acquire);
        while let Some(number) = state.unregistered.pop() {
            if let Some(item) = state.items.get_mut(number as usize)
                && item.alive
            {
                let data = inside::ITEM << 32 | u64::from(number);
                let events = flag(EPOLLIN | EPOLLRDHUP);
                let add = libc::EPOLL_CTL_ADD;
                let added = sys::epoll_control(inner, add, item.through, events, data);
                // Where a process shares the set, it may have been there first.
                item.registered = matches!(added, Ok(()) | Err(libc::EEXIST));
            }
        }
    }

    /// The descriptor under which a member's anchor is in the inner set is about to be closed, and others are left: under a closed one
    /// the kernel would not take it out again. Where several processes use the inner set, another one may need it as it is.
    pub(super) fn register_anew(&self, state: &mut State, number: u32, former: i32) {
        if state.board.is_some() {
            return;
        }
        let inner = self.inner.load(Ordering::Acquire);
        let _ = sys::epoll_control(inner, libc::EPOLL_CTL_DEL, former, 0, 0);
        state.unregistered.insert(number);
        self.register(state);
    }

    /// Whether members come by way of the daemon.
    pub(super) fn reaches_far(&self) -> bool {
        let far = |used: &super::CellUse| used.link.is_some_and(|link| link.listener == RELAY);
        let state = self.state.lock();
        state.is_some_and(|state| state.cells.iter().any(far))
    }

    fn rise(&self) {
        let others = self.sleepers.fetch_sub(1, Ordering::SeqCst) > 1;
        if !self.is_active() {
            return;
        }
        let Some(state) = self.state.lock() else {
            return;
        };
        for used in &state.cells {
            let Some(shared) = used.link.and_then(|link| link.cell(link.role, used.cell)) else {
                continue;
            };
            if others {
                // They must be woken for the next one.
                cell::sleep(&shared.asleep);
            } else {
                cell::wake(&shared.asleep);
            }
        }
    }

    /// Whether anything is there. Only looks; spun upon.
    pub(super) fn peek(&self) -> bool {
        let Some(state) = self.state.lock() else {
            return false;
        };
        let marked = |used: &super::CellUse| {
            used.link
                .and_then(|link| link.cell(link.role, used.cell))
                .is_some_and(|shared| cell::any(&shared.summary))
        };
        let tells = |number: &u32| {
            state
                .items
                .get(*number as usize)
                .is_some_and(super::item::Item::would_tell)
        };
        state.cells.iter().any(marked)
            || !state.listeners.is_empty() && self.has_jobs(&state)
            || state.watched.as_slice().iter().take(SPUN).any(tells)
            || state.nested.as_slice().iter().any(tells)
            || state.holding.as_slice().iter().any(tells)
            || state.ready.front().is_some_and(|number| tells(&number))
    }
}
