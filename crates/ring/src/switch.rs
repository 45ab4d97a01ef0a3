//! Moving one direction of a connection to another ring while bytes are in flight.
//!
//! ```text
//!  producer:  geometry, switch_sequence (Relaxed) -> bytes into the new ring -> tail (Release)
//!  consumer:  tail (Acquire) -> switch_sequence, geometry (Relaxed)
//!
//!  sequence   head          switch_sequence          tail
//!             |--- former ring ---|------ new ring ------|
//! ```
//!
//! The consumer adopts a ring when, and only when, a byte in it is published. The producer may move again only when the
//! consumer has read such a byte ([`may_move`]). So the words of a move that a consumer has not adopted yet never
//! change, and no move is skipped. Having read *up to* the move is not enough, since that needs no look at the new
//! ring. A direction starts in a ring that both sides know, with sequence 0, which therefore is no move.

use crate::Fault;
use crate::sync::{AtomicU64, Ordering};

/// Whether the producer may move at `tail`: `last` is the sequence of its last move or 0, and
/// `head` the checked index of the consumer.
#[inline]
#[must_use]
pub const fn may_move(last: u64, tail: u64, head: u64) -> bool {
    tail != 0 && (last == 0 || tail.wrapping_sub(head) < tail.wrapping_sub(last))
}

/// Names the ring that holds the bytes from `tail` on. The store of the next tail publishes it.
#[inline]
pub fn announce(geometry: &AtomicU64, switch_sequence: &AtomicU64, word: u64, tail: u64) {
    geometry.store(word, Ordering::Relaxed);
    switch_sequence.store(tail, Ordering::Relaxed);
}

/// The consumer's private state of its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its own index.
    pub head: u64,
    /// Bytes of the ring it reads from.
    pub size: u64,
    /// Sequence of the last move it adopted, 0 at first.
    pub adopted: u64,
}

/// Readable bytes, in the order of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readable {
    /// Bytes in the ring the consumer reads from.
    pub in_ring: u64,
    /// A move that follows them.
    pub moved: Option<Move>,
}

/// A move that the consumer adopts once it has read the bytes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The new [`Position::adopted`].
    pub sequence: u64,
    /// The geometry word of the new ring, as it was accepted.
    pub geometry: u64,
    /// Bytes of the new ring.
    pub size: u64,
    /// Readable bytes in it: at least one.
    pub length: u64,
}

/// Looks at the producer's words. `accept` gives the size of the ring that a geometry word names, or `None` where the
/// producer may not use it.
///
/// # Errors
/// [`Fault`] when the producer claims more than its rings hold, or names a ring that is not its own.
#[inline]
pub fn look(
    position: Position,
    tail: &AtomicU64,
    switch_sequence: &AtomicU64,
    geometry: &AtomicU64,
    accept: impl FnOnce(u64) -> Option<u64>,
) -> Result<Readable, Fault> {
    // Acquire: pairs with the producer's release of the tail, after the bytes and `announce`.
    let length = tail.load(Ordering::Acquire).wrapping_sub(position.head);
    let sequence = switch_sequence.load(Ordering::Relaxed);
    let in_ring = sequence.wrapping_sub(position.head);
    if sequence == position.adopted || in_ring >= length {
        if length > position.size {
            return Err(Fault);
        }
        return Ok(Readable {
            in_ring: length,
            moved: None,
        });
    }
    if in_ring > position.size {
        return Err(Fault);
    }
    let word = geometry.load(Ordering::Relaxed);
    let size = accept(word).ok_or(Fault)?;
    let length = length - in_ring;
    if length > size {
        return Err(Fault);
    }
    Ok(Readable {
        in_ring,
        moved: Some(Move {
            sequence,
            geometry: word,
            size,
            length,
        }),
    })
}
