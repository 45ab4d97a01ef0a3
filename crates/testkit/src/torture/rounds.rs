//! Rounds that are drawn from seeds, each in a process of its own that is watched from outside.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use netchannel_testkit::support::{Child, Ended, ended, fork_child};
use netchannel_testkit::sys;

use crate::Options;

/// How long a round may take, in seconds: it takes less than one on an idle machine.
pub const LONGEST: u32 = 40;

/// Plays rounds until the time is over or `--rounds` rounds are done. A round has the seed of the run plus its number, so
/// that `--rounds 1` with that seed repeats it. Returns how many there were, or `None` after one that failed.
pub fn run<Plan: Debug>(
    options: &Options,
    what: &str,
    draw: impl Fn(u64) -> Plan,
    play: impl Fn(&Plan),
    mut count: impl FnMut(&Plan),
) -> Option<u64> {
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut rounds = 0_u64;
    while options
        .rounds
        .map_or_else(|| Instant::now() < end, |most| rounds < most)
    {
        let seed = options.seed.wrapping_add(rounds);
        let plan = draw(seed);
        sys::alarm(0);
        let round = start(|| play(&plan));
        let ended = await_end(&round);
        if ended != Ended::Exit(0) {
            println!("FAIL {what}: --seed {seed} --rounds 1: {ended:?}: {plan:?}");
            return None;
        }
        rounds += 1;
        count(&plan);
    }
    Some(rounds)
}

/// Tells of the rounds that were played, and returns the exit status.
pub fn report(options: &Options, what: &str, played: Option<u64>, sum: &str) -> i32 {
    let Some(rounds) = played else { return 1 };
    println!("PASS {what}: seed {}, {rounds} rounds, {sum}", options.seed);
    0
}

/// Starts a child that ends itself after [`LONGEST`].
pub fn start(work: impl FnOnce()) -> Child {
    fork_child(|| {
        sys::alarm(LONGEST);
        work();
    })
}

/// Waits for a child, which must end well.
pub fn expect_end(child: &Child, who: &str) {
    assert_eq!(await_end(child), Ended::Exit(0), "{who}");
}

/// As [`expect_end`], for a child that may kill itself.
pub fn expect_end_or_kill(child: &Child, who: &str) {
    expect_good(await_end(child), who);
}

fn expect_good(ended: Ended, who: &str) {
    let expected = [Ended::Exit(0), Ended::Signal(libc::SIGKILL)];
    assert!(expected.contains(&ended), "{who}: {ended:?}");
}

/// Waits for all children that are left but those of `kept`, also for those that were adopted. They may kill themselves.
pub fn expect_all_end_or_kill(kept: &[libc::pid_t]) {
    while children().iter().any(|child| !kept.contains(child)) {
        match sys::waitpid(-1, libc::WNOHANG) {
            Ok((0, _)) => std::thread::sleep(Duration::from_millis(1)),
            Ok((process, status)) => expect_good(ended(status), &format!("process {process}")),
            Err(_) => return,
        }
    }
}

/// The children of the calling thread, where the system tells.
pub fn children() -> Vec<libc::pid_t> {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    let numbers = text.split_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// Waits for a child as long as its own watchdog lets it live.
pub fn await_end(child: &Child) -> Ended {
    let end = Instant::now() + Duration::from_secs(u64::from(LONGEST) + 10);
    loop {
        let (process, status) = sys::waitpid(child.process, libc::WNOHANG).expect("waitpid");
        if process == child.process {
            return ended(status);
        }
        if Instant::now() > end {
            let _ = sys::kill(child.process, libc::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
