//! Handles: an index with the generation of its user, so that a stale one is recognised.

/// Names a slot of a link, and one of its successive connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Slot number within the link.
    pub index: u32,
    /// Counts the connections this slot has carried; the first is 1.
    pub generation: u32,
}

impl Handle {
    /// The word that queue elements carry.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Reads a word from a queue element. Any word gives some handle; the owner checks it.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        let b = word.to_le_bytes();
        Self {
            index: u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            generation: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        }
    }
}
