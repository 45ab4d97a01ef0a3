//! Whoever disturbs a round: signals that interrupt calls, or are caught and let them go on, and stops.

use std::time::Duration;

use netchannel_testkit::sys;

use crate::interrupter::SIGNALS;

use super::board::Board;
use super::random_of;
use super::shape::Plan;

/// Disturbs until the clients have ended. Whom it stops it lets go on, also who has left the board meanwhile.
pub fn run(plan: &Plan, board: &Board) {
    let mut random = random_of(plan, 0xbe57);
    let longest = [200, 1_000, 5_000][random.below(3)];
    while !board.is_quiet() {
        std::thread::sleep(microseconds(random.below(longest)));
        let Some(process) = board.process(random.below(16)) else {
            continue;
        };
        match random.below(3) {
            kind @ 0..2 => drop(sys::kill(process, SIGNALS[kind])),
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
