//! The results of one run of an experiment, and the statistics over several runs.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// No operation is taken to last longer, in nanoseconds: a minute.
const LONGEST: u64 = 60_000_000_000;

/// A histogram of nanoseconds with three significant digits; it never grows while recording.
pub(crate) fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3)
        .unwrap_or_else(|_| unreachable!("these bounds and digits are allowed"))
}

/// Percentiles of a latency, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the operations took no longer.
    pub p50: f64,
    /// 99 of 100 took no longer.
    pub p99: f64,
    /// 999 of 1000 took no longer.
    pub p999: f64,
}

impl Latency {
    /// The percentiles of a histogram, each divided by `divisor` (2 makes a round trip one way).
    pub fn of(histogram: &Histogram<u64>, divisor: f64) -> Self {
        let at = |quantile| to_float(histogram.value_at_quantile(quantile)) / divisor;
        Latency {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
        }
    }

    fn map(many: &[Latency], combine: fn(&[f64]) -> Option<f64>) -> Option<Latency> {
        let each = |part: fn(&Latency) -> f64| {
            let values: Vec<f64> = many.iter().map(part).collect();
            combine(&values)
        };
        Some(Latency {
            p50: each(|latency| latency.p50)?,
            p99: each(|latency| latency.p99)?,
            p999: each(|latency| latency.p999)?,
        })
    }
}

/// CPU seconds of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cpu {
    /// Of all.
    pub seconds: f64,
    /// The values of each side, where there are two.
    pub sides: Option<Sides>,
}

impl From<f64> for Cpu {
    fn from(seconds: f64) -> Self {
        Cpu {
            seconds,
            sides: None,
        }
    }
}

/// CPU seconds of each side, for two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sides {
    /// The clients and their host's daemon.
    pub client: f64,
    /// The servers and their host's daemon.
    pub server: f64,
    /// The machine's kernel threads that move packets for both.
    pub kernel: f64,
}

impl Sides {
    fn combine(many: &[Sides], combine: impl Fn(&[f64]) -> Option<f64>) -> Option<Sides> {
        let each = |part: fn(&Sides) -> f64| {
            let values: Vec<f64> = many.iter().map(part).collect();
            combine(&values)
        };
        Some(Sides {
            client: each(|sides| sides.client)?,
            server: each(|sides| sides.server)?,
            kernel: each(|sides| sides.kernel)?,
        })
    }
}

/// One run, or the median of several; or, where noted, ratios of two.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Work per second, in the case's unit.
    pub rate: f64,
    /// Percentiles, where the case has them.
    pub latency: Option<Latency>,
    /// CPU seconds of all processes, the daemon included.
    pub cpu_seconds: f64,
    /// CPU seconds for one unit of work.
    pub cpu_per_unit: f64,
    /// The part of each side, where there are two hosts; not in ratios.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sides: Option<Sides>,
}

impl Measurement {
    /// A run that did `work` in `seconds`, at the cost of `cpu`.
    pub fn new(work: f64, seconds: f64, latency: Option<Latency>, cpu: impl Into<Cpu>) -> Self {
        let cpu = cpu.into();
        Measurement {
            rate: work / seconds,
            latency,
            cpu_seconds: cpu.seconds,
            cpu_per_unit: cpu.seconds / work,
            sides: cpu.sides,
        }
    }

    /// The work that was done, in the case's unit.
    pub fn work(&self) -> f64 {
        let work = self.cpu_seconds / self.cpu_per_unit;
        if work.is_finite() { work } else { 0.0 }
    }

    /// The median of each figure; nothing of nothing.
    pub fn median(runs: &[Measurement]) -> Option<Measurement> {
        let each = |part: fn(&Measurement) -> f64| {
            let values: Vec<f64> = runs.iter().map(part).collect();
            median(&values)
        };
        let latencies: Vec<Latency> = runs.iter().filter_map(|run| run.latency).collect();
        let sides: Vec<Sides> = runs.iter().filter_map(|run| run.sides).collect();
        Some(Measurement {
            rate: each(|run| run.rate)?,
            latency: Latency::map(&latencies, median),
            cpu_seconds: each(|run| run.cpu_seconds)?,
            cpu_per_unit: each(|run| run.cpu_per_unit)?,
            sides: Sides::combine(&sides, median),
        })
    }

    /// Each figure divided by the base's.
    pub fn ratio(&self, base: &Measurement) -> Measurement {
        let latency = match (self.latency, base.latency) {
            (Some(mine), Some(base)) => Some(Latency {
                p50: mine.p50 / base.p50,
                p99: mine.p99 / base.p99,
                p999: mine.p999 / base.p999,
            }),
            _ => None,
        };
        Measurement {
            rate: self.rate / base.rate,
            latency,
            cpu_seconds: self.cpu_seconds / base.cpu_seconds,
            cpu_per_unit: self.cpu_per_unit / base.cpu_per_unit,
            sides: None,
        }
    }
}

/// The middle value, or the mean of the two middle ones.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(sorted[middle - 1], upper))
}

/// Counts as floats: exact up to 2^53, more than any run counts.
pub(crate) fn to_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rate: f64, p50: f64) -> Measurement {
        let latency = Some(Latency {
            p50,
            p99: 2.0 * p50,
            p999: 4.0 * p50,
        });
        Measurement {
            rate,
            latency,
            cpu_seconds: 1.0,
            cpu_per_unit: 1.0 / rate,
            sides: None,
        }
    }

    #[test]
    fn the_median_is_the_middle_and_ignores_order() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 4.0]), Some(4.0));
        assert_eq!(median(&[9.0, 1.0, 4.0, 2.0]), Some(3.0));
    }

    #[test]
    fn medians_are_taken_figure_by_figure() {
        let runs = [run(10.0, 5.0), run(30.0, 1.0), run(20.0, 9.0)];
        let median = Measurement::median(&runs).unwrap();
        assert_eq!(median.rate, 20.0);
        assert_eq!(
            median.latency,
            Some(Latency {
                p50: 5.0,
                p99: 10.0,
                p999: 20.0
            })
        );
        assert_eq!(median.cpu_per_unit, 0.05);
        assert_eq!(Measurement::median(&[]), None);
    }

    #[test]
    fn ratios_divide_each_figure() {
        let ratio = run(40.0, 1.0).ratio(&run(10.0, 8.0));
        assert_eq!(ratio.rate, 4.0);
        assert_eq!(
            ratio.latency,
            Some(Latency {
                p50: 0.125,
                p99: 0.125,
                p999: 0.125
            })
        );
        assert_eq!(ratio.cpu_seconds, 1.0);
        assert_eq!(ratio.cpu_per_unit, 0.25);
    }

    #[test]
    fn rates_and_costs_follow_from_work_and_time() {
        let measured = Measurement::new(1000.0, 0.5, None, 0.25);
        assert_eq!(measured.rate, 2000.0);
        assert_eq!(measured.cpu_per_unit, 0.00025);
        assert_eq!(measured.work(), 1000.0);
        assert_eq!(Measurement::new(5.0, 1.0, None, 0.0).work(), 0.0);
    }

    #[test]
    fn percentiles_come_from_the_histogram_within_its_precision() {
        let mut histogram = latency_histogram();
        for value in 1..=1000 {
            histogram.saturating_record(value * 1000);
        }
        let latency = Latency::of(&histogram, 2.0);
        for (figure, expected) in [
            (latency.p50, 250_000.0),
            (latency.p99, 495_000.0),
            (latency.p999, 499_500.0),
        ] {
            assert!(
                (figure / expected - 1.0).abs() < 0.002,
                "{figure} is not {expected}"
            );
        }
    }
}
