//! The control message in which descriptors travel.

use libc::c_int;

/// Most descriptors of one message.
pub const MOST: usize = netchannel_abi::message::MOST_DESCRIPTORS;

/// A control message with room for descriptors.
#[repr(C, align(8))]
pub struct Control {
    /// Bytes of it.
    pub length: usize,
    /// `SOL_SOCKET`.
    pub level: c_int,
    /// `SCM_RIGHTS`.
    pub kind: c_int,
    /// The descriptors.
    pub descriptors: [c_int; MOST],
}

impl Default for Control {
    fn default() -> Self {
        Self {
            length: 0,
            level: 0,
            kind: 0,
            descriptors: [-1; MOST],
        }
    }
}
