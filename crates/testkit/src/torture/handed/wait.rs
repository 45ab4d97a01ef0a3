//! How the holder of an end waits. A set goes with the end to who inherits the descriptors.

use netchannel_testkit::support::Random;
use netchannel_testkit::sys::{self, Descriptor, Errno};

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
        let waited = match self {
            Self::Poll => {
                let events = libc::c_short::try_from(events).expect("a small number");
                let entry = libc::pollfd {
                    fd: socket,
                    events,
                    revents: 0,
                };
                sys::poll(&mut [entry], -1).map(drop)
            }
            Self::Set(set, sys::ET) => sys::epoll_wait(set, 1, -1).map(drop),
            Self::Set(set, _) => {
                sys::epoll_control(set, libc::EPOLL_CTL_MOD, socket, events, 0).expect("epoll_ctl");
                sys::epoll_wait(set, 1, -1).map(drop)
            }
        };
        assert!(
            matches!(waited, Ok(()) | Err(Errno(libc::EINTR))),
            "{waited:?}"
        );
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
