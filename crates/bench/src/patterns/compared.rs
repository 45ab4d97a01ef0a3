//! Two cells measured in interleaved pairs, and the verdict on the difference.

use super::lab::Measured;
use super::profiled::Shares;
use crate::measurement::{Measurement, median};
use serde::{Deserialize, Serialize};

/// The probability that all of five throws are heads, or none is.
const ODDS: f64 = 2.0 / 32.0;

/// All runs of one cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Runs {
    /// Every run, in the order of the pairs.
    pub runs: Vec<Measurement>,
    /// Why kernel TCP carried some although NetChannel was asked to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Percent of the busy samples by category, of each profiled run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Shares>,
    /// Why there are no figures, or no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Runs {
    /// Adds a run.
    pub fn add(&mut self, measured: Measured) {
        self.runs.push(measured.figures);
        self.fallback = self.fallback.take().or(measured.fallback);
        self.shares.extend(measured.shares);
    }

    /// The median of each figure.
    pub fn median(&self) -> Option<Measurement> {
        Measurement::median(&self.runs)
    }

    /// The median share of a category.
    pub fn share(&self, category: &str) -> Option<f64> {
        let values = self.shares.iter();
        let values: Vec<f64> = values
            .map(|shares| shares.get(category).copied().unwrap_or(0.0))
            .collect();
        median(&values)
    }
}

/// The lowest, the middle and the highest of several figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The lowest.
    pub low: f64,
    /// The middle.
    pub middle: f64,
    /// The highest.
    pub high: f64,
}

/// The verdict of pairs on a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Every pair is above one.
    Above,
    /// Every pair is below one.
    Below,
    /// The pairs do not agree, or there is only one.
    WithinNoise,
}

impl Spread {
    /// Of some figures; nothing of nothing.
    pub fn of(values: &[f64]) -> Option<Self> {
        let values: Vec<f64> = values
            .iter()
            .copied()
            .filter(|value| value.is_finite())
            .collect();
        Some(Spread {
            low: values.iter().copied().reduce(f64::min)?,
            middle: median(&values)?,
            high: values.iter().copied().reduce(f64::max)?,
        })
    }

    /// The range of the median of an unlimited number of runs: at odds of at least 15 to 1. For five to eight runs it
    /// is from the lowest to the highest; for more, the outermost ones are left out.
    pub fn of_median(values: &[f64]) -> Option<Self> {
        let whole = Spread::of(values)?;
        let mut sorted: Vec<f64> = values
            .iter()
            .copied()
            .filter(|one| one.is_finite())
            .collect();
        sorted.sort_by(f64::total_cmp);
        let left_out = outermost(sorted.len());
        let inner = sorted.get(left_out..sorted.len() - left_out)?;
        Some(Spread {
            low: *inner.first()?,
            high: *inner.last()?,
            ..whole
        })
    }

    /// The verdict on a figure of each pair, b's divided by a's.
    pub fn of_ratios(
        a: &Runs,
        b: &Runs,
        part: impl Fn(&Measurement) -> Option<f64>,
    ) -> Option<Self> {
        Spread::of(&ratios(a, b, part))
    }

    /// Which side of one all pairs are on.
    pub fn direction(&self) -> Direction {
        if self.low > 1.0 && self.low < self.high {
            Direction::Above
        } else if self.high < 1.0 && self.low < self.high {
            Direction::Below
        } else {
            Direction::WithinNoise
        }
    }
}

/// A figure of each pair: b's divided by a's.
pub fn ratios(a: &Runs, b: &Runs, part: impl Fn(&Measurement) -> Option<f64>) -> Vec<f64> {
    let pairs = a.runs.iter().zip(&b.runs);
    let ratios = pairs.filter_map(|(a, b)| Some(part(b)? / part(a)?));
    ratios.collect()
}

/// How many values of each end may be left out: the chance that the true median is beyond them is that of so few heads
/// in as many throws.
fn outermost(count: usize) -> usize {
    let mut binomial = 1.0;
    let mut chance = 0.0;
    let throws = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    for heads in 0..count / 2 {
        chance += binomial * throws;
        if 2.0 * chance > ODDS {
            return heads.saturating_sub(1);
        }
        binomial *= to_float(count - heads) / to_float(heads + 1);
    }
    0
}

fn to_float(count: usize) -> f64 {
    crate::measurement::to_float(u64::try_from(count).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pairs_that_agree_say_something() {
        let direction = |values: &[f64]| Spread::of(values).map(|spread| spread.direction());
        assert_eq!(direction(&[1.1, 1.4, 2.0]), Some(Direction::Above));
        assert_eq!(direction(&[0.5, 0.9]), Some(Direction::Below));
        assert_eq!(direction(&[0.9, 1.2, 1.3]), Some(Direction::WithinNoise));
        assert_eq!(direction(&[2.0]), Some(Direction::WithinNoise));
        assert_eq!(direction(&[]), None);
    }

    #[test]
    fn of_many_runs_the_outermost_count_no_more() {
        let counts = [1, 3, 5, 8, 9, 11, 12, 15, 25].map(outermost);
        assert_eq!(counts, [0, 0, 0, 0, 1, 1, 2, 3, 7]);
        let interval = |values: &[f64]| {
            let spread = Spread::of_median(values).unwrap();
            (spread.low, spread.middle, spread.high)
        };
        assert_eq!(interval(&[3.0, 1.0, 2.0]), (1.0, 2.0, 3.0));
        let nine = [0.2, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 9.0];
        assert_eq!(interval(&nine), (1.1, 1.4, 1.7));
        assert_eq!(Spread::of_median(&[]), None);
    }

    #[test]
    fn ratios_are_of_the_same_pair() {
        let runs = |rates: &[f64]| Runs {
            runs: rates
                .iter()
                .map(|rate| Measurement::new(*rate, 1.0, None, 1.0))
                .collect(),
            ..Runs::default()
        };
        let spread = Spread::of_ratios(&runs(&[1.0, 2.0, 4.0]), &runs(&[2.0, 3.0, 8.0]), |one| {
            Some(one.rate)
        });
        let expected = Spread {
            low: 1.5,
            middle: 2.0,
            high: 2.0,
        };
        assert_eq!(spread, Some(expected));
    }
}
