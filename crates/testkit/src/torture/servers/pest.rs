//! Whoever disturbs a round: signals that interrupt calls, or are caught and let them go on, and stops.

use std::time::Duration;

use netchannel_testkit::sys;

use super::board::Board;
use super::random_of;
use super::shape::Plan;

extern "C" fn on_signal(_: libc::c_int) {}

/// Catches the signals of the pest, in the calling process and its children: `SIGUSR1` interrupts calls, `SIGUSR2`
/// restarts them.
pub fn prepare() {
    sys::handle_signal(libc::SIGUSR1, on_signal, 0).expect("sigaction");
    sys::handle_signal(libc::SIGUSR2, on_signal, libc::SA_RESTART).expect("sigaction");
}

/// Disturbs until it is killed.
pub fn run(plan: &Plan, board: &Board) {
    let mut random = random_of(plan, 0xbe57);
    let longest = [200, 1_000, 5_000][random.below(3)];
    loop {
        std::thread::sleep(microseconds(random.below(longest)));
        let Some(process) = board.process(random.below(16)) else {
            continue;
        };
        match random.below(3) {
            0 => drop(sys::kill(process, libc::SIGUSR1)),
            1 => drop(sys::kill(process, libc::SIGUSR2)),
            _ => {
                let _ = sys::kill(process, libc::SIGSTOP);
                std::thread::sleep(microseconds(random.below(3_000)));
                let _ = sys::kill(process, libc::SIGCONT);
            }
        }
    }
}

fn microseconds(number: usize) -> Duration {
    Duration::from_micros(number as u64)
}
