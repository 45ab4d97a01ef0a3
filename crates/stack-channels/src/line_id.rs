//! What the parts that have to do with other hosts call a channel.

/// One channel that is or was up. Never used again: two channels can have one class and number for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(pub u64);
