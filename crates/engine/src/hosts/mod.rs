//! The data path between hosts: virtual sockets of programs over channels to other daemons.
//!
//! Never: decides a policy (that is `scheduler`), looks at a byte of a stream, trusts a word of a program or a frame of a peer, or
//! waits for either.
//!
//! ```text
//!  program ==link== Lane                                              channel ==== peer's daemon
//!                     |        Remote: Lane + VirtualSocket              |
//!    sends:   what it wrote --> scheduler --> Outbox: headers, runs of its ring --> one gather write
//!    receives:  its ring <-- placed where the sequence says <-- Parser <-- one scatter read
//!
//!  Worker (a thread): its channels (Line), the sockets that it is home of, a cell in their links
//!  front (the first worker): also new connections, of programs and of peers
//! ```
//!
//! Any worker may receive for any socket; a socket's home sends its bytes and knows its times.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "programs and peers are hostile"
)]

mod begin;
mod bells;
mod commands;
mod connects;
mod frames;
mod front;
mod homes;
mod incoming;
mod line;
mod lines;
mod lost;
mod mailbox;
mod memory;
mod outbox;
mod passes;
mod peer;
mod placing;
mod reasons;
mod receive;
mod remote;
mod route;
mod routing;
mod rules;
mod seats;
mod send;
mod service;
mod shared;
mod shares;
mod side;
mod sight;
mod sockets;
mod tidying;
mod traffic;
mod used;
mod worker;

#[cfg(test)]
mod tests;

pub use commands::{Command, Failing, Listed, Report};
pub use lost::Lost;
pub use peer::Terms;
pub use remote::Peer;
pub use route::Route;
pub use rules::Rules;
pub use service::Hosts;
pub use shared::worker_name;
pub use sight::Sight;
