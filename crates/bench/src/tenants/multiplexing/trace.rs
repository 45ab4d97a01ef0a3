//! Bursty traffic of several tenants, the same for the same seed: quiet most of the time, with bursts whose length and height are Pareto's
//! (NetKernel, Figure 7).

use crate::measurement::to_float;

/// Traffic between bursts, as a part of the peak.
const QUIET: f64 = 0.05;
/// The part of steps in which a burst begins.
const BEGINNINGS: f64 = 0.08;
/// The exponent: lengths have a mean and no variance.
const SHAPE: f64 = 1.5;
/// Steps of the shortest burst, and of the longest.
const STEPS: [f64; 2] = [1.0, 6.0];
/// The lowest burst, as a part of the peak.
const LOWEST: f64 = 0.4;

/// Requests per second of each tenant in each step. Each tenant reaches the peak once.
pub fn rates(seed: u64, tenants: usize, steps: usize, peak: f64) -> Vec<Vec<f64>> {
    let mut random = Random(seed);
    (0..tenants)
        .map(|_| of_one(&mut random, steps, peak))
        .collect()
}

fn of_one(random: &mut Random, steps: usize, peak: f64) -> Vec<f64> {
    let mut heights = Vec::with_capacity(steps);
    while heights.len() < steps {
        if random.part() >= BEGINNINGS {
            heights.push(QUIET);
            continue;
        }
        let length = (STEPS[0] * random.pareto()).min(STEPS[1]);
        let height = (LOWEST * random.pareto()).min(1.0);
        let mut left = length;
        while left >= 1.0 && heights.len() < steps {
            heights.push(height);
            left -= 1.0;
        }
    }
    let highest = heights.iter().copied().fold(QUIET, f64::max);
    if highest < 1.0 {
        // A trace without the peak would need less than what must be reserved.
        let place = usize::try_from(random.next() % (steps as u64).max(1)).unwrap_or(0);
        if let Some(height) = heights.get_mut(place) {
            *height = 1.0;
        }
    }
    heights
        .iter()
        .map(|height| (height * peak).round())
        .collect()
}

/// The mean of a tenant's rates.
pub fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / to_float(rates.len() as u64).max(1.0)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// From 0 up to 1.
    fn part(&mut self) -> f64 {
        to_float(self.next() >> 12) / to_float(1 << 52)
    }

    /// From 1 on.
    fn pareto(&mut self) -> f64 {
        (1.0 - self.part()).powf(-1.0 / SHAPE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_trace_and_tenants_differ() {
        let trace = rates(7, 3, 60, 1000.0);
        assert_eq!(trace, rates(7, 3, 60, 1000.0));
        assert_ne!(trace, rates(8, 3, 60, 1000.0));
        assert_ne!(trace[0], trace[1]);
    }

    #[test]
    fn it_is_bursty_and_reaches_its_peak() {
        for seed in 0..50 {
            for one in rates(seed, 3, 200, 1000.0) {
                let highest = one.iter().copied().fold(0.0, f64::max);
                assert_eq!((one.len(), highest), (200, 1000.0));
                let ratio = highest / mean(&one);
                assert!((3.0..13.0).contains(&ratio), "{ratio}");
            }
        }
    }
}
