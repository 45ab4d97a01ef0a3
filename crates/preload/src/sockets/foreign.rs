//! Memory of other programs that this process uses: their regions, for sockets that were inherited over exec or
//! received in messages, and links whose ledger another process keeps.

use std::sync::OnceLock;

use core::sync::atomic::{AtomicI32, Ordering};

use netchannel_abi::link::Role;
use netchannel_abi::program::{self, Header, SocketEntry};
use netchannel_shm::{Access, Outside, Region};

use crate::descriptors::table::{self, Kind};
use crate::descriptors::{attach, credentials, limits};
use crate::ground::lock::Lock;
use crate::ground::{mappings, sys};
use crate::sockets::link::LinkEnd;
use crate::sockets::{link, socket};

/// The first link of this process that is `wanted`. Registered by the module that has the links.
#[expect(clippy::type_complexity, reason = "it stands here alone")]
pub static OWN_LINK: OnceLock<
    fn(Role, &dyn Fn(&&'static LinkEnd) -> bool) -> Option<&'static LinkEnd>,
> = OnceLock::new();

fn own_link(role: Role, wanted: &dyn Fn(&&'static LinkEnd) -> bool) -> Option<&'static LinkEnd> {
    OWN_LINK.get().and_then(|own_link| own_link(role, wanted))
}

/// The region of another program. Never unmapped: a thread may still access it.
struct ForeignRegion {
    number: u64,
    entries: usize,
    region: Region,
    /// Its memfd, for handing sockets on; -1 where there was no number for it.
    memory: AtomicI32,
    /// Device and inode.
    identity: (u64, u64),
}

static REGIONS: Lock<Vec<&'static ForeignRegion>> = Lock::new(Vec::new());
static LINKS: Lock<Vec<&'static LinkEnd>> = Lock::new(Vec::new());

/// In a forked child, where other threads that held the locks do not exist.
pub fn reset_in_child() {
    REGIONS.reset();
    LINKS.reset();
}

/// Leaves the memory of all other programs: this process becomes another user's.
pub fn leave_all() {
    if let Some(mut regions) = REGIONS.lock() {
        for one in regions.drain(..) {
            attach::close_internal(one.memory.swap(-1, Ordering::AcqRel));
        }
    }
    if let Some(mut links) = LINKS.lock() {
        links.clear();
    }
}

/// Entry `index` of the region whose memfd is `memory` (which stays the caller's), and whether that is this process's
/// own region. Regions are compared by their memory: a number may be a former daemon's, or invented.
pub fn entry(
    number: u64,
    entries: usize,
    memory: i32,
    index: usize,
) -> Option<(&'static SocketEntry, bool)> {
    let own = attach::current()?;
    let offset = program::ENTRIES_OFFSET + index * size_of::<SocketEntry>();
    let sent = Outside::admit(memory, program::size(entries)).ok()?;
    if attach::memory_identity() == Some(sent.identity()) {
        return (index < own.entries).then(|| Some((own.region.at(offset)?, true)))?;
    }
    let mut regions = REGIONS.lock()?;
    let same = |one: &&ForeignRegion| one.identity == sent.identity();
    let found = match regions.iter().copied().find(same) {
        Some(found) => found,
        None => {
            let made = ForeignRegion {
                number,
                entries,
                region: sent.map(Access::ReadWrite).ok()?,
                memory: AtomicI32::new(duplicate_memory(memory)),
                identity: sent.identity(),
            };
            let made: &'static ForeignRegion = Box::leak(Box::new(made));
            mappings::note(&made.region);
            credentials::note_shared();
            regions.push(made);
            made
        }
    };
    (index < found.entries).then(|| Some((found.region.at(offset)?, false)))?
}

fn duplicate_memory(memory: i32) -> i32 {
    if limits::are_scarce() {
        return -1;
    }
    attach::duplicate(memory).map_or(-1, attach::make_internal)
}

/// The number of entries of the region that has `entry`, and its memfd.
pub fn memory(entry: &SocketEntry) -> Option<(usize, i32)> {
    let regions = REGIONS.lock()?;
    let region = regions.iter().find(|one| one.index(entry).is_some())?;
    Some((region.entries, region.memory.load(Ordering::Acquire)))
}

/// Notes that a descriptor of the library has a new number.
pub fn relocate(from: i32, to: i32) {
    let Some(regions) = REGIONS.lock() else {
        return;
    };
    for one in regions.iter() {
        let (order, memory) = (Ordering::Relaxed, &one.memory);
        let _ = memory.compare_exchange(from, to, order, order);
    }
}

impl ForeignRegion {
    /// The index of `entry`, if it lies in this region.
    fn index(&self, entry: &SocketEntry) -> Option<usize> {
        let first: &SocketEntry = self.region.at(program::ENTRIES_OFFSET)?;
        let distance = core::ptr::from_ref(entry)
            .addr()
            .checked_sub(core::ptr::from_ref(first).addr())?;
        let index = distance / size_of::<SocketEntry>();
        (index < self.entries).then_some(index)
    }
}

/// The region that has `entry`, and the entry's index.
pub fn location(entry: &SocketEntry) -> Option<(u64, usize)> {
    let regions = REGIONS.lock()?;
    regions
        .iter()
        .find_map(|one| Some((one.number, one.index(entry)?)))
}

/// The region that has `entry`, by the inode of its file, and the entry's index.
pub fn location_by_file(entry: &SocketEntry) -> Option<(u64, usize)> {
    let regions = REGIONS.lock()?;
    regions
        .iter()
        .find_map(|one| Some((one.identity.1, one.index(entry)?)))
}

/// The entry of that region and index, where this process has the region.
pub fn known_entry(file: u64, index: usize) -> Option<&'static SocketEntry> {
    let regions = REGIONS.lock()?;
    let known = regions.iter().copied().find(|one| one.identity.1 == file);
    let region = known.filter(|one| index < one.entries)?;
    let offset = program::ENTRIES_OFFSET + index * size_of::<SocketEntry>();
    region.region.at(offset)
}

/// Frees an entry in the region that has it.
pub fn free(entry: &SocketEntry) {
    let Some(regions) = REGIONS.lock() else {
        return;
    };
    for one in regions.iter() {
        if let (Some(index), Some(header)) = (one.index(entry), one.region.at::<Header>(0)) {
            return socket::free_entry(header, index, entry);
        }
    }
}

/// The link of a received memfd, which is consumed. It came with a socket or a connection that was handed on, which
/// counts as a user of the link until [`LinkEnd::remove_user`]. Links are compared by their memory, as regions are.
pub fn link(
    role: Role,
    number: u64,
    listener: u32,
    sizes: (u64, u64),
    memory: i32,
) -> Option<&'static LinkEnd> {
    let mut links = LINKS.lock()?;
    let identity = link::identity(sizes, memory);
    if let Some(known) = identity.and_then(|identity| use_known(&links, role, identity)) {
        sys::close(memory);
        return Some(known);
    }
    let link = LinkEnd::borrow(role, number, listener, sizes, memory)?;
    link.add_user();
    links.push(link);
    release_idle(&mut links);
    Some(link)
}

/// A link with this memory. One of this process's own that has ended gives its memory up.
fn find(links: &[&'static LinkEnd], role: Role, identity: (u64, u64)) -> Option<&'static LinkEnd> {
    let same = |link: &&'static LinkEnd| link.identity == identity && link.role == role;
    own_link(role, &|link| same(link) && link.is_alive())
        .or_else(|| links.iter().copied().find(same))
}

/// As [`link`], where this process has the link, and no number for its memory.
pub fn known_link(role: Role, identity: (u64, u64)) -> Option<&'static LinkEnd> {
    use_known(&LINKS.lock()?, role, identity)
}

/// As [`find`], with one more user.
fn use_known(
    links: &[&'static LinkEnd],
    role: Role,
    identity: (u64, u64),
) -> Option<&'static LinkEnd> {
    let known = find(links, role, identity)?.begin_use()?;
    Some(known.keep())
}

/// Whether this process has the link with this memory.
pub fn knows_link(role: Role, identity: (u64, u64)) -> bool {
    LINKS
        .lock()
        .is_some_and(|links| find(&links, role, identity).is_some())
}

/// The link of that number over which connections came through a queue, if this process has it.
pub fn known_queued(role: Role, number: u64) -> Option<&'static LinkEnd> {
    let links = LINKS.lock()?;
    let same = |link: &&LinkEnd| link.is_queued() && link.role == role && link.number == number;
    links.iter().copied().find(same)
}

/// A link, by its number, over which connections of that user came through a queue before. Counts one more user of it.
pub fn queued_link(number: u64, listener: u32, user: u32) -> Option<&'static LinkEnd> {
    let links = LINKS.lock()?;
    let same = |link: &&LinkEnd| {
        link.is_queued()
            && link.number == number
            && link.listener == listener
            && link.user() == Some(user)
    };
    let known = links.iter().copied().find(same)?;
    known.add_user();
    Some(known)
}

/// Idle links that are kept because their clients may connect again: making a link costs more than a connection.
const MOST_IDLE: usize = 16;

/// Releases idle links whose clients have ended, and the oldest ones beyond the number that is kept.
fn release_idle(links: &mut Vec<&'static LinkEnd>) {
    let is_idle =
        |link: &&&'static LinkEnd| link.is_queued() && link.live.load(Ordering::Acquire) == 0;
    let mut surplus = links
        .iter()
        .filter(is_idle)
        .count()
        .saturating_sub(MOST_IDLE);
    links.retain(|link| {
        let is_released = is_idle(&link) && (surplus > 0 || link.has_client_ended());
        if is_released {
            surplus = surplus.saturating_sub(1);
            link.end_borrowed();
        }
        !is_released
    });
}

/// Called when the last socket over a borrowed link has ended: releases the link, unless another socket uses it by now.
pub fn unused(link: &LinkEnd) {
    let Some(mut links) = LINKS.lock() else {
        return;
    };
    if link.is_queued() && links.len() <= MOST_IDLE {
        return;
    }
    if link.live.load(Ordering::Acquire) == 0
        && let Some(place) = links.iter().position(|one| core::ptr::eq(*one, link))
    {
        links.swap_remove(place);
        drop(links);
        link.end_borrowed();
    }
}

/// The links that sockets of this process use.
pub fn links_in_use() -> Vec<&'static LinkEnd> {
    let mut used: Vec<&'static LinkEnd> = Vec::new();
    table::for_each(|_, word| {
        if word.kind() == Kind::Virtual
            && let Some(link) = socket::of_word(word).and_then(|socket| socket.link())
            && !used.iter().any(|one| core::ptr::eq(*one, link))
        {
            used.push(link);
        }
    });
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchannel_abi::LAYOUT_HASH;
    use netchannel_abi::link::{Header as LinkHeader, Layout, MAGIC};

    const LAYOUT: Layout = Layout {
        slots: 4,
        arena: 4 << 20,
    };

    /// A link as the daemon makes it; all of them have the same number.
    fn made() -> i32 {
        let (fd, region) = Region::create(c"netchannel-link", LAYOUT.size()).unwrap();
        let header: &LinkHeader = region.at(0).unwrap();
        header.layout_hash.store(LAYOUT_HASH, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Relaxed);
        fd
    }

    #[test]
    fn memory_is_told_apart_by_itself() {
        let sent = |memory| {
            let sizes = (LAYOUT.slots as u64, LAYOUT.arena as u64);
            link(Role::Server, 7, 1, sizes, memory)
        };
        let (one, other) = (made(), made());
        let again = sys::duplicate(one, 0, true).unwrap();
        let one = sent(one).unwrap();
        let other = sent(other).unwrap();
        assert!(
            !core::ptr::eq(one, other),
            "another's memory under a number that is known"
        );
        assert!(core::ptr::eq(one, sent(again).unwrap()));
        assert_eq!(one.live.load(Ordering::Relaxed), 2);
    }
}
