//! The command line of `netchannel bench tenants`.

use super::TenantsOptions;
use crate::case::Case;
use crate::error::BenchError;
use crate::experiment::installed;
use crate::hosts::Cores;
use crate::options::{Transport, WorkerCommand};
use crate::output::Output;
use crate::plan::{Plan, Planned};
use crate::repetitions::{BetweenHosts, Repeated};
use crate::user_mode;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Below `--help`.
pub const HELP: &str = "\
Examples:
  netchannel bench tenants
  netchannel bench tenants stream --pairs 3 --seconds 2
  netchannel bench tenants pingpong connections --json
  netchannel bench tenants stream --congestion-control cubic --plot tenants.svg

It makes two network namespaces joined by a veth pair, as root or in a user namespace, with half of the processors for each. Servers
use kernel TCP in one. Clients use kernel TCP in the other, and then, as programs of a tenant in a namespace without a network, the stack of
the daemon there, and then, in such namespaces, what slirp4netns and pasta give them, where these are installed. What comes from
outside is the other way: a server is a program of the tenant, behind a published port. For `meet` and `colocated`, both ends are programs of tenants. A
run that is not done 20 seconds after its time has failed, and the others go on.

Exit codes:
  0  every run gave figures    1  some did not    2  the command line is wrong
  77  no network namespaces can be made here    130  interrupted";

/// A group of cases measured by the same programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TenantsExperiment {
    /// One writer in the tenant, one reader outside, 128 KiB calls; and the other way, through a published port
    Stream,
    /// Round trips of 64 bytes and of 4 KiB, one at a time
    Pingpong,
    /// 8 client processes in the tenant, 1 server outside: connect, 64 bytes each way, close
    Connections,
    /// nginx in the tenant behind a published port, wrk outside, 50 connections, keep-alive and close
    Http,
    /// 8 streams between two tenants, through the stack with a cap; and between two that trust each other, directly
    Meet,
    /// The same with calls of 8 KiB (NetKernel, Figure 9)
    Colocated,
    /// One stream and 8 where the kernel's default is BBR, and the operator has given the stack another congestion control
    Congestion,
    /// Requests into the tenant, one and 1,000 at a time: connect, 64 bytes each way, close (NetKernel, Table 6)
    Latency,
    /// CPU at fixed rates: 8 streams of 1 to 8 Gbit/s, and 2,000 to 12,000 short connections a second (NetKernel, Tables 7 and 8)
    Overhead,
}

impl TenantsExperiment {
    /// All of them, in the order they are run and shown.
    const ALL: [Self; 9] = [
        Self::Stream,
        Self::Pingpong,
        Self::Connections,
        Self::Http,
        Self::Meet,
        Self::Colocated,
        Self::Congestion,
        Self::Latency,
        Self::Overhead,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Pingpong => "pingpong",
            Self::Connections => "connections",
            Self::Http => "http",
            Self::Meet => "meet",
            Self::Colocated => "colocated",
            Self::Congestion => "congestion",
            Self::Latency => "latency",
            Self::Overhead => "overhead",
        }
    }

    /// The cases it yields.
    pub const fn cases(self) -> &'static [Case] {
        match self {
            Self::Stream => &[Case::Stream, Case::StreamIn],
            Self::Pingpong => &[Case::Pingpong, Case::Pingpong4k],
            Self::Connections => &[Case::Connections],
            Self::Http => &[Case::HttpKeepAlive, Case::HttpClose],
            Self::Meet => &[Case::Meet, Case::MeetDirectly],
            Self::Colocated => &[Case::Colocated, Case::ColocatedDirectly],
            Self::Congestion => &[Case::Congestion, Case::Congestion8],
            Self::Latency => &[Case::Latency1, Case::Latency1000],
            Self::Overhead => &[
                Case::Overhead1Gbit,
                Case::Overhead2Gbit,
                Case::Overhead4Gbit,
                Case::Overhead8Gbit,
                Case::Overhead2k,
                Case::Overhead4k,
                Case::Overhead8k,
                Case::Overhead12k,
            ],
        }
    }

    /// Whether both ends are programs of tenants.
    pub const fn is_between_tenants(self) -> bool {
        matches!(self, Self::Meet | Self::Colocated)
    }
}

/// What can be asked for.
#[derive(Debug, Clone, Args)]
pub struct TenantsArguments {
    /// Experiments to run; all of them when none is named
    #[arg(value_enum)]
    pub experiments: Vec<TenantsExperiment>,

    /// How often.
    #[command(flatten)]
    pub repeated: Repeated<BetweenHosts>,

    /// Processors of each host: its own half of them, as two hosts have, or all of them, shared
    #[arg(long, value_enum, default_value_t = Cores::Own, value_name = "WHICH")]
    pub cores: Cores,

    /// TCP's congestion control, for programs over kernel TCP and for the stack alike [default: the kernel's; CUBIC or Reno
    /// where that is BBR, which needs a queueing discipline that veth has not]
    #[arg(long, value_name = "NAME")]
    pub congestion_control: Option<String>,

    /// Leave slirp4netns and pasta out, with which it is compared where they are installed
    #[arg(long)]
    pub kernel_only: bool,

    /// How to show the result.
    #[command(flatten)]
    pub output: Output,
}

impl TenantsArguments {
    /// The options they stand for.
    pub fn options(&self, netchannel: PathBuf, worker: WorkerCommand) -> TenantsOptions {
        let named = |experiment: &TenantsExperiment| {
            self.experiments.is_empty() || self.experiments.contains(experiment)
        };
        let experiments: Vec<_> = TenantsExperiment::ALL.into_iter().filter(named).collect();
        let planned = experiments.iter().map(|experiment| Planned {
            name: experiment.name(),
            cases: experiment.cases().to_vec(),
        });
        TenantsOptions {
            plan: Plan {
                experiments: planned.collect(),
                transports: self.transports(),
                seconds: self.repeated.seconds,
                pairs: self.repeated.pairs,
                progress: !self.output.shown.quiet,
            },
            experiments,
            congestion_control: self.congestion_control.clone(),
            cores: self.cores.of_hosts(),
            netchannel,
            worker,
        }
    }

    fn transports(&self) -> Vec<Transport> {
        let others = [Transport::Slirp4netns, Transport::Pasta];
        let is_there =
            |one: &Transport| user_mode::needs(*one).is_some_and(|name| installed(name).is_ok());
        let others = others
            .into_iter()
            .filter(|one| !self.kernel_only && is_there(one));
        [Transport::Tcp, Transport::Netchannel]
            .into_iter()
            .chain(others)
            .collect()
    }

    /// Runs the experiments and prints and draws the report. True when every run gave figures.
    pub fn execute(&self, netchannel: PathBuf, worker: WorkerCommand) -> Result<bool, BenchError> {
        let options = self.options(netchannel, worker);
        self.output.present(|| super::run(&options))
    }
}
