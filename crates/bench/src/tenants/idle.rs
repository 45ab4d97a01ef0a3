//! Many tenants with one idle program each: what daemon, stacks and library need for them, in time and memory.
//!
//! Memory is that of the kernel's proportional set size: a page that several processes have counts once in all. The program's own is that
//! of the same program without the library.

use super::caps::wrong;
use super::served::{await_tenants, serve};
use super::switch::pause;
use crate::cpu;
use crate::error::{BenchError, RunError};
use crate::interrupt;
use crate::measurement::to_float;
use crate::options::{Transport, WorkerCommand};
use crate::output::Shown;
use crate::process::Process;
use crate::session::{NetChannel, READY_LIMIT, Session};
use clap::{Args, ValueEnum};
use netchannel_namespaces::{Cores, Hosts, gain_rights};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Below `--help`.
pub const HELP: &str = "\
Examples:
  netchannel bench idle
  netchannel bench idle --tenants 100 --program connection
  netchannel bench idle --stacks own --json

Each tenant has one program, in a namespace without a network, that has a listener or a connection open and does nothing. A tick is what the
kernel counts processor time in (/proc/PID/stat). 1,000 tenants take a minute or two to start.

Exit codes:
  0  all tenants had a program    1  some did not    2  the command line is wrong
  77  no network namespaces can be made here    130  interrupted";

/// The stack of all tenants, where they share one.
const STACK: &str = "shared";
/// Where the programs listen; each in a namespace of its own.
const PORT: u16 = 7100;
/// Programs without the library, to compare with.
const PLAIN: u32 = 20;
/// Programs that start at a time.
const AT_A_TIME: u32 = 8;
/// How long all tenants may take until they are served.
const SERVED: Duration = Duration::from_secs(120);
/// What starts leaves work behind that is not there for long.
const SETTLING: f64 = 3.0;

/// What the programs have open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Program {
    /// A listener
    Listener,
    /// A connection to a host outside, over which it has sent and received 200 times
    Connection,
}

/// Whose stack is whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stacks {
    /// One stack process for all tenants
    Shared,
    /// Each tenant has one of its own, a thread of the daemon
    Own,
}

/// What can be asked for.
#[derive(Debug, Clone, Args)]
pub struct IdleArguments {
    /// Number of tenants
    #[arg(long, default_value_t = 1000, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub tenants: u32,

    /// What the program of each has open
    #[arg(long, value_enum, default_value_t = Program::Listener, value_name = "WHAT")]
    pub program: Program,

    /// The stacks of the tenants
    #[arg(long, value_enum, default_value_t = Stacks::Shared, value_name = "WHOSE")]
    pub stacks: Stacks,

    /// Seconds in which ticks are counted
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    pub seconds: f64,

    /// How to show the result.
    #[command(flatten)]
    pub shown: Shown,
}

/// What one part needs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Needs {
    /// Which part.
    pub part: &'static str,
    /// Kilobytes for each tenant.
    pub kilobytes: f64,
    /// Descriptors for each tenant.
    pub descriptors: f64,
    /// Ticks in all the time.
    pub ticks: u64,
    /// Milliseconds of processor time in all the time.
    pub milliseconds: f64,
}

/// The report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IdleReport {
    /// Number of tenants.
    pub tenants: u32,
    /// What the program of each has open.
    pub program: Program,
    /// The stacks of the tenants.
    pub stacks: Stacks,
    /// Seconds in which ticks were counted.
    pub seconds: f64,
    /// Kilobytes of a program without the library.
    pub plain: f64,
    /// Daemon, stacks and library.
    pub parts: Vec<Needs>,
}

impl IdleReport {
    /// For scripts.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// For a terminal.
    pub fn table(&self) -> String {
        let program = match self.program {
            Program::Listener => "a listener",
            Program::Connection => "a connection",
        };
        let stacks = match self.stacks {
            Stacks::Shared => "one stack process for all",
            Stacks::Own => "a stack of its own each",
        };
        let mut text = format!(
            "{} tenants with one program each that has {program} open; {stacks}; the program's own {:.0} KB are not counted\n",
            self.tenants, self.plain
        );
        let time = format!("ticks in {} s", self.seconds);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<12}{:>16}{:>16}{time:>18}{:>14}",
            "part", "KB per tenant", "descriptors", "CPU ms"
        );
        let sum = Needs {
            part: "together",
            kilobytes: self.parts.iter().map(|part| part.kilobytes).sum(),
            descriptors: self.parts.iter().map(|part| part.descriptors).sum(),
            ticks: self.parts.iter().map(|part| part.ticks).sum(),
            milliseconds: self.parts.iter().map(|part| part.milliseconds).sum(),
        };
        for part in self.parts.iter().chain([&sum]) {
            let _ = writeln!(
                text,
                "{:<12}{:>16.1}{:>16.1}{:>18}{:>14.1}",
                part.part, part.kilobytes, part.descriptors, part.ticks, part.milliseconds
            );
        }
        text
    }
}

impl IdleArguments {
    /// Runs it and prints the report.
    pub fn execute(&self, netchannel: PathBuf, worker: &WorkerCommand) -> Result<bool, BenchError> {
        crate::repetitions::check(self.seconds, 1)?;
        let report = run(self, &netchannel, worker)?;
        self.shown.print(|| report.json(), || report.table())?;
        Ok(true)
    }
}

/// To be called while the process has one thread only.
pub fn run(
    arguments: &IdleArguments,
    netchannel: &Path,
    worker: &WorkerCommand,
) -> Result<IdleReport, BenchError> {
    let _listening = interrupt::Listening::start();
    gain_rights()?;
    raise_descriptor_limit();
    let hosts = Hosts::make_with(Cores::Shared)?;
    let directory = crate::temporary_directory()?;
    let folder = directory.path();
    let say = |text: &str| {
        if !arguments.shown.quiet {
            eprintln!("{text}");
        }
    };
    say(&format!("a daemon for {} tenants", arguments.tenants));
    let daemon = serve(netchannel, Some(&hosts.a), folder, &tables(arguments));
    let daemon = daemon.map_err(BenchError::Options)?;
    await_all(&daemon, arguments.tenants).map_err(wrong)?;
    let outside = Session::outside(&hosts.b, arguments.seconds, folder, worker);
    let plain = Session::outside(&hosts.a, arguments.seconds, folder, worker);
    let mut server = outside
        .start_worker(
            Transport::Tcp.into(),
            &borrowed(&server_words(arguments, hosts.b.address())),
        )
        .map_err(wrong)?;
    let address = server.await_line("ready", READY_LIMIT).map_err(wrong)?;
    let words = words(arguments.program, &address);
    let mut programs = Vec::new();
    let count = arguments.tenants;
    for number in 0..count {
        let tenant = daemon.beside(&name(number));
        let session = Session::on(&hosts.a, arguments.seconds, folder, worker, Ok(tenant));
        let over = Transport::Netchannel.into();
        programs.push(
            session
                .start_worker(over, &borrowed(&words))
                .map_err(wrong)?,
        );
        if number % AT_A_TIME == AT_A_TIME - 1 || number + 1 == count {
            let first = programs.len().saturating_sub(AT_A_TIME as usize);
            let ready = all_ready(&mut programs[first..]);
            ready.map_err(|error| failed(error, &daemon, number))?;
        }
        if number % 100 == 99 {
            say(&format!("{} programs", number + 1));
        }
    }
    let mut without = Vec::new();
    for _ in 0..PLAIN.min(count) {
        let started = plain.start_worker(Transport::Tcp.into(), &borrowed(&plain_words(&words)));
        without.push(started.map_err(wrong)?);
    }
    all_ready(&mut without).map_err(wrong)?;
    pause(SETTLING)?;
    say(&format!("{} s of idleness", arguments.seconds));
    let parts = parts(&daemon, &programs);
    let before = parts.each_ref().map(|(_, processes)| used(processes));
    pause(arguments.seconds)?;
    let without: Vec<_> = without.iter().map(Process::pid).collect();
    let own = average(&without, proportional);
    let own_descriptors = average(&without, descriptors);
    let tenants = f64::from(count);
    let needs = parts.iter().zip(before).map(|((part, processes), before)| {
        let (ticks, time) = used(processes);
        let is_library = *part == LIBRARY;
        let each = |of: fn(libc::pid_t) -> f64, own: f64| {
            let sum: f64 = processes.iter().map(|one| of(*one)).sum();
            let own = if is_library { own } else { 0.0 };
            (sum / tenants - own).max(0.0)
        };
        Needs {
            part,
            kilobytes: each(proportional, own),
            descriptors: each(descriptors, own_descriptors),
            ticks: ticks - before.0,
            milliseconds: time.saturating_sub(before.1).as_secs_f64() * 1e3,
        }
    });
    Ok(IdleReport {
        tenants: count,
        program: arguments.program,
        stacks: arguments.stacks,
        seconds: arguments.seconds,
        plain: own,
        parts: needs.collect(),
    })
}

fn name(number: u32) -> String {
    format!("tenant{number}")
}

fn tables(arguments: &IdleArguments) -> String {
    let mut text = "[host]\nname = \"a\"\n".to_owned();
    let stack = match arguments.stacks {
        Stacks::Shared => format!("stack = \"{STACK}\"\n"),
        Stacks::Own => String::new(),
    };
    if !stack.is_empty() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "[[stacks]]\nname = \"{STACK}\"");
    }
    for number in 0..arguments.tenants {
        let (high, low) = (number / 250, number % 250 + 1);
        let _ = write!(
            text,
            "[[tenants]]\nname = \"{}\"\n{stack}addresses = [\"10.88.{high}.{low}\"]\nreach = [\"0.0.0.0/0\"]\n",
            name(number)
        );
    }
    text
}

/// Waits until the daemon serves all.
fn await_all(daemon: &NetChannel, count: u32) -> Result<(), RunError> {
    let served = |all: &Value| all.as_array().map(Vec::len);
    let limits = (SERVED, Duration::from_millis(100));
    let are_served = |all: &Value| served(all).is_some_and(|served| served >= count as usize);
    await_tenants(daemon, limits, are_served, |last| {
        let served = last.and_then(served);
        format!("{served:?} of {count} tenants are served")
    })
}

fn all_ready(programs: &mut [Process]) -> Result<(), RunError> {
    for program in programs {
        program.await_line("ready", READY_LIMIT)?;
    }
    Ok(())
}

/// The server outside, which has as many connections as there are programs.
fn server_words(arguments: &IdleArguments, address: std::net::IpAddr) -> Vec<String> {
    let count = arguments.tenants + PLAIN.min(arguments.tenants);
    let words = [
        "serve",
        "pingpong",
        &format!("tcp:{address}:0"),
        &count.to_string(),
    ];
    words.map(str::to_owned).to_vec()
}

/// A program that is ready, and waits.
fn words(program: Program, server: &str) -> Vec<String> {
    let listening = format!("tcp:0.0.0.0:{PORT}");
    let words: &[&str] = match program {
        Program::Listener => &["serve", "stream", &listening],
        Program::Connection => &["drive", "pingpong", server, "1"],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The same in a namespace that it shares with others.
fn plain_words(words: &[String]) -> Vec<String> {
    let any = |word: &String| word.replace(&format!("0.0.0.0:{PORT}"), "0.0.0.0:0");
    words.iter().map(any).collect()
}

fn borrowed(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// The part that is within the programs.
const LIBRARY: &str = "library";

/// The processes of each part.
fn parts(daemon: &NetChannel, programs: &[Process]) -> [(&'static str, Vec<libc::pid_t>); 3] {
    let pid = daemon.daemon_pid().unwrap_or(0);
    let (stacks, daemon) = cpu::tree(pid).into_iter().partition(|one| is_stack(*one));
    let programs = programs.iter().map(Process::pid).collect();
    [("daemon", daemon), ("stack", stacks), (LIBRARY, programs)]
}

/// Whether a process is a stack: `netchannel stack KIND`.
pub(super) fn is_stack(process: libc::pid_t) -> bool {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0);
    words.nth(1) == Some(b"stack")
}

/// Ticks and time that processes have used.
fn used(processes: &[libc::pid_t]) -> (u64, Duration) {
    let ticks = processes.iter().map(|one| cpu::ticks(*one)).sum();
    (
        ticks,
        processes.iter().map(|one| cpu::of_process(*one)).sum(),
    )
}

/// Kilobytes of a process, its part of what it shares with others.
fn proportional(process: libc::pid_t) -> f64 {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
    kilobytes(&text)
}

fn kilobytes(rollup: &str) -> f64 {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// Open descriptors of a process.
fn descriptors(process: libc::pid_t) -> f64 {
    let open = fs::read_dir(format!("/proc/{process}/fd"));
    open.map_or(0.0, |open| to_float(open.count() as u64))
}

fn average(processes: &[libc::pid_t], of: fn(libc::pid_t) -> f64) -> f64 {
    let sum: f64 = processes.iter().map(|one| of(*one)).sum();
    sum / to_float(processes.len() as u64).max(1.0)
}

/// A program that does not start, with what it may lack.
fn failed(error: RunError, daemon: &NetChannel, number: u32) -> BenchError {
    if matches!(error, RunError::Interrupted) {
        return wrong(error);
    }
    let [(_, daemon), (_, stacks), _] = parts(daemon, &[]);
    let open =
        |processes: &[libc::pid_t]| processes.iter().map(|one| descriptors(*one)).sum::<f64>();
    BenchError::Options(format!(
        "the program of tenant {number} does not start: {error} (the daemon has {} descriptors open, the stack {}; ulimit -Hn says how \
         many they may have)",
        open(&daemon),
        open(&stacks)
    ))
}

/// Each program has a pipe of ours.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit is live in both calls. Where it can not be raised, the programs that do not start will say so.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proportional_size_is_read() {
        let text = "55d0-7ffd ---p 00000000 00:00 0  [rollup]\nRss:    1234 kB\nPss:     321 kB\nPss_Dirty: 7 kB\n";
        assert_eq!(kilobytes(text), 321.0);
        assert_eq!(kilobytes(""), 0.0);
    }

    #[test]
    fn every_tenant_has_an_address() {
        let arguments = IdleArguments {
            tenants: 501,
            program: Program::Listener,
            stacks: Stacks::Shared,
            seconds: 1.0,
            shown: Shown {
                json: false,
                quiet: true,
            },
        };
        let text = tables(&arguments);
        assert_eq!(text.matches("[[tenants]]").count(), 501);
        assert!(text.contains("10.88.2.1\"") && text.contains("10.88.0.250\""));
        assert_eq!(text.matches("[[stacks]]").count(), 1);
    }
}
