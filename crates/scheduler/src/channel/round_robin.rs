//! Round robin with occupancy thresholds: what the paper uses (section 4).

use super::{Candidates, ChannelPolicy, Choice};
use crate::view::{ChannelId, ChannelView, SocketView};

/// Each usable channel in turn, `stay` segments on each; those at the threshold are passed over.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    threshold: u64,
    stay: u32,
    /// Per class: they have turns of their own.
    turns: [Turn; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    channel: Option<ChannelId>,
    index: usize,
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
        let same = |index: usize| channels.get(index).map(|channel| channel.id) == turn.channel;
        if turn.left > 0 && same(turn.index) && candidates.is_usable(turn.index) {
            turn.left -= 1;
            return Choice::Send(turn.index);
        }
        let start = match turn.channel {
            None => 0,
            Some(_) => turn.index + 1,
        };
        let Some(index) = candidates.first_from(start) else {
            return Choice::Wait;
        };
        *turn = Turn {
            channel: Some(channels[index].id),
            index,
            left: self.stay - 1,
        };
        Choice::Send(index)
    }
}
