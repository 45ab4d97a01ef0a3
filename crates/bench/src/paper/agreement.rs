//! Whether two reports say the same of each figure.

use super::outcome::Outcome;
use super::verdict::Verdict;
use crate::error::BenchError;
use crate::table::aligned;
use serde::Deserialize;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// At most one of this many measured figures should be within noise.
const ONE_OF: usize = 5;

/// The result in a report, or in the file of results.
#[derive(Debug, Deserialize)]
struct ReportedResults {
    outcomes: Vec<Outcome>,
}

/// Two reports side by side.
#[derive(Debug)]
pub struct Agreement {
    both: [Vec<Outcome>; 2],
}

impl Agreement {
    /// Of two files.
    pub fn of(files: [&Path; 2]) -> Result<Self, BenchError> {
        let [a, b] = files.map(read);
        Ok(Agreement { both: [a?, b?] })
    }

    /// Figures on which the two contradict each other. A figure within noise contradicts nothing.
    fn contradictions(&self) -> Vec<&str> {
        let [a, b] = &self.both;
        let contradicts = |one: &&Outcome| {
            let other = b.iter().find(|other| other.name == one.name);
            let is_open = |verdict| verdict == Verdict::WithinNoise;
            other.is_some_and(|other| {
                one.verdict != other.verdict && !is_open(one.verdict) && !is_open(other.verdict)
            })
        };
        let names = a.iter().filter(contradicts);
        names.map(|outcome| outcome.name.as_str()).collect()
    }

    /// Figures that only one of them has.
    fn missing(&self) -> Vec<&str> {
        let [a, b] = &self.both;
        let alone =
            |of: &Outcome, others: &[Outcome]| others.iter().all(|other| other.name != of.name);
        let of_a = a.iter().filter(|one| alone(one, b));
        let of_b = b.iter().filter(|one| alone(one, a));
        of_a.chain(of_b)
            .map(|outcome| outcome.name.as_str())
            .collect()
    }

    /// Whether they say the same, and enough.
    pub fn is_good(&self) -> bool {
        let tell = self.both.iter().all(|outcomes| {
            let (open, judged) = open(outcomes);
            judged > 0 && ONE_OF * open <= judged
        });
        tell && self.contradictions().is_empty() && self.missing().is_empty()
    }

    /// All figures that were judged, and what follows.
    pub fn table(&self) -> String {
        let [a, b] = &self.both;
        let contradictions = self.contradictions();
        let mut lines = vec![["figure", "A", "B", ""].map(str::to_owned).to_vec()];
        for one in a.iter().filter(|one| is_judged(one)) {
            let other = b.iter().find(|other| other.name == one.name);
            lines.push(vec![
                one.name.clone(),
                cell(one),
                other.map_or_else(|| "-".to_owned(), cell),
                if contradictions.contains(&one.name.as_str()) {
                    "CONTRADICT EACH OTHER".to_owned()
                } else {
                    String::new()
                },
            ]);
        }
        let mut text = aligned(&lines);
        // Writing to a String cannot fail.
        let _ = writeln!(text);
        for (letter, outcomes) in [("A", a), ("B", b)] {
            let (open, judged) = open(outcomes);
            let _ = writeln!(
                text,
                "{letter}: {open} of {judged} judged figures within noise (at most one of {ONE_OF} is wanted)"
            );
        }
        let missing = self.missing();
        if !missing.is_empty() {
            let _ = writeln!(text, "in one of them only: {}", missing.join(", "));
        }
        let _ = match contradictions.len() {
            0 => writeln!(text, "no contradiction"),
            count => writeln!(
                text,
                "{count} contradictions: {}",
                contradictions.join(", ")
            ),
        };
        text
    }
}

fn read(file: &Path) -> Result<Vec<Outcome>, BenchError> {
    let unreadable = |reason: String| {
        let file = file.display();
        BenchError::Options(format!(
            "{file} is no report that `netchannel bench paper` wrote with --json or --state: {reason}"
        ))
    };
    let text = fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
    let results: ReportedResults =
        serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
    Ok(results.outcomes)
}

fn is_judged(outcome: &Outcome) -> bool {
    matches!(
        outcome.verdict,
        Verdict::SameDirection | Verdict::Differs | Verdict::WithinNoise | Verdict::Failed
    )
}

/// The number of figures within noise, and the number of judged ones.
fn open(outcomes: &[Outcome]) -> (usize, usize) {
    let judged = outcomes.iter().filter(|outcome| is_judged(outcome));
    let open = outcomes
        .iter()
        .filter(|outcome| outcome.verdict == Verdict::WithinNoise);
    (open.count(), judged.count())
}

fn cell(outcome: &Outcome) -> String {
    let spread = outcome.judged.map(|spread| {
        format!(
            " {:.2} ({:.2} to {:.2})",
            spread.middle, spread.low, spread.high
        )
    });
    outcome.verdict.text().to_owned() + &spread.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::outcome;
    use super::*;

    fn agreement(a: &[Verdict], b: &[Verdict]) -> Agreement {
        let all = |verdicts: &[Verdict]| {
            let named = verdicts.iter().enumerate();
            let one = |(place, verdict): (usize, &Verdict)| outcome(&place.to_string(), *verdict);
            named.map(one).collect()
        };
        Agreement {
            both: [all(a), all(b)],
        }
    }

    #[test]
    fn only_what_is_within_noise_may_change() {
        use Verdict::{Differs, NotBuiltYet, SameDirection, WithinNoise};
        let first = [
            SameDirection,
            Differs,
            Differs,
            Differs,
            Differs,
            NotBuiltYet,
        ];
        let mut second = first;
        assert!(agreement(&first, &second).is_good());
        second[0] = WithinNoise;
        assert!(agreement(&first, &second).is_good());
        second[1] = WithinNoise;
        let too_many = agreement(&first, &second);
        assert!(!too_many.is_good() && too_many.contradictions().is_empty());
        second = first;
        second[0] = Differs;
        let other = agreement(&first, &second);
        assert!(!other.is_good());
        assert!(
            other.table().contains("1 contradictions: 0"),
            "{}",
            other.table()
        );
        assert_eq!(agreement(&first, &first[1..]).missing(), ["5"]);
    }

    #[test]
    fn what_is_no_report_is_told() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("a.json");
        fs::write(&file, "{}").unwrap();
        let refused = Agreement::of([&file, &file]).unwrap_err().to_string();
        assert!(refused.contains("is no report"), "{refused}");
    }
}
