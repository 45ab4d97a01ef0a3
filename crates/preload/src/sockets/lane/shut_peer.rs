//! Sending to a peer that no longer reads: TCP takes the first bytes all the same, and they meet a reset.

use core::sync::atomic::Ordering;

use netchannel_abi::link::side_flags;

use super::modes::is_shut;
use super::modes::{Announcement, Urgent};
use super::{Lane, Stop};
use crate::descriptors::user;
use crate::sockets::socket::status;

impl Lane {
    /// The peer has ended both directions. A writer that found no room is reset once there is room: TCP then sends the
    /// waiting bytes, which meet a reset. Whether that is so now.
    #[cold]
    pub(super) fn check_shut_peer(&self, room: bool) -> bool {
        let stalled = self.socket.has(status::STALLED);
        if !room {
            self.socket.mark(status::STALLED);
        } else if stalled {
            self.socket.unmark(status::STALLED);
            self.reset_shut_peer();
            self.socket.mark(status::WRITE_MET_CLOSED);
        }
        room && stalled
    }

    /// Whether the peer, with these flags, still holds the connection.
    fn is_peer_there(&self, flags: u32) -> bool {
        flags & side_flags::CLOSED == 0 && !self.socket.has(status::PEER_GONE)
    }

    /// The peer still holds the connection: this side tells it of the reset.
    fn reset_shut_peer(&self) {
        self.own()
            .flags
            .fetch_or(side_flags::RESET, Ordering::AcqRel);
        self.announce_flags();
    }

    /// TCP takes the first bytes that the peer does not read, and learns so from the reset that they meet. `None` where
    /// the peer reads.
    ///
    /// # Safety
    /// As [`Self::send`].
    #[cold]
    pub(super) unsafe fn send_to_shut_peer(
        &self,
        flags: u32,
        from: *const u8,
        length: usize,
        urgent: Urgent,
        announcement: Announcement,
    ) -> Option<Result<usize, Stop>> {
        if !self.meets_reset(flags) {
            return None;
        }
        let is_there = self.is_peer_there(flags);
        // SAFETY: the caller's promise.
        if unsafe { user::probe_read(from, length) }.is_err() {
            return Some(Err(Stop::Error(libc::EFAULT)));
        }
        let noted = &self.socket.entry.transmit.noted;
        let held = noted.load(Ordering::Relaxed).saturating_add(length as u64);
        if announcement != Announcement::ReleaseHeld && self.would_hold(held) {
            // Held-back bytes meet no reset yet.
            noted.store(held, Ordering::Relaxed);
            return Some(Ok(length));
        }
        if is_there {
            if !self.has_room() {
                self.socket.mark(status::STALLED);
                return Some(Err(Stop::Wait));
            }
            if urgent != Urgent::None {
                self.mark_refused_urgent(length as u64);
            }
            self.reset_shut_peer();
        }
        noted.store(held, Ordering::Relaxed);
        self.socket.mark(status::WRITE_MET_CLOSED);
        self.notify_of_reset();
        Some(Ok(length))
    }

    /// TCP looks for an urgent byte in bytes that it refuses: the last of so many. The caller holds the transmit lock.
    fn mark_refused_urgent(&self, length: u64) {
        let tail = self.socket.entry.transmit.own.load(Ordering::Relaxed);
        self.mark_urgent(tail.wrapping_add(length));
        self.signal_urgent();
    }

    /// So many bytes meet the reset of those that were sent before in the same call. With `urgent` the last is urgent.
    #[cold]
    pub fn refuse_more(&self, length: usize, urgent: bool) {
        let is_there = self.is_peer_there(self.peer_flags());
        let _ = self.while_sending(|| {
            let noted = &self.socket.entry.transmit.noted;
            noted.fetch_add(length as u64, Ordering::Relaxed);
            if urgent && is_there {
                self.mark_refused_urgent(length as u64);
            }
            Ok(length)
        });
    }

    /// Whether held-back bytes would meet a reset if they were let go now, since the peer does not read them.
    #[cold]
    pub fn holds_for_shut_peer(&self) -> bool {
        let noted = self.socket.entry.transmit.noted.load(Ordering::Relaxed);
        (noted > 0 || self.held_count() > 0)
            && !self
                .socket
                .has(status::WRITE_MET_CLOSED | status::RESET | status::REFUSED)
            && self.meets_reset(self.peer_flags())
    }

    /// Held-back bytes that meet a reset were let go.
    #[cold]
    pub fn reset_by_held(&self) {
        if self.is_peer_there(self.peer_flags()) {
            self.reset_shut_peer();
        }
    }

    /// Whether all bytes meet a reset, with these flags of the peer.
    pub(super) fn meets_reset(&self, flags: u32) -> bool {
        flags & side_flags::CLOSED != 0 || self.socket.has(status::PEER_GONE) || is_shut(flags)
    }

    /// Notifies the threads of this program that wait on the socket of a reset.
    pub(super) fn notify_of_reset(&self) {
        if self.socket.entry.transmit.sleepers.load(Ordering::Acquire) > 0 {
            self.wake_sleepers();
        }
        self.notify_of_change();
    }
}
