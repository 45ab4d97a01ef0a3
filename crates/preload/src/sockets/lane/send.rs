//! Sending: copies into the transmit ring, its room, and its growth.

use core::sync::atomic::Ordering;

use libc::iovec;
use netchannel_abi::link::{
    Geometry, LEAST_RING_LOG2, MOST_RING_LOG2, SMALL_RING_LOG2, side_flags,
};
use netchannel_abi::program::RELAY;
use netchannel_ring::{bytes, switch};
use netchannel_shm::split::{Direction, Transfer};

use super::modes::PIECE;
use super::modes::goes_whole;
use super::modes::is_shut;
use super::modes::{Announcement, GROWTH_LIMIT_LOG2, Urgent};
use super::progress::Progress;
use super::{Lane, Stop, result_of_fault};
use crate::ground::lock;
use crate::sockets::socket::status;

/// Size of the first larger ring. There is no other until the reader has come to it, so it must hold as much as
/// programs write to TCP before they read.
const FIRST_RING_LOG2: u32 = 17;

/// Bits of the socket's own status with which a send fails, or waits for its connect.
const REFUSES: u32 =
    status::SHUT_WRITE | status::FAULT | status::RESET | status::PENDING | status::LEFT_ERROR;
/// Bits of the socket's own status that need a check before a send.
const ODD_STATUS: u32 = REFUSES | status::PEER_GONE | status::WRITE_MET_CLOSED;
/// Bits of the peer's flags with which it takes no more bytes.
const UNWANTED: u32 = side_flags::CLOSED | side_flags::SHUT_READ;
/// Bits of the peer's flags that need a check before a send.
const ODD_FLAGS: u32 = UNWANTED | side_flags::RESET;

impl Lane {
    /// Whether a writer would not wait: a third of the ring is free, or the write would fail.
    pub fn is_writable(&self) -> bool {
        if self.is_connecting() {
            return false;
        }
        let flags = self.peer_flags();
        if self.is_void(flags) {
            return true;
        }
        let room = self.has_room();
        if is_shut(flags) {
            self.check_shut_peer(room);
        }
        room
    }

    /// Whether a third of the ring is free, or would be.
    pub fn has_room(&self) -> bool {
        let ring = Geometry::from_word(self.transmit_geometry());
        let size = ring.size();
        let used = self.unread_by_peer();
        used == 0 || size.saturating_sub(used) >= size / 3 || self.may_grow(ring)
    }

    /// Whether at most half of the ring is unread, or will never be read.
    pub fn is_drained(&self) -> bool {
        let ring = Geometry::from_word(self.transmit_geometry());
        self.unread_by_peer() <= ring.size() / 2
            || self.peer_flags() & side_flags::CLOSED != 0
            || self.socket.has(status::RESET | status::PEER_GONE)
    }

    /// Number of sent bytes that TCP would show as not acknowledged: TCP acknowledges bytes that fit into the
    /// receiver's buffer. Between hosts, the bytes that the other host does not have.
    pub fn unacknowledged(&self) -> u64 {
        if self.socket.has(status::DISSOLVED) {
            return 0;
        }
        /// The receive buffer that TCP has at least by default.
        const BUFFER: u64 = 64 * 1024;
        let lost = self.socket.entry.transmit.noted.load(Ordering::Relaxed);
        let unread = self.unread_by_peer();
        let held_back = self.held_count();
        // A peer that had not ended has received the bytes before its reset.
        let reset = self.peer_flags() & side_flags::RESET != 0;
        if self.link.listener == RELAY && !(reset && self.reset_error() != libc::EPIPE) {
            return unread + lost;
        }
        if self.is_over() {
            return lost;
        }
        let ring = Geometry::from_word(self.transmit_geometry());
        let half = ring.size() / 2;
        let held = if self.may_grow(ring) {
            BUFFER.max(half)
        } else {
            half
        };
        unread.saturating_sub(held).max(held_back)
    }

    /// Number of bytes that a send would take without waiting; at least one.
    pub fn room(&self) -> usize {
        let ring = Geometry::from_word(self.transmit_geometry());
        let free = ring.size().saturating_sub(self.unread_by_peer());
        free.max(1) as usize
    }

    /// As [`Self::room`], for `length` bytes: moves to a larger ring where that is possible.
    pub fn make_room(&self, length: usize) -> usize {
        let transmit = &self.socket.entry.transmit;
        if lock::acquire(&transmit.lock) {
            let (head, tail) = (self.peer_head(), transmit.own.load(Ordering::Relaxed));
            let switched = transmit.switch_sequence.load(Ordering::Relaxed);
            let ring = Geometry::from_word(self.transmit_geometry());
            let unread = tail.saturating_sub(head);
            if ring.size().saturating_sub(unread) < length as u64
                && self.socket.is(self.fd)
                && switch::may_move(switched, tail, head)
            {
                self.grow(ring, length as u64 + unread, head, tail);
            }
            lock::release(&transmit.lock);
        }
        self.room().min(length)
    }

    /// Whether so many bytes would fit at once, or the send would fail.
    pub fn has_room_for(&self, length: usize) -> bool {
        let ring = Geometry::from_word(self.transmit_geometry());
        let free = ring.size().saturating_sub(self.unread_by_peer());
        self.is_writable() && (free >= (length as u64).min(ring.size()) || self.may_grow(ring))
            || self.is_void(self.peer_flags())
    }

    /// Whether no process will read the bytes that are written: then no writer waits.
    fn is_void(&self, flags: u32) -> bool {
        const OVER: u32 = status::SHUT_WRITE
            | status::RESET
            | status::PEER_GONE
            | status::FAULT
            | status::WRITE_MET_CLOSED;
        flags & (side_flags::RESET | side_flags::CLOSED) != 0 || self.socket.has(OVER)
    }

    /// Whether [`Self::grow`] may find a larger ring. It never says so again after that found none.
    pub(super) fn may_grow(&self, ring: Geometry) -> bool {
        let most = self.largest_ring();
        ring.log2 < GROWTH_LIMIT_LOG2.min(most)
            && !self.socket.has(status::NO_GROWTH)
            && (self.link.is_own() || self.next_reserved_ring(ring, most).is_some())
            && !self.is_switching()
    }

    /// The log2 of the largest ring that the program's `SO_SNDBUF` allows.
    fn largest_ring(&self) -> u32 {
        match self.socket.entry.transmit.limit.load(Ordering::Relaxed) {
            0 => MOST_RING_LOG2,
            limit => limit.ilog2().clamp(12, MOST_RING_LOG2),
        }
    }

    fn is_switching(&self) -> bool {
        let transmit = &self.socket.entry.transmit;
        let switched = transmit.switch_sequence.load(Ordering::Relaxed);
        let tail = transmit.own.load(Ordering::Relaxed);
        !switch::may_move(switched, tail, self.peer_head())
    }

    pub(super) fn transmit_geometry(&self) -> u64 {
        let word = self.socket.entry.transmit.geometry.load(Ordering::Relaxed);
        if word != 0 {
            return word;
        }
        self.link
            .layout
            .small_ring(self.link.role, self.index as usize)
            .to_word()
    }

    /// Copies as much of `from` into the ring as fits, with `MSG_MORE` or not. Returns the number of bytes, or why there
    /// were none.
    ///
    /// # Safety
    /// `from` is the program's buffer of `length` bytes: readable, or faulting.
    pub unsafe fn send(&self, from: *const u8, length: usize, more: bool) -> Result<usize, Stop> {
        // SAFETY: the caller's promise.
        self.while_sending(|| unsafe { self.send_in_order(from, length, false, more) })
    }

    /// As [`Self::send`], of the rest of `vectors` behind their first `done` bytes, with `MSG_MORE` or not. Other
    /// threads that send put nothing between these bytes. True where an error ended it that the caller does not see,
    /// since bytes were sent.
    ///
    /// # Safety
    /// The vectors are the program's: readable, or faulting.
    #[inline(always)]
    pub unsafe fn send_vectors(
        &self,
        vectors: &[iovec],
        mut done: usize,
        nonblocking: bool,
        more: bool,
    ) -> Result<(usize, bool), Stop> {
        self.while_sending(|| {
            let mut total = 0;
            for vector in vectors {
                if done >= vector.iov_len {
                    done -= vector.iov_len;
                    continue;
                }
                let from = vector.iov_base.cast::<u8>().wrapping_add(done);
                let length = vector.iov_len - done;
                let whole = goes_whole(vector.iov_len, nonblocking);
                done = 0;
                // SAFETY: the caller's promise.
                match unsafe { self.send_in_order(from, length, whole, more) } {
                    Ok(count) => {
                        total += count;
                        // What becomes of the rest is the caller's.
                        if count < length || self.socket.has(status::WRITE_MET_CLOSED) {
                            break;
                        }
                    }
                    Err(stop) if total == 0 => return Err(stop),
                    Err(Stop::Wait) => break,
                    Err(_) => return Ok((total, true)),
                }
            }
            Ok((total, false))
        })
    }

    /// As [`Self::send`], with the lock held. With `whole` the bytes wait until all of them fit, if the ring can ever hold
    /// them, so that writes of several threads are not torn.
    #[inline(always)]
    unsafe fn send_in_order(
        &self,
        from: *const u8,
        length: usize,
        whole: bool,
        more: bool,
    ) -> Result<usize, Stop> {
        // SAFETY: the caller's promise.
        unsafe {
            if more || self.socket.has(status::HOLDS) {
                self.send_holding(from, length, whole, more)
            } else {
                self.send_locked(from, length, whole, Urgent::None, Announcement::AtOnce)
            }
        }
    }

    /// As [`Self::send`], with an urgent byte.
    ///
    /// # Safety
    /// As [`Self::send`].
    #[cold]
    #[inline(never)]
    pub unsafe fn send_urgently(
        &self,
        from: *const u8,
        length: usize,
        whole: bool,
        urgent: Urgent,
    ) -> Result<usize, Stop> {
        // SAFETY: the caller's promise.
        self.while_sending(|| unsafe {
            self.send_locked(from, length, whole, urgent, Announcement::ReleaseHeld)
        })
    }

    #[inline(always)]
    pub(super) fn while_sending<R>(
        &self,
        work: impl FnOnce() -> Result<R, Stop>,
    ) -> Result<R, Stop> {
        self.with_direction_lock(&self.socket.entry.transmit.lock, libc::ECONNRESET, work)
    }

    #[inline(always)]
    pub(super) unsafe fn send_locked(
        &self,
        from: *const u8,
        length: usize,
        whole: bool,
        urgent: Urgent,
        announcement: Announcement,
    ) -> Result<usize, Stop> {
        // One check of both sides' flags: in most calls nothing prevents the send.
        let flags = self.peer_flags();
        let odd = flags & ODD_FLAGS != 0 || self.socket.has(ODD_STATUS);
        if odd {
            self.check_send(flags)?;
        }
        if length == 0 {
            return Ok(0);
        }
        if odd
            && (flags & UNWANTED != 0 || self.socket.has(status::PEER_GONE))
            // SAFETY: the caller's promise.
            && let Some(sent) = unsafe { self.send_to_shut_peer(flags, from, length, urgent, announcement) }
        {
            return sent;
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
            // Until the peer reads from the present ring, only as much fits as that ring holds.
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
            let mut room = free.min(total - done);
            let mut last = u64::MAX;
            if urgent != Urgent::None {
                (room, last) = urgent.place(tail, room, total - done);
            }
            // By value: a variable that a closure borrows is kept in memory.
            let transfer = move |length| Transfer {
                region: &self.link.region,
                ring: ring.offset,
                size: ring.size(),
                sequence: tail,
                buffer: from.wrapping_add(done as usize).cast_mut(),
                length,
                direction: Direction::In,
            };
            // TCP takes nothing of a piece that it can not read as a whole.
            let one_piece = done == 0 && room <= PIECE;
            let publish = move |copied| {
                if copied < room && one_piece {
                    return;
                }
                let tail = tail.wrapping_add(copied);
                // A part that is published before, as a stride, does not end there.
                let marks = urgent != Urgent::None && tail == last;
                if marks {
                    self.mark_urgent(tail);
                }
                transmit.own.store(tail, Ordering::Relaxed);
                // Release: pairs with the acquire in `peer_tail`.
                own.tail.store(tail, Ordering::Release);
                if marks {
                    self.signal_urgent();
                }
                match announcement {
                    Announcement::AtOnce => {}
                    Announcement::Deferred => return,
                    Announcement::ReleaseHeld => self.clear_hold(),
                }
                self.announce_data();
            };
            // SAFETY: the caller's promise; what is copied lies within `length`.
            let (step, copied) = unsafe { self.move_bytes(total, room, transfer, publish) };
            if copied < step && one_piece {
                return Err(Stop::Error(libc::EFAULT));
            }
            tail = tail.wrapping_add(copied);
            done += copied;
            if copied < step {
                return result_of_fault(done);
            }
            if urgent != Urgent::None && tail == last {
                break;
            }
        }
        if done == 0 {
            Err(Stop::Wait)
        } else {
            Ok(done as usize)
        }
    }

    /// Whether a send is possible with these flags of the peer.
    #[cold]
    fn check_send(&self, flags: u32) -> Result<(), Stop> {
        // A reset takes the place of an error that was left before it. One that was told stands in no error's place.
        let told = self.socket.has(status::RESET);
        let overtaken = flags & side_flags::RESET != 0 && !told;
        if let Some(error) = self.take_left_error()
            && (!overtaken || error == libc::ECONNRESET)
        {
            return Err(Stop::Error(error));
        }
        if self.socket.has(status::STALLED)
            && is_shut(flags)
            && self.check_shut_peer(self.has_room())
        {
            self.notify_of_reset();
        }
        let seen = self.socket.entry.status.load(Ordering::Relaxed);
        let reset = flags & side_flags::RESET != 0
            || seen & status::PEER_GONE != 0 && self.ended_by_reset();
        // An unreported reset is reported first, also to a program that has shut its side.
        let reported = status::PENDING | status::REFUSED | status::RESET | status::FAULT;
        let unreported = reset && seen & reported == 0;
        if seen & REFUSES != 0 && !unreported {
            self.check_connect()?;
        }
        if reset {
            self.socket.mark(status::RESET);
            return Err(Stop::Error(self.reset_error()));
        }
        if seen & status::WRITE_MET_CLOSED != 0 {
            self.socket.mark(status::RESET);
            return Err(Stop::Error(libc::EPIPE));
        }
        Ok(())
    }

    /// The error of a send that is not possible: the connection is not up yet, or over.
    #[cold]
    fn check_connect(&self) -> Result<(), Stop> {
        let shut = self.socket.has(status::SHUT_WRITE | status::FAULT);
        if shut && !self.socket.has(status::RESET | status::FAULT) {
            self.check_peer_now();
            if self.socket.has(status::PEER_GONE) && self.ended_by_reset() {
                self.socket.mark(status::RESET);
                return Err(Stop::Error(self.reset_error()));
            }
        }
        match self.progress() {
            Progress::Failed => Err(self.report_refusal(Stop::Error(libc::EPIPE))),
            _ if shut => Err(Stop::Error(libc::EPIPE)),
            Progress::Pending => Err(Stop::Wait),
            Progress::Connected if self.socket.has(status::RESET) => Err(Stop::Error(libc::EPIPE)),
            Progress::Connected => Ok(()),
        }
    }

    /// Moves to a larger ring when the present one is too small for the program's writes. Allowed only when the peer
    /// reads from the present ring, which is kept until the peer has read all of it.
    fn grow(&self, ring: Geometry, wanted: u64, head: u64, tail: u64) -> Option<Geometry> {
        let transmit = &self.socket.entry.transmit;
        let most = self.largest_ring();
        let reserved = self.next_reserved_ring(ring, most);
        if reserved.is_none() && !self.link.is_own() {
            return None;
        }
        let log2 = if ring.log2 == SMALL_RING_LOG2 {
            // A program may name a length that no memory has.
            wanted
                .min(1 << GROWTH_LIMIT_LOG2)
                .saturating_mul(2)
                .next_power_of_two()
                .ilog2()
                .clamp(FIRST_RING_LOG2, GROWTH_LIMIT_LOG2)
        } else if ring.log2 < GROWTH_LIMIT_LOG2
            || self.peer_wants_larger(ring)
            || self.has_reader_stalled(head)
        {
            ring.log2 + 2
        } else {
            return None;
        };
        let log2 = log2.min(most);
        if log2 <= ring.log2 || log2 < LEAST_RING_LOG2 {
            self.socket.mark(status::NO_GROWTH);
            return None;
        }
        self.retire_former(head);
        let least = LEAST_RING_LOG2.max(ring.log2 + 1);
        let found = reserved.or_else(|| {
            let mut sizes = (least..=log2).rev();
            sizes.find_map(|log2| self.link.allocate(log2))
        });
        let Some(larger) = found else {
            self.socket.mark(status::NO_GROWTH);
            return None;
        };
        if !self.is_reserved_ring(ring) {
            let former = &transmit.former_geometry;
            former.store(ring.to_word(), Ordering::Relaxed);
        }
        transmit.geometry.store(larger.to_word(), Ordering::Relaxed);
        transmit.switch_sequence.store(tail, Ordering::Relaxed);
        let own = self.own();
        switch::announce(&own.geometry, &own.switch_sequence, larger.to_word(), tail);
        Some(larger)
    }

    /// Frees the former ring once the peer has left it.
    pub(super) fn retire_former(&self, head: u64) {
        let transmit = &self.socket.entry.transmit;
        // The process that keeps the ledger takes it back, now or at the end of the socket.
        if self.link.is_own() && head >= transmit.switch_sequence.load(Ordering::Relaxed) {
            let former = transmit.former_geometry.swap(0, Ordering::Relaxed);
            if former != 0 {
                self.link.release(Geometry::from_word(former));
            }
        }
    }

    /// Whether the daemon needs a larger ring: the peer's host is far, and all that fits is in flight.
    fn peer_wants_larger(&self, ring: Geometry) -> bool {
        // Relaxed: the word guards nothing, and this side bounds the requested size.
        self.peer().wanted_ring.load(Ordering::Relaxed) > ring.log2
    }

    /// Whether the reader has not moved since the ring was last full: then it needs a larger buffer, not a faster one.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the lower half differs after any move but one of 4 GiB"
    )]
    fn has_reader_stalled(&self, head: u64) -> bool {
        let position = head.wrapping_add(1) as u32;
        let flags = &self.socket.entry.transmit.flags;
        flags.swap(position, Ordering::Relaxed) == position
    }
}
