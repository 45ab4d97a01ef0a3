//! One large transfer between a program's buffer and a ring, copied by its caller and by helper threads.
//!
//! ```text
//!  Pool::copy --describe, open--> Job <--claim, copy, finish-- helpers (bell: "look", sleep)
//!      |  claims and copies too    |
//!      +-- publish(prefix) <-------+  what is there without a gap
//! ```
//!
//! Helpers take parts; parts are not given to them: a helper that is late, or missing, costs nothing but its help. The
//! caller decides how a transfer is published, and only the caller's thread does it. The pool's memory is static, so
//! that nothing is allocated.
//!
//! Never: returns while a helper may still access the buffer or the ring; lets a signal handler of the program run on
//! the caller's thread meanwhile, since it could leave by `longjmp`.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "lengths within a buffer fit usize, which is 64 bits on every target; flags and numbers of calls are small and positive"
)]

mod job;
mod thread;

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use netchannel_ring::{bytes, parts};

use crate::{Region, system};
use job::Job;
use thread::{SignalsBlocked, Thread};

/// Most helper threads of a pool.
pub const MOST_HELPERS: usize = 8;
/// Most transfers that are split at a time; the callers of further ones copy alone.
const JOBS: usize = 4;
/// Nanoseconds after a failure to make a helper before the next try.
const RETRY: u64 = 1_000_000_000;

/// The direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the buffer into the ring.
    In,
    /// From the ring into the buffer.
    Out,
}

/// Bytes between a program's buffer and a ring of a region.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    /// The region of the ring.
    pub region: &'a Region,
    /// Offset of the ring in the region.
    pub ring: u64,
    /// Bytes of the ring: a power of two, not less than `length`.
    pub size: u64,
    /// Sequence of the first byte.
    pub sequence: u64,
    /// The program's buffer.
    pub buffer: *mut u8,
    /// Number of bytes.
    pub length: u64,
    /// The direction.
    pub direction: Direction,
}

impl Transfer<'_> {
    /// Copies all of it. Returns how many bytes at its end could not be copied because an address faulted.
    ///
    /// # Safety
    /// The buffer is the program's: its bytes may be read, or written, as raw bytes, or fault.
    #[inline(always)]
    #[must_use]
    pub unsafe fn copy(&self) -> u64 {
        let runs = bytes::runs(self.sequence, self.length, self.size);
        let (first, second) = (runs.first as usize, runs.second as usize);
        let run = |at: u64, buffer: *mut u8, length: usize| {
            // SAFETY: the caller's promise; both runs lie within the buffer.
            unsafe {
                match self.direction {
                    Direction::In => self.region.copy_in(at as usize, buffer, length),
                    Direction::Out => self.region.copy_out(at as usize, buffer, length),
                }
            }
        };
        let left = run(self.ring + runs.offset, self.buffer, first);
        let left = if left > 0 || second == 0 {
            left + second
        } else {
            run(self.ring, self.buffer.wrapping_add(first), second)
        };
        left as u64
    }

    /// Copies the first byte on each page of the buffer, in order, up to one that faults. Whether none faults.
    ///
    /// # Safety
    /// As [`Self::copy`].
    #[must_use]
    unsafe fn touch(&self) -> bool {
        /// The smallest page of any program.
        const PAGE: u64 = 4096;
        let mut from = 0;
        while from < self.length {
            // SAFETY: the caller's promise.
            if unsafe { self.part(from, 1).copy() } > 0 {
                return false;
            }
            let place = self.buffer.addr() as u64 + from;
            from += PAGE - place % PAGE;
        }
        true
    }

    /// The bytes from `from` on, at most `length` of them.
    #[must_use]
    fn part(&self, from: u64, length: u64) -> Self {
        Self {
            sequence: self.sequence.wrapping_add(from),
            buffer: self.buffer.wrapping_add(from as usize),
            length: length.min(self.length.saturating_sub(from)),
            ..*self
        }
    }
}

/// How a transfer is to be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Helpers that may take part.
    pub helpers: u32,
    /// Bytes of a part, not 0.
    pub part: u64,
    /// Bytes that the caller copies itself in any case.
    pub local: u64,
    /// Nanoseconds for which a helper spins for more work before it sleeps.
    pub patience: u32,
}

impl Plan {
    /// Most bytes of one transfer.
    #[must_use]
    pub const fn most(&self) -> u64 {
        self.part * parts::MOST as u64
    }
}

/// Helper threads, made when they are first needed. One pool for a process.
#[derive(Debug)]
pub struct Pool {
    jobs: [Job; JOBS],
    threads: [Thread; MOST_HELPERS],
    /// Changes when there is new work.
    bell: AtomicU32,
    /// Helpers that sleep, or are about to.
    sleepers: AtomicU32,
    /// Helpers from this number on end.
    wanted: AtomicU32,
    patience: AtomicU32,
    /// Nanoseconds without work after which a helper ends.
    idle_limit: u64,
    /// 1 while a thread makes helpers.
    making: AtomicU32,
    /// Calls during which no helper may exist.
    dismissals: AtomicU32,
    /// When making helpers may be tried again.
    retry: AtomicU64,
    stacks: AtomicPtr<u8>,
    /// Bytes of transfers that are left to helpers.
    left_to_helpers: AtomicU64,
}

impl Pool {
    /// A pool without helpers, which end after so many nanoseconds without work.
    #[must_use]
    pub const fn new(idle_limit: u64) -> Self {
        Self {
            jobs: [const { Job::new() }; JOBS],
            threads: [const { Thread::new() }; MOST_HELPERS],
            bell: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
            patience: AtomicU32::new(0),
            idle_limit,
            making: AtomicU32::new(0),
            dismissals: AtomicU32::new(0),
            retry: AtomicU64::new(0),
            stacks: AtomicPtr::new(core::ptr::null_mut()),
            left_to_helpers: AtomicU64::new(0),
        }
    }

    /// Bytes of all transfers that are left to helpers at present.
    #[must_use]
    pub fn left_to_helpers(&self) -> u64 {
        self.left_to_helpers.load(Ordering::Relaxed)
    }

    /// Copies a transfer of at most [`Plan::most`] bytes. Whenever more of it is copied without a gap, `publish` gets
    /// the number of bytes. Returns that number at the end: all, unless an address faulted.
    ///
    /// # Safety
    /// As [`Transfer::copy`]; other threads also use the region and the buffer until this returns.
    pub unsafe fn copy(
        &'static self,
        transfer: &Transfer<'_>,
        plan: &Plan,
        mut publish: impl FnMut(u64),
    ) -> u64 {
        debug_assert!(transfer.length <= plan.most(), "there are that many parts");
        // Before the job is taken: a signal handler that interrupted its owner and left by `longjmp` would keep the job
        // taken for good.
        let quiet = SignalsBlocked::begin();
        // Memory behind a fault may be the program's own: nothing is written there before it is known that there is no
        // fault.
        // SAFETY: the caller's promise.
        let whole = transfer.direction == Direction::In || unsafe { transfer.touch() };
        let Some(job) = self.jobs.iter().find(|job| whole && job.take()) else {
            drop(quiet);
            // SAFETY: the caller's promise.
            let copied = transfer.length - unsafe { transfer.copy() };
            if copied > 0 {
                publish(copied);
            }
            return copied;
        };
        let own = plan.local.min(transfer.length).div_ceil(plan.part) as u32;
        let count = job.describe(transfer, plan.part);
        let shared = transfer.length.saturating_sub(u64::from(own) * plan.part);
        self.left_to_helpers.fetch_add(shared, Ordering::Relaxed);
        self.ensure_helpers(plan);
        job.parts.open(own, count);
        self.ring(plan.helpers.min(count - own));
        let mut there = Prefix::default();
        let mut next = 0;
        // SAFETY: the caller's promise; parts below `own` are this thread's.
        unsafe {
            while let Some(part) = if next < own {
                Some(next)
            } else {
                job.parts.claim()
            } {
                job.copy(part);
                next += 1;
                if there.grow(job, &mut publish) {
                    break;
                }
            }
        }
        job.wait(own);
        there.grow(job, &mut publish);
        self.left_to_helpers.fetch_sub(shared, Ordering::Relaxed);
        job.release();
        there.bytes
    }

    /// Makes sure that the helpers exist.
    fn ensure_helpers(&'static self, plan: &Plan) {
        self.wanted.store(plan.helpers, Ordering::Relaxed);
        self.patience.store(plan.patience, Ordering::Relaxed);
        let mut wanted = self.threads.iter().take(plan.helpers as usize);
        if !wanted.all(Thread::lives) {
            self.make_missing(plan.helpers as usize);
        }
    }

    /// Makes the missing helpers. Where one can not be made, the callers copy alone.
    #[cold]
    fn make_missing(&'static self, wanted: usize) {
        // SeqCst, all four: either this thread sees the dismissal, or the dismissal sees that helpers are being made
        // and waits.
        if self.making.swap(1, Ordering::SeqCst) == 1 {
            return;
        }
        let now = thread::now();
        if self.dismissals.load(Ordering::SeqCst) == 0 && now >= self.retry.load(Ordering::Relaxed)
        {
            let all = self.threads.iter().take(wanted).enumerate();
            for (index, thread) in all {
                if !thread.lives() && self.make(index, thread).is_err() {
                    self.retry.store(now + RETRY, Ordering::Relaxed);
                    break;
                }
            }
        }
        self.making.store(0, Ordering::SeqCst);
    }

    /// Rings for so many helpers. A late wake-up would cost help, not bytes.
    fn ring(&self, count: u32) {
        // SeqCst: a helper counts itself as a sleeper before the kernel compares the bell for it.
        self.bell.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            system::wake(&self.bell, count);
        }
    }

    /// Claims and copies a part of any job. False when there is none.
    fn help(&self) -> bool {
        let mut open = self.jobs.iter().filter(|job| job.parts.has_parts());
        open.any(|job| {
            let part = job.parts.claim();
            // SAFETY: the part is claimed, so the job is described and its owner waits.
            part.inspect(|part| unsafe { job.copy(*part) }).is_some()
        })
    }

    /// Ends all helpers, and returns when they have ended; none is made before [`Self::admit`]. For calls that apply to
    /// each thread of a process by itself: credentials, namespaces, filters of system calls.
    pub fn dismiss(&self) {
        self.dismissals.fetch_add(1, Ordering::SeqCst);
        for _ in 0..thread::TRIES {
            if self.making.load(Ordering::SeqCst) == 0 {
                break;
            }
            system::yield_now();
        }
        if self.threads.iter().any(Thread::lives) {
            self.ring(i32::MAX as u32);
        }
        self.threads.iter().for_each(Thread::join);
    }

    /// Allows helpers again.
    pub fn admit(&self) {
        self.dismissals.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether helpers are not allowed at present.
    #[must_use]
    pub fn is_dismissed(&self) -> bool {
        self.dismissals.load(Ordering::SeqCst) > 0
    }

    /// Whether an address lies on the stack of a helper.
    #[must_use]
    pub fn has_stack(&self, address: usize) -> bool {
        let stacks = self.stacks.load(Ordering::Acquire).addr();
        stacks != 0 && address.wrapping_sub(stacks) < MOST_HELPERS * thread::STACK
    }

    /// In a forked child, where the parent's helpers do not exist, nor threads that were within [`Self::copy`].
    pub fn reset_in_child(&self) {
        self.jobs.iter().for_each(Job::reset);
        self.threads.iter().for_each(Thread::forget);
        for word in [&self.sleepers, &self.making, &self.dismissals] {
            word.store(0, Ordering::Relaxed);
        }
        self.retry.store(0, Ordering::Relaxed);
        self.left_to_helpers.store(0, Ordering::Relaxed);
    }
}

/// How many bytes of a transfer are copied without a gap.
#[derive(Default)]
struct Prefix {
    parts: u32,
    bytes: u64,
    faulted: bool,
}

impl Prefix {
    /// Extends the prefix by finished parts, and publishes new bytes. True when it ends at a fault.
    fn grow(&mut self, job: &Job, publish: &mut impl FnMut(u64)) -> bool {
        let before = self.bytes;
        let there = job.parts.done().trailing_ones();
        while self.parts < there && !self.faulted {
            let (length, left) = job.outcome(self.parts);
            self.bytes += length - left;
            self.faulted = left > 0;
            self.parts += 1;
        }
        if self.bytes > before {
            publish(self.bytes);
        }
        self.faulted
    }
}
