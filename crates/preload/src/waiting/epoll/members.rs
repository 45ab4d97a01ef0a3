//! Adding, changing and removing members.

use core::sync::atomic::Ordering;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLEXCLUSIVE, EPOLLIN, c_int};
use netchannel_abi::link::waiter as bits;

use super::item::Item;
use super::shared::name_of;
use super::{EpollSet, Membership, NUMBER, State, flag, inner_data, own_data};
use crate::descriptors::table::{Kind, Word};
use crate::ground::lock::Guard;
use crate::ground::sys;
use crate::sockets::link::LinkEnd;
use crate::sockets::listener;
use crate::sockets::listener::Watcher;
use crate::sockets::listener::wake_ups;
use crate::sockets::socket::{self, Socket};

/// Whether the call may use `EPOLLEXCLUSIVE`, or does not.
fn may_be_exclusive(operation: c_int, events: u32) -> bool {
    const ALLOWED_WITH: c_int = EPOLLIN
        | libc::EPOLLOUT
        | libc::EPOLLERR
        | libc::EPOLLHUP
        | libc::EPOLLWAKEUP
        | libc::EPOLLET
        | EPOLLEXCLUSIVE;
    events & flag(EPOLLEXCLUSIVE) == 0
        || operation == EPOLL_CTL_ADD && events & !flag(ALLOWED_WITH) == 0
}

impl EpollSet {
    /// `epoll_ctl` for a connected virtual socket, which the kernel's set does not have.
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub fn control(
        &'static self,
        operation: c_int,
        fd: i32,
        socket: &Socket,
        event: Option<libc::epoll_event>,
    ) -> Result<(), i32> {
        if let Some(event) = event
            && !may_be_exclusive(operation, event.events)
        {
            return Err(libc::EINVAL);
        }
        let mut state = self.lock_to_change()?;
        let found = self.find(&mut state, fd, socket.word);
        match operation {
            EPOLL_CTL_ADD => {
                let event = event.ok_or(libc::EFAULT)?;
                if found.is_some() {
                    return Err(libc::EEXIST);
                }
                self.activate()?;
                let mut item = Item::new(fd, socket.word, event.events, event.u64);
                let back = Self::find_lingering(&state, fd, socket.word);
                item.registered = back.is_some();
                let number = back.unwrap_or_else(|| Self::allocate_item(&mut state));
                self.insert(&mut state, item, number);
                let wakes = self.arm_for_sleepers(&mut state, number);
                drop(state);
                if back.is_none() {
                    socket.with_memberships(|list| list.push(self.membership(number)));
                }
                if !wakes {
                    self.count_edge();
                    return Ok(());
                }
            }
            EPOLL_CTL_MOD => {
                let event = event.ok_or(libc::EFAULT)?;
                let number = found.ok_or(libc::ENOENT)?;
                let item = &mut state.items[number as usize];
                if item.events & flag(EPOLLEXCLUSIVE) != 0 {
                    return Err(libc::EINVAL);
                }
                Self::change(&mut state, number, &event);
                drop(state);
            }
            EPOLL_CTL_DEL => {
                let number = found.ok_or(libc::ENOENT)?;
                if !Self::let_linger(&mut state, number) {
                    self.remove(&mut state, number, true);
                    drop(state);
                    self.forget_membership(socket, number);
                }
            }
            _ => return Err(libc::EINVAL),
        }
        self.changed();
        Ok(())
    }

    /// `epoll_ctl` for a file that the kernel's set has, too: the kernel checks the call, and reports the file under a
    /// data word of the library.
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub(super) fn control_both(
        &'static self,
        operation: c_int,
        fd: i32,
        item: Item,
        had_event: bool,
    ) -> Result<Option<u32>, i32> {
        let kernel = |operation, data| {
            if !had_event && operation != EPOLL_CTL_DEL {
                return Err(libc::EFAULT);
            }
            let set = self.fd.load(Ordering::Relaxed);
            sys::epoll_control(set, operation, fd, item.events, data)
        };
        let mut state = self.lock_to_change()?;
        let found = self.find(&mut state, fd, item.word);
        let known = |number: u32| {
            if item.native {
                item.data
            } else {
                own_data() | u64::from(number) & NUMBER
            }
        };
        let added = match (operation, found) {
            (EPOLL_CTL_ADD, None) => {
                let number = Self::allocate_item(&mut state);
                let made = kernel(operation, known(number));
                if let Err(error) = made.and_then(|()| match item.native {
                    true => Ok(()),
                    false => self.activate(),
                }) {
                    Self::free_item(&mut state, number);
                    return Err(error);
                }
                self.insert(&mut state, item, number);
                Some(number)
            }
            (EPOLL_CTL_MOD, Some(number)) => {
                kernel(operation, known(number))?;
                let event = libc::epoll_event {
                    events: item.events,
                    u64: item.data,
                };
                let asked = state.items[number as usize].asks_for_connections();
                Self::change(&mut state, number, &event);
                if !asked && item.asks_for_connections() {
                    self.watch_offers(&item);
                }
                None
            }
            (EPOLL_CTL_DEL, Some(number)) => {
                kernel(operation, 0)?;
                self.remove(&mut state, number, true);
                drop(state);
                self.forget_item(&item, number);
                return Ok(None);
            }
            _ => {
                kernel(operation, item.data)?;
                None
            }
        };
        drop(state);
        if added.is_some() && item.word.kind() == Kind::Listener {
            // Each sleeping thread must announce that it sleeps for connections, too.
            self.count_edge();
            self.wake_all();
        } else if !item.native {
            self.changed();
        }
        Ok(added)
    }

    /// `epoll_ctl` for a kernel socket that may still turn virtual, or a listener.
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub fn control_kernel(
        &'static self,
        operation: c_int,
        fd: i32,
        socket: &Socket,
        event: Option<libc::epoll_event>,
    ) -> Result<(), i32> {
        let (events, data) = event.map_or((0, 0), |event| (event.events, event.u64));
        let item = Item::new(fd, socket.word, events, data);
        let added = self.control_both(operation, fd, item, event.is_some())?;
        if let Some(number) = added {
            socket.with_memberships(|list| list.push(self.membership(number)));
        }
        Ok(())
    }

    /// Wakes a sleeper to look again, and counts news for the sets around this one.
    pub(super) fn changed(&self) {
        self.count_edge();
        self.wake();
    }

    fn count_edge(&self) {
        if self.has_parents.load(Ordering::Relaxed) {
            self.edges.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lock_to_change(&'static self) -> Result<Guard<'static, State>, i32> {
        if self.shared.load(Ordering::Relaxed) {
            self.enroll();
        }
        let mut state = self.lock()?;
        self.adopt_added(&mut state);
        Ok(state)
    }

    pub(super) fn find(&'static self, state: &mut State, fd: i32, word: Word) -> Option<u32> {
        let number = state.index.get(fd)?;
        let item = state.items.get(number as usize)?;
        let found = item.alive && item.word == word;
        (found && self.refresh(state, number)).then_some(number)
    }

    /// Watches the offers for a listener again, where none of its members asked for connections before.
    fn watch_offers(&self, item: &Item) {
        if let Some(listener) = socket::of_word(item.word).and_then(|socket| socket.listener()) {
            self.add_channel(listener.channel(), 0);
        }
    }

    pub(super) fn change(state: &mut State, number: u32, event: &libc::epoll_event) {
        let Some(item) = state.items.get_mut(number as usize) else {
            return;
        };
        item.events = event.events;
        item.data = event.u64;
        item.enabled = true;
        item.fresh = true;
        if !item.native {
            state.ready.push(number);
        }
        Self::publish_change(state, number);
    }

    /// Allocates a number for an item.
    pub(super) fn allocate_item(state: &mut State) -> u32 {
        if state.board.is_some()
            && let Some(number) = Self::allocate_shared(state)
        {
            return number;
        }
        state.free.pop().unwrap_or_else(|| {
            let number = u32::try_from(state.items.len()).unwrap_or(u32::MAX);
            state.items.push(Item::unused());
            number
        })
    }

    /// Frees a number.
    fn free_item(state: &mut State, number: u32) {
        let shared = state.board.as_ref().and_then(|board| board.entry(number));
        match shared {
            Some(entry) => {
                if let Some(life) = entry.life() {
                    entry.end(life);
                }
            }
            None => state.free.push(number),
        }
    }

    pub(super) fn insert(&'static self, state: &mut State, mut item: Item, number: u32) {
        let index = number as usize;
        // A former member with this descriptor is another file, which lives on unreported.
        state.index.set(item.fd, number);
        match item.word.kind() {
            Kind::Virtual => {
                if !state.listeners.is_empty() {
                    wake_ups::note_serving();
                }
                if let Some(lane) = item.lane() {
                    item.cell = Self::join_cell(state, &lane, number);
                    if !lane.socket.is_unshared() {
                        state.unshared = 0;
                    }
                }
                if item.cell.is_none() {
                    state.watched.insert(number);
                }
                if !item.registered {
                    state.unregistered.insert(number);
                }
                state.ready.push(number);
            }
            _ => self.insert_known(state, &item, number),
        }
        if let Some(board) = &state.board
            && let Some(entry) = board.entry(number)
        {
            item.life = entry.life().unwrap_or(0);
            entry.describe(item.events, item.data, item.enabled);
            entry.set_name(name_of(board, item.word), item.fd);
        }
        state.items[index] = item;
        if item.life != 0 {
            // Another process may sleep in the set, and only a token can wake it.
            self.register(state);
            if let Some(lane) = item.lane() {
                lane.arm(bits::DATA);
            }
            state.board.as_ref().inspect(|board| board.add());
        }
    }

    /// Begins to watch a member that the kernel's set has, too.
    pub(super) fn insert_known(&'static self, state: &mut State, item: &Item, number: u32) {
        match item.word.kind() {
            Kind::Listener => {
                state.listeners.insert(number);
                if !state.cells.is_empty() || !state.watched.is_empty() {
                    wake_ups::note_serving();
                }
                let socket = socket::of_word(item.word);
                if let Some((socket, listener)) = socket.and_then(|s| Some((s, s.listener()?))) {
                    listener.begin_looking(socket.entry);
                    let exclusive = item.events & flag(EPOLLEXCLUSIVE);
                    self.add_channel(listener.channel(), exclusive);
                    for queue in listener.queues() {
                        self.add_queue(queue, exclusive);
                    }
                    listener.watch(self);
                }
                for link in listener::server_links() {
                    self.add_link_locked(state, link.link());
                }
            }
            Kind::Epoll => state.nested.insert(number),
            _ => return,
        }
        state.ready.push(number);
    }

    pub(super) fn add_link_locked(&self, state: &mut State, link: &'static LinkEnd) {
        state.links.retain(|known| known.is_alive());
        if link.is_alive() && !state.links.iter().any(|known| core::ptr::eq(*known, link)) {
            state.links.push(link);
            self.add_channel(link.channel(), 0);
            link.set_awake(wake_ups::has_serving_loop());
        }
    }

    /// Removes an item from all lists, but not from the program's kernel set; with `everywhere` for all processes that
    /// share the set, otherwise for this one only.
    pub(super) fn remove(&'static self, state: &mut State, number: u32, everywhere: bool) {
        let Some(item) = state.items.get(number as usize).copied() else {
            return;
        };
        if !item.alive {
            return;
        }
        let inner = self.inner.load(Ordering::Acquire);
        if item.registered && inner >= 0 && everywhere {
            let _ = sys::epoll_control(inner, EPOLL_CTL_DEL, item.current_fd, 0, 0);
        }
        match item.word.kind() {
            Kind::Virtual => {
                Self::leave_cell(state, &item, number);
                state.watched.remove(number);
                state.unregistered.remove(number);
                state.member_left = true;
            }
            Kind::Listener => {
                state.listeners.remove(number);
                if let Some(listener) = socket::of_word(item.word).and_then(|s| s.listener()) {
                    listener.unwatch(self);
                    let is_member = |other: &u32| {
                        let other = state.items.get(*other as usize);
                        other.is_some_and(|other| other.word == item.word)
                    };
                    // Another number of the listener may be a member, too. The inner set is shared over fork: a parent
                    // still watches what its child closes.
                    if everywhere && !state.listeners.as_slice().iter().any(is_member) {
                        self.remove_channel(listener.channel());
                        for queue in listener.queues() {
                            self.remove_channel(queue);
                        }
                    }
                    if state.listeners.is_empty() {
                        listener.unwatch_later();
                    }
                }
            }
            Kind::Epoll => {
                state.nested.remove(number);
            }
            Kind::Fresh => self.forget_fresh(state, number),
            _ => {}
        }
        state.index.clear(item.fd, number);
        state.ready.remove(number);
        state.items[number as usize].alive = false;
        let shared = state.board.as_ref().and_then(|board| board.entry(number));
        match shared.filter(|_| item.life != 0) {
            Some(entry) if everywhere => entry.end(item.life),
            Some(_) => {}
            None => state.free.push(number),
        }
    }

    /// As [`Self::remove`], when the set itself ends.
    pub(super) fn remove_with_membership(&'static self, state: &mut State, number: u32) {
        let Some(item) = state.items.get(number as usize).copied() else {
            return;
        };
        if item.alive {
            // The members of other processes stay.
            self.remove(state, number, false);
        } else if !item.lingers {
            return;
        }
        self.forget_item(&item, number);
    }

    fn forget_item(&'static self, item: &Item, number: u32) {
        match item.word.kind() {
            Kind::Epoll => {
                if let Some(set) = item.set() {
                    set.leave_parent(Membership::new(self, number));
                }
            }
            _ => {
                if let Some(socket) = socket::of_word(item.word) {
                    self.forget_membership(&socket, number);
                }
            }
        }
    }

    pub(super) fn forget_membership(&'static self, socket: &Socket, number: u32) {
        if socket.has_memberships() {
            socket.with_memberships(|list| list.retain(|place| *place != self.membership(number)));
        }
    }
}

impl EpollSet {
    /// The membership of an item in this set.
    pub(super) const fn membership(&self, item: u32) -> socket::Membership {
        socket::Membership {
            set: self.index,
            item,
        }
    }
}

impl Membership {
    pub(super) const fn new(set: &'static EpollSet, item: u32) -> Self {
        Self { set, item }
    }

    pub(super) fn is(&self, set: &EpollSet, item: u32) -> bool {
        core::ptr::eq(self.set, set) && self.item == item
    }
}

impl Watcher for EpollSet {
    fn has_connection(&self) {
        self.jobs.store(true, Ordering::Release);
        self.wake();
    }

    fn add_channel(&self, fd: i32, exclusive: u32) {
        let inner = self.inner.load(Ordering::Acquire);
        let events = flag(EPOLLIN) | exclusive;
        let data = inner_data::CHANNEL << 32 | u64::try_from(fd).unwrap_or(0);
        let _ = sys::epoll_control(inner, EPOLL_CTL_ADD, fd, events, data);
    }

    // Edge-triggered, once for each connection: no process takes one because of this event.
    fn add_queue(&self, fd: i32, exclusive: u32) {
        if fd >= 0 {
            self.add_channel(fd, exclusive | flag(libc::EPOLLET));
        }
    }

    fn remove_channel(&self, fd: i32) {
        let inner = self.inner.load(Ordering::Acquire);
        let _ = sys::epoll_control(inner, libc::EPOLL_CTL_DEL, fd, 0, 0);
    }
}
