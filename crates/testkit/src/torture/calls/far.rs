//! The runner of the other host. It makes the actors that live there, when the conductor asks for them on their common
//! board.

use std::path::Path;
use std::time::{Duration, Instant};

use super::act::Actor;
use super::board::{Board, END};
use super::conduct::{execute_actor, leave_the_runner};
use super::program::MOST_ACTORS;
use super::request::requested;

/// The command-line word of this runner.
pub const COMMAND: &str = "calls-far";

/// Serves until the judge has ended.
pub fn run(words: &[String]) -> i32 {
    let [path] = words else { return 2 };
    let path = Path::new(path);
    // SAFETY: takes integers: ends with the judge, and orphans of actors are ours to reap.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
    }
    let start = Instant::now();
    while !std::fs::metadata(path).is_ok_and(|file| file.len() > 0) {
        if start.elapsed() > Duration::from_secs(10) {
            eprintln!("torture {COMMAND}: there is no board");
            return 1;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let board = match Board::map(path, false) {
        Ok(board) => board,
        Err(error) => {
            eprintln!("torture {COMMAND}: {error}");
            return 1;
        }
    };
    let mut last = 0;
    loop {
        let command = board.wait_for_command(MOST_ACTORS, last);
        last = command;
        // Another case begins.
        if command == 0 || command == END {
            continue;
        }
        // SAFETY: no pointer.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
        let (actor, fresh) = requested(command);
        // SAFETY: this process has one thread; the child acts and never returns.
        if unsafe { libc::fork() } == 0 {
            leave_the_runner();
            if fresh {
                execute_actor(path, actor);
            }
            let path = path.display().to_string();
            match Actor::again(&path, &actor.to_string()) {
                Some(actor) => actor.work(0),
                // SAFETY: ends the process.
                None => unsafe { libc::_exit(1) },
            }
        }
    }
}
