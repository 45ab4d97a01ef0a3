//! Event loops. The program's epoll descriptor stays a real one; virtual sockets are members of it
//! in user space, and of an inner epoll set that is itself a member of the program's.
//!
//! ```text
//!  program's set (kernel) --+-- ordinary descriptors
//!                           +-- inner set --+-- anchors, registered before the first sleep
//!                                           +-- link channels, accept channels of listeners
//! ```
//!
//! News arrives as a bit in the ready map of a cell; while the loop sleeps, also as a token on an
//! anchor, which makes the inner set readable. The kernel's event for the inner set is never shown
//! to the program, so no event is reported by both paths.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

use libc::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP, c_int};
use netchannel_abi::link::{side_flags, waiter as bits};
use netchannel_ring::cell;

use crate::lane::Lane;
use crate::link::LinkEnd;
use crate::lock::{Guard, Lock};
use crate::socket::{self, Socket, status};
use crate::table::{self, Kind, Word};
use crate::{attach, cancel, clock, listener, real, sys, wait};

/// A set in which a socket is a member, and under which descriptor.
#[derive(Clone, Copy)]
pub struct Membership {
    set: &'static EpollSet,
    fd: i32,
}

/// One epoll set of the program.
pub struct EpollSet {
    index: u32,
    fd: AtomicI32,
    inner: AtomicI32,
    /// Whether any virtual socket or listener was ever a member.
    active: AtomicBool,
    /// When the kernel was last looked at.
    looked: AtomicU64,
    state: Lock<State>,
}

#[derive(Clone, Copy)]
struct Item {
    fd: i32,
    word: Word,
    events: u32,
    data: u64,
    alive: bool,
    enabled: bool,
    queued: bool,
    registered: bool,
    /// The kernel itself reports the socket; kept because it may still turn virtual.
    native: bool,
    cell: Option<usize>,
    /// What an edge-triggered socket without a cell last showed.
    shown: u64,
}

struct CellUse {
    link: &'static LinkEnd,
    cell: usize,
    /// Item plus one, by slot.
    items: Vec<u32>,
    members: usize,
}

#[derive(Default)]
struct State {
    items: Vec<Item>,
    free: Vec<u32>,
    ready: std::collections::VecDeque<u32>,
    cells: Vec<CellUse>,
    /// Items that are woken one by one, because they have no cell.
    single: Vec<u32>,
    unregistered: Vec<u32>,
    listeners: Vec<u32>,
    links: Vec<&'static LinkEnd>,
    sleepers: usize,
    kick: i32,
}

const SETS: usize = 8192;
static TABLE: [AtomicPtr<EpollSet>; SETS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; SETS];
static UNUSED: Lock<Vec<u32>> = Lock::new(Vec::new());
static NEXT: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

/// What the inner set's data words name.
const ITEM: u64 = 0;
const CHANNEL: u64 = 1;
const KICK: u64 = 2;

/// How long the kernel's descriptors may wait while virtual ones keep the loop busy.
const FAIR: u64 = 50 * clock::MICROSECOND;

/// A new set of the program becomes known.
pub fn opened(fd: i32) {
    if attach::current().is_none() && attach::ensure().is_none() {
        return;
    }
    let reused = UNUSED.lock().and_then(|mut unused| unused.pop());
    let index = reused.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
    let Some(place) = TABLE.get(index as usize) else {
        return;
    };
    if place.load(Ordering::Acquire).is_null() {
        let set = EpollSet {
            index,
            fd: AtomicI32::new(fd),
            inner: AtomicI32::new(-1),
            active: AtomicBool::new(false),
            looked: AtomicU64::new(0),
            state: Lock::new(State {
                kick: -1,
                ..State::default()
            }),
        };
        place.store(Box::into_raw(Box::new(set)), Ordering::Release);
    }
    if let Some(set) = by_index(index as usize) {
        set.fd.store(fd, Ordering::Relaxed);
    }
    table::set(fd, Word::new(Kind::Epoll, index, 0));
}

fn by_index(index: usize) -> Option<&'static EpollSet> {
    // SAFETY: sets are leaked boxes, never freed.
    unsafe { TABLE.get(index)?.load(Ordering::Acquire).as_ref() }
}

/// The set behind a descriptor.
#[inline]
pub fn of(fd: i32) -> Option<&'static EpollSet> {
    let word = table::get(fd);
    if word.kind() == Kind::Epoll {
        by_index(word.index())
    } else {
        None
    }
}

/// The last descriptor of a set was closed.
pub fn closed(fd: i32, word: Word) {
    table::change(fd, word, Word::FOREIGN);
    let mut elsewhere = false;
    table::for_each(|_, other| elsewhere |= other == word);
    let Some(set) = by_index(word.index()) else {
        return;
    };
    if elsewhere {
        return;
    }
    if let Some(mut state) = set.state.lock() {
        for index in 0..state.items.len() {
            set.remove(&mut state, index);
        }
        *state = State {
            kick: state.kick,
            ..State::default()
        };
        attach::drop_kept(core::mem::replace(&mut state.kick, -1));
    }
    attach::drop_kept(set.inner.swap(-1, Ordering::AcqRel));
    set.active.store(false, Ordering::Release);
    if let Some(mut unused) = UNUSED.lock() {
        unused.push(set.index);
    }
}

/// What a virtual socket has to report.
pub fn readiness(lane: &Lane) -> u32 {
    let flags = lane.peer_flags();
    let seen = lane.socket.entry.status.load(Ordering::Relaxed);
    let mut mask = 0;
    if lane.is_readable() {
        mask |= EPOLLIN | libc::EPOLLRDNORM;
    }
    if lane.is_writable() {
        mask |= EPOLLOUT | libc::EPOLLWRNORM;
    }
    let reset = flags & side_flags::RESET != 0;
    let gone = seen & status::PEER_GONE != 0;
    let ended = flags & side_flags::FIN != 0 || reset || gone;
    if ended || seen & status::SHUT_READ != 0 {
        mask |= EPOLLRDHUP;
    }
    let shut = seen & status::SHUT_WRITE != 0;
    let met_closed = seen & (status::WRITE_MET_CLOSED | status::RESET) == status::WRITE_MET_CLOSED;
    let torn = reset || met_closed || seen & (status::RESET | status::FAULT) != 0;
    if torn || shut && (ended || seen & status::SHUT_READ != 0) {
        mask |= EPOLLHUP;
    }
    if reset && seen & status::RESET == 0
        || met_closed
        || gone && seen & status::RESET == 0 && lane.ended_by_reset()
    {
        mask |= EPOLLERR | EPOLLHUP;
    }
    u32::try_from(mask).unwrap_or(0)
}

const fn flag(value: c_int) -> u32 {
    value.cast_unsigned()
}

impl EpollSet {
    fn lock(&self) -> Result<Guard<'_, State>, i32> {
        self.state.lock().ok_or(libc::EAGAIN)
    }

    /// Whether virtual sockets are or were members.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// Whether a wait would report something virtual.
    pub fn has_events(&self) -> bool {
        let Some(state) = self.state.lock() else {
            return false;
        };
        state
            .ready
            .iter()
            .chain(&state.single)
            .chain(&state.listeners)
            .any(|index| Self::would_report(&state, *index))
            || state.cells.iter().any(|used| {
                used.link
                    .cell(used.link.role, used.cell)
                    .is_some_and(|shared| cell::any(&shared.summary))
            })
    }

    /// Somebody is about to sleep on the set's descriptor with poll or another set.
    pub fn arm_for_others(&self) {
        if self.arm()
            && let Some(mut state) = self.state.lock()
        {
            state.sleepers += 1;
        }
    }

    /// No longer.
    pub fn disarm_for_others(&self) {
        self.disarm();
        self.take_inner();
    }

    /// A word that no program uses as data: the inner set's own.
    fn marker(&self) -> u64 {
        (core::ptr::from_ref(self).addr() as u64) ^ 0x4e43_0000_0000_a5a5
    }

    fn activate(&self) -> Result<(), i32> {
        if self.inner.load(Ordering::Acquire) < 0 {
            let inner = attach::keep(sys::epoll_create()?);
            let set = self.fd.load(Ordering::Relaxed);
            sys::epoll_control(
                set,
                libc::EPOLL_CTL_ADD,
                inner,
                flag(EPOLLIN),
                self.marker(),
            )?;
            self.inner.store(inner, Ordering::Release);
        }
        self.active.store(true, Ordering::Release);
        Ok(())
    }

    /// `epoll_ctl` for a socket of ours.
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
        let native = socket.word.kind() == Kind::Kernel;
        let mut state = self.lock()?;
        let found = state
            .items
            .iter()
            .position(|item| item.alive && item.fd == fd);
        match operation {
            libc::EPOLL_CTL_ADD => {
                let event = event.ok_or(libc::EFAULT)?;
                if found.is_some() {
                    return Err(libc::EEXIST);
                }
                if !native {
                    self.activate()?;
                }
                self.insert(&mut state, fd, socket, event.events, event.u64, native);
            }
            libc::EPOLL_CTL_MOD => {
                let event = event.ok_or(libc::EFAULT)?;
                let index = found.ok_or(libc::ENOENT)?;
                let item = &mut state.items[index];
                if item.events & flag(libc::EPOLLEXCLUSIVE) != 0
                    || event.events & flag(libc::EPOLLEXCLUSIVE) != 0
                {
                    return Err(libc::EINVAL);
                }
                item.events = event.events;
                item.data = event.u64;
                item.enabled = true;
                if !item.native {
                    Self::queue(&mut state, index);
                }
            }
            libc::EPOLL_CTL_DEL => {
                let index = found.ok_or(libc::ENOENT)?;
                self.remove(&mut state, index);
                drop(state);
                socket.with_memberships(|list| {
                    list.retain(|m| !(core::ptr::eq(m.set, self) && m.fd == fd));
                });
                return Ok(());
            }
            _ => return Err(libc::EINVAL),
        }
        let kick = state.sleepers > 0;
        if kick {
            self.kick(&mut state);
        }
        drop(state);
        if operation == libc::EPOLL_CTL_ADD {
            socket.with_memberships(|list| list.push(Membership { set: self, fd }));
        }
        Ok(())
    }

    fn insert(
        &self,
        state: &mut State,
        fd: i32,
        socket: &Socket,
        events: u32,
        data: u64,
        native: bool,
    ) {
        let mut item = Item {
            fd,
            word: socket.word,
            events,
            data,
            alive: true,
            enabled: true,
            queued: false,
            registered: false,
            native,
            cell: None,
            shown: 0,
        };
        let index = match state.free.pop() {
            Some(index) => index as usize,
            None => {
                state.items.push(item);
                state.items.len() - 1
            }
        };
        let number = u32::try_from(index).unwrap_or(0);
        match socket.word.kind() {
            Kind::Virtual => {
                if let Some(lane) = Lane::of(*socket, fd) {
                    item.cell = Self::join_cell(state, &lane, number);
                }
                state.items[index] = item;
                if item.cell.is_none() {
                    state.single.push(number);
                }
                state.unregistered.push(number);
                Self::queue(state, index);
            }
            Kind::Listener => {
                state.items[index] = item;
                state.listeners.push(number);
                if let Some(listener) = socket.listener() {
                    let exclusive = events & flag(libc::EPOLLEXCLUSIVE);
                    self.add_channel(listener.channel, exclusive);
                }
                for link in listener::server_links() {
                    self.add_link_locked(state, link);
                }
                Self::queue(state, index);
            }
            _ => state.items[index] = item,
        }
    }

    fn add_channel(&self, fd: i32, exclusive: u32) {
        let inner = self.inner.load(Ordering::Acquire);
        let events = flag(EPOLLIN) | exclusive;
        let data = CHANNEL << 32 | u64::try_from(fd).unwrap_or(0);
        let _ = sys::epoll_control(inner, libc::EPOLL_CTL_ADD, fd, events, data);
    }

    fn add_link_locked(&self, state: &mut State, link: &'static LinkEnd) {
        if link.is_alive() && !state.links.iter().any(|known| core::ptr::eq(*known, link)) {
            state.links.push(link);
            self.add_channel(link.channel, 0);
            link.awake(true);
        }
    }

    /// Takes a place in a cell, so that the loop sleeps for all its sockets with one word.
    fn join_cell(state: &mut State, lane: &Lane, item: u32) -> Option<usize> {
        let link = lane.link;
        let taken = lane.own().waiter.load(Ordering::Relaxed) & bits::CELL_MASK != 0;
        if !link.is_own() || taken {
            return None;
        }
        let known = state
            .cells
            .iter()
            .position(|cell| core::ptr::eq(cell.link, link));
        let index = match known {
            Some(index) => index,
            None => {
                let cell = link.reserve_cell()?;
                let shared = link.cell(link.role, cell)?;
                cell::wake(&shared.asleep);
                cell::take(&shared.summary, &shared.ready, |_| {});
                state.cells.push(CellUse {
                    link,
                    cell,
                    items: Vec::new(),
                    members: 0,
                });
                state.cells.len() - 1
            }
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

    fn remove(&self, state: &mut State, index: usize) {
        let Some(item) = state.items.get(index).copied() else {
            return;
        };
        if !item.alive {
            return;
        }
        let number = u32::try_from(index).unwrap_or(0);
        let inner = self.inner.load(Ordering::Acquire);
        if item.registered {
            let _ = sys::epoll_control(inner, libc::EPOLL_CTL_DEL, item.fd, 0, 0);
        }
        if let Some(found) = socket::of_word(item.word) {
            if let (Some(lane), Some(cell)) = (
                Lane::of(found, item.fd),
                item.cell.and_then(|cell| state.cells.get_mut(cell)),
            ) {
                if found.is(item.fd) {
                    lane.attach_cell(None);
                }
                if let Some(place) = cell.items.get_mut(lane.handle().index as usize)
                    && *place == number + 1
                {
                    *place = 0;
                    cell.members -= 1;
                }
            }
            if let Some(listener) = found.listener()
                && state.listeners.contains(&number)
            {
                let _ = sys::epoll_control(inner, libc::EPOLL_CTL_DEL, listener.channel, 0, 0);
            }
        }
        state.single.retain(|other| *other != number);
        state.unregistered.retain(|other| *other != number);
        state.listeners.retain(|other| *other != number);
        if item.queued {
            state.ready.retain(|other| *other != number);
        }
        state.items[index].alive = false;
        state.free.push(number);
    }

    fn queue(state: &mut State, index: usize) {
        let Some(item) = state.items.get_mut(index) else {
            return;
        };
        if item.alive && !item.queued {
            item.queued = true;
            if let Ok(number) = u32::try_from(index) {
                state.ready.push_back(number);
            }
        }
    }

    /// Wakes the threads that sleep in the set.
    fn kick(&self, state: &mut State) {
        if state.kick < 0 {
            // SAFETY: no pointers.
            let made = unsafe {
                let flags = sys::int(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
                sys::raw(libc::SYS_eventfd2, [0, flags, 0, 0, 0, 0])
            };
            let Some(made) = made.ok().and_then(|fd| i32::try_from(fd).ok()) else {
                return;
            };
            state.kick = attach::keep(made);
            let inner = self.inner.load(Ordering::Acquire);
            let data = KICK << 32;
            let fd = state.kick;
            let _ = sys::epoll_control(inner, libc::EPOLL_CTL_ADD, fd, flag(EPOLLIN), data);
        }
        let one = 1u64.to_ne_bytes();
        let fd = sys::int(state.kick);
        // SAFETY: eight bytes of ours.
        let _ = unsafe { sys::raw(libc::SYS_write, [fd, one.as_ptr().addr(), 8, 0, 0, 0]) };
    }

    /// Whether anything is there. Only looks; spun upon.
    fn peek(&self) -> bool {
        let Some(state) = self.state.lock() else {
            return true;
        };
        state.cells.iter().any(|cell| {
            cell.link
                .cell(cell.link.role, cell.cell)
                .is_some_and(|shared| cell::any(&shared.summary))
        }) || !state.listeners.is_empty() && state.links.iter().any(|link| link.has_jobs())
            || state.single.len() <= 64
                && state
                    .single
                    .iter()
                    .any(|index| Self::would_report(&state, *index))
    }

    fn would_report(state: &State, index: u32) -> bool {
        state.items.get(index as usize).is_some_and(|item| {
            item.alive
                && item.enabled
                && !item.native
                && Self::mask(item) != 0
                && (item.events & flag(EPOLLET) == 0 || Self::signature(item) != item.shown)
        })
    }

    /// Changes whenever an edge is due: more bytes came, an end, a reset, room.
    fn signature(item: &Item) -> u64 {
        socket::of_word(item.word)
            .and_then(|found| Lane::of(found, item.fd))
            .map_or(0, |lane| lane.arrived() << 16 | u64::from(readiness(&lane)))
    }

    fn mask(item: &Item) -> u32 {
        let Some(found) = socket::of_word(item.word) else {
            return 0;
        };
        let always = flag(EPOLLERR | EPOLLHUP);
        match item.word.kind() {
            Kind::Virtual if found.is(item.fd) => {
                Lane::of(found, item.fd).map_or(0, |lane| readiness(&lane) & (item.events | always))
            }
            Kind::Listener => {
                let pending = found
                    .listener()
                    .is_some_and(|listener| listener.has_pending());
                if pending {
                    flag(EPOLLIN | libc::EPOLLRDNORM) & item.events
                } else {
                    0
                }
            }
            _ => 0,
        }
    }

    /// Gathers ready sockets into `out`.
    fn collect(&self, out: &mut [libc::epoll_event]) -> usize {
        let Some(mut state) = self.state.lock() else {
            return 0;
        };
        let state = &mut *state;
        for index in 0..state.cells.len() {
            let Some(used) = state.cells.get(index) else {
                break;
            };
            let Some(shared) = used.link.cell(used.link.role, used.cell) else {
                continue;
            };
            if !cell::any(&shared.summary) {
                continue;
            }
            let State {
                cells,
                items,
                ready,
                ..
            } = state;
            let used = &cells[index];
            cell::take(&shared.summary, &shared.ready, |slot| {
                let number = used.items.get(slot).copied().unwrap_or(0);
                if let Some(item) = (number as usize)
                    .checked_sub(1)
                    .and_then(|i| items.get_mut(i))
                    && item.alive
                    && !item.queued
                {
                    item.queued = true;
                    ready.push_back(number - 1);
                }
            });
        }
        if !state.listeners.is_empty() && state.links.iter().any(|link| link.has_jobs()) {
            listener::poll_jobs();
            for index in 0..state.listeners.len() {
                let number = state.listeners[index];
                Self::queue(state, number as usize);
            }
        }
        for index in 0..state.single.len() {
            let number = state.single[index];
            if Self::would_report(state, number) {
                if let Some(item) = state.items.get_mut(number as usize) {
                    item.shown = Self::signature(item);
                }
                Self::queue(state, number as usize);
            }
        }
        Self::report(state, out)
    }

    fn report(state: &mut State, out: &mut [libc::epoll_event]) -> usize {
        let mut count = 0;
        for _ in 0..state.ready.len() {
            if count == out.len() {
                break;
            }
            let Some(number) = state.ready.pop_front() else {
                break;
            };
            let Some(item) = state.items.get_mut(number as usize) else {
                continue;
            };
            item.queued = false;
            if !item.alive || !item.enabled || item.native {
                continue;
            }
            let mut mask = Self::mask(item);
            if mask & flag(EPOLLOUT) == 0
                && item.events & flag(EPOLLOUT) != 0
                && item.word.kind() == Kind::Virtual
                && let Some(found) = socket::of_word(item.word)
                && found.is(item.fd)
                && let Some(lane) = Lane::of(found, item.fd)
                && lane.want_space()
            {
                mask |= flag(EPOLLOUT);
            }
            if mask == 0 {
                continue;
            }
            out[count] = libc::epoll_event {
                events: mask,
                u64: item.data,
            };
            count += 1;
            if item.events & flag(EPOLLONESHOT) != 0 {
                item.enabled = false;
            } else if item.events & flag(EPOLLET) == 0 {
                item.queued = true;
                state.ready.push_back(number);
            }
        }
        count
    }

    /// Prepares to sleep. True when something came meanwhile, and the caller must not sleep.
    fn arm(&self) -> bool {
        let Some(mut guard) = self.state.lock() else {
            return true;
        };
        let state = &mut *guard;
        let inner = self.inner.load(Ordering::Acquire);
        while let Some(number) = state.unregistered.pop() {
            if let Some(item) = state.items.get_mut(number as usize)
                && item.alive
            {
                let data = ITEM << 32 | u64::from(number);
                let events = flag(EPOLLIN | EPOLLRDHUP);
                item.registered =
                    sys::epoll_control(inner, libc::EPOLL_CTL_ADD, item.fd, events, data).is_ok();
            }
        }
        for used in &state.cells {
            if let Some(shared) = used.link.cell(used.link.role, used.cell)
                && shared.asleep.load(Ordering::Relaxed) == 0
            {
                cell::sleep(&shared.asleep);
            }
        }
        if !state.listeners.is_empty() {
            for link in &state.links {
                if link.is_alive() && !link.is_listening() {
                    link.listen_for_jobs();
                }
            }
        }
        for number in &state.single {
            if let Some(item) = state.items.get(*number as usize)
                && let Some(found) = socket::of_word(item.word)
                && let Some(lane) = Lane::of(found, item.fd)
            {
                let out = item.events & flag(EPOLLOUT) != 0;
                lane.arm(if out {
                    bits::DATA | bits::SPACE
                } else {
                    bits::DATA
                });
            }
        }
        state.sleepers += 1;
        drop(guard);
        if self.peek() {
            self.disarm();
            return true;
        }
        false
    }

    fn disarm(&self) {
        let Some(mut state) = self.state.lock() else {
            return;
        };
        state.sleepers = state.sleepers.saturating_sub(1);
        if state.sleepers == 0 {
            for link in &state.links {
                link.awake(true);
            }
        } else {
            // Others still sleep: they must be woken for the next one.
            for used in &state.cells {
                if let Some(shared) = used.link.cell(used.link.role, used.cell) {
                    cell::sleep(&shared.asleep);
                }
            }
        }
    }

    /// Takes what the inner set has: tokens, doorbells, offers. Queues the sockets concerned.
    fn take_inner(&self) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let inner = self.inner.load(Ordering::Acquire);
        let Ok(count) = sys::epoll_take(inner, &mut events) else {
            return;
        };
        for event in events.iter().take(count) {
            let (kind, number) = (event.u64 >> 32, event.u64 & 0xffff_ffff);
            match kind {
                ITEM => self.take_token(usize::try_from(number).unwrap_or(usize::MAX)),
                CHANNEL => self.take_channel(i32::try_from(number).unwrap_or(-1)),
                _ => {
                    if let Some(state) = self.state.lock() {
                        let mut eight = [0; 8];
                        let fd = sys::int(state.kick);
                        let pointer = eight.as_mut_ptr().addr();
                        // SAFETY: eight bytes of ours.
                        let _ = unsafe { sys::raw(libc::SYS_read, [fd, pointer, 8, 0, 0, 0]) };
                    }
                }
            }
        }
    }

    fn take_token(&self, index: usize) {
        let Some(mut state) = self.state.lock() else {
            return;
        };
        let Some(item) = state.items.get(index).copied() else {
            return;
        };
        let Some(found) = socket::of_word(item.word) else {
            return;
        };
        if !item.alive || !found.is(item.fd) {
            return;
        }
        if let Some(lane) = Lane::of(found, item.fd) {
            lane.take_tokens();
            if found.has(status::PEER_GONE | status::SHUT_READ) {
                // The anchor stays readable from now on: the state speaks for it.
                let inner = self.inner.load(Ordering::Acquire);
                let _ = sys::epoll_control(inner, libc::EPOLL_CTL_DEL, item.fd, 0, 0);
                state.items[index].registered = false;
            }
        }
        Self::queue(&mut state, index);
    }

    fn take_channel(&self, fd: i32) {
        let (mut offers, mut link) = (None, None);
        if let Some(state) = self.state.lock() {
            link = state.links.iter().copied().find(|link| link.channel == fd);
            offers = state
                .listeners
                .iter()
                .filter_map(|number| state.items.get(*number as usize))
                .filter_map(|item| socket::of_word(item.word)?.listener())
                .find(|listener| listener.channel == fd);
        }
        if let Some(listener) = offers {
            listener.take_offers();
        } else if let Some(link) = link {
            link.read_channel();
            if !link.is_alive()
                && let Some(mut state) = self.state.lock()
            {
                state.links.retain(|known| !core::ptr::eq(*known, link));
            }
        }
        if let Some(mut state) = self.state.lock() {
            for index in 0..state.listeners.len() {
                let number = state.listeners[index];
                Self::queue(&mut state, number as usize);
            }
        }
    }

    /// Removes the inner set's event from what the kernel reported and serves it. Returns what is
    /// left.
    fn sift(&self, events: &mut [libc::epoll_event], count: usize) -> usize {
        let marker = self.marker();
        let Some(at) = events
            .iter()
            .take(count)
            .position(|event| event.u64 == marker)
        else {
            return count;
        };
        events.copy_within(at + 1..count, at);
        self.take_inner();
        count - 1
    }

    /// `epoll_pwait` in all its forms; `timeout` in nanoseconds, negative for ever.
    ///
    /// # Errors
    /// As `epoll_wait`.
    pub fn wait(
        &self,
        out: &mut [libc::epoll_event],
        timeout: i64,
        mask: *const libc::sigset_t,
    ) -> Result<usize, i32> {
        let fd = self.fd.load(Ordering::Relaxed);
        let start = if timeout > 0 { clock::nanoseconds() } else { 0 };
        let mut patient = true;
        cancel::point();
        loop {
            if !self.active.load(Ordering::Acquire) {
                let count = kernel_wait(fd, out, timeout, mask)?;
                let left = self.sift(out, count);
                if left > 0 || count == 0 {
                    return Ok(left);
                }
                continue;
            }
            let count = self.collect(out);
            if count > 0 {
                return Ok(self.add_kernel(fd, out, count));
            }
            let seen = kernel_wait(fd, out, 0, core::ptr::null())?;
            self.looked.store(clock::now(), Ordering::Relaxed);
            let left = self.sift(out, seen);
            if left > 0 {
                return Ok(left);
            }
            if seen > 0 {
                let count = self.collect(out);
                if count > 0 {
                    return Ok(count);
                }
            }
            if timeout == 0 {
                return Ok(0);
            }
            if patient && wait::spin(|| self.peek()) {
                continue;
            }
            let left = remaining(timeout, start);
            if left == 0 {
                return Ok(0);
            }
            if self.arm() {
                patient = true;
                continue;
            }
            let began = clock::now();
            let slept = cancel::guarded(|| self.disarm(), || kernel_wait(fd, out, left, mask));
            wait::learn(began);
            self.disarm();
            let count = slept?;
            let left = self.sift(out, count);
            if left > 0 {
                return Ok(left);
            }
            patient = count > 0;
        }
    }

    /// Adds what the kernel's descriptors have to virtual events, every now and then.
    fn add_kernel(&self, fd: i32, out: &mut [libc::epoll_event], count: usize) -> usize {
        let now = clock::now();
        if count == out.len() || now.wrapping_sub(self.looked.load(Ordering::Relaxed)) < FAIR {
            return count;
        }
        self.looked.store(now, Ordering::Relaxed);
        let (virtual_events, rest) = out.split_at_mut(count);
        let Ok(seen) = kernel_wait(fd, rest, 0, core::ptr::null()) else {
            return count;
        };
        let left = self.sift(rest, seen);
        // A listener may be ready by both paths; it is reported once.
        let mut kept = 0;
        for index in 0..left {
            let event = rest[index];
            if !virtual_events
                .iter()
                .any(|other| { other.u64 } == { event.u64 })
            {
                rest[kept] = event;
                kept += 1;
            }
        }
        count + kept
    }
}

/// What is left of a timeout that began at `start`.
pub fn remaining(timeout: i64, start: u64) -> i64 {
    if timeout < 0 {
        return -1;
    }
    let spent = i64::try_from(clock::nanoseconds().saturating_sub(start)).unwrap_or(i64::MAX);
    timeout.saturating_sub(spent).max(0)
}

fn kernel_wait(
    fd: i32,
    out: &mut [libc::epoll_event],
    timeout: i64,
    mask: *const libc::sigset_t,
) -> Result<usize, i32> {
    let most = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
    let pointer = out.as_mut_ptr();
    if timeout == 0 {
        return sys::epoll_take(fd, out);
    }
    // Whole milliseconds go through epoll_pwait, which every kernel has.
    // SAFETY: the slice is the caller's; the mask is null or the caller's valid set.
    let got = unsafe {
        if timeout < 0 {
            real::epoll_pwait(fd, pointer, most, -1, mask)
        } else if timeout % 1_000_000 == 0 {
            let milliseconds = c_int::try_from(timeout / 1_000_000).unwrap_or(c_int::MAX);
            real::epoll_pwait(fd, pointer, most, milliseconds, mask)
        } else {
            let time = libc::timespec {
                tv_sec: timeout / 1_000_000_000,
                tv_nsec: timeout % 1_000_000_000,
            };
            real::epoll_pwait2(fd, pointer, most, &raw const time, mask)
        }
    };
    usize::try_from(got).map_err(|_| real::errno())
}

/// Before the file behind `fd` changes: the kernel forgets the old one.
fn for_sets(socket: &Socket, mut each: impl FnMut(Membership)) {
    if !socket.has_memberships() {
        return;
    }
    let list = socket
        .with_memberships(|list| list.clone())
        .unwrap_or_default();
    list.into_iter().for_each(&mut each);
}

/// The kernel's own registrations of `fd` go before its file is replaced.
pub fn before_replace(fd: i32, socket: &Socket) {
    for_sets(socket, |membership| {
        if membership.fd == fd {
            let set = membership.set.fd.load(Ordering::Relaxed);
            let _ = sys::epoll_control(set, libc::EPOLL_CTL_DEL, fd, 0, 0);
        }
    });
}

/// The socket under `fd` is another kind now: its sets treat it accordingly.
pub fn replaced(fd: i32, socket: &Socket) {
    for_sets(socket, |membership| {
        let set = membership.set;
        let Ok(mut state) = set.lock() else { return };
        let found = state
            .items
            .iter()
            .position(|item| item.alive && item.fd == membership.fd);
        let Some(index) = found.filter(|_| membership.fd == fd) else {
            return;
        };
        let item = state.items[index];
        set.remove(&mut state, index);
        if set.activate().is_ok() {
            let native = socket.word.kind() == Kind::Kernel;
            set.insert(&mut state, fd, socket, item.events, item.data, native);
            if state.sleepers > 0 {
                set.kick(&mut state);
            }
        }
    });
}

/// The program itself has changed the socket's state: its sets look at it again.
pub fn changed(socket: &Socket) {
    for_sets(socket, |membership| {
        let Ok(mut state) = membership.set.lock() else {
            return;
        };
        let found = state
            .items
            .iter()
            .position(|item| item.alive && item.fd == membership.fd);
        if let Some(index) = found {
            EpollSet::queue(&mut state, index);
            if state.sleepers > 0 {
                membership.set.kick(&mut state);
            }
        }
    });
}

/// A descriptor of the socket is closed: sets forget it with the last one.
pub fn forget(fd: i32, socket: &Socket) {
    if !socket.has_memberships() {
        return;
    }
    let mut other = -1;
    if socket.entry.references.load(Ordering::Acquire) > 1 {
        table::for_each(|fd, word| {
            if word == socket.word {
                other = fd;
            }
        });
    }
    for_sets(socket, |membership| {
        if membership.fd != fd {
            return;
        }
        let Ok(mut state) = membership.set.lock() else {
            return;
        };
        let found = state
            .items
            .iter()
            .position(|item| item.alive && item.fd == fd);
        let Some(index) = found else { return };
        if other >= 0 {
            state.items[index].fd = other;
        } else {
            membership.set.remove(&mut state, index);
        }
    });
    socket.with_memberships(|list| {
        if other >= 0 {
            list.iter_mut()
                .filter(|m| m.fd == fd)
                .for_each(|m| m.fd = other);
        } else {
            list.retain(|m| m.fd != fd);
        }
    });
}

/// A link came up: every loop with a listener watches it.
pub fn add_link(link: &'static LinkEnd) {
    let count = NEXT.load(Ordering::Relaxed) as usize;
    for set in (0..count.min(SETS)).filter_map(by_index) {
        if let Some(mut state) = set.state.lock()
            && !state.listeners.is_empty()
        {
            set.add_link_locked(&mut state, link);
        }
    }
}

/// In a forked child no other thread holds a set.
pub fn reset_in_child() {
    UNUSED.reset();
    let count = NEXT.load(Ordering::Relaxed) as usize;
    for set in (0..count.min(SETS)).filter_map(by_index) {
        set.state.reset();
    }
}
