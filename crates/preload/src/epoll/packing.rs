//! Sets that go with an exec. The kernel keeps a set and the list of its members over it, and of virtual members it knows nothing: so
//! before the exec each is told to it as the program told it, and the next image finds them in that list.

use core::sync::atomic::Ordering;
use std::fs;

use super::item::Item;
use super::{EpollSet, NUMBER, State, all, flag, own_data, take_over, watching};
use crate::socket::{self, status};
use crate::sys;
use crate::table::{self, Kind, Word};

fn goes(fd: i32) -> bool {
    sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & libc::FD_CLOEXEC as usize == 0)
}

/// Before an exec.
pub fn pack() {
    for_each_that_goes(|set| set.tell(true));
}

/// There was no exec.
pub fn unpack() {
    for_each_that_goes(|set| set.tell(false));
}

/// A set that relatives use too stays as it is: it is theirs.
fn for_each_that_goes(each: impl Fn(&'static EpollSet)) {
    for set in all() {
        let fd = set.fd.load(Ordering::Relaxed);
        if set.is_open() && set.is_active() && !set.shared.load(Ordering::Relaxed) && goes(fd) {
            each(set);
        }
    }
}

impl EpollSet {
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

/// At the start of an image: sets that came with it, and those of their members that are ours.
pub fn adopt_inherited() {
    for fd in sys::open_descriptors() {
        let is_set = || {
            let name = fs::read_link(format!("/proc/self/fd/{fd}"));
            name.is_ok_and(|name| name.as_os_str() == "anon_inode:[eventpoll]")
        };
        if table::get(fd) == Word::FOREIGN && is_set() {
            super::opened(fd);
        }
    }
    if all().next().is_none() {
        return;
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
