//! What to measure between two hosts.

use crate::case::Case;
use crate::options::{Transport, WorkerCommand};
use crate::plan::{Plan, Planned};
use clap::ValueEnum;
use netchannel_namespaces::Cores;
use serde::Serialize;
use std::path::PathBuf;

/// A group of cases measured between two hosts by the same programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum HostsExperiment {
    /// One writer, one reader, 128 KiB calls
    Stream,
    /// Messages of one thread: 64 bytes, 4 KiB, and 4 KiB with TSO and GRO off
    Messages,
    /// Round trips of 64 bytes and of 4 KiB, one at a time
    Pingpong,
    /// 1 and 8 programs that want latency (4 KiB ping-pong) beside 8 that want throughput
    Isolation,
    /// 8 client processes, 1 server: connect, 64 bytes each way, close
    Connections,
    /// redis-server and redis-benchmark, 4 KiB values, 50 connections
    Redis,
    /// 4 KiB messages of one thread, TSO and GRO off, over 1, 2, 4 and 8 channels
    Channels,
}

impl HostsExperiment {
    /// All of them, in the order they are run and shown.
    pub const ALL: [HostsExperiment; 7] = [
        HostsExperiment::Stream,
        HostsExperiment::Messages,
        HostsExperiment::Pingpong,
        HostsExperiment::Isolation,
        HostsExperiment::Connections,
        HostsExperiment::Redis,
        HostsExperiment::Channels,
    ];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            HostsExperiment::Stream => "stream",
            HostsExperiment::Messages => "messages",
            HostsExperiment::Pingpong => "pingpong",
            HostsExperiment::Isolation => "isolation",
            HostsExperiment::Connections => "connections",
            HostsExperiment::Redis => "redis",
            HostsExperiment::Channels => "channels",
        }
    }

    /// The cases it yields, with no more than so many channels.
    pub fn cases(self, channels: u16) -> Vec<Case> {
        match self {
            HostsExperiment::Stream => vec![Case::Stream],
            HostsExperiment::Messages => {
                vec![Case::Messages64, Case::Messages4k, Case::Messages4kPackets]
            }
            HostsExperiment::Pingpong => vec![Case::Pingpong, Case::Pingpong4k],
            HostsExperiment::Isolation => vec![Case::Isolation1, Case::Isolation8],
            HostsExperiment::Connections => vec![Case::Connections],
            HostsExperiment::Redis => vec![Case::RedisSet, Case::RedisGet],
            HostsExperiment::Channels => CHANNELS
                .into_iter()
                .filter(|(_, count)| *count <= channels)
                .map(|(case, _)| case)
                .collect(),
        }
    }
}

/// The cases of `channels` with their numbers of channels.
pub const CHANNELS: [(Case, u16); 4] = [
    (Case::Channels1, 1),
    (Case::Channels2, 2),
    (Case::Channels4, 4),
    (Case::Channels8, 8),
];

/// What to run.
#[derive(Debug, Clone, PartialEq)]
pub struct HostsOptions {
    /// Which experiments.
    pub experiments: Vec<HostsExperiment>,
    /// Kernel TCP, NetChannel, or both.
    pub transports: Vec<Transport>,
    /// Seconds of each run.
    pub seconds: f64,
    /// Runs of each transport, interleaved.
    pub pairs: usize,
    /// Most channels in `channels`.
    pub channels: u16,
    /// TCP's congestion control, of programs and of channels; none: what channels take by themselves.
    pub congestion_control: Option<String>,
    /// That of channels, where it is to be another.
    pub of_channels: Option<String>,
    /// Whether each host has processors of its own.
    pub cores: Cores,
    /// The program `netchannel`.
    pub netchannel: PathBuf,
    /// How the built-in workloads are started.
    pub worker: WorkerCommand,
    /// Whether progress goes to stderr.
    pub progress: bool,
}

impl HostsOptions {
    /// The runs they ask for.
    pub fn plan(&self) -> Plan {
        let experiments = self.experiments.iter().map(|experiment| Planned {
            name: experiment.name(),
            cases: experiment.cases(self.channels),
        });
        Plan {
            experiments: experiments.collect(),
            transports: self.transports.clone(),
            seconds: self.seconds,
            pairs: self.pairs,
            progress: self.progress,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_tried_up_to_what_was_asked() {
        let cases = |most| HostsExperiment::Channels.cases(most);
        assert_eq!(cases(1), [Case::Channels1]);
        assert_eq!(
            cases(7),
            [Case::Channels1, Case::Channels2, Case::Channels4]
        );
        assert_eq!(cases(8).len(), 4);
    }
}
