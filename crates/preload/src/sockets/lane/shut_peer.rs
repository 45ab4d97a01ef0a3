//! Sending to a peer that reads no more: what TCP takes all the same, and the reset that it meets.

use core::sync::atomic::Ordering;

use netchannel_abi::link::side_flags;

use super::manner::is_shut;
use super::manner::{Going, Urgent};
use super::{Lane, Stop};
use crate::descriptors::user;
use crate::sockets::socket::status;

impl Lane {
    /// The peer has ended both directions. Who found no room at it is over once there is some: TCP sends then what waits, which meets a
    /// reset. Whether that is so now.
    #[cold]
    pub(super) fn meet_deaf_peer(&self, room: bool) -> bool {
        let stalled = self.socket.has(status::STALLED);
        if !room {
            self.socket.mark(status::STALLED);
        } else if stalled {
            self.socket.unmark(status::STALLED);
            self.reset_deaf_peer();
            self.socket.mark(status::WRITE_MET_CLOSED);
        }
        room && stalled
    }

    /// The peer holds the connection still: it learns of the reset from here.
    fn reset_deaf_peer(&self) {
        self.own()
            .flags
            .fetch_or(side_flags::RESET, Ordering::AcqRel);
        self.announce_flags();
    }

    /// TCP takes the first bytes that nobody wants, and learns so from the reset that they meet. `None` where they are wanted.
    ///
    /// # Safety
    /// As [`Self::send`].
    #[cold]
    pub(super) unsafe fn send_to_nobody(
        &self,
        flags: u32,
        from: *const u8,
        length: usize,
        urgent: Urgent,
        going: Going,
    ) -> Option<Result<usize, Stop>> {
        if !self.wants_nothing(flags) {
            return None;
        }
        let is_there = flags & side_flags::CLOSED == 0 && !self.socket.has(status::PEER_GONE);
        // SAFETY: the caller's promise.
        if unsafe { user::probe_read(from, length) }.is_err() {
            return Some(Err(Stop::Error(libc::EFAULT)));
        }
        let noted = &self.socket.entry.transmit.noted;
        let held = noted.load(Ordering::Relaxed).saturating_add(length as u64);
        if going != Going::WithAll && self.would_hold(held) {
            // They meet nobody yet.
            noted.store(held, Ordering::Relaxed);
            return Some(Ok(length));
        }
        if is_there {
            if !self.has_room() {
                self.socket.mark(status::STALLED);
                return Some(Err(Stop::Wait));
            }
            if urgent != Urgent::None {
                // TCP looks for an urgent byte in what it refuses.
                let tail = self.socket.entry.transmit.own.load(Ordering::Relaxed);
                self.mark_urgent(tail.wrapping_add(length as u64));
                self.signal_urgent();
            }
            self.reset_deaf_peer();
        }
        noted.store(length as u64, Ordering::Relaxed);
        self.socket.mark(status::WRITE_MET_CLOSED);
        self.tell_of_reset();
        Some(Ok(length))
    }

    /// Whether whatever is sent meets a reset, the peer's flags being these.
    pub(super) fn wants_nothing(&self, flags: u32) -> bool {
        flags & side_flags::CLOSED != 0 || self.socket.has(status::PEER_GONE) || is_shut(flags)
    }

    /// Whoever of this program waits for news of the socket learns that it was reset.
    pub(super) fn tell_of_reset(&self) {
        if self.socket.entry.transmit.sleepers.load(Ordering::Acquire) > 0 {
            self.rouse();
        }
        self.tell_sets(None);
    }
}
