//! What CoreEngine and a stack module tell each other, in the daemon and between processes: versioned messages with descriptors over a
//! `SOCK_SEQPACKET` socket. A module that serves tenants has one such socket, a *session*, for each tenant, and knows by it whose a
//! message is.
//!
//! Never: waits, is on the way of a byte of a stream, or trusts what the other side says: a stack may have been taken over.
//!
//! ```text
//!  tenant's thread                                  thread of the daemon, or a process
//!  CoreEngine <--> SessionStack ==Endpoint==========Endpoint== worker of the module
//!                       |        Instruction -->               |
//!                       |        <-- Report                    |
//!                       +--- Counters (shared memory) <--------+
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "a stack may have been taken over"
    )
)]

pub mod control;
pub mod counters;
pub mod endpoint;
pub mod launch;
pub mod message;
pub mod process;
pub mod session;
pub mod stack_end;
pub mod table;

/// The version of the messages. Both sides say theirs first, and have the same.
pub const VERSION: u32 = 3;
