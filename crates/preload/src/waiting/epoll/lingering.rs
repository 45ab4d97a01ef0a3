//! Removed members that may be added again: some programs remove a connection and add it with every request. Its anchor
//! stays in the inner set meanwhile, which saves two system calls. A token on it, the closing of the descriptor or a
//! fork end that.

use libc::EPOLL_CTL_DEL;

use core::sync::atomic::Ordering;

use super::{EpollSet, State};
use crate::descriptors::table::{Kind, Word};
use crate::ground::sys;
use crate::sockets::socket;

impl EpollSet {
    /// Removes a member except for its anchor, where only this process uses the set. Returns whether it did.
    pub(super) fn let_linger(state: &mut State, number: u32) -> bool {
        let Some(item) = state.items.get(number as usize).copied() else {
            return false;
        };
        let moved = item.current_fd != item.fd;
        let is_virtual = item.word.kind() == Kind::Virtual;
        if !item.registered || !is_virtual || moved || state.board.is_some() {
            return false;
        }
        Self::leave_cell(state, &item, number);
        state.watched.remove(number);
        state.ready.remove(number);
        state.member_left = true;
        if let Some(item) = state.items.get_mut(number as usize) {
            item.alive = false;
            item.lingers = true;
        }
        true
    }

    /// The number of a lingering member with this descriptor. The socket still lists it as a membership.
    pub(super) fn find_lingering(state: &State, fd: i32, word: Word) -> Option<u32> {
        let number = state.index.get(fd)?;
        let item = state.items.get(number as usize)?;
        (item.lingers && item.word == word).then_some(number)
    }

    /// Removes a lingering member for good, if it was added under `fd`, or under any descriptor. Whether it lingered.
    pub(super) fn end_lingering(
        &'static self,
        state: &mut State,
        number: u32,
        fd: Option<i32>,
    ) -> bool {
        let Some(item) = state.items.get_mut(number as usize) else {
            return false;
        };
        if !item.lingers || fd.is_some_and(|fd| item.fd != fd) {
            return false;
        }
        item.lingers = false;
        let (fd, word) = (item.fd, item.word);
        let inner = self.inner.load(Ordering::Acquire);
        let _ = sys::epoll_control(inner, EPOLL_CTL_DEL, fd, 0, 0);
        state.index.clear(fd, number);
        state.free.push(number);
        // Under the lock: no other member gets the number before.
        if let Some(socket) = socket::of_word(word) {
            self.forget_membership(&socket, number);
        }
        true
    }

    /// Ends all lingering, before another process uses the set, too.
    pub(super) fn end_all_lingering(&'static self, state: &mut State) {
        for number in 0..u32::try_from(state.items.len()).unwrap_or(0) {
            self.end_lingering(state, number, None);
        }
    }
}
