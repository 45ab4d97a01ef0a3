//! Round robin with occupancy thresholds: what the paper uses (section 4).

use super::{Candidates, ChannelPolicy, Choice};
use crate::view::{ChannelView, SocketView};

/// Each usable channel in turn, with `stay` segments on each. Channels at the threshold are skipped.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    threshold: u64,
    stay: u32,
    /// Per class: they have turns of their own.
    turns: [Turn; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// The channel of the next segment, if it is usable.
    index: usize,
    /// The number of further segments on it; 0 before the first segment.
    left: u32,
}

impl RoundRobin {
    /// `threshold` in bytes, see [`super::THRESHOLD`]; `stay` is at least 1 (the published module stays for 6).
    #[must_use]
    pub fn new(threshold: u64, stay: u32) -> Self {
        Self {
            threshold,
            stay: stay.max(1),
            turns: Default::default(),
        }
    }
}

impl ChannelPolicy for RoundRobin {
    fn choose(
        &mut self,
        socket: &SocketView,
        _length: u32,
        channels: &[ChannelView],
        _now: u64,
    ) -> Choice {
        let Some(candidates) = Candidates::of(socket.class, channels, self.threshold) else {
            return Choice::NoChannel;
        };
        let turn = &mut self.turns[candidates.class().index()];
        let Some(index) = candidates.first_from(turn.index) else {
            return Choice::Wait;
        };
        if index != turn.index || turn.left == 0 {
            turn.left = self.stay;
        }
        turn.left -= 1;
        turn.index = if turn.left == 0 { index + 1 } else { index };
        Choice::Send(index)
    }
}
