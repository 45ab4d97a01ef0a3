//! An epoll set of the peers. It is itself one descriptor to be watched, and never waits.

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Events that are taken before other work has its turn.
const MOST_EVENTS: usize = 64;

/// The set.
#[derive(Debug)]
pub struct Poll(OwnedFd);

impl Poll {
    /// An empty set.
    ///
    /// # Errors
    /// The errno of `epoll_create1`.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor.
    ///
    /// # Errors
    /// The errno of `epoll_ctl`.
    pub fn add(&self, descriptor: BorrowedFd<'_>, name: u64, room: bool) -> Result<(), Errno> {
        epoll::add(&self.0, descriptor, EventData::new_u64(name), flags(room))
    }

    /// Changes whether room to write is also waited for.
    pub fn change(&self, descriptor: BorrowedFd<'_>, name: u64, room: bool) {
        // This can not fail: the descriptor is in the set.
        let _ = epoll::modify(&self.0, descriptor, EventData::new_u64(name), flags(room));
    }

    /// Removes a descriptor.
    pub fn remove(&self, descriptor: BorrowedFd<'_>) {
        // It may have been removed before.
        let _ = epoll::delete(&self.0, descriptor);
    }

    /// The names of the descriptors that are ready now.
    #[must_use]
    pub fn ready(&self) -> Vec<u64> {
        let mut events: Vec<Event> = Vec::with_capacity(MOST_EVENTS);
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // An error is ignored: the set becomes ready again.
        let _ = epoll::wait(&self.0, spare_capacity(&mut events), Some(&now));
        events.iter().map(|event| event.data.u64()).collect()
    }
}

impl AsFd for Poll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn flags(room: bool) -> EventFlags {
    if room {
        EventFlags::IN | EventFlags::OUT
    } else {
        EventFlags::IN
    }
}
