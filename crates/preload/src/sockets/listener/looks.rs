//! What a look by poll, select or epoll finds stays available to all processes that hold the listener, as over TCP:
//! relatives get it from the common queue. Where another program has the listener, too, the daemon keeps it, and
//! whoever accepts next takes it from there.

use core::sync::atomic::Ordering;

use super::{Listener, wake_ups};
use crate::ground::clock;

/// As [`wake_ups::SOON`], for a loop that accepts as soon as it is notified: it may have waited for its processor.
const LATE: u64 = 20_000 * clock::MICROSECOND;

impl Listener {
    /// Called after a look: a process that has just accepted without waiting is an event loop, and accepts the
    /// connections that it has seen.
    #[inline]
    pub fn leave_unless_accepting(&self) {
        if self.pending.any() && self.may_have_others() && !self.is_accepting() {
            self.leave_to_holders();
        }
    }

    /// As [`Self::leave_unless_accepting`], for an edge-triggered member: connections that come back from the daemon
    /// would be edges again.
    pub(super) fn share_unless_accepting(&self) {
        if self.pending.any() && self.shared_queues().is_some() && !self.is_accepting() {
            self.share();
        }
    }

    /// Whether other processes may have the listener: it was forked, inherited over an exec, or sent in a message.
    #[inline]
    pub fn may_have_others(&self) -> bool {
        self.shared_queues().is_some() || self.is_inherited || self.awaits_strangers()
    }

    fn is_accepting(&self) -> bool {
        let accepted = self.accepted.load(Ordering::Relaxed);
        let soon = if wake_ups::accepts_soon() {
            LATE
        } else {
            wake_ups::SOON
        };
        clock::now().wrapping_sub(accepted) <= soon
    }

    /// Notes that an accept that does not wait has taken a connection.
    #[inline]
    pub fn note_accept(&self) {
        if self.may_have_others() {
            let now = clock::now();
            self.accepted.store(now, Ordering::Relaxed);
            wake_ups::note_accept(now);
        }
    }

    #[cold]
    fn leave_to_holders(&self) {
        if !self.has_unrelated_holders() {
            return self.share();
        }
        self.leave_in_channel(self.awaits_strangers());
    }

    /// Leaves the list of this process in the accept channel. With `alone` also where no other program holds the listener
    /// yet.
    pub(super) fn leave_in_channel(&self, alone: bool) {
        while let Some(pending) = self.pending.pop() {
            // It is counted again when it comes back.
            self.arrived.fetch_sub(1, Ordering::Relaxed);
            if !self.hand_on(&pending, alone) {
                self.arrived.fetch_add(1, Ordering::Relaxed);
                return self.pending.push_front(pending);
            }
            self.is_left.store(true, Ordering::Relaxed);
            // The accept must look for it.
            self.note_kernel_report();
        }
    }

    /// Whether a connection that a look has left with the daemon may still be there.
    #[inline]
    pub(super) fn has_left(&self) -> bool {
        self.is_left.load(Ordering::Relaxed) && self.is_still_left()
    }

    #[cold]
    fn is_still_left(&self) -> bool {
        let still = self.has_offers();
        if !still {
            self.is_left.store(false, Ordering::Relaxed);
        }
        still
    }
}
