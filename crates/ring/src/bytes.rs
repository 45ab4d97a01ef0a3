//! Arithmetic of a byte ring whose indices are free-running 64-bit sequences.

use crate::Fault;

/// Bytes between the reader's own `head` and the `tail` that the writer claims.
///
/// # Errors
/// [`Fault`] when the claim exceeds the ring of `size` bytes or runs backwards.
#[inline]
pub const fn readable(head: u64, claimed_tail: u64, size: u64) -> Result<u64, Fault> {
    let length = claimed_tail.wrapping_sub(head);
    if length <= size {
        Ok(length)
    } else {
        Err(Fault)
    }
}

/// Free bytes between the writer's own `tail` and the `head` that the reader claims.
///
/// # Errors
/// [`Fault`] when the reader claims to have read bytes that were not written, or runs backwards past the ring.
#[inline]
pub const fn writable(tail: u64, claimed_head: u64, size: u64) -> Result<u64, Fault> {
    let used = tail.wrapping_sub(claimed_head);
    if used <= size {
        Ok(size - used)
    } else {
        Err(Fault)
    }
}

/// Up to two runs of a ring: the first starts at `offset`, the second at the ring's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Where the first run starts in the ring.
    pub offset: u64,
    /// Bytes of the first run.
    pub first: u64,
    /// Bytes of the second run, which starts at 0.
    pub second: u64,
}

/// Where `length` bytes from sequence `position` lie in a ring of `size` bytes (a power of two,
/// not less than `length`).
#[inline]
#[must_use]
pub const fn runs(position: u64, length: u64, size: u64) -> Runs {
    let offset = position & (size - 1);
    let room = size - offset;
    let first = if length < room { length } else { room };
    Runs {
        offset,
        first,
        second: length - first,
    }
}
