//! Index arithmetic of queues and byte rings, their memory orderings, and the sleep/wake protocol.
//!
//! Never: maps memory, makes a system call, or believes an index that the other side wrote.
//!
//! ```text
//!  publish:  bytes -> tail (Release) -> fence -> waiter word? --no--> done
//!                                                   |yes
//!                            cell: ready bit -> fence -> asleep? --> token on the anchor
//!  sleep:    waiter/asleep := 1 -> fence -> look again -> sleep on the anchor
//! ```
#![forbid(unsafe_code)]

pub mod admission;
pub mod arena;
pub mod bytes;
pub mod cell;
pub mod departure;
pub mod held;
pub mod parts;
pub mod patience;
pub mod queue;
pub mod side;
pub mod switch;
pub mod sync;
pub mod urgent;
pub mod waiter;

#[cfg(all(test, loom))]
mod models;

/// The other side wrote a value that it may not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;
