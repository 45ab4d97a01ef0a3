//! One end of a link: the region shared with one other program, the pool of anchors, and the
//! ledger of slots.
//!
//! A slot is lent to one connection after the other, together with its pair of anchors, so that a
//! connection between programs that know each other costs neither a new socket nor a question to
//! the daemon.

mod budget;
pub mod ending;
mod jobs;
mod pool;
mod queued;

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::collections::VecDeque;

use netchannel_abi::directory;
use netchannel_abi::handle::Handle;
use netchannel_abi::link::{CELLS, Cell, Geometry, Header, Layout, Role, Side, Slot};
use netchannel_abi::nqe::Nqe;
use netchannel_ring::arena::Arena;
use netchannel_ring::queue::{Consumer, Producer};
use netchannel_shm::{Outside, Region};

use crate::descriptors::attach;
use crate::descriptors::channel::Channel;
use crate::ground::lock::Lock;
use crate::ground::{process, sys};

pub use ending::{forsake_all, reset_in_child};

/// One end of a link. Never freed: a socket may still look at it.
pub struct LinkEnd {
    /// The daemon's number.
    pub number: u64,
    /// Which end this is.
    pub role: Role,
    /// Private copy of the sizes.
    pub layout: Layout,
    /// The shared memory.
    pub region: Region,
    /// Device and inode of it: a number alone names nothing, since daemons follow each other.
    pub identity: (u64, u64),
    /// The memfd, to hand connections on; kept while sockets of this process use the link.
    memory: AtomicI32,
    /// The link channel: doorbells, more anchors, and the news that the other process ended.
    channel: Channel,
    /// The listener it was made for.
    pub listener: u32,
    /// Process that holds this end; forked children use its sockets but not its ledger.
    pub owner: u32,
    /// The other process is gone, or broke the rules.
    pub dead: AtomicBool,
    /// (server) The daemon's relay is at the other end: the addresses it names are true.
    pub relayed: AtomicBool,
    /// What the word of a port says that belongs to the user of the other end; 0 where that is not known.
    user: AtomicU32,
    /// (client) Several processes have held the listener while the link was there. Which of them has it nobody knows: it may be one that
    /// ends.
    pub shared: AtomicBool,
    /// Its connections go through the queue of a listener, to whoever accepts first.
    queued: AtomicBool,
    /// (client) So many have entered it.
    entered: AtomicU32,
    /// (server) The client's process, where they came so.
    client: AtomicI32,
    /// (server) Its first connection has not come yet.
    pub expecting: AtomicBool,
    /// Sockets of this process that use it.
    pub live: AtomicUsize,
    /// What of the peer's arena is read in place.
    touched: budget::Touched,
    /// Its memory was given back.
    vacated: AtomicBool,
    /// When the kernel was last asked whether the other process lives.
    checked: AtomicU64,
    /// Anchors in the pool.
    pooled: AtomicUsize,
    /// Cells in use, a bit each.
    cells: AtomicU32,
    /// (server) Held while the channel is read and jobs are taken: an anchor that one thread has read is in the pool before another
    /// looks for it there.
    reading: Lock<()>,
    /// (server) Connections were announced whose anchors found no number yet.
    starved: AtomicBool,
    /// (server) What was announced since the last look is not taken any more.
    departed: AtomicBool,
    state: Lock<State>,
}

/// What a slot is to this end.
#[derive(Clone, Copy, Default)]
struct Lent {
    generation: u32,
    /// How many anchor pairs the slot has had; both ends count the same.
    pairs: u32,
    anchor: i32,
    busy: bool,
    /// (client) Noted as closing while other processes have the connection.
    left: bool,
    /// (client) Its port, to be given back with it; 0 where that is not this process's to do.
    port: u16,
    anchor_nonblocking: bool,
    /// Transmit rings of the last connection, which the peer may still read.
    blocks: [Option<Geometry>; 2],
    /// (client) The ring that was lent to whoever accepts.
    apart: Option<Geometry>,
}

struct State {
    slots: Vec<Lent>,
    /// (client) Slots with an anchor, ready for a connection.
    free: Vec<u32>,
    /// (client) Slots without an anchor.
    bare: Vec<u32>,
    /// (client) Closed here, not yet closed by the server.
    closing: Vec<u32>,
    arena: Arena,
    /// (client) The server's, where nobody else keeps it.
    servers: Arena,
    producer: Producer,
    consumer: Consumer,
    /// (server) What was announced and not taken yet, where the link is starved.
    announced: VecDeque<Nqe>,
}

/// What became of a connection that was announced.
enum Taken {
    Lent(Loan),
    /// Its anchor waits in the channel until there is a number for it.
    Later,
    /// Such a one can not be.
    Broken,
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
    /// Takes a link that the daemon made: `descriptors` are the memory, the channel, and the
    /// anchors of the slots from `first` on. All of them are consumed.
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
        let link = ending::known(link);
        for (index, anchor) in anchors.iter().enumerate() {
            link.add_anchor(first + index, *anchor, true);
        }
        Some(link)
    }

    /// Takes part in a link that another process of this program, or another holder of the
    /// listener, keeps: the data path works, the ledger is not ours.
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
        Some(ending::known(link))
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
        let header: &Header = region.at(0)?;
        if header.magic.load(Ordering::Relaxed) != netchannel_abi::link::MAGIC
            || header.layout_hash.load(Ordering::Relaxed) != netchannel_abi::LAYOUT_HASH
        {
            return None;
        }
        let state = State {
            slots: Vec::new(),
            free: Vec::new(),
            bare: Vec::new(),
            closing: Vec::new(),
            arena: arena(&layout, role),
            servers: arena(&layout, Role::Server),
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
            shared: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            entered: AtomicU32::new(0),
            client: AtomicI32::new(0),
            expecting: AtomicBool::new(false),
            live: AtomicUsize::new(0),
            touched: budget::Touched::new(),
            vacated: AtomicBool::new(false),
            checked: AtomicU64::new(0),
            pooled: AtomicUsize::new(0),
            cells: AtomicU32::new(0),
            reading: Lock::new(()),
            starved: AtomicBool::new(false),
            departed: AtomicBool::new(false),
            state: Lock::new(state),
        })
    }

    /// What the daemon said of the other end: whether it is the daemon's relay, and else the user of the program, or of all the programs
    /// that it may be.
    pub fn is_from(&self, relay: bool, user: u64) {
        // All ones where the daemon has forgotten the link: it may have said so before.
        let word = u32::try_from(user).map_or(0, directory::owner_word);
        if word != 0 {
            self.user.store(word, Ordering::Relaxed);
        }
        self.relayed.store(relay, Ordering::Relaxed);
    }

    /// User of the other end, where a daemon has said it.
    pub fn user(&self) -> Option<u32> {
        self.owner_word().checked_sub(1)
    }

    /// What the word of a port says that belongs to that user.
    pub fn owner_word(&self) -> u32 {
        self.user.load(Ordering::Relaxed)
    }

    /// The number of the link channel, -1 after the end of the link.
    pub fn channel(&self) -> i32 {
        self.channel.number()
    }

    /// A descriptor of the library has moved.
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

    /// Whether this process may lend and take back its slots.
    #[inline]
    pub fn is_own(&self) -> bool {
        self.owner == process::number()
    }

    /// The memfd, or -1 where it was given up.
    pub fn memory(&self) -> i32 {
        self.memory.load(Ordering::Acquire)
    }

    /// Whether the other end still lives, as far as is known.
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

    /// Gives a cell back.
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

/// Which memory it is that was sent as that of a link.
pub fn identity(sizes: (u64, u64), memory: i32) -> Option<(u64, u64)> {
    let sent = Outside::admit(memory, layout(sizes)?.size());
    sent.ok().map(|sent| sent.identity())
}

/// Sets this side's words up for a new connection.
pub fn reset_side(side: &Side, generation: u32, ring: Geometry) {
    side.tail.store(0, Ordering::Relaxed);
    side.head.store(0, Ordering::Relaxed);
    side.geometry.store(ring.to_word(), Ordering::Relaxed);
    side.switch_sequence.store(0, Ordering::Relaxed);
    side.tokens.store(0, Ordering::Relaxed);
    side.held.store(0, Ordering::Relaxed);
    side.hints.store(0, Ordering::Relaxed);
    side.urgent.store(0, Ordering::Relaxed);
    side.passed.store(0, Ordering::Relaxed);
    side.row.store(0, Ordering::Relaxed);
    side.wanted_ring.store(0, Ordering::Relaxed);
    side.waiter.store(0, Ordering::Relaxed);
    side.error.store(0, Ordering::Relaxed);
    side.flags.store(0, Ordering::Relaxed);
    // Release: who sees the generation sees the words of this connection, not of the last.
    side.generation.store(generation, Ordering::Release);
}
