//! The difference of two profiles.

use crate::report::Report;
use netchannel_taxonomy::Category;
use std::fmt::{self, Write};

/// Two profiles side by side: shares, how far apart they are, and whether that is more than chance or the spread of their runs explains.
///
/// # Errors
/// Never: writing into a text does not fail.
pub fn diff(a: &Report, b: &Report) -> Result<String, fmt::Error> {
    let mut text = String::new();
    for (letter, report) in [('A', a), ('B', b)] {
        writeln!(
            text,
            "{letter}: {}, {:.1} s, {} samples, Linux {}",
            report.target,
            report.seconds,
            report.categories.total(),
            report.kernel
        )?;
    }
    writeln!(
        text,
        "\n  {:<13}{:>8}{:>8}{:>9}",
        "category", "A %", "B %", "B - A"
    )?;
    for category in Category::BUSY {
        let (in_a, in_b) = (a.categories.share(category), b.categories.share(category));
        if in_a == 0.0 && in_b == 0.0 {
            continue;
        }
        let change = in_b - in_a;
        let noise = noise(a, category) + noise(b, category);
        let verdict = if change.abs() <= noise {
            "   within noise"
        } else {
            ""
        };
        let name = category.name();
        writeln!(
            text,
            "  {name:<13}{in_a:>8.1}{in_b:>8.1}{change:>+9.1}{verdict}"
        )?;
    }
    Ok(text)
}

/// Half the spread of the runs, or for a single run two standard deviations of a share of this many samples: in
/// percent.
fn noise(report: &Report, category: Category) -> f64 {
    if let Some((low, high)) = report.spread.get(&category) {
        return (high - low) / 2.0;
    }
    let samples = report.categories.total();
    if samples == 0 {
        return 100.0;
    }
    let share = report.categories.share(category) / 100.0;
    #[allow(
        clippy::cast_precision_loss,
        reason = "counts of samples are far below 2^53"
    )]
    let samples = samples as f64;
    200.0 * (share * (1.0 - share) / samples).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(copy: u64, other: u64) -> Report {
        let mut report = Report::default();
        report.categories.add(Category::Copy, copy);
        report.categories.add(Category::Other, other);
        report
    }

    #[test]
    fn a_change_is_told_apart_from_noise() {
        let far = diff(&report(500, 500), &report(700, 300)).unwrap();
        assert!(
            far.contains("copy             50.0    70.0    +20.0\n"),
            "{far}"
        );
        let near = diff(&report(500, 500), &report(510, 490)).unwrap();
        assert!(near.contains("+1.0   within noise"), "{near}");
    }

    #[test]
    fn the_spread_of_runs_is_their_noise() {
        let mut wide = report(500, 500);
        wide.spread.insert(Category::Copy, (20.0, 70.0));
        let text = diff(&wide, &report(700, 300)).unwrap();
        let line = text.lines().find(|line| line.contains("copy")).unwrap();
        assert!(line.ends_with("within noise"), "{text}");
    }
}
