//! One channel per socket, chosen by its number: the published module's default (source port modulo channels).

use super::{Candidates, ChannelPolicy, Choice};
use crate::view::{ChannelView, SocketView};

/// A socket always takes the same channel while the set of channels stays; it waits rather than take another. A
/// baseline to compare with: one busy socket cannot use two channels, and two may meet on one.
#[derive(Clone, Debug)]
pub struct SocketHash {
    threshold: u64,
}

impl SocketHash {
    /// `threshold` in bytes, see [`super::THRESHOLD`].
    #[must_use]
    pub fn new(threshold: u64) -> Self {
        Self { threshold }
    }
}

impl ChannelPolicy for SocketHash {
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
        let eligible = (0..candidates.len()).filter(|index| candidates.is_eligible(*index));
        let count = eligible.clone().count();
        let wanted = socket.id.0 as usize % count.max(1);
        match eligible.clone().nth(wanted) {
            Some(index) if candidates.is_usable(index) => Choice::Send(index),
            Some(_) => Choice::Wait,
            None => Choice::NoChannel,
        }
    }
}
