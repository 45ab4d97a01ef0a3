//! The control protocol: what `netchannel status`, `ss`, `peers` and the other commands ask a daemon, what
//! it answers, where its sockets lie, and a client.
//!
//! Never: any byte of a connection. A request is one line of JSON, and so is the answer.
//!
//! ```text
//!  netchannel status --Request--> PATH.control --> daemon
//!                    <--Response--
//! ```
#![forbid(unsafe_code)]

pub mod client;
pub mod configuration;
pub mod hosts;
pub mod path;
mod plain;
pub mod rates;
pub mod tenants;
pub mod types;

pub use client::{ClientError, request};
pub use plain::plain;
pub use types::{Request, Response};
