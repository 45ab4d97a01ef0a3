//! The options of a daemon, and the reasons why it can not serve.

use netchannel_configuration::{Configuration, Tenant};
use netchannel_control::path::PathError;
use netchannel_engine::limits::Limits;
use netchannel_stack_channels::{ChannelsError, PeersError};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The options of a daemon.
#[derive(Clone, Debug)]
pub struct Options {
    /// Path of the attach socket.
    pub socket: PathBuf,
    /// End after this long without a program.
    pub idle_exit: Option<Duration>,
    /// Quotas and sizes.
    pub limits: Limits,
    /// The version that answers state.
    pub version: String,
    /// Also relay connections between programs of this host through the daemon.
    pub relay_local: bool,
    /// The configuration of other hosts. Without it there are none.
    pub configuration: Option<Configuration>,
    /// The library that programs of tenants load, which is put beside their sockets; without it they load that of the host.
    pub library: Option<PathBuf>,
    /// The tenant that is served, where this is not the daemon of the host's own programs.
    pub tenant: Option<Arc<Tenant>>,
}

/// Who starts stack processes for a daemon.
#[derive(Debug)]
pub struct Launcher {
    /// The socket of one that was started before the daemon gave its rights up.
    pub started: Option<OwnedFd>,
    /// Starts one with the rights that the daemon has then, or says in a sentence why not.
    pub start: fn() -> Result<OwnedFd, String>,
}

/// Why a daemon can not serve, or has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another daemon serves at this path.
    #[error("another daemon serves at {0}; use it, or choose another path with --socket PATH")]
    AlreadyServed(PathBuf),
    /// The directory is unusable.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A socket path has at most 107 bytes.
    #[error("the path {0} is too long for a socket; choose one under 100 bytes with --socket PATH")]
    TooLong(PathBuf),
    /// The sockets or the lock could not be made.
    #[error("cannot serve at {0} ({1}); choose another path with --socket PATH")]
    Bind(PathBuf, Errno),
    /// Shared memory can not be created.
    #[error(
        "cannot make shared memory ({0}); `netchannel doctor` says what this host lacks for it"
    )]
    Memory(Errno),
    /// A tenant's thread was started without one.
    #[error("no tenant is named")]
    NoTenant,
    /// Both would be the other end of programs' links.
    #[error("other hosts and --relay exclude each other; leave --relay or --config out")]
    RelayAndHosts,
    /// The peers can not start.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// Metrics can not be served at the configured address.
    #[error("{0}")]
    Metrics(String),
    /// Waiting for events failed.
    #[error("cannot wait for events ({0})")]
    Events(Errno),
}

impl From<ChannelsError> for ServeError {
    fn from(error: ChannelsError) -> Self {
        match error {
            ChannelsError::Workers(errno) => Self::Events(errno),
            ChannelsError::Peers(error) => Self::Peers(error),
        }
    }
}
