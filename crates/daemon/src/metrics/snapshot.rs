//! Everything that is written down.

use netchannel_control::hosts::Hosts;
use netchannel_control::types::{Path, Status};
use netchannel_engine::totals::Users;

/// Everything that is written down.
#[derive(Clone, Debug, Default)]
pub struct MetricsSnapshot {
    /// The daemon; its programs are not listed.
    pub status: Status,
    /// Attached programs.
    pub programs: u64,
    /// Sockets of programs by the path they take.
    pub sockets: Vec<(Path, u64)>,
    /// What programs counted, by user.
    pub users: Users,
    /// Other hosts.
    pub hosts: Hosts,
    /// Times the configuration was read again.
    pub reloads: u64,
    /// Times it had mistakes and was not taken.
    pub refused_reloads: u64,
}
