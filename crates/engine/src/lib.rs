//! The daemon: CoreEngine with its listeners, links and quotas, the liveness of programs, and the
//! control server.
//!
//! Never: policy of a scheduler, a byte of a connection, blocking on anybody's socket, trusting a
//! word that a program wrote, or waking up without an event.
//!
//! ```text
//!  program --request--> packet --> core --answer, region, link--> program
//!                                   |--offer on the accept channel--> other program
//!                                   |--directory (read-only memory)--> every program
//!  netchannel ss --JSON--> admin --> view --copies, clamps--> regions and links
//! ```

mod admin;
mod bind;
mod core;
mod deposits;
mod diagnosis;
mod directory;
mod faults;
mod limits;
mod locals;
mod memory;
mod netlink;
mod options;
mod packet;
mod ports;
mod program;
mod server;
mod view;
mod watch;

pub use crate::limits::Limits;
pub use crate::options::{Options, ServeError};
pub use crate::server::{Daemon, Stopper};
