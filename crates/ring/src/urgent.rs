//! Urgent bytes: a mark in the stream, as TCP has it.
//!
//! ```text
//!  sender:  passed, urgent -> tail (Release)
//!  reader:  tail (Acquire) -> urgent, passed
//!
//!  sequence   head      passed                 urgent - 1      tail
//!             |-- lost --|--- read as usual ---| urgent byte |--|
//! ```
//!
//! Only the last byte that was sent as urgent is urgent. The one before it becomes an ordinary byte, unless the reader
//! stands right before it and reads urgent bytes out of line: then it is lost. In TCP the receiver decides that when
//! the next one arrives. Here the sender, which sees the reader's position, decides it, and publishes the decision
//! before the new mark. The position may be outdated: the reader has moved on meanwhile, as with TCP. The daemon, which
//! passes urgent bytes on, gets the length of their row: it decides for the reader that it sees.

use crate::sync::{AtomicU64, Ordering};

/// The marks that a sender has published, privately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishedMarks {
    /// Sequence behind the last urgent byte, 0 for none.
    pub urgent: u64,
    /// Sequence before which the reader reads nothing more.
    pub passed: u64,
}

impl PublishedMarks {
    /// Makes the byte before `urgent` the urgent one. The reader has read up to `head`, and reads urgent bytes `inline`
    /// or out of line.
    #[must_use]
    pub const fn next(self, urgent: u64, head: u64, inline: bool) -> Self {
        let stands = if head > self.passed {
            head
        } else {
            self.passed
        };
        let loses = !inline && self.urgent != 0 && stands == self.urgent - 1;
        Self {
            urgent,
            passed: if loses { self.urgent } else { self.passed },
        }
    }

    /// The row word that is published with [`Self::next`], for a relay to a reader that the sender does not see: the
    /// lower half of the sequence of the first of the urgent bytes that follow one another up to this one. `row` is the
    /// word for the last one.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
    pub const fn next_row(self, row: u32, urgent: u64) -> u32 {
        if self.urgent != 0 && urgent == self.urgent + 1 {
            row
        } else {
            (urgent - 1) as u32
        }
    }

    /// Applies a row: all bytes from `first` to `passed` were urgent, each sent alone, and the reader loses those right
    /// before which it stands. The byte before `passed` becomes the urgent one.
    #[must_use]
    pub const fn next_in_a_row(self, first: u64, passed: u64, head: u64, inline: bool) -> Self {
        if passed <= first {
            return self;
        }
        let marks = self.next(first + 1, head, inline);
        let stands = if head > marks.passed {
            head
        } else {
            marks.passed
        };
        let lost = if !inline && stands == first && passed - first > 1 {
            passed - 1
        } else {
            marks.passed
        };
        Self {
            urgent: passed,
            passed: lost,
        }
    }

    /// Publishes the marks to the reader, with the store of the next tail.
    pub fn publish(self, urgent: &AtomicU64, passed: &AtomicU64) {
        passed.store(self.passed, Ordering::Relaxed);
        // Release: pairs with the acquire in `ahead`, for a reader that looks before there is a new tail.
        urgent.store(self.urgent, Ordering::Release);
    }
}

/// The first of the urgent bytes up to `urgent`, by a `row` that was loaded after it, and may belong to a later one.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "the lower half")]
pub const fn first_of(urgent: u64, row: u32) -> u64 {
    /// More bytes than any ring holds.
    const MOST: u32 = 1 << 24;
    let length = (urgent as u32).wrapping_sub(row);
    let known = length > 0 && length <= MOST && length as u64 <= urgent;
    urgent.saturating_sub(if known { length as u64 } else { 1 })
}

/// The urgent byte ahead of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Where reading continues.
    pub from: u64,
    /// The urgent byte's sequence, not less than `from`; all ones while it is not known.
    pub at: u64,
    /// The tail.
    tail: u64,
}

impl Ahead {
    /// Whether the byte has arrived. Otherwise the sender had no room for it yet.
    #[must_use]
    pub const fn has_arrived(&self) -> bool {
        self.at < self.tail
    }

    /// Whether the reader stands right before the byte.
    #[must_use]
    pub const fn is_here(&self) -> bool {
        self.from == self.at
    }

    /// Bytes that can be read, including the urgent one if it has arrived.
    #[must_use]
    pub const fn readable(&self) -> u64 {
        self.tail - self.from
    }

    /// Bytes up to the mark.
    #[must_use]
    pub const fn before(&self) -> u64 {
        self.at - self.from
    }
}

/// The urgent byte ahead of a reader at `head`, which has seen `tail`. Whatever the words contain, the result lies
/// within the stream.
#[inline]
#[must_use]
pub fn mark_ahead(urgent: &AtomicU64, passed: &AtomicU64, head: u64, tail: u64) -> Option<Ahead> {
    // Acquire: pairs with the release in `publish`.
    let at = urgent.load(Ordering::Acquire).checked_sub(1)?;
    if at < head {
        return None;
    }
    let from = passed.load(Ordering::Relaxed).min(tail).max(head);
    // A mark behind `passed` is about to be replaced: the byte is already lost, and the next one not published yet.
    Some(Ahead {
        from,
        at: if at < from { u64::MAX } else { at },
        tail: tail.max(from),
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn look(marks: PublishedMarks, head: u64, tail: u64) -> Option<Ahead> {
        let (urgent, passed) = (AtomicU64::new(0), AtomicU64::new(0));
        marks.publish(&urgent, &passed);
        mark_ahead(&urgent, &passed, head, tail)
    }

    #[test]
    fn the_last_one_is_urgent() {
        let first = PublishedMarks::default().next(3, 0, false);
        let second = first.next(7, 0, false);
        assert_eq!(
            second,
            PublishedMarks {
                urgent: 7,
                passed: 0
            }
        );
        let found = look(second, 1, 10).unwrap();
        assert_eq!((found.from, found.at, found.before()), (1, 6, 5));
        assert!(found.has_arrived() && !found.is_here());
        assert_eq!(look(second, 7, 10), None);
    }

    #[test]
    fn many_in_a_row_are_as_one_after_the_other() {
        for before in [0, 3] {
            // The reader has not come to them.
            for head in [0, 2, 3] {
                for inline in [false, true] {
                    for first in [3, 4, 9] {
                        let start = PublishedMarks::default().next(before, 0, inline);
                        let start = if before == 0 {
                            PublishedMarks::default()
                        } else {
                            start
                        };
                        for passed in first..first + 4 {
                            let mut marks = start;
                            for mark in first + 1..=passed {
                                marks = marks.next(mark, head, inline);
                            }
                            let at_once = start.next_in_a_row(first, passed, head, inline);
                            assert_eq!(at_once, marks, "{start:?} {first}..{passed} {head}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_is_passed_on_with_its_first() {
        for start in [0, 1_u64 << 32, (1 << 32) - 3] {
            let (mut marks, mut row) = (PublishedMarks::default(), 0);
            for (urgent, first) in [(1, 0), (2, 0), (5, 4), (6, 4), (7, 4), (9, 8)] {
                row = marks.next_row(row, start + urgent);
                marks = marks.next(start + urgent, start, false);
                assert_eq!(first_of(start + urgent, row), start + first);
            }
        }
        // The row of the next one already, and invalid values.
        assert_eq!(first_of(5, 5), 4);
        assert_eq!(first_of(5, 6), 4);
        assert_eq!(first_of(0, 6), 0);
    }

    #[test]
    fn who_stands_before_one_loses_it_to_the_next() {
        let first = PublishedMarks::default().next(1, 0, false);
        let second = first.next(2, 0, false);
        assert_eq!(
            second,
            PublishedMarks {
                urgent: 2,
                passed: 1
            }
        );
        // The reader still stands where it stood, which is before the second one now.
        let third = second.next(3, 0, false);
        assert_eq!(
            third,
            PublishedMarks {
                urgent: 3,
                passed: 2
            }
        );
        let found = look(third, 0, 3).unwrap();
        assert!(found.is_here() && found.from == 2 && found.readable() == 1);
        assert_eq!(
            first.next(2, 0, true),
            PublishedMarks {
                urgent: 2,
                passed: 0
            }
        );
        assert_eq!(
            first.next(2, 1, false),
            PublishedMarks {
                urgent: 2,
                passed: 0
            }
        );
    }

    #[test]
    fn any_words_are_within_the_stream() {
        for urgent in [0, 1, 5, 11, u64::MAX] {
            for passed in [0, 4, 9, 10, u64::MAX] {
                if let Some(found) = look(PublishedMarks { urgent, passed }, 4, 10) {
                    assert!((4..=10).contains(&found.from) && found.at >= found.from);
                    assert!(found.readable() <= 6);
                }
            }
        }
    }
}
