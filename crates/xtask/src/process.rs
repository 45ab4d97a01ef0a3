//! Children with a log file and a time limit.
//!
//! A child stays in this process's group, so that Ctrl-C reaches all. At its time limit the child and all its
//! descendants get SIGTERM, and those that still exist ten seconds later SIGKILL. No other process gets a signal.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

const LOOK_AGAIN: Duration = Duration::from_millis(30);
const GRACE: Duration = Duration::from_secs(10);

/// The end of a child.
pub struct Ended {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Whether it ran into its limit.
    pub timed_out: bool,
    /// Its running time.
    pub took: Duration,
}

/// Runs a command to its end, at most `limit` long, with all it prints in the file `log`.
pub fn run_logged(command: &mut Command, log: &Path, limit: Duration) -> Result<Ended> {
    let output = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let errors = output
        .try_clone()
        .context("cannot duplicate a descriptor")?;
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
    let mut timed_out = false;
    let status = loop {
        if let Some(status) = child.try_wait().context("cannot wait for a child")? {
            break status;
        }
        if started.elapsed() >= limit {
            timed_out = true;
            end_tree(&mut child)?;
        }
        sleep(LOOK_AGAIN);
    };
    Ok(Ended {
        code: status.code(),
        timed_out,
        took: started.elapsed(),
    })
}

/// Ends a child and its descendants. Its status is still to be collected.
fn end_tree(child: &mut Child) -> Result<()> {
    signal("TERM", &descendants(child.id()));
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline {
        if child
            .try_wait()
            .context("cannot wait for a child")?
            .is_some()
        {
            return Ok(());
        }
        sleep(LOOK_AGAIN);
    }
    signal("KILL", &descendants(child.id()));
    Ok(())
}

/// Sends a signal by way of the shell's own `kill`: this crate makes no system call itself.
fn signal(name: &str, processes: &[u32]) {
    let ids: Vec<String> = processes.iter().map(u32::to_string).collect();
    // A process that has just ended is no error, so the status has no meaning.
    let _ = Command::new("sh")
        .args(["-c", &format!("kill -{name} {} 2>/dev/null", ids.join(" "))])
        .status();
}

/// The process and all its descendants, from /proc.
fn descendants(ancestor: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if let Some(parent) = parent_of(process) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(process) = found.get(next) {
        found.extend(children.remove(process).unwrap_or_default());
        next += 1;
    }
    found
}

/// The fourth field of /proc/PID/stat; the second, the name, may hold spaces and brackets.
fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env::temp_dir;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn keeps_the_output_and_the_code() {
        let log = temp_dir().join(format!("xtask-output-{}", std::process::id()));
        let ended = run_logged(&mut shell("echo out; echo err >&2; exit 3"), &log, GRACE).unwrap();
        assert_eq!((ended.code, ended.timed_out), (Some(3), false));
        assert_eq!(fs::read_to_string(&log).unwrap(), "out\nerr\n");
        fs::remove_file(log).unwrap();
    }

    #[test]
    fn ends_grandchildren_at_the_limit() {
        let log = temp_dir().join(format!("xtask-limit-{}", std::process::id()));
        let mut command = shell("sh -c 'sleep 100 & echo $!; wait'; echo never");
        let ended = run_logged(&mut command, &log, Duration::from_millis(500)).unwrap();
        assert!(ended.timed_out && ended.took < Duration::from_secs(8));
        let text = fs::read_to_string(&log).unwrap();
        let grandchild = text.lines().next().unwrap().to_owned();
        fs::remove_file(log).unwrap();
        sleep(Duration::from_millis(200));
        let state = fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
        assert!(
            state.is_empty() || state.contains(") Z "),
            "{grandchild} still runs: {state}"
        );
    }
}
