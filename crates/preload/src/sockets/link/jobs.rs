//! New connections: announced by the client over the queue and taken by the server, with doorbells and anchors over the
//! channel.

use core::sync::atomic::Ordering;

use netchannel_abi::handle::Handle;
use netchannel_abi::link::{QUEUE_CAPACITY, QueueIndices, Role, Slot, asleep};
use netchannel_abi::message::{MESSAGE_BYTES, Message, Operation};
use netchannel_abi::nqe::{Nqe, Operation as Job};
use netchannel_ring::departure::{self, Fate};
use netchannel_ring::queue::{self, Element};
use netchannel_ring::side;

use super::{JobOutcome, LinkEnd, Loan};
use crate::descriptors::limits;
use crate::ground::{clock, sys};

/// Connections are accepted in the order of their announcement; an announcement counts as at most this old.
const MOST_AHEAD: u64 = 10_000 * clock::MICROSECOND;
/// How often a loop publishes that it has looked.
pub const LOOK_INTERVAL: u64 = 50 * clock::MICROSECOND;

/// How many connections may wait for an event loop that is awake before a sleeping one is woken.
const FEW_WAITING: u64 = 4;
/// Connections wait for an event loop only if it has looked within this time, in the clock's units: it may work longer
/// than a wake-up takes.
const RECENT: u64 = 3 * LOOK_INTERVAL;

impl LinkEnd {
    #[inline]
    fn job_indices(&self) -> Option<&QueueIndices> {
        self.region.at(self.layout.job_queue())
    }

    fn job_queue(&self) -> Option<(&QueueIndices, &[Element])> {
        let indices = self.job_indices()?;
        let start = self.layout.job_queue() + size_of::<QueueIndices>();
        let elements = self.region.slice(start, QUEUE_CAPACITY)?;
        Some((indices, elements))
    }

    /// (client) Claims a sleeping server: true where one sleeps, which the caller must wake with [`Self::announce`].
    pub fn claim(&self) -> bool {
        let indices = self.job_indices();
        indices.is_some_and(|indices| queue::claim_sleep(&indices.asleep, asleep::AWAKE))
    }

    /// (client) How long ago an event loop at the other end that is awake has looked, and how many connections wait for
    /// it.
    fn loop_state(&self) -> Option<(u64, u64)> {
        let indices = self.job_indices()?;
        let looked = indices.looked.load(Ordering::Relaxed);
        let (tail, head) = (&indices.tail, &indices.head);
        let waiting = tail
            .load(Ordering::Relaxed)
            .wrapping_sub(head.load(Ordering::Relaxed));
        let loops = indices.asleep.load(Ordering::Acquire) == asleep::LOOPS;
        loops.then(|| (clock::now().wrapping_sub(looked), waiting))
    }

    /// (client) Whether an event loop at the other end will take a connection soon.
    pub fn has_loop(&self) -> bool {
        self.loop_state()
            .is_some_and(|(since, _)| since < asleep::LOOKS_AGAIN)
    }

    /// (client) Whether such a loop takes it sooner than a loop that would have to be woken.
    pub fn has_idle_loop(&self) -> bool {
        self.loop_state()
            .is_some_and(|(since, waiting)| since < RECENT && waiting < FEW_WAITING)
    }

    /// (client) Whether an event loop at the other end sleeps, which an announcement wakes.
    pub fn has_sleeping_loop(&self) -> bool {
        let indices = self.job_indices();
        indices.is_some_and(|indices| indices.asleep.load(Ordering::Acquire) == asleep::RESTS)
    }

    /// (client) Whether the server that last accepted from the queue, to which connections of this link go, was an
    /// event loop.
    pub fn accepted_by_loop(&self) -> bool {
        let indices = self.job_indices();
        indices.is_some_and(|indices| indices.asleep.load(Ordering::Relaxed) == asleep::LOOPS)
    }

    /// (client) Announces a connection whose slot is filled in, and wakes the server if it sleeps or was `claimed`.
    /// False when the server's queue is full.
    pub fn announce(&self, handle: Handle, listener: u32, claimed: bool) -> bool {
        let Some((indices, elements)) = self.job_queue() else {
            return false;
        };
        let now = clock::now();
        let nqe = Nqe {
            operation: Job::Connect as u8,
            handle: handle.to_word(),
            data: u64::from(listener),
            offset: now as u32,
            length: (now >> 32) as u32,
            ..Nqe::default()
        };
        let Some(mut state) = self.state.lock() else {
            return false;
        };
        let lent = state.slots.get(handle.index as usize);
        if let (Some(slot), Some(lent)) = (self.slot(handle.index), lent) {
            slot.meta.anchor.store(lent.pairs, Ordering::Relaxed);
        }
        let pushed = state
            .producer
            .push(&indices.tail, &indices.head, elements, &[nqe]);
        let position = state.producer.position();
        drop(state);
        match pushed {
            Ok(1) => {}
            Ok(_) => return false,
            Err(_) => {
                self.fail();
                return false;
            }
        }
        // Pairs with the fences in `listen_for_jobs` and of a leaving server.
        core::sync::atomic::fence(Ordering::SeqCst);
        // A server that leaves has not looked for the last time, or left without the announcement.
        if departure::insist(&indices.departure, &indices.head, position) == Fate::Left {
            self.fail();
            return false;
        }
        let slept = match indices.asleep.load(Ordering::Relaxed) {
            asleep::RESTS => {
                // Announcements need not wake it again until it has looked.
                indices.looked.store(now, Ordering::Relaxed);
                queue::claim_sleep(&indices.asleep, asleep::LOOPS)
            }
            _ => queue::claim_sleep(&indices.asleep, asleep::AWAKE),
        };
        if (slept || claimed && indices.asleep.load(Ordering::Relaxed) == asleep::AWAKE)
            && let Some(Err(libc::EPIPE | libc::ECONNRESET)) = self.ring_doorbell()
        {
            self.fail();
        }
        true
    }

    /// Rings the doorbell.
    fn ring_doorbell(&self) -> Option<Result<usize, i32>> {
        self.channel
            .with(|fd| sys::send(fd, &[0], libc::MSG_DONTWAIT))
    }

    /// (client) Wakes a claimed server without a connection: it did not come about.
    pub fn unclaim(&self) {
        self.ring_doorbell();
    }

    /// (server) Publishes that this end is awake: in an event loop, or for an unknown time.
    pub fn set_awake(&self, loops: bool) {
        if let Some(indices) = self.job_indices() {
            let loops = loops && self.is_alive();
            let word = if loops { asleep::LOOPS } else { asleep::AWAKE };
            if loops {
                indices.looked.store(clock::now(), Ordering::Relaxed);
            }
            let mut before = indices.asleep.load(Ordering::Relaxed);
            if before != word {
                before = indices.asleep.swap(word, Ordering::AcqRel);
            }
            self.end_listening(before, indices.head.load(Ordering::Relaxed));
        }
    }

    /// This end has woken, and found this word of its sleep; so many announcements were taken. A client that has claimed
    /// it meanwhile announces a connection yet.
    #[inline]
    fn end_listening(&self, asleep: u32, taken: u64) {
        let listened_at = self.listened_at.load(Ordering::Relaxed);
        if listened_at != 0 {
            self.listened_at.store(0, Ordering::Relaxed);
            if asleep == asleep::AWAKE && listened_at == taken + 1 {
                self.expecting.store(true, Ordering::Relaxed);
            }
        }
    }

    /// (server) Publishes that an event loop looks at `now`. Called about once in each [`LOOK_INTERVAL`].
    pub fn publish_look(&self, now: u64) {
        if let Some(indices) = self.job_indices() {
            indices.looked.store(now, Ordering::Relaxed);
        }
    }

    /// (server) Leaves the queue: no more connections are taken, except for those that one more look finds. The caller
    /// looks, and then calls [`Self::finish_leaving`].
    pub fn begin_leaving(&self) {
        if let Some(indices) = self.job_indices() {
            departure::leave(&indices.departure);
        }
        self.channel.with(|fd| {
            let how = sys::int(libc::SHUT_WR);
            // SAFETY: no pointers.
            let _ = unsafe { sys::raw(libc::SYS_shutdown, [sys::int(fd), how, 0, 0, 0, 0]) };
        });
    }

    /// (server) Whether it has [left](Self::finish_leaving).
    #[inline]
    pub fn has_left(&self) -> bool {
        self.has_left_queue.load(Ordering::Relaxed)
    }

    /// (server) Publishes that announcements are no longer taken, which clients see. False when a client counts on
    /// another look: the caller looks, and calls this again; the `last` time it leaves without.
    pub fn finish_leaving(&self, last: bool) -> bool {
        let _reading = self.reading.lock();
        if self.is_starved() {
            self.keep_announced();
        }
        if let Some(indices) = self.job_indices() {
            if last {
                departure::force(&indices.departure);
            } else if !departure::finish(&indices.departure) {
                return false;
            }
        }
        self.has_left_queue.store(true, Ordering::Relaxed);
        self.expecting.store(false, Ordering::Relaxed);
        true
    }

    /// (server) Whether there are connections to take.
    #[inline]
    pub fn has_jobs(&self) -> bool {
        let Some(indices) = self.job_indices() else {
            return false;
        };
        let head = indices.head.load(Ordering::Relaxed);
        let announced = indices.tail.load(Ordering::Acquire) != head;
        announced && !self.has_left() || self.is_starved()
    }

    /// (server) Whether connections wait for numbers of descriptors.
    #[inline]
    pub fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }

    /// (server) Asks for a doorbell; the caller, which accepts soon after it where it `loops`, checks
    /// [`Self::has_jobs`] once more.
    pub fn listen_for_jobs(&self, loops: bool) {
        if let Some(indices) = self.job_indices() {
            let word = if loops { asleep::RESTS } else { asleep::SLEEPS };
            let taken = indices.head.load(Ordering::Relaxed);
            self.listened_at.store(taken + 1, Ordering::Relaxed);
            indices.asleep.store(word, Ordering::Relaxed);
            // Pairs with the fence in `announce`.
            core::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    /// (server) Takes new connections: calls `each` with the listener, the loan, and the time of the announcement.
    pub fn take_jobs(&self, mut each: impl FnMut(u32, Loan, u64)) {
        let Some((indices, elements)) = self.job_queue() else {
            return;
        };
        // `None` in a signal handler that interrupted the reading: the interrupted thread looks again.
        let Some(_reading) = self.reading.lock() else {
            return;
        };
        if self.is_starved() && !self.take_announced(&mut each) || self.has_left() {
            return;
        }
        let mut batch = [Nqe::default(); 32];
        loop {
            let Some(mut state) = self.state.lock() else {
                return;
            };
            let popped = state
                .consumer
                .pop(&indices.tail, &indices.head, elements, &mut batch);
            drop(state);
            let Ok(count) = popped else {
                return self.fail();
            };
            if count > 0 {
                self.expecting.store(false, Ordering::Relaxed);
            }
            let taken = batch.get(..count).unwrap_or(&[]);
            for (index, nqe) in taken.iter().enumerate() {
                match self.take_job(nqe) {
                    JobOutcome::Lent(loan) => each(listener_of(nqe), loan, time_of(nqe)),
                    JobOutcome::Later => {
                        return self.keep_for_later(taken.get(index..).unwrap_or(&[]));
                    }
                    JobOutcome::Invalid => return self.fail(),
                }
            }
            if count < batch.len() {
                return;
            }
        }
    }

    /// Keeps the announcements behind a connection that waits for numbers: their clients were told that they are taken.
    fn keep_announced(&self) {
        let Some((indices, elements)) = self.job_queue() else {
            return;
        };
        let mut batch = [Nqe::default(); 32];
        loop {
            let popped = self.state.lock().map(|mut state| {
                let consumer = &mut state.consumer;
                consumer.pop(&indices.tail, &indices.head, elements, &mut batch)
            });
            match popped {
                Some(Ok(count @ 1..)) => self.keep_for_later(batch.get(..count).unwrap_or(&[])),
                _ => return,
            }
        }
    }

    /// Keeps connections that have no anchor for want of numbers; every look tries again.
    #[cold]
    fn keep_for_later(&self, jobs: &[Nqe]) {
        if let Some(mut state) = self.state.lock() {
            state.announced.extend(jobs);
            self.starved.store(true, Ordering::Relaxed);
        }
    }

    /// Takes kept connections, in their order. Whether none is left.
    #[cold]
    fn take_announced(&self, each: &mut impl FnMut(u32, Loan, u64)) -> bool {
        loop {
            let Some(state) = self.state.lock() else {
                return false;
            };
            let Some(nqe) = state.announced.front().copied() else {
                self.starved.store(false, Ordering::Relaxed);
                return true;
            };
            drop(state);
            match self.take_job(&nqe) {
                JobOutcome::Lent(loan) => each(listener_of(&nqe), loan, time_of(&nqe)),
                JobOutcome::Later => return false,
                JobOutcome::Invalid => {
                    self.fail();
                    return false;
                }
            }
            if let Some(mut state) = self.state.lock() {
                state.announced.pop_front();
            }
        }
    }

    fn take_job(&self, nqe: &Nqe) -> JobOutcome {
        let handle = Handle::from_word(nqe.handle);
        let Some(slot) = self.slot(handle.index) else {
            return JobOutcome::Invalid;
        };
        if nqe.operation != Job::Connect as u8 {
            return JobOutcome::Invalid;
        }
        let pair = slot.meta.anchor.load(Ordering::Relaxed);
        if let Some(loan) = self.assign_slot(handle, slot, pair) {
            return JobOutcome::Lent(loan);
        }
        // The anchor may lie in the channel, also in one that has ended.
        let lacking = !self.has_anchor(handle.index, pair) && self.read() == ChannelState::Starved;
        if lacking && !self.has_anchor(handle.index, pair) {
            return JobOutcome::Later;
        }
        self.assign_slot(handle, slot, pair)
            .map_or(JobOutcome::Invalid, JobOutcome::Lent)
    }

    /// Gives the slot with its anchor to the connection.
    fn assign_slot(&self, handle: Handle, slot: &Slot, pair: u32) -> Option<Loan> {
        let mut state = self.state.lock()?;
        let lent = state.slots.get_mut(handle.index as usize)?;
        self.free_if_gone(lent, slot);
        if lent.busy
            || lent.anchor < 0
            || lent.pairs != pair
            || handle.generation == lent.generation
        {
            return None;
        }
        lent.busy = true;
        lent.generation = handle.generation;
        let loan = Loan {
            handle,
            anchor: core::mem::replace(&mut lent.anchor, -1),
            nonblocking: lent.anchor_nonblocking,
        };
        let blocks = core::mem::take(&mut lent.blocks);
        blocks
            .into_iter()
            .flatten()
            .for_each(|block| state.arena.free(block, |bare| self.release_pages(bare)));
        // As in `lend`.
        self.live.fetch_add(1, Ordering::Relaxed);
        drop(state);
        side::set_up(
            &slot.server,
            handle.generation,
            self.layout.small_ring(self.role, handle.index as usize),
        );
        self.pooled.fetch_sub(1, Ordering::Relaxed);
        Some(loan)
    }

    /// Reads doorbells and anchors from the channel, and notices the end of the other process.
    pub fn read_channel(&self) {
        if let Some(_reading) = self.reading.lock()
            && self.read() == ChannelState::Ended
        {
            self.peer_has_ended();
        }
    }

    /// The other process has ended: so does the link, but not before the connections are taken that were announced
    /// before; these are still accepted.
    pub(super) fn peer_has_ended(&self) {
        if !(self.role == Role::Server && self.has_jobs()) {
            self.fail();
        }
    }

    /// Reads the channel. The caller holds `reading`.
    fn read(&self) -> ChannelState {
        loop {
            let mut bytes = [0; MESSAGE_BYTES];
            let mut descriptors = [-1; sys::MOST];
            let got = self
                .channel
                .with(|fd| limits::receive_message(fd, &mut bytes, &mut descriptors));
            let Some(got) = got else {
                return ChannelState::Empty;
            };
            match got {
                Ok((0, _)) => return ChannelState::Ended,
                Ok((length, count)) => {
                    let fds = descriptors.get(..count).unwrap_or(&[]);
                    let message = bytes.get(..length).and_then(Message::from_bytes);
                    match message {
                        Some(message)
                            if message.operation == Operation::Anchors as u32
                                && self.role == Role::Server =>
                        {
                            for (index, fd) in fds.iter().enumerate() {
                                let word = message.words.get(1 + index / 2).copied().unwrap_or(0);
                                let number = word >> (32 * (index % 2)) & 0xffff_ffff;
                                let number = usize::try_from(number).unwrap_or(usize::MAX);
                                // Those of a daemon do not block.
                                self.add_anchor(number, *fd, sys::is_nonblocking(*fd));
                            }
                        }
                        _ => fds.iter().for_each(|fd| sys::close(*fd)),
                    }
                }
                Err(libc::EAGAIN | libc::EINTR) => return ChannelState::Empty,
                Err(libc::EMFILE) => return ChannelState::Starved,
                Err(_) => return ChannelState::Ended,
            }
        }
    }
}

/// How far a channel was read.
#[derive(PartialEq, Eq)]
enum ChannelState {
    /// The channel is empty.
    Empty,
    /// The rest waits for numbers of descriptors.
    Starved,
    /// The channel has ended.
    Ended,
}

/// The time of the announcement, according to its client: bounded, so that no client gets ahead of others by more than
/// a moment.
fn time_of(nqe: &Nqe) -> u64 {
    let now = clock::now();
    let announced = u64::from(nqe.length) << 32 | u64::from(nqe.offset);
    announced.clamp(now.saturating_sub(MOST_AHEAD), now)
}

fn listener_of(nqe: &Nqe) -> u32 {
    u32::try_from(nqe.data).unwrap_or(0)
}
