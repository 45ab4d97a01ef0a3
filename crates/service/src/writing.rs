//! This end's transmit ring towards a program. Bytes can be placed out of order at any sequence after what is
//! published, as far as there is room. The ring grows by moving to larger ones.

use super::lane::Lane;
use super::spans::{Checked, Spans, length, spans};
use netchannel_abi::link::{
    Geometry, LEAST_RING_LOG2, MOST_RING_LOG2, SMALL_RING, SMALL_RING_LOG2,
};
use netchannel_ring::{Fault, bytes, switch};
use std::sync::atomic::Ordering;

/// The size of the first larger ring, as in the library.
const FIRST_RING_LOG2: u32 = 17;
/// Growth stops at this size while the program keeps up.
const CALM_RING_LOG2: u32 = 18;

impl Lane {
    /// Sequence up to which this end has published.
    #[must_use]
    #[inline]
    pub const fn published(&self) -> u64 {
        self.writer.tail
    }

    /// The sequence up to which bytes may be placed now. Never less than before.
    ///
    /// # Errors
    /// A fault in the program's words.
    #[inline]
    pub fn limit(&mut self) -> Checked<u64> {
        self.refresh()?;
        Ok(self.writer.limit())
    }

    /// The sequence up to which the program has read, as of the last [`Self::limit`].
    #[must_use]
    #[inline]
    pub const fn read_by_program(&self) -> u64 {
        self.writer.head
    }

    /// The capacity of the present ring.
    #[must_use]
    #[inline]
    pub const fn capacity(&self) -> u64 {
        self.writer.ring.size()
    }

    /// Published bytes that the program has not read yet, by its own index.
    #[must_use]
    #[inline]
    pub fn unread_by_peer(&self) -> u64 {
        let read = self.peer_head().unwrap_or(0);
        self.writer
            .tail
            .wrapping_sub(read)
            .min(1 << (MOST_RING_LOG2 + 1))
    }

    /// The place of up to `most` bytes from sequence `at` on, as far as is known since the last [`Self::limit`]. `at`
    /// must be between what is published and the limit; elsewhere there is no room.
    ///
    /// # Errors
    /// Never for a ring that was allocated.
    #[inline]
    pub fn room(&self, at: u64, most: u64) -> Checked<Spans> {
        let writer = &self.writer;
        let free = writer.limit().saturating_sub(at);
        if at < writer.tail || free == 0 {
            return Ok(Spans::default());
        }
        spans(writer.ring, at, free.min(most))
    }

    /// The place for up to `wanted` bytes after what is published. The ring grows where it is too small.
    ///
    /// # Errors
    /// A fault in the program's words.
    pub(super) fn room_for(&mut self, wanted: u64) -> Checked<Spans> {
        const SMALL: u64 = SMALL_RING as u64;
        let mut free = self.limit()? - self.published();
        if free < wanted && free <= SMALL && self.grow(wanted)? {
            free = self.limit()? - self.published();
        }
        self.room(self.published(), wanted.min(free))
    }

    /// As [`Self::room_for`]. Where there is none, the program tells when there is some.
    ///
    /// # Errors
    /// A fault in the program's words.
    pub(super) fn room_or_news(&mut self, wanted: u64) -> Checked<Spans> {
        let room = self.room_for(wanted)?;
        if length(&room) > 0 {
            return Ok(room);
        }
        self.request_space_news();
        self.room_for(wanted)
    }

    /// Notes that bytes up to `to` were placed, perhaps with gaps before them.
    #[inline]
    pub fn note_placed(&mut self, to: u64) {
        self.writer.placed = self.writer.placed.max(to);
    }

    /// As [`Self::show`], and wakes the program.
    #[cfg(test)]
    pub fn publish(&mut self, tail: u64) -> Checked<()> {
        self.show(tail)?;
        self.announce_data();
        Ok(())
    }

    /// All bytes before `tail` were placed: publishes them without waking the program.
    ///
    /// # Errors
    /// Where `tail` is less than before, or beyond the limit.
    #[inline]
    pub(super) fn show(&mut self, tail: u64) -> Checked<()> {
        if tail < self.writer.tail || tail > self.writer.limit() {
            return Err(Fault);
        }
        self.writer.tail = tail;
        self.note_placed(tail);
        let (own, _) = self.sides().ok_or(Fault)?;
        // Release: pairs with the acquire of the reader, which then sees the bytes before it.
        own.tail.store(tail, Ordering::Release);
        Ok(())
    }

    /// Moves to a larger ring, with room for `wanted` bytes beyond those that are unread. This is possible only while
    /// no bytes are placed ahead, and once the program reads from the present ring. True if it moved.
    ///
    /// # Errors
    /// A fault in the program's words.
    pub fn grow(&mut self, wanted: u64) -> Checked<bool> {
        if !self.may_grow()? {
            return Ok(false);
        }
        let writer = &mut self.writer;
        let present = writer.ring.log2;
        let wanted = wanted.saturating_add(writer.tail - writer.head);
        let log2 = if present == SMALL_RING_LOG2 {
            let double = wanted.saturating_mul(2).min(1 << MOST_RING_LOG2);
            let log2 = double.next_power_of_two().ilog2();
            log2.clamp(FIRST_RING_LOG2, CALM_RING_LOG2)
        } else {
            // A program whose index has not moved since the last time needs a larger buffer rather than a faster one.
            let mark = writer.head.wrapping_add(1);
            let calm = std::mem::replace(&mut writer.full_at, mark) == mark;
            if present >= CALM_RING_LOG2 && !calm {
                return Ok(false);
            }
            (present + 2).min(MOST_RING_LOG2)
        };
        self.move_to(log2)
    }

    /// Moves to a ring of `1 << log2` bytes if the present one is smaller, on the terms of [`Self::grow`].
    ///
    /// # Errors
    /// A fault in the program's words.
    #[inline]
    pub fn grow_to(&mut self, log2: u32) -> Checked<bool> {
        Ok(self.writer.ring.log2 < log2 && self.may_grow()? && self.move_to(log2)?)
    }

    #[inline]
    fn may_grow(&mut self) -> Checked<bool> {
        self.refresh()?;
        let writer = &self.writer;
        Ok(!writer.stuck
            && writer.placed == writer.tail
            && writer.former.is_none()
            && switch::may_move(writer.switched, writer.tail, writer.head))
    }

    fn move_to(&mut self, log2: u32) -> Checked<bool> {
        let least = LEAST_RING_LOG2.max(self.writer.ring.log2 + 1);
        let found = (least..=log2.min(MOST_RING_LOG2))
            .rev()
            .find_map(|log2| self.link.allocate(log2));
        let writer = &mut self.writer;
        let Some(larger) = found else {
            writer.stuck = true;
            return Ok(false);
        };
        writer.former = Some(std::mem::replace(&mut writer.ring, larger));
        writer.switched = writer.tail;
        let (word, tail) = (larger.to_word(), writer.tail);
        let (own, _) = self.sides().ok_or(Fault)?;
        switch::announce(&own.geometry, &own.switch_sequence, word, tail);
        Ok(true)
    }

    /// The rings that hold all that was sent, in order, each with the sequence at which its bytes end. `None` once the
    /// program has read some of it.
    pub(super) fn sent_in(&self) -> Option<[(Geometry, u64); 2]> {
        let writer = &self.writer;
        let first = writer.former.unwrap_or(writer.ring);
        (writer.head == 0).then_some([(first, writer.switched), (writer.ring, writer.tail)])
    }

    /// Loads and checks the program's index. Frees the former ring once the program has left it.
    fn refresh(&mut self) -> Checked<()> {
        let claimed = self.peer_head().ok_or(Fault)?;
        let writer = &mut self.writer;
        let base = claimed.max(writer.switched);
        if claimed > writer.tail || bytes::writable(writer.tail, base, writer.ring.size()).is_err()
        {
            return Err(Fault);
        }
        writer.head = writer.head.max(claimed);
        if writer.head >= writer.switched
            && let Some(former) = writer.former.take()
        {
            self.link.release(former);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn peer_head(&self) -> Option<u64> {
        let (_, peer) = self.sides()?;
        // The generation is loaded first: the words loaded after it belong to this connection, never to the last one.
        if peer.generation.load(Ordering::Acquire) != self.handle.generation {
            return Some(0);
        }
        // Acquire: pairs with the program's release. Bytes before it may be overwritten.
        Some(peer.head.load(Ordering::Acquire))
    }
}
