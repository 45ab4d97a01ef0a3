//! What the daemon asks of the launcher, which alone keeps the rights to choose a network namespace and a user for a process.

use crate::endpoint::{Endpoint, Received};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// How a stack process is to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The kind of the stack.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The number of this start, which the launcher repeats.
    pub start: u64,
    /// Where it attaches.
    pub socket: PathBuf,
    /// The network namespace; by default the launcher's.
    pub namespace: Option<PathBuf>,
    /// The user; by default the launcher's.
    pub user: Option<u32>,
    /// Processors as a list; empty for all.
    pub processors: String,
    /// Bytes of its own memory.
    pub memory: Option<u64>,
}

/// A message to the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToLauncher {
    /// Start a stack.
    Start(Launch),
    /// End what was started by this number, if it runs. There is no answer.
    End(u64),
}

/// A message of the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OfLauncher {
    /// What was started by this number has ended by itself, or never began; and how.
    Ended(u64, String),
}

/// Either end of the connection between the daemon and its launcher.
#[derive(Debug)]
pub struct LaunchEnd(Endpoint);

impl LaunchEnd {
    /// Of a connected socket.
    #[must_use]
    pub const fn new(socket: OwnedFd) -> Self {
        Self(Endpoint::new(socket))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The other end is gone, or does not read.
    pub fn send(&mut self, message: &impl Serialize) -> Result<(), Errno> {
        self.0.send(message, Vec::new()).map(drop)
    }

    /// The next message: nothing yet is `None`.
    ///
    /// # Errors
    /// `PIPE` where the other end is gone, or sends what is no message.
    pub fn receive<T: for<'a> Deserialize<'a>>(&mut self) -> Result<Option<T>, Errno> {
        match self.0.receive() {
            Received::Message(message, _) => Ok(Some(message)),
            Received::Nothing => Ok(None),
            Received::Ended | Received::Garbage => Err(Errno::PIPE),
        }
    }
}

impl AsFd for LaunchEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
