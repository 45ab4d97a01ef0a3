//! The delay before the next attempt.

use std::time::{Duration, Instant};

/// The delay doubles with each failure, between two bounds. A small random part keeps hosts from trying in step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    failures: u32,
    until: Option<Instant>,
}

impl Backoff {
    /// An attempt failed. `random` is a random number.
    pub fn fail(&mut self, now: Instant, (least, most): (Duration, Duration), random: u32) {
        let doubled = 1u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let pause = least.saturating_mul(doubled).min(most);
        self.failures = self.failures.saturating_add(1);
        let extra = pause.mul_f64(0.25 * f64::from(random) / f64::from(u32::MAX));
        self.until = now.checked_add(pause + extra);
    }

    /// An attempt succeeded.
    pub fn succeed(&mut self) {
        *self = Self::default();
    }

    /// The earliest time of the next attempt, or `None` for now.
    #[must_use]
    pub const fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether an attempt may be made.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_most() {
        let bounds = (Duration::from_millis(100), Duration::from_secs(1));
        let (mut backoff, mut now) = (Backoff::default(), Instant::now());
        assert!(backoff.is_over(now));
        let mut pauses = Vec::new();
        for _ in 0..6 {
            backoff.fail(now, bounds, 0);
            assert!(!backoff.is_over(now));
            let until = backoff.until().unwrap();
            pauses.push((until - now).as_millis());
            now = until;
            assert!(backoff.is_over(now));
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000]);
        backoff.fail(now, bounds, u32::MAX);
        assert_eq!((backoff.until().unwrap() - now).as_millis(), 1250);
        for _ in 0..100 {
            backoff.fail(now, bounds, 0);
        }
        backoff.succeed();
        assert!(backoff.is_over(now) && backoff.failures == 0);
    }
}
