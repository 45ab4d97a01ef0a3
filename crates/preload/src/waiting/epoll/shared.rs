//! Sets that several processes use after a fork.
//!
//! The kernel's part of such a set is shared; the library's part is a copy in each process. A child has no cells: it
//! looks at the members that it inherited, and is woken by tokens. Members that another process adds, removes or
//! changes are on the board. A member that only another process has is reported when it gets a token.

use core::sync::atomic::Ordering;

use libc::{EPOLLIN, EPOLLRDNORM};
use netchannel_abi::program::SocketEntry;

use super::board::{Board, Entry, SocketName};
use super::edges::Snapshot;
use super::item::Item;
use super::{EpollSet, State, all, flag, spares};
use crate::descriptors::table::{self, Kind, Word};
use crate::ground::process;
use crate::sockets::listener::wake_ups;
use crate::sockets::{foreign, socket};

/// Most events of other processes' members that are reported at once.
const STRANGERS: usize = 64;

/// Distinguishes a socket from others that have its entry before or after it; 0 where the entry is free.
fn identity(entry: &SocketEntry) -> u64 {
    if entry.references.load(Ordering::Acquire) == 0 {
        return 0;
    }
    let state = entry.state.load(Ordering::Acquire);
    let life = entry.life.load(Ordering::Relaxed);
    u64::from(life) << 8 | u64::from(state & 0x7f) | 0x80
}

/// The board's name for a socket of this process; no name where other processes could not find it.
pub(super) fn name_of(board: &Board, word: Word) -> SocketName {
    let known = matches!(word.kind(), Kind::Virtual | Kind::Listener | Kind::Kernel)
        .then(|| socket::of_word(word))
        .flatten();
    let Some(socket) = known else {
        return SocketName {
            socket: word.0,
            ..SocketName::default()
        };
    };
    let identity = identity(socket.entry);
    if !socket.is_foreign() {
        let (socket, region) = (word.0, board.own);
        return SocketName {
            socket,
            identity,
            region,
        };
    }
    let name = foreign::location_by_file(socket.entry).and_then(|(region, index)| {
        let word = Word::new(word.kind(), u32::try_from(index).ok()?, 0);
        Some(SocketName {
            socket: word.0,
            identity,
            region,
        })
    });
    name.unwrap_or_default()
}

/// The entry that a member of a board names, and whether it still is the socket that was added.
fn entry_of(board: &Board, name: SocketName) -> Option<(&'static SocketEntry, bool)> {
    let index = Word(name.socket).index();
    let entry = if name.region == board.own {
        socket::own_entry(index)
    } else {
        foreign::known_entry(name.region, index)
    }?;
    Some((entry, identity(entry) == name.identity))
}

/// Before a fork: shares all sets between parent and child.
pub fn before_fork() {
    for set in all() {
        // Either process may add the first virtual member later: both must have the inner set.
        if !set.is_open() || set.activate().is_err() {
            continue;
        }
        if let Some(mut state) = set.state.lock()
            && state.board.is_none()
        {
            set.end_all_lingering(&mut state);
            if let Some(board) = Board::new(state.items.len()) {
                set.share(&mut state, board);
            }
        }
        set.share_with_relatives();
    }
}

/// In a forked child no other thread holds a set or sleeps in it, and the cells are the parent's.
pub fn reset_in_child() {
    super::UNUSED.reset();
    spares::reset_in_child();
    wake_ups::reset_in_child();
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
    /// A relative comes to be that has the set, too.
    pub(super) fn share_with_relatives(&self) {
        let Some(state) = self.state.lock() else {
            return;
        };
        self.shared.store(state.board.is_some(), Ordering::Relaxed);
        self.enrolled.store(false, Ordering::Relaxed);
        if self.sleepers.load(Ordering::SeqCst) > 0
            && let Some(board) = &state.board
        {
            // A thread that sleeps in it does not pass by to register.
            board.enroll(process::number());
        }
    }

    /// Puts all members on a board, which from now on also says which numbers are free.
    pub(super) fn share(&self, state: &mut State, board: Board) {
        state.free.clear();
        for (number, item) in (0..).zip(state.items.iter_mut()) {
            if item.alive
                && item.word.kind() != Kind::Fresh
                && let Some(entry) = board.entry(number)
            {
                item.life = entry.claim().unwrap_or(0);
                item.change = 1;
                entry.describe(item.events, item.data, item.enabled);
                if item.is_edge() && !item.fresh {
                    entry.note_edge(item.change, item.reported.edge());
                }
                entry.set_name(name_of(&board, item.word), item.fd);
            }
        }
        state.board = Some(board);
        self.shared.store(true, Ordering::Relaxed);
    }

    /// Allocates a number for a new member that no process uses.
    pub(super) fn allocate_shared(state: &mut State) -> Option<u32> {
        let found = Self::claim_shared(state).or_else(|| {
            Self::end_lost(state);
            Self::claim_shared(state)
        });
        if found.is_none() {
            // No room on the board: this member is known to this process only.
            let length = state.board.as_ref().map_or(0, Board::len);
            while state.items.len() < length {
                state.items.push(Item::unused());
            }
        }
        found
    }

    fn claim_shared(state: &mut State) -> Option<u32> {
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
                    items.push(Item::unused());
                }
                return Some(number);
            }
        }
        None
    }

    fn entry<'a>(state: &'a State, item: &Item, number: u32) -> Option<&'a Entry> {
        if item.life == 0 {
            return None;
        }
        state.board.as_ref()?.entry(number)
    }

    /// Applies the changes of other processes to a member. False when it was removed.
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
        if item.is_edge() {
            Self::follow_edge(state, number, change);
        }
        true
    }

    /// Notes an edge that another process has reported.
    #[cold]
    fn follow_edge(state: &mut State, number: u32, change: u32) {
        let State { board, items, .. } = state;
        let reported = board
            .as_ref()
            .and_then(|board| board.entry(number)?.reported_edge(change));
        if let (Some(edge), Some(item)) = (reported, items.get_mut(number as usize))
            && item.word.kind() == Kind::Virtual
        {
            if core::mem::take(&mut item.fresh) {
                item.reported = item.reported.start_after(&item.snapshot(), edge);
            } else {
                item.reported.follow(edge);
            }
        }
    }

    /// Whether this process may report an edge, which only one of the processes does.
    pub(super) fn claims_edge(state: &State, number: u32, snapshot: &Snapshot) -> bool {
        let Some(item) = state.items.get(number as usize) else {
            return false;
        };
        if !item.is_edge() || item.word.kind() != Kind::Virtual {
            return true;
        }
        Self::entry(state, item, number).is_none_or(|entry| {
            entry.claim_edge(item.change, item.reported.edge(), snapshot.edge())
        })
    }

    /// Frees the numbers of members that have ended without a removal: their process was killed, or executed another
    /// program.
    fn end_lost(state: &State) {
        let Some(board) = &state.board else { return };
        for number in 0..u32::try_from(board.len()).unwrap_or(0) {
            let known = state.items.get(number as usize);
            if known.is_none_or(|item| !item.alive)
                && let Some(entry) = board.entry(number)
                && let Some(life) = entry.life()
                && let name = entry.name()
                && name.identity != 0
                && let Some((_, false)) = entry_of(board, name)
            {
                entry.end(life);
            }
        }
    }

    /// Adopts members that other processes have added, of sockets that this process has, too.
    pub(super) fn adopt_added(&'static self, state: &mut State) {
        let Some(board) = &state.board else { return };
        let added = board.added();
        if added != state.added {
            state.added = added;
            let length = u32::try_from(board.len()).unwrap_or(0);
            let found: Vec<_> = (0..length)
                .filter_map(|number| Some((number, Self::unknown_member(state, number)?)))
                .collect();
            for (number, item) in found {
                self.adopt(state, item, number);
            }
        }
    }

    /// The item for a member on the board that this process does not have, if it has the socket.
    fn unknown_member(state: &State, number: u32) -> Option<Item> {
        let board = state.board.as_ref()?;
        let entry = board.entry(number)?;
        let life = entry.life()?;
        let known = state.items.get(number as usize);
        if known.is_some_and(|item| item.alive && item.life == life) {
            return None;
        }
        let name = entry.name();
        if Word(name.socket).kind() != Kind::Virtual {
            return None;
        }
        let (target, _) = entry_of(board, name).filter(|(_, same)| *same)?;
        let fd = entry.fd.load(Ordering::Relaxed);
        let fits = |word: Word| {
            word.kind() == Kind::Virtual
                && socket::of_word(word).is_some_and(|known| core::ptr::eq(known.entry, target))
        };
        let own = fits(table::get(fd)).then_some(fd);
        let current_fd = own.or_else(|| table::find_if(|_, word| fits(word)))?;
        let change = entry.last_change();
        let events = entry.events.load(Ordering::Relaxed);
        let data = entry.data.load(Ordering::Relaxed);
        Some(Item {
            current_fd,
            enabled: !entry.is_spent(change),
            // The process that added it has put its anchor into the inner set.
            registered: true,
            life,
            change,
            ..Item::new(fd, table::get(current_fd), events, data)
        })
    }

    fn adopt(&'static self, state: &mut State, item: Item, number: u32) {
        // The former member of this number has ended.
        self.remove(state, number, false);
        let Some(socket) = socket::of_word(item.word) else {
            return;
        };
        while state.items.len() <= number as usize {
            state.items.push(Item::unused());
        }
        if let Some(place) = state.items.get_mut(number as usize) {
            *place = item;
        }
        state.index.set(item.fd, number);
        state.watched.insert(number);
        state.ready.push(number);
        socket.with_memberships(|list| list.push(self.membership(number)));
    }

    /// Publishes a change to the other processes.
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

    /// Notes news of a member that this process does not have: another process added it, or nobody has it any more.
    pub(super) fn note_stranger(&self, state: &mut State, number: u32) {
        if !Self::queue_stranger(state, number) {
            // The kernel tells of it again at once.
            self.reported_stranger.store(true, Ordering::Relaxed);
        }
    }

    /// Queues it where the program is to be told of it. Whether it is.
    fn queue_stranger(state: &mut State, number: u32) -> bool {
        let Some(entry) = state.board.as_ref().and_then(|board| board.entry(number)) else {
            return false;
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
            return true;
        }
        false
    }

    /// Reports members that only other processes have. They are reported again while they have a token.
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
