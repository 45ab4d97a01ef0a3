//! Experiments: the same unmodified programs over kernel TCP, AF_UNIX and NetChannel, in one run.
//!
//! It starts real processes, lets them work for a moment over one transport after the other,
//! several times in alternating order, and reports medians, percentiles, CPU seconds and ratios
//! as a table, JSON and a picture. The programs are built-in socket workloads ([`worker`]) and
//! the real redis-server, redis-benchmark, nginx and wrk.
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
mod cpu;
mod error;
mod experiment;
mod host;
mod interrupt;
mod kernel_tcp;
mod measurement;
mod options;
mod plot;
mod process;
mod progress;
mod report;
mod session;
mod table;
pub mod worker;

pub use arguments::{Arguments, exit_status};
pub use error::BenchError;
pub use host::Host;
pub use measurement::{Latency, Measurement, median};
pub use options::{
    Case, Experiment, Launcher, Options, Transport, WORKER_SUBCOMMAND, WorkerCommand,
};
pub use plot::PlotError;
pub use report::{Absence, CaseReport, Failure, Report, Row};

use error::RunError;
use progress::Progress;
use report::Collector;
use session::Session;
use std::path::{Path, PathBuf};

/// Longest path of the temporary directory that leaves room for socket names.
const LONGEST_DIRECTORY: usize = 70;

/// Runs the experiments; progress goes to stderr.
pub fn run(options: &Options) -> Result<Report, BenchError> {
    check(options)?;
    let _listening = interrupt::Listening::start();
    let directory = temporary_directory()?;
    let mut session = Session::start(options, directory.path());
    let mut collector = Collector::new(options);
    if options.transports.contains(&Transport::Netchannel) {
        check_netchannel(&mut session)?;
        if let Some(problem) = session.netchannel_problem() {
            collector.absent_everywhere(Transport::Netchannel, problem);
        }
    }
    let mut progress = Progress::new(options);
    for &experiment in &options.experiments {
        for pair in 0..options.pairs {
            for transport in order(&options.transports, pair) {
                if interrupt::requested() {
                    return Err(BenchError::Interrupted);
                }
                if collector.is_given_up(experiment, transport) {
                    progress.skip();
                    continue;
                }
                progress.begin(experiment, transport, pair);
                let result = experiment::run(experiment, &session, transport);
                if matches!(result, Err(RunError::Interrupted)) || interrupt::requested() {
                    return Err(BenchError::Interrupted);
                }
                progress.end(&result);
                collector.add(experiment, transport, result);
            }
        }
    }
    Ok(collector.report(options))
}

/// Withdraws NetChannel if programs can not be run under it. Anything else that goes wrong is for
/// the experiments to report.
fn check_netchannel(session: &mut Session<'_>) -> Result<(), BenchError> {
    if session.netchannel_problem().is_some() {
        return Ok(());
    }
    match experiment::check_netchannel(session) {
        Err(RunError::Interrupted) => Err(BenchError::Interrupted),
        Err(error) if error.is_netchannel_missing() => {
            session.withdraw_netchannel(error.to_string());
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Every other pair runs the other way round, so that a drift of the machine favours nobody.
fn order(transports: &[Transport], pair: usize) -> Vec<Transport> {
    let mut order = transports.to_vec();
    if pair % 2 == 1 {
        order.reverse();
    }
    order
}

fn check(options: &Options) -> Result<(), BenchError> {
    let problem = |text: &str| Err(BenchError::Options(text.to_owned()));
    if options.experiments.is_empty() || options.transports.is_empty() {
        return problem("nothing to run: name at least one experiment and one transport");
    }
    if options.pairs == 0 {
        return problem("at least one pair is needed");
    }
    if !(options.seconds >= 0.05 && options.seconds <= 3600.0) {
        return problem("the seconds of a run must be between 0.05 and 3600");
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_alternates() {
        assert_eq!(order(&Transport::ALL, 0), Transport::ALL);
        let reversed = [Transport::Netchannel, Transport::Unix, Transport::Tcp];
        assert_eq!(order(&Transport::ALL, 1), reversed);
        assert_eq!(order(&Transport::ALL, 2), Transport::ALL);
    }
}
