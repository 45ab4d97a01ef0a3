//! The end of a link, noticed or declared, and the release of its pool and its memory.

use std::sync::OnceLock;

use core::sync::atomic::Ordering;

use netchannel_shm::{Access, Region, Vacancy};

use super::LinkEnd;
use crate::descriptors::attach;
use crate::ground::lock::Lock;
use crate::ground::{addresses, clock, mappings, sys};

/// Called when the last socket over a borrowed link has ended. Registered by the module that borrows links.
pub static UNUSED: OnceLock<fn(&LinkEnd)> = OnceLock::new();

impl LinkEnd {
    fn drop_memory(&self) {
        attach::close_internal(self.memory.swap(-1, Ordering::AcqRel));
    }

    /// Counts one user of the link less, after the end of its socket was published.
    pub fn remove_user(&self) {
        if self.live.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        if self.is_borrowed() {
            UNUSED.get().inspect(|unused| unused(self));
        } else if !self.is_alive() {
            self.drop_memory();
            self.vacate();
        }
    }

    /// Counts one user of the link more. Borrowed links are counted so under the lock with which they are looked up.
    pub fn add_user(&self) {
        self.live.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether another process keeps its ledger.
    const fn is_borrowed(&self) -> bool {
        self.owner == 0
    }

    /// Releases a borrowed link that no socket uses and no look-up finds any more.
    pub fn end_borrowed(&self) {
        self.dead.store(true, Ordering::Release);
        self.drop_memory();
        self.vacate();
    }

    /// Whether the other process lives; asks the kernel.
    pub fn check(&self) -> bool {
        if !self.is_alive() {
            return false;
        }
        let now = clock::now();
        if now.wrapping_sub(self.checked.load(Ordering::Relaxed)) < 50 * clock::MICROSECOND {
            return true;
        }
        self.checked.store(now, Ordering::Relaxed);
        // Without a channel of its own this process can only know it from others.
        let Some(gone) = self.channel.with(sys::has_hung_up) else {
            return self.is_alive();
        };
        if gone {
            self.fail();
        }
        !gone
    }

    /// Ends the link for new connections and closes the pool: the other end has ended or broke the rules. Sockets in
    /// use find out by their anchors.
    pub fn fail(&self) {
        if self.dead.swap(true, Ordering::AcqRel) || !self.is_own() {
            return;
        }
        let Some(mut state) = self.state.lock() else {
            return;
        };
        for lent in &mut state.slots {
            attach::close_internal(core::mem::replace(&mut lent.anchor, -1));
        }
        state.free.clear();
        drop(state);
        self.channel.end();
        if self.live.load(Ordering::Acquire) == 0 {
            self.drop_memory();
            self.vacate();
        }
    }

    /// Releases the memory: no thread of this process uses the link any more, or will.
    fn vacate(&self) {
        if self.vacated.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(mut state) = self.state.lock() {
            (state.slots, state.free) = (Vec::new(), Vec::new());
            (state.without_anchor, state.closing) = (Vec::new(), Vec::new());
        }
        mappings::forget(&self.region);
        self.uncount_touched();
        if let Some(vacancy) = self.region.vacate()
            && let Some(mut vacant) = VACANT.lock()
        {
            vacant.push(vacancy);
        }
    }

    /// Leaves the link in a process that becomes another user's; relatives may go on with it. Its memory is left
    /// together with all other shared memory.
    fn leave_shared(&self) {
        self.dead.store(true, Ordering::Release);
        if let Some(mut state) = self.state.lock() {
            for lent in &mut state.slots {
                attach::close_internal(core::mem::replace(&mut lent.anchor, -1));
            }
            state.free.clear();
        }
        self.channel.end();
        self.drop_memory();
        self.uncount_touched();
        // Its addresses are not reused for another link: a call of another thread may still be in this one.
        self.vacated.store(true, Ordering::Release);
    }

    /// In a forked child: the pool and the channel stay the parent's. With `used`, sockets of the child use the link
    /// and the memfd stays open, since the child may hand them on.
    pub fn close_in_child(&self, used: bool) {
        self.state.reset();
        self.reading.reset();
        if let Some(mut state) = self.state.lock() {
            for lent in &mut state.slots {
                attach::close_internal(core::mem::replace(&mut lent.anchor, -1));
            }
        }
        self.channel.end_in_child();
        if !used {
            self.drop_memory();
        }
    }
}

/// Addresses of ended links. A link's region is never unmapped, since another thread may still access it. It is
/// replaced by zero pages, and the next link takes its place.
static VACANT: Lock<Vec<Vacancy>> = Lock::new(Vec::new());

/// Links whose memory this process has mapped, also those of its parent.
static ALL: Lock<Vec<&'static LinkEnd>> = Lock::new(Vec::new());

/// Registers a new link.
pub(super) fn register(link: LinkEnd) -> &'static LinkEnd {
    let link: &'static LinkEnd = Box::leak(Box::new(link));
    mappings::note(&link.region);
    if let Some(mut all) = ALL.lock() {
        all.retain(|one| !one.vacated.load(Ordering::Relaxed));
        all.push(link);
    }
    link
}

/// Leaves all links: the process becomes another user's. Their memory follows.
pub fn leave_all() {
    let all = ALL.lock().map(|mut all| core::mem::take(&mut *all));
    all.into_iter().flatten().for_each(LinkEnd::leave_shared);
}

/// In a forked child, where other threads that held the locks do not exist.
pub fn reset_in_child() {
    VACANT.reset();
    ALL.reset();
}

pub(super) fn map(memory: i32, size: usize) -> Option<Region> {
    let vacancy = VACANT.lock().and_then(|mut vacant| {
        let index = vacant.iter().position(|vacancy| vacancy.size() == size)?;
        Some(vacant.swap_remove(index))
    });
    match vacancy {
        Some(vacancy) => Region::map_into(vacancy, memory, Access::ReadWrite).ok(),
        None => addresses::with_room(size, || Region::map(memory, size, Access::ReadWrite)).ok(),
    }
}
