//! Child processes: started with their output in files, waited for with a time limit, and never left running.

use crate::cpu;
use crate::error::RunError;
use crate::interrupt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at a file in which a line is awaited. No measurement runs meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How long a process may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(2);

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The end of a process.
#[derive(Debug, Clone, Copy)]
pub struct Exit {
    /// Its status.
    pub status: ExitStatus,
    /// Its CPU time, with that of the descendants that it waited for.
    pub cpu: Duration,
}

/// A running or ended child. Dropping it ends it and its descendants.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: libc::pid_t,
    stdin: Option<ChildStdin>,
    output: PathBuf,
    errors: PathBuf,
    exit: Option<Exit>,
}

impl Process {
    /// Starts `command`; its output goes to files in `directory`.
    pub fn start(name: &str, mut command: Command, directory: &Path) -> Result<Self, RunError> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let output = directory.join(format!("{number}.out"));
        let errors = directory.join(format!("{number}.err"));
        let file = |path: &Path| File::create(path).map_err(RunError::Files);
        command
            .stdin(Stdio::piped())
            .stdout(file(&output)?)
            .stderr(file(&errors)?);
        // SAFETY: prctl is async-signal-safe. Should we be killed, the child is told.
        unsafe {
            command.pre_exec(|| {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let started = command.spawn();
        let mut child = started.map_err(|source| RunError::Start {
            program: name.to_owned(),
            source,
        })?;
        let stdin = child.stdin.take();
        // A Child that is dropped is not waited for; we do that with wait4, for the CPU time.
        let pid = libc::pid_t::try_from(child.id()).unwrap_or(0);
        Ok(Process {
            name: name.to_owned(),
            pid,
            stdin,
            output,
            errors,
            exit: None,
        })
    }

    /// The process id.
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// CPU time until now, or of the whole life when it has ended.
    pub fn cpu(&self) -> Duration {
        match self.exit {
            Some(exit) => exit.cpu,
            None => cpu::of_tree(self.pid),
        }
    }

    /// All it has printed.
    pub fn output(&self) -> Result<String, RunError> {
        let bytes = fs::read(&self.output).map_err(RunError::Files)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The last line it wrote to stderr, or failing that to stdout.
    pub fn complaint(&self) -> String {
        let last = |path: &Path| {
            let bytes = fs::read(path).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            text.lines()
                .rev()
                .find(|line| !line.trim().is_empty())
                .map(|line| line.trim().to_owned())
        };
        last(&self.errors)
            .or_else(|| last(&self.output))
            .unwrap_or_else(|| "no output".to_owned())
    }

    /// Waits for a first line of output and returns what follows `prefix` in it.
    pub fn await_line(&mut self, prefix: &str, limit: Duration) -> Result<String, RunError> {
        let deadline = Instant::now() + limit;
        loop {
            let ended = self.try_wait()?.is_some();
            let output = self.output()?;
            if let Some((line, _)) = output.split_once('\n') {
                let rest = line
                    .strip_prefix(prefix)
                    .ok_or_else(|| self.unreadable(line))?;
                return Ok(rest.trim().to_owned());
            }
            if ended {
                return Err(self.ended_early());
            }
            self.pause(deadline, limit)?;
        }
    }

    /// Waits until `ready` returns true, as long as the process lives.
    pub fn await_condition(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Result<(), RunError> {
        let deadline = Instant::now() + limit;
        while !ready() {
            if self.try_wait()?.is_some() {
                return Err(self.ended_early());
            }
            self.pause(deadline, limit)?;
        }
        Ok(())
    }

    fn pause(&self, deadline: Instant, limit: Duration) -> Result<(), RunError> {
        if interrupt::requested() {
            return Err(RunError::Interrupted);
        }
        if Instant::now() >= deadline {
            return Err(self.too_late(limit));
        }
        std::thread::sleep(LOOK_AGAIN);
        Ok(())
    }

    /// Waits for anything on its standard error.
    pub fn await_word(&mut self, limit: Duration) -> Result<(), RunError> {
        let errors = self.errors.clone();
        let said = || fs::metadata(&errors).is_ok_and(|file| file.len() > 0);
        self.await_condition(limit, said)
    }

    /// Writes a line to its standard input.
    pub fn say(&mut self, line: &str) -> Result<(), RunError> {
        if let Some(stdin) = &mut self.stdin {
            // An error means that the process has ended, which its waiting caller finds out.
            let _ = writeln!(stdin, "{line}");
        }
        Ok(())
    }

    /// Whether it has ended, without waiting.
    pub fn try_wait(&mut self) -> Result<Option<Exit>, RunError> {
        if self.exit.is_none() {
            self.exit = reap(self.pid)?;
        }
        Ok(self.exit)
    }

    /// Whether it ends within this time; uses no CPU meanwhile.
    pub fn ends_within(&mut self, time: Duration) -> Result<bool, RunError> {
        if self.try_wait()?.is_none() {
            sleep_until_exit(self.pid, time);
        }
        Ok(self.try_wait()?.is_some())
    }

    /// Waits for the end, without using CPU meanwhile, and requires that it was a good one.
    pub fn wait(&mut self, limit: Duration) -> Result<Exit, RunError> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(exit) = self.try_wait()? {
                return if exit.status.success() {
                    Ok(exit)
                } else {
                    Err(self.ended_early())
                };
            }
            if interrupt::requested() {
                return Err(RunError::Interrupted);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.too_late(limit));
            }
            sleep_until_exit(self.pid, left);
        }
    }

    /// Asks it to end; kills what is left of it after a while.
    pub fn stop(&mut self) {
        // Before the parent has ended: its children can not be found afterwards.
        let tree = cpu::tree(self.pid);
        if !matches!(self.try_wait(), Ok(None)) {
            return;
        }
        signal(self.pid, libc::SIGTERM);
        let deadline = Instant::now() + GRACE;
        let mut left = GRACE;
        while matches!(self.try_wait(), Ok(None)) && !left.is_zero() {
            sleep_until_exit(self.pid, left);
            left = deadline.saturating_duration_since(Instant::now());
        }
        // Also after a good end: what a shell has started does not end with it.
        for &process in tree.iter().filter(|process| **process != self.pid) {
            signal(process, libc::SIGKILL);
        }
        if matches!(self.try_wait(), Ok(None)) {
            signal(self.pid, libc::SIGKILL);
            sleep_until_exit(self.pid, GRACE);
            let _ = self.try_wait();
        }
    }

    /// An error about output that cannot be understood.
    pub fn unreadable(&self, what: &str) -> RunError {
        RunError::Output {
            program: self.name.clone(),
            text: what.chars().take(200).collect(),
        }
    }

    fn ended_early(&self) -> RunError {
        RunError::Ended {
            program: self.name.clone(),
            status: self.exit.map(|exit| exit.status),
            complaint: self.complaint(),
        }
    }

    fn too_late(&self, limit: Duration) -> RunError {
        RunError::TooLate {
            program: self.name.clone(),
            seconds: limit.as_secs(),
            complaint: self.complaint(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_file(&self.output);
        let _ = fs::remove_file(&self.errors);
    }
}

fn reap(pid: libc::pid_t) -> Result<Option<Exit>, RunError> {
    let mut status = 0;
    // SAFETY: all-zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both outputs are live.
    let result = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
    match result {
        0 => Ok(None),
        result if result == pid => Ok(Some(Exit {
            status: ExitStatus::from_raw(status),
            cpu: cpu::of_usage(&usage),
        })),
        _ => {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                Ok(None)
            } else {
                Err(RunError::Files(error))
            }
        }
    }
}

/// Sleeps until the process ends, a signal arrives, or the time is over.
fn sleep_until_exit(pid: libc::pid_t, limit: Duration) {
    // SAFETY: no pointers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let Ok(descriptor) = i32::try_from(descriptor) else {
        return;
    };
    if descriptor < 0 {
        // Linux before 5.3: look now and then, seldom enough not to disturb the measurement.
        std::thread::sleep(limit.min(Duration::from_millis(20)));
        return;
    }
    // SAFETY: a descriptor just made, owned by nobody else.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let mut poll = libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let milliseconds = i32::try_from(limit.as_millis().saturating_add(1)).unwrap_or(i32::MAX);
    // SAFETY: one live element.
    unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
}

fn signal(pid: libc::pid_t, signal: libc::c_int) {
    // SAFETY: no pointers.
    unsafe { libc::kill(pid, signal) };
}
