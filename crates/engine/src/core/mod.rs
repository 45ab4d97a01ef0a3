//! CoreEngine: programs, listeners, links, ports and deposits, and what each request does to them.
//!
//! It does no waiting; answers that do not fit into a socket are the caller's to judge. Whatever a
//! program says is checked against what that program was given.

mod checked;
mod connections;
mod exposed;
mod link;
mod listener;
mod listeners;
mod programs;
mod proofs;
mod remote_listeners;
mod requests;
mod reservations;
mod stack_requests;
mod state;
mod usage;

pub use link::Link;
pub use state::{Answer, CoreEngine, Refusal, StackId};
pub use usage::UserUse;
