//! Sets at the bottom of as many sets within sets as the kernel allows: an inner set would be one too many. It is a member of the sets
//! around instead, and who sleeps for the set itself sleeps on both.
//!
//! ```text
//!  sets of the program:   A > B > C > D > E          E, and what is ready in it
//!  inner set of E:                  D > inner        so that A to D are woken
//! ```

use core::sync::atomic::Ordering;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLIN, POLLIN, c_int, pollfd};

use super::{EpollSet, Membership, NUMBER, flag, inside, own_data};
use crate::ground::sys;
use crate::waiting::signals;

impl EpollSet {
    /// The inner set, where it is no member of the program's.
    pub fn detached_inner(&self) -> Option<c_int> {
        let detached = self.detached.load(Ordering::Acquire);
        detached.then(|| self.inner.load(Ordering::Acquire))
    }

    /// What `inner` is known by in a set around this one: as the set itself.
    fn put_around(&self, operation: c_int, inner: c_int, parent: Membership) {
        let set = parent.set.fd.load(Ordering::Relaxed);
        let data = own_data() | u64::from(parent.item) & NUMBER;
        let _ = sys::epoll_control(set, operation, inner, flag(EPOLLIN), data);
    }

    /// The set is a member of another one from now on, or no longer.
    pub(super) fn follow_parent(&self, parent: Membership, joins: bool) {
        if let Some(inner) = self.detached_inner() {
            let operation = if joins { EPOLL_CTL_ADD } else { EPOLL_CTL_DEL };
            self.put_around(operation, inner, parent);
        }
    }

    /// The inner set gets another number.
    pub(super) fn relocate_detached(&self, from: c_int, to: c_int) {
        for parent in self.parents() {
            self.put_around(EPOLL_CTL_DEL, from, parent);
            self.put_around(EPOLL_CTL_ADD, to, parent);
        }
    }

    /// The inner set leaves the program's, or never was in it.
    pub(super) fn detach(&self) {
        if self.detached.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = self.inner.load(Ordering::Acquire);
        // Who sleeps in the set must wake, to sleep on both: so what wakes it goes there.
        let kick = self.kick.load(Ordering::Acquire);
        if kick >= 0 {
            let _ = sys::epoll_control(inner, EPOLL_CTL_DEL, kick, 0, 0);
            self.put_kick(kick);
        }
        self.wake();
        let set = self.fd.load(Ordering::Relaxed);
        let _ = sys::epoll_control(set, EPOLL_CTL_DEL, inner, 0, 0);
        for parent in self.parents() {
            self.put_around(EPOLL_CTL_ADD, inner, parent);
        }
    }

    /// Puts what wakes sleepers where they sleep.
    pub(super) fn put_kick(&self, kick: c_int) {
        let (set, data) = if self.detached.load(Ordering::Acquire) {
            (self.fd.load(Ordering::Relaxed), own_data() | NUMBER)
        } else {
            (self.inner.load(Ordering::Acquire), inside::KICK << 32)
        };
        let _ = sys::epoll_control(set, EPOLL_CTL_ADD, kick, flag(EPOLLIN), data);
    }

    /// The kernel finds too many sets within each other: those at the bottom give up theirs.
    #[cold]
    pub(super) fn detach_lowest(&'static self) {
        let nested = self.nested_sets();
        if nested.is_empty() && self.is_active() {
            self.detach();
        }
        nested.into_iter().for_each(Self::detach_lowest);
    }

    /// Sleeps for a set whose inner one is no member of it. True when there is something in either.
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
