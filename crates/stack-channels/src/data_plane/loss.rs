//! The reason why a channel has ended.

use netchannel_wire::Violation;
use std::io;

/// The reason why a channel has ended.
#[derive(Debug)]
pub enum Lost {
    /// Both ends have exchanged GOAWAY.
    Completed,
    /// The transport ended without GOAWAY.
    Ended,
    /// The transport failed.
    Failed(io::Error),
    /// The peer violated the protocol.
    Violation(Violation),
    /// The peer was silent for too long.
    Silent,
    /// Nothing was acknowledged for a while, and the peer has other addresses.
    Stalled,
    /// This host closed it.
    Closed,
}
