//! Caps over time (NetKernel, Figure 13): tenants join one after the other, one without a cap and the others with one, each with a stream
//! to the same host outside. What the daemon counts is looked at every 100 ms.
//!
//! ```text
//!   rate   |uncapped______                 each bin of a capped tenant is compared with its cap;
//!          |              |______          the uncapped one, while all are there, with what it had alone, less the caps
//!          |      capped  |------|-----
//! ```

use crate::error::{BenchError, RunError};
use crate::hosts::congestion;
use crate::interrupt;
use crate::measurement::{median, to_float};
use crate::options::{Transport, WorkerCommand};
use crate::output::Shown;
use crate::process::Process;
use crate::session::{NetChannel, Over, READY_LIMIT, Session};
use clap::Args;
use netchannel_namespaces::{Hosts, gain_rights};
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Below `--help`.
pub const HELP: &str = "\
Examples:
  netchannel bench caps
  netchannel bench caps --caps 1000,500 --seconds 9
  netchannel bench caps --json

Tenants join one after the other, the first without a cap. Where they share processors that are used up, what the uncapped one
has beside the others says more of the processors than of the caps.

Exit codes:
  0  every tenant gave figures    1  some did not    2  the command line is wrong
  77  no network namespaces can be made here    130  interrupted";

/// One look at the counters.
const BIN: Duration = Duration::from_millis(100);
/// After so many bins a tenant that has joined is in its stride: its bucket was full.
const SETTLING: usize = 3;
/// Megabits.
const MEGABIT: f64 = 1e6;

/// What can be asked for.
#[derive(Debug, Clone, Args)]
pub struct CapsArguments {
    /// Caps of the tenants that join, in megabits per second
    #[arg(long, value_name = "MEGABITS", value_delimiter = ',', default_value = "1000,500",
        value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub caps: Vec<u64>,

    /// Seconds in all; the tenants join in equal parts of it
    #[arg(long, default_value_t = 6.0, value_name = "SECONDS")]
    pub seconds: f64,

    /// How to show the result.
    #[command(flatten)]
    pub shown: Shown,
}

/// What a tenant had.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TenantRates {
    /// Its name.
    pub name: String,
    /// Its cap, in Mbit/s; none for the first.
    pub cap: Option<f64>,
    /// The median of its bins while all tenants are there, in Mbit/s.
    pub median: f64,
    /// The least and the largest of those bins.
    pub range: [f64; 2],
    /// How far the bin is from the cap that is farthest, as a part of the cap.
    pub farthest: Option<f64>,
    /// Of what the first had alone, less the caps of the others: the part that it has beside them.
    pub of_rest: Option<f64>,
    /// All bins, in Mbit/s, from the start on.
    pub bins: Vec<f64>,
}

/// The report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CapsReport {
    /// Milliseconds of a bin.
    pub bin_milliseconds: u64,
    /// TCP's congestion control.
    pub congestion_control: String,
    /// Tenants, in the order in which they join.
    pub tenants: Vec<TenantRates>,
}

impl CapsReport {
    /// For scripts.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// For a terminal.
    pub fn table(&self) -> String {
        let mut text = format!(
            "tenants join one after the other; bins of {} ms; congestion control: {}\n",
            self.bin_milliseconds, self.congestion_control
        );
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<10}{:>14}{:>14}{:>24}{:>16}{:>14}",
            "tenant", "cap Mbit/s", "median", "least to most", "farthest bin", "of the rest"
        );
        for one in &self.tenants {
            let cap = one
                .cap
                .map_or_else(|| "-".to_owned(), |cap| format!("{cap:.0}"));
            let part = |part: Option<f64>| {
                part.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", 100.0 * part))
            };
            let range = format!("{:.0} to {:.0}", one.range[0], one.range[1]);
            let _ = writeln!(
                text,
                "{:<10}{cap:>14}{:>14.0}{range:>24}{:>16}{:>14}",
                one.name,
                one.median,
                part(one.farthest),
                part(one.of_rest)
            );
        }
        text
    }
}

impl CapsArguments {
    /// Runs it and prints the report.
    pub fn execute(&self, netchannel: PathBuf, worker: &WorkerCommand) -> Result<bool, BenchError> {
        crate::repetitions::check(self.seconds, 1)?;
        let report = run(self, netchannel, worker)?;
        self.shown.print(|| report.json(), || report.table())?;
        Ok(report.tenants.iter().all(|one| one.median > 0.0))
    }
}

/// To be called while the process has one thread only.
pub fn run(
    arguments: &CapsArguments,
    netchannel: PathBuf,
    worker: &WorkerCommand,
) -> Result<CapsReport, BenchError> {
    let _listening = interrupt::Listening::start();
    gain_rights()?;
    let hosts = Hosts::make_with(netchannel_namespaces::Cores::Own)?;
    let congestion_control = congestion::set(&hosts, None)?;
    let directory = crate::temporary_directory()?;
    let count = arguments.caps.len() + 1;
    let file = directory.path().join("netchannel.toml");
    let tables = tables(&arguments.caps, &congestion_control);
    fs::write(&file, tables).map_err(BenchError::Directory)?;
    let socket = directory.path().join("daemon.sock");
    let options = ["--config".into(), file.into_os_string()];
    let daemon = NetChannel::start_daemon(
        &netchannel,
        &socket,
        directory.path(),
        Some(&hosts.a),
        &options,
    );
    let daemon = daemon.map_err(BenchError::Options)?;
    let server = Session::outside(&hosts.b, arguments.seconds, directory.path(), worker);
    let address = format!("tcp:{}:0", hosts.b.address());
    let mut streams = Vec::new();
    for number in 0..count {
        let folder = directory.path().join(number.to_string());
        fs::create_dir_all(&folder).map_err(BenchError::Directory)?;
        let tenant = daemon.beside(&name(number));
        let client = Session::on(&hosts.a, arguments.seconds, &folder, worker, Ok(tenant));
        let joins = arguments.seconds * to_float(number as u64) / to_float(count as u64);
        let stream = Stream::start(&server, &client, &address, joins, arguments.seconds);
        streams.push(stream.map_err(wrong)?);
    }
    let looks = drive(&daemon, &mut streams, arguments.seconds)?;
    Ok(CapsReport {
        bin_milliseconds: u64::try_from(BIN.as_millis()).unwrap_or(0),
        congestion_control,
        tenants: rates(&looks, &streams, &arguments.caps),
    })
}

pub(super) fn wrong(error: RunError) -> BenchError {
    match error {
        RunError::Interrupted => BenchError::Interrupted,
        error => BenchError::Options(error.to_string()),
    }
}

fn name(number: usize) -> String {
    format!("tenant{number}")
}

/// The configuration: the first tenant has no cap.
fn tables(caps: &[u64], congestion_control: &str) -> String {
    let mut text = "[host]\nname = \"a\"\n".to_owned();
    let caps = std::iter::once(None).chain(caps.iter().map(Some));
    for (number, cap) in caps.enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "[[tenants]]\nname = \"{}\"\naddresses = [\"10.88.0.{}\"]\nreach = [\"0.0.0.0/0\"]\n\
             congestion-control = \"{congestion_control}\"\n",
            name(number),
            number + 1
        );
        if let Some(cap) = cap {
            let _ = writeln!(text, "rate-out = \"{cap}Mbit/s\"");
        }
    }
    text
}

/// A tenant's stream.
struct Stream {
    _server: Process,
    client: Process,
    joins: f64,
    has_joined: bool,
}

impl Stream {
    fn start(
        server: &Session<'_>,
        client: &Session<'_>,
        address: &str,
        joins: f64,
        seconds: f64,
    ) -> Result<Self, RunError> {
        let over = Over::from(Transport::Netchannel);
        let mut server = server.start_worker(over, &["serve", "stream", address])?;
        let address = server.await_line("ready", READY_LIMIT)?;
        let seconds = (seconds - joins).to_string();
        let mut client = client.start_worker(over, &["drive", "stream", &address, &seconds])?;
        client.await_line("ready", READY_LIMIT)?;
        Ok(Self {
            _server: server,
            client,
            joins,
            has_joined: false,
        })
    }
}

/// One look: when, and how much each tenant had sent.
type Look = (f64, Vec<f64>);

fn drive(
    daemon: &NetChannel,
    streams: &mut [Stream],
    seconds: f64,
) -> Result<Vec<Look>, BenchError> {
    let start = Instant::now();
    let mut looks: Vec<Look> = Vec::new();
    loop {
        let now = start.elapsed().as_secs_f64();
        if now >= seconds {
            return Ok(looks);
        }
        if interrupt::requested() {
            return Err(BenchError::Interrupted);
        }
        for stream in streams.iter_mut() {
            if stream.joins <= now && !std::mem::replace(&mut stream.has_joined, true) {
                stream.client.say("go").map_err(wrong)?;
            }
        }
        let asked = daemon.ask(&["tenants"]);
        let at = start.elapsed().as_secs_f64();
        let sent = |number: usize| {
            let bytes = asked
                .as_ref()
                .and_then(|all| all[number]["bytes_out"].as_u64());
            to_float(bytes.unwrap_or(0))
        };
        looks.push((at, (0..streams.len()).map(sent).collect()));
        let next = BIN.mul_f64(to_float(looks.len() as u64));
        thread::sleep(next.saturating_sub(start.elapsed()));
    }
}

/// What the looks say.
fn rates(looks: &[Look], streams: &[Stream], caps: &[u64]) -> Vec<TenantRates> {
    let bins: Vec<(f64, Vec<f64>)> = looks
        .windows(2)
        .map(|pair| {
            let [(before, sent), (after, more)] = pair else {
                return (0.0, Vec::new());
            };
            let rate =
                |(one, other): (&f64, &f64)| (other - one) * 8.0 / (after - before) / MEGABIT;
            (*before, sent.iter().zip(more).map(rate).collect())
        })
        .collect();
    let joined: Vec<f64> = streams.iter().map(|stream| stream.joins).collect();
    tenants(&bins, &joined, caps)
}

fn tenants(bins: &[(f64, Vec<f64>)], joined: &[f64], caps: &[u64]) -> Vec<TenantRates> {
    let settled = BIN.as_secs_f64() * to_float(SETTLING as u64);
    let last = joined.iter().copied().fold(0.0, f64::max) + settled;
    let second = joined.get(1).copied().unwrap_or(f64::INFINITY);
    let of = |number: usize, from: f64, to: f64| -> Vec<f64> {
        let within = bins.iter().filter(|(at, _)| *at >= from && *at < to);
        within
            .filter_map(|(_, rates)| rates.get(number).copied())
            .collect()
    };
    let alone = median(&of(0, settled, second - BIN.as_secs_f64())).unwrap_or(0.0);
    let capped: f64 = caps.iter().map(|cap| to_float(*cap)).sum();
    let all = std::iter::once(None).chain(caps.iter().map(|cap| Some(to_float(*cap))));
    all.enumerate()
        .map(|(number, cap)| {
            let together = of(number, last, f64::INFINITY);
            let middle = median(&together).unwrap_or(0.0);
            let least = together.iter().copied().fold(f64::INFINITY, f64::min);
            let most = together.iter().copied().fold(0.0, f64::max);
            let far = |cap: f64| (most - cap).abs().max((cap - least).abs()) / cap;
            TenantRates {
                name: name(number),
                cap,
                median: middle,
                range: [if least.is_finite() { least } else { 0.0 }, most],
                farthest: cap.map(far),
                of_rest: cap.is_none().then(|| middle / (alone - capped).max(1.0)),
                bins: of(number, 0.0, f64::INFINITY),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_compared_with_caps_once_all_are_there() {
        // The second joins at 1 s, with a cap of 100: its first bins are a full bucket's.
        let bin = |tenth: usize| {
            let at = to_float(tenth as u64) / 10.0;
            let rates = match tenth {
                0..10 => vec![500.0, 0.0],
                10..13 => vec![300.0, 180.0],
                15 => vec![380.0, 96.0],
                _ => vec![380.0, 100.0],
            };
            (at, rates)
        };
        let bins: Vec<_> = (0..20).map(bin).collect();
        let found = tenants(&bins, &[0.0, 1.0], &[100]);
        assert_eq!(found[1].cap, Some(100.0));
        assert!((found[1].median - 100.0).abs() < 1e-9 && found[1].range == [96.0, 100.0]);
        assert!(
            (found[1].farthest.unwrap() - 0.04).abs() < 1e-9,
            "{found:?}"
        );
        assert!((found[0].of_rest.unwrap() - 0.95).abs() < 1e-9, "{found:?}");
        assert_eq!(found[0].bins.len(), 20);
    }

    #[test]
    fn tables_have_caps_but_for_the_first() {
        let text = tables(&[1000, 500], "cubic");
        assert_eq!(text.matches("[[tenants]]").count(), 3);
        assert_eq!(text.matches("rate-out").count(), 2);
        assert!(text.contains("rate-out = \"500Mbit/s\""), "{text}");
    }
}
