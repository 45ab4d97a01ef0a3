//! Bytes that the program has written, readable from any sequence that was not consumed yet, across the program's moves
//! to other rings. The ring keeps the bytes until they are consumed, so a sender can send them again until the other
//! host has them.

use super::lane::Lane;
use super::spans::{Checked, Spans, spans};
use netchannel_abi::link::Geometry;
use netchannel_ring::Fault;
use netchannel_ring::switch::{self, Position, Readable};
use std::sync::atomic::Ordering;

impl Lane {
    /// The sequence up to which this end has consumed.
    #[must_use]
    #[inline]
    pub const fn consumed(&self) -> u64 {
        self.reader.head
    }

    /// The sequence up to which bytes were available when this end last looked.
    #[inline]
    pub(super) const fn seen(&self) -> u64 {
        self.reader.seen.get()
    }

    /// The capacity of the ring at the read position.
    #[must_use]
    #[inline]
    pub const fn program_capacity(&self) -> u64 {
        self.reader.ring.size()
    }

    /// The sequence up to which the program has written and holds nothing back.
    ///
    /// # Errors
    /// A fault in the program's words.
    #[inline]
    pub fn frontier(&self) -> Checked<u64> {
        let seen = self.look()?;
        let moved = seen.moved.map_or(0, |moved| moved.length);
        Ok(self
            .reader
            .head
            .wrapping_add(seen.in_ring)
            .wrapping_add(moved))
    }

    /// The place of up to `most` bytes from sequence `from` on: all of them are written and not consumed, and all are
    /// in one ring. Empty where there are none.
    ///
    /// # Errors
    /// A fault in the program's words.
    #[inline]
    pub fn readable(&self, from: u64, most: u64) -> Checked<Spans> {
        let seen = self.look()?;
        let ahead = from.wrapping_sub(self.reader.head);
        let (ring, there) = match seen.moved {
            _ if ahead < seen.in_ring => (self.reader.ring, seen.in_ring - ahead),
            Some(moved) if ahead - seen.in_ring < moved.length => (
                Geometry::from_word(moved.geometry),
                moved.length - (ahead - seen.in_ring),
            ),
            _ => return Ok(Spans::default()),
        };
        spans(ring, from, there.min(most))
    }

    /// Gives the bytes before `to` back to the program, as room.
    ///
    /// # Errors
    /// A fault in the program's words, or `to` is beyond what it has written.
    pub fn consume(&mut self, to: u64) -> Checked<()> {
        let seen = self.look()?;
        let ahead = to.wrapping_sub(self.reader.head);
        if ahead > seen.in_ring {
            let moved = seen.moved.ok_or(Fault)?;
            if ahead - seen.in_ring > moved.length {
                return Err(Fault);
            }
            // This must precede the store of the head: after that store the program may move again.
            self.reader.ring = Geometry::from_word(moved.geometry);
            self.reader.adopted = moved.sequence;
        }
        self.reader.head = to;
        let (own, _) = self.sides().ok_or(Fault)?;
        // Release: pairs with the acquire of the writer. The bytes before the head may be overwritten.
        own.head.store(to, Ordering::Release);
        let written = seen.in_ring + seen.moved.map_or(0, |moved| moved.length);
        let (left, size) = (written.saturating_sub(ahead), self.reader.ring.size());
        // As with TCP, a writer is not woken for every small amount of room. The remaining bytes will be consumed and
        // make more room.
        if left == 0 || size.saturating_sub(left) >= size / 3 {
            self.announce_space();
        }
        Ok(())
    }

    fn look(&self) -> Checked<Readable> {
        let (_, peer) = self.sides().ok_or(Fault)?;
        // The generation is loaded first: the words loaded after it belong to this connection, never to the last one.
        if peer.generation.load(Ordering::Acquire) != self.handle.generation {
            return Ok(Readable::default());
        }
        let position = Position {
            head: self.reader.head,
            size: self.reader.ring.size(),
            adopted: self.reader.adopted,
        };
        let (role, index) = (self.link.role().other(), self.handle.index);
        let accept = |word| {
            let claimed = Geometry::from_word(word);
            let index = usize::try_from(index).ok()?;
            self.link
                .layout
                .accepts(role, index, claimed)
                .then(|| claimed.size())
        };
        let mut seen = switch::look(
            position,
            &peer.tail,
            &peer.switch_sequence,
            &peer.geometry,
            accept,
        )?;
        let moved = seen.moved.as_mut().map_or(0, |moved| moved.length);
        let (head, written) = (position.head, seen.in_ring + moved);
        let tail = head.wrapping_add(written);
        let there = self.available_up_to(peer, self.seen(), tail);
        self.reader.seen.set(there);
        let there = there.wrapping_sub(head);
        if there < written {
            seen.in_ring = seen.in_ring.min(there);
            if let Some(moved) = &mut seen.moved {
                moved.length = there - seen.in_ring;
            }
        }
        Ok(seen)
    }
}
