//! The data path between hosts: virtual sockets of programs over channels to other daemons.
//!
//! Never: decides a policy (that is `scheduler`), looks at a byte of a stream, trusts a word of a program or a frame of a peer, or
//! waits for either.
//!
//! ```text
//!  program ==link== Lane                                              channel ==== peer's daemon
//!                     |        Connection: Lane + VirtualSocket              |
//!    sends:   what it wrote --> scheduler --> Outbox: headers, runs of its ring --> one gather write
//!    receives:  its ring <-- placed where the sequence says <-- Parser <-- one scatter read
//!
//!  Worker (a thread): its channels (OpenChannel), the sockets that it owns, a cell in their links
//!  the first worker: also new connections, of programs and of peers
//! ```
//!
//! Any worker may receive for any socket. A connection's owner sends its bytes and keeps its timers.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "programs and peers are hostile"
)]

mod accepting;
mod accepting_anew;
mod acceptor;
mod channels;
mod channels_used;
mod commands;
mod connection;
mod dialer;
mod dialing;
mod frames;
mod incoming;
mod link_cleanup;
mod loss;
mod migration;
mod open_channel;
mod opening;
mod outbox;
mod owner_table;
mod passes;
mod peer;
mod per_peer;
mod placement;
mod receive;
mod reset_reasons;
mod route;
mod rules;
mod send;
mod service;
mod shared;
mod shares;
mod snapshot;
mod sockets;
mod tombstone;
mod traffic;
mod wake_ups;
mod worker;

#[cfg(test)]
mod tests;

pub use commands::{Command, FailureScope, Listed, Report};
pub use connection::Peer;
pub use loss::Lost;
pub use peer::Terms;
pub use route::Route;
pub use rules::Rules;
pub use service::DataPlane;
pub use shared::worker_name;
pub use snapshot::ConnectionSnapshot;
