//! Sets that go with an exec. The kernel keeps a set and the list of its members over it, and of virtual members it knows nothing. They
//! stand on the set's board, which goes along with the inner set: relatives that have the set notice nothing.
//!
//! ```text
//!  before:  members --> board (a file) --+
//!           inner set -------------------+-- exec, told in the environment --> taken up by the next image
//! ```
//!
//! Where there is no number for a board, each member is told to the kernel as the program told it, and the next image finds it there.

use core::sync::atomic::Ordering;
use std::fs;

use super::adoption::any_member;
use super::board::Board;
use super::item::Item;
use super::shared::named;
use super::{
    EpollSet, Membership, NUMBER, OWN_DATA, State, all, flag, own_data, take_over, watching,
};
use crate::descriptors::attach;
use crate::descriptors::table::{self, Kind, Word};
use crate::ground::sys;
use crate::sockets::socket::{self, status};

fn goes(fd: i32) -> bool {
    sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & libc::FD_CLOEXEC as usize == 0)
}

/// Before an exec. What the next image is to be told of sets: [`adopt_inherited`] reads it.
pub fn pack() -> Option<String> {
    let mut told = String::new();
    for_each_that_goes(|set| match set.depart() {
        Some(words) => told.push_str(&words),
        // One that relatives use, too, stays as it is: it is theirs.
        None if !set.shared.load(Ordering::Relaxed) => set.tell(true),
        None => {}
    });
    (!told.is_empty()).then(|| format!("{:x}{told}", own_data()))
}

/// There was no exec.
pub fn unpack() {
    for_each_that_goes(|set| {
        if !set.stay() && !set.shared.load(Ordering::Relaxed) {
            set.tell(false);
        }
    });
}

fn for_each_that_goes(mut each: impl FnMut(&'static EpollSet)) {
    for set in all() {
        let fd = set.fd.load(Ordering::Relaxed);
        if set.is_open() && set.is_active() && goes(fd) {
            each(set);
        }
    }
}

fn outlives_exec(own: [i32; 2], on: bool) {
    let flags = if on { 0 } else { sys::int(libc::FD_CLOEXEC) };
    for fd in own {
        let _ = sys::fcntl(fd, libc::F_SETFD, flags);
    }
}

impl EpollSet {
    /// Makes ready for an exec. What the next image is told; `None` where there is no board.
    fn depart(&'static self) -> Option<String> {
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
        outlives_exec([inner, file], true);
        Some(format!(";{fd},{inner},{file},{room},{detached}"))
    }

    /// It does not go. Whether it was made ready.
    fn stay(&self) -> bool {
        let file = self
            .state
            .lock()
            .and_then(|state| state.board.as_ref()?.file());
        if let Some((file, _)) = file {
            let inner = self.inner.load(Ordering::Acquire);
            outlives_exec([inner, file], false);
        }
        file.is_some()
    }

    /// Tells the kernel of the members as the program told of them, or as it was.
    fn tell(&'static self, plainly: bool) {
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
            // Under a number that is closed, or will be by the exec, the kernel can be told of nothing.
            let Some(known) = Self::number_that_goes(&state, item) else {
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
    /// The number under which a member is to be found after the exec: its own, or another of the same socket which is no member itself.
    fn number_that_goes(state: &State, item: &Item) -> Option<i32> {
        let own = (table::get(item.fd) == item.word).then_some(item.fd);
        let is_copied =
            || socket::of_word(item.word).is_some_and(|found| found.has(status::SHARED));
        if item.word.kind() != Kind::Virtual || !is_copied() || own.is_some_and(goes) {
            return own;
        }
        let fits = |fd, word| {
            word == item.word && fd != item.fd && state.index.get(fd).is_none() && goes(fd)
        };
        table::find_if(fits).or(own)
    }
}

fn is_set(fd: i32) -> bool {
    let name = fs::read_link(format!("/proc/self/fd/{fd}"));
    name.is_ok_and(|name| name.as_os_str() == "anon_inode:[eventpoll]")
}

/// At the start of an image: sets that came with it, of which the one before has `told`, and those of their members that are ours.
pub fn adopt_inherited(told: Option<&str>) {
    let mut words = told.unwrap_or_default().split(';');
    let own = words
        .next()
        .and_then(|own| u64::from_str_radix(own, 16).ok());
    let carried: Vec<_> = words.filter_map(Carried::read).collect();
    let carried: Vec<_> = carried.into_iter().map(Carried::take).collect();
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
        carried
            .into_iter()
            .for_each(|(one, board)| one.arrive(board));
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

/// A set as the image before this one has told of it.
struct Carried {
    fd: i32,
    inner: i32,
    file: i32,
    room: usize,
    detached: bool,
}

impl Carried {
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

    /// Its board, and what comes with it is the library's from now on.
    fn take(self) -> (Self, Option<Board>) {
        let board = Board::inherit(self.file, self.room);
        let own = [self.inner, self.file];
        own.iter().for_each(|fd| {
            table::set(*fd, Word::new(Kind::Internal, 0, 0));
        });
        outlives_exec(own, false);
        (self, board)
    }

    fn arrive(&self, board: Option<Board>) {
        let found = super::of(self.fd).filter(|_| is_set(self.inner));
        let (Some(set), Some(board)) = (found, board) else {
            return [self.inner, self.file]
                .into_iter()
                .for_each(attach::close_internal);
        };
        set.inner.store(self.inner, Ordering::Release);
        set.detached.store(self.detached, Ordering::Release);
        set.shared.store(true, Ordering::Relaxed);
        set.active.store(true, Ordering::SeqCst);
        let known = known_to_kernel(self.fd);
        let Some(mut state) = set.state.lock() else {
            return;
        };
        // Nothing on it was looked at.
        state.added = board.added().wrapping_sub(1);
        state.board = Some(board);
        set.take_up(&mut state);
        for (fd, number) in known {
            set.take_up_known(&mut state, fd, number);
        }
    }
}

/// What the kernel is asked to tell of `fd` in a set.
pub(super) fn asked_of_kernel(set: i32, fd: i32) -> Option<u32> {
    let listed = fs::read_to_string(format!("/proc/self/fdinfo/{set}")).unwrap_or_default();
    let mut all = listed.lines().filter_map(any_member);
    all.find_map(|(member, event)| (member == fd).then_some(event.events))
}

/// The members of a set that the kernel reports under a data word of ours: their descriptors and numbers.
fn known_to_kernel(set: i32) -> Vec<(i32, u32)> {
    let listed = fs::read_to_string(format!("/proc/self/fdinfo/{set}")).unwrap_or_default();
    let ours = |line| {
        let (fd, event) = any_member(line)?;
        let number = event.u64 & NUMBER;
        (event.u64 & !NUMBER == own_data() && number != NUMBER).then_some((fd, number as u32))
    };
    listed.lines().filter_map(ours).collect()
}

impl EpollSet {
    /// Takes up a listener or a set, which the kernel knows as a member under `fd`.
    fn take_up_known(&'static self, state: &mut State, fd: i32, number: u32) {
        let word = table::get(fd);
        let Some(board) = &state.board else { return };
        let Some(entry) = board.entry(number) else {
            return;
        };
        let Some(life) = entry.life() else { return };
        let kind = Word(entry.named().socket).kind();
        if word.kind() != kind || !matches!(kind, Kind::Listener | Kind::Epoll) {
            return;
        }
        // This image has it by another name.
        entry.name(named(board, word), fd);
        let change = entry.last_change();
        let events = entry.events.load(Ordering::Relaxed);
        let item = Item {
            enabled: !entry.is_spent(change),
            life,
            change,
            ..Item::new(fd, word, events, entry.data.load(Ordering::Relaxed))
        };
        while state.items.len() <= number as usize {
            state.items.push(Item::dead());
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
