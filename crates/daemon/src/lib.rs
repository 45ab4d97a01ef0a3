//! The daemon: the loop, on top of CoreEngine and the stack modules. It owns the sockets to which programs and commands
//! connect, the configuration, the metrics, and the only clock.
//!
//! Never: decides a policy of the scheduler, looks at a byte of a connection, blocks on a socket, trusts a word that a
//! program wrote, or wakes up without an event.
//!
//! ```text
//!  program --request--> server --> CoreEngine <--> stack modules: local, channels
//!  netchannel ss --JSON--> admin --> answering, in turns --> view --copies, clamps--> regions and links
//!  GET /metrics --> metrics --> the same
//! ```

mod admin;
mod answering;
mod bind;
mod configured;
mod copying;
mod metrics;
mod options;
mod outgoing;
mod server;
mod sessions;
mod threads;
mod view;
mod watch;

pub use crate::options::{Launcher, Options, ServeError};
pub use crate::server::{Daemon, Stopper};
pub use netchannel_engine::limits::Limits;
pub use netchannel_service::signal_stack::AlternateStack;
pub use netchannel_service::slice;
