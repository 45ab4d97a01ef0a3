//! An epoll set of its own, which is itself one descriptor to be watched, and never waits.

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Events taken at once: others have their turn.
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

    /// Changes whether room to write is waited for, too.
    pub fn change(&self, descriptor: BorrowedFd<'_>, name: u64, room: bool) {
        // It is in the set.
        let _ = epoll::modify(&self.0, descriptor, EventData::new_u64(name), flags(room));
    }

    /// Takes a descriptor out.
    pub fn remove(&self, descriptor: BorrowedFd<'_>) {
        // It may have been taken out before.
        let _ = epoll::delete(&self.0, descriptor);
    }

    /// Names of those that are ready now.
    #[must_use]
    pub fn ready(&self) -> Vec<u64> {
        let mut events: Vec<Event> = Vec::with_capacity(MOST_EVENTS);
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // What fails is tried again when the set is ready again.
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
