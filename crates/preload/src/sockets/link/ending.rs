//! The end of a link: noticed, or declared; and what becomes of its pool and its memory.

use std::sync::OnceLock;

use core::sync::atomic::Ordering;

use netchannel_shm::{Access, Region, Vacancy};

use super::LinkEnd;
use crate::descriptors::attach;
use crate::ground::lock::Lock;
use crate::ground::{addresses, clock, mappings, sys};

/// The last socket over a borrowed link is gone. Who borrows links registers it.
pub static UNUSED: OnceLock<fn(&LinkEnd)> = OnceLock::new();

impl LinkEnd {
    fn drop_memory(&self) {
        attach::close_internal(self.memory.swap(-1, Ordering::AcqRel));
    }

    /// One socket less of this process uses the link: called when all about it has been said.
    pub fn used_less(&self) {
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

    /// One more does. Borrowed links are counted so while they are found.
    pub fn used_more(&self) {
        self.live.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether another process keeps its ledger and lives on when this one's sockets are gone.
    const fn is_borrowed(&self) -> bool {
        self.owner == 0
    }

    /// A borrowed link that nobody uses and nobody will find any more.
    pub fn give_back(&self) {
        self.dead.store(true, Ordering::Release);
        self.drop_memory();
        self.vacate();
    }

    /// Whether the other process ended; asks the kernel.
    pub fn check(&self) -> bool {
        if !self.is_alive() {
            return false;
        }
        let now = clock::now();
        if now.wrapping_sub(self.checked.load(Ordering::Relaxed)) < 50 * clock::MICROSECOND {
            return true;
        }
        self.checked.store(now, Ordering::Relaxed);
        // Without a channel of its own this process can not tell, unless it was told.
        let Some(gone) = self.channel.with(sys::has_hung_up) else {
            return self.is_alive();
        };
        if gone {
            self.fail();
        }
        !gone
    }

    /// The other end is gone or broke the rules: no new connection, and the pool is closed. Sockets
    /// in use find out by their anchors.
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

    /// Nobody of this process uses the link any more, and nobody will: its memory goes back.
    fn vacate(&self) {
        if self.vacated.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(mut state) = self.state.lock() {
            (state.slots, state.free) = (Vec::new(), Vec::new());
            (state.bare, state.closing) = (Vec::new(), Vec::new());
        }
        mappings::forget(&self.region);
        self.touches_no_more();
        if let Some(vacancy) = self.region.vacate()
            && let Some(mut vacant) = VACANT.lock()
        {
            vacant.push(vacancy);
        }
    }

    /// This process is another user's: it has no part in the link any more, whatever its relatives go on with. Its memory goes with
    /// all other memory that is shared.
    fn forsake(&self) {
        self.dead.store(true, Ordering::Release);
        if let Some(mut state) = self.state.lock() {
            for lent in &mut state.slots {
                attach::close_internal(core::mem::replace(&mut lent.anchor, -1));
            }
            state.free.clear();
        }
        self.channel.end();
        self.drop_memory();
        self.touches_no_more();
        // Not for another link: a call of another thread may still be in this one.
        self.vacated.store(true, Ordering::Release);
    }

    /// In a forked child: the pool and the channel stay the parent's. The memory stays while
    /// sockets of the child are `used` over it: it may hand them on.
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

/// Addresses of links that ended. A link's region is never unmapped, since another thread may still
/// look at it; it is replaced by zero pages, and the next link takes its place.
static VACANT: Lock<Vec<Vacancy>> = Lock::new(Vec::new());

/// Links whose memory this process has, also those of its parent.
static ALL: Lock<Vec<&'static LinkEnd>> = Lock::new(Vec::new());

/// A link is known from now on.
pub(super) fn known(link: LinkEnd) -> &'static LinkEnd {
    let link: &'static LinkEnd = Box::leak(Box::new(link));
    mappings::note(&link.region);
    if let Some(mut all) = ALL.lock() {
        all.retain(|one| !one.vacated.load(Ordering::Relaxed));
        all.push(link);
    }
    link
}

/// The process is another user's: it lets all links go. Their memory follows.
pub fn forsake_all() {
    let all = ALL.lock().map(|mut all| core::mem::take(&mut *all));
    all.into_iter().flatten().for_each(LinkEnd::forsake);
}

/// In a forked child no other thread holds the locks.
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
