//! The configuration file `netchannel.toml`: the host's name, its peers with their keys, policies, times and limits. It
//! is read as a whole, so that every mistake is reported at once, each with its line and the remedy; shown with all
//! defaults; and compared when it is read again.
//!
//! Never: opens a socket of its own, looks a name up, or takes half of a file. Besides `netchannel.toml` it reads the key files that
//! this names, and the driver asks the kernel whether it has the congestion controls.
//!
//! ```text
//!  netchannel.toml --> read (lines, unknown keys) --> one section after the other --> Configuration --> engine
//!        |                                                   | every mistake             | changes_to
//!        +-- key files --------------------------------------+--> Problems               +--> show: all of it, as TOML
//! ```
#![forbid(unsafe_code)]

mod change;
mod destination;
mod key_file;
mod nearest;
mod prefix;
mod problems;
mod read;
mod scale;
mod show;
mod stack;
mod tenant;
mod types;

pub use change::Change;
pub use destination::{Destination, Way};
pub use prefix::{Prefix, PrefixError};
pub use problems::Problems;
pub use stack::{StackFairness, StackKind, StackTable, parse_processors, show_processors};
pub use tenant::{MOST_WEIGHT, Met, Publish, Reach, ReachError, TENANT_CONNECTIONS, Tenant};
pub use types::{
    Bounds, ChannelOptions, Configuration, DEFAULT_PORT, Host, Limits, METRICS_PORT, MOST_CHANNELS,
    Peer, PerClass, SharedKey, Times,
};

/// An annotated `netchannel.toml`, to begin with.
pub const EXAMPLE: &str = include_str!("../example.toml");

#[cfg(test)]
mod tests;
