//! The queue element of 32 bytes (NetKernel section 4.2) and the operations it carries.
//!
//! ```text
//!  byte 0   1     2      4          8              16      24      28     32
//!       +---+-----+------+----------+--------------+-------+-------+------+
//!       |op |flags|tenant|queue set |socket handle | data  |offset |length|
//!       +---+-----+------+----------+--------------+-------+-------+------+
//! ```

/// One queue element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Nqe {
    /// The request or answer, see [`Operation`].
    pub operation: u8,
    /// Bits that belong to the operation.
    pub flags: u8,
    /// Tenant of the program that wrote it.
    pub tenant: u16,
    /// Queue set it travels in.
    pub queue_set: u32,
    /// [`crate::handle::Handle`] of the virtual socket.
    pub handle: u64,
    /// Data of the operation.
    pub data: u64,
    /// Offset of bytes, when the operation concerns bytes.
    pub offset: u32,
    /// Number of bytes.
    pub length: u32,
}

const _: () = assert!(size_of::<Nqe>() == 32);
const _: () = assert!(core::mem::offset_of!(Nqe, handle) == 8);
const _: () = assert!(core::mem::offset_of!(Nqe, length) == 28);

/// Operations of a queue element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Job, client to server: the slot has a new connection for listener `data`. `offset` and `length` are the halves
    /// of the time at which it was announced, by the processor's counter.
    Connect = 1,
}

impl Nqe {
    /// The element as four words, in the order in which memory holds them.
    #[must_use]
    pub const fn to_words(self) -> [u64; 4] {
        let head = self.operation as u64
            | (self.flags as u64) << 8
            | (self.tenant as u64) << 16
            | (self.queue_set as u64) << 32;
        [
            head,
            self.handle,
            self.data,
            self.offset as u64 | (self.length as u64) << 32,
        ]
    }

    /// Reads what [`Nqe::to_words`] wrote. Any words give some element.
    #[must_use]
    pub const fn from_words(words: [u64; 4]) -> Self {
        let head = words[0].to_le_bytes();
        let tail = words[3].to_le_bytes();
        Self {
            operation: head[0],
            flags: head[1],
            tenant: u16::from_le_bytes([head[2], head[3]]),
            queue_set: u32::from_le_bytes([head[4], head[5], head[6], head[7]]),
            handle: words[1],
            data: words[2],
            offset: u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]),
            length: u32::from_le_bytes([tail[4], tail[5], tail[6], tail[7]]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_words() {
        let nqe = Nqe {
            operation: Operation::Connect as u8,
            flags: 2,
            tenant: 3,
            queue_set: 4,
            handle: 5,
            data: 6,
            offset: 7,
            length: 8,
        };
        assert_eq!(
            nqe.to_words(),
            [0x0000_0004_0003_0201, 5, 6, 0x0000_0008_0000_0007]
        );
        assert_eq!(Nqe::from_words(nqe.to_words()), nqe);
    }
}
