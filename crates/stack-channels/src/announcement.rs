//! What a peer says of itself over a channel: where its programs listen.

use netchannel_wire::{Address, Listen, ListenEnd, Unlisten};

/// An announcement of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// All its addresses, with the serial.
    Addresses(u64, Vec<Address>),
    /// A listener.
    Listen(Listen),
    /// A listener is gone.
    Unlisten(Unlisten),
    /// A full list was said.
    ListenEnd(ListenEnd),
}
