//! Finding what is ready and telling the program. No system call.

use core::sync::atomic::Ordering;

use netchannel_ring::cell;

use super::edges::{Look, Seen};
use super::item::Item;
use super::{EpollSet, NUMBER, State, flag, own_data};
use crate::descriptors::table::Kind;
use crate::ground::{clock, sys};
use crate::sockets::listener;
use crate::sockets::listener::Listener;
use crate::sockets::socket::{self, status};
use crate::waiting::housekeeping;

impl EpollSet {
    /// Gathers ready members into `out`, behind the first `have` events, which the kernel has told.
    pub(super) fn collect(&'static self, out: &mut [libc::epoll_event], have: usize) -> usize {
        let Some(mut state) = self.state.lock() else {
            return 0;
        };
        self.absorb(&mut state);
        state.round = state.round.wrapping_add(1);
        let (told, out) = out.split_at_mut(have);
        let count = self.report(&mut state, told, out);
        drop(state);
        housekeeping::carry();
        count
    }

    /// Whether a wait would tell anything that the kernel does not know of.
    pub fn has_events(&'static self) -> bool {
        if !self.is_active() {
            return false;
        }
        let Some(mut state) = self.state.lock() else {
            return false;
        };
        let state = &mut *state;
        self.absorb(state);
        if !state.strangers.is_empty() {
            return true;
        }
        self.finds_ready(state)
    }

    /// Whether a member that was queued would be told. Those before it that would not leave the queue.
    pub(super) fn finds_ready(&'static self, state: &mut State) -> bool {
        while let Some(number) = state.ready.front() {
            if state.board.is_some() && !self.refresh(state, number) {
                state.ready.remove(number);
                continue;
            }
            if let Some(item) = state.items.get_mut(number as usize) {
                let look = Self::look(item);
                if look.held {
                    state.holding.insert(number);
                }
                if item.is_due() && item.tells(&look) {
                    return true;
                }
                item.settle(&look);
            }
            state.ready.remove(number);
        }
        false
    }

    /// Takes the news of all members: marks in cells, connections of listeners, what is watched.
    pub(super) fn absorb(&'static self, state: &mut State) {
        let counts = self.has_parents.load(Ordering::Relaxed);
        if !state.holding.is_empty() {
            self.absorb_held(state, counts);
        }
        for index in 0..state.cells.len() {
            self.absorb_cell(state, index, counts);
        }
        if !state.listeners.is_empty() && self.has_jobs(state) {
            listener::poll_jobs();
            // Acquire: pairs with the release in `has_connection`, whose connection is seen below. An
            // exchange, not a store: what is said after it stays.
            if self.jobs.load(Ordering::Relaxed) {
                self.jobs.swap(false, Ordering::AcqRel);
            }
            for number in state.listeners.as_slice() {
                let item = state.items.get(*number as usize);
                let listener = item
                    .and_then(|item| socket::of_word(item.word))
                    .and_then(|socket| socket.listener());
                if listener.is_some_and(Listener::has_polled) {
                    state.ready.push(*number);
                }
            }
            if counts {
                self.edges.fetch_add(1, Ordering::Relaxed);
            }
        }
        if !state.links.is_empty() {
            let now = clock::now();
            let alive = state.links.iter().filter(|link| link.is_alive());
            alive.for_each(|link| link.looks(now));
        }
        if state.board.is_some() {
            self.take_up(state);
            for index in 0..state.watched.as_slice().len() {
                if let Some(number) = state.watched.as_slice().get(index) {
                    let _ = self.refresh(state, *number);
                }
            }
        }
        let State {
            watched,
            nested,
            items,
            ready,
            holding,
            ..
        } = state;
        for number in watched.as_slice().iter().chain(nested.as_slice()) {
            let Some(item) = items.get_mut(*number as usize) else {
                continue;
            };
            if !item.is_due() {
                continue;
            }
            let look = item.look();
            if look.held {
                holding.insert(*number);
            }
            if item.tells(&look) {
                ready.push(*number);
                if counts {
                    self.count(item);
                }
            }
        }
    }

    fn absorb_cell(&self, state: &mut State, index: usize, counts: bool) {
        let State {
            cells,
            items,
            ready,
            ..
        } = state;
        let Some(used) = cells.get(index) else {
            return;
        };
        let Some(link) = used.link else { return };
        let Some(shared) = link.cell(link.role, used.cell) else {
            return;
        };
        if !cell::any(&shared.summary) {
            return;
        }
        cell::take(&shared.summary, &shared.ready, |slot| {
            let number = used.items.get(slot).copied().unwrap_or(0);
            let Some(index) = number.checked_sub(1) else {
                return;
            };
            if let Some(item) = items.get_mut(index as usize)
                && item.alive
            {
                ready.push(index);
                if counts {
                    self.count(item);
                }
            }
        });
    }

    /// Counts news of a member, for the sets around this one.
    pub(super) fn count(&self, item: &mut Item) {
        let look = item.look();
        if item.noted.differs(&look, item.events) && item.wanted(&look) != 0 {
            item.noted.note(&look);
            self.edges.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether listeners may have connections that were not told of.
    pub(super) fn has_jobs(&self, state: &State) -> bool {
        self.jobs.load(Ordering::Relaxed)
            || state
                .links
                .iter()
                .any(|link| link.is_alive() && link.has_jobs())
    }

    /// What a member shows. One that waits for room and has none asks the peer for word of it. Where there is room, nothing else would
    /// ask whether the peer is there still.
    fn look(item: &Item) -> Look {
        let look = item.look();
        let alone = flag(libc::EPOLLOUT | libc::EPOLLWRNORM);
        if look.mask == alone
            && item.is_due()
            && item.wants_room()
            && let Some(lane) = item.lane()
        {
            lane.check_peer();
            if lane.socket.has(status::PEER_GONE) {
                return item.look();
            }
        }
        if item.is_due()
            && item.wants_room()
            && look.mask & flag(libc::EPOLLOUT) == 0
            && let Some(lane) = item.lane()
            && lane.want_space()
        {
            return item.look();
        }
        look
    }

    fn report(
        &'static self,
        state: &mut State,
        told: &[libc::epoll_event],
        out: &mut [libc::epoll_event],
    ) -> usize {
        let mut count = 0;
        let mut again = 0;
        for _ in 0..state.ready.len() {
            if count == out.len() {
                break;
            }
            let Some(number) = state.ready.pop() else {
                break;
            };
            if state.board.is_some() && !self.refresh(state, number) {
                continue;
            }
            let Some(item) = state.items.get_mut(number as usize) else {
                continue;
            };
            if !item.is_due() {
                continue;
            }
            let look = Self::look(item);
            if look.held {
                state.holding.insert(number);
            }
            if !item.tells(&look) {
                item.settle(&look);
                continue;
            }
            let (wanted, data, kind) = (item.wanted(&look), item.data, item.word.kind());
            if state.board.is_some() && !Self::is_first(state, number, &look) {
                state.ready.push(number);
                continue;
            }
            // What is ready by both paths is reported once.
            let twice = matches!(kind, Kind::Listener | Kind::Epoll)
                && told.iter().any(|event| { event.u64 } == data);
            if !twice {
                out[count] = libc::epoll_event {
                    events: wanted,
                    u64: data,
                };
                count += 1;
                if kind == Kind::Listener
                    && let Some(item) = state.items.get(number as usize)
                    && let Some(listener) = socket::of_word(item.word).and_then(|s| s.listener())
                {
                    listener.tell();
                }
            }
            again += usize::from(self.was_told(state, number, &look));
        }
        if !state.strangers.is_empty() {
            count = Self::report_strangers(state, out, count);
        }
        if state.ready.len() > again && self.sleepers.load(Ordering::Relaxed) > 0 {
            // What had no room is for the others.
            self.wake();
        }
        count
    }

    /// A member was told. Whether it is to be told again as long as it shows the same.
    #[inline(always)]
    fn was_told(&self, state: &mut State, number: u32, look: &Look) -> bool {
        let round = state.round;
        let Some(item) = state.items.get_mut(number as usize) else {
            return false;
        };
        item.settle(look);
        item.seen.note(look);
        item.round = round;
        if item.is_oneshot() {
            item.enabled = false;
            let spent = state.board.as_ref().filter(|_| item.life != 0);
            if let Some(entry) = spent.and_then(|board| board.entry(number)) {
                entry.spend(item.change);
            }
            self.silence(item, number);
            return false;
        }
        let again = !item.is_edge();
        if again {
            state.ready.push(number);
        }
        again
    }

    /// Tells of listeners that came by connections while the kernel was looked at: behind the first `have` events, of which those
    /// from `kernels` on are the kernel's.
    pub(super) fn collect_listeners(
        &'static self,
        out: &mut [libc::epoll_event],
        have: usize,
        kernels: usize,
    ) -> usize {
        // Before their connections are counted.
        listener::poll_jobs();
        let Some(mut state) = self.state.lock() else {
            return 0;
        };
        let mut count = 0;
        for index in 0..state.listeners.as_slice().len() {
            let number = state.listeners.as_slice().get(index).copied();
            let Some(number) = number else { break };
            if !self.refresh(&mut state, number) {
                continue;
            }
            let round = state.round;
            let Some(item) = state.items.get(number as usize) else {
                continue;
            };
            let (look, data) = (item.look(), item.data);
            let by_kernel = |event: &libc::epoll_event| { event.u64 } == data;
            let told = item.round == round || out.iter().take(have).skip(kernels).any(by_kernel);
            if told || !item.is_due() || !item.tells(&look) {
                continue;
            }
            let events = item.wanted(&look);
            let Some(place) = out.get_mut(have + count) else {
                break;
            };
            *place = libc::epoll_event { events, u64: data };
            count += 1;
            let listener = socket::of_word(item.word).and_then(|socket| socket.listener());
            listener.inspect(|listener| listener.tell());
            self.was_told(&mut state, number, &look);
        }
        count
    }

    /// A one-shot member was told: where the kernel reports it too, it must not do so again.
    fn silence(&self, item: &Item, number: u32) {
        if matches!(item.word.kind(), Kind::Listener | Kind::Epoll) {
            let set = self.fd.load(Ordering::Relaxed);
            let data = own_data() | u64::from(number) & NUMBER;
            let _ = sys::epoll_control(set, libc::EPOLL_CTL_MOD, item.fd, 0, data);
        }
    }
}

impl Item {
    /// The first look at a member that was added or changed is taken.
    fn settle(&mut self, look: &Look) {
        if core::mem::take(&mut self.fresh) {
            self.seen = Seen::start(look);
        }
    }
}
