//! Bytes that a program was sent, which it ended without reading, and which another one is sent.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The bound of those of all connections of this process.
const MOST: usize = 64 * 1024 * 1024;

/// The bytes of all connections.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Bytes that come before those of a ring.
#[derive(Debug, Default)]
pub struct Returned {
    bytes: Vec<u8>,
    /// So many of them were sent again.
    sent: usize,
}

impl Returned {
    /// So many bytes, to be filled. `None` where that exceeds the bound of all connections.
    pub(super) fn with_room(length: usize) -> Option<Self> {
        // Relaxed: the number guards nothing.
        let before = HELD.fetch_add(length, Ordering::Relaxed);
        if before.saturating_add(length) > MOST {
            HELD.fetch_sub(length, Ordering::Relaxed);
            return None;
        }
        Some(Self {
            bytes: vec![0; length],
            sent: 0,
        })
    }

    /// All of them.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Those that were not sent again.
    #[must_use]
    #[inline]
    pub fn rest(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// So many more of them were sent again.
    pub(super) fn note_sent(&mut self, length: usize) {
        self.sent = self.sent.saturating_add(length);
        if self.rest().is_empty() {
            *self = Self::default();
        }
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        HELD.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can not go on fails")]
mod tests {
    use super::*;

    #[test]
    fn all_connections_together_have_a_bound() {
        assert!(Returned::with_room(MOST + 1).is_none());
        // More than once: what was refused or dropped counts no more.
        for _ in 0..3 {
            assert!(Returned::with_room(MOST / 2).is_some());
        }
        let mut one = Returned::with_room(3).unwrap();
        one.bytes_mut().copy_from_slice(b"abc");
        one.note_sent(2);
        assert_eq!(one.rest(), b"c");
        one.note_sent(1);
        assert!(one.rest().is_empty());
    }
}
