//! How the holder of an end waits. A set goes with the end to who inherits the descriptors.

use netchannel_testkit::support::Random;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::step::{wait_in_poll, wait_in_set};

/// A way to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Poll,
    Select,
    Set(Sets),
}

/// A set with the socket, and whoever waits in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sets {
    set: Descriptor,
    /// It tells of levels (0), of edges, or once.
    how: u32,
    /// A set with that set as its member, in which the holder waits.
    outer: Option<Descriptor>,
}

impl Wait {
    /// A drawn way, with a new set where it has one.
    pub fn draw(socket: Descriptor, random: &mut Random) -> Self {
        let how = match random.below(5) {
            0 => return Self::Poll,
            1 => return Self::Select,
            2 => 0,
            3 => libc::EPOLLONESHOT.cast_unsigned(),
            _ => sys::ET,
        };
        let set = new_set();
        add(set, socket, sys::IN | sys::OUT | how);
        let outer = random.once_in(3).then(|| {
            let outer = new_set();
            add(outer, set, sys::IN);
            outer
        });
        Self::Set(Sets { set, how, outer })
    }

    /// Waits until one of the events may have come.
    pub fn wait(self, socket: Descriptor, events: u32) {
        match self {
            Self::Poll => wait_in_poll(socket, events),
            Self::Select => wait_in_select(socket, events),
            Self::Set(sets) => sets.wait(socket, events),
        }
    }

    /// Closes the sets.
    pub fn close(self) {
        if let Self::Set(Sets { set, outer, .. }) = self {
            for set in outer.into_iter().chain([set]) {
                sys::close(set).expect("close");
            }
        }
    }

    /// Numbers from which [`Self::from_words`] makes it again.
    pub fn to_words(self) -> [u64; 3] {
        let number = |set: Descriptor| u64::try_from(set).expect("a descriptor");
        match self {
            Self::Poll => [0; 3],
            Self::Select => [1, 0, 0],
            Self::Set(Sets { set, how, outer }) => {
                [number(set), u64::from(how), outer.map_or(0, number)]
            }
        }
    }

    pub fn from_words([set, how, outer]: [u64; 3]) -> Self {
        let descriptor = |word: u64| Descriptor::try_from(word).expect("a descriptor");
        match set {
            0 => Self::Poll,
            1 => Self::Select,
            set => Self::Set(Sets {
                set: descriptor(set),
                how: u32::try_from(how).expect("events"),
                outer: (outer != 0).then(|| descriptor(outer)),
            }),
        }
    }
}

impl Sets {
    fn wait(self, socket: Descriptor, events: u32) {
        if self.how != sys::ET {
            let change = libc::EPOLL_CTL_MOD;
            sys::epoll_control(self.set, change, socket, events | self.how, 0).expect("epoll_ctl");
        }
        if let Some(outer) = self.outer {
            wait_in_set(outer);
            // The outer set tells of it until the inner one has.
            let _ = sys::epoll_wait(self.set, 1, 0);
        } else {
            wait_in_set(self.set);
        }
    }
}

/// A set that the next image has, too.
fn new_set() -> Descriptor {
    let set = sys::epoll_create().expect("epoll_create");
    sys::fcntl(set, libc::F_SETFD, 0).expect("F_SETFD");
    set
}

fn add(set: Descriptor, member: Descriptor, events: u32) {
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, member, events, 0).expect("epoll_ctl");
}

/// Waits in `select`, in vain at times: a signal may end the wait.
fn wait_in_select(socket: Descriptor, events: u32) {
    /// In milliseconds: a wake-up that is lost shows as a round that takes too long.
    const LONG: i64 = 100_000;
    let set_if = |event: u32| (events & event != 0).then(|| sys::Set::of(&[socket]));
    let (mut read, mut write) = (set_if(sys::IN), set_if(sys::OUT));
    let waited = sys::select(socket, read.as_mut(), write.as_mut(), None, LONG);
    assert!(
        matches!(waited, Ok(1..) | Err(Errno(libc::EINTR))),
        "{waited:?}"
    );
}
