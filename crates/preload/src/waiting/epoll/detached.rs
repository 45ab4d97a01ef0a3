//! Sets at the bottom of as many nested sets as the kernel allows: an inner set would be one level too many. Such an
//! inner set is a member of the sets around instead, and a thread that waits on the set itself sleeps on both.
//!
//! ```text
//!  sets of the program:   A > B > C > D > E          E, and what is ready in it
//!  inner set of E:                  D > inner        so that A to D are woken
//! ```

use core::sync::atomic::Ordering;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLIN, POLLIN, c_int, pollfd};

use super::{EpollSet, Membership, NUMBER, flag, inner_data, own_data};
use crate::ground::sys;
use crate::waiting::signals;

impl EpollSet {
    /// The inner set, where it is no member of the program's set.
    pub fn detached_inner(&self) -> Option<c_int> {
        let detached = self.detached.load(Ordering::Acquire);
        detached.then(|| self.inner.load(Ordering::Acquire))
    }

    /// Adds the inner set to a set around this one, or removes it, under the data word of this set.
    fn register_in_parent(&self, operation: c_int, inner: c_int, parent: Membership) {
        let set = parent.set.fd.load(Ordering::Relaxed);
        let data = own_data() | u64::from(parent.item) & NUMBER;
        let _ = sys::epoll_control(set, operation, inner, flag(EPOLLIN), data);
    }

    /// Follows the set into another one, or out of it.
    pub(super) fn follow_parent(&self, parent: Membership, joins: bool) {
        if let Some(inner) = self.detached_inner() {
            let operation = if joins { EPOLL_CTL_ADD } else { EPOLL_CTL_DEL };
            self.register_in_parent(operation, inner, parent);
        }
    }

    /// Registers the inner set under its new number.
    pub(super) fn relocate_detached(&self, from: c_int, to: c_int) {
        for parent in self.parents() {
            self.register_in_parent(EPOLL_CTL_DEL, from, parent);
            self.register_in_parent(EPOLL_CTL_ADD, to, parent);
        }
    }

    /// Takes the inner set out of the program's set, if it was in it.
    pub(super) fn detach(&self) {
        if self.detached.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = self.inner.load(Ordering::Acquire);
        // A thread that sleeps in the set must wake up to sleep on both: so its wake-up descriptor moves there.
        let wake_descriptor = self.wake_descriptor.load(Ordering::Acquire);
        if wake_descriptor >= 0 {
            let _ = sys::epoll_control(inner, EPOLL_CTL_DEL, wake_descriptor, 0, 0);
            self.register_wake_descriptor(wake_descriptor);
        }
        self.wake();
        let set = self.fd.load(Ordering::Relaxed);
        let _ = sys::epoll_control(set, EPOLL_CTL_DEL, inner, 0, 0);
        for parent in self.parents() {
            self.register_in_parent(EPOLL_CTL_ADD, inner, parent);
        }
    }

    /// The set in which threads sleep, and the data word that wakes them there.
    pub(super) fn wake_place(&self) -> (c_int, u64) {
        if self.detached.load(Ordering::Acquire) {
            (self.fd.load(Ordering::Relaxed), own_data() | NUMBER)
        } else {
            (self.inner.load(Ordering::Acquire), inner_data::WAKE << 32)
        }
    }

    /// Adds the wake-up descriptor to the set in which threads sleep.
    pub(super) fn register_wake_descriptor(&self, wake_descriptor: c_int) {
        let (set, data) = self.wake_place();
        let _ = sys::epoll_control(set, EPOLL_CTL_ADD, wake_descriptor, flag(EPOLLIN), data);
    }

    /// Called when the kernel finds too many nested sets: the lowest sets detach their inner sets.
    #[cold]
    pub(super) fn detach_lowest(&'static self) {
        let nested = self.nested_sets();
        if nested.is_empty() && self.is_active() {
            self.detach();
        }
        nested.into_iter().for_each(Self::detach_lowest);
    }

    /// Sleeps for a set whose inner set is no member of it. True when there is an event in either.
    #[cold]
    pub(super) fn sleep_on_both(
        &self,
        inner: c_int,
        limit: i64,
        mask: *const libc::sigset_t,
    ) -> Result<bool, c_int> {
        let mut both = [self.fd.load(Ordering::Relaxed), inner].map(|fd| pollfd {
            fd,
            events: POLLIN,
            revents: 0,
        });
        signals::sleep_in_poll(&mut both, limit, mask).map(|count| count > 0)
    }
}
