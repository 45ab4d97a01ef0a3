//! Bytes that a program holds back (`MSG_MORE`, `TCP_CORK`). The daemon treats them as not written yet, as the other
//! program does that reads from the same ring. They are released when the program releases them, when the other end has
//! answered, or when their time is over.

use super::lane::Lane;
use netchannel_abi::link::{Side, side_flags};
use netchannel_ring::held;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The clock of the deadlines that programs write.
fn milliseconds() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

impl Lane {
    /// The sequence up to which bytes are available to this end. The program has written up to `tail`, which was loaded
    /// before; bytes up to `seen` have been available before.
    #[inline]
    pub(super) fn available_up_to(&self, peer: &Side, shown: u64, tail: u64) -> u64 {
        match held::load(&peer.held) {
            0 => tail,
            word => self.before(word, peer, shown, tail),
        }
    }

    #[cold]
    fn before(&self, word: u64, peer: &Side, shown: u64, tail: u64) -> u64 {
        // Acquire: pairs with the release of the flags.
        let flags = peer.flags.load(Ordering::Acquire);
        let is_due = held::time_left(word, milliseconds()) == 0;
        let dropped = flags & side_flags::RESET != 0
            || self.has_hung_up() && !is_due && self.ended_by_reset();
        let is_there = flags & side_flags::FIN != 0
            || self.has_hung_up()
            || is_due
            || held::is_released_by(word, self.answered_up_to());
        // A reset discards what is held back.
        if is_there && !dropped {
            return tail;
        }
        let before = held::visible_tail(word, shown, tail);
        let full = match (tail - before) / self.reader.packet {
            _ if dropped => 0,
            // The acknowledgement of a full packet releases the rest too, unless that is corked.
            1.. if held::releases_on_reply(word) => return tail,
            pieces => pieces * self.reader.packet,
        };
        before + full
    }

    /// Sets the packet size towards the other end: bytes that fill a packet are never held back.
    #[inline]
    pub const fn set_packet_size(&mut self, bytes: u64) {
        self.reader.packet = bytes;
    }

    /// The sequence up to which the program has the bytes of the other end. The end of the stream counts as one.
    #[inline]
    fn answered_up_to(&self) -> u64 {
        let flags = self
            .sides()
            .map_or(0, |(own, _)| own.flags.load(Ordering::Relaxed));
        let end = u64::from(flags & side_flags::FIN != 0);
        self.published().wrapping_add(end)
    }

    /// How long bytes may still be held back, with those that the program writes meanwhile. `None` where none are held
    /// back.
    #[must_use]
    #[inline]
    pub fn hold_time_left(&self) -> Option<Duration> {
        let (_, peer) = self.sides()?;
        match held::load(&peer.held) {
            0 => None,
            word => self.hold_time_left_of(word),
        }
    }

    #[cold]
    fn hold_time_left_of(&self, word: u64) -> Option<Duration> {
        let left = held::time_left(word, milliseconds());
        let over = self.peer_flags() & (side_flags::RESET | side_flags::FIN) != 0
            || self.has_hung_up()
            || held::is_released_by(word, self.answered_up_to());
        (left > 0 && !over).then_some(Duration::from_millis(left))
    }

    /// Whether the end of the other program would release bytes that this program holds back: they would meet a reset,
    /// as nobody reads them any more.
    #[must_use]
    pub fn hang_up_releases_bytes(&self) -> bool {
        let Some((_, peer)) = self.sides() else {
            return false;
        };
        let holds = || {
            // Acquire: pairs with the release with which the program publishes it.
            let tail = peer.tail.load(Ordering::Acquire);
            self.frontier().is_ok_and(|seen| seen != tail)
        };
        held::releases_on_reply(held::load(&peer.held))
            && self.hold_time_left().is_some()
            && holds()
    }
}
