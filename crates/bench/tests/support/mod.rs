//! What tests of benchmarks share that run as processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The word with which a test program becomes a benchmark to be interrupted.
pub const INTERRUPTED: &str = "to-be-interrupted";

/// This program.
pub fn own_path() -> PathBuf {
    std::env::current_exe().expect("own path")
}

/// Children of a process.
pub fn children_of(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default()
}

/// Interrupts a benchmark once it has started so many programs, within a time: it says so, and all of them are gone.
pub fn interrupt_once_there_are(started: usize, within: Duration) {
    let mut child = Command::new(own_path())
        .arg(INTERRUPTED)
        .spawn()
        .expect("ourselves");
    let pid = child.id();
    let deadline = Instant::now() + within;
    let mut programs = String::new();
    while programs.split_whitespace().count() < started {
        assert!(
            Instant::now() < deadline,
            "the programs were not started: {programs:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
        programs = children_of(pid);
    }
    // SAFETY: no pointers; a child that has not been waited for.
    unsafe { libc::kill(i32::try_from(pid).expect("a process id"), libc::SIGINT) };
    let status = child.wait().expect("its status");
    assert_eq!(status.code(), Some(130));
    for program in programs.split_whitespace() {
        let path = Path::new("/proc").join(program);
        assert!(!path.exists(), "{program} lives on");
    }
}
