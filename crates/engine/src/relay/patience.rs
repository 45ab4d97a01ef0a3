//! How long to spin before sleeping: adapted to what paid off, and nothing once it does not.

use std::time::{Duration, Instant};

/// Longest spin: about what a wake-up across cores costs.
const MOST: Duration = Duration::from_micros(50);
const LEAST: Duration = Duration::from_micros(1);
/// After this the spinning thread lets others run between its looks.
const POLITE: Duration = Duration::from_micros(3);
/// A yield that takes this long gave the processor to another thread.
const CROWDED: Duration = Duration::from_micros(8);

/// The spin of one worker.
#[derive(Debug)]
pub struct Patience {
    budget: Duration,
    alone: bool,
}

impl Default for Patience {
    fn default() -> Self {
        let processors = std::thread::available_parallelism();
        Self {
            budget: MOST,
            // On one processor nobody else could make anything come.
            alone: processors.is_ok_and(|count| count.get() == 1),
        }
    }
}

impl Patience {
    /// Spins until `ready` or the budget is used up. True when ready.
    pub fn spin(&mut self, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        if self.alone {
            return false;
        }
        let start = Instant::now();
        loop {
            for _ in 0..8 {
                std::hint::spin_loop();
                if ready() {
                    return true;
                }
            }
            let spent = start.elapsed();
            if spent > self.budget {
                return false;
            }
            if spent > POLITE {
                let before = Instant::now();
                std::thread::yield_now();
                if before.elapsed() > CROWDED {
                    // Somebody else needed the processor.
                    self.budget = LEAST;
                    return ready();
                }
            }
        }
    }

    /// Learns from a sleep: a short one would have been worth spinning for.
    pub fn learn(&mut self, slept: Duration) {
        let next = if slept < 2 * MOST {
            self.budget * 2
        } else {
            self.budget / 2
        };
        self.budget = next.clamp(LEAST, MOST);
    }
}
