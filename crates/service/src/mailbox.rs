//! Letters from one thread to another: a queue, and a descriptor that is readable while there are any.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// One direction between the two threads.
#[derive(Clone, Debug)]
pub struct Mailbox<T> {
    letters: Sender<T>,
    doorbell: Arc<OwnedFd>,
}

/// The end of it that reads.
#[derive(Debug)]
pub struct Inbox<T> {
    letters: Receiver<T>,
    doorbell: Arc<OwnedFd>,
}

/// A new one, and its end that reads.
///
/// # Errors
/// When no descriptor is left.
pub fn mailbox<T>() -> Result<(Mailbox<T>, Inbox<T>), Errno> {
    let doorbell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, letters) = channel();
    let mailbox = Mailbox {
        letters: sender,
        doorbell: Arc::clone(&doorbell),
    };
    Ok((mailbox, Inbox { letters, doorbell }))
}

impl<T> Mailbox<T> {
    /// Sends, and wakes the reader. A reader that has ended needs nothing any more.
    pub fn send(&self, letter: T) {
        if self.letters.send(letter).is_ok() {
            ring(&self.doorbell);
        }
    }
}

fn ring(doorbell: &OwnedFd) {
    // Full is rung.
    let _ = rustix::io::write(doorbell, &1u64.to_ne_bytes());
}

impl<T> Inbox<T> {
    /// The next letter. Silence the doorbell first, with [`Self::hear`].
    pub fn next(&self) -> Option<T> {
        self.letters.try_recv().ok()
    }

    /// Rings the doorbell of the reader itself: it comes again.
    pub fn ring(&self) {
        ring(&self.doorbell);
    }

    /// Silences the doorbell: letters from now on ring it again.
    pub fn hear(&self) {
        // Nothing to read is silence.
        let _ = rustix::io::read(&*self.doorbell, &mut [0; 8]);
    }
}

impl<T> AsFd for Inbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}
