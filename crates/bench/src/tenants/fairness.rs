//! Tenants with different numbers of connections through one stack (NetKernel, section 6.2): what each gets, and how even that is, by
//! Jain's index. Once they share the processor of the stack, once a bottleneck in the network; and over kernel TCP, which shares by connection.

use super::caps::wrong;
use crate::error::BenchError;
use crate::experiment::second_line;
use crate::hosts::congestion;
use crate::interrupt;
use crate::measurement::to_float;
use crate::options::{Transport, WorkerCommand};
use crate::output::Shown;
use crate::process::Process;
use crate::session::{NetChannel, Over, READY_LIMIT, Session};
use clap::Args;
use netchannel_namespaces::{Cores, Host, Hosts, gain_rights};
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Below `--help`.
pub const HELP: &str = "\
Examples:
  netchannel bench fairness
  netchannel bench fairness --connections 1,8,32 --bottleneck 400 --seconds 6
  netchannel bench fairness --json

The bottleneck is a token bucket filter (tc) on the way out of the clients' host; it is left out where tc is missing.

Exit codes:
  0  every tenant gave figures    1  some did not    2  the command line is wrong
  77  no network namespaces can be made here    130  interrupted";

/// The stack of all tenants.
const STACK: &str = "shared";
const MEGABIT: f64 = 1e6;

/// What can be asked for.
#[derive(Debug, Clone, Args)]
pub struct FairnessArguments {
    /// The connections of each tenant
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1,8,32",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub connections: Vec<u16>,

    /// The bottleneck, in megabits per second
    #[arg(long, value_name = "MEGABITS", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub bottleneck: u32,

    /// Seconds of each run
    #[arg(long, default_value_t = 4.0, value_name = "SECONDS")]
    pub seconds: f64,

    /// How to show the result.
    #[command(flatten)]
    pub shown: Shown,
}

/// What is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedBy {
    /// The processor of one stack, without a bottleneck in the network.
    Processor,
    /// A bottleneck, by a stack that shares it.
    Network,
    /// A bottleneck, by a stack that shares its processor only.
    NetworkUnshared,
    /// A bottleneck, by kernel TCP.
    KernelTcp,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sharing {
    /// What is shared, by what.
    pub by: SharedBy,
    /// What each tenant got, in Mbit/s.
    pub rates: Vec<f64>,
    /// Jain's index: 1 where all got the same.
    pub jain: f64,
}

/// The report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FairnessReport {
    /// The connections of each tenant.
    pub connections: Vec<u16>,
    /// The bottleneck, in Mbit/s.
    pub bottleneck: u32,
    /// TCP's congestion control.
    pub congestion_control: String,
    /// All runs.
    pub runs: Vec<Sharing>,
}

impl FairnessReport {
    /// For scripts.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// For a terminal.
    pub fn table(&self) -> String {
        let mut text = format!(
            "tenants with {} connections; bottleneck: {} Mbit/s; congestion control: {}\n",
            list(&self.connections),
            self.bottleneck,
            self.congestion_control
        );
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<44}{:>32}{:>14}",
            "shared", "Mbit/s of each", "Jain's index"
        );
        for run in &self.runs {
            let name = match run.by {
                SharedBy::Processor => "processor of one stack",
                SharedBy::Network => "bottleneck, fairness = \"network\"",
                SharedBy::NetworkUnshared => "bottleneck, fairness = \"processor\"",
                SharedBy::KernelTcp => "bottleneck, kernel TCP",
            };
            let rates: Vec<String> = run.rates.iter().map(|rate| format!("{rate:.0}")).collect();
            let _ = writeln!(text, "{name:<44}{:>32}{:>14.3}", rates.join("  "), run.jain);
        }
        text
    }
}

fn list(numbers: &[u16]) -> String {
    let all: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    all.join(", ")
}

/// Jain's index: the square of the sum over the sum of squares, for each.
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (squares * to_float(rates.len() as u64)).max(f64::MIN_POSITIVE)
}

impl FairnessArguments {
    /// Runs it and prints the report.
    pub fn execute(&self, netchannel: PathBuf, worker: &WorkerCommand) -> Result<bool, BenchError> {
        crate::repetitions::check(self.seconds, 1)?;
        let report = run(self, &netchannel, worker)?;
        self.shown.print(|| report.json(), || report.table())?;
        let mut rates = report.runs.iter().flat_map(|run| &run.rates);
        Ok(rates.all(|rate| *rate > 0.0))
    }
}

/// To be called while the process has one thread only.
pub fn run(
    arguments: &FairnessArguments,
    netchannel: &Path,
    worker: &WorkerCommand,
) -> Result<FairnessReport, BenchError> {
    let _listening = interrupt::Listening::start();
    gain_rights()?;
    let hosts = Hosts::make_with(Cores::Own)?;
    let congestion_control = congestion::set(&hosts, None)?;
    let directory = crate::temporary_directory()?;
    let mut runs = Vec::new();
    let mut all = vec![SharedBy::Processor];
    if has_bottleneck(&hosts.a, arguments.bottleneck) {
        remove_bottleneck(&hosts.a);
        all.extend([
            SharedBy::Network,
            SharedBy::NetworkUnshared,
            SharedBy::KernelTcp,
        ]);
    } else {
        eprintln!(
            "netchannel bench: no bottleneck can be made (tc is missing): its runs are left out"
        );
    }
    for (place, by) in all.into_iter().enumerate() {
        let folder = directory.path().join(place.to_string());
        fs::create_dir_all(&folder).map_err(BenchError::Directory)?;
        let is_narrow = by != SharedBy::Processor && has_bottleneck(&hosts.a, arguments.bottleneck);
        let rates = one(
            arguments,
            &hosts,
            by,
            &folder,
            (netchannel, worker, &congestion_control),
        );
        if is_narrow {
            remove_bottleneck(&hosts.a);
        }
        let rates = rates?;
        runs.push(Sharing {
            by,
            jain: jain(&rates),
            rates,
        });
    }
    Ok(FairnessReport {
        connections: arguments.connections.clone(),
        bottleneck: arguments.bottleneck,
        congestion_control,
        runs,
    })
}

/// Narrows the way out of a host. False where that can not be done.
fn has_bottleneck(host: &Host, megabits: u32) -> bool {
    let rate = format!("{megabits}mbit");
    let words = [
        "qdisc",
        "replace",
        "dev",
        netchannel_namespaces::DEVICE,
        "root",
        "tbf",
        "rate",
        &rate,
        "burst",
        "256kb",
        "latency",
        "20ms",
    ];
    host.command("tc")
        .args(words)
        .status()
        .is_ok_and(|status| status.success())
}

fn remove_bottleneck(host: &Host) {
    // It goes with its namespace in any case.
    let _ = host
        .command("tc")
        .args(["qdisc", "del", "dev", netchannel_namespaces::DEVICE, "root"])
        .status();
}

fn one(
    arguments: &FairnessArguments,
    hosts: &Hosts,
    by: SharedBy,
    folder: &Path,
    (netchannel, worker, congestion_control): (&Path, &WorkerCommand, &str),
) -> Result<Vec<f64>, BenchError> {
    let transport = match by {
        SharedBy::KernelTcp => Transport::Tcp,
        _ => Transport::Netchannel,
    };
    let daemon = match by {
        SharedBy::KernelTcp => None,
        by => Some(start(
            arguments,
            &hosts.a,
            by,
            folder,
            (netchannel, congestion_control),
        )?),
    };
    let server = Session::outside(&hosts.b, arguments.seconds, folder, worker);
    let mut streams = Vec::new();
    for (number, connections) in arguments.connections.iter().enumerate() {
        let place = folder.join(number.to_string());
        fs::create_dir_all(&place).map_err(BenchError::Directory)?;
        let tenant = daemon.as_ref().map(|daemon| daemon.beside(&name(number)));
        let tenant = tenant.ok_or_else(|| "kernel TCP".to_owned());
        let client = Session::on(&hosts.a, arguments.seconds, &place, worker, tenant);
        let address = format!("tcp:{}:0", hosts.b.address());
        let over = Over::from(transport);
        let count = connections.to_string();
        let started = server.start_worker(
            Over::from(Transport::Tcp),
            &["serve", "stream", &address, &count],
        );
        let mut serving = started.map_err(wrong)?;
        let address = serving.await_line("ready", READY_LIMIT).map_err(wrong)?;
        let addresses = vec![address; usize::from(*connections)].join(",");
        let seconds = arguments.seconds.to_string();
        let started = client.start_worker(over, &["drive", "stream", &addresses, &seconds]);
        let mut driving = started.map_err(wrong)?;
        driving.await_line("ready", READY_LIMIT).map_err(wrong)?;
        streams.push((serving, driving));
    }
    for (_, driving) in &mut streams {
        driving.say("go").map_err(wrong)?;
    }
    let settled = daemon.as_ref().map(|daemon| settled(daemon, arguments));
    let limit = READY_LIMIT + Duration::from_secs_f64(arguments.seconds);
    let read: Result<Vec<f64>, BenchError> =
        streams.iter_mut().map(|one| rate(one, limit)).collect();
    let read = read?;
    Ok(settled.unwrap_or(read))
}

/// What each tenant sends once all are in their stride: in the last two thirds of a run, as the daemon counts it.
fn settled(daemon: &NetChannel, arguments: &FairnessArguments) -> Vec<f64> {
    let sent = || {
        let asked = daemon.ask(&["tenants"]);
        let at = Instant::now();
        let bytes = |number: usize| {
            asked
                .as_ref()
                .and_then(|all| all[number]["bytes_out"].as_u64())
        };
        let count = arguments.connections.len();
        let bytes: Vec<f64> = (0..count)
            .map(|number| to_float(bytes(number).unwrap_or(0)))
            .collect();
        (at, bytes)
    };
    thread::sleep(Duration::from_secs_f64(arguments.seconds / 3.0));
    let (begin, before) = sent();
    thread::sleep(Duration::from_secs_f64(arguments.seconds * 0.6));
    let (end, after) = sent();
    let seconds = end.duration_since(begin).as_secs_f64();
    let both = before.iter().zip(&after);
    both.map(|(before, after)| (after - before) * 8.0 / seconds / MEGABIT)
        .collect()
}

/// What a tenant's streams got, in Mbit/s.
fn rate((serving, driving): &mut (Process, Process), limit: Duration) -> Result<f64, BenchError> {
    driving.wait(limit).map_err(wrong)?;
    serving.wait(limit).map_err(wrong)?;
    let read = second_line(serving).map_err(wrong)?;
    Ok(to_float(read.count) * 8.0 / read.seconds / MEGABIT)
}

fn name(number: usize) -> String {
    format!("tenant{number}")
}

/// A daemon with one stack for all tenants.
fn start(
    arguments: &FairnessArguments,
    host: &Host,
    by: SharedBy,
    folder: &Path,
    (netchannel, congestion_control): (&Path, &str),
) -> Result<NetChannel, BenchError> {
    let file = folder.join("netchannel.toml");
    let fairness = match by {
        SharedBy::Network => "network",
        _ => "processor",
    };
    let mut text = format!(
        "[host]\nname = \"a\"\n[[stacks]]\nname = \"{STACK}\"\nfairness = \"{fairness}\"\n"
    );
    for number in 0..arguments.connections.len() {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "[[tenants]]\nname = \"{}\"\nstack = \"{STACK}\"\naddresses = [\"10.88.0.{}\"]\nreach = [\"0.0.0.0/0\"]\n\
             congestion-control = \"{congestion_control}\"\n",
            name(number),
            number + 1
        );
    }
    fs::write(&file, text).map_err(BenchError::Directory)?;
    let options = ["--config".into(), file.into_os_string()];
    let socket = folder.join("daemon.sock");
    let daemon = NetChannel::start_daemon(netchannel, &socket, folder, Some(host), &options);
    daemon.map_err(BenchError::Options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_one_where_all_get_the_same() {
        assert!((jain(&[5.0, 5.0, 5.0]) - 1.0).abs() < 1e-9);
        assert!((jain(&[1.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-9);
    }
}
