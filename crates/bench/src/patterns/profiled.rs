//! A profile of one run: `netchannel profile` beside it, which knows the host of each processor.

use crate::error::RunError;
use crate::process::Process;
use crate::report::listed;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The time for classifying the samples after the run.
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
    /// The shares in the last profile: of all samples, and of each side.
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
        // A run is short: what the samples cost it is less than what too few of them would hide.
        command.args([
            "profile",
            "--system",
            "--json",
            "--frequency",
            "999",
            "--for",
        ]);
        command.arg(format!("{}s", self.seconds));
        command.arg("--output").arg(&file);
        let options = ["--sender-processors", "--receiver-processors"];
        for (option, processors) in options.into_iter().zip(self.processors) {
            if !processors.is_empty() {
                command.args([option, &listed(processors).replace(' ', "")]);
            }
        }
        let mut process = Process::start("netchannel profile", command, self.directory)?;
        // It reports when it measures.
        process.await_word(PATIENCE)?;
        Ok(Profiling {
            profiler: self,
            process,
            file,
        })
    }
}

impl Profiling<'_, '_> {
    /// Waits for it, and keeps what it shows of programs that have one of these processes, and of the kernel's threads that move
    /// packets.
    pub fn finish(&mut self, processes: &[libc::pid_t]) -> Result<(), RunError> {
        self.process.wait(PATIENCE)?;
        let text = std::fs::read_to_string(&self.file).map_err(RunError::Files)?;
        let _ = std::fs::remove_file(&self.file);
        let shown: Value = serde_json::from_str(&text)
            .map_err(|_| self.process.unreadable("a profile that is no JSON"))?;
        self.profiler.shares = shares(&shown, processes);
        Ok(())
    }
}

/// Other programs on the machine are left out, as far as they have other names.
fn shares(shown: &Value, processes: &[libc::pid_t]) -> Shares {
    let is_ours = |program: &&Value| {
        let name = program["name"].as_str().unwrap_or_default();
        let has = |process: &Value| {
            let process = process.as_i64().and_then(|number| number.try_into().ok());
            process.is_some_and(|process| processes.contains(&process))
        };
        let of_program = program["processes"].as_array().into_iter().flatten();
        // A profile has the threads of all processors and devices as one.
        matches!(name, "ksoftirqd" | "napi") || of_program.into_iter().any(has)
    };
    let mut counts = Shares::new();
    let programs = shown["programs"].as_array().into_iter().flatten();
    for program in programs.filter(is_ours) {
        for (name, count) in program["categories"].as_object().into_iter().flatten() {
            *counts.entry(name.clone()).or_default() += count.as_f64().unwrap_or(0.0);
        }
    }
    let all: f64 = counts.values().sum();
    let percent = |(name, count)| (name, 100.0 * count / all.max(1.0));
    counts.into_iter().map(percent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_a_hundred_and_are_of_our_programs() {
        let shown = serde_json::json!({"programs": [
            {"name": "netchannel", "processes": [7, 8], "categories": {"copy": 30, "tcp-ip": 8}},
            {"name": "ksoftirqd", "processes": [3], "categories": {"tcp-ip": 2}},
            {"name": "cc", "processes": [9], "categories": {"program": 500}},
        ]});
        let shares = shares(&shown, &[8]);
        assert_eq!(shares["copy"], 75.0);
        assert_eq!(shares.values().sum::<f64>(), 100.0);
        assert!(super::shares(&Value::Null, &[8]).is_empty());
    }
}
