//! The place of a stream's bytes in a ring of a link.

use netchannel_abi::link::Geometry;
use netchannel_ring::{Fault, bytes};
use netchannel_shm::Span;

/// Up to two pieces of a ring. The second has length 0 where one is enough.
pub type Spans = [Span; 2];

/// A fault that a lane finds in the words of its program ends that connection.
pub type Checked<T> = Result<T, Fault>;

/// The place of `length` bytes from sequence `at` on in a ring that was accepted.
#[inline]
pub(super) fn spans(ring: Geometry, at: u64, length: u64) -> Checked<Spans> {
    let runs = bytes::runs(at, length, ring.size());
    let narrow = |word: u64| usize::try_from(word).map_err(|_| Fault);
    Ok([
        Span {
            offset: narrow(ring.offset + runs.offset)?,
            length: narrow(runs.first)?,
        },
        Span {
            offset: narrow(ring.offset)?,
            length: narrow(runs.second)?,
        },
    ])
}

/// The bytes in all spans.
pub(super) fn length(spans: &Spans) -> u64 {
    let [first, second] = spans;
    u64::try_from(first.length + second.length).unwrap_or(0)
}
