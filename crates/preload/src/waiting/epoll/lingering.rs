//! Members that were taken out and may come back: some programs take a connection out of the set and add it again with every
//! request. Its anchor stays in the inner set meanwhile, which spares two calls; a token on it, the descriptor's close or a fork end that.

use libc::EPOLL_CTL_DEL;

use core::sync::atomic::Ordering;

use super::{EpollSet, State};
use crate::descriptors::table::{Kind, Word};
use crate::ground::sys;
use crate::sockets::socket;

impl EpollSet {
    /// Takes a member out but for its anchor, where only this process uses the set. Whether it did.
    pub(super) fn let_linger(state: &mut State, number: u32) -> bool {
        let Some(item) = state.items.get(number as usize).copied() else {
            return false;
        };
        if !item.registered || item.word.kind() != Kind::Virtual || state.board.is_some() {
            return false;
        }
        Self::leave_cell(state, &item, number);
        state.watched.remove(number);
        state.ready.remove(number);
        state.left = true;
        if let Some(item) = state.items.get_mut(number as usize) {
            item.alive = false;
            item.lingers = true;
        }
        true
    }

    /// The place of a member that was taken out under this descriptor. It is a membership of the socket still.
    pub(super) fn find_lingering(state: &State, fd: i32, word: Word) -> Option<u32> {
        let number = state.index.get(fd)?;
        let item = state.items.get(number as usize)?;
        (item.lingers && item.word == word).then_some(number)
    }

    /// A member that lingers goes for good, if it was added under `fd`, or under any. Whether it lingered.
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
        // Under the lock: nobody gets the place before.
        if let Some(socket) = socket::of_word(word) {
            self.forget_membership(&socket, number);
        }
        true
    }

    /// Before the set is used by another process too.
    pub(super) fn end_all_lingering(&'static self, state: &mut State) {
        for number in 0..u32::try_from(state.items.len()).unwrap_or(0) {
            self.end_lingering(state, number, None);
        }
    }
}
