//! The report for a terminal, for programs, and for a browser: one file that opens without a network.

use super::figure::Paper;
use super::outcome::{Found, Outcome, PaperReport};
use super::verdict::Verdict;
use crate::table::aligned;
use std::fmt::Write;

/// Pixels of the longest bar.
const LONGEST: f64 = 260.0;

impl PaperReport {
    /// Whether nothing failed.
    pub fn is_complete(&self) -> bool {
        let mut outcomes = self.outcomes.iter();
        outcomes.all(|outcome| outcome.verdict != Verdict::Failed)
    }

    /// The report for programs.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self)
            .unwrap_or_else(|_| unreachable!("a report has nothing that JSON has not"))
    }

    fn heading(&self) -> Vec<String> {
        let mut lines = vec![self.host.line()];
        lines.extend(self.place.as_ref().and_then(crate::report::Place::line));
        let (pairs, seconds) = (self.pairs, self.seconds);
        lines.push(format!(
            "{pairs} interleaved runs of {seconds} s; median (lowest to highest)"
        ));
        if self.interrupted {
            lines.push("interrupted: this is what was done by then".to_owned());
        }
        lines
    }

    fn of(&self, paper: Paper) -> impl Iterator<Item = &Outcome> {
        let outcomes = self.outcomes.iter();
        outcomes.filter(move |outcome| outcome.paper == paper)
    }

    /// The report for a terminal.
    pub fn table(&self) -> String {
        let mut text = self.heading().join("\n") + "\n";
        for paper in Paper::ALL {
            if self.of(paper).next().is_none() {
                continue;
            }
            let head = ["figure", "paper", "kernel TCP", "NetChannel", "verdict"];
            let mut lines = vec![head.map(str::to_owned).to_vec()];
            for outcome in self.of(paper) {
                lines.push(vec![
                    outcome.name.clone(),
                    outcome.value.clone(),
                    cell(outcome.kernel.as_ref()),
                    cell(outcome.netchannel.as_ref()),
                    outcome.verdict.text().to_owned(),
                ]);
            }
            // Writing to a String cannot fail.
            let _ = write!(text, "\n{}\n{}", paper.title(), aligned(&lines));
            for outcome in self.of(paper) {
                if let Some(reason) = &outcome.reason {
                    let _ = writeln!(text, "  {}: {reason}", outcome.name);
                }
            }
        }
        text
    }

    /// The report for a browser.
    pub fn html(&self) -> String {
        let mut text = String::from(HEAD);
        for line in self.heading() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "<p>{}</p>", escaped(&line));
        }
        for paper in Paper::ALL {
            if self.of(paper).next().is_none() {
                continue;
            }
            let _ = writeln!(text, "<h2>{}</h2>\n<table>", escaped(paper.title()));
            text.push_str(
                "<tr><th>figure</th><th>the paper</th><th>here</th><th>verdict</th></tr>\n",
            );
            for outcome in self.of(paper) {
                text.push_str(&row(outcome));
            }
            text.push_str("</table>\n");
        }
        text.push_str("</body></html>\n");
        text
    }
}

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>The papers' figures</title>
<style>
body { font: 15px/1.4 sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .5em .7em; border-bottom: 1px solid #ddd; }
.same-direction { color: #1a7f37; } .differs, .failed { color: #b3261e; }
.within-noise, .not-measured-yet, .not-comparable, .not-measurable, .not-built-yet { color: #777; }
</style></head><body>
<h1>The papers' figures</h1>
";

fn cell(found: Option<&Found>) -> String {
    found.map_or_else(|| "-".to_owned(), |found| found.text.clone())
}

fn row(outcome: &Outcome) -> String {
    let Outcome {
        name,
        of,
        place,
        claim,
        value,
        verdict,
        ..
    } = outcome;
    let class = verdict.text().replace(" here", "").replace(' ', "-");
    let reason = outcome.reason.as_deref().unwrap_or_default();
    format!(
        "<tr><td>{}<br>{}, {}</td><td>{}<br><b>{}</b></td><td>{}</td><td class=\"{class}\">{}<br>{}</td></tr>\n",
        escaped(name),
        escaped(of),
        escaped(place),
        escaped(claim),
        escaped(value),
        bars(outcome),
        verdict.text(),
        escaped(reason),
    )
}

/// A bar for each transport, with a line from the lowest to the highest of its runs.
fn bars(outcome: &Outcome) -> String {
    let both = [
        ("kernel TCP", "#8a8f98", &outcome.kernel),
        ("NetChannel", "#2f6fde", &outcome.netchannel),
    ];
    let found = both.iter().filter_map(|(_, _, found)| found.as_ref());
    let highest = found.map(|found| found.value.high).fold(0.0, f64::max);
    if highest <= 0.0 {
        return String::new();
    }
    let mut text = String::from("<svg width=\"480\" height=\"78\" role=\"img\">");
    let mut y = 0;
    for (name, colour, found) in both {
        let Some(found) = found else {
            continue;
        };
        let [low, middle, high] = [found.value.low, found.value.middle, found.value.high]
            .map(|value| value / highest * LONGEST);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "<text x=\"0\" y=\"{}\" font-size=\"12\">{name}: {}</text>\
             <rect x=\"0\" y=\"{}\" width=\"{middle:.1}\" height=\"12\" fill=\"{colour}\"/>\
             <line x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{}\" y2=\"{}\" stroke=\"#222\"/>",
            y + 12,
            escaped(&found.text),
            y + 17,
            y + 23,
            y + 23,
        );
        y += 39;
    }
    text.push_str("</svg>");
    text
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::outcome;
    use super::*;
    use crate::host::Host;

    #[test]
    fn a_page_has_all_that_was_found_and_nothing_from_elsewhere() {
        let report = PaperReport {
            host: Host::this(),
            place: None,
            seconds: 0.5,
            pairs: 5,
            outcomes: vec![outcome("study-13", Verdict::Differs)],
            interrupted: true,
        };
        let html = report.html();
        assert!(html.contains("study-13") && html.contains("class=\"differs\""));
        assert!(html.contains("little &lt;changes&gt;") && html.contains("<svg"));
        assert!(!html.contains("http") && !html.contains("src="));
        let table = report.table();
        assert!(table.contains("differs") && table.contains("interrupted"));
        assert!(report.is_complete());
    }
}
