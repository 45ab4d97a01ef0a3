//! The service library: the infrastructure's end of the lanes that it serves, whatever stack carries their bytes on.
//! Towards programs it behaves as another program: it speaks exactly the protocol that `libnetchannel.so` speaks.
//!
//! Never: trusts a word that a program wrote, panics because of one, waits for a program, or looks at a byte of a
//! stream.
//!
//! ```text
//!  program ==link== LinkEnd: ledger of slots, anchors, rings
//!                     |  Lane: what the program wrote, room for what it reads, flags, wake-ups
//!                     |  Pair: two lanes whose programs are connected
//!                     |  Cells: readiness for one worker: look, spin, sleep
//!                     |  Worker: a thread; its passes, its sleep
//!  CoreEngine <--StackRequest, Command--> Router: a connection's way to a listener of this host (Targets)
//! ```
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "programs are hostile"
    )
)]

pub mod addresses;
pub mod anchor;
pub mod cells;
pub mod class;
pub mod core_engine;
mod counter;
pub mod faults;
mod holding;
pub mod jobs;
pub mod lane;
mod ledger;
pub mod link;
pub mod mailbox;
pub mod memory;
pub mod neighbour;
pub mod packet;
pub mod pair;
pub mod played;
pub mod published_ports;
pub mod questions;
mod reader;
mod reading;
pub mod relayed;
pub mod returned;
pub mod routing;
pub mod signal_stack;
pub mod slice;
pub mod spans;
pub mod stack;
pub mod targets;
pub mod thread_stack;
pub mod timers;
mod unaccepted;
pub mod urgent;
pub mod worker;
mod writer;
mod writing;

#[cfg(test)]
mod tests;
