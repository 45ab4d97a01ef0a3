//! The pending connections of one listener, and their number: whether there is any is known without a lock.

use std::collections::VecDeque;

use core::sync::atomic::{AtomicUsize, Ordering};

use super::Pending;
use crate::descriptors::attach;
use crate::ground::lock::Lock;

/// The queue, first come, first served.
pub(super) struct PendingQueue {
    count: AtomicUsize,
    queue: Lock<VecDeque<Pending>>,
}

impl PendingQueue {
    pub const fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            queue: Lock::new(VecDeque::new()),
        }
    }

    /// Whether there is any.
    #[inline]
    pub fn any(&self) -> bool {
        // Acquire: pairs with the release in `change`, for a thread that was notified.
        self.count.load(Ordering::Acquire) > 0
    }

    fn change<R>(&self, with: impl FnOnce(&mut VecDeque<Pending>) -> R) -> Option<R> {
        let mut queue = self.queue.lock()?;
        let result = with(&mut queue);
        self.count.store(queue.len(), Ordering::Release);
        Some(result)
    }

    /// Inserts it behind connections that were announced before. Over several links they come in any order.
    pub fn push_back(&self, pending: Pending) {
        let _ = self.change(|queue| {
            let before = queue
                .iter()
                .rposition(|one| one.announced <= pending.announced);
            queue.insert(before.map_or(0, |before| before + 1), pending);
        });
    }

    pub fn push_front(&self, pending: Pending) {
        let _ = self.change(|queue| queue.push_front(pending));
    }

    pub fn pop(&self) -> Option<Pending> {
        if self.any() {
            self.change(VecDeque::pop_front)?
        } else {
            None
        }
    }

    pub fn take_all(&self) -> VecDeque<Pending> {
        self.change(core::mem::take).unwrap_or_default()
    }

    /// Notes that a descriptor of the library has a new number.
    pub fn relocate(&self, from: i32, to: i32) {
        let _ = self.change(|queue| {
            if let Some(found) = queue.iter_mut().find(|p| p.loan.anchor == from) {
                found.loan.anchor = to;
            }
        });
    }

    /// In a forked child: the parent accepts the connections that it has taken.
    pub fn reset_in_child(&self) {
        self.queue.reset();
        self.take_all()
            .iter()
            .for_each(|pending| attach::close_internal(pending.loan.anchor));
    }
}
