//! The daemon: CoreEngine with its listeners, links and quotas, the liveness of programs, the
//! control server, and the relay, which is the other end of links whose bytes go through the daemon.
//!
//! Never: policy of a scheduler, looking at a byte of a connection, blocking on anybody's socket,
//! trusting a word that a program wrote, or waking up without an event.
//!
//! ```text
//!  program --request--> packet --> core --answer, region, link--> program
//!                                   |--offer on the accept channel--> other program
//!                                   |--directory (read-only memory)--> every program
//!  netchannel ss --JSON--> admin --> answering, in turns --> view --copies, clamps--> regions and links
//!  program ==link== relay ==link== other program    (only where the daemon is to be between them)
//! ```

mod admin;
mod anchors;
mod answering;
mod bind;
mod configured;
mod copying;
mod core;
mod deposits;
mod diagnosis;
mod directory;
mod in_flight;
mod limits;
mod locals;
mod metrics;
mod namespace;
mod netlink;
mod options;
mod port_owners;
mod ports;
mod process_registry;
mod program;
mod quota;
mod region;
mod server;
mod sessions;
mod threads;
mod totals;
mod turn;
mod view;
mod watch;

pub use crate::limits::Limits;
pub use crate::options::{Options, ServeError};
pub use crate::server::{Daemon, Stopper};
pub use netchannel_service::signal_stack::AlternateStack;
pub use netchannel_service::slice;
