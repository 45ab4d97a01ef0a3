//! Bytes that a sender holds back, as TCP does for `MSG_MORE` and `TCP_CORK`. They lie in the ring, before its tail,
//! and the reader treats them as not sent, until the sender releases them or their hold expires. A sleeping reader
//! watches the time itself, so no other process has to.
//!
//! ```text
//!  hold:    held -> tail (Release) -> waiter
//!  let go:  held := 0 (Release) -> waiter
//!  reader:  tail (Acquire) -> held
//!
//!  sequence   head           held             tail
//!             |---- there ----|-- held back ---|
//!
//!  the word   | milliseconds of the monotonic clock, 28 bits | what the reader had sent, 12 bits | the sequence's lower 24 bits |
//! ```
//!
//! As with TCP, bytes that the reader sends back release them, too, unless they are corked: the word contains the
//! number of bytes that the reader had sent before, modulo 4095 and plus one, or 0.
//!
//! The sequence is a former `tail`, so it never lies more than two rings from the reader. After the hold has expired it
//! means nothing, and the word may stay.

use crate::sync::{AtomicU64, Ordering};

/// Longest hold in milliseconds.
pub const LONGEST: u64 = 200;

const SEQUENCE: u64 = (1 << 24) - 1;
const TIME: u64 = (1 << 28) - 1;
const SENT: u64 = (1 << 12) - 1;

/// The effect of bytes that the reader sends on bytes that are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReply {
    /// None: they are corked.
    Keeps,
    /// They are released if the reader has sent more than this many bytes.
    Releases(u64),
}

/// The word for bytes from sequence `from` on, held back from the time `now` on.
#[must_use]
pub const fn word(from: u64, answer: OnReply, now: u64) -> u64 {
    let sent = match answer {
        OnReply::Keeps => 0,
        OnReply::Releases(before) => before % SENT + 1,
    };
    (now.wrapping_add(LONGEST) & TIME) << 36 | sent << 24 | from & SEQUENCE
}

/// The word of a hold that is corked from now on.
#[must_use]
pub const fn corked(word: u64) -> u64 {
    word & !(SENT << 24)
}

/// Whether the reader, which has `sent` so many bytes now, has released the bytes that `word` held back.
#[must_use]
pub const fn is_released_by(word: u64, sent: u64) -> bool {
    let before = word >> 24 & SENT;
    before != 0 && before != sent % SENT + 1
}

/// Whether bytes that the reader sends release the bytes that `word` held back.
#[must_use]
pub const fn releases_on_reply(word: u64) -> bool {
    word >> 24 & SENT != 0
}

/// Milliseconds until the hold of `word` expires. A time that no sender would write has expired.
#[must_use]
pub const fn time_left(word: u64, now: u64) -> u64 {
    let left = (word >> 36).wrapping_sub(now) & TIME;
    if word == 0 || left > LONGEST { 0 } else { left }
}

/// Bytes before `tail` that `word` holds back, for the sender itself.
#[must_use]
pub const fn count(word: u64, tail: u64) -> u64 {
    tail.wrapping_sub(word) & SEQUENCE
}

/// The visible tail for a reader at `head`, which has seen `tail`, and after it a `word` that has not expired.
#[must_use]
pub fn visible_tail(word: u64, head: u64, tail: u64) -> u64 {
    let ahead = word.wrapping_sub(head) & SEQUENCE;
    // The sequence is behind the reader, which was faster than its clock.
    let ahead = if ahead > SEQUENCE / 2 { 0 } else { ahead };
    head.wrapping_add(ahead.min(tail.wrapping_sub(head)))
}

/// Publishes the word to the reader, with the store of the next tail.
pub fn publish(held: &AtomicU64, word: u64) {
    held.store(word, Ordering::Relaxed);
}

/// Releases all bytes; afterwards the reader is woken.
pub fn release(held: &AtomicU64) {
    // Release: a reader that finds no hold also finds the end of the stream that follows it. Pairs with `load`.
    held.store(0, Ordering::Release);
}

/// The word that applies to bytes before a tail that was loaded earlier, with Acquire.
#[inline]
#[must_use]
pub fn load(held: &AtomicU64) -> u64 {
    // Acquire: pairs with the release in `release`.
    held.load(Ordering::Acquire)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_is_there_in_time() {
        let held = word(5, OnReply::Keeps, 1_000);
        assert_eq!(time_left(held, 1_000), 200);
        assert_eq!(time_left(held, 1_199), 1);
        assert_eq!(time_left(held, 1_200), 0);
        assert_eq!(time_left(held, 5_000_000), 0);
        assert_eq!(time_left(0, u64::MAX - 100), 0);
        // A reader with another clock waits no longer.
        assert_eq!(time_left(held, 20), 0);
        assert_eq!(count(held, 9), 4);
    }

    #[test]
    fn a_reader_comes_no_further() {
        for start in [0, 7, SEQUENCE - 2, (1 << 32) - 3, u64::MAX - 4] {
            let at = |more: u64| start.wrapping_add(more);
            let held = word(at(5), OnReply::Releases(3), 0);
            assert_eq!(visible_tail(held, start, at(3)), at(3));
            assert_eq!(visible_tail(held, start, at(5)), at(5));
            assert_eq!(visible_tail(held, start, at(9)), at(5));
            assert_eq!(visible_tail(held, at(5), at(9)), at(5));
            assert_eq!(visible_tail(held, at(7), at(9)), at(7));
            assert_eq!(count(held, at(9)), 4);
        }
    }

    #[test]
    fn an_answer_lets_go_what_is_not_corked() {
        for sent in [0, 1, SENT - 1, SENT, u64::MAX - 7] {
            let held = word(5, OnReply::Releases(sent), 1_000);
            assert!(!is_released_by(held, sent));
            assert!(is_released_by(held, sent + 1));
            assert_eq!(corked(held), word(5, OnReply::Keeps, 1_000));
            assert_eq!(time_left(held, 1_000), LONGEST);
            assert!(!is_released_by(word(5, OnReply::Keeps, 1_000), sent));
        }
        assert!(!is_released_by(0, 5));
    }

    #[test]
    fn any_word_is_within_the_stream() {
        for held in [
            0,
            1,
            SEQUENCE,
            SEQUENCE + 1,
            u64::MAX,
            word(12, OnReply::Keeps, 3),
        ] {
            for now in [0, 1, 1 << 40, u64::MAX] {
                assert!(time_left(held, now) <= LONGEST);
            }
            assert!((4..=10).contains(&visible_tail(held, 4, 10)));
        }
    }
}
