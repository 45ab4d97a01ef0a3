//! Sets that survive an exec, or that a spawned program inherits. The kernel keeps a set and its list of members, but does
//! not know virtual members. These are on the set's board, which survives together with the inner set: relatives that use
//! the set notice nothing.
//!
//! ```text
//!  before:  members --> board (a file) --+
//!           inner set -------------------+-- exec, named in the environment --> adopted by the next image
//! ```
//!
//! Where there is no descriptor for a board, each member is added to the kernel's set as the program asked for, and the
//! next image finds it there.

use core::sync::atomic::Ordering;
use std::fs;

use super::adoption::parse_member;
use super::board::Board;
use super::item::Item;
use super::shared::name_of;
use super::{
    EpollSet, Membership, NUMBER, OWN_DATA, State, all, flag, own_data, take_over, watching,
};
use crate::descriptors::attach;
use crate::descriptors::table::{self, Kind, Word};
use crate::ground::sys;
use crate::sockets::socket::{self, status};

fn survives_exec(fd: i32) -> bool {
    sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & libc::FD_CLOEXEC as usize == 0)
}

/// Before an exec: describes the sets for the next image, which reads it in [`adopt_inherited`].
pub fn prepare_exec() -> Option<String> {
    let mut description = String::new();
    for_each_surviving(|set| match set.describe_for_exec() {
        Some(words) => description.push_str(&words),
        // A set that relatives use, too, must not be changed.
        None if !set.shared.load(Ordering::Relaxed) => set.expose_members(true),
        None => {}
    });
    (!description.is_empty()).then(|| format!("{:x}{description}", own_data()))
}

/// The exec has failed.
pub fn undo_exec() {
    for_each_surviving(|set| {
        if !set.withdraw_from_exec() && !set.shared.load(Ordering::Relaxed) {
            set.expose_members(false);
        }
    });
}

/// Before another program starts as a child: it shares the sets that it inherits with this process, as a forked child
/// does.
pub fn prepare_start() -> Option<String> {
    let mut description = String::new();
    for set in all() {
        let fd = set.fd.load(Ordering::Relaxed);
        // Either process may add the first virtual member later: both must have the inner set.
        if set.is_open() && survives_exec(fd) && set.activate().is_ok() {
            description.extend(set.describe_for_exec());
            set.share_with_relatives();
        }
    }
    (!description.is_empty()).then(|| format!("{:x}{description}", own_data()))
}

/// The child has started, or could not be.
pub fn end_start() {
    for set in all().filter(|set| set.is_open() && set.is_active()) {
        set.withdraw_from_exec();
    }
}

fn for_each_surviving(mut each: impl FnMut(&'static EpollSet)) {
    for set in all() {
        let fd = set.fd.load(Ordering::Relaxed);
        if set.is_open() && set.is_active() && survives_exec(fd) {
            each(set);
        }
    }
}

fn set_survives_exec(own: [i32; 2], on: bool) {
    let flags = if on { 0 } else { sys::int(libc::FD_CLOEXEC) };
    for fd in own {
        let _ = sys::fcntl(fd, libc::F_SETFD, flags);
    }
}

impl EpollSet {
    /// Prepares the set for an exec. Returns its description; `None` where there is no board.
    fn describe_for_exec(&'static self) -> Option<String> {
        let mut state = self.state.lock()?;
        if state.board.is_none() {
            self.end_all_lingering(&mut state);
            let board = Board::in_file(state.items.len())?;
            self.share(&mut state, board);
        }
        let (file, room) = state.board.as_ref()?.file()?;
        self.register(&mut state);
        let fd = self.fd.load(Ordering::Relaxed);
        let inner = self.inner.load(Ordering::Acquire);
        let detached = u32::from(self.detached_inner().is_some());
        set_survives_exec([inner, file], true);
        Some(format!(";{fd},{inner},{file},{room},{detached}"))
    }

    /// Undoes the preparation. Whether there was one.
    fn withdraw_from_exec(&self) -> bool {
        let file = self
            .state
            .lock()
            .and_then(|state| state.board.as_ref()?.file());
        if let Some((file, _)) = file {
            let inner = self.inner.load(Ordering::Acquire);
            set_survives_exec([inner, file], false);
        }
        file.is_some()
    }

    /// With `plainly`, adds the members to the kernel's set as the program added them; otherwise restores the former
    /// state.
    fn expose_members(&'static self, plainly: bool) {
        let Some(state) = self.state.lock() else {
            return;
        };
        let outer = self.fd.load(Ordering::Relaxed);
        let inner = self.inner.load(Ordering::Acquire);
        let control = |operation, fd, events, data| {
            let _ = sys::epoll_control(outer, operation, fd, events, data);
        };
        let (add, delete) = (libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_DEL);
        control(delete, inner, 0, 0);
        if !plainly && self.detached_inner().is_none() {
            control(add, inner, flag(libc::EPOLLIN), own_data() | NUMBER);
        }
        for (number, item) in (0u32..).zip(state.items.iter()) {
            if !item.alive || item.native {
                continue;
            }
            // A number that is closed, or that the exec will close, can not be added to the kernel's set.
            let Some(known) = Self::surviving_number(&state, item) else {
                continue;
            };
            let events = if item.enabled {
                item.events
            } else {
                flag(libc::EPOLLONESHOT)
            };
            control(delete, item.fd, 0, 0);
            control(delete, known, 0, 0);
            if plainly {
                control(add, known, events, item.data);
            } else if item.word.kind() != Kind::Virtual {
                let data = own_data() | u64::from(number) & NUMBER;
                control(add, item.fd, events, data);
            }
        }
    }
}

impl EpollSet {
    /// The number under which a member is open after the exec: its own, or another one of the same socket which is no
    /// member itself.
    fn surviving_number(state: &State, item: &Item) -> Option<i32> {
        let own = (table::get(item.fd) == item.word).then_some(item.fd);
        let is_copied =
            || socket::of_word(item.word).is_some_and(|found| found.has(status::SHARED));
        if item.word.kind() != Kind::Virtual || !is_copied() || own.is_some_and(survives_exec) {
            return own;
        }
        let is_member = |fd| {
            let number = state.index.get(fd).unwrap_or(u32::MAX);
            let known = state.items.get(number as usize);
            known.is_some_and(|known| known.alive && known.word == item.word)
        };
        let fits =
            |fd, word| word == item.word && fd != item.fd && !is_member(fd) && survives_exec(fd);
        table::find_if(fits).or(own)
    }
}

fn is_set(fd: i32) -> bool {
    let name = fs::read_link(format!("/proc/self/fd/{fd}"));
    name.is_ok_and(|name| name.as_os_str() == "anon_inode:[eventpoll]")
}

/// At the start of an image: adopts inherited sets, described in `description` by the former image, and those of their
/// members that are virtual.
pub fn adopt_inherited(description: Option<&str>) {
    let mut words = description.unwrap_or_default().split(';');
    let own = words
        .next()
        .and_then(|own| u64::from_str_radix(own, 16).ok());
    let inherited: Vec<_> = words.filter_map(InheritedSet::read).collect();
    let inherited: Vec<_> = inherited.into_iter().map(InheritedSet::take).collect();
    for fd in sys::open_descriptors() {
        if table::get(fd) == Word::FOREIGN && is_set(fd) {
            super::opened(fd);
        }
    }
    if all().next().is_none() {
        return;
    }
    if let Some(own) = own {
        OWN_DATA.store(own, Ordering::Relaxed);
        inherited
            .into_iter()
            .for_each(|(one, board)| one.install(board));
    }
    let mut members = Vec::new();
    table::for_each(|fd, word| {
        if matches!(word.kind(), Kind::Virtual | Kind::Listener)
            && let Some(socket) = socket::of_word(word)
        {
            members.push((fd, socket));
        }
    });
    for (fd, socket) in members {
        if let Some(watched) = watching(fd) {
            take_over(fd, &socket, &watched);
        }
    }
}

/// A set as the former image described it.
struct InheritedSet {
    fd: i32,
    inner: i32,
    file: i32,
    room: usize,
    detached: bool,
}

impl InheritedSet {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(',');
        let mut number = || words.next()?.parse().ok();
        Some(Self {
            fd: number()?,
            inner: number()?,
            file: number()?,
            room: usize::try_from(number()?).ok()?,
            detached: number()? != 0,
        })
    }

    /// Opens its board, and marks the descriptors of the set as the library's.
    fn take(self) -> (Self, Option<Board>) {
        let board = Board::inherit(self.file, self.room);
        let own = [self.inner, self.file];
        own.iter().for_each(|fd| {
            table::set(*fd, Word::new(Kind::Internal, 0, 0));
        });
        set_survives_exec(own, false);
        (self, board)
    }

    /// The set. A program that was spawned may have it under another number.
    fn find(&self) -> Option<&'static EpollSet> {
        let has_inner = |set: &&'static EpollSet| {
            let fd = set.fd.load(Ordering::Relaxed);
            set.is_open() && kernel_events_of(fd, self.inner).is_some()
        };
        match super::of(self.fd) {
            Some(set) if self.detached || has_inner(&set) => Some(set),
            _ => all().find(has_inner),
        }
    }

    fn install(&self, board: Option<Board>) {
        let found = self.find().filter(|_| is_set(self.inner));
        let (Some(set), Some(board)) = (found, board) else {
            return [self.inner, self.file]
                .into_iter()
                .for_each(attach::close_internal);
        };
        set.inner.store(self.inner, Ordering::Release);
        set.detached.store(self.detached, Ordering::Release);
        set.shared.store(true, Ordering::Relaxed);
        set.active.store(true, Ordering::SeqCst);
        let known = members_in_kernel(set.fd.load(Ordering::Relaxed));
        let Some(mut state) = set.state.lock() else {
            return;
        };
        // None of its members was looked at.
        state.added = board.added().wrapping_sub(1);
        state.board = Some(board);
        set.adopt_added(&mut state);
        for (fd, number) in known {
            set.adopt_known(&mut state, fd, number);
        }
    }
}

/// The events that the kernel watches for at `fd` in a set.
pub(super) fn kernel_events_of(set: i32, fd: i32) -> Option<u32> {
    let listed = fs::read_to_string(format!("/proc/self/fdinfo/{set}")).unwrap_or_default();
    let mut all = listed.lines().filter_map(parse_member);
    all.find_map(|(member, event)| (member == fd).then_some(event.events))
}

/// The members of a set that the kernel reports under data words of the library: descriptors and numbers.
fn members_in_kernel(set: i32) -> Vec<(i32, u32)> {
    let listed = fs::read_to_string(format!("/proc/self/fdinfo/{set}")).unwrap_or_default();
    let ours = |line| {
        let (fd, event) = parse_member(line)?;
        let number = event.u64 & NUMBER;
        (event.u64 & !NUMBER == own_data() && number != NUMBER).then_some((fd, number as u32))
    };
    listed.lines().filter_map(ours).collect()
}

impl EpollSet {
    /// Adopts a listener or a set, which the kernel has as a member under `fd`.
    fn adopt_known(&'static self, state: &mut State, fd: i32, number: u32) {
        let word = table::get(fd);
        let Some(board) = &state.board else { return };
        let Some(entry) = board.entry(number) else {
            return;
        };
        let Some(life) = entry.life() else { return };
        let kind = Word(entry.name().socket).kind();
        if word.kind() != kind || !matches!(kind, Kind::Listener | Kind::Epoll) {
            return;
        }
        // In this image its name is another one.
        entry.set_name(name_of(board, word), fd);
        let change = entry.last_change();
        let events = entry.events.load(Ordering::Relaxed);
        let item = Item {
            enabled: !entry.is_spent(change),
            life,
            change,
            ..Item::new(fd, word, events, entry.data.load(Ordering::Relaxed))
        };
        while state.items.len() <= number as usize {
            state.items.push(Item::unused());
        }
        if let Some(place) = state.items.get_mut(number as usize) {
            *place = item;
        }
        state.index.set(fd, number);
        self.insert_known(state, &item, number);
        match item.set() {
            Some(member) => member.join_parent(Membership::new(self, number)),
            None => {
                if let Some(socket) = socket::of_word(word) {
                    socket.with_memberships(|list| list.push(self.membership(number)));
                }
            }
        }
    }
}
