//! The stack of a tenant is changed under load: by a new configuration, from one stack process to the other and back. The same load
//! without a change says what of the pauses is the machine's.
//!
//! ```text
//!   host b: clients ===TCP===> stack one | stack two === lanes ===> servers in the tenant        requests when they are due, and
//!           servers <==TCP==== stack one | stack two === lanes ===  clients in the tenant        streams of which each byte is known
//! ```

use super::caps::wrong;
use super::served::{await_tenants, reload, serve};
use super::{ADDRESS, NAME, many_ports};
use crate::error::{BenchError, RunError};
use crate::experiment::second_line;
use crate::hosts::congestion;
use crate::interrupt;
use crate::measurement::to_float;
use crate::options::{Transport, WorkerCommand};
use crate::output::Shown;
use crate::process::Process;
use crate::session::{NetChannel, READY_LIMIT, Session};
use crate::worker::Answers;
use clap::Args;
use netchannel_namespaces::{Cores, Hosts, gain_rights};
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Below `--help`.
pub const HELP: &str = "\
Examples:
  netchannel bench switch
  netchannel bench switch --changes 10 --interval 1 --rate 1000
  netchannel bench switch --json

Requests are made when they are due, into the tenant and out of it, and a stream goes either way meanwhile. A pause is the longest time
from when a request was due to its answer.

Exit codes:
  0  nothing was lost    1  something was, or a program failed    2  the command line is wrong
  77  no network namespaces can be made here    130  interrupted";

/// What a pause may last, in milliseconds.
const LIMIT: f64 = 50.0;
/// Requests at a time at most: as many as are due in a pause that is too long.
const CONCURRENCY: usize = 256;
/// The ports that are published: of requests, and of the stream.
const PORTS: [u16; 2] = [7100, 7101];
/// The stacks that are changed.
const STACKS: [&str; 2] = ["one", "two"];
/// A stream that does not keep the processors from what is measured: 8 KiB calls, 20 Mbit/s.
const STREAM: &str = "stream/8192@20";

/// What can be asked for.
#[derive(Debug, Clone, Args)]
pub struct SwitchArguments {
    /// How often the stack is changed
    #[arg(long, default_value_t = 6, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub changes: u32,

    /// Seconds between two changes
    #[arg(long, default_value_t = 0.5, value_name = "SECONDS")]
    pub interval: f64,

    /// Requests in each second, in either direction
    #[arg(long, default_value_t = 500, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rate: u32,

    /// How to show the result.
    #[command(flatten)]
    pub shown: Shown,
}

/// What became of requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Became {
    /// Whether the stack was changed meanwhile.
    pub changed: bool,
    /// Into the tenant, or out of it.
    pub direction: &'static str,
    /// Those that were answered.
    pub answered: u64,
    /// Nobody listened.
    pub refused: u64,
    /// The connection was reset.
    pub reset: u64,
    /// Not answered for another reason.
    pub lost: u64,
    /// 99 of 100 took no longer, in milliseconds.
    pub p99: f64,
    /// The longest, in milliseconds.
    pub longest: f64,
}

/// The report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SwitchReport {
    /// How often the stack was changed.
    pub changes: u32,
    /// The longest time from a new configuration until new connections took the other stack, in milliseconds.
    pub longest_change: f64,
    /// Bytes of the streams that went on meanwhile, each of which arrived.
    pub streamed: u64,
    /// What became of requests, first without a change.
    pub requests: Vec<Became>,
}

impl SwitchReport {
    /// Whether every request was answered.
    pub fn is_whole(&self) -> bool {
        let mut all = self.requests.iter();
        all.all(|one| one.answered > 0 && one.refused + one.reset + one.lost == 0)
    }

    /// For scripts.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// For a terminal.
    pub fn table(&self) -> String {
        let mut text = format!(
            "the stack of a tenant is changed {} times; each took {:.0} ms at most to have the new connections; {:.1} MB of streams arrived\n",
            self.changes,
            self.longest_change,
            to_float(self.streamed) / 1e6
        );
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<32}{:>10}{:>10}{:>8}{:>8}{:>12}{:>12}",
            "requests", "answered", "refused", "reset", "lost", "P99 ms", "longest ms"
        );
        for one in &self.requests {
            let changed = if one.changed { "changed" } else { "unchanged" };
            let name = format!("{} the tenant, {changed}", one.direction);
            let (answered, refused, reset, lost) = (one.answered, one.refused, one.reset, one.lost);
            let over = if one.longest > LIMIT {
                "  over 50 ms"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "{name:<32}{answered:>10}{refused:>10}{reset:>8}{lost:>8}{:>12.1}{:>12.1}{over}",
                one.p99, one.longest
            );
        }
        text
    }
}

impl SwitchArguments {
    /// Runs it and prints the report.
    pub fn execute(&self, netchannel: PathBuf, worker: &WorkerCommand) -> Result<bool, BenchError> {
        crate::repetitions::check(self.interval, 1)?;
        let report = run(self, &netchannel, worker)?;
        self.shown.print(|| report.json(), || report.table())?;
        Ok(report.is_whole())
    }
}

/// To be called while the process has one thread only.
pub fn run(
    arguments: &SwitchArguments,
    netchannel: &Path,
    worker: &WorkerCommand,
) -> Result<SwitchReport, BenchError> {
    let _listening = interrupt::Listening::start();
    gain_rights()?;
    let hosts = Hosts::make_with(Cores::Own)?;
    let congestion_control = congestion::set(&hosts, None)?;
    many_ports(&hosts.b)?;
    let directory = crate::temporary_directory()?;
    let folders = ["a", "b"].map(|name| directory.path().join(name));
    for folder in &folders {
        fs::create_dir_all(folder).map_err(BenchError::Directory)?;
    }
    let tables = |stack: &str| tables(stack, &congestion_control);
    let seconds = arguments.interval * f64::from(arguments.changes + 1);
    let daemon = serve(netchannel, Some(&hosts.a), &folders[0], &tables(STACKS[0]));
    let daemon = daemon.map_err(BenchError::Options)?;
    let tenant = daemon.beside(NAME);
    let place = Place {
        inside: Session::on(&hosts.a, seconds, &folders[0], worker, Ok(tenant)),
        outside: Session::outside(&hosts.b, seconds, &folders[1], worker),
        addresses: [hosts.a.address(), hosts.b.address()].map(|address| address.to_string()),
    };
    let say = |text: &str| {
        if !arguments.shown.quiet {
            eprintln!("{text}");
        }
    };
    await_stack(&daemon, STACKS[0]).map_err(wrong)?;
    say(&format!("{seconds} s without a change"));
    let unchanged = Loads::start(&place, arguments.rate).map_err(wrong)?;
    let (mut requests, mut streamed) = unchanged.end(false).map_err(wrong)?;
    say(&format!("{seconds} s with {} changes", arguments.changes));
    let changed = Loads::start(&place, arguments.rate).map_err(wrong)?;
    let mut longest_change = 0.0_f64;
    for number in 1..=arguments.changes {
        pause(arguments.interval)?;
        let stack = STACKS[usize::try_from(number % 2).unwrap_or(0)];
        let begin = Instant::now();
        reload(&daemon, &folders[0], &tables(stack)).map_err(BenchError::Options)?;
        await_stack(&daemon, stack).map_err(wrong)?;
        longest_change = longest_change.max(begin.elapsed().as_secs_f64() * 1e3);
    }
    let (became, bytes) = changed.end(true).map_err(wrong)?;
    requests.extend(became);
    streamed += bytes;
    Ok(SwitchReport {
        changes: arguments.changes,
        longest_change,
        streamed,
        requests,
    })
}

/// Sleeps, unless it is interrupted.
pub(super) fn pause(seconds: f64) -> Result<(), BenchError> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    loop {
        if interrupt::requested() {
            return Err(BenchError::Interrupted);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(Duration::from_millis(100)));
    }
}

fn tables(stack: &str, congestion_control: &str) -> String {
    let stacks = STACKS.map(|name| format!("[[stacks]]\nname = \"{name}\"\n"));
    let [requests, stream] = PORTS;
    format!(
        "[host]\nname = \"a\"\n{}[[tenants]]\nname = \"{NAME}\"\nstack = \"{stack}\"\naddresses = [\"{ADDRESS}\"]\n\
         reach = [\"0.0.0.0/0\"]\npublish = [\"{requests}:{requests}\", \"{stream}:{stream}\"]\n\
         congestion-control = \"{congestion_control}\"\n",
        stacks.concat()
    )
}

/// Waits until new connections take a stack.
fn await_stack(daemon: &NetChannel, stack: &str) -> Result<(), RunError> {
    let limits = (READY_LIMIT, Duration::from_millis(1));
    await_tenants(
        daemon,
        limits,
        |all| all[0]["stack"] == stack,
        |_| format!("new connections never took the stack {stack}"),
    )
}

/// Where programs are.
struct Place<'a> {
    inside: Session<'a>,
    outside: Session<'a>,
    /// Of the tenant's host and of the other.
    addresses: [String; 2],
}

/// All that goes on at a time.
struct Loads {
    /// Server and client of requests, into the tenant and out of it.
    requests: [(Process, Process); 2],
    /// Reader and writer.
    streams: [(Process, Process); 2],
    limit: Duration,
}

impl Loads {
    /// Starts all, and lets them go.
    fn start(place: &Place<'_>, rate: u32) -> Result<Self, RunError> {
        let Place {
            inside,
            outside,
            addresses: [own, other],
        } = place;
        let load = format!("{CONCURRENCY}:{rate}");
        let into = |port: u16| [format!("tcp:0.0.0.0:{port}"), format!("tcp:{own}:{port}")];
        let out = || [format!("tcp:{other}:0"), String::new()];
        let pair = |server, client, at: [String; 2], words: [&str; 2], more: Option<&str>| {
            connected((server, client), at, words, more)
        };
        let asked = ["requests", "attempts"];
        let mut loads = Loads {
            requests: [
                pair(inside, outside, into(PORTS[0]), asked, Some(&load))?,
                pair(outside, inside, out(), asked, Some(&load))?,
            ],
            streams: [
                pair(inside, outside, into(PORTS[1]), [STREAM; 2], None)?,
                pair(outside, inside, out(), [STREAM; 2], None)?,
            ],
            limit: inside.run_limit(),
        };
        let all = loads.requests.iter_mut().chain(&mut loads.streams);
        for (_, client) in all {
            client.say("go")?;
        }
        Ok(loads)
    }

    /// Waits for the end of all: what became of the requests, and the bytes of the streams.
    fn end(mut self, changed: bool) -> Result<(Vec<Became>, u64), RunError> {
        let mut became = Vec::new();
        for ((server, client), direction) in self.requests.iter_mut().zip(["into", "out of"]) {
            client.wait(self.limit)?;
            if server.try_wait()?.is_some() {
                return Err(RunError::Wrong(server.complaint()));
            }
            became.push(Became::of(&answers(client)?, direction, changed));
        }
        let mut streamed = 0;
        for (reader, writer) in &mut self.streams {
            writer.wait(self.limit)?;
            reader.wait(self.limit)?;
            let (sent, read) = (second_line(writer)?.count, second_line(reader)?.count);
            if sent != read {
                return Err(RunError::Wrong(format!(
                    "{sent} bytes written, {read} read"
                )));
            }
            streamed += read;
        }
        Ok((became, streamed))
    }
}

/// A server, and a client that has found it.
fn connected(
    (server, client): (&Session<'_>, &Session<'_>),
    [listening, address]: [String; 2],
    [serving, driving]: [&str; 2],
    more: Option<&str>,
) -> Result<(Process, Process), RunError> {
    let over = Transport::Netchannel.into();
    let mut server = server.start_worker(over, &["serve", serving, &listening])?;
    let bound = server.await_line("ready", READY_LIMIT)?;
    let address = if address.is_empty() { bound } else { address };
    let seconds = client.seconds.to_string();
    let mut words = vec!["drive", driving, &address, &seconds];
    words.extend(more);
    Ok((server, connect(client, &words)?))
}

/// A client that has found its server. A published port may not be open yet when its server is.
pub(super) fn connect(session: &Session<'_>, words: &[&str]) -> Result<Process, RunError> {
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let mut client = session.start_worker(Transport::Netchannel.into(), words)?;
        match client.await_line("ready", READY_LIMIT) {
            Ok(_) => return Ok(client),
            Err(RunError::Interrupted) => return Err(RunError::Interrupted),
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// What a client of requests says at its end.
pub(super) fn answers(client: &Process) -> Result<Answers, RunError> {
    let printed = client.output()?;
    let line = printed.lines().nth(1).unwrap_or_default();
    serde_json::from_str(line).map_err(|_| client.unreadable(line))
}

impl Became {
    fn of(answers: &Answers, direction: &'static str, changed: bool) -> Self {
        let histogram = crate::experiment::merged(std::slice::from_ref(&answers.outcome));
        let milliseconds = |nanoseconds: u64| to_float(nanoseconds) / 1e6;
        Became {
            changed,
            direction,
            answered: answers.outcome.count,
            refused: answers.refused,
            reset: answers.reset,
            lost: answers.lost,
            p99: milliseconds(histogram.value_at_quantile(0.99)),
            longest: milliseconds(histogram.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn became(lost: u64, longest: f64) -> Became {
        Became {
            changed: true,
            direction: "into",
            answered: 100,
            refused: 0,
            reset: 0,
            lost,
            p99: 1.0,
            longest,
        }
    }

    #[test]
    fn what_is_lost_and_what_takes_too_long_is_told() {
        let report = |requests| SwitchReport {
            changes: 2,
            longest_change: 10.0,
            streamed: 1,
            requests,
        };
        let good = report(vec![became(0, 49.0)]);
        assert!(good.is_whole() && !good.table().contains("over 50 ms"));
        let slow = report(vec![became(0, 51.0)]);
        assert!(slow.is_whole() && slow.table().contains("over 50 ms"));
        assert!(!report(vec![became(0, 1.0), became(1, 1.0)]).is_whole());
    }

    #[test]
    fn the_tenant_has_one_of_two_stacks() {
        let text = tables("two", "cubic");
        assert_eq!(text.matches("[[stacks]]").count(), 2);
        assert!(text.contains("stack = \"two\""), "{text}");
    }
}
