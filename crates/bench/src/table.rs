//! The report as text: a block for each case, a line for each transport.

use crate::case::Case;
use crate::measurement::{Latency, Measurement};
use crate::report::{CaseReport, Report, Row};
use std::fmt::Write;

/// Where a figure does not apply.
const NONE: &str = "-";

impl Report {
    /// The report for a terminal.
    pub fn table(&self) -> String {
        render(self)
    }
}

fn render(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", report.host.line());
    if let Some(line) = report.place.line() {
        let _ = writeln!(text, "{line}");
    }
    let method = report.method();
    let _ = writeln!(
        text,
        "{method}; \"x TCP\" is the median ratio within a pair"
    );
    for case in &report.cases {
        text.push('\n');
        text.push_str(&case_block(case));
    }
    if !report.absent.is_empty() {
        text.push_str("\nnot measured:\n");
        for absence in &report.absent {
            let _ = writeln!(text, "  {}: {}", absence.what, absence.reason);
        }
    }
    if !report.failures.is_empty() {
        text.push_str("\nFAILED:\n");
        for failure in &report.failures {
            let (experiment, transport) = (failure.experiment, failure.transport);
            let _ = writeln!(text, "  {experiment} over {transport}: {}", failure.reason);
        }
    }
    text
}

fn case_block(case: &CaseReport) -> String {
    let mut heading = case.title.to_owned();
    if let Some(what) = case.latency_of {
        let _ = write!(heading, "; latency: {what}");
    }
    let per_unit = if case.case.is_throughput() {
        "CPU/GB"
    } else {
        "CPU/op"
    };
    let two_hosts = case.rows.iter().any(|row| row.median.sides.is_some());
    let mut lines = vec![vec![
        case.case.name().to_owned(),
        case.unit.to_owned(),
        "x TCP".to_owned(),
        "P50".to_owned(),
        "x TCP".to_owned(),
        "P99".to_owned(),
        "x TCP".to_owned(),
        "P99.9".to_owned(),
        "x TCP".to_owned(),
        "CPU".to_owned(),
        per_unit.to_owned(),
        "x TCP".to_owned(),
    ]];
    if two_hosts {
        let sides = ["client", "server", "kernel"];
        lines[0].extend(sides.map(str::to_owned));
    }
    lines.extend(case.rows.iter().map(|row| cells(case.case, row)));
    if case.latency_of.is_none() {
        for line in &mut lines {
            line.drain(3..9);
        }
    }
    let mut text = format!("{heading}\n{}", aligned(&lines));
    if let Some(note) = case.note {
        let _ = writeln!(text, "  ({note})");
    }
    for row in &case.rows {
        if let Some(reason) = &row.fallback {
            let _ = writeln!(
                text,
                "  (asked to go over {}, carried by kernel TCP: {reason})",
                row.transport
            );
        }
    }
    text
}

fn cells(case: Case, row: &Row) -> Vec<String> {
    let Measurement {
        rate,
        latency,
        cpu_seconds,
        ..
    } = row.median;
    let ratio = |part: fn(&Measurement) -> Option<f64>| {
        row.ratio_to_tcp
            .as_ref()
            .and_then(part)
            .map_or_else(|| NONE.to_owned(), ratio_text)
    };
    let time = |part: fn(&Latency) -> f64| {
        latency
            .as_ref()
            .map_or_else(|| NONE.to_owned(), |latency| time_text(part(latency)))
    };
    let mut cells = vec![
        row.name().to_owned(),
        rate_text(case, rate),
        ratio(|ratio| Some(ratio.rate)),
        time(|latency| latency.p50),
        ratio(|ratio| ratio.latency.map(|latency| latency.p50)),
        time(|latency| latency.p99),
        ratio(|ratio| ratio.latency.map(|latency| latency.p99)),
        time(|latency| latency.p999),
        ratio(|ratio| ratio.latency.map(|latency| latency.p999)),
        format!("{cpu_seconds:.2} s"),
        time_text(cost(case, &row.median) * 1e9),
        ratio(|ratio| Some(ratio.cpu_per_unit)),
    ];
    if let Some(sides) = row.median.sides {
        let seconds = [sides.client, sides.server, sides.kernel];
        cells.extend(seconds.map(|seconds| format!("{seconds:.2} s")));
    }
    cells
}

/// CPU seconds for a unit that people have a feeling for: a gigabyte, an operation.
pub fn cost(case: Case, measured: &Measurement) -> f64 {
    if case.is_throughput() {
        measured.cpu_per_unit * 8.0
    } else {
        measured.cpu_per_unit
    }
}

/// The first column to the left, all others to the right.
pub fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in lines {
        let mut cells = line.iter().zip(&widths);
        if let Some((first, width)) = cells.next() {
            let _ = write!(text, "  {first:<width$}");
        }
        for (cell, width) in cells {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

/// A rate without its unit.
pub fn rate_text(case: Case, rate: f64) -> String {
    if case.is_throughput() {
        format!("{rate:.1}")
    } else {
        with_thousands(&format!("{rate:.0}"))
    }
}

/// A rate's text and its unit.
pub fn with_unit(case: Case, rate: &str) -> String {
    format!("{rate} {}", case.unit())
}

fn with_thousands(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Nanoseconds with three digits and the unit that suits them.
pub fn time_text(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        value if value < 999.5 => (value, "ns"),
        value if value < 999.5e3 => (value / 1e3, "µs"),
        value if value < 999.5e6 => (value / 1e6, "ms"),
        value => (value / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// A ratio with three digits.
pub fn ratio_text(ratio: f64) -> String {
    three_digits(ratio)
}

fn three_digits(value: f64) -> String {
    match value {
        value if value < 0.099_95 => format!("{value:.4}"),
        value if value < 0.9995 => format!("{value:.3}"),
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn figures_have_three_digits() {
        let times = [654.0, 999.6, 9_876.0, 1_735_000.0, 2.5e9];
        assert_eq!(
            times.map(time_text),
            ["654 ns", "1.00 µs", "9.88 µs", "1.74 ms", "2.50 s"]
        );
        assert_eq!(
            [0.0662, 0.9996, 4.0, 17.53].map(ratio_text),
            ["0.0662", "1.00", "4.00", "17.5"]
        );
    }

    #[test]
    fn rates_are_grouped_in_thousands() {
        let rates = [7.4, 999.0, 1000.0, 123_456.7, 1_234_567.0];
        let texts = rates.map(|rate| rate_text(Case::Connections, rate));
        assert_eq!(texts, ["7", "999", "1,000", "123,457", "1,234,567"]);
        assert_eq!(rate_text(Case::Stream, 27.06), "27.1");
    }

    #[test]
    fn the_report_looks_like_this() {
        let expected = "\
Linux 6.1.0, 2 CPUs (Some CPU)
medians of 2 interleaved runs of 0.5 s; \"x TCP\" is the median ratio within a pair

One stream, 128 KiB calls
  stream      Gbit/s  x TCP     CPU  CPU/GB  x TCP
  kernel TCP    21.0   1.00  1.50 s  573 ms   1.00
  AF_UNIX       52.5   2.50  1.50 s  229 ms  0.400
  NetChannel   105.0   5.00  1.50 s  115 ms  0.200

Ping-pong, 64 bytes; latency: one way (round trip / 2)
  pingpong    round trips/s  x TCP      P50   x TCP      P99   x TCP    P99.9   x TCP     CPU   CPU/op  x TCP
  kernel TCP         24,680   1.00  10.4 µs    1.00  20.7 µs    1.00   104 µs    1.00  0.75 s  30.4 µs   1.00
  AF_UNIX            61,700   2.50  7.35 µs   0.709  14.7 µs   0.709  73.5 µs   0.709  0.75 s  12.2 µs  0.400
  NetChannel        123,400   5.00   687 ns  0.0662  1.37 µs  0.0662  6.87 µs  0.0662  0.75 s  6.08 µs  0.200

not measured:
  redis: redis-server is not installed

FAILED:
  connections over AF_UNIX: wrong byte in a reply
";
        assert_eq!(render(&sample()), expected);
    }
}
