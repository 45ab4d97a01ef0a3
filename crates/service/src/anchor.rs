//! Anchors: the daemon's end of the pair whose other end is a program's descriptor. A token is one byte on the anchor.
//! A hang-up means that no process holds the other end any more.

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Resource, getrlimit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of tokens read with one call.
const TOKENS: usize = 256;
/// Reads of one drain. Tokens beyond these are left for later.
const MOST_READS: u32 = 16;

/// The number of anchors that a stack module holds, and its limit.
#[derive(Debug)]
pub struct Count {
    held: AtomicUsize,
    most: usize,
}

impl Count {
    /// A count of zero with the limit `most`.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            held: AtomicUsize::new(0),
            most,
        }
    }

    /// A count of zero whose limit is half of the descriptors that this process may open. The other half is for
    /// programs that attach.
    #[must_use]
    pub fn of_half() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::new(usize::try_from(limit / 2).unwrap_or(usize::MAX))
    }

    /// The number of anchors held.
    #[must_use]
    #[inline]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// One end of a pair of anchors, and the worker that watches it.
#[derive(Debug)]
pub struct Anchor {
    descriptor: OwnedFd,
    /// The epoll set that contains the anchor. It stays there while it is pooled.
    watcher: Option<Arc<OwnedFd>>,
    /// Tokens that have arrived since the anchor was last drained.
    tokens: u32,
    count: Arc<Count>,
}

/// Tokens that may be left unread on an anchor. Several times as many fit.
const MOST_TOKENS: u32 = 32;

impl Anchor {
    /// An anchor that no worker watches yet. `None` where the limit is reached: the descriptor is closed.
    #[must_use]
    pub fn new(descriptor: OwnedFd, count: &Arc<Count>) -> Option<Self> {
        let anchor = Self {
            descriptor,
            watcher: None,
            tokens: 0,
            count: Arc::clone(count),
        };
        // Counted before the check, so that the drop counts down in both cases.
        let before = count.held.fetch_add(1, Ordering::Relaxed);
        (before < count.most).then_some(anchor)
    }

    /// Adds the anchor to an epoll set, under `data`. The next connection of a slot may belong to another worker than
    /// the last one: the anchor leaves the set in which it was.
    ///
    /// # Errors
    /// The errno of `epoll_ctl`.
    pub(super) fn watch(&mut self, set: &Arc<OwnedFd>, data: EventData) -> Result<(), Errno> {
        if self
            .watcher
            .as_ref()
            .is_some_and(|one| Arc::ptr_eq(one, set))
        {
            return Ok(());
        }
        self.unwatch();
        // Edge-triggered: an unread token wakes once.
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&**set, &self.descriptor, data, flags)?;
        self.watcher = Some(Arc::clone(set));
        Ok(())
    }

    /// Removes the anchor from its set.
    pub fn unwatch(&mut self) {
        if let Some(set) = self.watcher.take() {
            // This can not fail: the anchor is in the set.
            let _ = epoll::delete(&*set, &self.descriptor);
        }
    }

    /// Writes one token. False where no process holds the other end any more.
    pub fn ring(&self) -> bool {
        self.send_token(SendFlags::empty())
    }

    /// Writes one token as urgent data: the kernel signals the process that the program has set as the owner.
    pub(super) fn ring_urgently(&self) {
        self.send_token(SendFlags::OOB);
    }

    fn send_token(&self, flags: SendFlags) -> bool {
        let flags = flags | SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        !matches!(
            rustix::net::send(&self.descriptor, &[0], flags),
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN)
        )
    }

    /// Notes that a token arrived, or the `end`. Tokens wake without being read. True when they must be read now:
    /// before they fill the socket, or to find out whether this is the end.
    #[inline]
    pub(super) const fn note_token(&mut self, end: bool) -> bool {
        self.tokens += 1;
        let due = end || self.tokens >= MOST_TOKENS;
        if due {
            self.tokens = 0;
        }
        due
    }

    /// Reads all tokens. False where no process holds the other end any more.
    pub fn drain(&self) -> bool {
        let mut tokens = [0; TOKENS];
        for _ in 0..MOST_READS {
            match rustix::net::recv(&self.descriptor, &mut tokens, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return false,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        self.count.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsFd for Anchor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
