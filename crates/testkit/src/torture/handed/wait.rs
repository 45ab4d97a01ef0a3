//! How the holder of an end waits. A set goes with the end to who inherits the descriptors.

use netchannel_testkit::support::Random;
use netchannel_testkit::sys::{self, Descriptor};

use crate::step::{wait_in_poll, wait_in_set};

/// A way to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Poll,
    /// In a set that tells of levels (0), or of edges.
    Set(Descriptor, u32),
}

impl Wait {
    /// A drawn way, with a new set where it has one.
    pub fn draw(socket: Descriptor, random: &mut Random) -> Self {
        let edges = match random.below(3) {
            0 => return Self::Poll,
            1 => 0,
            _ => sys::ET,
        };
        let set = sys::epoll_create().expect("epoll_create");
        sys::fcntl(set, libc::F_SETFD, 0).expect("F_SETFD");
        let events = sys::IN | sys::OUT | edges;
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, socket, events, 0).expect("epoll_ctl");
        Self::Set(set, edges)
    }

    /// Waits until one of the events may have come.
    pub fn wait(self, socket: Descriptor, events: u32) {
        match self {
            Self::Poll => wait_in_poll(socket, events),
            Self::Set(set, edges) => {
                if edges == 0 {
                    let change = libc::EPOLL_CTL_MOD;
                    sys::epoll_control(set, change, socket, events, 0).expect("epoll_ctl");
                }
                wait_in_set(set);
            }
        }
    }

    /// Closes the set.
    pub fn close(self) {
        if let Self::Set(set, _) = self {
            sys::close(set).expect("close");
        }
    }

    /// Two numbers from which [`Self::from_words`] makes it again.
    pub fn to_words(self) -> [u64; 2] {
        match self {
            Self::Poll => [0, 0],
            Self::Set(set, edges) => [
                u64::try_from(set + 1).expect("a descriptor"),
                u64::from(edges),
            ],
        }
    }

    pub fn from_words([set, edges]: [u64; 2]) -> Self {
        match set {
            0 => Self::Poll,
            set => Self::Set(
                Descriptor::try_from(set - 1).expect("a descriptor"),
                u32::try_from(edges).expect("events"),
            ),
        }
    }
}
