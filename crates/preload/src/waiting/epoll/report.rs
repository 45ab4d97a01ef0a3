//! Finding ready members and reporting them to the program. No system call, but where members have the same data.

use core::sync::atomic::Ordering;

use netchannel_ring::cell;

use super::edges::{Reported, Snapshot};
use super::item::Item;
use super::{EpollSet, NUMBER, State, flag, own_data};
use crate::descriptors::table::Kind;
use crate::ground::{clock, sys};
use crate::sockets::link::LOOK_INTERVAL;
use crate::sockets::listener;
use crate::sockets::listener::Listener;
use crate::sockets::socket::{self, status};
use crate::waiting::housekeeping;

impl EpollSet {
    /// Writes the events of ready members into `out`, behind the first `have` events, which the kernel has reported.
    pub(super) fn collect(&'static self, out: &mut [libc::epoll_event], have: usize) -> usize {
        let Some(mut state) = self.state.lock() else {
            return 0;
        };
        self.absorb(&mut state);
        state.round = state.round.wrapping_add(1);
        let (reported, out) = out.split_at_mut(have);
        let count = self.report(&mut state, reported, out);
        drop(state);
        housekeeping::carry();
        count
    }

    /// Whether a wait would report anything that the kernel does not know of.
    pub fn has_events(&'static self) -> bool {
        if self.has_fresh() {
            // TCP shows that it is not connected, whatever was asked for.
            return true;
        }
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
        self.has_ready(state)
    }

    /// Whether a queued member would be reported. Members before it that would not leave the queue.
    pub(super) fn has_ready(&'static self, state: &mut State) -> bool {
        while let Some(number) = state.ready.front() {
            if state.board.is_some() && !self.refresh(state, number) {
                state.ready.remove(number);
                continue;
            }
            if let Some(item) = state.items.get_mut(number as usize) {
                let snapshot = Self::snapshot(item);
                if snapshot.held {
                    state.holding.insert(number);
                }
                if item.is_due() && item.must_report(&snapshot) {
                    return true;
                }
                item.settle(&snapshot);
            }
            state.ready.remove(number);
        }
        false
    }

    /// Gathers the news of all members: bits in cells, connections of listeners, watched members.
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
            // Acquire: pairs with the release in `has_connection`, whose connection is seen below. An exchange, not a
            // store: a flag that is set afterwards stays.
            if self.jobs.load(Ordering::Relaxed) {
                self.jobs.swap(false, Ordering::AcqRel);
            }
            for number in state.listeners.as_slice() {
                let Some(item) = state.items.get(*number as usize) else {
                    continue;
                };
                let listener = socket::of_word(item.word).and_then(|socket| socket.listener());
                if !item.asks_for_connections() {
                    listener.inspect(|listener| listener.leave_unless_accepting());
                } else if !item.keeps_connections()
                    // The others are asked when they are reported: that may be a question to the kernel.
                    || listener.is_some_and(Listener::has_pending_for_edges)
                {
                    state.ready.push(*number);
                }
            }
            if counts {
                self.edges.fetch_add(1, Ordering::Relaxed);
            }
        }
        if !state.links.is_empty() {
            Self::publish_look(state);
        }
        if state.board.is_some() {
            self.adopt_added(state);
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
            let snapshot = item.snapshot();
            if snapshot.held {
                holding.insert(*number);
            }
            if item.must_report(&snapshot) {
                ready.push(*number);
                if counts {
                    self.count(item);
                }
            }
        }
    }

    /// Publishes, often enough, that a loop looks at its links.
    fn publish_look(state: &mut State) {
        let now = clock::now();
        if now.wrapping_sub(state.looked) > LOOK_INTERVAL {
            state.looked = now;
            let alive = state.links.iter().filter(|link| link.is_alive());
            alive.for_each(|link| link.publish_look(now));
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
        if !cell::any_marked(&shared.summary) {
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

    /// Counts news of a member for the sets around this one.
    pub(super) fn count(&self, item: &mut Item) {
        let snapshot = item.snapshot();
        if item.counted.differs(&snapshot, item.events) && item.requested(&snapshot) != 0 {
            item.counted.note(&snapshot);
            self.edges.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether listeners may have unreported connections.
    pub(super) fn has_jobs(&self, state: &State) -> bool {
        self.jobs.load(Ordering::Relaxed)
            || state
                .links
                .iter()
                .any(|link| link.is_alive() && link.has_jobs())
    }

    /// The state of a member, after [`Self::absorb`]. A member that waits for room and has none asks the peer for a
    /// wake-up. A member that waits for room only and has it checks whether the peer is alive, which nothing else would do.
    fn snapshot(item: &Item) -> Snapshot {
        let snapshot = item.snapshot_after_look();
        let alone = flag(libc::EPOLLOUT | libc::EPOLLWRNORM);
        if snapshot.mask == alone
            && item.is_due()
            && item.wants_room()
            && let Some(lane) = item.lane()
        {
            lane.check_peer();
            if lane.socket.has(status::PEER_GONE) {
                return item.snapshot();
            }
        }
        if item.is_due()
            && item.wants_room()
            && snapshot.mask & flag(libc::EPOLLOUT) == 0
            && let Some(lane) = item.lane()
            && lane.want_space()
        {
            return item.snapshot();
        }
        snapshot
    }

    fn report(
        &'static self,
        state: &mut State,
        reported: &[libc::epoll_event],
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
            let snapshot = Self::snapshot(item);
            if snapshot.held {
                state.holding.insert(number);
            }
            if !item.must_report(&snapshot) {
                item.settle(&snapshot);
                continue;
            }
            let (requested, data, kind) = (item.requested(&snapshot), item.data, item.word.kind());
            let (fd, told) = (item.current_fd, core::mem::take(&mut item.told));
            if state.board.is_some() && !Self::claims_edge(state, number, &snapshot) {
                state.ready.push(number);
                continue;
            }
            // A member that is ready by both paths is reported once. The event may be of another one with the same data.
            let twice = matches!(kind, Kind::Listener | Kind::Epoll)
                && reported.iter().any(|event| { event.u64 } == data)
                && (told || sys::is_readable(fd));
            if !twice {
                out[count] = libc::epoll_event {
                    events: requested,
                    u64: data,
                };
                count += 1;
                if kind == Kind::Listener
                    && let Some(item) = state.items.get(number as usize)
                    && let Some(listener) = socket::of_word(item.word).and_then(|s| s.listener())
                {
                    listener.note_reported();
                }
            }
            again += usize::from(self.note_reported(state, number, &snapshot));
        }
        if !state.strangers.is_empty() {
            count = Self::report_strangers(state, out, count);
        }
        if state.ready.len() > again && self.sleepers.load(Ordering::Relaxed) > 0 {
            // Members that found no room in `out` are for the other sleepers.
            self.wake();
        }
        count
    }

    /// Notes that a member was reported. Whether it is to be reported again as long as its state stays the same.
    #[inline(always)]
    fn note_reported(&self, state: &mut State, number: u32, snapshot: &Snapshot) -> bool {
        let round = state.round;
        let Some(item) = state.items.get_mut(number as usize) else {
            return false;
        };
        item.settle(snapshot);
        item.reported.note(snapshot);
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

    /// Reports listeners that got connections during the look at the kernel: behind the first `have` events, of which
    /// those from `kernels` on are the kernel's.
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
            let (snapshot, data) = (item.snapshot(), item.data);
            let by_kernel = |event: &libc::epoll_event| { event.u64 } == data;
            let reported =
                item.round == round || out.iter().take(have).skip(kernels).any(by_kernel);
            if reported || !item.is_due() || !item.must_report(&snapshot) {
                continue;
            }
            let events = item.requested(&snapshot);
            let Some(place) = out.get_mut(have + count) else {
                break;
            };
            *place = libc::epoll_event { events, u64: data };
            count += 1;
            let listener = socket::of_word(item.word).and_then(|socket| socket.listener());
            listener.inspect(|listener| listener.note_reported());
            self.note_reported(&mut state, number, &snapshot);
        }
        count
    }

    /// Disables a one-shot member that was reported where the kernel reports it, too.
    fn silence(&self, item: &Item, number: u32) {
        if matches!(item.word.kind(), Kind::Listener | Kind::Epoll) {
            let set = self.fd.load(Ordering::Relaxed);
            let data = own_data() | u64::from(number) & NUMBER;
            let _ = sys::epoll_control(set, libc::EPOLL_CTL_MOD, item.fd, 0, data);
        }
    }
}

impl Item {
    /// Notes the first snapshot of a member that was added or changed.
    fn settle(&mut self, snapshot: &Snapshot) {
        if core::mem::take(&mut self.fresh) {
            self.reported = Reported::start(snapshot);
        }
    }
}
