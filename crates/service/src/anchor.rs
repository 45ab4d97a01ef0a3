//! Anchors: the daemon's end of the pair whose other end is a program's descriptor. A token is one
//! byte on it, its hang-up is the end of everybody who held the other end.

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Resource, getrlimit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of tokens taken at once.
const TOKENS: usize = 256;
/// More than fit are not waited for.
const MOST_READS: u32 = 16;

/// How many anchors a stack module holds, and may hold.
#[derive(Debug)]
pub struct Count {
    held: AtomicUsize,
    most: usize,
}

impl Count {
    /// None yet, and never more than `most`.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            held: AtomicUsize::new(0),
            most,
        }
    }

    /// None yet, and at most half of the descriptors that this process may open: the other half is for programs to attach.
    #[must_use]
    pub fn of_half() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::new(usize::try_from(limit / 2).unwrap_or(usize::MAX))
    }

    /// How many there are.
    #[must_use]
    #[inline]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// One end of a pair of anchors, and which worker listens to it.
#[derive(Debug)]
pub struct Anchor {
    descriptor: OwnedFd,
    /// The epoll set that it is in. It stays there while it is pooled.
    watcher: Option<Arc<OwnedFd>>,
    /// Tokens that came since they were last taken off.
    tokens: u32,
    count: Arc<Count>,
}

/// Tokens left on an anchor; several times as many fit.
const MOST_TOKENS: u32 = 32;

impl Anchor {
    /// An anchor nobody listens to yet. `None` where there are too many: it is closed.
    #[must_use]
    pub fn new(descriptor: OwnedFd, count: &Arc<Count>) -> Option<Self> {
        let anchor = Self {
            descriptor,
            watcher: None,
            tokens: 0,
            count: Arc::clone(count),
        };
        // Counted before the look, so that dropping it counts right.
        let before = count.held.fetch_add(1, Ordering::Relaxed);
        (before < count.most).then_some(anchor)
    }

    /// Puts it into an epoll set, under `data`. The next connection of a slot may be of another worker than the last: it leaves
    /// the set in which it was.
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
        // Edges: a token that lies there unread wakes once.
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&**set, &self.descriptor, data, flags)?;
        self.watcher = Some(Arc::clone(set));
        Ok(())
    }

    /// Takes it out of the set.
    pub fn unwatch(&mut self) {
        if let Some(set) = self.watcher.take() {
            // It is in the set.
            let _ = epoll::delete(&*set, &self.descriptor);
        }
    }

    /// Writes one token. False where nobody holds the other end any more.
    pub fn ring(&self) -> bool {
        self.send_token(SendFlags::empty())
    }

    /// Writes one for which the kernel signals whom the program named.
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

    /// A token came, or the `end`. Tokens wake without being taken: true when they should be, before
    /// they fill the socket, or to see whether it is the end.
    #[inline]
    pub(super) const fn note_token(&mut self, end: bool) -> bool {
        self.tokens += 1;
        let due = end || self.tokens >= MOST_TOKENS;
        if due {
            self.tokens = 0;
        }
        due
    }

    /// Takes all tokens off. False where nobody holds the other end any more.
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
