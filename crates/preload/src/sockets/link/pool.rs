//! The pool of anchors and the ledger of slots: lent, closed, settled, lent again.

use core::sync::atomic::Ordering;

use netchannel_abi::handle::Handle;
use netchannel_abi::link::{Geometry, Role, SMALL_RING_LOG2, Slot, side_flags};
use netchannel_abi::message::{Message, Operation};
use netchannel_ring::side;

use super::queued::LEAST_APART_LOG2;
use super::{LinkEnd, Loan, SlotLedger, State};
use crate::descriptors::{attach, limits, ports};
use crate::ground::sys;

/// A side has closed, with or without its anchor.
const CLOSED: u32 = side_flags::RELEASED | side_flags::ANCHOR_GONE;

/// The rings that came from the arena.
fn blocks(rings: [Geometry; 2]) -> [Option<Geometry>; 2] {
    rings.map(|ring| (ring.log2 > SMALL_RING_LOG2).then_some(ring))
}

impl LinkEnd {
    pub(super) fn add_anchor(&self, slot: usize, anchor: i32, nonblocking: bool) {
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
                SlotLedger {
                    anchor: -1,
                    ..SlotLedger::default()
                },
            );
        }
        let lent = &mut state.slots[slot];
        lent.pairs = lent.pairs.wrapping_add(1);
        if let Some(shared) = self.slot(number) {
            self.free_if_gone(lent, shared);
        }
        if lent.busy {
            return sys::close(anchor);
        }
        let former = core::mem::replace(&mut lent.anchor, attach::make_internal(anchor));
        lent.anchor_nonblocking = nonblocking;
        if former < 0 {
            self.pooled.fetch_add(1, Ordering::Relaxed);
        }
        attach::close_internal(former);
        if self.role == Role::Client {
            state.free.push(number);
        }
    }

    /// (server) A forked child, not this process, closed the connection last. It could not note that in this ledger,
    /// only in the slot.
    pub(super) fn free_if_gone(&self, lent: &mut SlotLedger, slot: &Slot) {
        if self.role == Role::Server
            && lent.busy
            && side::flags(&slot.server, lent.generation) & side_flags::ANCHOR_GONE != 0
        {
            lent.busy = false;
        }
    }

    /// This process leaves a connection that other processes continue; they publish its end in the slot. `rings` and
    /// `port` were taken for it here, and are freed after that end.
    pub fn leave(&self, handle: Handle, rings: [Geometry; 2], port: u16) {
        if !self.is_own() {
            return;
        }
        let Some(mut guard) = self.state.lock() else {
            return;
        };
        let state = &mut *guard;
        if let Some(lent) = state.slots.get_mut(handle.index as usize)
            && lent.busy
            && lent.generation == handle.generation
        {
            lent.blocks = blocks(rings);
            if self.role == Role::Client {
                lent.port = port;
                if !core::mem::replace(&mut lent.left_to_others, true) {
                    state.closing.push(handle.index);
                }
            }
        }
    }

    /// (client) Lends a slot with its anchor for a new connection. `None` when the link has no more.
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
        if !self.is_alive() {
            return None;
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
        // Under the lock: the end of the link sees the user, or there was nothing to lend.
        self.live.fetch_add(1, Ordering::Relaxed);
        drop(state);
        self.pooled.fetch_sub(1, Ordering::Relaxed);
        Some(loan)
    }

    /// (client) Looks which of the slots that this side has closed the server has closed, too.
    pub(super) fn reclaim(&self, state: &mut State) {
        let mut index = 0;
        while let Some(number) = state.closing.get(index).copied() {
            let Some(slot) = self.slot(number) else { break };
            let Some(lent) = state.slots.get_mut(number as usize) else {
                break;
            };
            // Set in `finish`, of the server and of a child of this process.
            let flags = side::flags(&slot.server, lent.generation);
            let closed = flags & CLOSED != 0
                && (!lent.left_to_others
                    || side::flags(&slot.client, lent.generation) & CLOSED != 0);
            if !closed {
                index += 1;
                continue;
            }
            state.closing.swap_remove(index);
            self.settle(state, number, flags);
        }
    }

    /// (client) Frees a slot that both sides have closed, with or without its anchor.
    fn settle(&self, state: &mut State, number: u32, flags: u32) {
        let Some(lent) = state.slots.get_mut(number as usize) else {
            return;
        };
        lent.busy = false;
        lent.left_to_others = false;
        ports::give(core::mem::take(&mut lent.port), self.owner);
        let blocks = core::mem::take(&mut lent.blocks);
        let lent_ring = lent.lent_ring.take();
        if flags & side_flags::ANCHOR_GONE != 0 && lent.anchor >= 0 {
            attach::close_internal(core::mem::replace(&mut lent.anchor, -1));
            self.pooled.fetch_sub(1, Ordering::Relaxed);
        }
        let bare = lent.anchor < 0;
        blocks
            .into_iter()
            .flatten()
            .for_each(|block| state.arena.free(block, |bare| self.release_pages(bare)));
        if let Some(lent_ring) = lent_ring {
            // The acceptor has sent so much. If its word lies, the memory of its own user is released later.
            let used = self
                .slot(number)
                .map_or(u64::MAX, |slot| slot.server.tail.load(Ordering::Relaxed));
            let arena = &mut state.server_arena;
            arena.free_used(lent_ring, used, |bare| self.release_pages(bare));
        }
        if bare {
            state.without_anchor.push(number)
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
                let next = match state.without_anchor.pop() {
                    Some(number) => number,
                    None if state.slots.len() < self.layout.slots => {
                        state.slots.push(SlotLedger {
                            anchor: -1,
                            ..SlotLedger::default()
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
        let mut peer_ends = [-1; BATCH];
        let mut made = 0;
        while made < count {
            let Ok((mine, other)) = limits::for_library(sys::anchor_pair) else {
                break;
            };
            own[made] = mine;
            peer_ends[made] = other;
            made += 1;
        }
        let mut words = [0; 14];
        words[0] = made as u64;
        for (index, number) in slots.iter().enumerate().take(made) {
            // Two slot numbers to a word.
            words[1 + index / 2] |= u64::from(*number) << (32 * (index % 2));
        }
        let message = Message::new(Operation::Anchors, 0, words);
        let send = |fd| {
            let peer_ends = peer_ends.get(..made).unwrap_or(&[]);
            sys::send_message(fd, &message.to_bytes(), peer_ends, libc::MSG_DONTWAIT)
        };
        let sent = made > 0 && self.channel.with(send).is_some_and(|sent| sent.is_ok());
        peer_ends.iter().take(made).for_each(|fd| sys::close(*fd));
        for (index, number) in slots.iter().enumerate().take(count) {
            if sent && index < made {
                self.add_anchor(*number as usize, own[index], false);
            } else {
                if index < made {
                    sys::close(own[index]);
                }
                self.state.lock()?.without_anchor.push(*number);
            }
        }
        sent.then_some(())
    }

    /// (server) Whether the pool has the anchor of pair number `pair` for a slot, not an older one whose other end is
    /// closed.
    pub(super) fn has_anchor(&self, slot: u32, pair: u32) -> bool {
        self.state.lock().is_some_and(|state| {
            state
                .slots
                .get(slot as usize)
                .is_some_and(|lent| lent.anchor >= 0 && lent.pairs == pair)
        })
    }

    /// Whether the pool takes another anchor: it keeps as many as a burst needs. No anchor is used again over a link
    /// that was left.
    pub fn wants_anchor(&self) -> bool {
        const MOST_POOLED: usize = 64;
        self.is_own()
            && self.is_alive()
            && !self.has_left()
            && !self.is_queued()
            && self.pooled.load(Ordering::Relaxed) < MOST_POOLED
    }

    /// Allocates a block for a larger transmit ring.
    pub fn allocate(&self, log2: u32) -> Option<Geometry> {
        if !self.is_own() {
            return None;
        }
        self.state.lock()?.arena.allocate(log2)
    }

    /// Allocates a ring for a process that can allocate none: the largest, where there is plenty; otherwise one of size
    /// `least`.
    pub fn allocate_for_other(&self, least: u32) -> Option<Geometry> {
        if !self.is_own() {
            return None;
        }
        let mut state = self.state.lock()?;
        let largest = state.arena.allocate_largest();
        largest.or_else(|| state.arena.allocate(least))
    }

    /// (server) Reserves a ring for a connection that goes to another process. It is freed with the slot.
    pub fn reserve_for_other(&self, handle: Handle) -> Option<Geometry> {
        let ring = self.allocate_for_other(LEAST_APART_LOG2)?;
        let mut state = self.state.lock()?;
        match state.slots.get_mut(handle.index as usize) {
            Some(lent) => lent.blocks = [Some(ring), None],
            None => state.arena.free(ring, |bare| self.release_pages(bare)),
        }
        Some(ring)
    }

    /// (server) Frees that ring: the connection came back to this process, or did not go.
    pub fn free_reserved(&self, handle: Handle) {
        if self.is_own()
            && let Some(mut guard) = self.state.lock()
        {
            let state = &mut *guard;
            let lent = state.slots.get_mut(handle.index as usize);
            let blocks = lent.map(|lent| core::mem::take(&mut lent.blocks));
            for block in blocks.into_iter().flatten().flatten() {
                state.arena.free(block, |bare| self.release_pages(bare));
            }
        }
    }

    /// Frees a block that the peer no longer reads.
    pub fn release(&self, block: Geometry) {
        if block.log2 > SMALL_RING_LOG2
            && self.is_own()
            && let Some(mut state) = self.state.lock()
        {
            state.arena.free(block, |bare| self.release_pages(bare));
        }
    }

    /// Releases the memory of a free block of this end's arena.
    pub(super) fn release_pages(&self, block: Geometry) {
        let offset = usize::try_from(block.offset).unwrap_or(usize::MAX);
        let length = usize::try_from(block.size()).unwrap_or(0);
        self.region.release_pages(offset, length);
    }

    /// Closes a connection at this end. `anchor` goes back to the pool when it is given and the other end may use it
    /// again; `rings` are its transmit rings, which the peer may still read. Publishes `flags` with the result.
    /// [`Self::remove_user`] follows when the peer was notified.
    pub fn finish(
        &self,
        slot: &Slot,
        handle: Handle,
        flags: u32,
        loan: Option<Loan>,
        rings: [Geometry; 2],
    ) {
        let (own, peer) = self.sides(slot);
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
            lent.blocks = blocks(rings);
            lent.port = 0;
            match loan {
                Some(loan) if self.is_alive() => {
                    lent.anchor = loan.anchor;
                    lent.anchor_nonblocking = loan.nonblocking;
                    self.pooled.fetch_add(1, Ordering::Relaxed);
                }
                Some(loan) => attach::close_internal(loan.anchor),
                None => lent.anchor = -1,
            }
            match self.role {
                Role::Server => {
                    lent.busy = false;
                    // Release: a peer that sees the flags sees the anchor in its pool and the words.
                    own.flags.store(done, Ordering::Release);
                }
                Role::Client => {
                    own.flags.store(done, Ordering::Release);
                    let peer_flags = side::flags(peer, handle.generation);
                    if lent.left_to_others {
                        // It is in the list of closing slots already.
                    } else if peer_flags & CLOSED != 0 {
                        self.settle(&mut state, handle.index, peer_flags);
                    } else {
                        state.closing.push(handle.index);
                    }
                }
            }
        }
        drop(state);
    }
}
