//! One end of a link: the region shared with one other program, the pool of anchors, and the
//! ledger of slots.
//!
//! A slot is lent to one connection after the other, together with its pair of anchors, so that a
//! connection between programs that know each other costs neither a new socket nor a question to
//! the daemon.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use netchannel_abi::handle::Handle;
use netchannel_abi::link::{
    CELLS, Cell, Geometry, Header, Layout, QUEUE_CAPACITY, QueueIndices, Role, SMALL_RING_LOG2,
    Side, Slot, asleep, side_flags,
};
use netchannel_abi::message::{MESSAGE_BYTES, Message, Operation};
use netchannel_abi::nqe::{Nqe, Operation as Job};
use netchannel_ring::queue::{Consumer, Element, Producer};
use netchannel_shm::{Access, Region, Vacancy};

use crate::arena::Arena;
use crate::lock::Lock;
use crate::{attach, clock, limits, sys};

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
    /// The memfd, to hand connections on; kept while sockets of this process use the link.
    memory: AtomicI32,
    /// The link channel: doorbells, more anchors, and the news that the other process ended.
    channel: AtomicI32,
    /// The listener it was made for.
    pub listener: u32,
    /// Process that holds this end; forked children use its sockets but not its ledger.
    pub owner: u32,
    /// The other process is gone, or broke the rules.
    pub dead: AtomicBool,
    /// (server) Its first connection has not come yet.
    pub expecting: AtomicBool,
    /// Sockets of this process that use it.
    pub live: AtomicUsize,
    /// Its memory was given back.
    vacated: AtomicBool,
    /// When the kernel was last asked whether the other process lives.
    checked: AtomicU64,
    /// Anchors in the pool.
    pooled: AtomicUsize,
    /// Cells in use, a bit each.
    cells: AtomicU32,
    state: Lock<State>,
}

/// What a slot is to this end.
#[derive(Clone, Copy, Default)]
struct Lent {
    generation: u32,
    anchor: i32,
    busy: bool,
    anchor_nonblocking: bool,
    /// Transmit rings of the last connection, which the peer may still read.
    blocks: [Option<Geometry>; 2],
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
    producer: Producer,
    consumer: Consumer,
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
        let link: &'static Self = Box::leak(Box::new(link));
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
        Some(Box::leak(Box::new(link)))
    }

    fn build(
        role: Role,
        number: u64,
        listener: u32,
        sizes: (u64, u64),
        descriptors: &[i32],
    ) -> Option<Self> {
        let layout = Layout {
            slots: usize::try_from(sizes.0).ok()?,
            arena: usize::try_from(sizes.1).ok()?,
        };
        if !layout.is_valid() {
            return None;
        }
        let [memory, channel, ..] = *descriptors else {
            return None;
        };
        let region = map(memory, layout.size())?;
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
            arena: Arena::new(layout.arena_start(role) as u64, layout.arena as u64),
            producer: Producer::at(0),
            consumer: Consumer::at(0),
        };
        Some(Self {
            number,
            role,
            layout,
            region,
            memory: AtomicI32::new(attach::keep(memory)),
            channel: AtomicI32::new(attach::keep(channel)),
            listener,
            owner: attach::process(),
            dead: AtomicBool::new(false),
            expecting: AtomicBool::new(false),
            live: AtomicUsize::new(0),
            vacated: AtomicBool::new(false),
            checked: AtomicU64::new(0),
            pooled: AtomicUsize::new(0),
            cells: AtomicU32::new(0),
            state: Lock::new(state),
        })
    }

    /// The link channel: doorbells, more anchors, and the news that the other process ended.
    pub fn channel(&self) -> i32 {
        self.channel.load(Ordering::Relaxed)
    }

    /// A descriptor of the library has moved.
    pub fn relocate(&self, from: i32, to: i32) {
        for word in [&self.channel, &self.memory] {
            let _ = word.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        }
        if let Some(mut state) = self.state.lock()
            && let Some(lent) = state.slots.iter_mut().find(|lent| lent.anchor == from)
        {
            lent.anchor = to;
        }
    }

    /// Whether this process may lend and take back its slots.
    #[inline]
    pub fn is_own(&self) -> bool {
        self.owner == attach::process()
    }

    /// The memfd, or -1 where it was given up.
    pub fn memory(&self) -> i32 {
        self.memory.load(Ordering::Acquire)
    }

    fn drop_memory(&self) {
        attach::drop_kept(self.memory.swap(-1, Ordering::AcqRel));
    }

    /// One socket less uses the link: called when all about it has been said.
    pub fn used_less(&self) {
        if self.live.fetch_sub(1, Ordering::AcqRel) == 1 && !self.is_alive() {
            self.drop_memory();
            self.vacate();
        }
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

    fn queue(&self, producer: Role) -> Option<(&QueueIndices, &[Element])> {
        let start = self.layout.queue(producer);
        let indices = self.region.at(start)?;
        let elements = self
            .region
            .slice(start + size_of::<QueueIndices>(), QUEUE_CAPACITY)?;
        Some((indices, elements))
    }

    fn add_anchor(&self, slot: usize, anchor: i32, nonblocking: bool) {
        let Some(mut state) = self.state.lock() else {
            return sys::close(anchor);
        };
        let Ok(number) = u32::try_from(slot) else {
            return sys::close(anchor);
        };
        if slot >= self.layout.slots {
            return sys::close(anchor);
        }
        if state.slots.len() <= slot {
            state.slots.resize(
                slot + 1,
                Lent {
                    anchor: -1,
                    ..Lent::default()
                },
            );
        }
        let lent = &mut state.slots[slot];
        if let Some(shared) = self.slot(number) {
            self.free_if_gone(lent, shared);
        }
        if lent.busy {
            return sys::close(anchor);
        }
        let former = core::mem::replace(&mut lent.anchor, attach::keep(anchor));
        lent.anchor_nonblocking = nonblocking;
        if former < 0 {
            self.pooled.fetch_add(1, Ordering::Relaxed);
        }
        attach::drop_kept(former);
        if self.role == Role::Client {
            state.free.push(number);
        }
    }

    /// (server) A forked child, not this process, closed the connection last: it could not say so
    /// in this ledger, only in the slot.
    fn free_if_gone(&self, lent: &mut Lent, slot: &Slot) {
        if self.role == Role::Server
            && lent.busy
            && slot.server.generation.load(Ordering::Relaxed) == lent.generation
            && slot.server.flags.load(Ordering::Acquire) & side_flags::ANCHOR_GONE != 0
        {
            lent.busy = false;
            self.used_less();
        }
    }

    /// (client) A slot with its anchor, set up for a new connection. `None` when the link has no
    /// more to give.
    pub fn lend(&self) -> Option<Loan> {
        let mut state = self.state.lock()?;
        if state.free.is_empty() {
            self.reclaim(&mut state);
        }
        if state.free.is_empty() {
            drop(state);
            self.make_anchors()?;
            state = self.state.lock()?;
        }
        let index = state.free.pop()?;
        let lent = state.slots.get_mut(index as usize)?;
        lent.generation = lent.generation.wrapping_add(1);
        lent.busy = true;
        let anchor = core::mem::replace(&mut lent.anchor, -1);
        let loan = Loan {
            handle: Handle {
                index,
                generation: lent.generation,
            },
            anchor,
            nonblocking: lent.anchor_nonblocking,
        };
        drop(state);
        self.pooled.fetch_sub(1, Ordering::Relaxed);
        self.live.fetch_add(1, Ordering::Relaxed);
        Some(loan)
    }

    /// (client) Looks which slots that were closed here the server has closed too.
    fn reclaim(&self, state: &mut State) {
        let mut index = 0;
        while let Some(number) = state.closing.get(index).copied() {
            let Some(slot) = self.slot(number) else { break };
            let Some(lent) = state.slots.get_mut(number as usize) else {
                break;
            };
            // Acquire: pairs with the release in `finish` of the server.
            let flags = slot.server.flags.load(Ordering::Acquire);
            let closed = slot.server.generation.load(Ordering::Relaxed) == lent.generation
                && flags & (side_flags::RELEASED | side_flags::ANCHOR_GONE) != 0;
            if !closed {
                index += 1;
                continue;
            }
            state.closing.swap_remove(index);
            self.settle(state, number, flags);
        }
    }

    /// (client) Both sides have closed the slot: it is free, with or without its anchor.
    fn settle(&self, state: &mut State, number: u32, flags: u32) {
        let Some(lent) = state.slots.get_mut(number as usize) else {
            return;
        };
        lent.busy = false;
        let blocks = core::mem::take(&mut lent.blocks);
        if flags & side_flags::ANCHOR_GONE != 0 && lent.anchor >= 0 {
            attach::drop_kept(core::mem::replace(&mut lent.anchor, -1));
            self.pooled.fetch_sub(1, Ordering::Relaxed);
        }
        let bare = lent.anchor < 0;
        blocks
            .into_iter()
            .flatten()
            .for_each(|block| state.arena.free(block));
        if bare {
            state.bare.push(number)
        } else {
            state.free.push(number)
        }
    }

    /// (client) Makes more pairs and sends the server's ends over the channel.
    fn make_anchors(&self) -> Option<()> {
        const BATCH: usize = 16;
        let mut slots = [0u32; BATCH];
        let mut count = 0;
        {
            let mut state = self.state.lock()?;
            while count < BATCH {
                let next = match state.bare.pop() {
                    Some(number) => number,
                    None if state.slots.len() < self.layout.slots => {
                        state.slots.push(Lent {
                            anchor: -1,
                            ..Lent::default()
                        });
                        u32::try_from(state.slots.len() - 1).ok()?
                    }
                    None => break,
                };
                slots[count] = next;
                count += 1;
            }
        }
        let mut own = [-1; BATCH];
        let mut theirs = [-1; BATCH];
        let mut made = 0;
        while made < count {
            let Ok((mine, other)) = limits::make(|| sys::socket_pair(libc::SOCK_STREAM)) else {
                break;
            };
            own[made] = mine;
            theirs[made] = other;
            made += 1;
        }
        let mut words = [0; 14];
        words[0] = made as u64;
        for (index, number) in slots.iter().enumerate().take(made) {
            // Two slot numbers to a word.
            words[1 + index / 2] |= u64::from(*number) << (32 * (index % 2));
        }
        let message = Message::new(Operation::Anchors, 0, words);
        let sent = made > 0
            && sys::send_message(
                self.channel(),
                &message.to_bytes(),
                theirs.get(..made)?,
                libc::MSG_DONTWAIT,
            )
            .is_ok();
        theirs.iter().take(made).for_each(|fd| sys::close(*fd));
        for (index, number) in slots.iter().enumerate().take(count) {
            if sent && index < made {
                self.add_anchor(*number as usize, own[index], false);
            } else {
                if index < made {
                    sys::close(own[index]);
                }
                self.state.lock()?.bare.push(*number);
            }
        }
        sent.then_some(())
    }

    /// (client) Whether somebody at the other end will take a connection soon: he loops, or sleeps
    /// and is hereby claimed, which the caller then must wake with [`Self::announce`].
    pub fn claim(&self) -> bool {
        let Some((indices, _)) = self.queue(Role::Client) else {
            return false;
        };
        match indices.asleep.load(Ordering::Acquire) {
            asleep::LOOPS => true,
            asleep::SLEEPS => indices
                .asleep
                .compare_exchange(
                    asleep::SLEEPS,
                    asleep::AWAKE,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok(),
            _ => false,
        }
    }

    /// (client) Announces a connection whose slot is filled in, and wakes the server if need be, or
    /// if he was `claimed`. False when the server's queue is full.
    pub fn announce(&self, handle: Handle, listener: u32, claimed: bool) -> bool {
        let Some((indices, elements)) = self.queue(Role::Client) else {
            return false;
        };
        let nqe = Nqe {
            operation: Job::Connect as u8,
            handle: handle.to_word(),
            data: u64::from(listener),
            ..Nqe::default()
        };
        let Some(mut state) = self.state.lock() else {
            return false;
        };
        let pushed = state
            .producer
            .push(&indices.tail, &indices.head, elements, &[nqe]);
        drop(state);
        match pushed {
            Ok(1) => {}
            Ok(_) => return false,
            Err(_) => {
                self.fail();
                return false;
            }
        }
        // Pairs with the fence in `listen_for_jobs`.
        core::sync::atomic::fence(Ordering::SeqCst);
        let slept = indices.asleep.load(Ordering::Relaxed) == asleep::SLEEPS
            && indices
                .asleep
                .compare_exchange(
                    asleep::SLEEPS,
                    asleep::AWAKE,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok();
        if (slept || claimed && indices.asleep.load(Ordering::Relaxed) == asleep::AWAKE)
            && let Err(libc::EPIPE | libc::ECONNRESET) =
                sys::send(self.channel(), &[0], libc::MSG_DONTWAIT)
        {
            self.fail();
        }
        true
    }

    /// (client) Wakes a claimed server for nothing: the connection did not come about.
    pub fn unclaim(&self) {
        let _ = sys::send(self.channel(), &[0], libc::MSG_DONTWAIT);
    }

    /// (server) Says that this end is awake: in an event loop, or for how long nobody knows.
    pub fn awake(&self, loops: bool) {
        if let Some((indices, _)) = self.queue(Role::Client) {
            let loops = loops && self.is_alive();
            let word = if loops { asleep::LOOPS } else { asleep::AWAKE };
            if indices.asleep.load(Ordering::Relaxed) != word {
                indices.asleep.store(word, Ordering::Release);
            }
        }
    }

    /// (server) The other end sees that no more connections will be taken. Those that were
    /// announced still can.
    pub fn hang_up(&self) {
        // SAFETY: no pointers.
        let _ = unsafe {
            let how = sys::int(libc::SHUT_WR);
            sys::raw(
                libc::SYS_shutdown,
                [sys::int(self.channel()), how, 0, 0, 0, 0],
            )
        };
    }

    /// (server) Whether connections wait to be taken.
    #[inline]
    pub fn has_jobs(&self) -> bool {
        let Some((indices, _)) = self.queue(Role::Client) else {
            return false;
        };
        let head = indices.head.load(Ordering::Relaxed);
        indices.tail.load(Ordering::Acquire) != head
    }

    /// (server) Asks for a doorbell; the caller looks at [`Self::has_jobs`] once more.
    pub fn listen_for_jobs(&self) {
        if let Some((indices, _)) = self.queue(Role::Client) {
            netchannel_ring::cell::sleep(&indices.asleep);
        }
    }

    /// (server) Takes new connections, calling `each` with the listener and the loan.
    pub fn take_jobs(&self, mut each: impl FnMut(u32, Loan)) {
        let Some((indices, elements)) = self.queue(Role::Client) else {
            return;
        };
        let mut batch = [Nqe::default(); 32];
        loop {
            let Some(mut state) = self.state.lock() else {
                return;
            };
            let popped = state
                .consumer
                .pop(&indices.tail, &indices.head, elements, &mut batch);
            drop(state);
            let Ok(count) = popped else {
                return self.fail();
            };
            if count > 0 {
                self.expecting.store(false, Ordering::Relaxed);
            }
            for nqe in batch.iter().take(count) {
                let Some(loan) = self.take_job(nqe) else {
                    return self.fail();
                };
                let listener = u32::try_from(nqe.data).unwrap_or(0);
                each(listener, loan);
            }
            if count < batch.len() {
                return;
            }
        }
    }

    fn take_job(&self, nqe: &Nqe) -> Option<Loan> {
        let handle = Handle::from_word(nqe.handle);
        let slot = self.slot(handle.index)?;
        if nqe.operation != Job::Connect as u8 {
            return None;
        }
        if !self.has_anchor(handle.index) {
            self.read_channel();
        }
        let mut state = self.state.lock()?;
        let lent = state.slots.get_mut(handle.index as usize)?;
        self.free_if_gone(lent, slot);
        if lent.busy || lent.anchor < 0 || handle.generation == lent.generation {
            return None;
        }
        lent.busy = true;
        lent.generation = handle.generation;
        let loan = Loan {
            handle,
            anchor: core::mem::replace(&mut lent.anchor, -1),
            nonblocking: lent.anchor_nonblocking,
        };
        let blocks = core::mem::take(&mut lent.blocks);
        blocks
            .into_iter()
            .flatten()
            .for_each(|block| state.arena.free(block));
        drop(state);
        reset_side(
            &slot.server,
            handle.generation,
            self.layout.small_ring(self.role, handle.index as usize),
        );
        self.pooled.fetch_sub(1, Ordering::Relaxed);
        self.live.fetch_add(1, Ordering::Relaxed);
        Some(loan)
    }

    fn has_anchor(&self, slot: u32) -> bool {
        self.state.lock().is_some_and(|state| {
            state
                .slots
                .get(slot as usize)
                .is_some_and(|lent| lent.anchor >= 0)
        })
    }

    /// Reads doorbells and anchors from the channel, and notices the end of the other process.
    pub fn read_channel(&self) {
        loop {
            let mut bytes = [0; MESSAGE_BYTES];
            let mut descriptors = [-1; sys::MOST];
            let got = limits::receive_message(self.channel(), &mut bytes, &mut descriptors);
            match got {
                // What was announced before the end is still to be accepted.
                Ok((0, _)) if self.role == Role::Server && self.has_jobs() => return,
                Ok((0, _)) => return self.fail(),
                Ok((length, count)) => {
                    let fds = descriptors.get(..count).unwrap_or(&[]);
                    let message = bytes.get(..length).and_then(Message::from_bytes);
                    match message {
                        Some(message)
                            if message.operation == Operation::Anchors as u32
                                && self.role == Role::Server =>
                        {
                            for (index, fd) in fds.iter().enumerate() {
                                let word = message.words.get(1 + index / 2).copied().unwrap_or(0);
                                let number = word >> (32 * (index % 2)) & 0xffff_ffff;
                                self.add_anchor(
                                    usize::try_from(number).unwrap_or(usize::MAX),
                                    *fd,
                                    false,
                                );
                            }
                        }
                        _ => fds.iter().for_each(|fd| sys::close(*fd)),
                    }
                }
                Err(libc::EAGAIN | libc::EINTR) => return,
                Err(_) => return self.fail(),
            }
        }
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
        let mut byte = [0];
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        let alive = !matches!(sys::receive(self.channel(), &mut byte, flags), Ok(0));
        if !alive {
            self.fail();
        }
        alive
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
            attach::drop_kept(core::mem::replace(&mut lent.anchor, -1));
        }
        state.free.clear();
        drop(state);
        attach::drop_kept(self.channel());
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
        if let Some(vacancy) = self.region.vacate()
            && let Some(mut vacant) = VACANT.lock()
        {
            vacant.push(vacancy);
        }
    }

    /// Whether the pool takes another anchor: it holds what a burst needs, not all there ever were.
    pub fn wants_anchor(&self) -> bool {
        const MOST_POOLED: usize = 64;
        self.is_own() && self.is_alive() && self.pooled.load(Ordering::Relaxed) < MOST_POOLED
    }

    /// A block for a larger transmit ring.
    pub fn allocate(&self, log2: u32) -> Option<Geometry> {
        if !self.is_own() {
            return None;
        }
        self.state.lock()?.arena.allocate(log2)
    }

    /// Takes a block back that the peer reads no longer.
    pub fn release(&self, block: Geometry) {
        if block.log2 > SMALL_RING_LOG2
            && self.is_own()
            && let Some(mut state) = self.state.lock()
        {
            state.arena.free(block);
        }
    }

    /// This end has closed a connection. `anchor` goes back to the pool when it is given and the
    /// other end may use it again; `rings` are its transmit rings, which the other may still read.
    /// Publishes `flags` with the result. [`Self::used_less`] follows when the peer was told.
    pub fn finish(
        &self,
        slot: &Slot,
        handle: Handle,
        flags: u32,
        loan: Option<Loan>,
        rings: [Geometry; 2],
    ) {
        let (own, peer) = self.sides(slot);
        let blocks = rings.map(|ring| (ring.log2 > SMALL_RING_LOG2).then_some(ring));
        let released = if loan.is_some() {
            side_flags::RELEASED
        } else {
            side_flags::ANCHOR_GONE
        };
        let done = flags | released;
        if !self.is_own() {
            own.flags.store(done, Ordering::Release);
            return;
        }
        let Some(mut state) = self.state.lock() else {
            return;
        };
        if let Some(lent) = state.slots.get_mut(handle.index as usize) {
            lent.blocks = blocks;
            match loan {
                Some(loan) if self.is_alive() => {
                    lent.anchor = loan.anchor;
                    lent.anchor_nonblocking = loan.nonblocking;
                    self.pooled.fetch_add(1, Ordering::Relaxed);
                }
                Some(loan) => attach::drop_kept(loan.anchor),
                None => lent.anchor = -1,
            }
            match self.role {
                Role::Server => {
                    lent.busy = false;
                    // Release: whoever sees the flags sees the anchor in its pool and the words.
                    own.flags.store(done, Ordering::Release);
                }
                Role::Client => {
                    own.flags.store(done, Ordering::Release);
                    let theirs = peer.flags.load(Ordering::Acquire);
                    let closed = peer.generation.load(Ordering::Relaxed) == handle.generation
                        && theirs & (side_flags::RELEASED | side_flags::ANCHOR_GONE) != 0;
                    if closed {
                        self.settle(&mut state, handle.index, theirs);
                    } else {
                        state.closing.push(handle.index);
                    }
                }
            }
        }
        drop(state);
    }

    /// In a forked child: the pool and the channel stay the parent's. The memory stays while
    /// sockets of the child are `used` over it: it may hand them on.
    pub fn close_in_child(&self, used: bool) {
        self.state.reset();
        if let Some(mut state) = self.state.lock() {
            for lent in &mut state.slots {
                attach::drop_kept(core::mem::replace(&mut lent.anchor, -1));
            }
        }
        if self.is_alive() {
            attach::drop_kept(self.channel());
        }
        if !used {
            self.drop_memory();
        }
    }
}

/// Addresses of links that ended. A link's region is never unmapped, since another thread may still
/// look at it; it is replaced by zero pages, and the next link takes its place.
static VACANT: Lock<Vec<Vacancy>> = Lock::new(Vec::new());

fn map(memory: i32, size: usize) -> Option<Region> {
    let vacancy = VACANT.lock().and_then(|mut vacant| {
        let index = vacant.iter().position(|vacancy| vacancy.size() == size)?;
        Some(vacant.swap_remove(index))
    });
    match vacancy {
        Some(vacancy) => Region::map_into(vacancy, memory, Access::ReadWrite).ok(),
        None => Region::map(memory, size, Access::ReadWrite).ok(),
    }
}

/// Sets this side's words up for a new connection.
pub fn reset_side(side: &Side, generation: u32, ring: Geometry) {
    side.tail.store(0, Ordering::Relaxed);
    side.head.store(0, Ordering::Relaxed);
    side.geometry.store(ring.to_word(), Ordering::Relaxed);
    side.switch_sequence.store(0, Ordering::Relaxed);
    side.tokens.store(0, Ordering::Relaxed);
    side.waiter.store(0, Ordering::Relaxed);
    side.flags.store(0, Ordering::Relaxed);
    // Release: who sees the generation sees the words of this connection, not of the last.
    side.generation.store(generation, Ordering::Release);
}
