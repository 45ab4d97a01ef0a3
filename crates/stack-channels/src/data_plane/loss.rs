//! Why a channel is no more.

use netchannel_wire::Violation;
use std::io;

/// Why a channel is no more.
#[derive(Debug)]
pub enum Lost {
    /// Both ends have said GOAWAY.
    Parted,
    /// The transport ended without it.
    Ended,
    /// The transport failed.
    Failed(io::Error),
    /// The peer broke the contract.
    Violation(Violation),
    /// Nothing was heard for too long.
    Silent,
    /// Nothing was acknowledged for a while, and the peer has other addresses.
    Stalled,
    /// This host ended it.
    Cut,
}
