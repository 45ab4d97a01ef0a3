//! Which channel a segment takes.

mod round_robin;
mod shortest_queue;
mod socket_hash;
mod sticky;

#[cfg(test)]
mod tests;

pub use round_robin::RoundRobin;
pub use shortest_queue::ShortestQueue;
pub use socket_hash::SocketHash;
pub use sticky::Sticky;

use crate::view::{ChannelView, Class, SocketView};

/// Occupancy from which on a channel gets no further segment: 2 MiB (paper, section 4).
pub const THRESHOLD: u64 = 2 << 20;

/// The channel of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// To the channel with this index in the list that was shown.
    Send(usize),
    /// Every channel that it may take is as full as it may be. The bytes stay in the socket's ring; ask again
    /// when a channel has sent something.
    Wait,
    /// No channel is up.
    NoChannel,
}

/// Chooses a channel for a segment.
///
/// The rules that every policy must keep, and that [`Candidates`] enforces: only channels that are up; never the other
/// class while a channel of the socket's own class is up; never a channel whose occupancy has reached the threshold. So
/// a channel never holds more than the threshold and one segment, whatever the sockets do.
pub trait ChannelPolicy: Send {
    /// Chooses among the channels of one worker or of one peer, for `length` bytes of a socket. The list may be
    /// another, in another order, at each call.
    fn choose(
        &mut self,
        socket: &SocketView,
        length: u32,
        channels: &[ChannelView],
        now: u64,
    ) -> Choice;
}

/// The channels that a socket may take.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    channels: &'a [ChannelView],
    class: Class,
    threshold: u64,
}

impl<'a> Candidates<'a> {
    /// The channels of the socket's class, or of the other if none of its own is up; nothing if none is up at all.
    #[must_use]
    pub fn of(class: Class, channels: &'a [ChannelView], threshold: u64) -> Option<Self> {
        let mut any = false;
        let mut own = false;
        for channel in channels {
            if channel.is_up() {
                any = true;
                if channel.id.class == class {
                    own = true;
                    break;
                }
            }
        }
        any.then_some(Self {
            channels,
            class: if own { class } else { class.other() },
            threshold,
        })
    }

    /// The number of channels, usable or not.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.channels.len()
    }

    /// Whether there is no channel.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// The class of the channels that may be taken.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.class
    }

    /// Whether the channel at an index may be taken, were it not full.
    #[must_use]
    pub fn is_eligible(&self, index: usize) -> bool {
        self.channels
            .get(index)
            .is_some_and(|channel| channel.is_up() && channel.id.class == self.class)
    }

    /// Whether the channel at an index may be taken now.
    #[must_use]
    pub fn is_usable(&self, index: usize) -> bool {
        self.is_eligible(index) && self.channels[index].occupancy() < self.threshold
    }

    /// The first usable index from `start` on, wrapping around.
    #[must_use]
    pub fn first_from(&self, start: usize) -> Option<usize> {
        let start = if start < self.len() { start } else { 0 };
        (start..self.len())
            .chain(0..start)
            .find(|index| self.is_usable(*index))
    }

    /// The usable channel with the least occupancy; one that its congestion window holds back only if all are, when
    /// `avoid_congested`. Among equals the first from `start` on, wrapping around.
    #[must_use]
    pub fn least_occupied(&self, start: usize, avoid_congested: bool) -> Option<usize> {
        let start = if start < self.len() { start } else { 0 };
        let (before, after) = self.channels.split_at(start);
        let mut best = None;
        let mut least = (true, self.threshold);
        for (offset, part) in [(start, after), (0, before)] {
            for (index, channel) in part.iter().enumerate() {
                let occupancy = channel.occupancy();
                if !channel.is_up() || channel.id.class != self.class || occupancy >= self.threshold
                {
                    continue;
                }
                let cost = (avoid_congested && channel.congestion_limited, occupancy);
                // Below the bound that begins it, since the occupancy is below the threshold.
                if cost < least {
                    least = cost;
                    best = Some(offset + index);
                }
            }
        }
        best
    }
}
