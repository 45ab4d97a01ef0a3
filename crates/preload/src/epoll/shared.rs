//! Sets that several processes use after a fork.
//!
//! The kernel's part of such a set is one; ours is a copy in each process. A child has no cells: it
//! looks at what it inherited, and is woken by tokens. What the other process adds, removes or
//! changes stands on the board; a member that only the other process knows is told by its token.

use core::sync::atomic::Ordering;

use libc::{EPOLLIN, EPOLLRDNORM};

use super::board::{Board, Entry};
use super::item::Item;
use super::{EpollSet, State, all, flag};
use crate::table::Kind;
use crate::{attach, bell};

/// Strangers that are told at once.
const STRANGERS: usize = 64;

/// Before a fork: parent and child will know the members together.
pub fn before_fork() {
    for set in all() {
        if !set.is_active() {
            continue;
        }
        let Some(mut state) = set.state.lock() else {
            continue;
        };
        if state.board.is_none() {
            set.end_all_lingering(&mut state);
            state.board = Board::new(state.items.len());
            let State {
                board, items, free, ..
            } = &mut *state;
            if let Some(board) = board {
                // From now on the board says which numbers are free.
                free.clear();
                for (number, item) in (0..).zip(items.iter_mut()) {
                    if item.alive
                        && let Some(entry) = board.entry(number)
                    {
                        item.life = entry.claim().unwrap_or(0);
                        item.change = 1;
                        entry.describe(item.events, item.data, item.enabled);
                    }
                }
            }
        }
        set.shared.store(state.board.is_some(), Ordering::Relaxed);
        set.enrolled.store(false, Ordering::Relaxed);
    }
}

/// In a forked child no other thread holds a set or sleeps in one, and the cells are the parent's.
pub fn reset_in_child() {
    super::UNUSED.reset();
    bell::reset_in_child();
    for set in all() {
        set.state.reset();
        set.parents.reset();
        set.sleepers.store(0, Ordering::Relaxed);
        let Some(mut state) = set.state.lock() else {
            continue;
        };
        let state = &mut *state;
        state.cells.clear();
        state.links.clear();
        for (number, item) in (0..).zip(state.items.iter_mut()) {
            item.cell = None;
            if item.alive && item.word.kind() == Kind::Virtual {
                state.watched.insert(number);
                state.ready.push(number);
            }
        }
    }
}

impl EpollSet {
    /// The process uses a set that it shares: others look again now and then.
    #[cold]
    pub(super) fn enroll(&self) {
        if !self.enrolled.load(Ordering::Relaxed)
            && !self.enrolled.swap(true, Ordering::Relaxed)
            && let Some(state) = self.state.lock()
            && let Some(board) = &state.board
        {
            board.enroll(attach::process());
        }
    }

    /// Whether another process uses the set too.
    pub(super) fn has_others(&self, state: &State) -> bool {
        self.shared.load(Ordering::Relaxed)
            && state
                .board
                .as_ref()
                .is_some_and(|board| board.has_others(attach::process()))
    }

    /// A number for a new member that no process uses.
    pub(super) fn place_shared(state: &mut State) -> Option<u32> {
        let State {
            board, items, hint, ..
        } = state;
        let board = board.as_ref()?;
        let length = u32::try_from(board.len()).ok()?;
        for step in 0..length {
            let number = (*hint + step) % length;
            let free = items.get(number as usize).is_none_or(|item| !item.alive);
            if free && board.entry(number)?.claim().is_some() {
                *hint = (number + 1) % length;
                while items.len() <= number as usize {
                    items.push(Item::dead());
                }
                return Some(number);
            }
        }
        // No room: this member is known to this process alone.
        while items.len() < board.len() {
            items.push(Item::dead());
        }
        None
    }

    fn entry<'a>(state: &'a State, item: &Item, number: u32) -> Option<&'a Entry> {
        if item.life == 0 {
            return None;
        }
        state.board.as_ref()?.entry(number)
    }

    /// Takes over what other processes did to a member. False when it is gone.
    pub(super) fn refresh(&'static self, state: &mut State, number: u32) -> bool {
        let Some(item) = state.items.get(number as usize).copied() else {
            return false;
        };
        let Some(entry) = Self::entry(state, &item, number) else {
            return item.alive;
        };
        if !item.alive {
            return false;
        }
        if entry.life() != Some(item.life) {
            self.remove(state, number, false);
            return false;
        }
        let change = entry.last_change();
        let spent = entry.is_spent(change);
        if change != item.change || spent == item.enabled {
            let events = entry.events.load(Ordering::Relaxed);
            let data = entry.data.load(Ordering::Relaxed);
            let item = &mut state.items[number as usize];
            item.fresh |= change != item.change;
            item.enabled = !spent;
            (item.events, item.data, item.change) = (events, data, change);
        }
        true
    }

    /// Tells the other processes of a change.
    pub(super) fn publish_change(state: &mut State, number: u32) {
        let Some(item) = state.items.get(number as usize).copied() else {
            return;
        };
        let change =
            Self::entry(state, &item, number).map(|entry| entry.change(item.events, item.data));
        if let Some(change) = change {
            state.items[number as usize].change = change;
        }
    }

    /// A token of a member that this process does not have: another process added it.
    pub(super) fn note_stranger(state: &mut State, number: u32) {
        let Some(entry) = state.board.as_ref().and_then(|board| board.entry(number)) else {
            return;
        };
        let events = entry.events.load(Ordering::Relaxed) & flag(EPOLLIN | EPOLLRDNORM);
        if entry.life().is_some()
            && events != 0
            && !entry.is_spent(entry.last_change())
            && state.strangers.len() < STRANGERS
        {
            let data = entry.data.load(Ordering::Relaxed);
            state
                .strangers
                .push(libc::epoll_event { events, u64: data });
        }
    }

    /// Tells of members that only other processes have. They come again while they have a token.
    pub(super) fn report_strangers(
        state: &mut State,
        out: &mut [libc::epoll_event],
        mut count: usize,
    ) -> usize {
        for event in state.strangers.drain(..) {
            if let Some(place) = out.get_mut(count) {
                *place = event;
                count += 1;
            }
        }
        count
    }
}
