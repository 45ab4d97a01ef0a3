//! Messages to a worker: a list under a short lock, and a doorbell that rings only while the worker sleeps.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The messages to one reader.
#[derive(Debug)]
pub struct Mailbox<T> {
    messages: Mutex<Vec<T>>,
    count: AtomicUsize,
    asleep: AtomicBool,
    doorbell: OwnedFd,
}

impl<T> Mailbox<T> {
    /// An empty mailbox.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            messages: Mutex::new(Vec::new()),
            count: AtomicUsize::new(0),
            asleep: AtomicBool::new(true),
            doorbell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    fn messages(&self) -> MutexGuard<'_, Vec<T>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message, and wakes the reader if it sleeps.
    pub fn send(&self, message: T) {
        let mut messages = self.messages();
        messages.push(message);
        self.count.store(messages.len(), Ordering::Relaxed);
        drop(messages);
        // Pairs with the fence in `sleep`: either the reader sees the message, or this thread sees that the reader
        // sleeps.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.ring();
        }
    }

    fn ring(&self) {
        // An error means that the counter is full: the doorbell rings already.
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
    }

    /// Whether there are messages. Costs one load.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Announces that the reader is about to sleep: messages ring from now on. The reader checks [`Self::has_any`] once
    /// more.
    #[inline]
    pub fn sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence in `send`.
        fence(Ordering::SeqCst);
    }

    /// Announces that the reader is awake.
    #[inline]
    pub fn wake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Resets the doorbell.
    pub fn reset_doorbell(&self) {
        // An error means that it does not ring.
        let _ = rustix::io::read(&self.doorbell, &mut [0; 8]);
    }

    /// Moves all messages into an empty list.
    #[inline]
    pub fn take(&self, into: &mut Vec<T>) {
        if self.has_any() {
            let mut messages = self.messages();
            self.count.store(0, Ordering::Relaxed);
            into.append(&mut messages);
        }
    }

    /// Takes the first messages, up to `most`. This is for a reader that has other work too and always sleeps on the
    /// doorbell, which rings again for the remaining messages.
    pub fn take_some(&self, most: usize) -> Vec<T> {
        self.reset_doorbell();
        self.sleep();
        let mut messages = self.messages();
        let count = messages.len().min(most);
        let taken = messages.drain(..count).collect();
        self.count.store(messages.len(), Ordering::Relaxed);
        if !messages.is_empty() {
            self.ring();
        }
        taken
    }
}

impl<T> AsFd for Mailbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn rings(mailbox: &Mailbox<u32>) -> bool {
        let mut looked = [PollFd::new(mailbox, PollFlags::IN)];
        poll(&mut looked, Some(&Timespec::default())) == Ok(1)
    }

    #[test]
    fn a_flood_of_messages_is_read_in_turns() {
        let mailbox = Mailbox::new().ok();
        let Some(mailbox) = mailbox else { return };
        assert!(!rings(&mailbox));
        (0..150).for_each(|message| mailbox.send(message));
        for (first, rest) in [(0, true), (64, true), (128, false)] {
            assert!(rings(&mailbox));
            let taken = mailbox.take_some(64);
            assert_eq!(taken.first(), Some(&first));
            assert_eq!(rings(&mailbox), rest);
        }
        mailbox.send(1);
        assert!(rings(&mailbox));
        assert_eq!(mailbox.take_some(64), [1]);
        assert!(!rings(&mailbox));
    }
}
