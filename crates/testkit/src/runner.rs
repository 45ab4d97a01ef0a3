//! Runs cases as processes of their own, over kernel TCP or under `netchannel run`.

use std::collections::VecDeque;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::far::{
    ADDRESSES_VARIABLE, BETWEEN_MARK, NOT_BETWEEN_MARK, SIDE_VARIABLE, SOCKET_VARIABLE, Side,
};
use crate::two_hosts::{Carrier, TwoHosts};

/// The transport of a case's connections.
#[derive(Clone, Debug)]
pub enum Transport {
    /// The program as it is.
    Kernel,
    /// Under `netchannel run --require`, with the daemon at a socket path.
    NetChannel {
        /// The `netchannel` program.
        program: PathBuf,
        /// The path at which the daemon serves.
        socket: PathBuf,
    },
}

/// How a case went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Exit status 0.
    Passed,
    /// Exit status 77.
    Skipped,
    /// Any other end, with the output.
    Failed(String),
    /// The case ran past the limit and was killed.
    TimedOut(String),
    /// The case has no end that could be on another host, and the reason.
    NotBetween(String),
}

impl Verdict {
    /// One word for tables.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Passed => "pass",
            Verdict::Skipped => "skip",
            Verdict::Failed(_) => "FAIL",
            Verdict::TimedOut(_) => "TIME",
            Verdict::NotBetween(_) => "within",
        }
    }

    /// The output of a case that did not pass.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Verdict::Failed(text) | Verdict::TimedOut(text) | Verdict::NotBetween(text) => text,
            Verdict::Passed | Verdict::Skipped => "",
        }
    }
}

/// A case, its verdict and how long it took.
#[derive(Clone, Debug)]
pub struct Report {
    /// The case's name.
    pub case: String,
    /// How it went.
    pub verdict: Verdict,
    /// How long it took.
    pub elapsed: Duration,
}

impl Report {
    /// Why the case cannot be run between hosts, or `None` if it can.
    #[must_use]
    pub fn not_between(&self) -> Option<&str> {
        matches!(self.verdict, Verdict::NotBetween(_)).then(|| self.verdict.message())
    }
}

/// Runs one case in its own process and session. At the limit the whole session is killed.
#[must_use]
pub fn run_case(conformance: &Path, transport: &Transport, case: &str, limit: Duration) -> Report {
    run_command(command(conformance, transport), case, limit)
}

/// Runs one case by a command that leads to the test program.
#[must_use]
pub fn run_command(command: Command, case: &str, limit: Duration) -> Report {
    let start = Instant::now();
    let verdict = match start_command(command, case) {
        Ok(child) => finish_case(child, limit).0,
        Err(error) => Verdict::Failed(format!("cannot be started: {error}")),
    };
    Report {
        case: case.to_owned(),
        verdict,
        elapsed: start.elapsed(),
    }
}

/// Runs one case with one end of its connections on host b, over the transport that `hosts` is configured with, or over
/// the kernel's TCP.
#[must_use]
pub fn run_case_between(
    conformance: &Path,
    hosts: &TwoHosts,
    carrier: Carrier,
    far: Side,
    case: &str,
    limit: Duration,
) -> Report {
    let start = Instant::now();
    let run = || -> std::io::Result<Verdict> {
        let folder = tempfile::Builder::new().prefix("far-").tempdir_in("/tmp")?;
        let socket = folder.path().join("far.sock");
        let mut other = hosts.command(conformance, hosts.b(), carrier);
        other.arg("far").arg(&socket).stdin(Stdio::null());
        other.stdout(Stdio::null()).stderr(Stdio::null());
        let other = Group::start(&mut other)?;
        while !socket.exists() {
            if start.elapsed() > limit {
                let text = "the process on the other host does not start";
                return Ok(Verdict::TimedOut(text.to_owned()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut command = hosts.command(conformance, hosts.a(), carrier);
        command
            .env(SOCKET_VARIABLE, &socket)
            .env(SIDE_VARIABLE, far.word())
            .env(
                ADDRESSES_VARIABLE,
                hosts.addresses_over(carrier).to_string(),
            );
        let started = start_command(command, case)?;
        let (verdict, text) = finish_case(started, limit);
        drop(other);
        Ok(judge_between(verdict, &text))
    };
    Report {
        case: case.to_owned(),
        verdict: run()
            .unwrap_or_else(|error| Verdict::Failed(format!("cannot be started: {error}"))),
        elapsed: start.elapsed(),
    }
}

/// The verdict of a case that was to run between hosts. The case may have ended with `NOT_BETWEEN`, or never have
/// connected to the other host.
fn judge_between(verdict: Verdict, text: &str) -> Verdict {
    if let Some(line) = text.lines().find(|line| line.starts_with(NOT_BETWEEN_MARK)) {
        let reason = line
            .trim_start_matches(NOT_BETWEEN_MARK)
            .trim_start_matches(": ");
        return Verdict::NotBetween(reason.to_owned());
    }
    let crossed = text.lines().any(|line| line == BETWEEN_MARK);
    match verdict {
        Verdict::Passed if !crossed => {
            Verdict::NotBetween("no connection to the other host".to_owned())
        }
        verdict => verdict,
    }
}

/// A process and its group. Dropping the value kills the whole group.
struct Group(Child);

impl Group {
    fn start(command: &mut Command) -> std::io::Result<Self> {
        command.process_group(0).spawn().map(Group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        kill_group(&self.0);
        let _ = self.0.wait();
    }
}

/// `NETCHANNEL_PROGRAM`, or the newest `netchannel` in the target folder that holds a test program.
///
/// # Panics
/// If the variable names no file.
#[must_use]
pub fn find_netchannel(test_program: &Path) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("NETCHANNEL_PROGRAM") {
        let path = PathBuf::from(path);
        assert!(
            path.is_file(),
            "NETCHANNEL_PROGRAM names no file: {}",
            path.display()
        );
        return Some(path);
    }
    let target = test_program.parent()?.parent()?;
    let candidates = ["release", "debug"].map(|profile| target.join(profile).join("netchannel"));
    let built = candidates.into_iter().filter(|path| path.is_file());
    built.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok())
}

/// The command that runs a test program over a transport; arguments follow.
#[must_use]
pub fn command(test_program: &Path, transport: &Transport) -> Command {
    match transport {
        Transport::Kernel => Command::new(test_program),
        Transport::NetChannel { program, socket } => {
            let mut command = Command::new(program);
            command
                .arg("run")
                .arg("--require")
                .arg("--socket")
                .arg(socket)
                .arg("--");
            command.arg(test_program);
            command
        }
    }
}

fn start_command(
    mut command: Command,
    case: &str,
) -> std::io::Result<(Child, tempfile::NamedTempFile)> {
    // A file and not a pipe, because a daemon started by the case may keep its output open.
    let output = tempfile::NamedTempFile::new()?;
    command.arg("run").arg(case).stdin(Stdio::null());
    // One offset for standard output and standard error, so that they do not overwrite each other.
    let written = output.reopen()?;
    command.stdout(written.try_clone()?).stderr(written);
    command.process_group(0);
    Ok((command.spawn()?, output))
}

fn finish_case(
    (mut child, mut output): (Child, tempfile::NamedTempFile),
    limit: Duration,
) -> (Verdict, String) {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if start.elapsed() > limit => break None,
            Ok(None) => std::thread::sleep(pause),
            Err(error) => {
                let text = format!("cannot be waited for: {error}");
                return (Verdict::Failed(text), String::new());
            }
        }
        pause = (pause * 2).min(Duration::from_millis(10));
    };
    kill_group(&child);
    if status.is_none() {
        let _ = child.wait();
    }
    let mut text = Vec::new();
    let _ = output.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    let verdict = judge(status, &text, limit);
    (verdict, text)
}

fn judge(status: Option<ExitStatus>, text: &str, limit: Duration) -> Verdict {
    match status {
        None => Verdict::TimedOut(format!("{text} (killed after {} s)", limit.as_secs())),
        Some(status) => match (status.code(), status.signal()) {
            (Some(0), _) => Verdict::Passed,
            (Some(crate::support::SKIPPED), _) => Verdict::Skipped,
            (Some(1), _) => Verdict::Failed(text.to_owned()),
            (Some(code), _) => Verdict::Failed(format!("{text} (exit status {code})")),
            (None, signal) => {
                Verdict::Failed(format!("{text} (signal {})", signal.unwrap_or_default()))
            }
        },
    }
}

fn kill_group(child: &Child) {
    if let Ok(process) = libc::pid_t::try_from(child.id()) {
        // SAFETY: takes integers; the group is the one this runner made for the case.
        unsafe { libc::killpg(process, libc::SIGKILL) };
    }
}

/// Runs cases, `parallel` at a time. The reports come in the order of the cases. `progress` is called after each case.
pub fn run_cases(
    conformance: &Path,
    transport: &Transport,
    cases: &[String],
    parallel: usize,
    limit: Duration,
    progress: impl Fn(&Report) + Sync,
) -> Vec<Report> {
    run_all(cases, parallel, |case| {
        let report = run_case(conformance, transport, case, limit);
        progress(&report);
        report
    })
}

/// Runs cases by a given function, `parallel` at a time. The reports come in the order of the cases.
pub fn run_all(
    cases: &[String],
    parallel: usize,
    run: impl Fn(&str) -> Report + Sync,
) -> Vec<Report> {
    let queue: Mutex<VecDeque<usize>> = Mutex::new((0..cases.len()).collect());
    let reports: Mutex<Vec<Option<Report>>> = Mutex::new(vec![None; cases.len()]);
    let work = || {
        loop {
            let next = queue.lock().ok().and_then(|mut queue| queue.pop_front());
            let Some(index) = next else { return };
            let report = run(&cases[index]);
            if let Ok(mut reports) = reports.lock() {
                reports[index] = Some(report);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..parallel.max(1) {
            scope.spawn(work);
        }
    });
    reports
        .into_inner()
        .map(|reports| reports.into_iter().flatten().collect())
        .unwrap_or_default()
}
