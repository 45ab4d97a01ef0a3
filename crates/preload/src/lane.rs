//! The data path of a virtual socket: copies between the program's buffers and the two rings, and
//! what the other side is told about it. No system call unless the other side sleeps.

use core::sync::atomic::Ordering;

use netchannel_abi::handle::Handle;
use netchannel_abi::link::{
    Cell, Geometry, LEAST_RING_LOG2, MOST_RING_LOG2, Role, SMALL_RING_LOG2, Side, Slot, side_flags,
    waiter as bits,
};
use netchannel_abi::program::SocketEntry;
use netchannel_ring::switch::{self, Position};
use netchannel_ring::waiter::Wake;
use netchannel_ring::{bytes, cell, waiter};

use crate::epoll::{self, EpollSet};
use crate::link::LinkEnd;
use crate::socket::{Socket, header, status};
use crate::wait::WRITER;
use crate::{clock, lock, sys};

/// A connected virtual socket with everything its data path needs, resolved once per call.
#[derive(Clone, Copy)]
pub struct Lane {
    /// The socket.
    pub socket: Socket,
    /// Its anchor: the program's descriptor.
    pub fd: i32,
    /// Its link.
    pub link: &'static LinkEnd,
    slot: &'static Slot,
    index: u32,
    generation: u32,
}

/// A ring to read from, and the sequence of the move that led to it.
#[derive(Clone, Copy)]
struct View {
    ring: Geometry,
    adopted: u64,
}

/// What stops a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The ring is empty (receiving) or full (sending).
    Wait,
    /// No byte will follow.
    End,
    /// The call fails with this errno.
    Error(i32),
}

/// The largest run that is copied before it is published, so that the other side can begin.
const STRIDE: u64 = 64 * 1024;
/// The first larger ring: until the reader has come to it there is no other, so it must hold what
/// programs write to TCP before they read.
const FIRST_RING_LOG2: u32 = 17;
/// Automatic growth stops here while the reader keeps up.
const CALM_RING_LOG2: u32 = 18;

impl Lane {
    /// Resolves a virtual socket.
    #[inline]
    pub fn of(socket: Socket, fd: i32) -> Option<Self> {
        let link = socket.link()?;
        let index = socket.entry.slot.load(Ordering::Relaxed);
        let slot = link.slot(index)?;
        let generation = socket.entry.generation.load(Ordering::Relaxed);
        Some(Self {
            socket,
            fd,
            link,
            slot,
            index,
            generation,
        })
    }

    /// Slot and generation.
    pub const fn handle(&self) -> Handle {
        Handle {
            index: self.index,
            generation: self.generation,
        }
    }

    /// The shared slot.
    pub const fn slot(&self) -> &'static Slot {
        self.slot
    }

    /// This side's words.
    #[inline]
    pub fn own(&self) -> &'static Side {
        self.link.sides(self.slot).0
    }

    #[inline]
    fn peer(&self) -> &'static Side {
        self.link.sides(self.slot).1
    }

    /// The peer's flags; none while it has not taken up this connection yet.
    #[inline]
    pub fn peer_flags(&self) -> u32 {
        let peer = self.peer();
        // Acquire: pairs with the releases in `reset_side` and of the flags themselves.
        if peer.generation.load(Ordering::Acquire) != self.generation {
            return 0;
        }
        peer.flags.load(Ordering::Acquire)
    }

    #[inline]
    fn peer_tail(&self) -> u64 {
        let peer = self.peer();
        // The generation first: what is read after it is of this connection, never of the last.
        if peer.generation.load(Ordering::Acquire) != self.generation {
            return 0;
        }
        // Acquire: pairs with the release in `send`, the bytes up to it are there.
        peer.tail.load(Ordering::Acquire)
    }

    #[inline]
    fn peer_head(&self) -> u64 {
        let peer = self.peer();
        // The generation first, as in `peer_tail`.
        if peer.generation.load(Ordering::Acquire) != self.generation {
            return 0;
        }
        // Acquire: pairs with the release in `receive`, the bytes up to it may be overwritten.
        peer.head.load(Ordering::Acquire)
    }

    /// Whether bytes wait to be read. Only a look.
    #[inline]
    pub fn has_bytes(&self) -> bool {
        self.peer_tail() != self.socket.entry.receive.own.load(Ordering::Relaxed)
    }

    /// Bytes the peer has ever sent, by its own word. Only to notice a change.
    pub fn arrived(&self) -> u64 {
        self.peer_tail()
    }

    /// How often a writer of this process found no room. Only to notice a change.
    pub fn times_full(&self) -> u32 {
        self.socket.local.full.load(Ordering::Relaxed)
    }

    /// Bytes that wait to be read.
    pub fn readable(&self) -> u64 {
        let own = self.socket.entry.receive.own.load(Ordering::Relaxed);
        self.peer_tail()
            .wrapping_sub(own)
            .min(1 << (MOST_RING_LOG2 + 1))
    }

    /// Whether more than `count` bytes wait, or no more will come.
    pub fn has_more_than(&self, count: u64) -> bool {
        self.readable() > count
            || self.peer_flags() & (side_flags::FIN | side_flags::RESET) != 0
            || self
                .socket
                .has(status::SHUT_READ | status::RESET | status::PEER_GONE)
    }

    /// Bytes sent that the other has not read yet.
    pub fn unread_by_peer(&self) -> u64 {
        let own = self.socket.entry.transmit.own.load(Ordering::Relaxed);
        own.wrapping_sub(self.peer_head())
            .min(1 << (MOST_RING_LOG2 + 1))
    }

    /// Whether a reader would not wait: bytes, an end, or an error.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.has_bytes() && self.reaches_low_water()
            || self.peer_flags() & (side_flags::FIN | side_flags::RESET) != 0
            || self
                .socket
                .has(status::SHUT_READ | status::RESET | status::PEER_GONE | status::FAULT)
    }

    fn reaches_low_water(&self) -> bool {
        let least = self.socket.entry.low_water.load(Ordering::Relaxed);
        least <= 1 || self.readable() >= u64::from(least)
    }

    /// Whether a writer would not wait: a third of the ring is free, or it would fail.
    pub fn is_writable(&self) -> bool {
        if self.peer_flags() & (side_flags::RESET | side_flags::CLOSED) != 0
            || self
                .socket
                .has(status::SHUT_WRITE | status::RESET | status::PEER_GONE | status::FAULT)
        {
            return true;
        }
        let ring = Geometry::from_word(self.transmit_geometry());
        let size = ring.size();
        let used = self.unread_by_peer();
        used == 0 || size.saturating_sub(used) >= size / 3 || self.may_grow(ring)
    }

    /// Whether at most half of the ring is unread, or nobody will read it.
    pub fn is_drained(&self) -> bool {
        let ring = Geometry::from_word(self.transmit_geometry());
        self.unread_by_peer() <= ring.size() / 2
            || self.peer_flags() & side_flags::CLOSED != 0
            || self.socket.has(status::RESET | status::PEER_GONE)
    }

    /// How much a send would surely take; something at least.
    pub fn room(&self) -> usize {
        let ring = Geometry::from_word(self.transmit_geometry());
        let free = ring.size().saturating_sub(self.unread_by_peer());
        free.max(1) as usize
    }

    /// Whether so many bytes would go in one piece, or the send would fail.
    pub fn takes(&self, length: usize) -> bool {
        let ring = Geometry::from_word(self.transmit_geometry());
        let free = ring.size().saturating_sub(self.unread_by_peer());
        self.is_writable() && (free >= (length as u64).min(ring.size()) || self.may_grow(ring))
            || self.peer_flags() & (side_flags::RESET | side_flags::CLOSED) != 0
            || self
                .socket
                .has(status::SHUT_WRITE | status::RESET | status::PEER_GONE | status::FAULT)
    }

    fn may_grow(&self, ring: Geometry) -> bool {
        let limit = self.socket.entry.transmit.limit.load(Ordering::Relaxed);
        ring.log2 < CALM_RING_LOG2
            && !self.socket.has(status::NO_GROWTH)
            && (limit == 0 || limit.ilog2() > ring.log2)
            && !self.is_switching()
    }

    fn is_switching(&self) -> bool {
        let transmit = &self.socket.entry.transmit;
        let switched = transmit.switch_sequence.load(Ordering::Relaxed);
        let tail = transmit.own.load(Ordering::Relaxed);
        !switch::may_move(switched, tail, self.peer_head())
    }

    fn transmit_geometry(&self) -> u64 {
        let word = self.socket.entry.transmit.geometry.load(Ordering::Relaxed);
        if word != 0 {
            return word;
        }
        self.link
            .layout
            .small_ring(self.link.role, self.index as usize)
            .to_word()
    }

    /// Copies as much of `from` into the ring as fits. Returns how much, or why nothing. `whole`
    /// bytes wait until all of them fit, if the ring can ever hold them: so what several threads
    /// write is not torn.
    ///
    /// # Safety
    /// `from` is the program's buffer of `length` bytes: readable, or faulting.
    pub unsafe fn send(&self, from: *const u8, length: usize, whole: bool) -> Result<usize, Stop> {
        let entry = self.socket.entry;
        if !lock::acquire(&entry.transmit.lock) {
            return Err(Stop::Error(libc::EAGAIN));
        }
        let result = if self.socket.is(self.fd) {
            // SAFETY: the caller's promise.
            unsafe { self.send_locked(from, length, whole) }
        } else {
            Err(Stop::Error(libc::EBADF))
        };
        lock::release(&entry.transmit.lock);
        result
    }

    unsafe fn send_locked(
        &self,
        from: *const u8,
        length: usize,
        whole: bool,
    ) -> Result<usize, Stop> {
        self.check_send()?;
        if length == 0 {
            return Ok(0);
        }
        if self.peer_flags() & side_flags::CLOSED != 0 || self.socket.has(status::PEER_GONE) {
            // TCP takes the first bytes and learns from the reset that nobody wants them.
            self.socket.mark(status::WRITE_MET_CLOSED);
            return Ok(length);
        }
        let transmit = &self.socket.entry.transmit;
        let own = self.own();
        let mut tail = transmit.own.load(Ordering::Relaxed);
        let mut done: u64 = 0;
        let total = length as u64;
        while done < total {
            let head = self.peer_head();
            let mut ring = Geometry::from_word(self.transmit_geometry());
            let switched = transmit.switch_sequence.load(Ordering::Relaxed);
            // Until the peer has come to the present ring, all that fits is what that ring holds.
            let base = head.max(switched);
            let mut free = match bytes::writable(tail, base, ring.size()) {
                Ok(free) if head <= tail => free,
                _ => return Err(self.fault()),
            };
            if free < total - done && switch::may_move(switched, tail, head) {
                let wanted = total - done + (tail - head);
                if let Some(larger) = self.grow(ring, wanted, head, tail) {
                    ring = larger;
                    free = ring.size();
                }
            }
            if free == 0 || whole && done == 0 && free < total.min(ring.size()) {
                break;
            }
            let step = free.min(total - done).min(STRIDE);
            let runs = bytes::runs(tail, step, ring.size());
            // SAFETY: the caller's promise; both runs lie within `length`.
            let left = unsafe {
                let from = from.add(done as usize);
                let first = runs.first as usize;
                let left =
                    self.link
                        .region
                        .copy_in((ring.offset + runs.offset) as usize, from, first);
                if left > 0 || runs.second == 0 {
                    left + runs.second as usize
                } else {
                    let rest = runs.second as usize;
                    self.link
                        .region
                        .copy_in(ring.offset as usize, from.add(first), rest)
                }
            };
            let copied = step - left as u64;
            tail = tail.wrapping_add(copied);
            done += copied;
            if copied > 0 {
                transmit.own.store(tail, Ordering::Relaxed);
                // Release: pairs with the acquire in `peer_tail`.
                own.tail.store(tail, Ordering::Release);
                self.announce_data();
            }
            if left > 0 {
                return if done > 0 {
                    Ok(done as usize)
                } else {
                    Err(Stop::Error(libc::EFAULT))
                };
            }
        }
        if done == 0 {
            Err(Stop::Wait)
        } else {
            Ok(done as usize)
        }
    }

    fn check_send(&self) -> Result<(), Stop> {
        let seen = self.socket.entry.status.load(Ordering::Relaxed);
        if seen & (status::SHUT_WRITE | status::FAULT | status::RESET) != 0 {
            return Err(Stop::Error(libc::EPIPE));
        }
        let reset = self.peer_flags() & side_flags::RESET != 0
            || seen & status::PEER_GONE != 0 && self.ended_by_reset();
        if reset {
            self.socket.mark(status::RESET);
            return Err(Stop::Error(libc::ECONNRESET));
        }
        if seen & status::WRITE_MET_CLOSED != 0 {
            self.socket.mark(status::RESET);
            return Err(Stop::Error(libc::EPIPE));
        }
        Ok(())
    }

    fn fault(&self) -> Stop {
        self.socket.mark(status::FAULT | status::RESET);
        if let Some(header) = header() {
            header.faults.fetch_add(1, Ordering::Relaxed);
        }
        Stop::Error(libc::ECONNRESET)
    }

    /// Moves to a larger ring when this one is too small for what the program writes. Allowed only
    /// when the peer reads from the present ring; the former is kept until it has read that up.
    fn grow(&self, ring: Geometry, wanted: u64, head: u64, tail: u64) -> Option<Geometry> {
        let transmit = &self.socket.entry.transmit;
        let limit = transmit.limit.load(Ordering::Relaxed);
        let most = if limit == 0 {
            MOST_RING_LOG2
        } else {
            limit.max(1).ilog2().clamp(12, 22)
        };
        let log2 = if ring.log2 == SMALL_RING_LOG2 {
            wanted
                .saturating_mul(2)
                .next_power_of_two()
                .ilog2()
                .clamp(FIRST_RING_LOG2, CALM_RING_LOG2)
        } else if ring.log2 < CALM_RING_LOG2 || self.reader_is_calm(head) {
            ring.log2 + 2
        } else {
            return None;
        };
        let log2 = log2.min(most).min(MOST_RING_LOG2);
        if log2 <= ring.log2 || log2 < LEAST_RING_LOG2 {
            self.socket.mark(status::NO_GROWTH);
            return None;
        }
        self.retire_former(head);
        let least = LEAST_RING_LOG2.max(ring.log2 + 1);
        let found = (least..=log2)
            .rev()
            .find_map(|log2| self.link.allocate(log2));
        let Some(larger) = found else {
            self.socket.mark(status::NO_GROWTH);
            return None;
        };
        transmit
            .former_geometry
            .store(ring.to_word(), Ordering::Relaxed);
        transmit.geometry.store(larger.to_word(), Ordering::Relaxed);
        transmit.switch_sequence.store(tail, Ordering::Relaxed);
        let own = self.own();
        switch::announce(&own.geometry, &own.switch_sequence, larger.to_word(), tail);
        Some(larger)
    }

    /// Frees the ring before the present one, once the peer has left it.
    fn retire_former(&self, head: u64) {
        let transmit = &self.socket.entry.transmit;
        if head >= transmit.switch_sequence.load(Ordering::Relaxed) {
            let former = transmit.former_geometry.swap(0, Ordering::Relaxed);
            if former != 0 {
                self.link.release(Geometry::from_word(former));
            }
        }
    }

    /// Whether the reader has not moved since the ring was last full: it needs a larger buffer
    /// rather than a faster one.
    fn reader_is_calm(&self, head: u64) -> bool {
        self.socket
            .entry
            .transmit
            .flags
            .swap(head.wrapping_add(1), Ordering::Relaxed)
            == head.wrapping_add(1)
    }

    /// Copies bytes to the program. `peek` leaves them; `discard` copies nothing.
    ///
    /// # Safety
    /// `to` is the program's buffer of `length` bytes: writable, or faulting.
    pub unsafe fn receive(
        &self,
        to: *mut u8,
        length: usize,
        peek: bool,
        discard: bool,
        skip: u64,
    ) -> Result<usize, Stop> {
        let entry = self.socket.entry;
        if !lock::acquire(&entry.receive.lock) {
            return Err(Stop::Error(libc::EAGAIN));
        }
        let result = if self.socket.is(self.fd) {
            // SAFETY: the caller's promise.
            unsafe { self.receive_locked(to, length, peek, discard, skip) }
        } else {
            Err(Stop::Error(libc::EBADF))
        };
        lock::release(&entry.receive.lock);
        result
    }

    unsafe fn receive_locked(
        &self,
        to: *mut u8,
        length: usize,
        peek: bool,
        discard: bool,
        skip: u64,
    ) -> Result<usize, Stop> {
        let receive = &self.socket.entry.receive;
        let own = self.own();
        let start = receive.own.load(Ordering::Relaxed);
        let mut head = start.wrapping_add(skip);
        if self.socket.has(status::FAULT) {
            return Err(Stop::End);
        }
        let mut view = self.view();
        if skip > 0 && !self.pass_over(&mut view, start, skip) {
            return Err(self.fault());
        }
        let mut done: u64 = 0;
        let total = length as u64;
        loop {
            // The flags first: whoever has said FIN says no more.
            let flags = self.peer_flags();
            let tail = self.peer_tail();
            // Others may have read meanwhile what a peek over several buffers has passed.
            if tail == head || tail.wrapping_sub(start) < skip {
                if done > 0 {
                    break;
                }
                return Err(self.nothing(flags, tail));
            }
            if total == 0 {
                break;
            }
            let Some(here) = self.follow(&mut view, head, 0) else {
                return Err(self.fault());
            };
            let ring = view.ring;
            if !peek {
                self.adopt(view);
            }
            let step = here.min(total - done).min(STRIDE);
            let mut left = 0;
            if !discard {
                let runs = bytes::runs(head, step, ring.size());
                // SAFETY: the caller's promise; both runs lie within `length`.
                left = unsafe {
                    let to = to.add(done as usize);
                    let first = runs.first as usize;
                    let left =
                        self.link
                            .region
                            .copy_out((ring.offset + runs.offset) as usize, to, first);
                    if left > 0 || runs.second == 0 {
                        left + runs.second as usize
                    } else {
                        let rest = runs.second as usize;
                        self.link
                            .region
                            .copy_out(ring.offset as usize, to.add(first), rest)
                    }
                };
            }
            let copied = step - left as u64;
            head = head.wrapping_add(copied);
            done += copied;
            if !peek && copied > 0 {
                receive.own.store(head, Ordering::Relaxed);
                // Release: pairs with the acquire in `peer_head`.
                own.head.store(head, Ordering::Release);
                self.announce_space();
            }
            if left > 0 {
                return if done > 0 {
                    Ok(done as usize)
                } else {
                    Err(Stop::Error(libc::EFAULT))
                };
            }
            if done >= total {
                break;
            }
        }
        Ok(done as usize)
    }

    /// The ring that is read from, as this side has adopted it.
    #[inline]
    fn view(&self) -> View {
        let receive = &self.socket.entry.receive;
        let word = receive.geometry.load(Ordering::Relaxed);
        let ring = if word == 0 {
            let (role, index) = (self.link.role.other(), self.index as usize);
            self.link.layout.small_ring(role, index)
        } else {
            Geometry::from_word(word)
        };
        let adopted = receive.switch_sequence.load(Ordering::Relaxed);
        View { ring, adopted }
    }

    /// How many bytes from `head` on may be read in one ring, after `view` has moved to the ring
    /// that holds the byte `skip` further on.
    #[inline(always)]
    fn follow(&self, view: &mut View, head: u64, skip: u64) -> Option<u64> {
        let (role, index) = (self.link.role.other(), self.index as usize);
        let position = Position {
            head,
            size: view.ring.size(),
            adopted: view.adopted,
        };
        let accept = |word| {
            let claimed = Geometry::from_word(word);
            self.link
                .layout
                .accepts(role, index, claimed)
                .then(|| claimed.size())
        };
        let Side {
            tail,
            switch_sequence,
            geometry,
            ..
        } = self.peer();
        let seen = switch::look(position, tail, switch_sequence, geometry, accept).ok()?;
        match seen.moved {
            Some(moved) if seen.here <= skip => {
                view.ring = Geometry::from_word(moved.geometry);
                view.adopted = moved.sequence;
                Some(moved.length)
            }
            _ => Some(seen.here),
        }
    }

    /// Moves to the ring that holds the byte `skip` after `start`: for a peek over several buffers.
    #[cold]
    fn pass_over(&self, view: &mut View, start: u64, skip: u64) -> bool {
        self.follow(view, start, skip).is_some()
    }

    /// Keeps the ring that reading has come to.
    #[inline]
    fn adopt(&self, view: View) {
        let receive = &self.socket.entry.receive;
        if receive.switch_sequence.load(Ordering::Relaxed) != view.adopted {
            receive
                .geometry
                .store(view.ring.to_word(), Ordering::Relaxed);
            receive
                .switch_sequence
                .store(view.adopted, Ordering::Relaxed);
        }
    }

    /// The peer has ended without a word: is that a reset, as TCP would see it? It is when the peer
    /// had not read everything, had not accepted, or had asked for it.
    pub fn ended_by_reset(&self) -> bool {
        let flags = self.peer_flags();
        flags & side_flags::CLOSED == 0
            && (self.unread_by_peer() > 0
                || flags & side_flags::ABORTS != 0
                || self.link.role == Role::Client && flags & side_flags::ACCEPTED == 0)
    }

    fn reset_seen(&self) -> Stop {
        if self.socket.mark(status::RESET) == 0 {
            Stop::Error(libc::ECONNRESET)
        } else {
            Stop::End
        }
    }

    /// No byte is there: wait, or is it the end?
    fn nothing(&self, flags: u32, tail: u64) -> Stop {
        let seen = self.socket.entry.status.load(Ordering::Relaxed);
        if flags & side_flags::RESET != 0 {
            return self.reset_seen();
        }
        if flags & side_flags::FIN != 0 || seen & (status::SHUT_READ | status::RESET) != 0 {
            return if self.peer_tail() == tail || seen & status::SHUT_READ != 0 {
                Stop::End
            } else {
                Stop::Wait
            };
        }
        if seen & status::PEER_GONE != 0 {
            if self.ended_by_reset() && self.socket.mark(status::RESET) == 0 {
                return Stop::Error(libc::ECONNRESET);
            }
            return Stop::End;
        }
        Stop::Wait
    }

    #[inline]
    fn announce_data(&self) {
        if let Some(wake) = waiter::announce_data(&self.peer().waiter) {
            self.deliver(wake);
        }
    }

    #[inline]
    fn announce_space(&self) {
        if let Some(wake) = waiter::announce_space(&self.peer().waiter) {
            self.deliver(wake);
        }
    }

    /// Tells the peer of an end or a reset.
    pub fn announce_flags(&self) {
        self.announce_data();
        self.announce_space();
    }

    #[cold]
    fn deliver(&self, wake: Wake) {
        let mut token = wake.token;
        let mut owed = None;
        if let Some(index) = wake.cell
            && let Some(cell) = self.link.cell(self.link.role.other(), index)
        {
            let Cell {
                asleep,
                summary,
                ready,
                ..
            } = cell;
            if cell::mark(asleep, summary, ready, self.index as usize) {
                token = true;
                owed = Some(asleep);
            }
        }
        if token {
            if let Some(header) = header() {
                header.tokens.fetch_add(1, Ordering::Relaxed);
            }
            let sent = sys::send(self.fd, &[0], libc::MSG_DONTWAIT);
            if let (Err(libc::EPIPE | libc::ECONNRESET), Some(asleep)) = (sent, owed) {
                // This anchor wakes nobody any more: the next socket of the loop shall.
                cell::sleep(asleep);
            }
        }
    }

    /// Wants to be woken for `wanted` ([`bits::DATA`], [`bits::SPACE`]); the caller looks again.
    pub fn arm(&self, wanted: u32) {
        waiter::arm(&self.own().waiter, wanted);
    }

    /// No longer.
    pub fn disarm(&self, wanted: u32) {
        if self.socket.has(status::ASYNC) {
            return self.arm(bits::DATA);
        }
        waiter::disarm(&self.own().waiter, wanted);
        // An event loop may have relied on the same bits.
        epoll::tokens_taken(self, None);
    }

    /// The next news shall bring a token, which raises a signal.
    #[cold]
    pub fn stay_asynchronous(&self) {
        self.take_tokens(None);
        self.arm(bits::DATA);
    }

    /// Wants the event loop to hear of room, when one holds the socket. True when there is room
    /// already.
    pub fn want_space(&self) -> bool {
        self.socket.local.full.fetch_add(1, Ordering::Relaxed);
        let signal = if self.socket.has(status::ASYNC) {
            bits::SPACE
        } else {
            0
        };
        self.arm(bits::CELL_SPACE | signal);
        self.is_writable()
    }

    /// Runs `change` while nobody else changes who sleeps on the anchor, or takes tokens off it: a
    /// token that was meant for a thread about to sleep must not go before it sleeps.
    fn with_anchor<R>(&self, change: impl FnOnce(&'static SocketEntry) -> R) -> R {
        let entry = self.socket.entry;
        let held = lock::acquire(&entry.anchor_lock);
        let result = change(entry);
        if held {
            lock::release(&entry.anchor_lock);
        }
        result
    }

    /// The calling thread is about to sleep in a call for `wanted`, counted by `unit` (1 for a
    /// reader, [`WRITER`] for a writer). It looks once more.
    pub fn lie_down(&self, unit: u32, wanted: u32) {
        self.with_anchor(|entry| {
            entry.receive.sleepers.fetch_add(unit, Ordering::AcqRel);
            self.arm(wanted);
        });
    }

    /// It sleeps no longer. What others of its kind wait for stays armed. True when others sleep.
    pub fn rise(&self, unit: u32, wanted: u32) -> bool {
        self.with_anchor(|entry| {
            let left = entry
                .receive
                .sleepers
                .fetch_sub(unit, Ordering::AcqRel)
                .wrapping_sub(unit);
            let alike = if unit == WRITER {
                left / WRITER
            } else {
                left % WRITER
            };
            if alike == 0 && entry.transmit.sleepers.load(Ordering::Acquire) == 0 {
                self.disarm(wanted);
            }
            left != 0
        })
    }

    /// As [`Self::lie_down`], for a thread that sleeps in `poll`.
    pub fn lie_down_in_poll(&self, wanted: u32) {
        self.with_anchor(|entry| {
            entry.transmit.sleepers.fetch_add(1, Ordering::AcqRel);
            self.arm(wanted);
        });
    }

    /// As [`Self::rise`], for a thread that slept in `poll`.
    pub fn rise_in_poll(&self, wanted: u32) {
        self.with_anchor(|entry| {
            let last = entry.transmit.sleepers.fetch_sub(1, Ordering::AcqRel) == 1;
            if last && entry.receive.sleepers.load(Ordering::Acquire) == 0 {
                self.disarm(wanted);
            }
        });
    }

    /// Takes all tokens off the anchor, unless another thread sleeps on it, which needs them.
    /// Notices the end of the peer. Event loops that the tokens were meant for hear of it, but not
    /// `by`, which takes them.
    pub fn take_tokens(&self, by: Option<&EpollSet>) {
        let taken = self.with_anchor(|entry| {
            if entry.receive.sleepers.load(Ordering::Acquire) > 0
                || entry.transmit.sleepers.load(Ordering::Acquire) > 0
            {
                return None;
            }
            let mut tokens = [0; 64];
            Some(sys::receive(self.fd, &mut tokens, libc::MSG_DONTWAIT))
        });
        match taken {
            None => return,
            Some(Ok(0) | Err(libc::ECONNRESET | libc::EPIPE | libc::ENOTCONN)) => self.peer_ended(),
            Some(_) => {}
        }
        epoll::tokens_taken(self, by);
    }

    /// The kernel says that the other end of the anchor is closed by everybody.
    pub fn peer_ended(&self) {
        // An anchor that one side has shut hangs up at both: then only the link tells.
        let ambiguous = self.socket.has(status::ANCHOR_SHUT)
            || self.peer_flags() & side_flags::ANCHOR_SHUT != 0;
        if ambiguous && self.link.check() {
            return;
        }
        self.socket.mark(status::PEER_GONE);
    }

    /// Asks the kernel now and then whether the peer still lives, for programs that never sleep.
    #[inline]
    pub fn check_peer(&self) {
        let now = clock::now();
        let last = self.socket.local.checked.load(Ordering::Relaxed);
        if now.wrapping_sub(last) > 200 * clock::MICROSECOND {
            self.socket.local.checked.store(now, Ordering::Relaxed);
            self.look_for_peer();
        }
    }

    /// Asks the kernel whether the peer still lives.
    pub fn look_for_peer(&self) {
        let mut byte = [0];
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        if matches!(
            sys::receive(self.fd, &mut byte, flags),
            Ok(0) | Err(libc::ECONNRESET | libc::EPIPE | libc::ENOTCONN)
        ) {
            self.peer_ended();
        }
    }

    /// Hands the socket to an event loop's cell, or takes it back.
    pub fn attach_cell(&self, index: Option<usize>) {
        waiter::attach_cell(&self.own().waiter, index);
    }
}
