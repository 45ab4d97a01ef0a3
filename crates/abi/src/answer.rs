//! What a stack that has a socket of its own answers about it: `TCP_INFO` and the name of the congestion control.
//!
//! ```text
//!  program: Side::asked = a new odd number, and a wake-up    stack: in its next turn of that connection
//!           waits until question is slot and number   <--        words, then question
//! ```
//!
//! A link has one place for answers. Who finds there the answer to another question asks again.

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// Bytes of `struct tcp_info`, of which a kernel knows the first ones.
pub const INFORMATION: usize = 256;
/// Bytes of the name of a congestion control.
pub const NAME: usize = 16;
/// Bytes of an answer.
pub const BYTES: usize = INFORMATION + NAME;
/// Offset of the [`Answer`] in a link.
pub const OFFSET: usize = 2048;

/// The answer to one question. (d) all: the end of the stack writes.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Answer {
    /// The question to which the words are the answer: [`question`]. 0 while they are written.
    pub question: AtomicU64,
    /// `TCP_INFO` of the stack's socket, then the name of its congestion control.
    pub words: [AtomicU64; BYTES / 8],
}

const _: () = assert!(OFFSET + size_of::<Answer>() <= 4096);

/// Whether a number in [`Side::asked`](crate::link::Side::asked) wants an answer. The others only say that something was set.
#[must_use]
pub const fn wants_answer(number: u32) -> bool {
    number & 1 == 1
}

/// The question of one slot. The number is not 0.
#[must_use]
pub const fn question(slot: u32, number: u32) -> u64 {
    (slot as u64) << 32 | number as u64
}

impl Answer {
    /// Writes an answer. Only one thread of the stack writes.
    pub fn write(&self, question: u64, bytes: &[u8; BYTES]) {
        self.question.store(0, Ordering::Relaxed);
        // Pairs with the fence in `read`: who reads one of the words that follow sees that the question has changed.
        fence(Ordering::Release);
        let (eights, _) = bytes.as_chunks::<8>();
        for (word, eight) in self.words.iter().zip(eights) {
            word.store(u64::from_le_bytes(*eight), Ordering::Relaxed);
        }
        // Release: pairs with the acquire in `read`.
        self.question.store(question, Ordering::Release);
    }

    /// The answer to a question, if it is there.
    #[must_use]
    pub fn read(&self, question: u64) -> Option<[u8; BYTES]> {
        // Acquire: pairs with the release in `write`, whose words are read.
        if self.question.load(Ordering::Acquire) != question {
            return None;
        }
        let mut bytes = [0; BYTES];
        let (eights, _) = bytes.as_chunks_mut::<8>();
        for (word, eight) in self.words.iter().zip(eights) {
            *eight = word.load(Ordering::Relaxed).to_le_bytes();
        }
        // Pairs with the fence in `write`.
        fence(Ordering::Acquire);
        (self.question.load(Ordering::Relaxed) == question).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_its_own_answer() {
        let answer = Answer {
            question: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; BYTES / 8],
        };
        let mut bytes = [0; BYTES];
        bytes[0] = 1;
        bytes[BYTES - 1] = 2;
        answer.write(question(3, 4), &bytes);
        assert_eq!(answer.read(question(3, 4)), Some(bytes));
        assert_eq!(answer.read(question(4, 3)), None);
    }
}
