//! One end of a link: the region shared with one other program, the pool of anchors, and the
//! ledger of slots.
//!
//! A slot is lent to one connection after the other, together with its pair of anchors. So a repeated connection
//! between two programs costs neither a new socket nor a request to the daemon.

mod budget;
pub mod ending;
mod jobs;
mod pool;
mod queued;

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::collections::VecDeque;

use netchannel_abi::answer::{self, Answer};
use netchannel_abi::directory;
use netchannel_abi::handle::Handle;
use netchannel_abi::link::{CELLS, Cell, Geometry, Header, Layout, Role, Side, Slot};
use netchannel_abi::nqe::Nqe;
use netchannel_abi::tenant::TenantAddresses;
use netchannel_ring::arena::Arena;
use netchannel_ring::queue::{Consumer, Producer};
use netchannel_shm::{Outside, Region};

use crate::descriptors::attach;
use crate::descriptors::channel::Channel;
use crate::ground::lock::Lock;
use crate::ground::{process, sys};

pub use ending::{LinkUse, leave_all, reset_in_child};
pub use jobs::LOOK_INTERVAL;

/// One end of a link. Never freed: a thread may still access it.
pub struct LinkEnd {
    /// The daemon's number.
    pub number: u64,
    /// Which end this is.
    pub role: Role,
    /// Private copy of the sizes.
    pub layout: Layout,
    /// The shared memory.
    pub region: Region,
    /// Device and inode of the memory. The number alone is not unique, since daemons follow one another.
    pub identity: (u64, u64),
    /// The memfd, for handing connections on; kept while sockets of this process use the link.
    memory: AtomicI32,
    /// The link channel: doorbells, more anchors, and the hang-up of the other process.
    channel: Channel,
    /// The listener it was made for.
    pub listener: u32,
    /// Process that holds this end; forked children use its sockets but not its ledger.
    pub owner: u32,
    /// The other process has ended, or broke the rules.
    pub dead: AtomicBool,
    /// (server) The daemon's relay is at the other end: the addresses it names are true.
    pub relayed: AtomicBool,
    /// The word of a port that belongs to the user of the other end; 0 where that is not known.
    user: AtomicU32,
    /// The addresses of the other end's tenant, if it is another one than this program's.
    tenant: [AtomicU64; 3],
    /// (client) Several processes have held the listener during the life of the link. Any of them may have the other
    /// end, also one that ends.
    pub shared: AtomicBool,
    /// Its connections go through the queue of a listener, to the process that accepts first.
    queued: AtomicBool,
    /// (client) Number of connections that have entered the queue with the memory.
    entered: AtomicU32,
    /// (server) The client's process, where its connections came through the queue.
    client: AtomicI32,
    /// (server) A connection is on its way over it: the first one, or one for which this end was claimed in its sleep.
    pub expecting: AtomicBool,
    /// (server) One more than the announcements that were taken when this end last asked for doorbells; 0 since it woke.
    listened_at: AtomicU64,
    /// Sockets of this process that use it.
    pub live: AtomicUsize,
    /// The parts of the peer's arena that are read in place.
    touched: budget::TouchedParts,
    /// Its memory was released.
    vacated: AtomicBool,
    /// When the kernel was last asked whether the other process lives.
    checked: AtomicU64,
    /// Anchors in the pool.
    pooled: AtomicUsize,
    /// Cells in use, a bit each.
    cells: AtomicU32,
    /// (server) Held while the channel is read and jobs are taken: an anchor that one thread has read is in the pool
    /// before another thread looks for it there.
    reading: Lock<()>,
    /// (server) Connections were announced whose anchors found no number yet.
    starved: AtomicBool,
    /// (server) New announcements are not taken any more.
    has_left_queue: AtomicBool,
    state: Lock<State>,
}

/// This end's ledger of a slot.
#[derive(Clone, Copy, Default)]
struct SlotLedger {
    generation: u32,
    /// Anchor pairs that the slot has had; both ends count the same.
    pairs: u32,
    anchor: i32,
    busy: bool,
    /// (client) Noted as closing while other processes have the connection.
    left_to_others: bool,
    /// (client) The port to be returned with the slot; 0 where another process does that.
    port: u16,
    anchor_nonblocking: bool,
    /// Transmit rings of the last connection, which the peer may still read.
    blocks: [Option<Geometry>; 2],
    /// (client) The ring that was lent to the acceptor.
    lent_ring: Option<Geometry>,
}

struct State {
    slots: Vec<SlotLedger>,
    /// (client) Slots with an anchor, ready for a connection.
    free: Vec<u32>,
    /// (client) Slots without an anchor.
    without_anchor: Vec<u32>,
    /// (client) Closed here, not yet closed by the server.
    closing: Vec<u32>,
    arena: Arena,
    /// (client) The server's arena, where no server keeps it.
    server_arena: Arena,
    producer: Producer,
    consumer: Consumer,
    /// (server) Announcements that are not taken yet, where the link is starved.
    announced: VecDeque<Nqe>,
}

/// The outcome of taking an announced connection.
enum JobOutcome {
    Lent(Loan),
    /// Its anchor waits in the channel until there is a number for it.
    Later,
    /// The announcement is invalid.
    Invalid,
}

/// An anchor that was lent with a slot.
#[derive(Clone, Copy)]
pub struct Loan {
    /// The slot and its generation.
    pub handle: Handle,
    /// The anchor, among the library's descriptors.
    pub anchor: i32,
    /// Whether the anchor is non-blocking.
    pub nonblocking: bool,
}

impl LinkEnd {
    /// Adopts a link that the daemon made: `descriptors` are the memory, the channel, and the anchors of the slots from
    /// `first` on. All of them are consumed.
    pub fn adopt(
        role: Role,
        number: u64,
        listener: u32,
        sizes: (u64, u64),
        first: usize,
        descriptors: &[i32],
    ) -> Option<&'static Self> {
        let made = Self::build(role, number, listener, sizes, descriptors);
        let (Some(link), [_, _, anchors @ ..]) = (made, descriptors) else {
            descriptors.iter().for_each(|fd| sys::close(*fd));
            return None;
        };
        let link = ending::register(link);
        for (index, anchor) in anchors.iter().enumerate() {
            link.add_anchor(first + index, *anchor, true);
        }
        Some(link)
    }

    /// Borrows a link whose ledger another process of this program, or another holder of the listener, keeps: only the
    /// data path works.
    pub fn borrow(
        role: Role,
        number: u64,
        listener: u32,
        sizes: (u64, u64),
        memory: i32,
    ) -> Option<&'static Self> {
        let Some(mut link) = Self::build(role, number, listener, sizes, &[memory, -1]) else {
            sys::close(memory);
            return None;
        };
        link.owner = 0;
        Some(ending::register(link))
    }

    fn build(
        role: Role,
        number: u64,
        listener: u32,
        sizes: (u64, u64),
        descriptors: &[i32],
    ) -> Option<Self> {
        let layout = layout(sizes)?;
        let [memory, channel, ..] = *descriptors else {
            return None;
        };
        let identity = identity(sizes, memory)?;
        let region = ending::map(memory, layout.size())?;
        let is_link = |header: &Header| {
            header.magic.load(Ordering::Relaxed) == netchannel_abi::link::MAGIC
                && header.layout_hash.load(Ordering::Relaxed) == netchannel_abi::LAYOUT_HASH
        };
        if !region.at(0).is_some_and(is_link) {
            ending::refuse(region);
            return None;
        }
        let state = State {
            slots: Vec::new(),
            free: Vec::new(),
            without_anchor: Vec::new(),
            closing: Vec::new(),
            arena: arena(&layout, role),
            server_arena: arena(&layout, Role::Server),
            producer: Producer::at(0),
            consumer: Consumer::at(0),
            announced: VecDeque::new(),
        };
        Some(Self {
            number,
            role,
            layout,
            region,
            identity,
            memory: AtomicI32::new(attach::make_internal(memory)),
            channel: Channel::new(channel),
            listener,
            owner: process::number(),
            dead: AtomicBool::new(false),
            relayed: AtomicBool::new(false),
            user: AtomicU32::new(0),
            tenant: Default::default(),
            shared: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            entered: AtomicU32::new(0),
            client: AtomicI32::new(0),
            expecting: AtomicBool::new(false),
            listened_at: AtomicU64::new(0),
            live: AtomicUsize::new(0),
            touched: budget::TouchedParts::new(),
            vacated: AtomicBool::new(false),
            checked: AtomicU64::new(0),
            pooled: AtomicUsize::new(0),
            cells: AtomicU32::new(0),
            reading: Lock::new(()),
            starved: AtomicBool::new(false),
            has_left_queue: AtomicBool::new(false),
            state: Lock::new(state),
        })
    }

    /// Notes what the daemon says of the other end: whether it is the daemon's relay, and otherwise the user of the
    /// program, or of all programs that it may be.
    pub fn set_origin(&self, relay: bool, user: u64) {
        // All ones where the daemon has forgotten the link: it may have named the user before.
        let word = u32::try_from(user).map_or(0, directory::owner_word);
        if word != 0 {
            self.user.store(word, Ordering::Relaxed);
        }
        self.relayed.store(relay, Ordering::Relaxed);
    }

    /// Notes the words by which the daemon names the tenant of the other end, if it is another one.
    pub fn set_tenant(&self, words: [u64; 3]) {
        for (own, word) in self.tenant.iter().zip(words) {
            own.store(word, Ordering::Relaxed);
        }
    }

    /// The addresses of the other end's tenant; none where that is this program's.
    pub fn tenant(&self) -> TenantAddresses {
        TenantAddresses::from_words(
            self.tenant
                .each_ref()
                .map(|word| word.load(Ordering::Relaxed)),
        )
    }

    /// User of the other end, where a daemon has named it.
    pub fn user(&self) -> Option<u32> {
        self.owner_word().checked_sub(1)
    }

    /// The word of a port that belongs to that user.
    pub fn owner_word(&self) -> u32 {
        self.user.load(Ordering::Relaxed)
    }

    /// The number of the link channel, -1 after the end of the link.
    pub fn channel(&self) -> i32 {
        self.channel.number()
    }

    /// Notes that a descriptor of the library has a new number.
    pub fn relocate(&self, from: i32, to: i32) {
        self.channel.relocate(from, to);
        let (order, memory) = (Ordering::Relaxed, &self.memory);
        let _ = memory.compare_exchange(from, to, order, order);
        if let Some(mut state) = self.state.lock()
            && let Some(lent) = state.slots.iter_mut().find(|lent| lent.anchor == from)
        {
            lent.anchor = to;
        }
    }

    /// Whether this process keeps the ledger of its slots.
    #[inline]
    pub fn is_own(&self) -> bool {
        self.owner == process::number()
    }

    /// The memfd, or -1 where it was closed.
    pub fn memory(&self) -> i32 {
        self.memory.load(Ordering::Acquire)
    }

    /// Whether the other end lives, as far as is known.
    #[inline]
    pub fn is_alive(&self) -> bool {
        !self.dead.load(Ordering::Relaxed)
    }

    /// Slot `index`; `None` only for an index that was never checked.
    #[inline]
    pub fn slot(&self, index: u32) -> Option<&Slot> {
        let index = index as usize;
        if index >= self.layout.slots {
            return None;
        }
        self.region.at(self.layout.slot(index))
    }

    /// Where a stack answers.
    pub fn answer(&self) -> Option<&Answer> {
        self.region.at(answer::OFFSET)
    }

    /// This end's words of a slot, and the other's.
    #[inline]
    pub fn sides<'a>(&self, slot: &'a Slot) -> (&'a Side, &'a Side) {
        match self.role {
            Role::Client => (&slot.client, &slot.server),
            Role::Server => (&slot.server, &slot.client),
        }
    }

    /// A cell of `owner`.
    #[inline]
    pub fn cell(&self, owner: Role, index: usize) -> Option<&Cell> {
        (index < CELLS).then(|| self.region.at(self.layout.cell(owner, index)))?
    }

    /// Reserves a cell of this end for an event loop.
    pub fn reserve_cell(&self) -> Option<usize> {
        if !self.is_own() {
            return None;
        }
        let mut taken = self.cells.load(Ordering::Relaxed);
        loop {
            let free = (!taken).trailing_zeros() as usize;
            if free >= CELLS {
                return None;
            }
            match self.cells.compare_exchange(
                taken,
                taken | 1 << free,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(free),
                Err(now) => taken = now,
            }
        }
    }

    /// Returns a cell.
    pub fn return_cell(&self, index: usize) {
        self.cells.fetch_and(!(1 << index), Ordering::AcqRel);
    }
}

fn arena(layout: &Layout, role: Role) -> Arena {
    Arena::new(layout.arena_start(role) as u64, layout.arena as u64)
}

fn layout(sizes: (u64, u64)) -> Option<Layout> {
    let layout = Layout {
        slots: usize::try_from(sizes.0).ok()?,
        arena: usize::try_from(sizes.1).ok()?,
    };
    layout.is_valid().then_some(layout)
}

/// Device and inode of a received memory, if it is valid for a link of these sizes.
pub fn identity(sizes: (u64, u64), memory: i32) -> Option<(u64, u64)> {
    let sent = Outside::admit(memory, layout(sizes)?.size());
    sent.ok().map(|sent| sent.identity())
}
