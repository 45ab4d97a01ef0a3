//! The entries of the region: allocated and freed.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use netchannel_abi::program::{self, Direction, Header, SocketEntry, State};
use netchannel_shm::Region;

use super::{Socket, entry, local, reset_local};
use crate::descriptors::attach::header;
use crate::descriptors::table::{Kind, Word};
use crate::descriptors::{attach, faults};
use crate::ground::process;
use crate::sockets::owner_table;

/// The initial class of a socket: that of `netchannel run --class`.
#[unsafe(link_section = ".data.netchannel_start")]
static INITIAL: AtomicU32 = AtomicU32::new(0);

/// Sets the initial class of sockets, at the start.
pub fn set_initial_hints(hints: u32) {
    INITIAL.store(hints, Ordering::Relaxed);
}

/// Allocates a free entry. It has one reference, no address and no options.
pub fn allocate(kind: Kind, state: State) -> Option<Socket> {
    faults::ensure();
    owner_table::collect_if_due();
    let header = header()?;
    let index = take_free(header).or_else(|| {
        owner_table::collect_all();
        take_free(header)
    })?;
    owner_table::note(index, true);
    let (entry, local) = (entry(index)?, local(index)?);
    for word in [
        &entry.reason,
        &entry.status,
        &entry.slot,
        &entry.generation,
        &entry.listener,
        &entry.travels,
    ] {
        word.store(0, Ordering::Relaxed);
    }
    for word in [
        &entry.linger,
        &entry.flags,
        &entry.low_water,
        &entry.anchor_lock,
        &entry.options_lock,
        &entry.option_words,
    ] {
        word.store(0, Ordering::Relaxed);
    }
    forget_marks(entry);
    entry
        .hints
        .store(INITIAL.load(Ordering::Relaxed), Ordering::Relaxed);
    entry.error.store(0, Ordering::Relaxed);
    entry.peek_offset.store(-1, Ordering::Relaxed);
    entry.link.store(0, Ordering::Relaxed);
    entry.receive_timeout.store(0, Ordering::Relaxed);
    entry.send_timeout.store(0, Ordering::Relaxed);
    entry
        .local
        .store(&netchannel_abi::address::Address::default());
    entry
        .peer
        .store(&netchannel_abi::address::Address::default());
    for direction in [&entry.transmit, &entry.receive] {
        clear(direction);
    }
    entry.life.fetch_add(1, Ordering::Relaxed);
    entry.references.store(1, Ordering::Relaxed);
    entry.process.store(process::number(), Ordering::Relaxed);
    reset_local(local);
    entry.state.store(state as u32, Ordering::Release);
    let tag = local.tag.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let word = Word::new(kind, u32::try_from(index).ok()?, tag);
    let socket = Socket { entry, local, word };
    Some(socket)
}

pub(super) fn forget_marks(entry: &SocketEntry) {
    for word in [
        &entry.urgent_sent,
        &entry.urgent_passed,
        &entry.urgent_taken,
        &entry.held,
    ] {
        word.store(0, Ordering::Relaxed);
    }
}

pub(super) fn clear(direction: &Direction) {
    direction.sleepers.store(0, Ordering::Relaxed);
    direction.own.store(0, Ordering::Relaxed);
    direction.noted.store(0, Ordering::Relaxed);
    direction.geometry.store(0, Ordering::Relaxed);
    direction.former_geometry.store(0, Ordering::Relaxed);
    direction.switch_sequence.store(0, Ordering::Relaxed);
    direction.limit.store(0, Ordering::Relaxed);
    direction.flags.store(0, Ordering::Relaxed);
    direction.news.store(0, Ordering::Relaxed);
}

/// Fills a region with copies of the used entries, which only this process holds from now on; all others are free.
pub fn copy_into(region: &Region, used: &[usize]) -> Option<()> {
    let own = attach::current()?;
    let from: &Header = own.region.at(0)?;
    let to: &Header = region.at(0)?;
    to.layout_hash
        .store(from.layout_hash.load(Ordering::Relaxed), Ordering::Relaxed);
    to.entries
        .store(from.entries.load(Ordering::Relaxed), Ordering::Relaxed);
    to.magic
        .store(from.magic.load(Ordering::Relaxed), Ordering::Release);
    let first_unused = used.iter().max().map_or(0, |last| last + 1);
    to.high_water
        .store(u32::try_from(first_unused).ok()?, Ordering::Relaxed);
    const WORDS: usize = size_of::<SocketEntry>() / size_of::<AtomicU64>();
    for index in (0..first_unused).rev() {
        let offset = program::ENTRIES_OFFSET + index * size_of::<SocketEntry>();
        let entry: &SocketEntry = region.at(offset)?;
        if !used.contains(&index) {
            free_entry(to, index, entry);
            continue;
        }
        let words = |region: &Region| region.slice::<AtomicU64>(offset, WORDS).map(<[_]>::as_ptr);
        let (copy, source) = (words(region)?, words(own.region)?);
        for word in 0..WORDS {
            // SAFETY: both slices have so many words, in mappings that live on meanwhile.
            unsafe {
                (*copy.add(word)).store(
                    (*source.add(word)).load(Ordering::Relaxed),
                    Ordering::Relaxed,
                )
            };
        }
        entry.references.store(1, Ordering::Relaxed);
        entry.travels.store(0, Ordering::Relaxed);
        entry.process.store(process::number(), Ordering::Relaxed);
        for lock in [
            &entry.transmit.lock,
            &entry.receive.lock,
            &entry.anchor_lock,
            &entry.options_lock,
        ] {
            lock.store(0, Ordering::Relaxed);
        }
    }
    Some(())
}

fn take_free(header: &Header) -> Option<usize> {
    let entries = attach::current()?.entries;
    loop {
        let head = header.free.load(Ordering::Acquire);
        let index = usize::try_from(head & 0xffff_ffff).ok()?;
        if index == 0 {
            break;
        }
        let next = u64::from(entry(index - 1)?.next_free.load(Ordering::Relaxed));
        // The upper half is a counter, so that a head that was removed and added again is noticed.
        let new = (head >> 32).wrapping_add(1) << 32 | next;
        if header
            .free
            .compare_exchange(head, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            return Some(index - 1);
        }
    }
    let fresh = header.high_water.fetch_add(1, Ordering::Relaxed) as usize;
    if fresh < entries {
        return Some(fresh);
    }
    header.high_water.fetch_sub(1, Ordering::Relaxed);
    None
}

/// Adds an entry to the free list of its region.
pub fn free_entry(header: &Header, index: usize, entry: &SocketEntry) {
    entry.references.store(0, Ordering::Relaxed);
    entry.state.store(State::Free as u32, Ordering::Release);
    let Ok(own) = u64::try_from(index + 1) else {
        return;
    };
    loop {
        let head = header.free.load(Ordering::Acquire);
        entry
            .next_free
            .store((head & 0xffff_ffff) as u32, Ordering::Relaxed);
        let new = (head >> 32).wrapping_add(1) << 32 | own;
        if header
            .free
            .compare_exchange(head, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            return;
        }
    }
}
