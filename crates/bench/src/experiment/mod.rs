//! The experiments: each starts its programs over one transport, lets them work, and reads off
//! what they did.

mod builtin;
mod http;
mod redis;

pub use builtin::check_netchannel;

use crate::error::RunError;
use crate::kernel_tcp;
use crate::measurement::Measurement;
use crate::options::{Case, Experiment, Transport};
use crate::process::Process;
use crate::session::Session;
use std::env;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

/// One run of one experiment over one transport.
pub fn run(
    experiment: Experiment,
    session: &Session<'_>,
    transport: Transport,
) -> Result<Vec<(Case, Measurement)>, RunError> {
    match experiment {
        Experiment::Stream => builtin::stream(session, transport),
        Experiment::Pingpong => builtin::pingpong(session, transport),
        Experiment::Connections => builtin::connections(session, transport),
        Experiment::Redis => redis::run(session, transport),
        Experiment::Http => http::run(session, transport),
    }
}

/// Finds a program in PATH, or where servers lie that users have not in theirs.
fn installed(name: &'static str) -> Result<PathBuf, RunError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let servers = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(servers)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
        .ok_or(RunError::NotInstalled(name))
}

/// A port that nobody uses now, for servers that can not choose one themselves.
fn free_port() -> Result<u16, RunError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(RunError::Files)?;
    Ok(listener.local_addr().map_err(RunError::Files)?.port())
}

/// Waits for the client of a real server. Early in the run it looks who carries the bytes, over
/// every transport alike, so that none is at a disadvantage.
fn wait_watching(
    session: &Session<'_>,
    transport: Transport,
    client: &mut Process,
    port: Option<u16>,
) -> Result<(), RunError> {
    let early = Duration::from_secs_f64((session.seconds / 4.0).min(0.1));
    if !client.ends_within(early)?
        && let Some(port) = port
    {
        let carried = kernel_tcp::none_established(port);
        if transport == Transport::Netchannel {
            carried?;
        }
    }
    client.wait(session.run_limit())?;
    Ok(())
}

/// CPU time of a set of processes and the daemon from one moment on.
struct CpuSince<'a> {
    session: &'a Session<'a>,
    transport: Transport,
    daemon: Duration,
    processes: Duration,
}

impl<'a> CpuSince<'a> {
    fn now(session: &'a Session<'a>, transport: Transport, processes: &[&Process]) -> Self {
        let daemon = session.daemon_cpu(transport);
        let processes = processes.iter().map(|process| process.cpu()).sum();
        CpuSince {
            session,
            transport,
            daemon,
            processes,
        }
    }

    /// Seconds until now, of those processes (living or ended) and the daemon.
    fn seconds(&self, processes: &[&Process]) -> f64 {
        let daemon = self
            .session
            .daemon_cpu(self.transport)
            .saturating_sub(self.daemon);
        let processes: Duration = processes.iter().map(|process| process.cpu()).sum();
        (daemon + processes.saturating_sub(self.processes)).as_secs_f64()
    }
}
