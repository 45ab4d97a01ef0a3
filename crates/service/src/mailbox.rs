//! Letters to a worker: a list under a short lock, and a doorbell that is rung only while the worker sleeps.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Letters to one reader.
#[derive(Debug)]
pub struct Mailbox<T> {
    letters: Mutex<Vec<T>>,
    count: AtomicUsize,
    asleep: AtomicBool,
    doorbell: OwnedFd,
}

impl<T> Mailbox<T> {
    /// An empty one.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            letters: Mutex::new(Vec::new()),
            count: AtomicUsize::new(0),
            asleep: AtomicBool::new(true),
            doorbell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    fn letters(&self) -> MutexGuard<'_, Vec<T>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends, and wakes the reader if it sleeps.
    pub fn send(&self, letter: T) {
        let mut letters = self.letters();
        letters.push(letter);
        self.count.store(letters.len(), Ordering::Relaxed);
        drop(letters);
        // Pairs with the fence in `sleep`: either the reader sees the letter, or this the reader asleep.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.ring();
        }
    }

    fn ring(&self) {
        // Full is rung.
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
    }

    /// Whether there are letters. Cheap.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// The reader is about to sleep: letters ring from now on. It looks at [`Self::has_any`] once more.
    #[inline]
    pub fn sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence in `send`.
        fence(Ordering::SeqCst);
    }

    /// The reader is awake.
    #[inline]
    pub fn wake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Silences the doorbell.
    pub fn hear(&self) {
        // Nothing to read is silence.
        let _ = rustix::io::read(&self.doorbell, &mut [0; 8]);
    }

    /// Takes all letters, into an empty list.
    #[inline]
    pub fn take(&self, into: &mut Vec<T>) {
        if self.has_any() {
            let mut letters = self.letters();
            self.count.store(0, Ordering::Relaxed);
            into.append(&mut letters);
        }
    }

    /// For a reader that has other things to do, and always sleeps on the doorbell: takes the first letters, up to `most`. The doorbell rings
    /// for the others.
    pub fn take_some(&self, most: usize) -> Vec<T> {
        self.hear();
        self.sleep();
        let mut letters = self.letters();
        let count = letters.len().min(most);
        let taken = letters.drain(..count).collect();
        self.count.store(letters.len(), Ordering::Relaxed);
        if !letters.is_empty() {
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
    fn a_flood_of_letters_is_read_in_turns() {
        let mailbox = Mailbox::new().ok();
        let Some(mailbox) = mailbox else { return };
        assert!(!rings(&mailbox));
        (0..150).for_each(|letter| mailbox.send(letter));
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
