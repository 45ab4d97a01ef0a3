//! Urgent bytes of a program, on their way through the daemon: where the last ones are, and telling the other program of them
//! as that one's own peer would. They are at the same sequences on both sides.

use super::lane::Lane;
use super::spans::Checked;
use netchannel_abi::link::side_flags;
use netchannel_ring::urgent::first_of;
use std::sync::atomic::Ordering;

/// The last urgent bytes of a stream that follow one another, each sent by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Sequence of the first one, less than `end`.
    pub first: u64,
    /// Sequence behind the last one, 0 where there is none.
    pub end: u64,
}

impl Row {
    /// Those that lie before `tail`, if the last of what lies there is among them or behind them.
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
    /// The last bytes that the program has sent as urgent. Asked after its bytes were looked at, it knows of all
    /// that are among them.
    #[must_use]
    #[inline]
    pub fn urgent(&self) -> Row {
        let Some((_, peer)) = self.sides() else {
            return Row::default();
        };
        // The generation first: what is read after it is of this connection, never of the last.
        if peer.generation.load(Ordering::Acquire) != self.handle.generation {
            return Row::default();
        }
        // Acquire: pairs with the release in `Told::tell`.
        let end = peer.urgent.load(Ordering::Acquire);
        let first = first_of(end, peer.row.load(Ordering::Relaxed));
        Row { first, end }
    }

    /// All bytes before `tail` were placed: shows them to the program, and wakes it. It is told of those of `urgent` that
    /// are published, and signalled if it wants to be.
    ///
    /// # Errors
    /// Where `tail` lies behind, or beyond the limit.
    pub fn publish_with_mark(&mut self, tail: u64, urgent: Row) -> Checked<()> {
        let new = urgent.before(tail).filter(|row| self.is_new(*row));
        if let Some(row) = new {
            self.tell_urgent(row);
        }
        self.show(tail)?;
        if new.is_some() {
            // Whoever sleeps is interrupted by the signal, not woken and signalled then.
            self.signal_urgent();
        }
        self.announce_data();
        Ok(())
    }

    /// The last of these bytes is urgent, and there is no room for it yet: the program is told all the same, as by TCP.
    pub fn announce_mark(&mut self, urgent: Row) {
        if self.is_new(urgent) {
            let first = urgent.end - 1;
            self.tell_urgent(Row { first, ..urgent });
            self.signal_urgent();
            self.announce_data();
        }
    }

    #[inline]
    const fn is_new(&self, urgent: Row) -> bool {
        urgent.end > self.told.urgent && urgent.end > self.published()
    }

    fn tell_urgent(&mut self, urgent: Row) {
        let inline = self.peer_flags() & side_flags::URGENT_INLINE != 0;
        let head = self.peer_head().unwrap_or(0);
        let first = urgent.first.max(self.published()).max(self.told.urgent);
        self.told = self.told.next_in_a_row(first, urgent.end, head, inline);
        if let Some((own, _)) = self.sides() {
            self.told.tell(&own.urgent, &own.passed);
        }
    }

    #[inline]
    fn signal_urgent(&self) {
        if self.peer_flags() & side_flags::URGENT_SIGNALS != 0 {
            self.anchor.ring_urgently();
        }
    }
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
