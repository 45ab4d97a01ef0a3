//! Announcements of a peer over a channel: the addresses and listeners of its host.

use netchannel_wire::{Address, Listen, ListenEnd, Unlisten};

/// An announcement of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// All addresses of the peer, with the serial.
    Addresses(u64, Vec<Address>),
    /// A listener.
    Listen(Listen),
    /// A listener is closed.
    Unlisten(Unlisten),
    /// The end of a full list.
    ListenEnd(ListenEnd),
}
