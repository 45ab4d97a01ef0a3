//! The budget for memory that peers write and this process touches. The kernel makes a page that was never written when
//! it is read, and charges it to the reader: a peer of another user that claims to have written its arena could make
//! its readers pay for all of it. So of such peers' arenas no more is read in place than a budget of the whole process.
//! Beyond it bytes are read by `pread`, which makes no pages and costs a system call: no peer is refused, and peers
//! within the budget pay nothing.

use core::sync::atomic::{AtomicUsize, Ordering};

use netchannel_abi::link::{Geometry, Role, SMALL_RING_LOG2};
use netchannel_abi::program::RELAY;
use netchannel_ring::bytes;

use super::LinkEnd;
use crate::descriptors::credentials;
use crate::ground::lock::Lock;
use crate::ground::sys;

/// Bytes of other users' arenas that this process reads in place at most.
const MOST: usize = 48 << 20;
/// Bytes of them that it may have touched.
static TOUCHED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Arenas are counted in units of the smallest ring.
const GRAIN: u64 = 1 << (SMALL_RING_LOG2);

/// Which parts of the peer's arena are counted.
pub(super) struct TouchedParts(Lock<Vec<u64>>);

impl TouchedParts {
    pub const fn new() -> Self {
        Self(Lock::new(Vec::new()))
    }

    /// Counts `length` grains from `first` on. False where the budget has no room for those that are new; then nothing
    /// is counted.
    fn count(&self, first: usize, length: usize, budget: &AtomicUsize) -> bool {
        let Some(mut words) = self.0.lock() else {
            return false;
        };
        let last = first + length;
        if words.len() * 64 < last {
            words.resize(last.div_ceil(64), 0);
        }
        let is_new = |words: &[u64], grain: usize| {
            words
                .get(grain / 64)
                .is_some_and(|word| word >> (grain % 64) & 1 == 0)
        };
        let new = (first..last).filter(|grain| is_new(&words, *grain)).count();
        let bytes = new * GRAIN as usize;
        if budget.fetch_add(bytes, Ordering::Relaxed) + bytes > MOST {
            budget.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        for grain in first..last {
            if let Some(word) = words.get_mut(grain / 64) {
                *word |= 1 << (grain % 64);
            }
        }
        true
    }

    /// Uncounts all parts: the memory was released.
    fn forget(&self, budget: &AtomicUsize) {
        let words = self.0.lock().map(|mut words| core::mem::take(&mut *words));
        let grains: u32 = words.into_iter().flatten().map(u64::count_ones).sum();
        budget.fetch_sub(grains as usize * GRAIN as usize, Ordering::Relaxed);
    }
}

impl LinkEnd {
    /// Whether a larger ring of the peer may be read in place.
    #[cold]
    pub fn may_touch(&self, ring: Geometry) -> bool {
        if ring.log2 <= SMALL_RING_LOG2 || self.is_of_own_user() {
            return true;
        }
        let start = self.layout.arena_start(self.role.other()) as u64;
        let first = ring.offset.saturating_sub(start) / GRAIN;
        self.touched.count(
            first as usize,
            (ring.size() / GRAIN) as usize,
            &TOUCHED_BYTES,
        )
    }

    /// Whether the peer could do nothing to this process that its user could not do anyway. A server that becomes
    /// another user's leaves its links.
    pub fn is_of_own_user(&self) -> bool {
        let own = credentials::at_daemon(credentials::owner());
        let is_daemon = self.relayed.load(Ordering::Relaxed)
            || self.role == Role::Client && self.listener == RELAY;
        is_daemon
            || self.tenant().is_none()
                && own.is_some_and(|own| {
                    self.owner_word() == netchannel_abi::directory::owner_word(own)
                })
    }

    pub(super) fn uncount_touched(&self) {
        self.touched.forget(&TOUCHED_BYTES);
    }

    /// Copies `length` bytes of a peer's ring from `sequence` on without touching its memory. Returns how many were
    /// copied before an address of `to` faulted, `None` where the memory's descriptor is closed.
    ///
    /// # Safety
    /// As of `read`: `to` is the program's buffer.
    pub unsafe fn pread_ring(
        &self,
        ring: Geometry,
        sequence: u64,
        to: *mut u8,
        length: u64,
    ) -> Option<u64> {
        let memory = self.memory();
        if memory < 0 {
            return None;
        }
        let runs = bytes::runs(sequence, length, ring.size());
        let mut done = 0;
        for (offset, length) in [(runs.offset, runs.first), (0, runs.second)] {
            let mut left = length;
            while left > 0 {
                let place = to.wrapping_add(done as usize).expose_provenance();
                let from = ring.offset + offset + (length - left);
                let words = [sys::int(memory), place, left as usize, from as usize, 0, 0];
                // SAFETY: the caller's promise; the kernel checks the buffer.
                match unsafe { sys::raw(libc::SYS_pread64, words) } {
                    Ok(count @ 1..) => {
                        left = left.saturating_sub(count as u64);
                        done += count as u64;
                    }
                    Err(libc::EINTR) => {}
                    Ok(_) | Err(_) => return Some(done),
                }
            }
        }
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::{GRAIN, MOST, TouchedParts};
    use core::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn what_is_touched_again_counts_once_and_goes_back_with_its_link() {
        let budget = AtomicUsize::new(0);
        let used = || budget.load(Ordering::Relaxed) / GRAIN as usize;
        let (one, other) = (TouchedParts::new(), TouchedParts::new());
        assert!(one.count(60, 8, &budget));
        assert!(one.count(64, 8, &budget));
        assert_eq!(used(), 12);
        let most = MOST / GRAIN as usize;
        assert!(other.count(0, most - 12, &budget));
        assert!(!one.count(0, 1, &budget), "nothing is left");
        assert!(one.count(60, 12, &budget), "it counts already");
        other.forget(&budget);
        assert_eq!(used(), 12);
        assert!(one.count(0, 1, &budget));
        one.forget(&budget);
        assert_eq!(used(), 0);
    }
}
