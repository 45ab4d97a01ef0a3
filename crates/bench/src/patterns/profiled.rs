//! A profile of one run: `netchannel profile` beside it, which knows of which host each processor is.

use crate::error::RunError;
use crate::process::Process;
use crate::report::listed;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// It classifies its samples after the run.
const PATIENCE: Duration = Duration::from_secs(30);

/// Percent of the busy samples, by category.
pub type Shares = BTreeMap<String, f64>;

/// Takes a profile while a run is made.
pub struct Profiler<'a> {
    netchannel: &'a Path,
    directory: &'a Path,
    seconds: f64,
    /// Of the senders' host and of the receivers'.
    processors: [&'a [usize]; 2],
    /// What the last one showed: of all, and of each side.
    pub shares: Shares,
}

/// A profile that is being taken.
pub struct Profiling<'p, 'a> {
    profiler: &'p mut Profiler<'a>,
    process: Process,
    file: PathBuf,
}

impl<'a> Profiler<'a> {
    /// One for runs of this length.
    pub fn new(
        netchannel: &'a Path,
        directory: &'a Path,
        seconds: f64,
        processors: [&'a [usize]; 2],
    ) -> Self {
        Profiler {
            netchannel,
            directory,
            seconds,
            processors,
            shares: Shares::new(),
        }
    }

    /// Begins now, and ends before the run does.
    pub fn begin<'p>(&'p mut self) -> Result<Profiling<'p, 'a>, RunError> {
        let file = self.directory.join("profile.json");
        let mut command = Command::new(self.netchannel);
        command.args(["profile", "--system", "--json", "--for"]);
        command.arg(format!("{}s", self.seconds));
        command.arg("--output").arg(&file);
        let options = ["--sender-processors", "--receiver-processors"];
        for (option, processors) in options.into_iter().zip(self.processors) {
            if !processors.is_empty() {
                command.args([option, &listed(processors).replace(' ', "")]);
            }
        }
        let process = Process::start("netchannel profile", command, self.directory)?;
        Ok(Profiling {
            profiler: self,
            process,
            file,
        })
    }
}

impl Profiling<'_, '_> {
    /// Waits for it, and keeps what it shows.
    pub fn finish(&mut self) -> Result<(), RunError> {
        self.process.wait(PATIENCE)?;
        let text = std::fs::read_to_string(&self.file).map_err(RunError::Files)?;
        let _ = std::fs::remove_file(&self.file);
        let shown: Value = serde_json::from_str(&text)
            .map_err(|_| self.process.unreadable("a profile that is no JSON"))?;
        self.profiler.shares = shares(&shown["categories"]);
        Ok(())
    }
}

/// Counts of samples as parts of all of them.
fn shares(counts: &Value) -> Shares {
    let counts = counts.as_object().into_iter().flatten();
    let counts: Vec<(String, f64)> = counts
        .filter_map(|(name, count)| Some((name.clone(), count.as_f64()?)))
        .collect();
    let all: f64 = counts.iter().map(|(_, count)| count).sum();
    let percent = |(name, count): (String, f64)| (name, 100.0 * count / all.max(1.0));
    counts.into_iter().map(percent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_a_hundred() {
        let counts = serde_json::json!({"copy": 30, "tcp-ip": 10});
        let shares = shares(&counts);
        assert_eq!(shares["copy"], 75.0);
        assert_eq!(shares.values().sum::<f64>(), 100.0);
        assert!(super::shares(&Value::Null).is_empty());
    }
}
