//! The command line of `netchannel bench hosts`.

use super::options::{HostsExperiment, HostsOptions};
use crate::error::BenchError;
use crate::options::{Transport, WorkerCommand};
use crate::output::Output;
use crate::repetitions::{BetweenHosts, Repeated};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How two hosts are made of one machine.
#[derive(Debug, Clone, Args)]
pub struct Made {
    /// Processors of each host: its own half of them, as two hosts have, or all of them, shared
    #[arg(long, value_enum, default_value_t = Cores::Own, value_name = "WHICH")]
    pub cores: Cores,

    /// TCP's congestion control, for programs over kernel TCP and for channels alike [default: the kernel's; CUBIC or Reno
    /// where that is BBR, which needs a queueing discipline that veth has not]
    #[arg(long, value_name = "NAME")]
    pub congestion_control: Option<String>,

    /// Another one for channels
    #[arg(long, value_name = "NAME")]
    pub channels_congestion_control: Option<String>,
}

/// Whose the processors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Cores {
    /// Each host has half of them
    Own,
    /// Both hosts have all of them
    Shared,
}

impl Cores {
    /// As the namespaces have it.
    pub fn of_hosts(self) -> netchannel_namespaces::Cores {
        match self {
            Cores::Own => netchannel_namespaces::Cores::Own,
            Cores::Shared => netchannel_namespaces::Cores::Shared,
        }
    }
}

/// What can be asked for.
#[derive(Debug, Clone, Args)]
pub struct HostsArguments {
    /// Experiments to run; all of them when none is named
    #[arg(value_enum)]
    pub experiments: Vec<HostsExperiment>,

    /// How often.
    #[command(flatten)]
    pub repeated: Repeated<BetweenHosts>,

    /// Most channels that `channels` tries
    #[arg(long, default_value_t = 4, value_name = "NUMBER",
        value_parser = clap::value_parser!(u16).range(1..=8))]
    pub channels: u16,

    /// What the hosts are made of.
    #[command(flatten)]
    pub made: Made,

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
            seconds: self.repeated.seconds,
            pairs: self.repeated.pairs,
            channels: self.channels,
            congestion_control: self.made.congestion_control.clone(),
            of_channels: self.made.channels_congestion_control.clone(),
            cores: self.made.cores.of_hosts(),
            netchannel,
            worker,
            progress: !self.output.shown.quiet,
        }
    }

    /// Runs the experiments and prints and draws the report. True when every run gave figures of what it was made for.
    pub fn execute(&self, netchannel: PathBuf, worker: WorkerCommand) -> Result<bool, BenchError> {
        let options = self.options(netchannel, worker);
        self.output.present(|| super::run(&options))
    }
}
