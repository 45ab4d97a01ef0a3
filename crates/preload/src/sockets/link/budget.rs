//! What this process touches of the memory that its peers write. A page that nobody wrote is made, and charged to whoever reads it: a
//! peer of another user that says to have written what it has not would have its readers pay for all of its arena. So of such peers'
//! arenas no more is read in place than a budget of the whole process. Beyond it bytes are read by `pread`, which makes no pages, and
//! costs a call: nobody is refused, and whose rings are within the budget pays nothing.

use core::sync::atomic::{AtomicUsize, Ordering};

use netchannel_abi::link::{Geometry, Role, SMALL_RING_LOG2};
use netchannel_abi::program::RELAY;
use netchannel_ring::bytes;

use super::LinkEnd;
use crate::descriptors::credentials;
use crate::ground::lock::Lock;
use crate::ground::sys;

/// Bytes of the arenas of other users' programs that this process reads in place.
const MOST: usize = 48 << 20;
/// Those that it may have touched.
static TOUCHED: AtomicUsize = AtomicUsize::new(0);

/// Arenas are counted by the smallest ring.
const GRAIN: u64 = 1 << (SMALL_RING_LOG2);

/// Which parts of the peer's arena count.
pub(super) struct Touched(Lock<Vec<u64>>);

impl Touched {
    pub const fn new() -> Self {
        Self(Lock::new(Vec::new()))
    }

    /// Counts `length` grains from `first` on. False, and nothing is counted, where the budget has no room for the new ones.
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

    /// The memory has gone back.
    fn forget(&self, budget: &AtomicUsize) {
        let words = self.0.lock().map(|mut words| core::mem::take(&mut *words));
        let grains: u32 = words.into_iter().flatten().map(u64::count_ones).sum();
        budget.fetch_sub(grains as usize * GRAIN as usize, Ordering::Relaxed);
    }
}

impl LinkEnd {
    /// Whether a larger ring of the peer's may be read in place.
    #[cold]
    pub fn may_touch(&self, ring: Geometry) -> bool {
        if ring.log2 <= SMALL_RING_LOG2 || self.is_of_own_user() {
            return true;
        }
        let start = self.layout.arena_start(self.role.other()) as u64;
        let first = ring.offset.saturating_sub(start) / GRAIN;
        self.touched
            .count(first as usize, (ring.size() / GRAIN) as usize, &TOUCHED)
    }

    /// Whether the peer could do nothing to this process that its user could not do anyway. A server that becomes another user's
    /// leaves its links.
    pub fn is_of_own_user(&self) -> bool {
        let own = netchannel_abi::directory::owner_word(credentials::owner());
        let is_daemon = self.relayed.load(Ordering::Relaxed)
            || self.role == Role::Client && self.listener == RELAY;
        is_daemon || self.owner_word() == own
    }

    pub(super) fn touches_no_more(&self) {
        self.touched.forget(&TOUCHED);
    }

    /// Copies bytes of a peer's ring without touching it: `length` of them from `sequence` on. Returns how many there were before an
    /// address of `to` faulted, `None` where the memory's descriptor is gone.
    ///
    /// # Safety
    /// As of `read`: `to` is the program's buffer.
    pub unsafe fn read_apart(
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
    use super::{GRAIN, MOST, Touched};
    use core::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn what_is_touched_again_counts_once_and_goes_back_with_its_link() {
        let budget = AtomicUsize::new(0);
        let used = || budget.load(Ordering::Relaxed) / GRAIN as usize;
        let (one, other) = (Touched::new(), Touched::new());
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
