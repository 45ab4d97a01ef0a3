//! Three tenants with bursty traffic, once with a stack process of their own each, once with one for all (NetKernel, section 6.1): how much of
//! a processor must be reserved for the stacks so that requests take no longer than they may.
//!
//! ```text
//!   stack0 [##  ]  stack1 [##  ]  stack2 [##  ]     a quota for each peak
//!   shared [###    ]                                a quota for the peak of all, which is not the sum of their peaks
//! ```
//!
//! Quotas are found by halving: each time the same trace is played, and a quota with which too many requests took too long is too small.

mod arrangement;
mod quota;
mod trace;

use super::caps::wrong;
use super::switch::pause;
use crate::error::BenchError;
use crate::hosts::congestion;
use crate::interrupt;
use crate::options::WorkerCommand;
use crate::output::Shown;
use arrangement::{Arrangement, Played};
use clap::Args;
use netchannel_namespaces::{Cores, Hosts, gain_rights};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Below `--help`.
pub const HELP: &str = "\
Examples:
  netchannel bench multiplexing
  netchannel bench multiplexing --seconds 20 --peak 4000 --p99 20
  netchannel bench multiplexing --seed 7 --json

Requests are short connections into each tenant, made when they are due. Quotas are those of control groups (cpu), which root can make. The
whole takes about 20 times as long as the trace.

Exit codes:
  0  quotas were found    1  not    2  the command line is wrong
  77  no network namespaces can be made here    130  interrupted";

/// Seconds of a step of the trace.
const STEP: f64 = 0.25;
/// Quotas are found to within this part of a processor.
const PRECISION: f64 = 0.01;
/// How often quotas that were found are raised by that where one more run does not hold.
const CONFIRMATIONS: usize = 5;
/// The machine on which Table 2 packs tenants.
const PROCESSORS: f64 = 32.0;

/// What can be asked for.
#[derive(Debug, Clone, Args)]
pub struct MultiplexingArguments {
    /// Seconds of the trace
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    pub seconds: f64,

    /// Requests in each second at the peak of each tenant
    #[arg(long, default_value_t = 6000, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(100..=100_000))]
    pub peak: u32,

    /// What 99 of 100 requests of each tenant may take, in milliseconds
    #[arg(long, default_value_t = 25.0, value_name = "MILLISECONDS")]
    pub p99: f64,

    /// Number of tenants
    #[arg(long, default_value_t = 3, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(2..=16))]
    pub tenants: u16,

    /// Of the trace
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,

    /// How to show the result.
    #[command(flatten)]
    pub shown: Shown,
}

/// What one arrangement of stacks needs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reserved {
    /// Number of stacks.
    pub stacks: usize,
    /// What must be reserved for each, as a part of a processor.
    pub quotas: Vec<f64>,
    /// The sum of it.
    pub processors: f64,
    /// Processor time of all stacks for one trace without a quota, in seconds.
    pub cpu_seconds: f64,
    /// What 99 of 100 requests of each tenant took without a quota, in milliseconds.
    pub p99_without: Vec<f64>,
    /// The same with these quotas, in one more run.
    pub p99_with: Vec<f64>,
    /// Requests per second for each reserved processor (Figure 8).
    pub requests_per_processor: f64,
    /// Tenants whose stacks 32 processors hold (Table 2).
    pub packed: f64,
}

/// The report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MultiplexingReport {
    /// Number of tenants.
    pub tenants: u16,
    /// What 99 of 100 requests may take, in milliseconds.
    pub p99: f64,
    /// TCP's congestion control.
    pub congestion_control: String,
    /// The trace: requests per second of each tenant in each step.
    pub trace: Vec<Vec<f64>>,
    /// Peak over mean of each tenant.
    pub burstiness: Vec<f64>,
    /// A stack each, and one for all.
    pub arrangements: [Reserved; 2],
    /// What must be reserved for the one, over what must be for the others.
    pub ratio: f64,
}

impl MultiplexingReport {
    /// For scripts.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// For a terminal.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{} tenants with bursty traffic (peak over mean: {}); P99 of each at most {} ms; congestion control: {}\n",
            self.tenants,
            list(&self.burstiness, 1),
            self.p99,
            self.congestion_control
        );
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<16}{:>22}{:>12}{:>20}{:>20}{:>10}{:>16}{:>16}",
            "stacks",
            "reserved, each",
            "together",
            "P99 ms, with it",
            "P99 ms, without",
            "CPU s",
            "requests/s/CPU",
            "on 32 CPUs"
        );
        for (name, one) in ["one each", "one for all"].iter().zip(&self.arrangements) {
            let _ = writeln!(
                text,
                "{name:<16}{:>22}{:>12.2}{:>20}{:>20}{:>10.2}{:>16.0}{:>16.0}",
                list(&one.quotas, 2),
                one.processors,
                list(&one.p99_with, 1),
                list(&one.p99_without, 1),
                one.cpu_seconds,
                one.requests_per_processor,
                one.packed
            );
        }
        let _ = writeln!(
            text,
            "one stack for all needs {:.2} x of what a stack each needs",
            self.ratio
        );
        text
    }
}

fn list(numbers: &[f64], digits: usize) -> String {
    let all: Vec<String> = numbers
        .iter()
        .map(|number| format!("{number:.digits$}"))
        .collect();
    all.join(", ")
}

impl MultiplexingArguments {
    /// Runs it and prints the report.
    pub fn execute(&self, netchannel: PathBuf, worker: &WorkerCommand) -> Result<bool, BenchError> {
        crate::repetitions::check(self.seconds, 1)?;
        let report = run(self, &netchannel, worker)?;
        self.shown.print(|| report.json(), || report.table())?;
        Ok(report.ratio.is_finite())
    }

    fn say(&self, text: &str) {
        if !self.shown.quiet {
            eprintln!("{text}");
        }
    }
}

/// To be called while the process has one thread only.
pub fn run(
    arguments: &MultiplexingArguments,
    netchannel: &Path,
    worker: &WorkerCommand,
) -> Result<MultiplexingReport, BenchError> {
    let _listening = interrupt::Listening::start();
    gain_rights()?;
    let hosts = Hosts::make_with(Cores::Shared)?;
    let congestion_control = congestion::set(&hosts, None)?;
    super::many_ports(&hosts.b)?;
    let directory = crate::temporary_directory()?;
    let steps = (1..).take_while(|step| f64::from(*step) * STEP <= arguments.seconds);
    let tenants = usize::from(arguments.tenants);
    let peak = f64::from(arguments.peak);
    let trace = trace::rates(arguments.seed, tenants, steps.count().max(1), peak);
    let mut reserved = Vec::new();
    for stacks in [tenants, 1] {
        let folder = directory.path().join(stacks.to_string());
        let arrangement = Arrangement::start(
            (netchannel, worker),
            (&hosts, &folder),
            (stacks, &congestion_control),
            &trace,
        )?;
        reserved.push(find(arguments, &arrangement, &trace)?);
    }
    let burstiness = trace.iter().map(|one| {
        let highest = one.iter().copied().fold(0.0, f64::max);
        highest / trace::mean(one)
    });
    let burstiness = burstiness.collect();
    let ratio = reserved[1].processors / reserved[0].processors;
    let [each, all] = <[Reserved; 2]>::try_from(reserved)
        .map_err(|_| BenchError::Options("two arrangements are compared".to_owned()))?;
    Ok(MultiplexingReport {
        tenants: arguments.tenants,
        p99: arguments.p99,
        congestion_control,
        trace,
        burstiness,
        arrangements: [each, all],
        ratio,
    })
}

/// Finds the quotas of an arrangement's stacks.
fn find(
    arguments: &MultiplexingArguments,
    arrangement: &Arrangement<'_>,
    trace: &[Vec<f64>],
) -> Result<Reserved, BenchError> {
    let count = arrangement.stacks();
    let play = |quotas: Option<&[f64]>| -> Result<Played, BenchError> {
        let told = quotas.map_or_else(|| "no quota".to_owned(), |quotas| list(quotas, 2));
        arrangement.limit(quotas).map_err(BenchError::Directory)?;
        pause(0.2)?;
        let played = arrangement.play(arguments.seconds).map_err(wrong)?;
        let p99 = list(&played.p99, 1);
        arguments.say(&format!("{count} stacks, {told}: P99 {p99} ms"));
        Ok(played)
    };
    let free = play(None)?;
    if let Some(worst) = free.p99.iter().find(|p99| **p99 > arguments.p99) {
        return Err(BenchError::Options(format!(
            "without a quota P99 is {worst:.1} ms already: give a larger --p99, or a smaller --peak"
        )));
    }
    let mut bounds = vec![(quota::LEAST, 1.0); count];
    while bounds.iter().any(|(low, high)| high - low > PRECISION) {
        let middle: Vec<f64> = bounds
            .iter()
            .map(|(low, high)| (low + high) / 2.0)
            .collect();
        let played = play(Some(&middle))?;
        for (number, ((low, high), middle)) in bounds.iter_mut().zip(middle).enumerate() {
            if arrangement.holds(number, &played, arguments.p99) {
                *high = middle;
            } else {
                *low = middle;
            }
        }
    }
    let mut quotas: Vec<f64> = bounds.iter().map(|(_, high)| *high).collect();
    let mut played = play(Some(&quotas))?;
    for _ in 0..CONFIRMATIONS {
        let mut is_enough = true;
        for (number, quota) in quotas.iter_mut().enumerate() {
            if !arrangement.holds(number, &played, arguments.p99) {
                *quota += PRECISION;
                is_enough = false;
            }
        }
        if is_enough {
            break;
        }
        played = play(Some(&quotas))?;
    }
    let processors: f64 = quotas.iter().sum();
    let rate: f64 = trace.iter().map(|one| trace::mean(one)).sum();
    Ok(Reserved {
        stacks: count,
        processors,
        cpu_seconds: free.cpu_seconds,
        p99_without: free.p99,
        p99_with: played.p99,
        requests_per_processor: rate / processors,
        packed: (PROCESSORS * f64::from(arguments.tenants) / processors).floor(),
        quotas,
    })
}
