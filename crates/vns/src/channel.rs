//! Which channels something was sent on.

/// The engine's number for a channel to the peer. It may be given again once its loss was told to every socket of the peer.
///
/// Sets of channels are kept modulo 64: with more than 64 channels to one peer, a loss makes sockets repeat more than they must.
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

/// A control frame that has to reach the peer: due, on its way, or settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Nothing to say yet.
    #[default]
    Quiet,
    /// To be sent; `again` if a copy may have arrived already.
    Due { again: bool },
    /// Committed to a channel.
    Sent(ChannelId),
    /// The peer has shown that it knows.
    Settled,
}

impl Notice {
    pub(crate) const fn is_due(self) -> bool {
        matches!(self, Self::Due { .. })
    }

    /// Whether a copy was ever sent, so that the peer may know.
    pub(crate) const fn was_sent(self) -> bool {
        matches!(
            self,
            Self::Sent(_) | Self::Settled | Self::Due { again: true }
        )
    }

    /// Wants it sent (again).
    pub(crate) const fn raise(&mut self) {
        *self = Self::Due {
            again: self.was_sent(),
        };
    }

    pub(crate) const fn sent(&mut self, channel: ChannelId) {
        if !matches!(self, Self::Settled) {
            *self = Self::Sent(channel);
        }
    }

    pub(crate) const fn settle(&mut self) {
        *self = Self::Settled;
    }

    /// Says it again if its channel took it along.
    pub(crate) fn on_channel_lost(&mut self, channel: ChannelId) {
        if *self == Self::Sent(channel) {
            *self = Self::Due { again: true };
        }
    }
}
