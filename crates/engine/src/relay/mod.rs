//! The daemon's end of links: towards programs it is just another program, whose virtual sockets are
//! relayed elsewhere. It speaks exactly the protocol the library speaks.
//!
//! Never: trusts a word that a program wrote, panics over one, or waits for a program.
//!
//! ```text
//!  program A ==link, role server==> Lane --copy--> Lane ==link, role client==> program B
//!                                     worker (a thread): Cells, Local
//!                                        |  ^
//!                               asks     v  |  links
//!                                    CoreEngine
//! ```
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "programs are hostile"
)]

pub(crate) mod anchor;
pub(crate) mod cells;
mod core_engine;
mod counter;
mod holding;
pub(crate) mod jobs;
pub(crate) mod lane;
mod ledger;
pub(crate) mod link;
mod local;
mod mailbox;
mod pair;
mod reader;
mod reading;
mod service;
pub(crate) mod spans;
pub(crate) mod targets;
pub(crate) mod urgent;
mod writer;
mod writing;

#[cfg(test)]
pub(crate) mod tests;

pub use core_engine::{ASTRAY, Ask, Command, Manner, Ticket};
pub use link::Parts;
pub use service::Relay;

/// The relay's number among programs.
pub const PROGRAM: u32 = netchannel_abi::program::RELAY;
