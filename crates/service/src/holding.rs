//! What a program holds back (`MSG_MORE`, `TCP_CORK`): the daemon takes it for not written yet, as the other program would that reads from
//! the same ring, until the program lets it go, the other end has said something, or the time for it has come.

use super::lane::Lane;
use netchannel_abi::link::{Side, side_flags};
use netchannel_ring::held;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The clock by which programs say until when.
fn milliseconds() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

impl Lane {
    /// How much of what the program has written up to `tail`, which was loaded before, is there, where it was `shown` some of it already.
    #[inline]
    pub(super) fn there_of(&self, peer: &Side, shown: u64, tail: u64) -> u64 {
        match held::look(&peer.held) {
            0 => tail,
            word => self.before(word, peer, shown, tail),
        }
    }

    #[cold]
    fn before(&self, word: u64, peer: &Side, shown: u64, tail: u64) -> u64 {
        // Acquire: pairs with the release of the flags.
        let flags = peer.flags.load(Ordering::Acquire);
        let dropped = flags & side_flags::RESET != 0;
        let is_there = flags & side_flags::FIN != 0
            || self.has_hung_up()
            || held::left(word, milliseconds()) == 0
            || held::is_answered(word, self.has_said());
        // What is held back goes with a connection that is reset.
        if is_there && !dropped {
            return tail;
        }
        let before = held::before(word, shown, tail);
        let full = match (tail - before) / self.reader.piece {
            _ if dropped => 0,
            // The acknowledgement of a full packet takes the rest along, unless that is corked.
            1.. if held::waits_for_answer(word) => return tail,
            pieces => pieces * self.reader.piece,
        };
        before + full
    }

    /// Bytes that fill a packet to the other end go at once, whatever is to come.
    #[inline]
    pub const fn set_piece(&mut self, bytes: u64) {
        self.reader.piece = bytes;
    }

    /// How much of the other end the program has, the end included.
    #[inline]
    fn has_said(&self) -> u64 {
        let flags = self
            .sides()
            .map_or(0, |(own, _)| own.flags.load(Ordering::Relaxed));
        let end = u64::from(flags & side_flags::FIN != 0);
        self.published().wrapping_add(end)
    }

    /// For how long bytes may be held back still, those among them that the program writes meanwhile; `None` where none are.
    #[must_use]
    #[inline]
    pub fn held_for(&self) -> Option<Duration> {
        let (_, peer) = self.sides()?;
        match held::look(&peer.held) {
            0 => None,
            word => self.held_by(word),
        }
    }

    #[cold]
    fn held_by(&self, word: u64) -> Option<Duration> {
        let left = held::left(word, milliseconds());
        let over = self.peer_flags() & (side_flags::RESET | side_flags::FIN) != 0
            || self.has_hung_up()
            || held::is_answered(word, self.has_said());
        (left > 0 && !over).then_some(Duration::from_millis(left))
    }

    /// Whether the end of the other program would let go bytes that this one holds back: they meet a reset, where nobody reads any more.
    #[must_use]
    pub fn end_lets_go(&self) -> bool {
        let Some((_, peer)) = self.sides() else {
            return false;
        };
        let holds = || {
            // Acquire: pairs with the release with which the program publishes it.
            let tail = peer.tail.load(Ordering::Acquire);
            self.frontier().is_ok_and(|seen| seen != tail)
        };
        held::waits_for_answer(held::look(&peer.held)) && self.held_for().is_some() && holds()
    }
}
