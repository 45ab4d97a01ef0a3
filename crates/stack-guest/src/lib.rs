//! The stack module within a virtual machine that is a tenant: its programs have no network, and their connections go to the host over
//! memory that both have. What they may reach, their ports, caps and names are the host's business ([`netchannel_guest`] is between).
//!
//! Never: decides where a connection may go, trusts a word of a program or of the host, waits for either.
//!
//! ```text
//!  program ==lane==> GuestWorker: LaneSink --> Tunnel ==rings==> host --> kernel TCP
//!  program <==lane== routes <-- Tunnel <==rings== host <-- published port
//!                    Bell, or looks at growing distances, where one side sleeps
//! ```
#![forbid(unsafe_code)]

mod arrival;
mod askers;
mod asking;
mod bell;
mod counters;
mod module;
mod ports;
mod routes;
mod sink;
mod worker;

pub use bell::Bell;
pub use module::{GuestStack, StartError};
