//! The cost of a gigabyte and of an operation, as columns of the table.

use crate::report::{Report, percent};
use crate::work::Work;
use std::fmt::{self, Write};

/// The work, in words.
pub fn done(work: Work) -> String {
    let mut parts = Vec::new();
    if work.bytes > 0 {
        parts.push(format!("{:.2} GB", gigabytes(work)));
    }
    if work.operations > 0 {
        parts.push(format!("{} operations", work.operations));
    }
    parts.join(", ")
}

/// The heads of the columns.
pub fn heading(report: &Report, text: &mut String) -> fmt::Result {
    if report.work.is_some_and(|work| work.bytes > 0) {
        write!(text, "{:>9}", "ms/GB")?;
    }
    if report.work.is_some_and(|work| work.operations > 0) {
        write!(text, "{:>9}", "us/op")?;
    }
    Ok(())
}

/// The cost of a number of samples: milliseconds for a gigabyte, microseconds for an operation, as far as there were
/// any.
pub fn of(report: &Report, samples: u64, text: &mut String) -> fmt::Result {
    let Some(work) = report.work else {
        return Ok(());
    };
    let seconds = report.seconds_of(samples);
    if work.bytes > 0 {
        write!(text, "{:>9.1}", 1e3 * seconds / gigabytes(work))?;
    }
    if work.operations > 0 {
        let operations = percent(work.operations, 1) / 100.0;
        write!(text, "{:>9.2}", 1e6 * seconds / operations)?;
    }
    Ok(())
}

fn gigabytes(work: Work) -> f64 {
    percent(work.bytes, 1_000_000_000) / 100.0
}
