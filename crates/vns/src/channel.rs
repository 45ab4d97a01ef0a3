//! Channels, and the state of control frames on them.

/// The engine's number for a channel to the peer. It may be used again once the loss of the channel was reported to
/// every socket of the peer.
///
/// Sets of channels are stored modulo 64: with more than 64 channels to one peer, a loss makes sockets repeat more than
/// necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

/// A set of channels, modulo 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Channels(u64);

impl Channels {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn contains(self, channel: ChannelId) -> bool {
        self.0 & Self::only(channel).0 != 0
    }

    pub(crate) const fn only(channel: ChannelId) -> Self {
        Self(1 << (channel.0 % 64))
    }

    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The state of a control frame that has to reach the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ControlFrame {
    /// Nothing to send yet.
    #[default]
    Idle,
    /// To be sent; `again` if a copy may have arrived already.
    Due { again: bool },
    /// Sent on a channel.
    Sent(ChannelId),
    /// The peer has shown that it received the frame.
    Acknowledged,
}

impl ControlFrame {
    pub(crate) const fn is_due(self) -> bool {
        matches!(self, Self::Due { .. })
    }

    /// Whether a copy was ever sent, so that the peer may have received it.
    pub(crate) const fn was_sent(self) -> bool {
        matches!(
            self,
            Self::Sent(_) | Self::Acknowledged | Self::Due { again: true }
        )
    }

    /// Schedules the frame, also if it was sent before.
    pub(crate) const fn schedule(&mut self) {
        *self = Self::Due {
            again: self.was_sent(),
        };
    }

    pub(crate) const fn sent(&mut self, channel: ChannelId) {
        if !matches!(self, Self::Acknowledged) {
            *self = Self::Sent(channel);
        }
    }

    pub(crate) const fn acknowledge(&mut self) {
        *self = Self::Acknowledged;
    }

    /// Schedules the frame again if its channel is lost with it.
    pub(crate) fn on_channel_lost(&mut self, channel: ChannelId) {
        if *self == Self::Sent(channel) {
            *self = Self::Due { again: true };
        }
    }
}
