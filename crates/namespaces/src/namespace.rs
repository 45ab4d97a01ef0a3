//! A network namespace, held open.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::thread;

/// A namespace that lives at least as long as this value.
#[derive(Debug, Clone)]
pub struct Namespace {
    descriptor: Arc<File>,
}

impl Namespace {
    /// A new one, with nothing but a loopback device that is down.
    pub fn make() -> io::Result<Self> {
        // Only the thread that asks moves into it.
        let descriptor = on_a_thread(|| {
            unshare(libc::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        })??;
        Ok(Namespace {
            descriptor: Arc::new(descriptor),
        })
    }

    /// Moves the calling thread, or the process that begins, into it.
    pub fn enter(&self) -> io::Result<()> {
        // SAFETY: takes integers; the descriptor is open as long as this value lives.
        let result = unsafe { libc::setns(self.descriptor.as_raw_fd(), libc::CLONE_NEWNET) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Does something in it.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_a_thread(|| {
            self.enter()?;
            Ok(work())
        })?
    }

    /// The inode that `/proc/PID/ns/net` of its inhabitants shows.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(self.descriptor.metadata()?.ino())
    }

    /// Another descriptor of the same namespace, which outlives this value.
    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        Ok(self.descriptor.try_clone()?.into())
    }
}

impl AsRawFd for Namespace {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        thread
            .join()
            .map_err(|_| io::Error::other("the thread in a namespace panicked"))
    })
}

/// Leaves a namespace for a new one of the kinds given.
pub fn unshare(kinds: libc::c_int) -> io::Result<()> {
    // SAFETY: takes an integer.
    if unsafe { libc::unshare(kinds) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
