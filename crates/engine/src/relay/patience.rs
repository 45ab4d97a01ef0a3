//! How long to look before sleeping: adapted to what paid off, and nothing once it does not. Between looks others may run: where they
//! share the processor, what they do is what the worker waits for, and nobody has to wake anybody.

use std::time::{Duration, Instant};

/// Longest time that a worker spends on looking: about what a wake-up across cores costs.
const MOST: Duration = Duration::from_micros(50);
const LEAST: Duration = Duration::from_micros(1);
/// So long others are let run between looks, and no longer.
const WAY: Duration = Duration::from_micros(300);
/// A yield that takes less found nobody who wanted the processor.
const NOBODY: Duration = Duration::from_micros(1);
/// After one that takes more, somebody has the processor who does not sleep: who is woken is sooner there.
const HOGGED: Duration = Duration::from_micros(100);
/// So many times what was lost to him goes by until the processor is given away again: he stays, and each such try holds everybody up.
const REST: u32 = 256;

/// The patience of one worker.
#[derive(Debug)]
pub struct Patience {
    /// What it may spend itself; the time of others does not count.
    budget: Duration,
    /// When the processor may be given away again.
    next: Instant,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            budget: MOST,
            next: Instant::now(),
        }
    }
}

impl Patience {
    /// Looks until `ready`, or the budget is used up. True when ready.
    pub fn wait(&mut self, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        let start = Instant::now();
        if start < self.next {
            return false;
        }
        let (mut own, mut looked) = (Duration::ZERO, start);
        loop {
            std::thread::yield_now();
            let back = Instant::now();
            let away = back - looked;
            let found = ready();
            if away > HOGGED {
                self.next = back + away * REST;
                return found;
            }
            looked = Instant::now();
            own += looked - back;
            if away < NOBODY {
                own += away;
            }
            if found || own > self.budget || looked - start > WAY {
                return found;
            }
        }
    }

    /// Learns from a sleep: a short one would have been worth looking for.
    pub fn learn(&mut self, slept: Duration) {
        let next = if slept < 2 * MOST {
            self.budget * 2
        } else {
            self.budget / 2
        };
        self.budget = next.clamp(LEAST, MOST);
    }
}
