//! What of a link this process has mapped: at first its head, some slots and their small rings; the rest when it is used. Where a limit
//! of the process allows no more, a larger ring of its own is not taken, a connection that comes waits, and bytes of the peer's rings are
//! read by calls: nobody's connection is broken, and nothing of what was sent is lost.

use netchannel_abi::link::{Geometry, Role, Slot};
use netchannel_ring::bytes;
use netchannel_shm::Outside;

use super::LinkEnd;
use crate::{ballast, sys};

impl LinkEnd {
    /// Whether a ring is mapped.
    #[inline]
    pub fn has(&self, ring: Geometry) -> bool {
        self.region.has(ring.offset as usize, ring.size() as usize)
    }

    /// Maps a ring, which was accepted. False where that is not allowed.
    #[inline]
    pub fn reach(&self, ring: Geometry) -> bool {
        self.has(ring) || self.map_more(ring.offset as usize, ring.size() as usize)
    }

    /// The slot at `place`, which is not mapped yet.
    #[cold]
    pub(super) fn slot_to_map(&self, place: usize) -> Option<&Slot> {
        let mapped = self.map_more(place, size_of::<Slot>());
        mapped.then(|| self.region.at(place))?
    }

    /// Whether a connection can not do without what lies there: larger rings it can.
    fn is_needed(&self, offset: usize) -> bool {
        offset < self.layout.arena_start(Role::Client)
    }

    #[cold]
    fn map_more(&self, offset: usize, length: usize) -> bool {
        let memory = self.memory();
        // By its number the program may have closed it, past libc: then it names another file.
        let sent = Outside::admit(memory, self.layout.size());
        let own = sent.ok().filter(|sent| sent.identity() == self.identity);
        let grow = || own.is_some_and(|own| self.region.grow(&own, offset, length));
        grow() || self.is_needed(offset) && ballast::drop() && grow()
    }

    /// A free block of this end's arena keeps no memory, whether it is mapped here or not.
    pub(super) fn release_pages(&self, block: Geometry) {
        let (offset, length) = (block.offset as usize, block.size() as usize);
        if self.has(block) {
            return self.region.release_pages(offset, length);
        }
        let memory = self.memory();
        if memory >= 0 {
            let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let words = [sys::int(memory), sys::int(how), offset, length, 0, 0];
            // SAFETY: no pointers.
            let _ = unsafe { sys::raw(libc::SYS_fallocate, words) };
        }
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
        // SAFETY: the caller's promise.
        unsafe { self.move_apart(libc::SYS_pread64, ring, sequence, to, length) }
    }

    /// Copies bytes to a ring of this side that is not mapped, as [`Self::read_apart`] does from one.
    ///
    /// # Safety
    /// As of `write`: `from` is the program's buffer.
    pub unsafe fn write_apart(
        &self,
        ring: Geometry,
        sequence: u64,
        from: *const u8,
        length: u64,
    ) -> Option<u64> {
        // SAFETY: the caller's promise; nothing is written there.
        unsafe { self.move_apart(libc::SYS_pwrite64, ring, sequence, from.cast_mut(), length) }
    }

    /// # Safety
    /// As of the call: `buffer` is the program's.
    unsafe fn move_apart(
        &self,
        call: libc::c_long,
        ring: Geometry,
        sequence: u64,
        buffer: *mut u8,
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
                let place = buffer.wrapping_add(done as usize).expose_provenance();
                let at = ring.offset + offset + (length - left);
                let words = [sys::int(memory), place, left as usize, at as usize, 0, 0];
                // SAFETY: the caller's promise; the kernel checks the buffer.
                match unsafe { sys::raw(call, words) } {
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
