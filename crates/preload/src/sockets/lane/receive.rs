//! Receiving: copies out of the ring that reading has come to, and what it means that none is there.

use core::sync::atomic::Ordering;

use netchannel_abi::link::{Geometry, Side, side_flags};
use netchannel_ring::switch::{self, Position};
use netchannel_shm::split::{Direction, Transfer};

use super::manner::Met;
use super::manner::{Manner, Marks};
use super::progress::Progress;
use super::{Lane, STRIDE, Stop, faulted_after};
use crate::sockets::socket::status;

/// Of the flags of the receiving direction: the ring is read by [`LinkEnd::read_apart`](crate::sockets::link::LinkEnd::read_apart).
const APART: u64 = 1;

/// A ring to read from, and the sequence of the move that led to it.
#[derive(Clone, Copy)]
struct View {
    ring: Geometry,
    adopted: u64,
}

impl Lane {
    /// Copies bytes to the program. At the mark of an urgent byte a call that has bytes ends.
    ///
    /// # Safety
    /// `to` is the program's buffer of `length` bytes: writable, or faulting.
    pub unsafe fn receive(
        &self,
        to: *mut u8,
        length: usize,
        manner: Manner,
    ) -> Result<usize, Stop> {
        self.while_receiving(|| {
            let skip = match manner.have + manner.offset {
                skip @ 1.. if manner.peek => skip + self.hole_ahead(),
                _ => 0,
            };
            // SAFETY: the caller's promise.
            unsafe { self.receive_locked(to, length, manner, skip, Marks::Unexpected) }
        })
    }

    /// What lies before `head` was read, without being copied.
    #[cold]
    fn publish_head(&self, head: u64) {
        let receive = &self.socket.entry.receive;
        receive.own.store(head, Ordering::Relaxed);
        // Release: pairs with the acquire in `peer_head`.
        self.own().head.store(head, Ordering::Release);
        self.announce_space();
    }

    /// As [`Self::receive`], with the lock held: where there is a mark, and for the byte that it stands for.
    ///
    /// # Safety
    /// As [`Self::receive`].
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn receive_by_marks(
        &self,
        to: *mut u8,
        length: usize,
        manner: Manner,
        skip: u64,
        marks: Marks,
    ) -> Result<usize, Stop> {
        // SAFETY: the caller's promise.
        unsafe { self.receive_locked(to, length, manner, skip, marks) }
    }

    /// Runs `work` under the lock of receiving.
    #[inline(always)]
    pub(super) fn while_receiving<R>(
        &self,
        work: impl FnOnce() -> Result<R, Stop>,
    ) -> Result<R, Stop> {
        self.under(&self.socket.entry.receive.lock, libc::EPIPE, work)
    }

    /// From `skip` bytes further on than was read.
    #[inline(always)]
    unsafe fn receive_locked(
        &self,
        to: *mut u8,
        length: usize,
        manner: Manner,
        skip: u64,
        marks: Marks,
    ) -> Result<usize, Stop> {
        let Manner {
            peek,
            discard,
            have,
            ..
        } = manner;
        let receive = &self.socket.entry.receive;
        let own = self.own();
        let start = receive.own.load(Ordering::Relaxed);
        let mut head = start.wrapping_add(skip);
        if self.socket.has(status::FAULT | status::REFUSED) {
            return Err(self.void(head));
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
            // Nothing here, though the tail was ahead: the peer takes back what it said.
            let Some(here @ 1..) = self.follow(&mut view, head, 0) else {
                return Err(self.fault());
            };
            let ring = view.ring;
            if !peek {
                self.adopt(view);
            }
            // What lies behind the tail is held back.
            let mut room = here.min(total - done).min(tail.wrapping_sub(head));
            if marks == Marks::Unexpected && self.has_mark_from(head) {
                if done > 0 {
                    break;
                }
                // SAFETY: the caller's promise.
                return unsafe { self.receive_by_marks(to, length, manner, skip, Marks::Heeded) };
            }
            if marks == Marks::Heeded && self.has_mark_from(head) {
                match self.meet_mark(head, tail, have > 0 || done > 0) {
                    Met::Stop if done > 0 => break,
                    Met::Stop => return Err(Stop::End),
                    Met::Pass(hole) => {
                        // One at least: every turn comes further, whatever the peer says.
                        let hole = hole.max(1).min(here);
                        head = head.wrapping_add(hole);
                        if !peek {
                            self.publish_head(head);
                        }
                        continue;
                    }
                    Met::Before(most) => room = room.min(most),
                }
            }
            // By value: what a closure borrows is kept in memory.
            let transfer = move |length| Transfer {
                region: &self.link.region,
                ring: ring.offset,
                size: ring.size(),
                sequence: head,
                buffer: to.wrapping_add(done as usize),
                length,
                direction: Direction::Out,
            };
            let publish = move |there| {
                let head = head.wrapping_add(there);
                receive.own.store(head, Ordering::Relaxed);
                // Release: pairs with the acquire in `peer_head`.
                own.head.store(head, Ordering::Release);
                self.announce_space();
            };
            // SAFETY: the caller's promise; what is copied lies within `length`.
            let (step, copied) = unsafe {
                if self.reads_apart(&view) && !discard {
                    let step = room.min(STRIDE);
                    let to = to.wrapping_add(done as usize);
                    let copied = self.link.read_apart(ring, head, to, step);
                    let copied = copied.unwrap_or_else(|| step - transfer(step).copy());
                    if !peek && copied > 0 {
                        publish(copied);
                    }
                    (step, copied)
                } else if discard || peek {
                    let step = room.min(STRIDE);
                    let left = if discard { 0 } else { transfer(step).copy() };
                    if !peek {
                        publish(step);
                    }
                    (step, step - left)
                } else {
                    self.move_bytes(total, room, transfer, publish)
                }
            };
            head = head.wrapping_add(copied);
            done += copied;
            if copied < step {
                return faulted_after(done);
            }
            if done >= total {
                break;
            }
        }
        Ok(done as usize)
    }

    /// How many bytes a peek passes over.
    pub fn peek_offset(&self) -> u64 {
        let offset = self.socket.entry.peek_offset.load(Ordering::Relaxed);
        u64::try_from(offset).unwrap_or(0)
    }

    /// `SO_PEEK_OFF` follows what was peeked at or read.
    #[cold]
    pub fn move_peek_offset(&self, count: usize, peeked: bool) {
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let moved = |offset: i32| match (offset, peeked) {
            (..0, _) => None,
            (_, true) => Some(offset.saturating_add(count)),
            (_, false) => Some((offset - count).max(0)),
        };
        let offset = &self.socket.entry.peek_offset;
        let _ = offset.fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved);
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

    /// Whether bytes are read without touching the ring they are in.
    #[inline]
    fn reads_apart(&self, view: &View) -> bool {
        let receive = &self.socket.entry.receive;
        receive.flags.load(Ordering::Relaxed) & APART != 0
            // A peek has come to a ring that is not adopted yet.
            || receive.switch_sequence.load(Ordering::Relaxed) != view.adopted
    }

    /// Keeps the ring that reading has come to.
    #[inline]
    fn adopt(&self, view: View) {
        let receive = &self.socket.entry.receive;
        if receive.switch_sequence.load(Ordering::Relaxed) != view.adopted {
            let apart = if self.link.may_touch(view.ring) {
                0
            } else {
                APART
            };
            receive.flags.store(apart, Ordering::Relaxed);
            receive
                .geometry
                .store(view.ring.to_word(), Ordering::Relaxed);
            receive
                .switch_sequence
                .store(view.adopted, Ordering::Relaxed);
        }
    }

    fn reset_seen(&self, error: i32) -> Stop {
        if self.socket.mark(status::RESET) == 0 {
            Stop::Error(error)
        } else {
            Stop::End
        }
    }

    /// Whatever lies in the ring, nothing is to be read: the peer wrote what it may not, or there never was a connection, or is none any
    /// more.
    #[cold]
    fn void(&self, head: u64) -> Stop {
        if self.socket.has(status::FAULT) {
            Stop::End
        } else {
            self.nothing(self.peer_flags(), head)
        }
    }

    /// The connect failed: that is told once, and `then` it is as after a reset.
    #[cold]
    pub(super) fn refused(&self, then: Stop) -> Stop {
        match self.socket.entry.error.swap(0, Ordering::AcqRel) {
            0 => then,
            error => Stop::Error(error),
        }
    }

    /// The error that a call left for the next one.
    pub(super) fn take_left_error(&self) -> Option<i32> {
        if !self.socket.has(status::LEFT_ERROR) {
            return None;
        }
        self.socket.unmark(status::LEFT_ERROR);
        let error = self.socket.entry.error.swap(0, Ordering::AcqRel);
        (error != 0).then_some(error)
    }

    /// No byte is there: wait, or is it the end?
    fn nothing(&self, flags: u32, tail: u64) -> Stop {
        let mut seen = self.socket.entry.status.load(Ordering::Relaxed);
        if seen & (status::PENDING | status::REFUSED) != 0 {
            match self.progress() {
                Progress::Waits => return Stop::Wait,
                Progress::Failed
                    if seen & (status::DISSOLVED | status::SHUT_READ) == status::DISSOLVED =>
                {
                    return self.refused(Stop::Error(libc::ENOTCONN));
                }
                Progress::Failed => return self.refused(Stop::End),
                Progress::Connected => seen &= !status::PENDING,
            }
        }
        if flags & side_flags::RESET != 0 {
            return match self.reset_error() {
                // The end came before.
                libc::EPIPE => Stop::End,
                error => self.reset_seen(error),
            };
        }
        if flags & side_flags::FIN == 0 && self.socket.has(status::LEFT_ERROR) {
            // The end of a peer, also of one that was killed, goes before it.
            self.look_for_peer();
            seen = self.socket.entry.status.load(Ordering::Relaxed);
            let ended = seen & status::PEER_GONE != 0 && !self.ended_by_reset();
            if let Some(error) = (!ended).then(|| self.take_left_error()).flatten() {
                return Stop::Error(error);
            }
        }
        if seen & (status::SHUT_READ | status::PEER_GONE) == status::SHUT_READ
            && flags & side_flags::FIN == 0
        {
            // Who reads no more is told of a reset all the same, and does not wait until it is found.
            self.look_for_peer();
            seen = self.socket.entry.status.load(Ordering::Relaxed);
        }
        let gone = seen & status::PEER_GONE != 0 && flags & side_flags::FIN == 0;
        if gone
            && self.ended_by_reset()
            && self.reset_error() != libc::EPIPE
            && self.socket.mark(status::RESET) == 0
        {
            return Stop::Error(libc::ECONNRESET);
        }
        if flags & side_flags::FIN != 0 || seen & (status::SHUT_READ | status::RESET) != 0 {
            return if self.peer_tail() == tail || seen & status::SHUT_READ != 0 {
                Stop::End
            } else {
                Stop::Wait
            };
        }
        if seen & status::PEER_GONE != 0 {
            return Stop::End;
        }
        Stop::Wait
    }
}
