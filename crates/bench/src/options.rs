//! What to measure on one host: experiments, transports, and where the programs are.

use crate::case::Case;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// The hidden subcommand under which a program offers the workloads.
pub const WORKER_SUBCOMMAND: &str = "bench-worker";

/// A group of cases measured by the same programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Experiment {
    /// One writer, one reader, 128 KiB calls
    Stream,
    /// 64-byte round trips, one at a time
    Pingpong,
    /// 8 client processes, 1 server: connect, 64 bytes each way, close
    Connections,
    /// The same with servers of several processes: a parent that has the listener beside one that accepts, one that accepts alone, 8
    /// that accept
    Families,
    /// redis-server and redis-benchmark, 4 KiB values, 50 connections
    Redis,
    /// nginx and wrk, 50 connections, keep-alive and close
    Http,
    /// Programs without sockets: poll, read, write and open of other files, start of programs, fork, shell
    Calls,
}

impl Experiment {
    /// All of them, in the order they are run and shown.
    pub const ALL: [Experiment; 7] = [
        Experiment::Stream,
        Experiment::Pingpong,
        Experiment::Connections,
        Experiment::Families,
        Experiment::Redis,
        Experiment::Http,
        Experiment::Calls,
    ];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Experiment::Stream => "stream",
            Experiment::Pingpong => "pingpong",
            Experiment::Connections => "connections",
            Experiment::Families => "families",
            Experiment::Redis => "redis",
            Experiment::Http => "http",
            Experiment::Calls => "calls",
        }
    }

    /// The cases it yields.
    pub fn cases(self) -> &'static [Case] {
        match self {
            Experiment::Stream => &[Case::Stream],
            Experiment::Pingpong => &[Case::Pingpong],
            Experiment::Connections => &[Case::Connections],
            Experiment::Families => &[Case::FamilyParent, Case::FamilyChild, Case::FamilyEight],
            Experiment::Redis => &[Case::RedisSet, Case::RedisGet],
            Experiment::Http => &[Case::HttpKeepAlive, Case::HttpClose],
            Experiment::Calls => &[
                Case::CallsPoll,
                Case::CallsRead,
                Case::CallsWrite,
                Case::CallsOpen,
                Case::CallsStart,
                Case::CallsFork,
                Case::CallsShell,
            ],
        }
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Who carries the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// The kernel's TCP over the loopback device
    Tcp,
    /// AF_UNIX stream sockets
    Unix,
    /// The same programs as over TCP, under `netchannel run`
    Netchannel,
    /// Kernel TCP in a namespace without a network, given one by slirp4netns
    Slirp4netns,
    /// The same by pasta
    Pasta,
}

impl Transport {
    /// Those between programs of one host, in the order they are shown.
    pub const ALL: [Transport; 3] = [Transport::Tcp, Transport::Unix, Transport::Netchannel];

    /// The name people read.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "kernel TCP",
            Transport::Unix => "AF_UNIX",
            Transport::Netchannel => "NetChannel",
            Transport::Slirp4netns => "slirp4netns",
            Transport::Pasta => "pasta",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// How programs are put under NetChannel, and which daemon serves them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// The program `netchannel`.
    pub netchannel: PathBuf,
    /// A daemon's socket; without it the experiments start a daemon of their own.
    pub socket: Option<PathBuf>,
}

/// How the built-in workloads are started: a program and the words before a workload's own.
///
/// It must lead to [`crate::worker::main`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The program, as a rule this one.
    pub program: PathBuf,
    /// Words before the workload's, as a rule the hidden subcommand.
    pub arguments: Vec<OsString>,
}

impl WorkerCommand {
    /// This program itself, which hands what follows [`WORKER_SUBCOMMAND`] to the workloads.
    pub fn this_program() -> io::Result<Self> {
        Ok(WorkerCommand {
            program: env::current_exe()?,
            arguments: vec![WORKER_SUBCOMMAND.into()],
        })
    }
}

/// What to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Which experiments.
    pub experiments: Vec<Experiment>,
    /// Which transports.
    pub transports: Vec<Transport>,
    /// Seconds of each run.
    pub seconds: f64,
    /// Runs of each transport, interleaved.
    pub pairs: usize,
    /// How programs get under NetChannel.
    pub launcher: Launcher,
    /// How the built-in workloads are started.
    pub worker: WorkerCommand,
    /// Whether progress goes to stderr.
    pub progress: bool,
}
