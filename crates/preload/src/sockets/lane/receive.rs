//! Receiving: copies out of the present ring, and what an empty ring means.

use core::sync::atomic::Ordering;

use libc::iovec;
use netchannel_abi::link::{Geometry, Role, Side, side_flags};
use netchannel_ring::switch::{self, Position};
use netchannel_shm::split::{Direction, Transfer};

use super::modes::AtMark;
use super::modes::{Marks, ReceiveMode};
use super::progress::Progress;
use super::{Lane, STRIDE, Stop, result_of_fault};
use crate::sockets::socket::status;

/// In the flags of the receiving direction: the ring is read by
/// [`LinkEnd::pread_ring`](crate::sockets::link::LinkEnd::pread_ring).
const BY_PREAD: u32 = 1;
/// A bit of the direction: urgent bytes are in line, and none of them counts as lost.
pub(super) const KEEPS_URGENT: u32 = 2;

/// The ring that is read, and the sequence of the move that led to it.
#[derive(Clone, Copy)]
pub(super) struct ReadRing {
    pub ring: Geometry,
    adopted: u64,
}

impl Lane {
    /// Copies bytes to the program. A call that has bytes ends at the mark of an urgent byte.
    ///
    /// # Safety
    /// `to` is the program's buffer of `length` bytes: writable, or faulting.
    pub unsafe fn receive(
        &self,
        to: *mut u8,
        length: usize,
        mode: ReceiveMode,
    ) -> Result<usize, Stop> {
        // SAFETY: the caller's promise.
        self.while_receiving(|| unsafe { self.receive_in_order(to, length, mode) })
    }

    /// As [`Self::receive`], into the rest of `vectors` behind their first `done` bytes. Other threads that receive get
    /// nothing of what is between these bytes.
    ///
    /// # Safety
    /// The vectors are the program's: writable, or faulting.
    #[inline(always)]
    pub unsafe fn receive_vectors(
        &self,
        vectors: &[iovec],
        mut done: usize,
        mode: ReceiveMode,
    ) -> Result<usize, Stop> {
        self.while_receiving(|| {
            let mut total = 0;
            for vector in vectors {
                if done >= vector.iov_len {
                    done -= vector.iov_len;
                    continue;
                }
                let to = vector.iov_base.cast::<u8>().wrapping_add(done);
                let length = vector.iov_len - done;
                done = 0;
                let already_received = mode.already_received + total as u64;
                let mode = ReceiveMode {
                    already_received,
                    ..mode
                };
                // SAFETY: the caller's promise.
                match unsafe { self.receive_in_order(to, length, mode) } {
                    Ok(count) => {
                        total += count;
                        if count < length {
                            break;
                        }
                    }
                    Err(stop) if total == 0 => return Err(stop),
                    Err(stop) => {
                        self.put_back(stop);
                        break;
                    }
                }
            }
            Ok(total)
        })
    }

    /// As [`Self::receive`], with the lock held.
    #[inline(always)]
    unsafe fn receive_in_order(
        &self,
        to: *mut u8,
        length: usize,
        mode: ReceiveMode,
    ) -> Result<usize, Stop> {
        let skip = if mode.peek && mode.already_received + mode.offset > 0 {
            self.peek_skip(mode)
        } else {
            0
        };
        // SAFETY: the caller's promise.
        unsafe { self.receive_locked(to, length, mode, skip, Marks::Unexpected) }
    }

    /// Takes the bytes before `head` without copying them.
    #[cold]
    fn publish_head(&self, head: u64) {
        let receive = &self.socket.entry.receive;
        receive.own.store(head, Ordering::Relaxed);
        // Release: pairs with the acquire in `peer_head`.
        self.own().head.store(head, Ordering::Release);
        self.announce_space();
    }

    /// As [`Self::receive`], with the lock held: where there is a mark, or for the urgent byte itself.
    ///
    /// # Safety
    /// As [`Self::receive`].
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn receive_by_marks(
        &self,
        to: *mut u8,
        length: usize,
        mode: ReceiveMode,
        skip: u64,
        marks: Marks,
    ) -> Result<usize, Stop> {
        // SAFETY: the caller's promise.
        unsafe { self.receive_locked(to, length, mode, skip, marks) }
    }

    /// Runs `work` under the lock of receiving.
    #[inline(always)]
    pub(super) fn while_receiving<R>(
        &self,
        work: impl FnOnce() -> Result<R, Stop>,
    ) -> Result<R, Stop> {
        self.with_direction_lock(&self.socket.entry.receive.lock, libc::EPIPE, work)
    }

    /// Receives from `skip` bytes behind the read position on.
    #[inline(always)]
    unsafe fn receive_locked(
        &self,
        to: *mut u8,
        length: usize,
        mode: ReceiveMode,
        skip: u64,
        marks: Marks,
    ) -> Result<usize, Stop> {
        let ReceiveMode {
            peek,
            discard,
            already_received: have,
            ..
        } = mode;
        let receive = &self.socket.entry.receive;
        let own = self.own();
        let start = receive.own.load(Ordering::Relaxed);
        let mut head = start.wrapping_add(skip);
        if self.socket.has(status::FAULT | status::REFUSED) {
            return Err(self.result_when_void(head));
        }
        let mut view = self.view();
        if skip > 0 && !self.pass_over(&mut view, start, skip) {
            return Err(self.fault());
        }
        let mut done: u64 = 0;
        let total = length as u64;
        loop {
            // The flags first: a side that has set FIN writes no more bytes.
            let flags = self.peer_flags();
            let tail = self.peer_tail();
            // Others may have read meanwhile the bytes that a peek over several buffers has skipped.
            if tail == head || tail.wrapping_sub(start) < skip {
                if done > 0 {
                    break;
                }
                return Err(self.result_when_empty(flags, tail));
            }
            if total == 0 {
                break;
            }
            // No bytes, although the tail was ahead: the peer has taken back what it published.
            let Some(in_ring @ 1..) = self.advance(&mut view, head, 0) else {
                return Err(self.fault());
            };
            let ring = view.ring;
            if !peek {
                self.adopt(view);
            }
            // Bytes behind the visible tail are held back.
            let mut room = in_ring.min(total - done).min(tail.wrapping_sub(head));
            if marks == Marks::Unexpected && self.has_mark_from(head) {
                if done > 0 {
                    break;
                }
                // SAFETY: the caller's promise.
                return unsafe { self.receive_by_marks(to, length, mode, skip, Marks::Heeded) };
            }
            if marks == Marks::Heeded && self.has_mark_from(head) {
                match self.handle_mark(head, tail, have > 0 || done > 0) {
                    AtMark::Stop if done > 0 => break,
                    AtMark::Stop => return Err(Stop::End),
                    AtMark::Skip(hole) => {
                        // At least one: every turn makes progress, whatever the peer writes.
                        let hole = hole.max(1).min(in_ring);
                        head = head.wrapping_add(hole);
                        if !peek {
                            self.publish_head(head);
                        }
                        continue;
                    }
                    AtMark::UpTo(most) => room = room.min(most),
                }
            }
            // By value: a variable that a closure borrows is kept in memory.
            let transfer = move |length| Transfer {
                region: &self.link.region,
                ring: ring.offset,
                size: ring.size(),
                sequence: head,
                buffer: to.wrapping_add(done as usize),
                length,
                direction: Direction::Out,
            };
            let publish = move |copied| {
                let head = head.wrapping_add(copied);
                receive.own.store(head, Ordering::Relaxed);
                // Release: pairs with the acquire in `peer_head`.
                own.head.store(head, Ordering::Release);
                self.announce_space();
            };
            // SAFETY: the caller's promise; what is copied lies within `length`.
            let (step, copied) = unsafe {
                if self.reads_by_pread(&view) && !discard {
                    let step = room.min(STRIDE);
                    let to = to.wrapping_add(done as usize);
                    let copied = self.link.pread_ring(ring, head, to, step);
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
                return result_of_fault(done);
            }
            if done >= total {
                break;
            }
        }
        Ok(done as usize)
    }

    /// Number of bytes that a peek skips.
    pub fn peek_offset(&self) -> u64 {
        let offset = self.socket.entry.peek_offset.load(Ordering::Relaxed);
        u64::try_from(offset).unwrap_or(0)
    }

    /// Moves `SO_PEEK_OFF` by the bytes that were peeked at or read.
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

    /// The ring that is read, as this side has adopted it.
    #[inline]
    fn view(&self) -> ReadRing {
        let receive = &self.socket.entry.receive;
        let word = receive.geometry.load(Ordering::Relaxed);
        if word == 0 {
            return self.first_ring(self.link.role.other());
        }
        ReadRing {
            ring: Geometry::from_word(word),
            adopted: receive.switch_sequence.load(Ordering::Relaxed),
        }
    }

    /// The first ring in which the side of `role` sends.
    #[inline]
    pub(super) fn first_ring(&self, role: Role) -> ReadRing {
        ReadRing {
            ring: self.link.layout.small_ring(role, self.index as usize),
            adopted: 0,
        }
    }

    /// How many bytes from `head` on may be read in one ring, after `view` has moved to the ring that has the byte
    /// `skip` further on.
    #[inline(always)]
    fn advance(&self, view: &mut ReadRing, head: u64, skip: u64) -> Option<u64> {
        self.advance_in(self.link.role.other(), view, head, skip)
    }

    /// As [`Self::advance`], in what the side of `role` has sent.
    #[inline(always)]
    pub(super) fn advance_in(
        &self,
        role: Role,
        view: &mut ReadRing,
        head: u64,
        skip: u64,
    ) -> Option<u64> {
        let index = self.index as usize;
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
        } = if role == self.link.role {
            self.own()
        } else {
            self.peer()
        };
        let seen = switch::look(position, tail, switch_sequence, geometry, accept).ok()?;
        match seen.moved {
            Some(moved) if seen.in_ring <= skip => {
                view.ring = Geometry::from_word(moved.geometry);
                view.adopted = moved.sequence;
                Some(moved.length)
            }
            _ => Some(seen.in_ring),
        }
    }

    /// Moves to the ring that has the byte `skip` behind `start`: for a peek over several buffers.
    #[cold]
    fn pass_over(&self, view: &mut ReadRing, start: u64, skip: u64) -> bool {
        self.advance(view, start, skip).is_some()
    }

    /// Whether bytes are read without touching the memory of their ring.
    #[inline]
    fn reads_by_pread(&self, view: &ReadRing) -> bool {
        let receive = &self.socket.entry.receive;
        receive.flags.load(Ordering::Relaxed) & BY_PREAD != 0
            // A peek has come to a ring that is not adopted yet.
            || receive.switch_sequence.load(Ordering::Relaxed) != view.adopted
    }

    /// Adopts the ring that reading has come to.
    #[inline]
    fn adopt(&self, view: ReadRing) {
        let receive = &self.socket.entry.receive;
        if receive.switch_sequence.load(Ordering::Relaxed) != view.adopted {
            let flag = if self.link.may_touch(view.ring) {
                0
            } else {
                BY_PREAD
            };
            let kept = receive.flags.load(Ordering::Relaxed) & KEEPS_URGENT;
            receive.flags.store(flag | kept, Ordering::Relaxed);
            receive
                .geometry
                .store(view.ring.to_word(), Ordering::Relaxed);
            receive
                .switch_sequence
                .store(view.adopted, Ordering::Relaxed);
        }
    }

    fn report_reset(&self, error: i32) -> Stop {
        if self.socket.mark(status::RESET) == 0 {
            // It takes the place of an error that was left before it.
            self.take_left_error();
            Stop::Error(error)
        } else {
            self.take_left_error().map_or(Stop::End, Stop::Error)
        }
    }

    /// The result where no byte may be read, whatever lies in the ring: the peer broke the rules, or there is no
    /// connection.
    #[cold]
    fn result_when_void(&self, head: u64) -> Stop {
        if self.socket.has(status::FAULT) {
            Stop::End
        } else {
            self.result_when_empty(self.peer_flags(), head)
        }
    }

    /// The connect failed: its error is reported once, and `then` afterwards, as after a reset.
    #[cold]
    pub(super) fn report_refusal(&self, then: Stop) -> Stop {
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

    /// Leaves what has stopped a call that has received something to the next call. Bad memory is nobody else's.
    #[cold]
    pub fn put_back(&self, stop: Stop) {
        if let Stop::Error(error) = stop
            && error != libc::EFAULT
        {
            self.put_back_error(error);
        }
    }

    /// Leaves an error to the next call: this one has received something.
    #[cold]
    pub fn put_back_error(&self, error: i32) {
        if self.socket.has(status::FAULT) {
            return;
        }
        // A reset is found again.
        if error == self.reset_error() && self.socket.has(status::RESET) {
            self.socket.unmark(status::RESET);
        } else {
            self.leave_error(error);
        }
    }

    /// Whether a call has left an error to the next one, and the connection goes on.
    pub fn has_error_for_later(&self) -> bool {
        self.socket.has(status::LEFT_ERROR)
            && !self.socket.has(status::SHUT_WRITE)
            && !self.is_over()
    }

    /// The next call reports this error.
    #[cold]
    pub fn leave_error(&self, error: i32) {
        // The error is stored before the bit that makes calls look for it.
        self.socket.entry.error.store(error, Ordering::Relaxed);
        self.socket.mark(status::LEFT_ERROR);
    }

    /// The result of an empty ring: wait, end, or an error.
    fn result_when_empty(&self, flags: u32, tail: u64) -> Stop {
        let mut seen = self.socket.entry.status.load(Ordering::Relaxed);
        if seen & (status::PENDING | status::REFUSED) != 0 {
            match self.progress() {
                Progress::Pending => return Stop::Wait,
                Progress::Failed
                    if seen & (status::DISSOLVED | status::SHUT_READ) == status::DISSOLVED =>
                {
                    return self.report_refusal(Stop::Error(libc::ENOTCONN));
                }
                Progress::Failed => return self.report_refusal(Stop::End),
                Progress::Connected => seen &= !status::PENDING,
            }
        }
        if flags & side_flags::RESET != 0 {
            return match self.reset_error() {
                // The end came before the reset.
                libc::EPIPE => Stop::End,
                error => self.report_reset(error),
            };
        }
        if flags & side_flags::FIN == 0 && self.socket.has(status::LEFT_ERROR) {
            // The end of a peer, also of a killed one, is reported first.
            self.check_peer_now();
            seen = self.socket.entry.status.load(Ordering::Relaxed);
            let ended = seen & status::PEER_GONE != 0 && !self.ended_by_reset();
            if let Some(error) = (!ended).then(|| self.take_left_error()).flatten() {
                return Stop::Error(error);
            }
        }
        if seen & (status::SHUT_READ | status::PEER_GONE) == status::SHUT_READ
            && flags & side_flags::FIN == 0
        {
            // A side that has shut its reading direction learns of a reset, too, without waiting for it.
            self.check_peer_now();
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
