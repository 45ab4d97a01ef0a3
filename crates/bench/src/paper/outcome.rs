//! The results of each figure, kept in a file so that an interrupted run can continue.

use super::figure::Paper;
use super::verdict::Verdict;
use crate::error::BenchError;
use crate::host::Host;
use crate::patterns::compared::Spread;
use crate::report::Place;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The result of one figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The word on the command line.
    pub name: String,
    /// The paper.
    pub paper: Paper,
    /// Which figure or table.
    pub of: String,
    /// The place in the text.
    pub place: String,
    /// The claim.
    pub claim: String,
    /// The claim in short.
    pub value: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Why, where it could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The result over kernel TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Found>,
    /// The result over NetChannel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netchannel: Option<Found>,
    /// The judged value: a ratio, or a share relative to the paper's; the range of its true median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<Spread>,
}

/// A figure of ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// It.
    pub value: Spread,
    /// As people read it.
    pub text: String,
}

/// All that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PaperReport {
    /// The machine.
    pub host: Host,
    /// The place of the programs; `None` where nothing was run.
    pub place: Option<Place>,
    /// Seconds of each run.
    pub seconds: f64,
    /// Runs of each cell.
    pub pairs: usize,
    /// In the order of the papers.
    pub outcomes: Vec<Outcome>,
    /// Whether the measurement was interrupted.
    pub interrupted: bool,
}

/// The results so far, and the setting for which they hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    version: String,
    kernel: String,
    processors: usize,
    seconds: f64,
    pairs: usize,
    setting: String,
    outcomes: Vec<Outcome>,
}

impl Kept {
    /// Nothing yet.
    pub fn new(seconds: f64, pairs: usize, setting: String) -> Self {
        let host = Host::this();
        Kept {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: host.kernel,
            processors: host.processors,
            seconds,
            pairs,
            setting,
            outcomes: Vec::new(),
        }
    }

    /// Goes on with what a file has, if that was found in the same way.
    pub fn resume(&mut self, file: &Path) {
        let text = fs::read_to_string(file).unwrap_or_default();
        let Ok(mut former) = serde_json::from_str::<Kept>(&text) else {
            return;
        };
        let outcomes = std::mem::take(&mut former.outcomes);
        if former == *self {
            self.outcomes = outcomes;
        }
    }

    /// The result of a figure.
    pub fn of(&self, name: &str) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| outcome.name == name)
    }

    /// Adds a result in the place of a former one, and writes the file: completely, or not at all.
    pub fn add(&mut self, outcome: Outcome, file: &Path) -> Result<(), BenchError> {
        self.outcomes.retain(|former| former.name != outcome.name);
        self.outcomes.push(outcome);
        let text = serde_json::to_string_pretty(self)
            .unwrap_or_else(|_| unreachable!("outcomes have nothing that JSON has not"));
        write_whole(file, &text).map_err(|source| BenchError::File {
            path: file.to_owned(),
            source,
        })
    }
}

/// Whether a file can be written in the way it will be, without changing it.
pub fn check(file: &Path) -> Result<(), BenchError> {
    let name = beside(file);
    let was_there = name.exists();
    let tried = match fs::metadata(file) {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&name)
            .map(drop),
    };
    if tried.is_ok() && !was_there {
        // A file that can not be removed is overwritten later.
        let _ = fs::remove_file(&name);
    }
    tried.map_err(|source| BenchError::File {
        path: file.to_owned(),
        source,
    })
}

/// The name under which a file is written before it takes its own.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn write_whole(file: &Path, text: &str) -> io::Result<()> {
    let name = beside(file);
    fs::write(&name, text)?;
    fs::rename(&name, file)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn outcome(name: &str, verdict: Verdict) -> Outcome {
        let value = Spread {
            low: 0.4,
            middle: 0.5,
            high: 0.75,
        };
        Outcome {
            name: name.to_owned(),
            paper: Paper::Study,
            of: "Figure 13(a)".to_owned(),
            place: "section 3.10".to_owned(),
            claim: "little <changes>".to_owned(),
            value: "the same".to_owned(),
            verdict,
            reason: None,
            kernel: Some(Found {
                value,
                text: "x 0.50".to_owned(),
            }),
            netchannel: None,
            judged: Some(value),
        }
    }

    #[test]
    fn a_run_goes_on_only_where_the_last_one_was_like_it() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("kept.json");
        let mut first = Kept::new(0.5, 5, "own".to_owned());
        first
            .add(outcome("study-13", Verdict::Differs), &file)
            .unwrap();
        first
            .add(outcome("study-13", Verdict::WithinNoise), &file)
            .unwrap();
        let mut second = Kept::new(0.5, 5, "own".to_owned());
        second.resume(&file);
        let found = second.of("study-13").unwrap();
        assert_eq!(found.verdict, Verdict::WithinNoise);
        for other in [
            Kept::new(0.5, 3, "own".to_owned()),
            Kept::new(0.5, 5, "shared".to_owned()),
        ] {
            let mut other = other;
            other.resume(&file);
            assert_eq!(other.of("study-13"), None);
        }
        let nowhere = place.path().join("no/such/folder");
        assert!(first.add(outcome("x", Verdict::Differs), &nowhere).is_err());
        // It is said beforehand, and nothing is left of asking.
        for wrong in [nowhere.as_path(), place.path()] {
            let refused = check(wrong).unwrap_err().to_string();
            assert!(refused.contains(wrong.to_str().unwrap()), "{refused}");
        }
        let before = fs::read(&file).unwrap();
        check(&file).unwrap();
        assert_eq!(fs::read(&file).unwrap(), before);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
