//! The report of `netchannel bench patterns`: a block for each pattern, two lines for each row of it.

use super::cell::{Work, bytes_text};
use super::compared::{Direction, Runs, Spread};
use crate::host::Host;
use crate::measurement::Measurement;
use crate::options::Transport;
use crate::report::{Absence, Place};
use crate::table::{aligned, time_text};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Kernel TCP's runs first, then NetChannel's.
pub const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Netchannel];
/// Where a figure does not apply.
const NONE: &str = "-";

/// All that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PatternsReport {
    /// The machine.
    pub host: Host,
    /// The place of the programs.
    pub place: Place,
    /// Seconds of each run.
    pub seconds: f64,
    /// Runs of each transport.
    pub pairs: usize,
    /// The figures.
    pub rows: Vec<PatternRow>,
    /// The absent measurements, and the reasons.
    pub absent: Vec<Absence>,
    /// Whether the measurement was interrupted.
    pub interrupted: bool,
}

/// One pattern in one setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PatternRow {
    /// The work.
    pub work: Work,
    /// Over kernel TCP.
    pub kernel: Runs,
    /// Over NetChannel.
    pub netchannel: Runs,
    /// NetChannel's rate divided by kernel TCP's, of each pair.
    pub ratio: Option<Spread>,
}

impl PatternRow {
    /// From the runs of both.
    pub fn new(work: Work, [kernel, netchannel]: [Runs; 2]) -> Self {
        let ratio = Spread::of_ratios(&kernel, &netchannel, |one| Some(one.rate));
        PatternRow {
            work,
            kernel,
            netchannel,
            ratio,
        }
    }

    fn both(&self) -> [(&'static str, &Runs); 2] {
        let names = TRANSPORTS.map(Transport::name);
        [(names[0], &self.kernel), (names[1], &self.netchannel)]
    }
}

impl PatternsReport {
    /// Whether every run gave figures of what it was made for.
    pub fn is_complete(&self) -> bool {
        let good = |runs: &Runs| runs.failure.is_none() && runs.fallback.is_none();
        let mut rows = self.rows.iter();
        !self.rows.is_empty() && rows.all(|row| row.both().iter().all(|(_, runs)| good(runs)))
    }

    /// The report for programs.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self)
            .unwrap_or_else(|_| unreachable!("a report has nothing that JSON has not"))
    }

    /// The report for a terminal.
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", self.host.line());
        if let Some(line) = self.place.line() {
            let _ = writeln!(text, "{line}");
        }
        let (pairs, seconds) = (self.pairs, self.seconds);
        let _ = writeln!(
            text,
            "medians of {pairs} interleaved runs of {seconds} s; \"x TCP\" is the median ratio within a pair, with the lowest and \
             the highest\n"
        );
        let with_latency = self
            .rows
            .iter()
            .any(|row| row.kernel_or_other_has_latency());
        let mut lines = vec![head(with_latency)];
        for row in &self.rows {
            lines.extend(lines_of(row, with_latency));
        }
        text.push_str(&aligned(&lines));
        text.push_str(&self.shares());
        for row in &self.rows {
            for (name, runs) in row.both() {
                let work = &row.work;
                if let Some(reason) = &runs.fallback {
                    let _ = writeln!(text, "{work}: carried by kernel TCP ({reason})");
                }
                if let Some(reason) = &runs.failure {
                    let _ = writeln!(text, "FAILED: {work} over {name}: {reason}");
                }
            }
        }
        if !self.absent.is_empty() {
            text.push_str("\nnot measured:\n");
            for absence in &self.absent {
                let _ = writeln!(text, "  {}: {}", absence.what, absence.reason);
            }
        }
        if self.interrupted {
            text.push_str("\ninterrupted: this is what was done by then\n");
        }
        text
    }

    /// The shares of time of each profiled row.
    fn shares(&self) -> String {
        let all = || self.rows.iter().flat_map(PatternRow::both);
        let names: BTreeSet<&String> = all()
            .flat_map(|(_, runs)| runs.shares.iter().flat_map(|shares| shares.keys()))
            .collect();
        if names.is_empty() {
            return String::new();
        }
        let mut head = vec!["percent of busy samples".to_owned(), String::new()];
        head.extend(names.iter().map(|name| (*name).clone()));
        let mut lines = vec![head];
        for row in &self.rows {
            for (name, runs) in row.both() {
                if runs.shares.is_empty() {
                    continue;
                }
                let mut line = vec![row.work.to_string(), name.to_owned()];
                let share = |category: &&String| runs.share(category).unwrap_or(0.0);
                line.extend(names.iter().map(|name| format!("{:.1}", share(name))));
                lines.push(line);
            }
        }
        format!("\n{}", aligned(&lines))
    }
}

impl PatternRow {
    fn kernel_or_other_has_latency(&self) -> bool {
        let has = |runs: &Runs| runs.runs.iter().any(|run| run.latency.is_some());
        has(&self.kernel) || has(&self.netchannel)
    }
}

fn head(with_latency: bool) -> Vec<String> {
    let mut head = vec![
        "pattern", "flows", "size", "path", "", "Gbit/s", "x TCP", "",
    ];
    if with_latency {
        head.extend(["P50", "P99"]);
    }
    head.extend(["CPU/GB", "sender", "receiver", "kernel"]);
    head.into_iter().map(str::to_owned).collect()
}

fn lines_of(row: &PatternRow, with_latency: bool) -> Vec<Vec<String>> {
    let Work {
        pattern,
        flows,
        size,
        path,
    } = &row.work;
    let named = [
        pattern.name().to_owned(),
        if pattern.has_flows() {
            flows.to_string()
        } else {
            "1".to_owned()
        },
        bytes_text(*size),
        path.to_string(),
    ];
    let mut lines = Vec::new();
    for (index, (name, runs)) in row.both().into_iter().enumerate() {
        let Some(median) = runs.median() else {
            continue;
        };
        let mut line = if lines.is_empty() {
            named.to_vec()
        } else {
            vec![String::new(); named.len()]
        };
        line.push(name.to_owned());
        line.push(format!("{:.2}", median.rate));
        let ratio = (index == 1).then_some(row.ratio).flatten();
        line.extend(ratio.map_or([String::new(), String::new()], ratio_cells));
        if with_latency {
            let latency = median.latency;
            line.push(latency.map_or_else(|| NONE.to_owned(), |one| time_text(one.p50)));
            line.push(latency.map_or_else(|| NONE.to_owned(), |one| time_text(one.p99)));
        }
        line.extend(cpu_cells(&median));
        lines.push(line);
    }
    lines
}

fn ratio_cells(ratio: Spread) -> [String; 2] {
    let Spread { low, middle, high } = ratio;
    let spread = if low == high {
        // One pair has none.
        String::new()
    } else if ratio.direction() == Direction::WithinNoise {
        format!("{low:.2}-{high:.2} noise")
    } else {
        format!("{low:.2}-{high:.2}")
    };
    [format!("{middle:.2}"), spread]
}

fn cpu_cells(median: &Measurement) -> [String; 4] {
    let sides = median.sides;
    let seconds = |of: fn(&crate::measurement::Sides) -> f64| {
        sides
            .as_ref()
            .map_or_else(|| NONE.to_owned(), |sides| format!("{:.2} s", of(sides)))
    };
    [
        time_text(median.cpu_per_unit * 8.0 * 1e9),
        seconds(|sides| sides.client),
        seconds(|sides| sides.server),
        seconds(|sides| sides.kernel),
    ]
}
