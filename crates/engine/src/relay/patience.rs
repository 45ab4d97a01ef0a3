//! How long to spin before sleeping: adapted to what paid off, and nothing once it does not. Where the processor is wanted by
//! others, they get it once before the sleep: what they do meanwhile comes in one batch, and nobody has to wake anybody.

use std::time::{Duration, Instant};

/// Longest spin: about what a wake-up across cores costs.
const MOST: Duration = Duration::from_micros(50);
const LEAST: Duration = Duration::from_micros(1);
/// After this the spinning thread lets others run between its looks.
const POLITE: Duration = Duration::from_micros(3);
/// A yield that takes this long gave the processor to another thread.
const CROWDED: Duration = Duration::from_micros(8);
/// A yield that takes this long cost more than a wake-up: whoever has the processor does not sleep.
const HOGGED: Duration = Duration::from_micros(500);
/// So many times what was lost by giving way in vain goes by until it is tried again.
const REST: u32 = 32;
/// And so many times where somebody had the processor who does not sleep: he stays, and each such try holds everybody up.
const LONG_REST: u32 = 256;

/// The spin of one worker.
#[derive(Debug)]
pub struct Patience {
    budget: Duration,
    alone: bool,
    /// When giving way is tried again.
    next: Instant,
}

impl Default for Patience {
    fn default() -> Self {
        let processors = std::thread::available_parallelism();
        Self {
            budget: MOST,
            // On one processor nobody else could make anything come.
            alone: processors.is_ok_and(|count| count.get() == 1),
            next: Instant::now(),
        }
    }
}

impl Patience {
    /// Spins until `ready` or the budget is used up. True when ready.
    pub fn spin(&mut self, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        if !self.alone && self.budget > LEAST {
            let start = Instant::now();
            loop {
                std::hint::spin_loop();
                if ready() {
                    return true;
                }
                let spent = start.elapsed();
                if spent > self.budget {
                    break;
                }
                if spent > POLITE {
                    let before = Instant::now();
                    std::thread::yield_now();
                    let away = before.elapsed();
                    if away > CROWDED {
                        // Somebody else needed the processor.
                        self.budget = LEAST;
                        return self.judge(ready(), before, away);
                    }
                }
            }
        }
        self.give_way(ready)
    }

    /// Lets others run once, where that paid off before.
    fn give_way(&mut self, mut ready: impl FnMut() -> bool) -> bool {
        let before = Instant::now();
        if before < self.next {
            return false;
        }
        std::thread::yield_now();
        let away = before.elapsed();
        self.judge(ready(), before, away)
    }

    fn judge(&mut self, found: bool, before: Instant, away: Duration) -> bool {
        if !found || away > HOGGED {
            let rest = if away > HOGGED { LONG_REST } else { REST };
            self.next = before + away * (rest + 1);
        }
        found
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
