//! The epoll set of the loop, and the subjects of its events.

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Events taken at once: those of all programs, so that each user has a turn in every pass.
const MOST_EVENTS: usize = 4096;

/// The subject of a watched descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A program connects.
    Attach,
    /// A command connects.
    Control,
    /// The daemon must end.
    Stop,
    /// The configuration must be read again.
    Reload,
    /// The host's addresses have changed.
    Addresses,
    /// One of the doorbells of a stack module.
    Stack(usize, usize),
    /// Something has happened to a stack process.
    Stacks,
    /// A client connects to fetch metrics.
    Metrics,
    /// A program sends a message or hangs up.
    Program(u32),
    /// A command sends its request or can take more.
    Command(u32),
    /// A client of metrics sends its request or can take more.
    Fetch(u32),
    /// A process ends whose program may not have attached.
    Awaited(u32),
}

impl Subject {
    const fn to_word(self) -> u64 {
        match self {
            Self::Attach => 0,
            Self::Control => 1,
            Self::Stop => 2,
            Self::Addresses => 3,
            Self::Reload => 5,
            Self::Metrics => 8,
            Self::Stacks => 9,
            Self::Stack(stack, which) => 5 << 32 | (stack as u64 & 0xff) << 8 | which as u64 & 0xff,
            Self::Program(number) => 6 << 32 | number as u64,
            Self::Command(number) => 7 << 32 | number as u64,
            Self::Fetch(number) => 8 << 32 | number as u64,
            Self::Awaited(process) => 9 << 32 | process as u64,
        }
    }

    fn from_word(word: u64) -> Option<Self> {
        let number = u32::try_from(word & 0xffff_ffff).ok()?;
        Some(match (word >> 32, number) {
            (0, 0) => Self::Attach,
            (0, 1) => Self::Control,
            (0, 2) => Self::Stop,
            (0, 3) => Self::Addresses,
            (0, 5) => Self::Reload,
            (0, 8) => Self::Metrics,
            (0, 9) => Self::Stacks,
            (5, number) => Self::Stack((number >> 8) as usize & 0xff, number as usize & 0xff),
            (6, number) => Self::Program(number),
            (7, number) => Self::Command(number),
            (8, number) => Self::Fetch(number),
            (9, process) => Self::Awaited(process),
            _ => return None,
        })
    }
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub struct WatchEvent {
    /// Its subject.
    pub subject: Subject,
    /// There is something to read, or a hang-up.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
}

/// The set of watched descriptors.
#[derive(Debug)]
pub struct Watch {
    descriptor: OwnedFd,
}

impl Watch {
    /// An empty set.
    ///
    /// # Errors
    /// The errno of `epoll_create1`.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            descriptor: epoll::create(CreateFlags::CLOEXEC)?,
        })
    }

    /// Watches a descriptor for reading until it is closed.
    ///
    /// # Errors
    /// The errno of `epoll_ctl`.
    pub fn add(&self, descriptor: impl AsFd, subject: Subject) -> Result<(), Errno> {
        let data = EventData::new_u64(subject.to_word());
        epoll::add(&self.descriptor, descriptor, data, EventFlags::IN)
    }

    /// Watches a descriptor for room to write instead of reading.
    ///
    /// # Errors
    /// The errno of `epoll_ctl`.
    pub fn await_room(&self, descriptor: impl AsFd, subject: Subject) -> Result<(), Errno> {
        let data = EventData::new_u64(subject.to_word());
        epoll::modify(&self.descriptor, descriptor, data, EventFlags::OUT)
    }

    /// Stops watching a descriptor whose duplicates may stay open in other processes.
    pub fn remove(&self, descriptor: impl AsFd) {
        // It may never have been added.
        let _ = epoll::delete(&self.descriptor, descriptor);
    }

    /// Sleeps until an event occurs or `patience` is over.
    ///
    /// # Errors
    /// The errno of `epoll_wait`.
    pub fn wait(&self, patience: Option<Duration>) -> Result<Vec<WatchEvent>, Errno> {
        let patience = patience.map(|patience| Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(patience.subsec_nanos()),
        });
        let mut events: Vec<Event> = Vec::with_capacity(MOST_EVENTS);
        let buffer = spare_capacity(&mut events);
        match epoll::wait(&self.descriptor, buffer, patience.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let end = EventFlags::IN | EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP;
        let events = events.iter().filter_map(|event| {
            let (data, flags) = (event.data, event.flags);
            Some(WatchEvent {
                subject: Subject::from_word(data.u64())?,
                readable: flags.intersects(end),
                writable: flags.contains(EventFlags::OUT),
            })
        });
        Ok(events.collect())
    }
}
