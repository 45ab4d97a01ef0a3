//! Urgent bytes of a program, on their way through the daemon: where the last one is, and telling the other program of it
//! as that one's own peer would. They are at the same sequences on both sides.

use super::lane::{Checked, Lane};
use netchannel_abi::link::side_flags;
use std::sync::atomic::Ordering;

impl Lane {
    /// Sequence behind the last byte that the program has sent as urgent; 0 for none. Asked after its bytes were looked at, it knows of all
    /// that are among them.
    #[must_use]
    pub fn urgent(&self) -> u64 {
        let Some((_, peer)) = self.sides() else {
            return 0;
        };
        // The generation first: what is read after it is of this connection, never of the last.
        if peer.generation.load(Ordering::Acquire) != self.handle.generation {
            return 0;
        }
        // Acquire: pairs with the release in `Told::tell`.
        peer.urgent.load(Ordering::Acquire)
    }

    /// Sequence before which all is lost that was not looked at, by the program's word, which has sent the byte before `urgent` as urgent:
    /// one urgent byte after the other. 0 for none.
    #[must_use]
    pub fn passed(&self, urgent: u64) -> u64 {
        let passed = self
            .sides()
            .map_or(0, |(_, peer)| peer.passed.load(Ordering::Relaxed));
        // It may belong to the next one already.
        if passed < urgent { passed } else { 0 }
    }

    /// All bytes before `tail` were placed: shows them to the program, and wakes it. The byte before `urgent` is an urgent one: the
    /// program is told of it if it is among those that are published, and signalled if it wants to be. So was each before `passed`.
    ///
    /// # Errors
    /// Where `tail` lies behind, or beyond the limit.
    pub fn publish_with_mark(&mut self, tail: u64, urgent: u64, passed: u64) -> Checked<()> {
        let new = urgent > self.told.urgent && urgent > self.published() && urgent <= tail;
        if new {
            self.tell_urgent(urgent, passed);
        }
        self.show(tail)?;
        if new {
            // Whoever sleeps is interrupted by the signal, not woken and signalled then.
            self.signal_urgent();
        }
        self.announce_data();
        Ok(())
    }

    /// The byte before `urgent` is an urgent one, and there is no room for it yet: the program is told all the same, as by TCP.
    pub fn announce_mark(&mut self, urgent: u64) {
        if urgent > self.told.urgent && urgent > self.published() {
            self.tell_urgent(urgent, 0);
            self.signal_urgent();
            self.announce_data();
        }
    }

    fn tell_urgent(&mut self, urgent: u64, passed: u64) {
        let inline = self.peer_flags() & side_flags::URGENT_INLINE != 0;
        let head = self.peer_head().unwrap_or(0);
        let first = self.published().max(self.told.urgent);
        let before = self.told.next_in_a_row(first, passed, head, inline);
        self.told = before.next(urgent, head, inline);
        if let Some((own, _)) = self.sides() {
            self.told.tell(&own.urgent, &own.passed);
        }
    }

    fn signal_urgent(&self) {
        if self.peer_flags() & side_flags::URGENT_SIGNALS != 0 {
            self.anchor.ring_urgently();
        }
    }
}
