//! Fresh sockets in a set. Programs that add a socket before they connect it connect it before they wait. So it stays
//! fresh until somebody looks at the set: only then it becomes the kernel's, which shows it as TCP does.
//!
//! ```text
//!  epoll_ctl --> known here only --+-- connect: a virtual member, of which the kernel's set hears nothing
//!                                  +-- wait, poll, fork, or what only the kernel can do: the kernel's socket and member
//! ```

use core::sync::atomic::{Ordering, fence};

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLEXCLUSIVE, c_int};
use netchannel_abi::reason::Reason;

use super::item::Item;
use super::{EpollSet, State, flag};
use crate::sockets::options;
use crate::sockets::socket::{self, Socket};

impl EpollSet {
    /// `epoll_ctl` for a fresh socket. `None` where it must become the kernel's first.
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub fn control_fresh(
        &'static self,
        operation: c_int,
        fd: i32,
        socket: &Socket,
        event: Option<libc::epoll_event>,
    ) -> Option<Result<(), i32>> {
        let exclusive = event.is_some_and(|event| event.events & flag(EPOLLEXCLUSIVE) != 0);
        if exclusive || operation == EPOLL_CTL_ADD && !self.may_stay_fresh() {
            return None;
        }
        let mut state = match self.lock() {
            Ok(state) => state,
            Err(error) => return Some(Err(error)),
        };
        let found = self.find(&mut state, fd, socket.word);
        match (operation, found, event) {
            (EPOLL_CTL_ADD, None, Some(event)) => {
                let number = Self::allocate_item(&mut state);
                let item = Item::new(fd, socket.word, event.events, event.u64);
                self.insert(&mut state, item, number);
                socket.with_memberships(|list| list.push(self.membership(number)));
                state.fresh.insert(number);
                self.has_fresh.store(true, Ordering::SeqCst);
                drop(state);
                // Pairs with `announce_sleep`: a sleeper counts itself, then looks for fresh members.
                fence(Ordering::SeqCst);
                if self.sleepers.load(Ordering::SeqCst) > 0 {
                    self.settle_fresh();
                }
                Some(Ok(()))
            }
            (EPOLL_CTL_MOD, Some(number), Some(event)) => {
                Self::change(&mut state, number, &event);
                Some(Ok(()))
            }
            (EPOLL_CTL_DEL, Some(number), _) => {
                self.remove(&mut state, number, true);
                drop(state);
                self.forget_membership(socket, number);
                Some(Ok(()))
            }
            // The kernel finds the error.
            _ => None,
        }
    }

    /// Whether nobody may look at the set unnoticed, or already waits.
    fn may_stay_fresh(&self) -> bool {
        !self.shared.load(Ordering::Relaxed)
            && !self.has_parents.load(Ordering::Relaxed)
            && self.sleepers.load(Ordering::Relaxed) == 0
    }

    /// Whether fresh sockets are members.
    #[inline]
    pub(super) fn has_fresh(&self) -> bool {
        self.has_fresh.load(Ordering::SeqCst)
    }

    /// Forgets a fresh member, if it is one.
    pub(super) fn forget_fresh(&self, state: &mut State, number: u32) {
        if state.fresh.remove(number) && state.fresh.is_empty() {
            self.has_fresh.store(false, Ordering::SeqCst);
        }
    }

    /// Turns fresh members into the kernel's: somebody looks at the set.
    #[inline]
    pub(super) fn settle_fresh(&self) {
        if self.has_fresh() {
            self.materialise_fresh();
        }
    }

    #[cold]
    fn materialise_fresh(&self) {
        let mut found = Vec::new();
        if let Some(mut state) = self.state.lock() {
            // Where no socket can be made, the member shows nothing until it is connected.
            while let Some(number) = state.fresh.pop() {
                let item = state.items.get(number as usize);
                found.extend(item.map(|item| (item.current_fd, item.word)));
            }
            self.has_fresh.store(false, Ordering::SeqCst);
        }
        // Not under the lock: the set is told of the change.
        for (fd, word) in found {
            if let Some(socket) = socket::of_word(word).filter(|socket| socket.is(fd)) {
                let _ = options::materialise(fd, &socket, Reason::None);
            }
        }
    }
}
