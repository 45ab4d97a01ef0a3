//! The other hosts: channels to their daemons are dialled, accepted, proved with a key, kept up and
//! replaced; what their programs listen at goes into the directory.
//!
//! Never: waits, makes a thread, reads a clock, believes anything before its proof, or keeps memory
//! without bound for what a stranger or a peer says. It looks at no channel that is up: the data plane
//! works those, PING included.
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
//! It has one descriptor, which is readable when there is something to do ([`Peers::work`]), and one
//! deadline. Whoever calls it takes the outputs afterwards, then lets it publish.
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
mod dialling;
mod half_open;
mod learned;
mod lines;
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
pub use output::{Line, LineId, Loss, Output, StartId, Terms};
pub use peer::Counters;
pub use service::chance;
pub use service::{Peers, PeersError, StrangerCounters};
pub use settings::{Bounds, PeerLimits, PeerSettings, PerClass, Settings, Times};
pub use view::{LineView, PeerView, PeersView};
