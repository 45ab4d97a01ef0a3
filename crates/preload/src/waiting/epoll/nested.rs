//! Sets that are members of other sets, and `poll` on a set.
//!
//! The kernel knows of the membership and wakes the outer set. Whether the inner one has an event, and not only a token
//! to take, is found out here.

use core::sync::atomic::Ordering;

use libc::{POLLIN, c_int, pollfd};

use super::item::Item;
use super::{EpollSet, Membership};
use crate::descriptors::table::{self, Kind};
use crate::ground::sys;
use crate::sockets::socket;

impl EpollSet {
    /// `epoll_ctl` for a descriptor of another set.
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub fn control_nested(
        &'static self,
        operation: c_int,
        fd: i32,
        set: &'static Self,
        event: Option<libc::epoll_event>,
    ) -> Result<(), i32> {
        let (events, data) = event.map_or((0, 0), |event| (event.events, event.u64));
        let item = Item::new(fd, table::get(fd), events, data);
        let mut done = self.control_both(operation, fd, item, event.is_some());
        if done.is_err_and(|error| error == libc::ELOOP) {
            set.detach_lowest();
            done = self.control_both(operation, fd, item, event.is_some());
        }
        let added = done?;
        if let Some(number) = added {
            let parent = Membership::new(self, number);
            set.join_parent(parent);
            set.follow_parent(parent, true);
            set.settle_fresh();
        }
        Ok(())
    }

    /// Adds a set that this one is a member of.
    pub(super) fn join_parent(&self, parent: Membership) {
        if let Some(mut parents) = self.parents.lock() {
            parents.push(parent);
            self.has_parents.store(true, Ordering::Relaxed);
        }
    }

    /// Removes a set that this one was a member of.
    pub(super) fn leave_parent(&self, membership: Membership) {
        self.follow_parent(membership, false);
        if let Some(mut parents) = self.parents.lock() {
            parents.retain(|known| !known.is(membership.set, membership.item));
            self.has_parents
                .store(!parents.is_empty(), Ordering::Relaxed);
        }
    }

    pub(super) fn parents(&self) -> Vec<Membership> {
        self.parents
            .lock()
            .map(|parents| parents.clone())
            .unwrap_or_default()
    }

    /// The set ends: it is removed from the sets around it.
    pub(super) fn leave_parents(&self) {
        for parent in self.parents() {
            self.follow_parent(parent, false);
            if let Some(mut state) = parent.set.state.lock() {
                parent.set.remove(&mut state, parent.item, true);
            }
        }
        if let Some(mut parents) = self.parents.lock() {
            parents.clear();
            self.has_parents.store(false, Ordering::Relaxed);
        }
    }

    /// The set is known by another descriptor now.
    pub(super) fn moved(&self, from: i32, to: i32) {
        for parent in self.parents() {
            if let Some(mut state) = parent.set.state.lock()
                && let Some(item) = state.items.get_mut(parent.item as usize)
                && item.alive
                && item.current_fd == from
            {
                item.current_fd = to;
            }
        }
    }

    /// Translates an event that the kernel reported under a data word of the library.
    pub(super) fn translate(
        &'static self,
        number: u32,
        event: libc::epoll_event,
    ) -> Option<libc::epoll_event> {
        let mut state = self.state.lock()?;
        let known = state.board.is_none() || self.refresh(&mut state, number);
        let item = state.items.get(number as usize).copied();
        let Some(item) = item.filter(|item| known && item.alive) else {
            self.note_stranger(&mut state, number);
            return None;
        };
        drop(state);
        if !item.enabled {
            return None;
        }
        if item.word.kind() == Kind::Listener
            && let Some(listener) = socket::of_word(item.word).and_then(|s| s.listener())
        {
            listener.note_told_by_kernel();
        }
        if let Some(set) = item.set()
            && set.is_active()
        {
            set.drain();
            if !is_readable(item.current_fd) {
                // Only a token. Other news is found by looking.
                if let Some(mut state) = self.state.lock() {
                    state.ready.push(number);
                }
                self.rearm(&item, number);
                return None;
            }
            if let Some(mut state) = self.state.lock()
                && let Some(item) = state.items.get_mut(number as usize)
            {
                item.told = true;
            }
        }
        if item.is_oneshot()
            && let Some(mut state) = self.state.lock()
            && let Some(item) = state.items.get_mut(number as usize)
        {
            item.enabled = false;
        }
        Some(libc::epoll_event {
            events: event.events,
            u64: item.data,
        })
    }

    /// Enables the kernel's one-shot event again, which was used up without a report.
    fn rearm(&self, item: &Item, number: u32) {
        if item.is_oneshot() && item.enabled {
            let set = self.fd.load(Ordering::Relaxed);
            let data = super::own_data() | u64::from(number);
            let _ = sys::epoll_control(set, libc::EPOLL_CTL_MOD, item.fd, item.events, data);
        }
    }

    /// Takes all tokens of this set and of the sets within it, so that the kernel's answer on it is about the kernel's
    /// own members.
    pub fn drain(&'static self) {
        self.settle_fresh();
        if !self.is_active() {
            return;
        }
        self.take_inner();
        for set in self.nested_sets() {
            set.drain();
        }
    }

    pub(super) fn nested_sets(&self) -> Vec<&'static Self> {
        self.state
            .lock()
            .map(|state| {
                state
                    .nested
                    .as_slice()
                    .iter()
                    .filter_map(|number| state.items.get(*number as usize)?.set())
                    .collect()
            })
            .unwrap_or_default()
    }
}

/// Whether the kernel finds the descriptor readable.
pub fn is_readable(fd: i32) -> bool {
    let mut set = [pollfd {
        fd,
        events: POLLIN,
        revents: 0,
    }];
    matches!(sys::poll(&mut set, 0, core::ptr::null()), Ok(1))
}
