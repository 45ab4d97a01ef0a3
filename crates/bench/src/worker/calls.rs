//! Calls of programs that use no socket: a library that stands before libc must not be felt there.

use super::system;
use super::{Outcome, WorkerError, finished, start_signal};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Calls between two looks at the clock: a look is to cost nothing beside them.
const BATCH: u32 = 256;

/// Makes calls of one kind for `duration`, and says how many.
pub fn drive(kind: &str, duration: Duration) -> Result<Outcome, WorkerError> {
    // Nothing is written into it.
    let (reader, _writer) = io::pipe()?;
    let mut null = open_null()?;
    match kind {
        "poll" => repeat(duration, BATCH, || system::poll_once(reader.as_fd())),
        "read" => repeat(duration, BATCH, || null.read(&mut [0]).map(drop)),
        "write" => repeat(duration, BATCH, || null.write_all(&[0])),
        "open" => repeat(duration, BATCH, || open_null().map(drop)),
        "start" => repeat(duration, 1, || wait_for(Command::new("true"))),
        "fork" => repeat(duration, 1, system::fork_once),
        "shell" => repeat(duration, 1, run_shell),
        _ => Err(WorkerError::Usage),
    }
}

fn open_null() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/null")
}

fn repeat(
    duration: Duration,
    batch: u32,
    mut call: impl FnMut() -> io::Result<()>,
) -> Result<Outcome, WorkerError> {
    // What a first call has to look up is not what all pay.
    call()?;
    start_signal()?;
    let mut count = 0;
    let begin = Instant::now();
    while begin.elapsed() < duration {
        for _ in 0..batch {
            call()?;
        }
        count += u64::from(batch);
    }
    Ok(finished(count, begin.elapsed(), None))
}

/// As a shell does most of its time.
fn run_shell() -> io::Result<()> {
    let mut shell = Command::new("sh");
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do /bin/true; done";
    shell.args(["-c", script]);
    wait_for(shell)
}

fn wait_for(mut program: Command) -> io::Result<()> {
    let status = program.stdin(Stdio::null()).status()?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{program:?} ended ({status})")))
}
