//! A transfer that is being copied, as its owner describes it to helpers.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use netchannel_ring::parts::{MOST, Parts};

use super::{Direction, Transfer};
use crate::{Region, system};

/// How often the owner checks for the last parts before it sleeps: a part takes some microseconds.
const LOOKS: u32 = 2000;
/// Nanoseconds after which the owner checks again, even without a wake-up.
const NAP_NANOSECONDS: u64 = 10_000_000;

/// Between [`Parts::open`] and [`Parts::close`] helpers may read the description.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Job {
    taken: AtomicU32,
    pub(super) parts: Parts,
    region: AtomicPtr<Region>,
    ring: AtomicU64,
    size: AtomicU64,
    sequence: AtomicU64,
    buffer: AtomicPtr<u8>,
    length: AtomicU64,
    part: AtomicU64,
    out: AtomicBool,
    /// Bytes of each part that could not be copied.
    uncopied: [AtomicU64; MOST as usize],
}

impl Job {
    pub(super) const fn new() -> Self {
        Self {
            taken: AtomicU32::new(0),
            parts: Parts::new(),
            region: AtomicPtr::new(core::ptr::null_mut()),
            ring: AtomicU64::new(0),
            size: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            buffer: AtomicPtr::new(core::ptr::null_mut()),
            length: AtomicU64::new(0),
            part: AtomicU64::new(1),
            out: AtomicBool::new(false),
            uncopied: [const { AtomicU64::new(0) }; MOST as usize],
        }
    }

    /// Takes the job, if it is free.
    pub(super) fn take(&self) -> bool {
        // Acquire: pairs with the release in `release`; the former owner is done with it.
        self.taken.load(Ordering::Relaxed) == 0
            && self
                .taken
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    pub(super) fn release(&self) {
        self.taken.store(0, Ordering::Release);
    }

    pub(super) fn reset(&self) {
        self.parts.close();
        self.release();
    }

    /// Describes a transfer. Returns its number of parts.
    pub(super) fn describe(&self, transfer: &Transfer<'_>, part: u64) -> u32 {
        // Relaxed, all: `Parts::open` releases them.
        let region = core::ptr::from_ref(transfer.region).cast_mut();
        self.region.store(region, Ordering::Relaxed);
        self.buffer.store(transfer.buffer, Ordering::Relaxed);
        let out = transfer.direction == Direction::Out;
        self.out.store(out, Ordering::Relaxed);
        let words = [
            (&self.ring, transfer.ring),
            (&self.size, transfer.size),
            (&self.sequence, transfer.sequence),
            (&self.length, transfer.length),
            (&self.part, part),
        ];
        for (word, value) in words {
            word.store(value, Ordering::Relaxed);
        }
        transfer.length.div_ceil(part).min(MOST.into()) as u32
    }

    fn word(word: &AtomicU64) -> u64 {
        word.load(Ordering::Relaxed)
    }

    fn range(&self, part: u32) -> (u64, u64) {
        let size = Self::word(&self.part);
        let from = size * u64::from(part);
        (
            from,
            size.min(Self::word(&self.length).saturating_sub(from)),
        )
    }

    /// Copies a part and finishes it.
    ///
    /// # Safety
    /// The calling thread has claimed the part, or owns it.
    pub(super) unsafe fn copy(&self, part: u32) {
        let (from, length) = self.range(part);
        let direction = if self.out.load(Ordering::Relaxed) {
            Direction::Out
        } else {
            Direction::In
        };
        // SAFETY: the owner described it with a reference that lives until every claimed part is done, and promised
        // what the copy requires.
        let left = unsafe {
            let whole = Transfer {
                region: &*self.region.load(Ordering::Relaxed),
                ring: Self::word(&self.ring),
                size: Self::word(&self.size),
                sequence: Self::word(&self.sequence),
                buffer: self.buffer.load(Ordering::Relaxed),
                length: Self::word(&self.length),
                direction,
            };
            whole.part(from, length).copy()
        };
        if let Some(word) = self.uncopied.get(part as usize) {
            // Relaxed: `finish` releases it.
            word.store(left, Ordering::Relaxed);
        }
        if self.parts.finish(part) {
            system::wake(self.parts.word(), 1);
        }
    }

    /// Bytes of a finished part, and how many of them could not be copied.
    pub(super) fn outcome(&self, part: u32) -> (u64, u64) {
        let (_, length) = self.range(part);
        let left = self.uncopied.get(part as usize).map_or(0, Self::word);
        (length, left.min(length))
    }

    /// Ends the claims and waits for the claimed parts; the owner has copied the first `own` parts, or will not.
    pub(super) fn wait(&self, own: u32) {
        let claimed = self.parts.close();
        let by_helpers = claimed & !((1 << own) - 1);
        let are_done = || self.parts.done() & by_helpers == by_helpers;
        for _ in 0..LOOKS {
            if are_done() {
                return;
            }
            core::hint::spin_loop();
        }
        loop {
            let value = self.parts.announce_sleep();
            if are_done() {
                return;
            }
            let _ = system::sleep_on(self.parts.word(), value, NAP_NANOSECONDS, true);
        }
    }
}
