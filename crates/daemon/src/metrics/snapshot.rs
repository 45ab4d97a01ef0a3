//! The input of the metrics.

use netchannel_control::hosts::Hosts;
use netchannel_control::tenants::TenantView;
use netchannel_control::types::{Path, Status};
use netchannel_engine::totals::Users;

/// All data that the metrics show.
#[derive(Clone, Debug, Default)]
pub struct MetricsSnapshot {
    /// The status of the daemon, without its programs.
    pub status: Status,
    /// Attached programs.
    pub programs: u64,
    /// The number of sockets of programs, by path.
    pub sockets: Vec<(Path, u64)>,
    /// The counters of programs, by user.
    pub users: Users,
    /// Other hosts.
    pub hosts: Hosts,
    /// Tenants.
    pub tenants: Vec<TenantView>,
    /// How often the configuration was read again.
    pub reloads: u64,
    /// How often it had mistakes and was refused.
    pub refused_reloads: u64,
}
