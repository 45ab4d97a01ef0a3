//! What can be said on the command line.

use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Unmodified programs talk to each other memory to memory.
#[derive(Debug, Parser)]
#[command(name = "netchannel", version, about, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program with its TCP connections on this host taken over by shared memory.
    Run(Run),
    /// Serve the programs of this host, in the foreground.
    Daemon(Daemon),
}

/// `netchannel run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Attach socket of the daemon [default: $NETCHANNEL_SOCKET, else one per user and network
    /// namespace].
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Fail rather than run over kernel TCP where NetChannel can not be used.
    #[arg(long)]
    pub require: bool,
    /// Do not start a daemon where none serves.
    #[arg(long)]
    pub no_daemon: bool,
    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

/// `netchannel daemon`.
#[derive(Debug, Args)]
pub struct Daemon {
    /// Attach socket to serve at [default: $NETCHANNEL_SOCKET, else one per user and network
    /// namespace].
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// End after this many seconds without a program.
    #[arg(long, value_name = "SECONDS")]
    pub idle_exit: Option<u64>,
    /// Append the log to this file rather than to standard error.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Log this much: error, warn, info or debug.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: tracing::Level,
    /// Return as soon as it serves, and leave it in the background.
    #[arg(long)]
    pub background: bool,
    /// Say on standard output when it serves, and leave the session.
    #[arg(long, hide = true)]
    pub announce: bool,
    /// Slots of a link between two programs.
    #[arg(long, value_name = "COUNT", default_value_t = 16384)]
    pub slots: usize,
    /// Megabytes of each of the two arenas of a link; they cost memory only as they are used.
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    pub arena: usize,
    /// Links that one program may have made.
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    pub links_per_program: usize,
    /// Listeners that one program may hold.
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    pub listeners_per_program: usize,
}
