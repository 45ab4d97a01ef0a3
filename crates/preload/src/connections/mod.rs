//! Connections from `connect` and `accept` to their end, and calls that move bytes over them.

pub mod accepting;
pub mod asking;
pub mod connection;
mod replaced;
pub mod splicing;
pub mod transfer;
