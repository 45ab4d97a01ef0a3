//! What the processes of a round share: who lives, whether the round ends, and the next connection's number.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use netchannel_testkit::support::{shared_from_file, shared_in_file};
use netchannel_testkit::sys::{self, Descriptor};

/// The most processes of a round at the same time that a signal can find.
const PLACES: usize = 128;

struct Shared {
    processes: [AtomicI32; PLACES],
    ends: AtomicBool,
    is_quiet: AtomicBool,
    has_served: AtomicBool,
    next: AtomicU64,
    /// Servers that were killed, and connections that broke.
    killed: AtomicU64,
    broken: AtomicU64,
}

/// Memory that all processes of a round share, and the descriptor by which programs that they start have it.
#[derive(Clone, Copy)]
pub struct Board {
    shared: &'static Shared,
    file: Descriptor,
}

impl Board {
    /// A new board, for the caller, its children and programs that they start.
    pub fn new() -> Self {
        // SAFETY: only atomics, for which zeroes are valid.
        let (shared, file) = unsafe { shared_in_file() };
        Self { shared, file }
    }

    /// The board of the program that started this one.
    pub fn inherited(file: Descriptor) -> Self {
        // SAFETY: only atomics.
        let shared = unsafe { shared_from_file(file) };
        Self { shared, file }
    }

    /// The descriptor that programs inherit.
    pub fn file(&self) -> Descriptor {
        self.file
    }

    /// The calling process may be signalled from now on. Without a free place it is not.
    pub fn enter(&self) {
        let process = sys::getpid();
        let free = |place: &&AtomicI32| {
            let entered = place.compare_exchange(0, process, Ordering::SeqCst, Ordering::SeqCst);
            entered.is_ok()
        };
        let _ = self.shared.processes.iter().find(free);
    }

    /// The calling process is signalled no more, except by a signal that is under way.
    pub fn leave(&self) {
        self.forget(sys::getpid());
    }

    /// As [`Self::leave`], for a process that is about to be killed.
    pub fn forget(&self, process: libc::pid_t) {
        for place in &self.shared.processes {
            let _ = place.compare_exchange(process, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// The process in a place, if there is one.
    pub fn process(&self, place: usize) -> Option<libc::pid_t> {
        let process = self.shared.processes[place % PLACES].load(Ordering::SeqCst);
        (process > 0).then_some(process)
    }

    /// Tells the pest to end.
    pub fn be_quiet(&self) {
        self.shared.is_quiet.store(true, Ordering::SeqCst);
    }

    /// Whether the pest is to end.
    pub fn is_quiet(&self) -> bool {
        self.shared.is_quiet.load(Ordering::SeqCst)
    }

    /// Tells all that accept to end at their next connection.
    pub fn end(&self) {
        self.shared.ends.store(true, Ordering::SeqCst);
    }

    /// The server has ended.
    pub fn note_served(&self) {
        self.shared.has_served.store(true, Ordering::SeqCst);
    }

    /// Whether the server has ended.
    pub fn has_served(&self) -> bool {
        self.shared.has_served.load(Ordering::SeqCst)
    }

    /// Whether those that accept are to end.
    pub fn ends(&self) -> bool {
        self.shared.ends.load(Ordering::SeqCst)
    }

    /// The number of the next connection, below `most`.
    pub fn next(&self, most: u64) -> Option<u64> {
        let number = self.shared.next.fetch_add(1, Ordering::SeqCst);
        (number < most).then_some(number)
    }

    /// A server is about to be killed.
    pub fn note_killed(&self) {
        self.shared.killed.fetch_add(1, Ordering::SeqCst);
    }

    /// A connection broke.
    pub fn note_broken(&self) {
        self.shared.broken.fetch_add(1, Ordering::SeqCst);
    }

    /// How many servers were killed, and how many connections broke.
    pub fn killed_and_broken(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        (count(&self.shared.killed), count(&self.shared.broken))
    }
}
