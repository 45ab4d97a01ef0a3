//! The single-producer single-consumer queue of 32-byte elements.
//!
//! Each side keeps its own index privately and only publishes it; the other's index is checked on
//! every look. A batch costs one index write.

use crate::Fault;
use crate::sync::{AtomicU64, Ordering};
use netchannel_abi::nqe::Nqe;

/// An element in shared memory.
pub type Element = [AtomicU64; 4];

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

    /// Pushes as many of `items` as fit and returns how many. `elements` has a power-of-two
    /// length; `tail` and `head` are the queue's two shared indices.
    ///
    /// # Errors
    /// [`Fault`] when the consumer's index is one it can not have reached.
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
            if self.tail.wrapping_sub(claimed) > capacity {
                return Err(Fault);
            }
            self.head = claimed;
        }
        let free = capacity - self.tail.wrapping_sub(self.head);
        let mut pushed = 0;
        for item in items
            .iter()
            .take(usize::try_from(free).unwrap_or(usize::MAX))
        {
            let index = self.tail & (capacity - 1);
            let Some(element) = elements.get(usize::try_from(index).unwrap_or(0)) else {
                break;
            };
            for (word, value) in element.iter().zip(item.to_words()) {
                word.store(value, Ordering::Relaxed);
            }
            self.tail = self.tail.wrapping_add(1);
            pushed += 1;
        }
        if pushed > 0 {
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

    /// Whether the producer has published more than was popped. A hint, for polling.
    #[inline]
    #[must_use]
    pub fn pending(&self, tail: &AtomicU64) -> bool {
        tail.load(Ordering::Relaxed) != self.head
    }

    /// Pops up to `out.len()` elements and returns how many.
    ///
    /// # Errors
    /// [`Fault`] when the producer's index is one it can not have reached.
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
            if claimed.wrapping_sub(self.head) > capacity {
                return Err(Fault);
            }
            self.tail = claimed;
        }
        let available = self.tail.wrapping_sub(self.head);
        let mut popped = 0;
        for item in out
            .iter_mut()
            .take(usize::try_from(available).unwrap_or(usize::MAX))
        {
            let index = self.head & (capacity - 1);
            let Some(element) = elements.get(usize::try_from(index).unwrap_or(0)) else {
                break;
            };
            let [a, b, c, d] = element;
            *item = Nqe::from_words([a, b, c, d].map(|word| word.load(Ordering::Relaxed)));
            self.head = self.head.wrapping_add(1);
            popped += 1;
        }
        if popped > 0 {
            // Release: pairs with the acquire in `push`.
            head.store(self.head, Ordering::Release);
        }
        Ok(popped)
    }
}
