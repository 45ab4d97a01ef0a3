//! The name of a channel on this host.

/// One channel that is or was up. The number is never used again: two channels can have the same class and number for a
/// moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelInstance(pub u64);
