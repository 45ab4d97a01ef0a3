//! One end of a link, held by the daemon: the region shared with one program, the pool of anchors and the ledger of
//! slots. It speaks the same protocol as the library's ends, towards a program that may be hostile: a bad word is a
//! fault, which ends the link.

use super::anchor::{Anchor, Count};
use netchannel_abi::LAYOUT_HASH;
use netchannel_abi::answer::{self, Answer};
use netchannel_abi::handle::Handle;
use netchannel_abi::link::{CELLS, Cell, Geometry, Header, Layout, MAGIC, Role, Side, Slot};
use netchannel_ring::arena::Arena;
use netchannel_ring::cell;
use netchannel_ring::queue::{Consumer, Producer};
use netchannel_shm::{Access, Region};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What CoreEngine hands over for a link.
#[derive(Debug)]
pub struct Parts {
    /// The daemon's number for the link.
    pub number: u64,
    /// Which end the daemon gets.
    pub role: Role,
    /// Sizes of the link.
    pub layout: Layout,
    /// Its memory.
    pub memory: OwnedFd,
    /// The link channel.
    pub channel: OwnedFd,
    /// Anchors of the first slots.
    pub anchors: Vec<OwnedFd>,
    /// The user of the program that makes connections over the link, if a program does.
    pub user: Option<u32>,
}

/// One end of a link.
#[derive(Debug)]
pub struct LinkEnd {
    number: u64,
    role: Role,
    user: Option<u32>,
    pub(super) layout: Layout,
    pub(super) region: Region,
    pub(super) channel: OwnedFd,
    dead: AtomicBool,
    /// Anchors in the pool.
    pub(super) pooled: AtomicUsize,
    /// Connections that use the link.
    pub(super) live: AtomicUsize,
    cells: AtomicU32,
    pub(super) count: Arc<Count>,
    state: Mutex<State>,
}

/// The state of a slot at this end.
#[derive(Debug, Default)]
pub(super) struct SlotState {
    pub generation: u32,
    /// How many anchor pairs the slot has had. Both ends count the same.
    pub pairs: u32,
    pub anchor: Option<Anchor>,
    pub busy: bool,
    /// Transmit rings of the last connection, which the program may still read.
    pub blocks: [Option<Geometry>; 2],
    /// (client) Bytes of the program's ring of the last connection whose pages are kept until the next one.
    pub kept: u64,
}

#[derive(Debug)]
pub(super) struct State {
    pub slots: Vec<SlotState>,
    /// (client) Slots with an anchor, ready for a connection.
    pub free: Vec<u32>,
    /// (client) Slots without an anchor.
    pub bare: Vec<u32>,
    /// (client) Slots closed by this end, not yet closed by the server.
    pub closing: Vec<u32>,
    /// (server) Slots closed by this end, with rings that the program may still read.
    pub retained: Vec<u32>,
    /// (client) The sum of `kept` over all slots.
    pub kept: u64,
    pub arena: Arena,
    pub producer: Producer,
    pub consumer: Consumer,
}

/// A slot with its anchor, lent to one connection.
#[derive(Debug)]
pub struct Loan {
    /// The slot and its generation.
    pub handle: Handle,
    /// The anchor.
    pub anchor: Anchor,
}

impl LinkEnd {
    /// Takes over one end of a link: maps its memory and closes the descriptor. `None` where it can not be mapped or is
    /// no link of this daemon. Its anchors are counted.
    #[must_use]
    pub fn new(parts: Parts, count: &Arc<Count>) -> Option<Self> {
        let layout = parts.layout;
        if !layout.is_valid() {
            return None;
        }
        let memory = parts.memory.as_raw_fd();
        let region = Region::map(memory, layout.size(), Access::ReadWrite).ok()?;
        let header: &Header = region.at(0)?;
        if header.magic.load(Ordering::Relaxed) != MAGIC
            || header.layout_hash.load(Ordering::Relaxed) != LAYOUT_HASH
        {
            return None;
        }
        let start = u64::try_from(layout.arena_start(parts.role)).ok()?;
        let arena = Arena::new(start, u64::try_from(layout.arena).ok()?);
        let state = State {
            slots: Vec::new(),
            free: Vec::new(),
            bare: Vec::new(),
            closing: Vec::new(),
            retained: Vec::new(),
            kept: 0,
            arena,
            producer: Producer::at(0),
            consumer: Consumer::at(0),
        };
        let link = Self {
            number: parts.number,
            role: parts.role,
            user: parts.user,
            layout,
            region,
            channel: parts.channel,
            dead: AtomicBool::new(false),
            pooled: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            cells: AtomicU32::new(0),
            count: Arc::clone(count),
            state: Mutex::new(state),
        };
        for (slot, anchor) in parts.anchors.into_iter().enumerate() {
            link.add_anchor(slot, anchor);
        }
        Some(link)
    }

    /// The daemon's number for the link.
    #[must_use]
    #[inline]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Which end this is.
    #[must_use]
    #[inline]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// The user of the program that makes connections over the link.
    #[must_use]
    #[inline]
    pub const fn user(&self) -> Option<u32> {
        self.user
    }

    /// The shared memory, to turn spans into runs.
    #[must_use]
    #[inline]
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// The link channel. It carries doorbells and anchors, and its hang-up is the end of the other process.
    #[must_use]
    #[inline]
    pub const fn channel(&self) -> &OwnedFd {
        &self.channel
    }

    /// The number of connections that use the link.
    #[must_use]
    #[inline]
    pub fn connections(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    /// Whether new connections may still come over the link.
    #[must_use]
    #[inline]
    pub fn is_alive(&self) -> bool {
        !self.dead.load(Ordering::Relaxed)
    }

    /// Ends the link because the program has ended or broke the rules: the link is [retired](Self::retire), and the
    /// program is notified. Connections that it has taken are ended by their anchors, others are reset. True the first
    /// time.
    pub fn fail(&self) -> bool {
        if !self.retire() {
            return false;
        }
        // The program notices an end that it has caused by a fault.
        let _ = rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both);
        true
    }

    /// No new connection uses the link, and its pool is closed. The program may still take announced connections. True
    /// the first time.
    pub fn retire(&self) -> bool {
        if self.dead.swap(true, Ordering::AcqRel) {
            return false;
        }
        let mut state = self.state();
        let anchors = state.slots.iter_mut().filter_map(|one| one.anchor.take());
        let dropped = anchors.count();
        state.free.clear();
        drop(state);
        self.pooled.fetch_sub(dropped, Ordering::Relaxed);
        true
    }

    /// Whether new connections may still come over it; asks the kernel. A program that lets nobody
    /// announce anything more has shut its end of the channel.
    pub fn check(&self) -> bool {
        let mut looked = [PollFd::new(&self.channel, PollFlags::RDHUP)];
        let ended = poll(&mut looked, Some(&Timespec::default())).is_ok_and(|count| count > 0);
        if ended && self.is_alive() {
            self.fail();
        }
        self.is_alive()
    }

    #[inline]
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Slot `index`; `None` for one that the link does not have.
    #[inline]
    pub(super) fn slot(&self, index: u32) -> Option<&Slot> {
        let index = usize::try_from(index).ok()?;
        if index >= self.layout.slots {
            return None;
        }
        self.region.at(self.layout.slot(index))
    }

    /// Where a stack answers the program's questions.
    #[inline]
    pub(super) fn answer(&self) -> Option<&Answer> {
        self.region.at(answer::OFFSET)
    }

    /// This end's words of a slot, and the program's.
    #[inline]
    pub(super) const fn sides<'a>(&self, slot: &'a Slot) -> (&'a Side, &'a Side) {
        match self.role {
            Role::Client => (&slot.client, &slot.server),
            Role::Server => (&slot.server, &slot.client),
        }
    }

    /// Cell `index` of `owner`.
    #[must_use]
    #[inline]
    pub fn cell(&self, owner: Role, index: usize) -> Option<&Cell> {
        (index < CELLS).then(|| self.region.at(self.layout.cell(owner, index)))?
    }

    /// Reserves a cell of this end for a worker.
    pub fn reserve_cell(&self) -> Option<usize> {
        let mut taken = self.cells.load(Ordering::Relaxed);
        loop {
            let free = usize::try_from((!taken).trailing_zeros()).ok()?;
            if free >= CELLS {
                return None;
            }
            let (order, otherwise) = (Ordering::AcqRel, Ordering::Relaxed);
            let new = taken | 1 << free;
            match self.cells.compare_exchange(taken, new, order, otherwise) {
                Ok(_) => return Some(free),
                Err(now) => taken = now,
            }
        }
    }

    /// The cells of this end that workers use.
    pub fn reserved_cells(&self) -> impl Iterator<Item = usize> {
        let taken = self.cells.load(Ordering::Relaxed);
        (0..CELLS).filter(move |cell| taken & 1 << cell != 0)
    }

    /// Whether a cell of another worker than the one with cell `own` has marks.
    pub fn has_marks_for_others(&self, own: Option<usize>) -> bool {
        let cells = self.reserved_cells().filter(|cell| Some(*cell) != own);
        let mut maps = cells.filter_map(|cell| self.cell(self.role, cell));
        maps.any(|map| cell::any_marked(&map.summary))
    }
}
