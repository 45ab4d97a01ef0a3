//! The results of a run: each kind of difference once, as text or JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::c;
use super::compare::{Comparison, Seen, signature};
use super::coverage::Coverage;
use super::difference::Difference;
use super::program::Program;
use super::quoted::quoted;

/// One kind of difference.
pub struct Finding {
    pub signature: String,
    pub number: u64,
    pub seed: u64,
    pub program: Program,
    pub difference: Difference,
    /// The observations of its shortest program over kernel TCP.
    pub kernel: Seen,
    pub times: u64,
}

/// All results of a run.
#[derive(Default)]
pub struct Report {
    cases: u64,
    steps: u64,
    judged: u64,
    unsteady: u64,
    /// Programs that were run more than once.
    again: u64,
    excused: Excuses,
    findings: Vec<Finding>,
    /// How often each signature was seen. Its finding may still be in preparation.
    known: BTreeMap<String, u64>,
    lost: Vec<String>,
    /// Differences that too few runs of a program show to be sure of them. They are printed, and do not fail the run.
    seldom: Vec<String>,
    pub coverage: Coverage,
    pub elapsed: Duration,
    /// Descriptors that the daemon still holds for ended programs.
    pub daemon: Option<String>,
}

impl Report {
    /// Counts a case. True if its difference is known.
    pub fn count(&mut self, program: &Program, comparison: &Comparison, number: u64) -> bool {
        self.cases += 1;
        self.steps += program.steps.len() as u64;
        self.judged += comparison.judged as u64;
        self.unsteady += comparison.unsteady as u64;
        self.again += u64::from(comparison.again);
        for rule in &comparison.excused {
            *self.excused.entry(rule.line).or_default() += 1;
        }
        let Some(difference) = &comparison.difference else {
            return false;
        };
        if difference.seldom {
            self.seldom.push(format!(
                "case {number}: {}: {} / {}",
                program.steps[difference.place], difference.kernel, difference.other
            ));
            return true;
        }
        let times = self
            .known
            .entry(signature(program, difference))
            .or_default();
        *times += 1;
        if *times == 1 {
            eprintln!(
                "case {number}: {}: {} / {}",
                program.steps[difference.place], difference.kernel, difference.other
            );
        }
        *times > 1
    }

    pub fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    pub fn lost(&mut self, program: &Program, number: u64, error: &str) {
        eprintln!("case {number}: {error}\n{program}");
        self.lost.push(format!("case {number}: {error}"));
    }

    pub fn findings(&self) -> usize {
        self.findings.len()
    }

    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.lost.is_empty() && self.daemon.is_none()
    }

    fn times(&self, finding: &Finding) -> u64 {
        self.known
            .get(&finding.signature)
            .copied()
            .unwrap_or(finding.times)
    }

    /// Prints all results.
    pub fn print(&self, json: bool, coverage: bool, seed: u64) {
        if json {
            println!("{}", self.json(seed));
            return;
        }
        for (index, finding) in self.findings.iter().enumerate() {
            println!("{}", self.text(index, finding));
        }
        if coverage {
            println!("{}", self.coverage.text());
        }
        for line in self.lost.iter().chain(&self.daemon) {
            println!("LOST {line}");
        }
        for line in &self.seldom {
            println!("now and then: {line}");
        }
        for (line, times) in &self.excused {
            println!("kept by {line}: {times} times");
        }
        println!(
            "{} calls: {} cases, seed {seed}, {} steps, {} compared, {} not steady over kernel TCP, {} programs run again, {} differences, {:.1} s",
            if self.is_clean() { "PASS" } else { "FAIL" },
            self.cases,
            self.steps,
            self.judged,
            self.unsteady,
            self.again,
            self.findings.len(),
            self.elapsed.as_secs_f64()
        );
    }

    fn text(&self, index: usize, finding: &Finding) -> String {
        let mut text = String::new();
        let often = if finding.difference.always {
            ""
        } else {
            ", not always"
        };
        let _ = writeln!(
            text,
            "# difference {}: {} ({} times{often}; first: --seed {} --first {} --cases 1)",
            index + 1,
            finding.signature,
            self.times(finding),
            finding.seed,
            finding.number
        );
        for (place, step) in finding.program.steps.iter().enumerate() {
            let _ = writeln!(text, "{step}");
            if place == finding.difference.place {
                let _ = writeln!(
                    text,
                    "#   kernel TCP: {}\n#   NetChannel: {}",
                    finding.difference.kernel, finding.difference.other
                );
                continue;
            }
            if let Some(seen) = finding.kernel.get(place) {
                let _ = writeln!(text, "#   {seen}");
            }
        }
        text
    }

    /// Writes each finding into a folder.
    pub fn keep(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        for (index, finding) in self.findings.iter().enumerate() {
            std::fs::write(file(folder, index + 1, "steps"), self.text(index, finding))?;
            let source = c::source(&finding.program, finding.difference.place, &finding.kernel);
            match source {
                Ok(text) => std::fs::write(file(folder, index + 1, "c"), text)?,
                Err(step) => eprintln!("difference {} is not written as C: {step}", index + 1),
            }
        }
        Ok(())
    }

    fn json(&self, seed: u64) -> String {
        let findings: Vec<String> = self
            .findings
            .iter()
            .map(|finding| {
                format!(
                    "{{\"signature\":{},\"case\":{},\"times\":{},\"always\":{},\"kernel\":{},\"netchannel\":{},\"program\":{}}}",
                    quoted(&finding.signature),
                    finding.number,
                    self.times(finding),
                    finding.difference.always,
                    quoted(&finding.difference.kernel),
                    quoted(&finding.difference.other),
                    quoted(&finding.program.to_string())
                )
            })
            .collect();
        let kept: Vec<String> = self
            .excused
            .iter()
            .map(|(line, times)| format!("{}:{times}", quoted(line)))
            .collect();
        let lost: Vec<String> = self
            .lost
            .iter()
            .chain(&self.daemon)
            .map(|line| quoted(line))
            .collect();
        format!(
            "{{\"seed\":{seed},\"cases\":{},\"steps\":{},\"compared\":{},\"unsteady\":{},\"again\":{},\"seconds\":{:.1},\"clean\":{},\"kept\":{{{}}},\"lost\":[{}],\"seldom\":[{}],\"coverage\":{},\"differences\":[{}]}}",
            self.cases,
            self.steps,
            self.judged,
            self.unsteady,
            self.again,
            self.elapsed.as_secs_f64(),
            self.is_clean(),
            kept.join(","),
            lost.join(","),
            self.seldom
                .iter()
                .map(|line| quoted(line))
                .collect::<Vec<_>>()
                .join(","),
            self.coverage.json(),
            findings.join(",")
        )
    }
}

/// How often each rule excused something.
type Excuses = BTreeMap<&'static str, u64>;

/// The file of a finding in a folder.
fn file(folder: &Path, index: usize, kind: &str) -> PathBuf {
    folder.join(format!("{index}.{kind}"))
}
