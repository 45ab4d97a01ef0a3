//! The end of a link, noticed or declared, and the release of its pool and its memory.

use std::collections::VecDeque;
use std::sync::OnceLock;

use core::ops::Deref;
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

    /// Begins a use of the link: its memory stays until the use is dropped. `None` where the link has ended.
    pub fn begin_use(&'static self) -> Option<LinkUse> {
        self.live.fetch_add(1, Ordering::SeqCst);
        let used = LinkUse(self);
        // Pairs with the swap in `fail`: either the end is seen here, or the user there.
        (!self.dead.load(Ordering::SeqCst)).then_some(used)
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
            self.peer_has_ended();
        }
        !gone
    }

    /// Ends the link for new connections and closes the pool: the other end has ended or broke the rules. Sockets in
    /// use find out by their anchors.
    pub fn fail(&self) {
        // Pairs with the load in `begin_use`.
        if self.dead.swap(true, Ordering::SeqCst) || !self.is_own() {
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
        if self.live.load(Ordering::SeqCst) == 0 {
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
        leave_vacant(&self.region);
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

/// A use of a link by a thread that has looked it up.
pub struct LinkUse(&'static LinkEnd);

impl LinkUse {
    /// The link, for those who look whether it is alive whenever they use it.
    pub const fn link(&self) -> &'static LinkEnd {
        self.0
    }

    /// Lets it go on until [`LinkEnd::remove_user`].
    pub const fn keep(self) -> &'static LinkEnd {
        let link = self.0;
        core::mem::forget(self);
        link
    }
}

impl Deref for LinkUse {
    type Target = LinkEnd;
    fn deref(&self) -> &LinkEnd {
        self.0
    }
}

impl Drop for LinkUse {
    fn drop(&mut self) {
        self.0.remove_user();
    }
}

/// Addresses of ended links, and since when they are vacant. A link's region is never unmapped, since another thread may
/// still access it. It is replaced by zero pages, and some time later another link takes its place.
static VACANT: Lock<VecDeque<(Vacancy, u64)>> = Lock::new(VecDeque::new());
/// How long addresses stay vacant: a late access must not reach the link that takes their place.
const VACANT_TIME: u64 = 100_000 * clock::MICROSECOND;

fn leave_vacant(region: &Region) {
    if let Some(vacancy) = region.vacate()
        && let Some(mut vacant) = VACANT.lock()
    {
        vacant.push_back((vacancy, clock::now()));
    }
}

/// Leaves the region of a link that was refused. Its addresses may be those of an ended link.
pub(super) fn refuse(region: Region) {
    leave_vacant(&region);
    core::mem::forget(region);
}

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

/// Maps the memory of a link.
pub(super) fn map(memory: i32, size: usize) -> Option<Region> {
    let into = |vacancy| Region::map_into(vacancy, memory, Access::ReadWrite).ok();
    if let Some(vacancy) = take_vacant(size, VACANT_TIME) {
        return into(vacancy);
    }
    let anywhere = addresses::with_room(size, || Region::map(memory, size, Access::ReadWrite));
    // Where there is room for no more addresses, late accesses are the smaller harm.
    anywhere
        .ok()
        .or_else(|| take_vacant(size, 0).and_then(into))
}

/// The oldest addresses that have been vacant for that time.
fn take_vacant(size: usize, time: u64) -> Option<Vacancy> {
    let mut vacant = VACANT.lock()?;
    let now = clock::now();
    let fits = |(vacancy, since): &(Vacancy, u64)| {
        vacancy.size() == size && now.saturating_sub(*since) >= time
    };
    let place = vacant.iter().position(fits)?;
    vacant.remove(place).map(|(vacancy, _)| vacancy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchannel_abi::LAYOUT_HASH;
    use netchannel_abi::link::{Header, Layout, MAGIC, Role};

    /// As the daemon makes it, with a size that no other test has.
    fn offered(arena: usize, magic: u64) -> Option<&'static LinkEnd> {
        let layout = Layout { slots: 4, arena };
        let (memory, region) = Region::create(c"netchannel-link", layout.size()).unwrap();
        let header: &Header = region.at(0).unwrap();
        header.layout_hash.store(LAYOUT_HASH, Ordering::Relaxed);
        header.magic.store(magic, Ordering::Relaxed);
        let channel = sys::socket_pair(libc::SOCK_SEQPACKET).unwrap();
        let sizes = (layout.slots as u64, layout.arena as u64);
        LinkEnd::adopt(Role::Server, 1, 1, sizes, 0, &[memory, channel.0])
    }

    fn base(link: &LinkEnd) -> *const Header {
        core::ptr::from_ref(link.region.at(0).unwrap())
    }

    fn wait_until_vacant() {
        let until = clock::now() + VACANT_TIME;
        while clock::now() <= until {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_link_in_use_keeps_its_memory_from_the_next_one() {
        let link = offered(8 << 20, MAGIC).unwrap();
        let used = link.begin_use().unwrap();
        link.fail();
        wait_until_vacant();
        let next = offered(8 << 20, MAGIC).unwrap();
        assert!(base(next) != base(&used) && !link.vacated.load(Ordering::Relaxed));
        assert!(link.begin_use().is_none(), "it has ended");
        drop(used);
        assert!(link.vacated.load(Ordering::Relaxed));
    }

    #[test]
    fn addresses_are_vacant_for_a_while_and_used_again() {
        let link = offered(16 << 20, MAGIC).unwrap();
        link.fail();
        let at_once = offered(16 << 20, MAGIC).unwrap();
        assert!(base(at_once) != base(link));
        wait_until_vacant();
        let later = offered(16 << 20, MAGIC).unwrap();
        assert_eq!(base(later), base(link));
    }

    #[test]
    fn a_refused_link_leaves_no_hole() {
        let link = offered(32 << 20, MAGIC).unwrap();
        link.fail();
        wait_until_vacant();
        assert!(offered(32 << 20, !MAGIC).is_none());
        // A thread that looked the link up before its end.
        link.finish_leaving(true);
        let slot = link.slot(0).unwrap();
        assert_eq!(slot.meta.generation.load(Ordering::Relaxed), 0);
    }
}
