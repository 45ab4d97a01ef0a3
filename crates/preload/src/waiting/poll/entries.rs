//! The entries of one call, and which of their events end it.

use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};

use libc::{POLLIN, pollfd};

/// More entries than this lie on the heap.
pub const MANY: usize = 64;

/// An entry that the kernel ignores.
pub(super) const UNUSED: pollfd = pollfd {
    fd: -1,
    events: 0,
    revents: 0,
};

/// A private copy of the entries of a call: the program's memory may be invalid or read-only.
pub struct Entries {
    /// The first `count` are initialised, unless there are `many`.
    few: [MaybeUninit<pollfd>; MANY],
    pub(super) many: Vec<pollfd>,
    pub(super) count: usize,
    /// Which events count for the call.
    pub(super) filter: EventFilter,
}

/// Which events of a descriptor end a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EventFilter {
    /// All events that were asked for, errors and hang-ups.
    Poll,
    /// Only those that count in a set of `select` that has the descriptor.
    Select,
}

/// The events that the three sets of a `select` ask for: readable, writable, exceptional.
pub const ASKED: [i16; 3] = [
    POLLIN | libc::POLLRDNORM,
    libc::POLLOUT | libc::POLLWRNORM,
    libc::POLLPRI,
];

/// The events that count in each of the three sets.
pub const COUNTS: [i16; 3] = [
    POLLIN | libc::POLLRDNORM | libc::POLLHUP | libc::POLLERR,
    libc::POLLOUT | libc::POLLWRNORM | libc::POLLERR,
    libc::POLLPRI,
];

impl EventFilter {
    /// Of the events `shown`, those that are reported where `asked` was asked for.
    pub(super) fn of(self, shown: i16, asked: i16) -> i16 {
        if self == Self::Poll {
            return shown;
        }
        let sets = ASKED.iter().zip(COUNTS);
        let counts = sets.filter(|(set, _)| *set & asked != 0);
        shown & counts.fold(libc::POLLNVAL, |all, (_, one)| all | one)
    }
}

impl Entries {
    /// An empty list. It is filled in place: moving it would copy it.
    #[inline]
    pub const fn new(filter: EventFilter) -> Self {
        Self {
            few: [const { MaybeUninit::uninit() }; MANY],
            many: Vec::new(),
            count: 0,
            filter,
        }
    }

    /// Resizes the list to `count` entries that the kernel ignores.
    #[inline]
    pub fn make(&mut self, count: usize) -> &mut [pollfd] {
        self.count = count;
        match self.few.get_mut(..count) {
            Some(few) => few.fill(MaybeUninit::new(UNUSED)),
            None => self.many = vec![UNUSED; count],
        }
        self
    }
}

impl Deref for Entries {
    type Target = [pollfd];
    #[inline]
    fn deref(&self) -> &[pollfd] {
        match self.few.get(..self.count) {
            // SAFETY: they were written when the list was made.
            Some(few) => unsafe { core::slice::from_raw_parts(few.as_ptr().cast(), few.len()) },
            None => &self.many,
        }
    }
}

impl DerefMut for Entries {
    #[inline]
    fn deref_mut(&mut self) -> &mut [pollfd] {
        match self.few.get_mut(..self.count) {
            // SAFETY: they were written when the list was made.
            Some(few) => unsafe {
                core::slice::from_raw_parts_mut(few.as_mut_ptr().cast(), few.len())
            },
            None => &mut self.many,
        }
    }
}
