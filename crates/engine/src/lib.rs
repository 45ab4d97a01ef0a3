//! CoreEngine: programs, listeners, links, ports and deposits, the permissions on them, and the effect of each request.
//!
//! Never: looks at a byte of a connection, knows a stack module other than by its trait, makes a thread, waits for a
//! program, or trusts its words: each word is checked against what that program was given.
//!
//! ```text
//!  program --request--> CoreEngine --answer, region, link--> program
//!                        |      |--offer on the accept channel--> other program
//!                        |      |--directory (read-only memory)--> every program
//!                        v      ^
//!              stack modules (service::stack)
//! ```

mod anchors;
mod checked;
mod connections;
mod deposits;
mod diagnosis;
pub mod directory;
mod exposed;
mod in_flight;
pub mod limits;
mod link;
mod listener;
mod listeners;
pub mod locals;
mod name_service;
mod namespace;
mod neighbours;
mod netlink;
mod port_owners;
mod ports;
mod process_registry;
pub mod program;
mod programs;
mod proofs;
pub mod quota;
pub mod region;
mod remote_listeners;
mod requests;
mod reservations;
mod stack_requests;
mod state;
pub mod totals;
mod trusted;
pub mod turn;
mod unheld;
mod usage;

pub use crate::link::Link;
pub use crate::listener::Listener;
pub use crate::stack_requests::ForStack;
pub use crate::state::{Answer, CoreEngine, Refusal, StackId};
pub use crate::usage::UserUse;
