//! Going to sleep in the kernel without missing a wake-up: the sleep is announced to all that may bring news, then all
//! members are looked at once more.

use core::sync::atomic::Ordering;

use libc::{EPOLLIN, EPOLLRDHUP};
use netchannel_abi::link::waiter as bits;
use netchannel_ring::cell;

use super::{EpollSet, State, flag, inner_data, readiness};
use crate::descriptors::table::Kind;
use crate::ground::sys;
use crate::sockets::lane::Lane;
use crate::sockets::listener::{self, Listener};
use crate::sockets::listener::{sleeping, wake_ups};
use crate::sockets::socket::{self, status};
use crate::waiting::wait::Peers;

/// Longest first sleep after a member was removed: a wake-up may be on its way to it.
const SLEEP_AFTER_REMOVAL: i64 = 50_000_000;
/// Longest sleep where another process uses the set or waits for a member, and may take a token for this process, or has
/// a member whose peer is gone.
const SLEEP_WHEN_SHARED: i64 = 10_000_000;
/// Longest sleep where an anchor brings no tokens any more.
const SLEEP_WITHOUT_TOKENS: i64 = 1_000_000;
/// Most watched members that are looked at while spinning.
const SPIN_LIMIT: usize = 64;

/// The sets for which a thread sleeps: a set and the sets within it.
pub struct SleepingSets {
    sets: Vec<&'static EpollSet>,
    /// How many of them have listeners.
    listening: usize,
}

impl SleepingSets {
    /// Ends the sleep.
    pub fn wake(self) {
        self.sets.iter().for_each(|set| set.end_sleep());
        (0..self.listening).for_each(|_| sleeping::end_sleep(true));
    }
}

impl EpollSet {
    /// Announces a sleep in the kernel on the set's descriptor. Before it sleeps the caller looks once more at what it
    /// waits for.
    pub fn announce_sleep(&'static self) -> SleepingSets {
        let mut asleep = SleepingSets {
            sets: Vec::new(),
            listening: 0,
        };
        self.announce_sleep_in(&mut asleep);
        asleep
    }

    /// As [`Self::announce_sleep`], for a wait. `None` when there was news meanwhile. Also returns how many nanoseconds
    /// it is safe to sleep.
    pub(super) fn arm(&'static self) -> Option<(SleepingSets, i64)> {
        let asleep = self.announce_sleep();
        if self.has_news() || self.has_fresh() {
            asleep.wake();
            return None;
        }
        let mut limit = i64::MAX;
        let mut news = false;
        if let Some(mut state) = self.state.lock() {
            let (news_before, most) = self.longest_unwoken(&mut state);
            // Other threads may have queued several members since the last look, when no thread slept that they would
            // have woken.
            news = news_before | self.check_queues(&mut state) | self.has_ready(&mut state);
            limit = most.min(Self::longest_sleep(&state));
        }
        if news {
            asleep.wake();
            return None;
        }
        Some((asleep, limit))
    }

    /// How long a thread may sleep whose sleep was announced, for members of whose news no token may come. Also whether
    /// one has news from before.
    pub(super) fn longest_unwoken(&self, state: &mut State) -> (bool, i64) {
        let (news, without_tokens) = Self::unwatch_armed(state);
        let after_removal = if core::mem::take(&mut state.member_left) {
            SLEEP_AFTER_REMOVAL
        } else {
            i64::MAX
        };
        if self.has_others(state) {
            Self::watch_all(state);
            return (news, SLEEP_WHEN_SHARED);
        }
        let most = without_tokens.min(after_removal);
        if Self::has_shared_in_cell(state) {
            return (news, most.min(SLEEP_WHEN_SHARED));
        }
        (news, most)
    }

    /// Whether another process has a member with a cell, too: it may take the token that the peer has sent with the
    /// mark.
    fn has_shared_in_cell(state: &mut State) -> bool {
        let sharings = socket::sharings();
        if state.unshared == sharings {
            return false;
        }
        let items = &state.items;
        let is_shared = |number: &u32| {
            let item = number.checked_sub(1).and_then(|at| items.get(at as usize));
            let lane = item.and_then(super::item::Item::lane);
            lane.is_some_and(|lane| !lane.socket.is_unshared())
        };
        let any = state
            .cells
            .iter()
            .any(|used| used.items.iter().any(is_shared));
        if !any {
            state.unshared = sharings;
        }
        any
    }

    /// Looks into the queues that listeners of the set share with relatives: where a relative uses the set, too, the
    /// event may have gone to it. True when a listener has a connection.
    pub(super) fn check_queues(&self, state: &mut State) -> bool {
        if state.listeners.is_empty() || !self.shared.load(Ordering::Relaxed) {
            return false;
        }
        // Before their connections are counted.
        listener::poll_jobs();
        let mut any = false;
        for index in 0..state.listeners.as_slice().len() {
            let number = state.listeners.as_slice().get(index).copied();
            let Some(number) = number else { break };
            let has_connection = state.items.get(number as usize).is_some_and(|item| {
                let listener = socket::of_word(item.word).and_then(|socket| socket.listener());
                listener.is_some_and(Listener::has_queues) && item.would_report()
            });
            if has_connection {
                state.ready.push(number);
                any = true;
            }
        }
        any
    }

    /// Stops watching members that are armed and have no news: a token will come for them. Returns whether a member has
    /// news from before it was armed, and how long to sleep where members are left for which no token comes.
    fn unwatch_armed(state: &mut State) -> (bool, i64) {
        let (mut news, mut limit) = (false, i64::MAX);
        for index in (0..state.watched.as_slice().len()).rev() {
            let number = state.watched.as_slice()[index];
            let Some(item) = state.items.get(number as usize) else {
                continue;
            };
            let Some(lane) = item.lane() else { continue };
            // Another process that has the set, or had it, may have taken the anchor out of the inner set.
            if !item.registered || is_without_tokens(&lane) {
                if item.enabled {
                    news |= lane.finds_end();
                    limit = limit.min(sleep_without_token(&lane));
                }
                continue;
            }
            let armed = lane.own().waiter.load(Ordering::Relaxed) & bits::DATA != 0;
            // Read after the bit was seen: the peer takes the bit, or this look sees what the peer did.
            core::sync::atomic::fence(Ordering::SeqCst);
            let snapshot = item.snapshot();
            if snapshot.held {
                state.holding.insert(number);
            }
            if item.is_due() && item.must_report(&snapshot) {
                news = true;
            } else if !lane.socket.is_unshared() {
                limit = limit.min(SLEEP_WHEN_SHARED);
            } else if armed && !Self::has_in_cell(state, &lane) {
                state.watched.remove(number);
            }
        }
        (news, limit)
    }

    /// Whether the set has the socket in a cell, under another number: that member is told without a token, and this one
    /// is to be told with it.
    fn has_in_cell(state: &State, lane: &Lane) -> bool {
        let slot = lane.handle().index as usize;
        state.cells.iter().any(|used| {
            let is_of_link = used.link.is_some_and(|link| core::ptr::eq(link, lane.link));
            is_of_link && used.items.get(slot).is_some_and(|item| *item != 0)
        })
    }

    /// Watches all members again: another process may have taken their tokens.
    fn watch_all(state: &mut State) {
        for (number, item) in (0u32..).zip(&state.items) {
            if item.alive && item.cell.is_none() && item.word.kind() == Kind::Virtual {
                state.watched.insert(number);
            }
        }
    }

    fn announce_sleep_in(&'static self, asleep: &mut SleepingSets) {
        if self.shared.load(Ordering::Relaxed) {
            self.enroll();
        }
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
            sleeping::begin_sleep();
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
            set.announce_sleep_in(asleep);
        }
    }

    /// Arms all members: news of any of them wakes a thread that sleeps in the set.
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

    /// Called by an awake thread that has taken the wake-up of a sleeper, which may sleep on: arms the members for the
    /// next news. Earlier news is found by the caller, who looks at all members after this call, or wakes a sleeper.
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
        // Pairs with the fence of a peer: it sees the sleeper, or the caller's look sees what it did.
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Arms a member that joins while threads sleep in the set: its news wakes one of them. True where a thread must be
    /// woken at once.
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
        // Pairs with the fence of the peer: it sees the sleeper, or this look sees what it did.
        core::sync::atomic::fence(Ordering::SeqCst);
        !item.registered || item.wants_room() || item.would_report()
    }

    /// Puts the anchors of new members into the inner set.
    pub(super) fn register(&self, state: &mut State) {
        let inner = self.inner.load(Ordering::Acquire);
        while let Some(number) = state.unregistered.pop() {
            if let Some(item) = state.items.get_mut(number as usize)
                && item.alive
            {
                let data = inner_data::ITEM << 32 | u64::from(number);
                let events = flag(EPOLLIN | EPOLLRDHUP);
                let add = libc::EPOLL_CTL_ADD;
                let added = sys::epoll_control(inner, add, item.current_fd, events, data);
                // A process that shares the set may have added it before.
                item.registered = matches!(added, Ok(()) | Err(libc::EEXIST));
            }
        }
    }

    /// The descriptor under which a member's anchor is in the inner set is about to be closed, and the socket has
    /// others: the kernel could not remove a closed one. Where several processes use the inner set, another one may
    /// need it as it is.
    pub(super) fn register_anew(&self, state: &mut State, number: u32, former: i32) {
        if state.board.is_some() {
            return;
        }
        let inner = self.inner.load(Ordering::Acquire);
        let _ = sys::epoll_control(inner, libc::EPOLL_CTL_DEL, former, 0, 0);
        state.unregistered.insert(number);
        self.register(state);
    }

    /// With whom its members are connected.
    pub(super) fn peers(&self) -> Peers {
        let state = self.state.lock();
        let links = state.iter().flat_map(|state| state.cells.iter());
        let peers = links.filter_map(|used| used.link).map(Peers::of);
        peers.max().unwrap_or(Peers::Near)
    }

    fn end_sleep(&self) {
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
                // The other sleepers must be woken by the next news.
                cell::sleep(&shared.asleep);
            } else {
                cell::wake(&shared.asleep);
            }
        }
    }

    /// Whether there is any news. Only looks; called while spinning.
    pub(super) fn has_news(&self) -> bool {
        let Some(state) = self.state.lock() else {
            return false;
        };
        let marked = |used: &super::CellUse| {
            used.link
                .and_then(|link| link.cell(link.role, used.cell))
                .is_some_and(|shared| cell::any_marked(&shared.summary))
        };
        let must_report = |number: &u32| {
            state
                .items
                .get(*number as usize)
                .is_some_and(super::item::Item::would_report)
        };
        state.cells.iter().any(marked)
            || !state.listeners.is_empty() && self.has_jobs(&state)
            || state
                .watched
                .as_slice()
                .iter()
                .take(SPIN_LIMIT)
                .any(must_report)
            || state.nested.as_slice().iter().any(must_report)
            || state.holding.as_slice().iter().any(must_report)
            || state
                .ready
                .front()
                .is_some_and(|number| must_report(&number))
    }
}

/// Whether the anchor of a member brings no tokens any more: it shows an end, and stays in no inner set.
pub(super) fn is_without_tokens(lane: &Lane) -> bool {
    lane.socket.has(status::PEER_GONE | status::ANCHOR_SHUT)
}

/// How long to sleep for a member whose anchor brings no tokens.
fn sleep_without_token(lane: &Lane) -> i64 {
    if !lane.socket.has(status::PEER_GONE) {
        SLEEP_WITHOUT_TOKENS
    } else if lane.socket.is_unshared() || readiness(lane) & flag(libc::EPOLLHUP) != 0 {
        i64::MAX
    } else {
        // A relative may still end this side.
        SLEEP_WHEN_SHARED
    }
}
