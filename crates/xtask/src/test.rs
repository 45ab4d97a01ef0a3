//! `cargo xtask test`: every step of the plan, one after the other, each with its log.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::plan::{Action, Step, steps};
use crate::process::{Ended, run_logged};
use crate::report::{Report, Verdict};
use crate::workspace::{Workspace, find_program, is_root};

/// With this code a script says that it could not try.
const SKIPPED: i32 = 77;

/// What the command line asks for.
pub struct Options {
    /// Leave out what takes long.
    pub quick: bool,
    /// Do what is left out otherwise, too.
    pub all: bool,
    /// Only say which steps there are.
    pub list: bool,
    /// Install missing test programs, as root.
    pub install: bool,
    /// Parts of the names of the steps to run; none means all.
    pub names: Vec<String>,
}

impl Options {
    fn wants(&self, step: &Step) -> bool {
        self.names.is_empty()
            || self
                .names
                .iter()
                .any(|name| step.name.contains(name.as_str()))
    }
}

/// Runs the steps; true when none failed.
pub fn run(workspace: &Workspace, options: &Options) -> Result<bool> {
    let steps: Vec<Step> = steps(workspace)?
        .into_iter()
        .filter(|step| options.wants(step))
        .collect();
    if steps.is_empty() {
        bail!("no step has such a name; `cargo xtask test --list` shows all");
    }
    if options.list {
        for step in &steps {
            println!("{}", step.name);
        }
        return Ok(true);
    }
    if options.install && !options.quick {
        install_missing(&workspace.programs().join("packages.txt"))?;
    }
    let logs = workspace.target.join("xtask-test");
    fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
    if options.quick {
        println!("{}", what_quick_builds(workspace));
    }
    let mut report = Report::new(steps.len());
    for mut step in steps {
        let log = log_of(&logs, &step.name);
        // What an earlier run left there is not this run's.
        let _ = fs::remove_file(&log);
        report.begin(&step.name);
        let begun = Instant::now();
        let verdict = if options.quick && step.slow {
            Verdict::Skipped("left out by --quick".to_owned())
        } else if step.seldom && !options.all && options.names.is_empty() {
            Verdict::Skipped("only with --all, or by its name".to_owned())
        } else {
            verdict(&mut step, &log)
        };
        report.end(&step.name, verdict, begun.elapsed(), &log);
    }
    Ok(report.close())
}

/// What `--quick` builds first, and for how long; the tests themselves take a minute or two.
fn what_quick_builds(workspace: &Workspace) -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // Measured on two processors; link-time optimisation is done by one for each program.
    let minutes = 6 + 10 / processors;
    let what = "the workspace for clippy, its documentation, the release build with link-time optimisation, and all tests";
    if workspace.program().is_file() {
        format!(
            "builds what has changed since the last time of {what}; the tests take a minute or two"
        )
    } else {
        format!(
            "builds {what}: about {minutes} minutes on {processors} processors, this first time; the tests take a minute or two"
        )
    }
}

fn log_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{}.log", name.replace(['/', ' '], "-")))
}

fn verdict(step: &mut Step, log: &Path) -> Verdict {
    match &mut step.action {
        Action::Skip(reason) => Verdict::Skipped(reason.clone()),
        Action::Run(command) => match run_logged(command, log, step.limit) {
            Ok(ended) => judge(&ended, step.limit, log),
            Err(error) => Verdict::Failed(format!("{error:#}")),
        },
    }
}

fn judge(ended: &Ended, limit: Duration, log: &Path) -> Verdict {
    match ended.code {
        _ if ended.timed_out => {
            Verdict::Failed(format!("still running after {:.0} s", limit.as_secs_f64()))
        }
        Some(0) => Verdict::Passed,
        Some(SKIPPED) => {
            let text = fs::read_to_string(log).unwrap_or_default();
            let reason = text
                .lines()
                .rev()
                .find_map(|line| line.strip_prefix("skipped: "));
            Verdict::Skipped(reason.unwrap_or("it does not say why").to_owned())
        }
        Some(code) => Verdict::Failed(format!("exit code {code}")),
        None => Verdict::Failed(format!(
            "ended by a signal after {:.1} s",
            ended.took.as_secs_f64()
        )),
    }
}

/// As root, installs the Debian packages of the programs that are missing. That it cannot is no error: the steps that
/// need them will say so by name.
fn install_missing(list: &Path) -> Result<()> {
    let text =
        fs::read_to_string(list).with_context(|| format!("cannot read {}", list.display()))?;
    let missing = missing_packages(&text);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(" ");
    if !is_root() || find_program("apt-get").is_none() {
        println!("Not installed, tests that need them are skipped: {names}");
        println!("  apt-get install {names}\n");
        return Ok(());
    }
    println!("Installing what the tests run: {names}");
    if !apt_get(&["update"]) {
        println!("apt-get update failed; trying with the lists that are there");
    }
    for package in &missing {
        if !apt_get(&["install", "--yes", "--no-install-recommends", package]) {
            println!("could not install {package}");
        }
    }
    println!();
    Ok(())
}

fn apt_get(arguments: &[&str]) -> bool {
    // RUNLEVEL=1 keeps the packages' services from being started: only the programs are wanted.
    let output = Command::new("apt-get")
        .args(["-qq", "-o", "Acquire::Retries=1"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("RUNLEVEL", "1")
        .output();
    output.is_ok_and(|output| output.status.success())
}

/// The packages of those lines `PROGRAM PACKAGE` or `/PATH PACKAGE` whose program or path is not there.
fn missing_packages(list: &str) -> BTreeSet<String> {
    list.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .filter(|(what, _)| match what.starts_with('/') {
            true => !Path::new(what).exists(),
            false => find_program(what).is_none(),
        })
        .map(|(_, package)| package.trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_missing() {
        let list =
            "# text\nsh dash\nno-such-program one\n/no/such/file two\n/proc/self/stat three\n";
        let missing: Vec<String> = missing_packages(list).into_iter().collect();
        assert_eq!(missing, ["one", "two"]);
    }

    #[test]
    fn judges_codes() {
        let log = std::env::temp_dir().join(format!("xtask-judge-{}", std::process::id()));
        fs::write(&log, "something\nskipped: no nginx\n").unwrap();
        let judged = |code, timed_out| {
            let ended = Ended {
                code,
                timed_out,
                took: Duration::ZERO,
            };
            judge(&ended, Duration::from_secs(1), &log)
        };
        assert_eq!(judged(Some(0), false), Verdict::Passed);
        assert_eq!(
            judged(Some(77), false),
            Verdict::Skipped("no nginx".to_owned())
        );
        assert!(matches!(judged(Some(0), true), Verdict::Failed(_)));
        assert!(matches!(judged(Some(1), false), Verdict::Failed(_)));
        assert!(matches!(judged(None, false), Verdict::Failed(_)));
        fs::remove_file(log).unwrap();
    }
}
