//! The experiments: each starts its programs over one transport, lets them work, and reads off
//! what they did.

pub mod builtin;
mod calls;
pub mod http;
pub mod isolation;
mod programs;
pub mod redis;

pub use builtin::check_netchannel;
pub use programs::{count_of, merged, second_line};

use crate::case::Case;
use crate::ends::{CpuSince, Ends};
use crate::error::RunError;
use crate::options::{Experiment, Transport};
use crate::plan::Figures;
use crate::process::Process;
use std::env;
use std::path::PathBuf;
use std::time::Duration;

/// One run of one experiment over one transport.
pub fn run(experiment: Experiment, ends: &Ends<'_>, transport: Transport) -> Figures {
    match experiment {
        Experiment::Stream => builtin::stream(ends, transport, Case::Stream),
        Experiment::Pingpong => builtin::pingpong(ends, transport, Case::Pingpong),
        Experiment::Connections => builtin::connections(ends, transport),
        Experiment::Families => builtin::families(ends, transport),
        Experiment::Redis => redis::run(ends, transport),
        Experiment::Http => http::run(ends, transport),
        Experiment::Calls => calls::run(ends, transport),
    }
}

/// The experiment of a case between two hosts, where more than patterns measures it.
pub fn between_hosts(case: &str) -> Option<fn(&Ends<'_>, Transport) -> Figures> {
    match case {
        "redis get" | "redis set" => Some(redis::run),
        "connections" => Some(builtin::connections),
        _ => None,
    }
}

/// Finds a program in PATH, or where servers lie that users have not in theirs.
pub fn installed(name: &'static str) -> Result<PathBuf, RunError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let servers = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(servers)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
        .ok_or(RunError::NotInstalled(name))
}

/// Waits for the client of a real server. Early in the run it checks which transport carries the bytes.
fn wait_watching(
    ends: &Ends<'_>,
    transport: Transport,
    server: &Process,
    client: &mut Process,
    port: Option<u16>,
) -> Result<(), RunError> {
    let early = Duration::from_secs_f64((ends.seconds() / 4.0).min(0.1));
    if !client.ends_within(early)?
        && let Some(port) = port
    {
        ends.check_carrier(transport, server, port)?;
    }
    client.wait(ends.run_limit())?;
    Ok(())
}
