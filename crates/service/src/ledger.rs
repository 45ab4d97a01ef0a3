//! The pool of anchors and the ledger of slots. A slot is lent to a connection, closed, settled, and lent again.

use super::anchor::Anchor;
use super::link::{LinkEnd, Loan, SlotState, State};
use crate::packet;
use netchannel_abi::handle::Handle;
use netchannel_abi::link::{
    Geometry, LEAST_RING_LOG2, MOST_RING_LOG2, Role, SMALL_RING_LOG2, Slot, side_flags,
};
use netchannel_abi::message::{Message, Operation};
use netchannel_ring::arena::MOST_KEPT;
use netchannel_ring::side;
use netchannel_shm::Region;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Anchors that this end returns to the pool: enough for a burst.
const MOST_POOLED: usize = 64;
/// Anchors that a program may have sent beyond those of the connections that it has announced. A program that keeps the
/// rules never has more.
const MOST_SENT: usize = 256;
/// Anchor pairs made at once.
const BATCH: usize = 16;

const CLOSED: u32 = side_flags::RELEASED | side_flags::ANCHOR_GONE;

impl State {
    /// Counts another pair of anchors of this slot.
    fn next_pair(&mut self, slot: usize) -> Option<&mut SlotState> {
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, SlotState::default);
        }
        let lent = self.slots.get_mut(slot)?;
        lent.pairs = lent.pairs.wrapping_add(1);
        Some(lent)
    }
}

impl LinkEnd {
    /// Puts a new anchor into the pool, in the place of the one that was there. Where there are too many, the slot
    /// stays without an anchor: a connection in it is refused.
    pub(super) fn add_anchor(&self, slot: usize, anchor: OwnedFd) {
        let Ok(number) = u32::try_from(slot) else {
            return;
        };
        if slot >= self.layout.slots || !self.is_alive() {
            return;
        }
        let mut state = self.state();
        let Some(lent) = state.next_pair(slot) else {
            return;
        };
        if lent.busy || self.pooled.load(Ordering::Relaxed) >= MOST_SENT + self.jobs() {
            return;
        }
        let Some(anchor) = Anchor::new(anchor, &self.count) else {
            return;
        };
        if lent.anchor.replace(anchor).is_none() {
            self.pooled.fetch_add(1, Ordering::Relaxed);
        }
        if self.role() == Role::Client {
            state.free.push(number);
        }
    }

    /// A pair's anchor did not arrive because this process has no descriptor left. The slot stays without an anchor,
    /// and its pair is still counted, so that both ends agree on the number.
    pub(super) fn skip_anchor(&self, slot: usize) {
        if slot < self.layout.slots {
            self.state().next_pair(slot);
        }
    }

    /// Drops the pooled anchor of a slot if no process holds its other end.
    pub fn drop_anchor(&self, slot: u32) {
        let mut state = self.state();
        let lent = usize::try_from(slot)
            .ok()
            .and_then(|slot| state.slots.get_mut(slot));
        if let Some(lent) = lent
            && lent.anchor.as_ref().is_some_and(|anchor| !anchor.drain())
        {
            lent.anchor = None;
            self.pooled.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// (client) Borrows a slot with its anchor, for a new connection.
    ///
    /// # Errors
    /// `EAGAIN` while the link has no free slot; another errno where the daemon has no descriptor or memory for it.
    pub fn lend(&self) -> Result<Loan, Errno> {
        let mut state = self.state();
        if state.free.is_empty() {
            self.reclaim(&mut state);
        }
        if state.free.is_empty() {
            drop(state);
            self.make_anchors()?;
            state = self.state();
        }
        let (index, anchor) = loop {
            // A program that ends closes its anchors before the channel.
            let index = state.free.pop().ok_or(Errno::AGAIN)?;
            let lent = lent(&mut state, index)?;
            match lent.anchor.take() {
                Some(anchor) => break (index, anchor),
                None => state.bare.push(index),
            }
        };
        let lent = lent(&mut state, index)?;
        lent.generation = lent.generation.wrapping_add(1);
        lent.busy = true;
        let (generation, kept) = (lent.generation, std::mem::take(&mut lent.kept));
        state.kept -= kept;
        drop(state);
        self.pooled.fetch_sub(1, Ordering::Relaxed);
        self.live.fetch_add(1, Ordering::AcqRel);
        Ok(Loan {
            handle: Handle { index, generation },
            anchor,
        })
    }

    /// (client) Borrows a slot with a new pair. The other end of the pair goes to the program by another way than the
    /// channel.
    ///
    /// # Errors
    /// As [`Self::lend`].
    pub fn lend_pair(&self) -> Result<(Loan, OwnedFd), Errno> {
        let mut state = self.state();
        if state.bare.is_empty() {
            self.reclaim(&mut state);
        }
        let index = match state.bare.pop() {
            Some(index) => index,
            None if state.slots.len() < self.layout.slots => {
                state.slots.push(SlotState::default());
                u32::try_from(state.slots.len() - 1).map_err(|_| Errno::AGAIN)?
            }
            None => return Err(Errno::AGAIN),
        };
        let pair = packet::anchor_pair().and_then(|(own, theirs)| {
            let anchor = Anchor::new(own, &self.count).ok_or(Errno::NOBUFS)?;
            Ok((anchor, theirs))
        });
        let (anchor, theirs) = pair.inspect_err(|_| state.bare.push(index))?;
        let lent = lent(&mut state, index)?;
        lent.pairs = lent.pairs.wrapping_add(1);
        lent.generation = lent.generation.wrapping_add(1);
        lent.busy = true;
        let (generation, kept) = (lent.generation, std::mem::take(&mut lent.kept));
        state.kept -= kept;
        drop(state);
        self.live.fetch_add(1, Ordering::AcqRel);
        let handle = Handle { index, generation };
        Ok((Loan { handle, anchor }, theirs))
    }

    /// (client) Settles slots that were closed here and that the program has closed by now.
    fn reclaim(&self, state: &mut State) {
        let closing = std::mem::take(&mut state.closing);
        for number in closing {
            let generation = generation_of(state, number);
            let slot = self.slot(number);
            match slot.map_or(0, |slot| side::flags(&slot.server, generation)) {
                flags if flags & CLOSED != 0 => self.settle(state, number, flags),
                _ => state.closing.push(number),
            }
        }
    }

    /// (client) Both sides have closed the slot. The program frees its ring with the next connection of the slot, which
    /// may come late. So the pages beyond what is kept are released now, while nobody uses them.
    fn release_program_ring(&self, state: &mut State, number: u32) {
        let Some(slot) = self.slot(number) else {
            return;
        };
        let ring = Geometry::from_word(slot.server.geometry.load(Ordering::Relaxed));
        let own = |bytes: usize| u64::try_from(bytes).unwrap_or(0);
        let start = own(self.layout.arena_start(Role::Server));
        let end = start + own(self.layout.arena);
        let within = (LEAST_RING_LOG2..=MOST_RING_LOG2).contains(&ring.log2)
            && ring.offset >= start
            && ring.offset.saturating_add(ring.size()) <= end;
        if !within {
            return;
        }
        if state.kept + ring.size() > MOST_KEPT {
            return release(&self.region, ring);
        }
        if let Ok(lent) = lent(state, number) {
            lent.kept = ring.size();
            state.kept += ring.size();
        }
    }

    /// (server) Frees the rings of slots that the program has closed too.
    fn sweep(&self, state: &mut State) {
        for number in std::mem::take(&mut state.retained) {
            let closed = self.slot(number).is_some_and(|slot| {
                side::flags(&slot.client, generation_of(state, number)) & CLOSED != 0
            });
            let Ok(lent) = lent(state, number) else {
                continue;
            };
            if lent.busy || lent.blocks == [None; 2] {
                continue;
            }
            if !closed {
                state.retained.push(number);
                continue;
            }
            let blocks = std::mem::take(&mut lent.blocks);
            let release = |block| release(&self.region, block);
            let blocks = blocks.into_iter().flatten();
            blocks.for_each(|one| state.arena.free(one, release));
        }
    }

    /// (client) Both sides have closed the slot: it is free, with or without an anchor.
    fn settle(&self, state: &mut State, number: u32, flags: u32) {
        self.release_program_ring(state, number);
        let State {
            slots,
            free,
            bare,
            arena,
            ..
        } = state;
        let lent = usize::try_from(number)
            .ok()
            .and_then(|index| slots.get_mut(index));
        let Some(lent) = lent else { return };
        lent.busy = false;
        let blocks = std::mem::take(&mut lent.blocks);
        let release = |block| release(&self.region, block);
        blocks
            .into_iter()
            .flatten()
            .for_each(|one| arena.free(one, release));
        if flags & side_flags::ANCHOR_GONE != 0 && lent.anchor.take().is_some() {
            self.pooled.fetch_sub(1, Ordering::Relaxed);
        }
        if lent.anchor.is_none() {
            bare.push(number);
        } else {
            free.push(number);
        }
    }

    /// (client) Makes more pairs and sends the program's ends over the channel.
    fn make_anchors(&self) -> Result<(), Errno> {
        let mut slots = Vec::with_capacity(BATCH);
        {
            let mut state = self.state();
            while slots.len() < BATCH {
                if let Some(number) = state.bare.pop() {
                    slots.push(number);
                } else if state.slots.len() < self.layout.slots {
                    slots.push(u32::try_from(state.slots.len()).map_err(|_| Errno::AGAIN)?);
                    state.slots.push(SlotState::default());
                } else {
                    break;
                }
            }
        }
        // Without a free slot the link is full.
        let mut short = Errno::AGAIN;
        let pair = |_| {
            packet::anchor_pair()
                .inspect_err(|errno| short = *errno)
                .ok()
        };
        let pairs: Vec<_> = (0..slots.len()).map_while(pair).collect();
        let mut words = [0; 14];
        words[0] = u64::try_from(pairs.len()).unwrap_or(0);
        for (index, number) in slots.iter().enumerate().take(pairs.len()) {
            // Two slot numbers to a word.
            if let Some(word) = words.get_mut(1 + index / 2) {
                *word |= u64::from(*number) << (32 * (index % 2));
            }
        }
        let message = Message::new(Operation::Anchors, 0, words);
        let theirs: Vec<BorrowedFd<'_>> = pairs.iter().map(|pair| pair.1.as_fd()).collect();
        let sent = if pairs.is_empty() {
            Err(short)
        } else {
            packet::send_borrowed(&self.channel, &message, &theirs).map_err(|errno| match errno {
                // The program does not read, or has ended: another link may be available.
                Errno::PIPE | Errno::CONNRESET => Errno::AGAIN,
                errno => errno,
            })
        };
        let made = if sent.is_ok() { pairs.len() } else { 0 };
        self.state().bare.extend(slots.iter().skip(made));
        sent?;
        for (number, (own, _)) in slots.into_iter().zip(pairs) {
            self.add_anchor(usize::try_from(number).unwrap_or(usize::MAX), own);
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn make_anchors_for_test(&self) -> Result<(), Errno> {
        self.make_anchors()
    }

    /// Whether slots were closed here that the program had not closed yet.
    pub fn has_unsettled_slots(&self) -> bool {
        let state = self.state();
        !state.closing.is_empty() || !state.retained.is_empty()
    }

    /// Settles slots that the program has closed by now. There is no notification of that.
    pub fn settle_slots(&self) {
        let mut state = self.state();
        match self.role() {
            Role::Client => self.reclaim(&mut state),
            Role::Server => self.sweep(&mut state),
        }
    }

    /// Whether the pool has room for another anchor.
    pub(super) fn wants_anchor(&self) -> bool {
        self.is_alive() && self.pooled.load(Ordering::Relaxed) < MOST_POOLED
    }

    /// Allocates a block for a larger transmit ring.
    pub(super) fn allocate(&self, log2: u32) -> Option<Geometry> {
        self.state().arena.allocate(log2)
    }

    /// Frees a block that the program no longer reads.
    pub(super) fn release(&self, block: Geometry) {
        if block.log2 > SMALL_RING_LOG2 {
            let release = |block| release(&self.region, block);
            self.state().arena.free(block, release);
        }
    }

    /// This end has written into the slot that it is closed, and notified the program. `anchor` goes back to the pool
    /// where it is given. `rings` are the transmit rings of the connection, which the program may still read.
    pub(super) fn finish(
        &self,
        slot: &Slot,
        handle: Handle,
        anchor: Option<Anchor>,
        rings: [Option<Geometry>; 2],
    ) {
        let (own, peer) = self.sides(slot);
        let mut state = self.state();
        let index = usize::try_from(handle.index).unwrap_or(usize::MAX);
        let Some(lent) = state.slots.get_mut(index) else {
            return;
        };
        lent.blocks = rings.map(|ring| ring.filter(|ring| ring.log2 > SMALL_RING_LOG2));
        let anchor = anchor.filter(|_| self.is_alive());
        let released = if anchor.is_some() {
            self.pooled.fetch_add(1, Ordering::Relaxed);
            side_flags::RELEASED
        } else {
            side_flags::ANCHOR_GONE
        };
        lent.anchor = anchor;
        if self.role() == Role::Server {
            lent.busy = false;
            if lent.blocks != [None; 2] && !state.retained.contains(&handle.index) {
                state.retained.push(handle.index);
            }
        }
        // Release: whoever sees the flag sees the slot closed, and its anchor is in the pool.
        own.flags.fetch_or(released, Ordering::AcqRel);
        if self.role() == Role::Client {
            let theirs = side::flags(peer, handle.generation);
            if theirs & CLOSED != 0 {
                self.settle(&mut state, handle.index, theirs);
            } else {
                state.closing.push(handle.index);
            }
        } else {
            self.sweep(&mut state);
        }
        drop(state);
        self.live.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Releases the pages of a free block of this end's arena.
pub(super) fn release(region: &Region, block: Geometry) {
    let offset = usize::try_from(block.offset).unwrap_or(usize::MAX);
    region.release_pages(offset, usize::try_from(block.size()).unwrap_or(0));
}

fn lent(state: &mut State, index: u32) -> Result<&mut SlotState, Errno> {
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    state.slots.get_mut(index).ok_or(Errno::AGAIN)
}

fn generation_of(state: &State, number: u32) -> u32 {
    let index = usize::try_from(number).unwrap_or(usize::MAX);
    state.slots.get(index).map_or(0, |lent| lent.generation)
}
