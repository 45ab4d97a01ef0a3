//! The cells of a set: one in each link that leads to members, with a map of the members that have news.

use core::sync::atomic::Ordering;

use netchannel_abi::link::waiter as bits;
use netchannel_ring::cell;

use super::item::Item;
use super::{CellUse, EpollSet, State};
use crate::sockets::lane::Lane;
use crate::sockets::link::LinkEnd;
use crate::sockets::socket;

impl EpollSet {
    /// Gives a member its bit in a cell, so that the loop sleeps for all its sockets with one word.
    pub(super) fn join_cell(state: &mut State, lane: &Lane, item: u32) -> Option<usize> {
        let link = lane.link;
        let taken = lane.own().waiter.load(Ordering::Relaxed) & bits::CELL_MASK != 0;
        if !link.is_own() || taken {
            return None;
        }
        let known = state
            .cells
            .iter()
            .position(|cell| cell.link.is_some_and(|known| core::ptr::eq(known, link)));
        let index = match known {
            Some(index) => index,
            None => Self::open_cell(state, link)?,
        };
        let cell = state.cells.get_mut(index)?;
        let slot = lane.handle().index as usize;
        if cell.items.len() <= slot {
            cell.items.resize(slot + 1, 0);
        }
        cell.items[slot] = item + 1;
        cell.members += 1;
        lane.attach_cell(Some(cell.cell));
        Some(index)
    }

    fn open_cell(state: &mut State, link: &'static LinkEnd) -> Option<usize> {
        let cell = link.reserve_cell()?;
        let shared = link.cell(link.role, cell)?;
        cell::wake(&shared.asleep);
        cell::take(&shared.summary, &shared.ready, |_| {});
        let unused = state.cells.iter().position(|cell| cell.link.is_none());
        let index = unused.unwrap_or_else(|| {
            state.cells.push(CellUse {
                link: None,
                cell: 0,
                items: Vec::new(),
                members: 0,
            });
            state.cells.len() - 1
        });
        let used = state.cells.get_mut(index)?;
        used.link = Some(link);
        used.cell = cell;
        Some(index)
    }

    pub(super) fn leave_cell(state: &mut State, item: &Item, number: u32) {
        // A cell belongs to this process only, whichever other process holds the socket.
        let Some(used) = item.cell.and_then(|cell| state.cells.get_mut(cell)) else {
            return;
        };
        let Some(lane) = socket::of_word(item.word).and_then(|s| Lane::of(s, item.current_fd))
        else {
            return;
        };
        if let Some(place) = used.items.get_mut(lane.handle().index as usize)
            && *place == number + 1
        {
            *place = 0;
            used.members -= 1;
            // In a forked child the waiter word is the parent's.
            if lane.link.is_own() {
                lane.attach_cell(None);
            }
        }
        if used.members == 0
            && let Some(link) = used.link.take()
        {
            link.return_cell(used.cell);
        }
    }
}
