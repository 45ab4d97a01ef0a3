//! Experiments: the same unmodified programs over kernel TCP, AF_UNIX and NetChannel, in one run.
//!
//! It starts real processes, lets them work for a moment over one transport after the other, several times in
//! alternating order, and reports medians, percentiles, CPU seconds and ratios as a table, JSON and a picture. The
//! programs are built-in socket workloads ([`worker`]) and the real redis-server, redis-benchmark, nginx and wrk.
//!
//! It never takes part in a data path itself, never measures in its own process, and knows of
//! NetChannel only the commands `netchannel run` and `netchannel daemon`.
//!
//! ```text
//!   run ──> pair 1: TCP, AF_UNIX, NetChannel; pair 2: NetChannel, AF_UNIX, TCP; ...
//!            │  experiment: start server, start clients, "go", read what they print
//!            │     built-in:  <worker> serve stream ..   <worker> drive stream ..
//!            │     real:      redis-server / redis-benchmark, nginx / wrk
//!            │  over NetChannel each as `netchannel run --socket PATH --require -- PROGRAM`
//!            v
//!         Measurement (rate, P50/P99/P99.9, CPU of all processes and the daemon)
//!            v
//!         Report ──> table, JSON, PNG or SVG
//! ```

mod arguments;
mod carrying;
mod case;
mod cpu;
mod ends;
mod error;
mod experiment;
mod host;
mod hosts;
mod interrupt;
mod kernel_tcp;
mod load;
mod measurement;
mod options;
mod output;
mod paper;
mod patterns;
mod plan;
mod plot;
mod process;
mod profile_report;
mod progress;
mod repetitions;
mod report;
mod session;
mod table;
mod tenants;
mod user_mode;
pub mod worker;

pub use arguments::{Arguments, Between, exit_status};
pub use case::Case;
pub use error::{BenchError, PlotError};
pub use host::Host;
pub use hosts::{HostsArguments, HostsExperiment, HostsOptions, run as run_between_hosts};
pub use measurement::{Latency, Measurement, Sides, median};
pub use options::{Experiment, Launcher, Options, Transport, WORKER_SUBCOMMAND, WorkerCommand};
pub use output::{Output, Shown};
pub use patterns::{PatternsArguments, PatternsReport, run as run_patterns};
pub use repetitions::{BetweenHosts, OfFigures, OnOneHost, Repeated, Usual};
pub use report::{Absence, CaseReport, Failure, Place, Report, Row};
pub use tenants::{TenantsArguments, TenantsExperiment, TenantsOptions, run as run_tenants};

use ends::Ends;
use error::RunError;
use plan::Plan;
use report::Collector;
use session::Session;
use std::path::{Path, PathBuf};

/// Longest path of the temporary directory that leaves room for socket names.
const LONGEST_DIRECTORY: usize = 70;

/// Runs the experiments on this host; progress goes to stderr.
pub fn run(options: &Options) -> Result<Report, BenchError> {
    let plan = Plan::of(options);
    plan.check()?;
    let _listening = interrupt::Listening::start();
    let directory = temporary_directory()?;
    let mut session = Session::start(options, directory.path());
    let mut collector = Collector::new(&plan);
    if options.transports.contains(&Transport::Netchannel) {
        check_netchannel(&mut session)?;
        if let Some(problem) = session.netchannel_problem() {
            collector.absent_everywhere(Transport::Netchannel, problem);
        }
    }
    let ends = Ends::here(&session);
    plan.carry_out(&mut collector, |place, transport| {
        experiment::run(options.experiments[place], &ends, transport).into()
    })?;
    Ok(collector.report(&plan, Place::OneHost))
}

/// Withdraws NetChannel if programs can not be run under it. Other errors are reported by the experiments.
fn check_netchannel(session: &mut Session<'_>) -> Result<(), BenchError> {
    if session.netchannel_problem().is_some() {
        return Ok(());
    }
    match experiment::check_netchannel(&Ends::here(session)) {
        Err(RunError::Interrupted) => Err(BenchError::Interrupted),
        Err(error) if error.is_netchannel_missing() => {
            session.withdraw_netchannel(error.to_string());
            Ok(())
        }
        _ => Ok(()),
    }
}

fn temporary_directory() -> Result<tempfile::TempDir, BenchError> {
    let mut base = std::env::temp_dir();
    if base.as_os_str().len() > LONGEST_DIRECTORY {
        // Names of AF_UNIX sockets end at 107 bytes.
        base = PathBuf::from("/tmp");
    }
    let within = |base: &Path| {
        tempfile::Builder::new()
            .prefix("netchannel-bench-")
            .tempdir_in(base)
    };
    within(&base).map_err(BenchError::Directory)
}
