//! A socket keeps its channel while there is room.

use super::{Candidates, ChannelPolicy, Choice};
use crate::view::{ChannelView, SocketView};

/// The channel of the socket's last segment, until its occupancy reaches `spill`; then the least occupied one, which
/// the socket keeps. Segments of a socket seldom overtake each other, and its state stays in one worker's cache.
#[derive(Clone, Debug)]
pub struct Sticky {
    threshold: u64,
    spill: u64,
    starts: [usize; 2],
}

impl Sticky {
    /// Both in bytes; a `spill` above `threshold` is `threshold`.
    #[must_use]
    pub fn new(threshold: u64, spill: u64) -> Self {
        Self {
            threshold,
            spill: spill.min(threshold),
            starts: [0; 2],
        }
    }
}

impl ChannelPolicy for Sticky {
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
        let last = socket.last_channel.and_then(|last| {
            let index = channels.iter().position(|channel| channel.id == last)?;
            candidates.is_usable(index).then_some(index)
        });
        if let Some(index) = last
            && channels[index].occupancy() < self.spill
        {
            return Choice::Send(index);
        }
        let start = &mut self.starts[candidates.class().index()];
        let Some(least) = candidates.least_occupied(*start, false) else {
            return Choice::Wait;
        };
        // All are beyond `spill`: moving would gain little and cost order.
        if let Some(index) = last
            && channels[least].occupancy() >= self.spill
        {
            return Choice::Send(index);
        }
        *start = least + 1;
        Choice::Send(least)
    }
}
