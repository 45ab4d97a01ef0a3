//! Requests and answers.

use crate::configuration::Reload;
use crate::hosts::{Hosts, SchedulerView};
use crate::tenants::TenantView;
use serde::{Deserialize, Serialize};

/// Longest request line a daemon reads.
pub const LONGEST_REQUEST: usize = 4096;

/// The requests of commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Asks for the daemon's identity and layout.
    Hello,
    /// The status of the daemon.
    Status,
    /// Every socket of every program.
    Sockets,
    /// Peers, channels, workers and policies.
    Hosts,
    /// Tenants.
    Tenants,
    /// Read the configuration again.
    Reload,
    /// Use this policy in the place of the one of its kind; `None` asks for the present policies.
    SetScheduler(Option<String>),
    /// End cleanly.
    Shutdown,
}

/// The answers of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// To [`Request::Hello`].
    Hello(Hello),
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Sockets`].
    Sockets(Sockets),
    /// To [`Request::Hosts`].
    Hosts(Box<Hosts>),
    /// To [`Request::Tenants`].
    Tenants(Vec<TenantView>),
    /// To [`Request::Reload`].
    Reloaded(Reload),
    /// To [`Request::SetScheduler`].
    Scheduler(SchedulerView),
    /// To [`Request::Shutdown`].
    Ended,
    /// The request was not understood or not allowed.
    Error(String),
}

/// The identity of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the program `netchannel`.
    pub version: String,
    /// Process of the daemon.
    pub process: u32,
    /// Hash of the layouts it serves; a library with another hash cannot attach.
    pub layout: u64,
    /// Inode of its network namespace; a program of another cannot attach, unless it is a tenant's.
    pub network_namespace: u64,
    /// Whether a tenant is served.
    #[serde(default)]
    pub is_tenant: bool,
}

/// The status of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program `netchannel`.
    pub version: String,
    /// Process of the daemon.
    pub process: u32,
    /// Hash of the layouts it serves.
    pub layout: u64,
    /// The path of its attach socket.
    pub socket: String,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// Inode of its network namespace.
    pub network_namespace: u64,
    /// Programs attached now.
    pub programs: Vec<Program>,
    /// Listeners in the directory.
    pub listeners: u64,
    /// Links between programs.
    pub links: u64,
    /// Addresses of this host besides loopback.
    pub local_addresses: Vec<String>,
    /// Connections parked for another process.
    #[serde(rename = "parked_connections", alias = "deposits")]
    pub deposits: u64,
    /// Faults of programs since the start.
    pub faults: u64,
    /// Bytes of memory that regions and links really occupy.
    pub memory_bytes: u64,
    /// Descriptors the daemon may open.
    pub descriptor_limit: u64,
    /// The resources of each user, and the bounds.
    #[serde(default)]
    pub users: Vec<User>,
}

/// The used amount of a resource, and its bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Used now.
    pub used: u64,
    /// May be used.
    pub bound: u64,
}

/// The resources of the programs of one user, and the bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The user.
    pub user: u32,
    /// Attached programs, with children that have asked for nothing yet.
    pub programs: Share,
    /// Listeners.
    pub listeners: Share,
    /// Links that they made.
    pub links: Share,
    /// Connections parked for another process.
    #[serde(rename = "parked_connections", alias = "deposits")]
    pub deposits: Share,
    /// Ephemeral ports.
    pub ports: Share,
    /// Descriptors that the daemon keeps.
    pub descriptors: Share,
    /// Descriptors that the daemon sent and they have not read.
    #[serde(default)]
    pub in_flight: Share,
    /// Connections to the daemon that have not attached yet.
    pub half_open: Share,
    /// Bytes that regions and links really occupy; beyond the bound no more are given.
    pub memory: Share,
}

/// One attached program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The daemon's number for it.
    pub program: u32,
    /// Process identifier; 0 of a forked child that has asked for nothing yet.
    pub process: u32,
    /// Name as the program gave it.
    pub name: String,
    /// User that runs it.
    pub user: u32,
    /// Listeners it holds.
    pub listeners: u64,
    /// Links it made.
    pub links: u64,
    /// Connections it made over shared memory.
    pub connects: u64,
    /// Connections it accepted over shared memory.
    pub accepts: u64,
    /// Its sockets that fell back to kernel TCP, by reason; reasons that never occurred are left
    /// out.
    pub fallbacks: Vec<Fallback>,
    /// Wake-ups it wrote to sleeping peers.
    pub tokens: u64,
    /// Times it slept for a socket.
    pub sleeps: u64,
    /// Faults it found in what its peers wrote.
    pub faults: u64,
    /// Bytes of memory that its region really occupies.
    pub memory_bytes: u64,
}

/// The number of sockets that fell back for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallback {
    /// The reason's name.
    pub reason: String,
    /// The number.
    pub count: u64,
}

/// Which path the bytes of a socket take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// Memory to memory.
    Virtual,
    /// Over channels to another host.
    Channel,
    /// Kernel TCP.
    Kernel,
    /// A listener, which accepts both.
    Listener,
    /// Neither bound nor connected yet.
    Fresh,
}

impl Path {
    /// The name shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Channel => "channel",
            Self::Kernel => "kernel",
            Self::Listener => "listener",
            Self::Fresh => "fresh",
        }
    }
}

/// The sockets of programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// In no particular order.
    pub list: Vec<Socket>,
    /// Whether there were too many: some sockets of the user with the most are left out.
    pub cut: bool,
}

/// One socket of a program, as its region and its link show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// The daemon's number of the program.
    pub program: u32,
    /// Process identifier of the program.
    pub process: u32,
    /// Name of the program.
    pub name: String,
    /// Descriptor number in the process that made it.
    pub descriptor: i32,
    /// Which path its bytes take.
    pub path: Path,
    /// State in TCP's words, such as `ESTAB`, `FIN-WAIT` or `LISTEN`.
    pub state: String,
    /// Own address.
    pub local: String,
    /// The other's address.
    pub peer: String,
    /// The other host's name, where the path is [`Path::Channel`]; otherwise `-`.
    #[serde(default)]
    pub host: String,
    /// The channels that it took lately, such as `L0` or `T0,T1`, in either direction; `-` for none.
    #[serde(default)]
    pub channels: String,
    /// The stack that serves a connection of a tenant's program, `kernel`, `channels` or `local`; `-` for others, and within the tenant.
    #[serde(default)]
    pub stack: String,
    /// Why it is kernel TCP; `-` where it is not.
    pub reason: String,
    /// Bytes written that the other has not read.
    pub send_queue: u64,
    /// Bytes that came and were not read.
    pub receive_queue: u64,
    /// Bytes written in all.
    pub sent: u64,
    /// Bytes read in all.
    pub received: u64,
    /// Connections offered to a listener that it has not taken yet.
    pub pending: u64,
    /// The class that the program has declared: `latency` or `throughput`, `-` where it has not. With another host: the
    /// class in which it is served.
    pub class: String,
    /// The source of the class: `SO_APP_TYPE`, `SO_PRIORITY`, `DSCP` or `run`; `-` where there is none. With another
    /// host also `peer` (the program there has declared it), `observed` (by its traffic), or `default`.
    pub class_source: String,
    /// The daemon's number of the link, 0 where there is none.
    pub link: u64,
    /// Slot in the link.
    pub slot: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_short_words() {
        let line = serde_json::to_string(&Request::Sockets).unwrap();
        assert_eq!(line, "\"sockets\"");
        assert_eq!(
            serde_json::from_str::<Request>(&line).unwrap(),
            Request::Sockets
        );
        assert!(serde_json::from_str::<Request>("\"reboot\"").is_err());
    }
}
