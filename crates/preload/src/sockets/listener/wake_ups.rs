//! Waking the threads of this process that sleep for connections in `poll` or `accept`.
//!
//! Any thread may take connections off a link, also those of a listener for which another thread sleeps: it wakes one
//! sleeper for each connection.

use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use crate::descriptors::{attach, limits};
use crate::ground::{clock, sys};

/// Threads of this process that sleep for connections, in any kind of call.
static ASLEEP: AtomicUsize = AtomicUsize::new(0);

/// When an event loop of this process has accepted without having looked again since, in the clock's units; 0 for
/// never.
static ACCEPTED: AtomicU64 = AtomicU64::new(0);
/// Counts how often a loop has looked again soon after an accept, up to [`MOST_QUICK`]. A single late look says little:
/// the loop may have waited for its processor.
static QUICK_TURNS: AtomicU32 = AtomicU32::new(MOST_QUICK);
const MOST_QUICK: u32 = 8;
/// The weight of a late look.
const SLOW_WEIGHT: u32 = 2;
/// Some loop of this process has watched connections together with a listener, see [`has_serving_loop`].
static SERVES: AtomicBool = AtomicBool::new(false);
/// This process alone accepts from some listener, see [`super::sole_acceptor`].
static ALONE: AtomicBool = AtomicBool::new(false);
/// An event loop that has accepted accepts again within this time, in the units of the clock.
pub(super) const SOON: u64 = 1000 * clock::MICROSECOND;

/// Notes that an event loop of this process accepts a connection `now`.
pub fn note_accept(now: u64) {
    note_turn(ACCEPTED.swap(now, Ordering::Relaxed));
}

/// Notes that a loop of this process watches connections together with a listener. Such a loop looks at both again,
/// whatever it accepts. A loop that watches listeners only may do anything between two looks, such as wait for a lock
/// that another acceptor has.
#[inline]
pub fn note_serving() {
    if !SERVES.load(Ordering::Relaxed) {
        SERVES.store(true, Ordering::Relaxed);
    }
}

/// Whether there is such a loop: it will accept what is announced to it while it is awake.
pub fn has_serving_loop() -> bool {
    SERVES.load(Ordering::Relaxed) || accepts_alone()
}

/// Notes whether this process is such an acceptor.
#[inline]
pub(super) fn note_alone(alone: bool) {
    if accepts_alone() != alone {
        ALONE.store(alone, Ordering::Relaxed);
    }
}

/// Whether it is.
#[inline]
pub fn accepts_alone() -> bool {
    ALONE.load(Ordering::Relaxed)
}

/// Whether a woken loop of this process accepts soon.
pub fn accepts_soon() -> bool {
    has_serving_loop() && QUICK_TURNS.load(Ordering::Relaxed) > MOST_QUICK / 2
}

/// Ends the turn that began with an accept.
fn note_turn(began: u64) {
    if began != 0 {
        let before = QUICK_TURNS.load(Ordering::Relaxed);
        let after = match clock::now().wrapping_sub(began) < SOON {
            true => MOST_QUICK.min(before + 1),
            false => before.saturating_sub(SLOW_WEIGHT),
        };
        if after != before {
            QUICK_TURNS.store(after, Ordering::Relaxed);
        }
    }
}

/// Notes that a thread is about to sleep for connections.
pub(super) fn begin_sleep() {
    note_turn(ACCEPTED.swap(0, Ordering::Relaxed));
    ASLEEP.fetch_add(1, Ordering::SeqCst);
}

/// Ends the sleep. True where no other thread sleeps.
pub(super) fn end_sleep() -> bool {
    ASLEEP.fetch_sub(1, Ordering::SeqCst) == 1
}

/// Whether any thread sleeps for connections.
pub fn anybody_sleeps() -> bool {
    ASLEEP.load(Ordering::SeqCst) > 0
}

/// In a forked child no thread sleeps yet.
pub fn reset_in_child() {
    ASLEEP.store(0, Ordering::Relaxed);
    ACCEPTED.store(0, Ordering::Relaxed);
    QUICK_TURNS.store(MOST_QUICK, Ordering::Relaxed);
    SERVES.store(false, Ordering::Relaxed);
    ALONE.store(false, Ordering::Relaxed);
}

/// The wake-ups of one listener: an eventfd that counts, made when a thread first sleeps for it.
pub struct WakeUps {
    fd: AtomicI32,
    sleepers: AtomicUsize,
}

impl WakeUps {
    /// Nobody sleeps for it yet.
    pub const fn new() -> Self {
        Self {
            fd: AtomicI32::new(-1),
            sleepers: AtomicUsize::new(0),
        }
    }

    /// The descriptor to sleep on, or -1.
    pub fn fd(&self) -> i32 {
        self.fd.load(Ordering::Acquire)
    }

    /// Announces that a thread is about to sleep, on the descriptor if there is one.
    pub fn begin_sleep(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        // A program that keeps all its numbers gets its connections from the kernel.
        if self.fd() >= 0 || limits::are_scarce() {
            return;
        }
        let Ok(made) = limits::for_library(|| sys::event_counter(libc::EFD_SEMAPHORE)) else {
            return;
        };
        let made = attach::make_internal(made);
        let placed = self
            .fd
            .compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire);
        if placed.is_err() {
            attach::close_internal(made);
        }
    }

    /// Ends the sleep.
    pub fn end_sleep(&self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes one wake-up.
    pub fn take_one(&self) {
        let mut eight = [0; 8];
        let pointer = eight.as_mut_ptr().addr();
        let fd = sys::int(self.fd.load(Ordering::Acquire));
        // SAFETY: the kernel writes `eight`.
        let _ = unsafe { sys::raw(libc::SYS_read, [fd, pointer, 8, 0, 0, 0]) };
    }

    /// Wakes one sleeper.
    pub fn wake_one(&self) {
        // Pairs with `begin_sleep`: a sleeper looks once more after it.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.count_up(1);
        }
    }

    /// Wakes all sleepers.
    pub fn wake_all(&self) {
        fence(Ordering::SeqCst);
        let sleepers = self.sleepers.load(Ordering::SeqCst);
        if sleepers > 0 {
            self.count_up(sleepers as u64);
        }
    }

    #[cold]
    fn count_up(&self, times: u64) {
        let bytes = times.to_ne_bytes();
        let pointer = bytes.as_ptr().addr();
        let fd = sys::int(self.fd.load(Ordering::Acquire));
        // SAFETY: the kernel reads `bytes`.
        let _ = unsafe { sys::raw(libc::SYS_write, [fd, pointer, 8, 0, 0, 0]) };
    }

    /// Notes that a descriptor of the library has a new number.
    pub fn relocate(&self, from: i32, to: i32) {
        let order = Ordering::Relaxed;
        let _ = self.fd.compare_exchange(from, to, order, order);
    }

    /// Closes the descriptor: the listener is closed, or it is the parent's.
    pub fn close(&self) {
        self.sleepers.store(0, Ordering::SeqCst);
        attach::close_internal(self.fd.swap(-1, Ordering::AcqRel));
    }
}
