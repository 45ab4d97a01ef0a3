//! What can be said of `netchannel guest`.

use crate::help;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `netchannel guest`.
#[derive(Debug, Args)]
pub struct Guest {
    /// Which end.
    #[command(subcommand)]
    pub command: GuestCommand,
}

/// The two ends of a guest.
#[derive(Debug, Subcommand)]
pub enum GuestCommand {
    /// On the host, beside the machine: make the connections of its programs as a program of the tenant
    #[command(after_help = help::GUEST)]
    Host(GuestHost),
    /// In the machine: serve its programs, whose connections go to the host
    #[command(after_help = help::GUEST)]
    Inside(GuestInside),
    /// What `host` executes, under the library
    #[command(hide = true)]
    Attached(HostEnd),
}

/// Bytes of the memory where none are named.
pub const GUEST_MEMORY: u64 = 16 << 20;

/// The memory, and who rings.
#[derive(Debug, Args)]
pub struct HostMemory {
    /// The file that is the machine's ivshmem device; made where it is not there. It should lie in /dev/shm
    #[arg(long, value_name = "FILE")]
    pub memory: PathBuf,
    /// Size of the file where it is made: a power of two, such as 16M [default: 16M]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub size: Option<u64>,
    /// Socket to which the machine's port of virtio-serial connects. Without it both ends look into the memory again and again
    #[arg(long, value_name = "SOCKET")]
    pub bell: Option<PathBuf>,
    /// Append the log to this file rather than to standard error
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Log this much: error, warn, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: tracing::Level,
}

/// `netchannel guest host`.
#[derive(Debug, Args)]
pub struct GuestHost {
    /// The tenant, as the configuration names it
    #[arg(value_name = "TENANT")]
    pub tenant: String,
    /// The memory, and who rings.
    #[command(flatten)]
    pub end: HostMemory,
    /// Address of the tenant, where the daemon does not tell this user; may be given again
    #[arg(long, value_name = "ADDRESS")]
    pub address: Vec<std::net::IpAddr>,
    /// Attach socket of the host's daemon [default: $NETCHANNEL_SOCKET, else one per user and network
    /// namespace]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// `netchannel guest attached`.
#[derive(Debug, Args)]
pub struct HostEnd {
    /// The memory, and who rings.
    #[command(flatten)]
    pub end: HostMemory,
    /// Addresses of the tenant
    #[arg(long, required = true)]
    pub address: Vec<std::net::IpAddr>,
    /// Connections that it may have
    #[arg(long)]
    pub most: u64,
}

/// `netchannel guest inside`.
#[derive(Debug, Args)]
pub struct GuestInside {
    /// The memory that is shared with the host [default: the machine's ivshmem device]
    #[arg(long, value_name = "FILE")]
    pub memory: Option<PathBuf>,
    /// Device or socket that rings [default: the port of virtio-serial named org.netchannel.0, where there is one]
    #[arg(long, value_name = "FILE")]
    pub bell: Option<PathBuf>,
    /// Attach socket to serve at [default: $NETCHANNEL_SOCKET, else one per user and network
    /// namespace]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Append the log to this file rather than to standard error
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Log this much: error, warn, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: tracing::Level,
}

/// Bytes, with K, M or G.
fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let count: u64 = digits
        .parse()
        .map_err(|_| "bytes such as 16777216 or 16M are needed".to_owned())?;
    count
        .checked_mul(1 << shift)
        .ok_or_else(|| "that is too much".to_owned())
}
