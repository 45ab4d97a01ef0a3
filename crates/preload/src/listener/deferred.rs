//! `TCP_DEFER_ACCEPT`: a connection is the program's to see when its client has said something, or the time is over.
//!
//! ```text
//!  links, offers, relatives --> arrived --+-- has spoken, or too many are silent --> the listener's list
//!                                         +-- is silent --> aside -- a token on its anchor, or the time --^
//! ```
//!
//! What lies aside is watched by a set of the kernel's that has the anchors and one timer: whoever sleeps for connections of the listener
//! sleeps on it, too. Where relatives have the listener, who accepts and may be at work for long leaves what lies aside to them.

use std::collections::VecDeque;

use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use libc::{EPOLLIN, EPOLLRDHUP};
use netchannel_abi::link::{side_flags, waiter as bits};
use netchannel_abi::program::SocketEntry;
use netchannel_ring::waiter;

use super::common::Common;
use super::handing::reset;
use super::verdict::{Verdict, deadline, verdict};
use super::{Listener, Pending};
use crate::lock::Lock;
use crate::{attach, clock, confinement, limits, names, sys};

/// The timer, among the keys of what lies aside.
const TIMER: u64 = u64::MAX;
/// For so long what was left to relatives is theirs alone, in nanoseconds.
const FOR_OTHERS: u64 = 1_000_000;

/// One that lies aside.
struct Silent {
    pending: Pending,
    key: u64,
    /// When it is looked at even if nobody tells of it, and when the program may have it, in nanoseconds.
    due: u64,
    deadline: u64,
}

struct State {
    /// Nobody has looked at them yet.
    arrived: VecDeque<Pending>,
    aside: Vec<Silent>,
    next_key: u64,
    /// When the timer rings, in nanoseconds; 0 where it does not.
    rings: u64,
}

/// What one listener holds back in this process.
pub(super) struct Deferred {
    /// The option, as the kernel has rounded it: for all relatives.
    entry: &'static SocketEntry,
    /// A set of the kernel's with the anchors and the timer; -1 where there is none.
    watch: AtomicI32,
    timer: AtomicI32,
    /// Connections in `state`.
    count: AtomicUsize,
    state: Lock<State>,
    /// Where relatives leave each other what lies aside; null before the first fork.
    queue: AtomicPtr<Common>,
    /// When this process has last left something there that is first of all for others, in nanoseconds.
    gave: AtomicU64,
}

impl Deferred {
    fn make(entry: &'static SocketEntry) -> &'static Self {
        Box::leak(Box::new(Self {
            entry,
            watch: AtomicI32::new(-1),
            timer: AtomicI32::new(-1),
            count: AtomicUsize::new(0),
            state: Lock::new(State {
                arrived: VecDeque::new(),
                aside: Vec::new(),
                next_key: 0,
                rings: 0,
            }),
            queue: AtomicPtr::new(core::ptr::null_mut()),
            gave: AtomicU64::new(0),
        }))
    }

    fn watch(&self) -> i32 {
        self.watch.load(Ordering::Acquire)
    }

    /// Makes the set and its timer. False without numbers for them: then nothing is held back.
    fn make_watch(&self) -> bool {
        if self.watch() >= 0 {
            return true;
        }
        let made = limits::make(sys::epoll_create).map(attach::keep);
        let timer = limits::make(sys::timer).map(attach::keep);
        let events = EPOLLIN.cast_unsigned();
        if let (Ok(made), Ok(timer)) = (made, timer)
            && sys::epoll_control(made, libc::EPOLL_CTL_ADD, timer, events, TIMER).is_ok()
        {
            self.timer.store(timer, Ordering::Relaxed);
            self.watch.store(made, Ordering::Release);
            return true;
        }
        made.into_iter().chain(timer).for_each(attach::drop_kept);
        false
    }

    fn queue(&self) -> Option<&'static Common> {
        // SAFETY: set from leaked boxes, never freed. Acquire: pairs with the release in `make_queue`.
        unsafe { self.queue.load(Ordering::Acquire).as_ref() }
    }

    /// Before a fork: relatives have somewhere to leave each other what lies aside.
    pub(super) fn make_queue(&self, listener: &Listener, entry: &'static SocketEntry) {
        if self.queue().is_some_and(|queue| queue.number() >= 0) {
            return;
        }
        if let Some(made) = Common::make(entry, false) {
            let place = core::ptr::from_ref(made).cast_mut();
            self.queue.store(place, Ordering::Release);
            listener.add_to_watchers(made.number());
        }
    }

    /// A connection has come. Whoever looks next decides about it.
    pub(super) fn lay_down(&self, mut pending: Pending) {
        if pending.since == 0 {
            pending.since = clock::nanoseconds();
        }
        if let Some(mut state) = self.state.lock() {
            state.arrived.push_back(pending);
            self.count.fetch_add(1, Ordering::Release);
        }
    }

    fn next_arrived(&self) -> Option<Pending> {
        let pending = self.state.lock()?.arrived.pop_front();
        if pending.is_some() {
            self.count.fetch_sub(1, Ordering::Release);
        }
        pending
    }

    /// Gives `each` what the program may have, and what nobody will.
    fn look(&self, most: usize, mut each: impl FnMut(Pending, Verdict)) {
        if let Some(queue) = self.queue()
            && !self.has_just_given()
        {
            let mut taken = queue.take();
            while let Ok(Some(pending)) = taken {
                self.lay_down(pending);
                taken = queue.take();
            }
            if taken.is_err() {
                // No numbers for it: a little later there may be.
                self.give_up(0);
            }
        }
        // Acquire: pairs with the release in `lay_down`, for a thread that was told of it.
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
        while let Ok(count @ 1..) = sys::epoll_take(self.watch(), &mut events) {
            for event in events.iter().take(count) {
                match event.u64 {
                    TIMER => self.take_time(&mut each),
                    key => {
                        if let Some((pending, verdict)) = self.examine(key) {
                            each(pending, verdict);
                        }
                    }
                }
            }
            if count < events.len() {
                break;
            }
        }
        while let Some(pending) = self.next_arrived() {
            match verdict(&pending).0 {
                Verdict::Waits => {
                    if let Some((pending, verdict)) = self.lay_aside(pending, most) {
                        each(pending, verdict);
                    }
                }
                verdict => each(pending, verdict),
            }
        }
    }

    /// Lays one aside whose client is silent; gives it back where there is no room, or the client has just spoken.
    fn lay_aside(&self, pending: Pending, most: usize) -> Option<(Pending, Verdict)> {
        let comes = Some((pending, Verdict::Comes));
        let Some(slot) = pending.link.slot(pending.loan.handle.index) else {
            return comes;
        };
        let seconds = self.entry.deferral.load(Ordering::Relaxed);
        let deadline = deadline(pending.since, seconds, pending.since);
        let now = clock::nanoseconds();
        let watch = self.watch();
        let mut guard = self.state.lock()?;
        let state = &mut *guard;
        if seconds == 0 || deadline <= now || state.aside.len() > most || watch < 0 {
            return comes;
        }
        let key = state.next_key;
        state.next_key += 1;
        slot.server
            .flags
            .fetch_or(side_flags::DEFERRED, Ordering::AcqRel);
        waiter::arm(&slot.server.waiter, bits::DATA);
        let events = (EPOLLIN | EPOLLRDHUP).cast_unsigned();
        let anchor = pending.loan.anchor;
        if sys::epoll_control(watch, libc::EPOLL_CTL_ADD, anchor, events, key).is_err() {
            stir(&pending);
            return comes;
        }
        state.aside.push(Silent {
            pending,
            key,
            due: deadline,
            deadline,
        });
        self.count.fetch_add(1, Ordering::Release);
        self.ring_at(state, deadline);
        drop(guard);
        // What came before it was armed nobody tells of.
        match verdict(&pending) {
            (Verdict::Waits, 0) => None,
            _ => self.examine(key),
        }
    }

    /// Something is told of one that lies aside. `None` where it goes on to lie there, or another thread has it.
    fn examine(&self, key: u64) -> Option<(Pending, Verdict)> {
        let mut state = self.state.lock()?;
        let index = state.aside.iter().position(|silent| silent.key == key)?;
        let pending = state.aside.get(index)?.pending;
        let slot = pending.link.slot(pending.loan.handle.index);
        let taken = sys::receive(pending.loan.anchor, &mut [0; 64], libc::MSG_DONTWAIT);
        if let Some(slot) = slot {
            // The token took the bit with it.
            waiter::arm(&slot.server.waiter, bits::DATA);
        }
        let (found, left) = verdict(&pending);
        let client = slot.map_or(0, |slot| slot.client.flags.load(Ordering::Acquire));
        let ended = matches!(taken, Ok(0) | Err(libc::ECONNRESET | libc::EPIPE));
        let verdict = match found {
            Verdict::Waits if ended && client & side_flags::ABORTS != 0 => Verdict::Gone,
            // It was killed, or takes no tokens from its anchor any more: then nobody would tell of it.
            Verdict::Waits if ended || client & side_flags::ANCHOR_SHUT != 0 => Verdict::Comes,
            found => found,
        };
        if verdict == Verdict::Waits {
            if left > 0
                && let Some(silent) = state.aside.get_mut(index)
            {
                let shown = clock::nanoseconds() + (left + 1) * 1_000_000;
                silent.due = silent.deadline.min(shown);
                let due = silent.due;
                self.ring_at(&mut state, due);
            }
            return None;
        }
        self.take_up(&mut state, index)
            .map(|pending| (pending, verdict))
    }

    /// One lies aside no longer.
    fn take_up(&self, state: &mut State, index: usize) -> Option<Pending> {
        if index >= state.aside.len() {
            return None;
        }
        let pending = state.aside.swap_remove(index).pending;
        self.count.fetch_sub(1, Ordering::Release);
        let anchor = pending.loan.anchor;
        let _ = sys::epoll_control(self.watch(), libc::EPOLL_CTL_DEL, anchor, 0, 0);
        stir(&pending);
        Some(pending)
    }

    /// The timer shall ring at `due` at the latest.
    fn ring_at(&self, state: &mut State, due: u64) {
        if state.rings == 0 || due < state.rings {
            state.rings = due;
            let _ = sys::set_timer(self.timer.load(Ordering::Relaxed), due);
        }
    }

    /// The timer has rung.
    fn take_time(&self, each: &mut impl FnMut(Pending, Verdict)) {
        let mut eight = [0; 8];
        let timer = sys::int(self.timer.load(Ordering::Relaxed));
        // SAFETY: eight bytes of ours.
        let _ = unsafe {
            sys::raw(
                libc::SYS_read,
                [timer, eight.as_mut_ptr().addr(), 8, 0, 0, 0],
            )
        };
        let now = clock::nanoseconds();
        while let Some((pending, verdict)) = self.next_due(now) {
            each(pending, verdict);
        }
    }

    /// One whose time has come by `now`; otherwise the timer is set for the next.
    fn next_due(&self, now: u64) -> Option<(Pending, Verdict)> {
        let mut guard = self.state.lock()?;
        let state = &mut *guard;
        while let Some(index) = state.aside.iter().position(|silent| silent.due <= now) {
            let silent = state.aside.get_mut(index)?;
            let (found, _) = verdict(&silent.pending);
            if found == Verdict::Waits && silent.deadline > now {
                silent.due = silent.deadline;
                continue;
            }
            let verdict = if found == Verdict::Waits {
                Verdict::Comes
            } else {
                found
            };
            return self.take_up(state, index).map(|pending| (pending, verdict));
        }
        state.rings = 0;
        if let Some(next) = state.aside.iter().map(|silent| silent.due).min() {
            self.ring_at(state, next);
        }
        None
    }

    /// The option has another value: TCP looks when it would have looked anyway.
    fn reckon_anew(&self, seconds: u32) {
        let Some(mut guard) = self.state.lock() else {
            return;
        };
        let state = &mut *guard;
        let now = clock::nanoseconds();
        let mut soonest = u64::MAX;
        for silent in &mut state.aside {
            silent.deadline = deadline(silent.pending.since, seconds, now);
            silent.due = silent.deadline;
            soonest = soonest.min(silent.due);
        }
        if soonest < u64::MAX {
            state.rings = 0;
            self.ring_at(state, soonest);
        }
    }

    /// Takes all that is held back, also what nobody has looked at.
    fn take_all(&self) -> VecDeque<Pending> {
        let Some(mut guard) = self.state.lock() else {
            return VecDeque::new();
        };
        let state = &mut *guard;
        let mut all = VecDeque::new();
        while let Some(pending) = self.take_up(state, 0) {
            all.push_back(pending);
        }
        self.count.fetch_sub(state.arrived.len(), Ordering::Release);
        all.append(&mut state.arrived);
        all
    }

    fn take_oldest(&self) -> Option<Pending> {
        let mut guard = self.state.lock()?;
        let state = &mut *guard;
        let all = state.aside.iter().enumerate();
        let (index, _) = all.min_by_key(|(_, silent)| silent.pending.since)?;
        self.take_up(state, index)
    }

    /// Whether relatives have not had the time yet to take what this process has left to them. Then the timer says when they have had it.
    fn has_just_given(&self) -> bool {
        let gave = self.gave.load(Ordering::Relaxed);
        gave != 0 && clock::nanoseconds().wrapping_sub(gave) < FOR_OTHERS
    }

    /// This process may be at work for long: leaves what lies aside, `most` of it, to relatives.
    fn give_up(&self, most: usize) {
        let now = clock::nanoseconds();
        self.gave.store(now, Ordering::Relaxed);
        self.give(most);
        if let Some(mut state) = self.state.lock() {
            self.ring_at(&mut state, now + FOR_OTHERS);
        }
    }

    /// Leaves what lies aside, `most` of it, to this process and its relatives.
    pub(super) fn give(&self, most: usize) {
        for _ in 0..most {
            let Some(pending) = self.take_oldest() else {
                return;
            };
            if !self.give_one(&pending) {
                return self.lay_down(pending);
            }
        }
    }

    /// False where relatives have no queue, or no room in it.
    fn give_one(&self, pending: &Pending) -> bool {
        let given = self.queue().is_some_and(|queue| queue.put(pending));
        if given {
            attach::drop_kept(pending.loan.anchor);
            pending.link.used_less();
        }
        given
    }

    /// This process goes, or becomes another user's: what relatives have left is taken.
    pub(super) fn empty_queue(&self) {
        while let Some(Ok(Some(pending))) = self.queue().map(Common::take) {
            self.lay_down(pending);
        }
    }

    pub(super) fn leave_queue(&self) {
        self.queue().inspect(|queue| queue.leave());
    }

    /// Lets the descriptors go: the listener is closed, or they are the parent's.
    pub(super) fn silence(&self) {
        attach::drop_kept(self.watch.swap(-1, Ordering::AcqRel));
        attach::drop_kept(self.timer.swap(-1, Ordering::AcqRel));
    }

    /// A descriptor of the library is about to move.
    pub(super) fn relocate(&self, from: i32, to: i32) {
        let order = Ordering::Relaxed;
        let _ = self.watch.compare_exchange(from, to, order, order);
        let watch = self.watch();
        let events = EPOLLIN.cast_unsigned();
        if self.timer.compare_exchange(from, to, order, order).is_ok() {
            let _ = sys::epoll_control(watch, libc::EPOLL_CTL_DEL, from, 0, 0);
            let _ = sys::epoll_control(watch, libc::EPOLL_CTL_ADD, to, events, TIMER);
        }
        self.queue().inspect(|queue| queue.relocate(from, to));
        let Some(mut state) = self.state.lock() else {
            return;
        };
        let State { arrived, aside, .. } = &mut *state;
        if let Some(found) = arrived.iter_mut().find(|p| p.loan.anchor == from) {
            found.loan.anchor = to;
        }
        let held = aside.iter_mut().find(|s| s.pending.loan.anchor == from);
        if let Some(found) = held {
            found.pending.loan.anchor = to;
            let events = (EPOLLIN | EPOLLRDHUP).cast_unsigned();
            let _ = sys::epoll_control(watch, libc::EPOLL_CTL_DEL, from, 0, 0);
            let _ = sys::epoll_control(watch, libc::EPOLL_CTL_ADD, to, events, found.key);
        }
    }

    fn reset_in_child(&self) {
        self.state.reset();
        if let Some(mut state) = self.state.lock() {
            let State { arrived, aside, .. } = &mut *state;
            let aside = aside.drain(..).map(|silent| silent.pending);
            for pending in arrived.drain(..).chain(aside) {
                attach::drop_kept(pending.loan.anchor);
            }
            state.rings = 0;
        }
        self.count.store(0, Ordering::Relaxed);
        self.queue().inspect(|queue| queue.reset_in_child());
        self.silence();
        if self.entry.deferral.load(Ordering::Relaxed) > 0 {
            self.make_watch();
        }
    }
}

/// Who gets the connection finds its words and its anchor as if nobody had waited for it.
fn stir(pending: &Pending) {
    if let Some(slot) = pending.link.slot(pending.loan.handle.index) {
        waiter::disarm(&slot.server.waiter, bits::DATA);
        slot.server
            .flags
            .fetch_and(!side_flags::DEFERRED, Ordering::AcqRel);
    }
    let _ = sys::receive(pending.loan.anchor, &mut [0; 64], libc::MSG_DONTWAIT);
}

impl Listener {
    /// What it holds back, or has held back before.
    #[inline]
    pub(super) fn deferred(&self) -> Option<&'static Deferred> {
        // SAFETY: set from leaked boxes, never freed. Acquire: pairs with the release in `set_deferral`.
        unsafe { self.deferred.load(Ordering::Acquire).as_ref() }
    }

    /// The same, while it holds silent connections back. A program under a filter of its own allows no call that only this needs.
    pub(super) fn deferring(&self) -> Option<&'static Deferred> {
        let deferred = self.deferred()?;
        let holds = deferred.entry.deferral.load(Ordering::Relaxed) > 0 && deferred.watch() >= 0;
        (holds && !confinement::is_filtered()).then_some(deferred)
    }

    /// The kernel's socket has `TCP_DEFER_ACCEPT` at `seconds`, 0 for not at all.
    pub fn set_deferral(&self, entry: &'static SocketEntry, seconds: u32) {
        entry.deferral.store(seconds, Ordering::Relaxed);
        if let Some(known) = self.deferred() {
            known.make_watch();
            return known.reckon_anew(seconds);
        }
        if seconds == 0 {
            return;
        }
        let made = Deferred::make(entry);
        if made.make_watch() {
            self.deferred
                .store(core::ptr::from_ref(made).cast_mut(), Ordering::Release);
            self.add_to_watchers(made.watch());
            self.bell.ring_all();
        }
    }

    /// Looks at what is held back, where anything may be.
    #[inline]
    pub(super) fn look_at_deferred(&self) {
        if let Some(deferred) = self.deferred() {
            self.look_at(deferred);
        }
    }

    #[cold]
    fn look_at(&self, deferred: &Deferred) {
        // To the kernel a negative one is the largest.
        let backlog = self.backlog.load(Ordering::Relaxed);
        let most = usize::try_from(backlog).unwrap_or(usize::MAX);
        deferred.look(most, |mut pending, verdict| match verdict {
            Verdict::Gone => reset(&pending),
            _ => {
                // In the order in which they have spoken.
                pending.announced = clock::now();
                self.push(pending);
            }
        });
    }

    /// Descriptors on which who waits for connections sleeps, too: its own set, and the queue of its relatives.
    pub fn deferred_descriptors(&self) -> [i32; 2] {
        self.deferred().map_or([-1; 2], |deferred| {
            let queue = deferred.queue().filter(|_| !deferred.has_just_given());
            [deferred.watch(), queue.map_or(-1, Common::number)]
        })
    }

    pub(super) fn has_deferred(&self) -> bool {
        self.deferred()
            .is_some_and(|deferred| deferred.count.load(Ordering::Relaxed) > 0)
    }

    pub(super) fn take_deferred(&self) -> VecDeque<Pending> {
        self.deferred()
            .map_or_else(VecDeque::new, Deferred::take_all)
    }

    /// What lies aside, `most` of it, is for whoever comes first, where there are others.
    pub(super) fn give_deferred(&self, most: usize) {
        if self.has_deferred()
            && names::is_shared(&self.address, self.number())
            && let Some(deferred) = self.deferred()
        {
            self.look_at(deferred);
            deferred.give_up(most);
        }
    }

    /// Leaves one to relatives, if there are any.
    pub(super) fn give_one_deferred(&self, pending: &Pending) -> bool {
        let deferred = self.deferred().filter(|_| !self.is_alone());
        deferred.is_some_and(|deferred| deferred.give_one(pending))
    }

    /// In a forked child: what the parent holds back it has left to both.
    pub(super) fn reset_deferred_in_child(&self) {
        let Some(deferred) = self.deferred() else {
            return;
        };
        deferred.reset_in_child();
        self.add_to_watchers(deferred.watch());
    }

    /// The sets that watch the listener hear of what comes there.
    fn add_to_watchers(&self, fd: i32) {
        if let Some(watchers) = self.watchers.lock() {
            watchers.iter().for_each(|set| set.add_queue(fd, 0));
        }
    }
}
