//! What is shown of tenants.

use serde::{Deserialize, Serialize};

/// A tenant that is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantView {
    /// Its name.
    pub name: String,
    /// Where its programs attach.
    pub socket: String,
    /// The addresses that they have.
    pub addresses: Vec<String>,
    /// Where they may connect to.
    pub reach: Vec<String>,
    /// Ports of the host that lead to theirs.
    pub publish: Vec<String>,
    /// The stack that takes its new connections.
    pub stack: String,
    /// Stacks on which older connections go on.
    pub former_stacks: Vec<FormerStack>,
    /// Its share of a stack that serves several tenants.
    pub weight: u16,
    /// The congestion control of its connections; none where that is the kernel's.
    pub congestion_control: Option<String>,
    /// The cap of what it receives, in bytes per second.
    pub rate_in: Option<u64>,
    /// The cap of what it sends, in bytes per second.
    pub rate_out: Option<u64>,
    /// Connections that it may have at one time.
    pub most_connections: u64,
    /// Connections through the stack that there are.
    pub connections: u64,
    /// Connections that its programs have made.
    pub dialed: u64,
    /// Connections that came in at published ports.
    pub accepted: u64,
    /// Connects to destinations that it may not reach.
    pub denied: u64,
    /// Connects refused because it had as many connections as it may.
    pub over_limit: u64,
    /// Bytes from the network.
    pub bytes_in: u64,
    /// Bytes to the network.
    pub bytes_out: u64,
    /// Turns that its connections had at the stack.
    pub turns: u64,
    /// Processor time of the stack on its behalf, in nanoseconds.
    pub processor_nanoseconds: u64,
    /// Where connections go by a stack that the tenant's table names: prefixes and stacks, the longest prefix first.
    #[serde(default)]
    pub destinations: Vec<String>,
    /// What went over channels to other hosts; all of it is counted above, too.
    #[serde(default)]
    pub channels: OverChannels,
}

/// What a tenant's connections over channels are and have moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverChannels {
    /// Connections that there are.
    pub connections: u64,
    /// Connections that programs made.
    pub dialed: u64,
    /// Connections that came in at published ports.
    #[serde(default)]
    pub accepted: u64,
    /// Connections that were to go over channels, and went over kernel TCP.
    pub fell_back: u64,
    /// Bytes from other hosts.
    pub bytes_in: u64,
    /// Bytes to other hosts.
    pub bytes_out: u64,
}

/// A stack that a tenant had before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerStack {
    /// Its name.
    pub name: String,
    /// Connections that go on.
    pub connections: u64,
}
