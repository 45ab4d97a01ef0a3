//! The single-producer single-consumer queue of 32-byte elements.
//!
//! Each side keeps its own index privately and only publishes it. The other side's index is checked on every look: it
//! lies between its last value and what this side makes possible. A batch costs one index write.
//!
//! ```text
//!            head            tail
//!  ..........|###############|..........   [head, tail) is full; head runs to at most tail,
//!            consumer ->     producer ->   tail to at most head + capacity
//! ```

use crate::Fault;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use netchannel_abi::link::asleep;
use netchannel_abi::nqe::Nqe;

/// An element in shared memory.
pub type Element = [AtomicU64; 4];

/// Both runs of a ring of `elements` from index `from` on: up to its end, and again from its start.
#[inline]
fn runs(elements: &[Element], from: u64) -> impl Iterator<Item = &Element> {
    let mask = (elements.len() as u64).wrapping_sub(1);
    let start = usize::try_from(from & mask).unwrap_or(usize::MAX);
    let (second, first) = elements.split_at_checked(start).unwrap_or((elements, &[]));
    first.iter().chain(second)
}

/// How many of `wanted` items `room` allows.
#[inline]
fn least(wanted: usize, room: u64) -> usize {
    usize::try_from(room).map_or(wanted, |room| room.min(wanted))
}

/// The producer's private state.
#[derive(Debug, Default)]
pub struct Producer {
    tail: u64,
    head: u64,
}

/// The consumer's private state.
#[derive(Debug, Default)]
pub struct Consumer {
    head: u64,
    tail: u64,
}

impl Producer {
    /// A producer that continues at `index`.
    #[must_use]
    pub const fn at(index: u64) -> Self {
        Self {
            tail: index,
            head: index,
        }
    }

    /// The index behind the last pushed element.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.tail
    }

    /// Pushes as many of `items` as fit and returns how many. `elements` has a power-of-two
    /// length; `tail` and `head` are the queue's two shared indices.
    ///
    /// # Errors
    /// [`Fault`] when the consumer's index is one it cannot have reached.
    #[inline]
    pub fn push(
        &mut self,
        tail: &AtomicU64,
        head: &AtomicU64,
        elements: &[Element],
        items: &[Nqe],
    ) -> Result<usize, Fault> {
        let capacity = elements.len() as u64;
        if self.tail.wrapping_sub(self.head) + items.len() as u64 > capacity {
            // Acquire: pairs with the release in `pop`, the elements are free again.
            let claimed = head.load(Ordering::Acquire);
            if claimed.wrapping_sub(self.head) > self.tail.wrapping_sub(self.head) {
                return Err(Fault);
            }
            self.head = claimed;
        }
        let free = capacity.saturating_sub(self.tail.wrapping_sub(self.head));
        let pushed = least(items.len(), free);
        for (element, item) in runs(elements, self.tail).zip(items.iter().take(pushed)) {
            for (word, value) in element.iter().zip(item.to_words()) {
                word.store(value, Ordering::Relaxed);
            }
        }
        if pushed > 0 {
            self.tail = self.tail.wrapping_add(pushed as u64);
            // Release: pairs with the acquire in `pop`, the elements are complete.
            tail.store(self.tail, Ordering::Release);
        }
        Ok(pushed)
    }
}

impl Consumer {
    /// A consumer that continues at `index`.
    #[must_use]
    pub const fn at(index: u64) -> Self {
        Self {
            head: index,
            tail: index,
        }
    }

    /// Whether the producer has published more elements than were popped. A hint, for polling.
    #[inline]
    #[must_use]
    pub fn pending(&self, tail: &AtomicU64) -> bool {
        tail.load(Ordering::Relaxed) != self.head
    }

    /// Pops up to `out.len()` elements and returns how many.
    ///
    /// # Errors
    /// [`Fault`] when the producer's index is one it cannot have reached.
    #[inline]
    pub fn pop(
        &mut self,
        tail: &AtomicU64,
        head: &AtomicU64,
        elements: &[Element],
        out: &mut [Nqe],
    ) -> Result<usize, Fault> {
        let capacity = elements.len() as u64;
        if self.tail.wrapping_sub(self.head) < out.len() as u64 {
            // Acquire: pairs with the release in `push`.
            let claimed = tail.load(Ordering::Acquire);
            let length = claimed.wrapping_sub(self.head);
            if length > capacity || length < self.tail.wrapping_sub(self.head) {
                return Err(Fault);
            }
            self.tail = claimed;
        }
        let popped = least(out.len(), self.tail.wrapping_sub(self.head));
        for (element, item) in runs(elements, self.head).zip(out.iter_mut().take(popped)) {
            let [a, b, c, d] = element;
            *item = Nqe::from_words([a, b, c, d].map(|word| word.load(Ordering::Relaxed)));
        }
        if popped > 0 {
            self.head = self.head.wrapping_add(popped as u64);
            // Release: pairs with the acquire in `push`, the elements are free again.
            head.store(self.head, Ordering::Release);
        }
        Ok(popped)
    }
}

/// Claims the sleep of a consumer, whose state in [`asleep`] is `next` from then on. True where this producer claimed
/// it, and owes the consumer a byte on the link channel.
///
/// Between the push and this call lies a sequentially consistent fence; it pairs with the fence of the consumer between
/// its store to `word` and its last look at the queue.
#[inline]
#[must_use]
pub fn claim_sleep(word: &AtomicU32, next: u32) -> bool {
    let state = word.load(Ordering::Acquire);
    // AcqRel: only one of several producers claims a sleep, and it sees what the consumer wrote before.
    matches!(state, asleep::SLEEPS | asleep::RESTS)
        && word
            .compare_exchange(state, next, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}
