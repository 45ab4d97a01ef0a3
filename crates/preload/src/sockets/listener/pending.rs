//! The connections that wait at a listener: whether there are any, and what an accept takes. They came over links, or
//! through the queue that relatives have.

use core::sync::atomic::Ordering;

use super::links::{are_starved, poll_jobs};
use super::shared_queues::SharedQueues;
use super::{Listener, Pending, wake_ups};

impl Listener {
    /// Takes a pending connection, if there is one, for an accept with these flags.
    #[inline]
    pub fn take(&self, flags: i32) -> Option<Pending> {
        if self.shared_queues().is_some() {
            return self.take_beside_relatives(flags);
        }
        if !self.pending.any() {
            poll_jobs();
        }
        self.pending.pop()
    }

    fn take_beside_relatives(&self, flags: i32) -> Option<Pending> {
        if let Some(pending) = self.take_shared(Some(flags)) {
            return Some(pending);
        }
        if !self.pending.any() {
            poll_jobs();
            if !self.pending.any() {
                return self.take_queued(Some(flags));
            }
        }
        if self.can_share() && self.has_queued() {
            // Some connections came over links, others through the queue. The oldest is accepted first, and the others
            // are left to all holders, or to the next accepts of a loop.
            if wake_ups::accepts_soon() {
                self.take_queued(None)
                    .into_iter()
                    .for_each(|queued| self.push(queued));
            } else {
                self.take_all_queued();
                self.share();
            }
        }
        self.take_shared(Some(flags)).or_else(|| self.pending.pop())
    }

    /// Whether a connection is pending. Looks at the links and into the queue, not at the kernel. The connection stays
    /// available to every process that holds the listener.
    pub fn has_pending(&self) -> bool {
        if !self.pending.any() {
            poll_jobs();
        }
        self.has_pending_here()
    }

    /// As [`Self::has_pending`], where the links were looked at just before.
    #[inline]
    pub fn has_pending_here(&self) -> bool {
        self.leave_unless_accepting();
        self.has_any()
    }

    /// As [`Self::has_pending_here`], for an edge-triggered member: it was told of the connections, and who was told
    /// keeps them. They would come back from the daemon without an edge, and be left with it again.
    pub fn has_pending_for_edges(&self) -> bool {
        self.share_unless_accepting();
        self.has_any()
    }

    #[inline]
    fn has_any(&self) -> bool {
        self.has_taken() || self.has_queued() || self.has_left()
    }

    /// As [`Self::has_pending`], for an edge-triggered member: counts all connections that have come.
    pub fn count_arrivals(&self) {
        if !self.pending.any() {
            poll_jobs();
        }
        self.take_all_queued();
        self.share_unless_accepting();
    }

    /// As [`Self::has_pending`], for a blocking accept, which takes what it finds.
    pub fn has_for_accept(&self) -> bool {
        self.has_announced() || self.has_queued()
    }

    /// As [`Self::has_for_accept`], without the clients' queue.
    pub fn has_announced(&self) -> bool {
        self.has_taken() || {
            poll_jobs();
            self.has_taken()
        }
    }

    #[inline]
    pub(super) fn has_taken(&self) -> bool {
        self.pending.any()
            || self.is_starved()
            || self.shared_queues().is_some_and(SharedQueues::any)
    }

    /// Whether connections may be pending that can not be taken for want of numbers: an accept returns `EMFILE`.
    #[inline]
    pub fn is_starved(&self) -> bool {
        are_starved() || self.starved.load(Ordering::Relaxed)
    }

    /// Returns a connection that could not be accepted for want of a descriptor.
    pub fn push_front(&self, pending: Pending) {
        self.pending.push_front(pending);
    }

    pub(super) fn push(&self, mut pending: Pending) {
        pending.era = self.eras.now();
        self.pending.push_back(pending);
        self.arrived.fetch_add(1, Ordering::Relaxed);
        self.wake_ups.wake_one();
        if let Some(watchers) = self.watchers.lock() {
            watchers.iter().for_each(|set| set.has_connection());
        }
    }
}
