//! Tombstones: what is remembered of sockets that have ended.

use netchannel_vns::{ChannelId, FinalState, Handle};

/// The tombstone of an ended socket.
#[derive(Clone, Copy, Debug)]
pub struct Tombstone {
    /// What is still said for it.
    pub final_state: FinalState,
    /// The peer's handle of it, if that was known.
    pub theirs: Option<Handle>,
    /// The channel that its last word took.
    pub last: Option<ChannelId>,
}
