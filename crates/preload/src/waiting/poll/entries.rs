//! The entries of one call, and what of their events ends it.

use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};

use libc::{POLLIN, pollfd};

/// More entries than this lie on the heap.
pub const MANY: usize = 64;

/// An entry the kernel passes over.
pub(super) const UNUSED: pollfd = pollfd {
    fd: -1,
    events: 0,
    revents: 0,
};

/// A private copy of the entries of a call: the program's memory may be bad, or for reading only.
pub struct Entries {
    /// The first `count` are there, unless there are `many`.
    few: [MaybeUninit<pollfd>; MANY],
    pub(super) many: Vec<pollfd>,
    pub(super) count: usize,
    /// How a call looks at what they show.
    pub(super) counting: Counting,
}

/// What of a descriptor's events ends a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// All that was asked for, and errors and ends.
    Poll,
    /// Only what counts in a set of `select` that it is in.
    Select,
}

/// What the three sets of a `select` ask for: to read, to write, what is exceptional.
pub const ASKED: [i16; 3] = [
    POLLIN | libc::POLLRDNORM,
    libc::POLLOUT | libc::POLLWRNORM,
    libc::POLLPRI,
];

/// What of an answer counts in the three sets.
pub const COUNTS: [i16; 3] = [
    POLLIN | libc::POLLRDNORM | libc::POLLHUP | libc::POLLERR,
    libc::POLLOUT | libc::POLLWRNORM | libc::POLLERR,
    libc::POLLPRI,
];

impl Counting {
    /// Of what shows, what is told where `asked` is asked for.
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
    /// None. It is filled where it stays: moved, it would be copied.
    #[inline]
    pub const fn new(counting: Counting) -> Self {
        Self {
            few: [const { MaybeUninit::uninit() }; MANY],
            many: Vec::new(),
            count: 0,
            counting,
        }
    }

    /// Makes it `count` entries that the kernel would pass over.
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
