//! Tombstones: the remaining state of sockets that have ended.

use netchannel_vns::{ChannelId, FinalState, Handle};

/// The tombstone of an ended socket.
#[derive(Clone, Copy, Debug)]
pub struct Tombstone {
    /// The final state, with which frames are answered.
    pub final_state: FinalState,
    /// The peer's handle, if it was known.
    pub peer_handle: Option<Handle>,
    /// The channel of its last control frame.
    pub last: Option<ChannelId>,
}
