//! Bytes that were sent and are not acknowledged, and the channels on which they were sent.
//!
//! ```text
//!   acknowledged                                    next
//!   |  on 1  |   on 2   | lost |      on 1 or 2     |
//!   +--------+----------+------+--------------------+
//!     pieces: each has its end and its channels; lost ones have none
//! ```
//!
//! A piece with several channels counts as lost when any of them is lost: sending twice is harmless, and not sending is
//! not.

use std::collections::VecDeque;

use crate::channel::{ChannelId, Channels};

/// The limit of pieces that a socket distinguishes. Beyond it neighbours are joined, and a loss makes the socket repeat
/// more than was lost.
pub const MOST_IN_FLIGHT_RANGES: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u64,
    channels: Channels,
}

impl Piece {
    const fn is_lost(self) -> bool {
        self.channels.is_empty()
    }
}

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    acknowledged: u64,
    next: u64,
    /// A partition of `[acknowledged, next)`.
    pieces: VecDeque<Piece>,
    /// The number of lost pieces.
    lost: usize,
}

impl InFlight {
    pub(crate) const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// The first range that must be sent again.
    pub(crate) fn first_lost(&self) -> Option<(u64, u64)> {
        if self.lost == 0 {
            return None;
        }
        let mut start = self.acknowledged;
        for piece in &self.pieces {
            if piece.is_lost() {
                return Some((start, piece.end));
            }
            start = piece.end;
        }
        None
    }

    /// Records that `[start, end)` was sent on `channel`. Returns how many of these bytes were sent before.
    pub(crate) fn record(&mut self, start: u64, end: u64, channel: ChannelId) -> u64 {
        let channels = Channels::only(channel);
        let repeated = self.next.min(end).saturating_sub(start);
        self.assign(start, self.next.min(end), channels);
        if end > self.next {
            self.next = end;
            match self.pieces.back_mut() {
                Some(last) if last.channels == channels => last.end = end,
                _ => self.pieces.push_back(Piece { end, channels }),
            }
            self.bound();
        }
        repeated
    }

    /// Marks `[start, end)` as lost, as far as it is not acknowledged.
    pub(crate) fn lose(&mut self, start: u64, end: u64) {
        self.assign(start, end.min(self.next), Channels::NONE);
    }

    /// Marks all bytes that were sent on `channel` as lost.
    pub(crate) fn on_channel_lost(&mut self, channel: ChannelId) {
        let mut any = false;
        for piece in &mut self.pieces {
            if piece.channels.contains(channel) {
                piece.channels = Channels::NONE;
                any = true;
            }
        }
        if any {
            self.join();
        }
    }

    /// All bytes before `to` (at most `next`) have arrived.
    pub(crate) fn acknowledge(&mut self, to: u64) {
        self.acknowledged = to;
        while let Some(first) = self.pieces.front() {
            if first.end > to {
                break;
            }
            if first.is_lost() {
                self.lost -= 1;
            }
            self.pieces.pop_front();
        }
    }

    /// Sets the channels of all pieces within `[start, end)`.
    fn assign(&mut self, start: u64, end: u64, channels: Channels) {
        let start = start.max(self.acknowledged);
        if start >= end {
            return;
        }
        self.split(start);
        self.split(end);
        for piece in &mut self.pieces {
            if piece.end > end {
                break;
            }
            // The pieces are cut at `start`, so a piece that ends after it begins at or after it.
            if piece.end > start {
                piece.channels = channels;
            }
        }
        self.join();
        self.bound();
    }

    /// Makes `at` a boundary, if it is within a piece.
    fn split(&mut self, at: u64) {
        let index = self.pieces.partition_point(|piece| piece.end < at);
        let start = index
            .checked_sub(1)
            .map_or(self.acknowledged, |before| self.pieces[before].end);
        if let Some(piece) = self.pieces.get(index).copied()
            && start < at
            && at < piece.end
        {
            self.pieces.insert(index, Piece { end: at, ..piece });
        }
    }

    /// Joins neighbours with the same channels, and counts the lost pieces again.
    fn join(&mut self) {
        let mut kept = 0;
        self.lost = 0;
        for at in 0..self.pieces.len() {
            let piece = self.pieces[at];
            if kept > 0 && self.pieces[kept - 1].channels == piece.channels {
                self.pieces[kept - 1].end = piece.end;
                continue;
            }
            self.pieces[kept] = piece;
            kept += 1;
            if piece.is_lost() {
                self.lost += 1;
            }
        }
        self.pieces.truncate(kept);
    }

    /// Halves the number of pieces when there are too many.
    fn bound(&mut self) {
        if self.pieces.len() <= MOST_IN_FLIGHT_RANGES {
            return;
        }
        for at in 0..self.pieces.len() / 2 {
            let (left, right) = (self.pieces[2 * at], self.pieces[2 * at + 1]);
            let channels = if left.is_lost() || right.is_lost() {
                Channels::NONE
            } else {
                left.channels.union(right.channels)
            };
            let end = right.end;
            self.pieces[at] = Piece { end, channels };
        }
        let pieces = self.pieces.len();
        if pieces % 2 == 1 {
            self.pieces.swap(pieces / 2, pieces - 1);
        }
        self.pieces.truncate(pieces.div_ceil(2));
        self.join();
    }

    /// The number of lost bytes.
    pub(crate) fn lost_bytes(&self) -> u64 {
        if self.lost == 0 {
            return 0;
        }
        let mut start = self.acknowledged;
        let mut bytes = 0;
        for piece in &self.pieces {
            if piece.is_lost() {
                bytes += piece.end - start;
            }
            start = piece.end;
        }
        bytes
    }

    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ChannelId = ChannelId(1);
    const TWO: ChannelId = ChannelId(2);

    #[test]
    fn runs_on_one_channel_are_one_piece() {
        let mut in_flight = InFlight::default();
        for at in 0..100 {
            assert_eq!(in_flight.record(at * 10, at * 10 + 10, ONE), 0);
        }
        assert_eq!((in_flight.pieces(), in_flight.next()), (1, 1000));
        in_flight.acknowledge(555);
        in_flight.on_channel_lost(TWO);
        assert_eq!(in_flight.first_lost(), None);
        in_flight.on_channel_lost(ONE);
        assert_eq!(in_flight.first_lost(), Some((555, 1000)));
        assert_eq!(in_flight.record(555, 600, TWO), 45);
        assert_eq!(in_flight.first_lost(), Some((600, 1000)));
        in_flight.acknowledge(1000);
        assert_eq!((in_flight.pieces(), in_flight.first_lost()), (0, None));
    }

    #[test]
    fn only_what_the_lost_channel_carried_is_lost() {
        let mut in_flight = InFlight::default();
        in_flight.record(0, 10, ONE);
        in_flight.record(10, 20, TWO);
        in_flight.record(20, 30, ONE);
        in_flight.on_channel_lost(ONE);
        assert_eq!(in_flight.first_lost(), Some((0, 10)));
        in_flight.record(0, 10, TWO);
        assert_eq!(in_flight.first_lost(), Some((20, 30)));
        in_flight.acknowledge(25);
        assert_eq!(in_flight.first_lost(), Some((25, 30)));
        in_flight.on_channel_lost(TWO);
        assert_eq!(in_flight.pieces(), 1);
    }

    /// A byte knows its last channel; the model keeps one entry for each byte.
    #[test]
    fn it_agrees_with_a_list_of_bytes() {
        let mut random = 7_u64;
        let mut next = |most: u64| {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (random >> 33) % most
        };
        for round in 0..200 {
            let channels = 1 + round % 5;
            // Without acknowledgements there are more pieces than are told apart.
            let acknowledges = round % 8 != 7;
            let steps = if acknowledges { 400 } else { 1500 };
            let mut in_flight = InFlight::default();
            let mut model: Vec<Option<u64>> = Vec::new();
            for _ in 0..steps {
                let length = model.len() as u64;
                match next(8) {
                    0..4 => {
                        let channel = next(channels);
                        let end = length + 1 + next(9);
                        in_flight.record(length, end, channel_of(channel));
                        model.resize(usize::try_from(end).unwrap(), Some(channel));
                    }
                    // Seldom, so that much is in flight at the loss.
                    4 if acknowledges || next(200) == 0 => {
                        let channel = next(channels);
                        in_flight.on_channel_lost(channel_of(channel));
                        let lost = model.iter_mut().filter(|sent| **sent == Some(channel));
                        lost.for_each(|sent| *sent = None);
                    }
                    4 => {}
                    5 if !acknowledges => {}
                    5 => {
                        let left = length - in_flight.acknowledged();
                        let to = in_flight.acknowledged() + next(left.min(30) + 1);
                        in_flight.acknowledge(to);
                    }
                    6 if !acknowledges => {}
                    6 => {
                        let start = next(length + 1);
                        let end = start + next(20);
                        in_flight.lose(start, end);
                        let end = usize::try_from(end.min(length)).unwrap();
                        let start = usize::try_from(start).unwrap().min(end);
                        model[start..end].fill(None);
                    }
                    _ => {
                        if let Some((start, end)) = in_flight.first_lost() {
                            let end = end.min(start + 1 + next(10));
                            let channel = next(channels);
                            in_flight.record(start, end, channel_of(channel));
                            let (from, to) = (
                                usize::try_from(start).unwrap(),
                                usize::try_from(end).unwrap(),
                            );
                            model[from..to].fill(Some(channel));
                        }
                    }
                }
                let from = usize::try_from(in_flight.acknowledged()).unwrap();
                let lost = model[from..].iter().position(|sent| sent.is_none());
                // Bounded pieces may make more lost than was, never less.
                if let Some(lost) = lost {
                    let (start, end) = in_flight.first_lost().unwrap();
                    assert!(start <= (from + lost) as u64 && start < end);
                    if acknowledges {
                        assert_eq!(start, (from + lost) as u64);
                    }
                }
                assert!(in_flight.pieces() <= MOST_IN_FLIGHT_RANGES);
            }
        }
    }

    #[test]
    fn many_small_segments_are_joined_and_none_is_forgotten() {
        let mut in_flight = InFlight::default();
        for at in 0..100_000 {
            in_flight.record(at, at + 1, if at % 2 == 0 { ONE } else { TWO });
            assert!(in_flight.pieces() <= MOST_IN_FLIGHT_RANGES);
        }
        in_flight.on_channel_lost(ONE);
        let mut again = 0;
        while let Some((start, end)) = in_flight.first_lost() {
            again += end - start;
            in_flight.record(start, end, TWO);
        }
        assert!(again >= 50_000, "{again}");
    }

    fn channel_of(number: u64) -> ChannelId {
        ChannelId(u32::try_from(number).unwrap())
    }
}
