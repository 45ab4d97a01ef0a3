//! An answer on its way over a socket that takes as much as it has room for.

use rustix::io::Errno;
use rustix::net::SendFlags;
use std::os::fd::OwnedFd;

/// The bytes of an answer, and how many of them were sent.
#[derive(Debug, Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

/// What became of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All that there is was sent.
    All,
    /// The socket has no room for the rest.
    Part,
    /// Nobody reads it any more.
    Lost,
}

impl Outgoing {
    /// Whether there never was anything to send.
    pub const fn is_unused(&self) -> bool {
        self.bytes.is_empty()
    }

    /// These bytes are to be sent, and no others.
    pub fn set(&mut self, bytes: Vec<u8>) {
        (self.bytes, self.sent) = (bytes, 0);
    }

    /// Takes the bytes that were not sent yet.
    pub fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.drain(..self.sent.min(bytes.len()));
        self.sent = 0;
        bytes
    }

    /// Sends what fits. Also tells whether anything was sent.
    pub fn send(&mut self, socket: &OwnedFd) -> (Sent, bool) {
        let mut moved = false;
        loop {
            let rest = self.bytes.get(self.sent..).unwrap_or_default();
            if rest.is_empty() {
                return (Sent::All, moved);
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(socket, rest, flags) {
                Ok(length) => {
                    self.sent += length;
                    moved = true;
                }
                Err(Errno::AGAIN) => return (Sent::Part, moved),
                Err(Errno::INTR) => {}
                Err(_) => return (Sent::Lost, moved),
            }
        }
    }
}
