//! The command line of `netchannel bench`, shared by whoever offers it.

use crate::error::{BenchError, PlotError};
use crate::hosts::HostsArguments;
use crate::load;
use crate::options::{Experiment, Launcher, Options, Transport, WorkerCommand};
use crate::output::Output;
use crate::paper::{self, PaperArguments};
use crate::patterns::{self, PatternsArguments};
use crate::repetitions::{OnOneHost, Repeated};
use crate::tenants::caps::CapsArguments;
use crate::tenants::fairness::FairnessArguments;
use crate::tenants::idle::IdleArguments;
use crate::tenants::multiplexing::MultiplexingArguments;
use crate::tenants::switch::SwitchArguments;
use crate::tenants::{self, TenantsArguments};
use clap::{Args, Subcommand};
use netchannel_namespaces::Error as Refused;

/// Everything that went wrong ends with this status.
const FAILED: u8 = 1;
/// The command line is wrong.
const WRONG_LINE: u8 = 2;
/// After Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;
/// There can be no two hosts on this one.
const NOT_HERE: u8 = 77;

/// What can be asked for.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// Experiments to run; all of them when none is named
    #[arg(value_enum)]
    pub experiments: Vec<Experiment>,

    /// How often.
    #[command(flatten)]
    pub repeated: Repeated<OnOneHost>,

    /// Measure AF_UNIX too, where it applies
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = clap::ArgAction::Set
    )]
    pub unix: bool,

    /// How to show the result.
    #[command(flatten)]
    pub output: Output,

    /// Where, if not on this host alone.
    #[command(subcommand)]
    pub between: Option<Between>,
}

/// Where to measure.
#[derive(Debug, Clone, Subcommand)]
pub enum Between {
    /// Measure kernel TCP and NetChannel between two hosts, made of network namespaces
    #[command(after_help = HOSTS_HELP)]
    Hosts(HostsArguments),

    /// Measure programs of a tenant, which have no network of their own, against programs that have one
    #[command(after_help = tenants::HELP)]
    Tenants(TenantsArguments),

    /// Measure how the caps of tenants hold while others join
    #[command(after_help = tenants::caps::HELP)]
    Caps(CapsArguments),

    /// Measure how evenly tenants with different numbers of connections share one stack, and a bottleneck
    #[command(after_help = tenants::fairness::HELP)]
    Fairness(FairnessArguments),

    /// Measure what many tenants with an idle program each need, in time and memory
    #[command(after_help = tenants::idle::HELP)]
    Idle(IdleArguments),

    /// Measure what must be reserved for the stacks of bursty tenants: a stack each, and one for all
    #[command(after_help = tenants::multiplexing::HELP)]
    Multiplexing(MultiplexingArguments),

    /// Measure what a change of a tenant's stack under load does to its connections
    #[command(after_help = tenants::switch::HELP)]
    Switch(SwitchArguments),

    /// Measure traffic patterns between two such hosts: single flow, incast, outcast, all-to-all, RPCs and more
    #[command(after_help = patterns::HELP)]
    Patterns(PatternsArguments),

    /// Measure the figures of the papers that NetChannel is built after, and say what is found of each
    #[command(after_help = paper::HELP)]
    Paper(PaperArguments),
}

const HOSTS_HELP: &str = "\
Examples:
  netchannel bench hosts
  netchannel bench hosts isolation --pairs 3 --seconds 2
  netchannel bench hosts messages channels --channels 8 --json
  netchannel bench hosts stream --congestion-control cubic --plot hosts.svg
  netchannel bench hosts stream --cores shared

It makes two network namespaces joined by a veth pair, as root or in a user namespace, with a daemon in each and half of the
processors for each; nothing of them is left behind. Where a run that should have gone over NetChannel was carried by kernel TCP, its row says so, and why.

Exit codes:
  0  every run gave figures of what it was made for    1  some did not    2  the command line is wrong
  77  no network namespaces can be made here    130  interrupted";

impl Arguments {
    /// The options they stand for.
    pub fn options(&self, launcher: Launcher, worker: WorkerCommand) -> Options {
        // In their own order, each once, however they were named.
        let named = |experiment: &Experiment| {
            self.experiments.is_empty() || self.experiments.contains(experiment)
        };
        let transports = Transport::ALL.into_iter();
        Options {
            experiments: Experiment::ALL.into_iter().filter(named).collect(),
            transports: transports
                .filter(|over| self.unix || *over != Transport::Unix)
                .collect(),
            seconds: self.repeated.seconds,
            pairs: self.repeated.pairs,
            launcher,
            worker,
            progress: !self.output.shown.quiet,
        }
    }

    /// Runs the experiments and prints and draws the report.
    ///
    /// True when every run that could be made gave figures.
    pub fn execute(&self, launcher: Launcher, worker: WorkerCommand) -> Result<bool, BenchError> {
        if let Some(sentence) = load::sentence() {
            eprintln!("netchannel bench: {sentence}");
        }
        match &self.between {
            Some(Between::Hosts(hosts)) => hosts.execute(launcher.netchannel, worker),
            Some(Between::Tenants(tenants)) => tenants.execute(launcher.netchannel, worker),
            Some(Between::Caps(caps)) => caps.execute(launcher.netchannel, &worker),
            Some(Between::Fairness(fairness)) => fairness.execute(launcher.netchannel, &worker),
            Some(Between::Idle(idle)) => idle.execute(launcher.netchannel, &worker),
            Some(Between::Multiplexing(one)) => one.execute(launcher.netchannel, &worker),
            Some(Between::Switch(switch)) => switch.execute(launcher.netchannel, &worker),
            Some(Between::Patterns(patterns)) => {
                let report = patterns::run(patterns, launcher.netchannel, worker)?;
                patterns.shown.print(|| report.json(), || report.table())?;
                if report.interrupted {
                    return Err(BenchError::Interrupted);
                }
                Ok(report.is_complete())
            }
            Some(Between::Paper(paper)) if !paper.compare.is_empty() => paper.agree(),
            Some(Between::Paper(paper)) => {
                let report = paper::run(paper, launcher.netchannel, worker)?;
                paper.shown.print(|| report.json(), || report.table())?;
                if let Some(path) = &paper.html {
                    let written = std::fs::write(path, report.html());
                    written.map_err(|source| BenchError::File {
                        path: path.clone(),
                        source,
                    })?;
                }
                if report.interrupted {
                    return Err(BenchError::Interrupted);
                }
                Ok(report.is_complete())
            }
            None => {
                let options = self.options(launcher, worker);
                self.output.present(|| crate::run(&options))
            }
        }
    }
}

/// The status to end with, after [`Arguments::execute`]; says on stderr what went wrong.
pub fn exit_status(result: &Result<bool, BenchError>) -> u8 {
    match result {
        Ok(true) => 0,
        Ok(false) => FAILED,
        Err(error) => {
            eprintln!("netchannel bench: {error}");
            match error {
                BenchError::Interrupted => INTERRUPTED,
                BenchError::Options(_) | BenchError::Plot(PlotError::Format(_)) => WRONG_LINE,
                BenchError::Hosts(Refused::NotAllowed(_) | Refused::NoIproute) => NOT_HERE,
                _ => FAILED,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::HostsExperiment;
    use clap::{CommandFactory, FromArgMatches, Parser};

    #[derive(Parser)]
    #[command(args_conflicts_with_subcommands = true)]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn options(words: &[&str]) -> Options {
        let words = std::iter::once("bench").chain(words.iter().copied());
        let matches = Program::command().try_get_matches_from(words).unwrap();
        let program = Program::from_arg_matches(&matches).unwrap();
        program.arguments.options(
            Launcher {
                netchannel: "netchannel".into(),
                socket: None,
            },
            WorkerCommand {
                program: "netchannel".into(),
                arguments: Vec::new(),
            },
        )
    }

    #[test]
    fn without_words_everything_is_run() {
        let options = options(&[]);
        assert_eq!(options.experiments, Experiment::ALL);
        assert_eq!(options.transports, Transport::ALL);
        assert_eq!((options.seconds, options.pairs), (0.8, 5));
    }

    #[test]
    fn experiments_run_once_and_in_their_own_order() {
        let options = options(&["redis", "stream", "redis", "--unix=false", "--pairs", "2"]);
        assert_eq!(options.experiments, [Experiment::Stream, Experiment::Redis]);
        assert_eq!(options.transports, [Transport::Tcp, Transport::Netchannel]);
        assert_eq!(options.pairs, 2);
    }

    #[test]
    fn hosts_is_no_experiment_but_a_place() {
        let words = ["bench", "hosts", "isolation", "stream", "--channels", "2"];
        let matches = Program::command().try_get_matches_from(words).unwrap();
        let arguments = Program::from_arg_matches(&matches).unwrap().arguments;
        let Some(Between::Hosts(hosts)) = arguments.between else {
            panic!("another command");
        };
        let worker = WorkerCommand {
            program: "netchannel".into(),
            arguments: Vec::new(),
        };
        let options = hosts.options("netchannel".into(), worker);
        let named = [HostsExperiment::Stream, HostsExperiment::Isolation];
        assert_eq!(options.experiments, named);
        assert_eq!(options.transports, [Transport::Tcp, Transport::Netchannel]);
        assert_eq!(options.channels, 2);
        let before = ["bench", "stream", "hosts"];
        assert!(Program::command().try_get_matches_from(before).is_err());
    }

    #[test]
    fn unix_may_be_said_without_a_value() {
        let options = options(&["--unix", "stream"]);
        assert_eq!(options.experiments, [Experiment::Stream]);
        assert!(options.transports.contains(&Transport::Unix));
    }
}
