//! Faults of programs: all are counted, one per burst is logged.

use std::time::{Duration, Instant};

/// A burst ends when this time has passed since the last line in the log.
const BURST: Duration = Duration::from_secs(10);

/// The counter of faults.
#[derive(Debug, Default)]
pub struct Faults {
    total: u64,
    suppressed: u64,
    last_logged: Option<Instant>,
}

impl Faults {
    /// The number of faults.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Counts a fault. Where a line is due in the log, returns how many faults were not logged since the last line.
    pub fn count(&mut self, now: Instant) -> Option<u64> {
        self.total += 1;
        if self
            .last_logged
            .is_some_and(|last_logged| now.duration_since(last_logged) < BURST)
        {
            self.suppressed += 1;
            return None;
        }
        self.last_logged = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_gives_one_line() {
        let mut faults = Faults::default();
        let now = Instant::now();
        assert_eq!(faults.count(now), Some(0));
        assert_eq!(faults.count(now), None);
        assert_eq!(faults.count(now + BURST), Some(1));
        assert_eq!(faults.total(), 3);
    }
}
