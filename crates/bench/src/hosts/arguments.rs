//! The command line of `netchannel bench hosts`.

use super::options::{HostsExperiment, HostsOptions};
use crate::arguments::Output;
use crate::error::BenchError;
use crate::options::{Transport, WorkerCommand};
use clap::Args;
use std::path::PathBuf;

/// What can be asked for.
#[derive(Debug, Clone, Args)]
pub struct HostsArguments {
    /// Experiments to run; all of them when none is named
    #[arg(value_enum)]
    pub experiments: Vec<HostsExperiment>,

    /// Seconds of each run
    #[arg(long, default_value_t = 0.8, value_name = "SECONDS")]
    pub seconds: f64,

    /// Runs of each transport, interleaved, in alternating order
    #[arg(long, default_value_t = 3, value_name = "NUMBER")]
    pub pairs: usize,

    /// Most channels that `channels` tries
    #[arg(long, default_value_t = 4, value_name = "NUMBER",
        value_parser = clap::value_parser!(u16).range(1..=8))]
    pub channels: u16,

    /// TCP's congestion control, for programs over kernel TCP and for channels alike [default: each its own default]
    #[arg(long, value_name = "NAME")]
    pub congestion_control: Option<String>,

    /// Kernel TCP only
    #[arg(long, hide = true)]
    pub kernel: bool,

    /// How to show the result.
    #[command(flatten)]
    pub output: Output,
}

impl HostsArguments {
    /// The options they stand for.
    pub fn options(&self, netchannel: PathBuf, worker: WorkerCommand) -> HostsOptions {
        let named = |experiment: &HostsExperiment| {
            self.experiments.is_empty() || self.experiments.contains(experiment)
        };
        let transports = [Transport::Tcp, Transport::Netchannel].into_iter();
        HostsOptions {
            experiments: HostsExperiment::ALL.into_iter().filter(named).collect(),
            transports: transports
                .filter(|over| !self.kernel || *over == Transport::Tcp)
                .collect(),
            seconds: self.seconds,
            pairs: self.pairs,
            channels: self.channels,
            congestion_control: self.congestion_control.clone(),
            netchannel,
            worker,
            progress: !self.output.quiet,
        }
    }

    /// Runs the experiments and prints and draws the report. True when every run gave figures of what it was made for.
    pub fn execute(&self, netchannel: PathBuf, worker: WorkerCommand) -> Result<bool, BenchError> {
        let options = self.options(netchannel, worker);
        self.output.present(|| super::run(&options))
    }
}
