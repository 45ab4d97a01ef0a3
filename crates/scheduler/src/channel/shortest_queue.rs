//! The channel with the least to do.

use super::{Candidates, ChannelPolicy, Choice};
use crate::view::{ChannelView, SocketView};

/// The least occupied channel, equals in turn.
#[derive(Clone, Debug)]
pub struct ShortestQueue {
    threshold: u64,
    avoid_congested: bool,
    /// Per class, where the search begins, so that equal channels share.
    starts: [usize; 2],
}

impl ShortestQueue {
    /// `threshold` in bytes, see [`super::THRESHOLD`]. With `avoid_congested`, channels that their congestion window
    /// holds back come last however short their queue is.
    #[must_use]
    pub fn new(threshold: u64, avoid_congested: bool) -> Self {
        Self {
            threshold,
            avoid_congested,
            starts: [0; 2],
        }
    }
}

impl ChannelPolicy for ShortestQueue {
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
        let start = &mut self.starts[candidates.class().index()];
        match candidates.least_occupied(*start, self.avoid_congested) {
            Some(index) => {
                *start = index + 1;
                Choice::Send(index)
            }
            None => Choice::Wait,
        }
    }
}
