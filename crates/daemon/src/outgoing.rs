//! An answer that is sent over a socket as far as it has room.

use rustix::io::Errno;
use rustix::net::SendFlags;
use std::os::fd::OwnedFd;

/// The bytes of an answer, and how many of them were sent.
#[derive(Debug, Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

/// The result of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All present bytes were sent.
    All,
    /// The socket has no room for the rest.
    Part,
    /// The connection is lost.
    Lost,
}

impl Outgoing {
    /// Whether there was never anything to send.
    pub const fn is_unused(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Replaces the bytes to be sent.
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

    /// Sends what fits. Also returns whether any bytes were sent.
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
