//! Urgent bytes of a program on their way through the daemon: the place of the last ones, and their announcement to the
//! other program in the way its own peer would announce them. They have the same sequences on both sides.

use super::lane::Lane;
use super::spans::Checked;
use netchannel_abi::link::side_flags;
use netchannel_ring::urgent::first_of;
use std::sync::atomic::Ordering;

/// The last run of consecutive urgent bytes of a stream, each sent by its own call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The sequence of the first byte, less than `end`.
    pub first: u64,
    /// The sequence after the last byte, 0 where there is none.
    pub end: u64,
}

impl Row {
    /// The urgent bytes before `tail`, if the last byte before `tail` is one of them or follows them.
    #[must_use]
    #[inline]
    pub const fn before(self, tail: u64) -> Option<Self> {
        let end = if self.end < tail { self.end } else { tail };
        if end > self.first {
            let first = self.first;
            Some(Self { first, end })
        } else {
            None
        }
    }
}

impl Lane {
    /// The last bytes that the program has sent as urgent. Where it is called after the program's bytes were looked at,
    /// it covers all urgent bytes among them.
    #[must_use]
    #[inline]
    pub fn urgent(&self) -> Row {
        let Some((_, peer)) = self.sides() else {
            return Row::default();
        };
        // The generation is loaded first: the words loaded after it belong to this connection, never to the last one.
        if peer.generation.load(Ordering::Acquire) != self.handle.generation {
            return Row::default();
        }
        // Acquire: pairs with the release in `PublishedMarks::tell`.
        let end = peer.urgent.load(Ordering::Acquire);
        let first = first_of(end, peer.row.load(Ordering::Relaxed));
        Row { first, end }
    }

    /// All bytes before `tail` were placed: publishes them and wakes the program. The program is also notified of those
    /// bytes of `urgent` that are published, and signalled if it has asked for signals.
    ///
    /// # Errors
    /// Where `tail` is less than before, or beyond the limit.
    pub fn publish_with_mark(&mut self, tail: u64, urgent: Row) -> Checked<()> {
        let new = urgent.before(tail).filter(|row| self.is_new(*row));
        if let Some(row) = new {
            self.announce_urgent(row);
        }
        self.show(tail)?;
        if new.is_some() {
            // The signal comes first: it interrupts a sleeper, which must not be woken first and signalled then.
            self.signal_urgent();
        }
        self.announce_data();
        Ok(())
    }

    /// The last of these bytes is urgent, but there is no room for it yet: the program is notified all the same, as by
    /// TCP.
    pub fn announce_mark(&mut self, urgent: Row) {
        if self.is_new(urgent) {
            let first = urgent.end - 1;
            self.announce_urgent(Row { first, ..urgent });
            self.signal_urgent();
            self.announce_data();
        }
    }

    #[inline]
    const fn is_new(&self, urgent: Row) -> bool {
        urgent.end > self.announced.urgent && urgent.end > self.published()
    }

    fn announce_urgent(&mut self, urgent: Row) {
        // Another module decides for the reader what is lost, by the row.
        let inline = self.to_module || self.peer_flags() & side_flags::URGENT_INLINE != 0;
        let head = self.peer_head().unwrap_or(0);
        let first = urgent
            .first
            .max(self.published())
            .max(self.announced.urgent);
        self.announced = self
            .announced
            .next_in_a_row(first, urgent.end, head, inline);
        if let Some((own, _)) = self.sides() {
            if self.to_module {
                own.row.store(lower_half(urgent.first), Ordering::Relaxed);
            }
            self.announced.publish(&own.urgent, &own.passed);
        }
    }

    #[inline]
    fn signal_urgent(&self) {
        if self.peer_flags() & side_flags::URGENT_SIGNALS != 0 {
            self.anchor.ring_urgently();
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the lower half")]
const fn lower_half(sequence: u64) -> u32 {
    sequence as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_row_that_is_cut_the_first_ones_are_urgent() {
        let row = |first, end| Row { first, end };
        assert_eq!(row(3, 6).before(9), Some(row(3, 6)));
        assert_eq!(row(3, 6).before(5), Some(row(3, 5)));
        assert_eq!(row(3, 6).before(3), None);
        assert_eq!(Row::default().before(9), None);
    }
}
