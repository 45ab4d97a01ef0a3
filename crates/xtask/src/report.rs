//! The results of the steps of a test run, as lines for people and one closing line for scripts.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// The number of lines of a failed step's log that are shown.
const LINES_OF_A_FAILURE: usize = 80;
/// The number of them that the end of the run repeats.
const LINES_REPEATED: usize = 24;
/// A longer line is cut.
const WIDTH: usize = 400;

/// The verdict on one step.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The step has passed.
    Passed,
    /// The step has failed, with this result.
    Failed(String),
    /// The step could not be tried, for this reason.
    Skipped(String),
}

/// Counts steps and remembers what was left out.
pub struct Report {
    started: Instant,
    total: usize,
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<String>,
    left_out: Vec<String>,
    unsteady: Vec<String>,
}

impl Report {
    /// An empty report on `total` steps to come.
    pub fn new(total: usize) -> Self {
        Self {
            started: Instant::now(),
            total,
            passed: 0,
            failed: Vec::new(),
            skipped: Vec::new(),
            left_out: Vec::new(),
            unsteady: Vec::new(),
        }
    }

    /// Announces a step, so that a person sees what is being waited for.
    pub fn begin(&self, name: &str) {
        let number = self.passed + self.failed.len() + self.skipped.len() + 1;
        let width = self.total.to_string().len();
        print!("[{number:>width$}/{}] {name:<28} ", self.total);
        // A closed standard output will show at the next line that is printed.
        let _ = io::stdout().flush();
    }

    /// Ends the line that `begin` began and counts the verdict.
    pub fn end(&mut self, name: &str, verdict: Verdict, took: Duration, log: &Path) {
        let text = fs::read_to_string(log).unwrap_or_default();
        let seconds = took.as_secs_f64();
        match verdict {
            Verdict::Passed => {
                println!("ok      {seconds:7.1} s  {}", detail(&text));
                self.passed += 1;
            }
            Verdict::Failed(how) => {
                println!("FAILED  {seconds:7.1} s  {how}");
                for line in last_lines(&text, LINES_OF_A_FAILURE) {
                    println!("    | {line}");
                }
                println!("    the whole log: {}", log.display());
                let mut told = format!("{name}: {how}, {}", log.display());
                for line in last_lines(&failures(&text), LINES_REPEATED) {
                    told.push_str("\n    | ");
                    told.push_str(&line);
                }
                self.failed.push(told);
            }
            Verdict::Skipped(why) => {
                println!("skipped            {why}");
                self.skipped.push(format!("{name}: {why}"));
            }
        }
        let said = |word: &'static str| {
            let inside = text.lines().filter_map(move |line| line.strip_prefix(word));
            inside.map(|what| format!("{name}: {what}"))
        };
        self.left_out.extend(said("left out: "));
        self.unsteady.extend(said("unsteady: "));
    }

    /// Prints what was left out and the closing line; true when nothing failed.
    pub fn close(&self) -> bool {
        println!("\nAfter {:.0} s:", self.started.elapsed().as_secs_f64());
        print_list("failed", &self.failed);
        print_list("left out within steps", &self.left_out);
        print_list("failed once, beside others", &self.unsteady);
        print_list("skipped", &self.skipped);
        println!("{}", self.closing_line());
        self.failed.is_empty()
    }

    fn closing_line(&self) -> String {
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        format!("{} passed, {failed} failed, {skipped} skipped", self.passed)
    }
}

/// The end of a text, with long lines cut.
fn last_lines(text: &str, most: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(most);
    let cut = |line: &&str| match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => (*line).to_owned(),
    };
    lines[from..].iter().map(cut).collect()
}

/// The lines of a log that speak of failures; all of it where none does.
fn failures(text: &str) -> String {
    let speaks = |line: &&str| {
        ["FAIL", "DIFFER", "TIME ", "panicked", "error", "failures:"]
            .iter()
            .any(|word| line.contains(word))
    };
    let lines: Vec<&str> = text.lines().filter(speaks).collect();
    if lines.is_empty() {
        text.to_owned()
    } else {
        lines.join("\n")
    }
}

fn print_list(title: &str, lines: &[String]) {
    if !lines.is_empty() {
        println!("{title}:");
    }
    for line in lines {
        println!("  {line}");
    }
}

/// The details of a passed step: the number of tests from cargo, or the script's own line `result: ...`.
fn detail(log: &str) -> String {
    let mut tests = 0;
    let mut ignored = 0;
    for line in log
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ok. "))
    {
        let count = |word: &str| -> u32 {
            line.split("; ")
                .find_map(|part| part.strip_suffix(word)?.trim().parse().ok())
                .unwrap_or(0)
        };
        tests += count(" passed");
        ignored += count(" ignored");
    }
    let result = log
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("result: "));
    match (tests, ignored) {
        (0, 0) => result.unwrap_or_default().to_owned(),
        (tests, 0) => format!("{tests} tests"),
        (tests, ignored) => format!("{tests} tests, {ignored} ignored"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_tests_of_all_binaries() {
        let log = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                   other\n\
                   test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(detail(log), "7 tests, 1 ignored");
        assert_eq!(detail("x\nresult: 4 modes alike\n"), "4 modes alike");
        assert_eq!(detail(""), "");
    }

    #[test]
    fn what_failed_is_told_in_short() {
        let long = format!("FAIL {}", "x".repeat(2 * WIDTH));
        let log = format!("case a ok\n{long}\nhelp\n");
        let told = last_lines(&failures(&log), 3);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].len(), WIDTH + "...".len());
        assert_eq!(failures("nothing said\n"), "nothing said\n");
        assert_eq!(last_lines("a\nb\nc\n", 2), ["b", "c"]);
    }

    #[test]
    fn closes_with_the_count() {
        let mut report = Report::new(3);
        let log = Path::new("/nonexistent");
        report.end("a", Verdict::Passed, Duration::ZERO, log);
        report.end(
            "b",
            Verdict::Skipped("no such program".into()),
            Duration::ZERO,
            log,
        );
        assert!(report.close());
        report.end(
            "c",
            Verdict::Failed("exit code 1".into()),
            Duration::ZERO,
            log,
        );
        assert!(!report.close());
        assert_eq!(report.closing_line(), "1 passed, 1 failed, 1 skipped");
    }
}
