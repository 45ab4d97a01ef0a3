//! The number of channels to a peer.

mod fixed;
mod hysteresis;
mod reason;

#[cfg(test)]
mod tests;

pub use fixed::Fixed;
pub use hysteresis::{Hysteresis, HysteresisParameters};
pub use reason::Reason;

use core::fmt;

use crate::view::{ChannelId, ChannelView, Class, Phase, WorkerView};

/// The input of a decision about one class of one peer.
#[derive(Clone, Copy, Debug)]
pub struct ScaleView<'a> {
    /// Which channels it is about.
    pub class: Class,
    /// All channels to the peer, of both classes.
    pub channels: &'a [ChannelView],
    /// All workers.
    pub workers: &'a [WorkerView],
}

impl<'a> ScaleView<'a> {
    /// The channels of the class.
    pub fn own(&self) -> impl Iterator<Item = &'a ChannelView> + use<'a> {
        let class = self.class;
        self.channels
            .iter()
            .filter(move |channel| channel.id.class == class)
    }

    /// Channels of the class that are up or will be.
    #[must_use]
    pub fn count(&self) -> u16 {
        let alive = self
            .own()
            .filter(|channel| channel.phase != Phase::Draining);
        u16::try_from(alive.count()).unwrap_or(u16::MAX)
    }

    /// Mean utilisation of the workers of the class's channels that are up, 0 to 1000; 0 if there is none.
    #[must_use]
    pub fn utilisation(&self) -> u16 {
        let (mut sum, mut count) = (0u32, 0u32);
        for worker in self.workers {
            let works = |channel: &ChannelView| channel.is_up() && channel.worker == worker.id;
            if self.own().any(works) {
                sum += u32::from(worker.utilisation.min(1000));
                count += 1;
            }
        }
        u16::try_from(sum / count.max(1)).unwrap_or(1000)
    }

    /// Whether half or more of the class's channels that are up are held back by their congestion windows.
    #[must_use]
    pub fn congestion_limited(&self) -> bool {
        let (mut limited, mut up) = (0u32, 0u32);
        for channel in self.own().filter(|channel| channel.is_up()) {
            up += 1;
            limited += u32::from(channel.congestion_limited);
        }
        limited > 0 && limited * 2 >= up
    }

    /// The channel to retire: of those that are up, the least occupied, and of equals the one with the highest number.
    #[must_use]
    pub fn least_useful(&self) -> Option<ChannelId> {
        self.own()
            .filter(|channel| channel.is_up())
            .min_by_key(|channel| (channel.occupancy(), u32::MAX - channel.id.number))
            .map(|channel| channel.id)
    }
}

/// The decided action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// No change.
    Keep,
    /// Dial one more.
    Add,
    /// Drain this one and end it.
    Retire(ChannelId),
}

/// A decision with its reason, to be traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleDecision {
    /// Which channels it is about.
    pub class: Class,
    /// The decided action.
    pub action: Action,
    /// Why, with the figures.
    pub reason: Reason,
}

impl fmt::Display for ScaleDecision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            Action::Keep => write!(formatter, "keep the {} channels", self.class)?,
            Action::Add => write!(formatter, "add a {} channel", self.class)?,
            Action::Retire(channel) => write!(formatter, "retire channel {channel}")?,
        }
        write!(formatter, ": {}", self.reason)
    }
}

/// Scales the channels to one peer. Asked every 10 to 100 ms for each class.
pub trait ScalePolicy: Send {
    /// Whether to add or retire a channel now. At most one change at a time; the view shows it before the next is asked
    /// for (as [`Phase::Opening`] or [`Phase::Draining`]), or it was refused.
    fn decide(&mut self, view: &ScaleView<'_>, now: u64) -> ScaleDecision;
}
