//! `cargo xtask picture`: `docs/results.svg`, the picture of README, from `docs/measurements.csv`. Both are committed; a test compares them.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result, ensure};

use crate::workspace::Workspace;

/// One figure over kernel TCP and over NetChannel.
#[derive(Debug, PartialEq)]
struct Row {
    work: String,
    kernel: f64,
    netchannel: f64,
    unit: String,
    /// The ratio of NetChannel to kernel TCP.
    ratio: f64,
}

/// Rows that were measured alike.
#[derive(Debug, PartialEq)]
struct Group {
    conditions: String,
    rows: Vec<Row>,
}

/// Draws the picture; true when it existed already.
pub fn run(workspace: &Workspace) -> Result<bool> {
    let docs = workspace.root.join("docs");
    let drawn = drawn(&fs::read_to_string(docs.join("measurements.csv"))?)?;
    fs::write(docs.join("results.svg"), drawn)?;
    println!("{}", docs.join("results.svg").display());
    Ok(true)
}

fn drawn(measurements: &str) -> Result<String> {
    Ok(picture(&read(measurements)?))
}

fn read(text: &str) -> Result<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(['#']))
    {
        let cells: Vec<&str> = line.split(';').collect();
        match cells[..] {
            ["group", conditions] => groups.push(Group {
                conditions: conditions.to_owned(),
                rows: Vec::new(),
            }),
            ["work", ..] => {}
            [work, kernel, netchannel, unit, better] => {
                let number = |text: &str| {
                    text.parse::<f64>()
                        .with_context(|| format!("{text} is no number: {line}"))
                };
                let (kernel, netchannel) = (number(kernel)?, number(netchannel)?);
                ensure!(
                    matches!(better, "more" | "less"),
                    "more or less is better: {line}"
                );
                let ratio = if better == "more" {
                    netchannel / kernel
                } else {
                    kernel / netchannel
                };
                let group = groups
                    .last_mut()
                    .with_context(|| format!("of which group is {line}?"))?;
                group.rows.push(Row {
                    work: work.to_owned(),
                    kernel,
                    netchannel,
                    unit: unit.to_owned(),
                    ratio,
                });
            }
            _ => anyhow::bail!("not understood: {line}"),
        }
    }
    Ok(groups)
}

const WIDTH: f64 = 860.0;
/// The scale of the bars: ratios from a quarter to 32.
const LEFT: f64 = 330.0;
const RIGHT: f64 = 660.0;
const LEAST: f64 = 0.25;
const MOST: f64 = 32.0;
const LINE: f64 = 22.0;

/// The place of a ratio, by its logarithm.
fn place(ratio: f64) -> f64 {
    let share = (ratio.clamp(LEAST, MOST) / LEAST).log2() / (MOST / LEAST).log2();
    LEFT + share * (RIGHT - LEFT)
}

fn picture(groups: &[Group]) -> String {
    let lines: usize = groups.iter().map(|group| group.rows.len() + 2).sum();
    let height = 40.0 + LINE * (lines as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for mark in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0] {
        let (at, colour) = (place(mark), if mark == 1.0 { "#333333" } else { "#dddddd" });
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"26\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
            height - 8.0
        );
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"18\" text-anchor=\"middle\" fill=\"#555555\">{mark} x</text>"
        );
    }
    let mut at = 44.0;
    for group in groups {
        let _ = writeln!(
            svg,
            "<text x=\"10\" y=\"{at:.1}\" font-weight=\"bold\" fill=\"#222222\">{}</text>",
            escaped(&group.conditions)
        );
        at += LINE;
        for row in &group.rows {
            let (one, end) = (place(1.0), place(row.ratio));
            let colour = if row.ratio >= 1.0 {
                "#2a7f62"
            } else {
                "#c0504d"
            };
            let (from, width) = (one.min(end), (end - one).abs().max(1.0));
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{at:.1}\" text-anchor=\"end\" fill=\"#222222\">{}</text>",
                LEFT - 10.0,
                escaped(&row.work)
            );
            let _ = writeln!(
                svg,
                "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"14\" fill=\"{colour}\"/>",
                at - 11.0
            );
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{at:.1}\" fill=\"#222222\">{} x: {} to {} {}</text>",
                RIGHT + 10.0,
                shown(row.ratio),
                number(row.kernel),
                number(row.netchannel),
                escaped(&row.unit)
            );
            at += LINE;
        }
        at += LINE;
    }
    svg + "</svg>\n"
}

fn shown(ratio: f64) -> String {
    if ratio < 2.0 {
        format!("{ratio:.2}")
    } else {
        format!("{ratio:.1}")
    }
}

fn number(value: f64) -> String {
    if value >= 1000.0 {
        format!("{:.0}k", value / 1000.0)
    } else {
        format!("{value}")
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_picture_is_of_the_committed_measurements() {
        let docs = Workspace::find().unwrap().root.join("docs");
        let measurements = fs::read_to_string(docs.join("measurements.csv")).unwrap();
        let committed = fs::read_to_string(docs.join("results.svg")).unwrap();
        assert!(
            drawn(&measurements).unwrap() == committed,
            "docs/results.svg is old: cargo xtask picture"
        );
    }

    #[test]
    fn less_is_better_of_times() {
        let groups = read("group;here\na;10;5;us;less\nb;10;5;/s;more\n").unwrap();
        let ratios: Vec<f64> = groups[0].rows.iter().map(|row| row.ratio).collect();
        assert_eq!(ratios, [2.0, 0.5]);
        assert!(read("a;1;2;us;less\n").is_err(), "of no group");
        assert!(read("group;here\na;1;2;us;well\n").is_err());
    }
}
