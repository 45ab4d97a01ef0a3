//! The other hosts. Channels to their daemons are dialled, accepted, proved with a key, kept up and replaced; the
//! listeners of their programs go into the directory.
//!
//! Never: waits, makes a thread, reads a clock, trusts anything before its proof, or keeps unbounded memory for input
//! of a stranger or a peer. It does not touch channels that are up: the data plane runs those, PING included.
//!
//! ```text
//!  Acceptors -accept-> +---------------+                     +--> Output: Began, Up, Retire, Cut, Frames
//!                    | Table:        |--> judge --> Peer --+          to the data plane
//!  Peer --dial-----> | HalfOpen      |    (slot)     ^     |
//!                    +---------------+               |     +--> Listings: entries of the directory
//!        transport, wire's handshake                 |
//!                         data plane: lost, GOAWAY, announcements;  CoreEngine: listeners, addresses
//! ```
//!
//! It has one descriptor, which is readable when there is work ([`Peers::work`]), and one deadline. After the work the
//! caller takes the outputs, then calls publish.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "peers and strangers are hostile"
    )
)]

mod acceptors;
mod advertised;
mod backoff;
mod channels;
mod dialling;
mod half_open;
mod learned;
mod output;
mod peer;
mod poll;
mod reload;
mod service;
mod settings;
mod table;
mod view;

#[cfg(test)]
mod tests;

pub use acceptors::CannotListen;
pub use advertised::OwnListener;
pub use learned::{Announcement, LeftOut, Listings};
pub use output::{ChannelInstance, ChannelRef, Loss, Output, StartId, Terms};
pub use peer::Counters;
pub use service::random_number;
pub use service::{Peers, PeersError, StrangerCounters};
pub use settings::{Bounds, PeerLimits, PeerSettings, PerClass, Settings, Times};
pub use view::{OpenChannelView, PeerView, PeersView};
