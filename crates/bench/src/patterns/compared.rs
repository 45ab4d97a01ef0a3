//! Two cells measured in interleaved pairs, and what may be said of the difference.

use super::lab::Measured;
use super::profiled::Shares;
use crate::measurement::{Measurement, median};
use serde::{Deserialize, Serialize};

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

/// What pairs say of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Every pair says that it is above one.
    Above,
    /// Every pair says that it is below.
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

    /// What a figure of each pair, b's divided by a's, says.
    pub fn of_ratios(a: &Runs, b: &Runs, part: fn(&Measurement) -> Option<f64>) -> Option<Self> {
        let pairs = a.runs.iter().zip(&b.runs);
        let ratios: Vec<f64> = pairs
            .filter_map(|(a, b)| Some(part(b)? / part(a)?))
            .collect();
        Spread::of(&ratios)
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
