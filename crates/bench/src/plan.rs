//! Which runs there are, and in which order.

use crate::case::Case;
use crate::error::{BenchError, RunError};
use crate::interrupt;
use crate::measurement::Measurement;
use crate::options::{Options, Transport};
use crate::progress::Progress;
use crate::report::Collector;
use std::collections::BTreeSet;

/// What a run yields.
pub type Figures = Result<Vec<(Case, Measurement)>, RunError>;

/// Every run of a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Experiments in order.
    pub experiments: Vec<Planned>,
    /// Transports in order.
    pub transports: Vec<Transport>,
    /// Seconds of each run.
    pub seconds: f64,
    /// Runs of each transport, interleaved.
    pub pairs: usize,
    /// Whether progress goes to stderr.
    pub progress: bool,
}

/// One experiment of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The word on the command line.
    pub name: &'static str,
    /// What it yields, in order.
    pub cases: Vec<Case>,
}

impl Plan {
    /// The plan of experiments on one host.
    pub fn of(options: &Options) -> Self {
        let experiments = options.experiments.iter().map(|experiment| Planned {
            name: experiment.name(),
            cases: experiment.cases().to_vec(),
        });
        Plan {
            experiments: experiments.collect(),
            transports: options.transports.clone(),
            seconds: options.seconds,
            pairs: options.pairs,
            progress: options.progress,
        }
    }

    /// Whether there is anything to do, within reason.
    pub fn check(&self) -> Result<(), BenchError> {
        let problem = |text: &str| Err(BenchError::Options(text.to_owned()));
        if self.experiments.is_empty() || self.transports.is_empty() {
            return problem("nothing to run: name at least one experiment and one transport");
        }
        if self.pairs == 0 {
            return problem("at least one pair is needed");
        }
        if !(self.seconds >= 0.05 && self.seconds <= 3600.0) {
            return problem("the seconds of a run must be between 0.05 and 3600");
        }
        Ok(())
    }

    /// Makes every run and collects what it yields. `run` is told the experiment's place in the plan.
    pub fn carry_out(
        &self,
        collector: &mut Collector,
        mut run: impl FnMut(usize, Transport) -> Run,
    ) -> Result<(), BenchError> {
        let mut progress = Progress::new(self);
        for (place, experiment) in self.experiments.iter().enumerate() {
            for pair in 0..self.pairs {
                for transport in order(&self.transports, pair) {
                    if interrupt::requested() {
                        return Err(BenchError::Interrupted);
                    }
                    if collector.is_given_up(experiment.name, transport) {
                        progress.skip();
                        continue;
                    }
                    progress.begin(experiment.name, transport, pair);
                    let run = run(place, transport);
                    if matches!(run.figures, Err(RunError::Interrupted)) || interrupt::requested() {
                        return Err(BenchError::Interrupted);
                    }
                    progress.end(&run);
                    collector.add(experiment.name, transport, run);
                }
            }
        }
        Ok(())
    }
}

/// One run.
pub struct Run {
    /// What it measured.
    pub figures: Figures,
    /// Why kernel TCP carried it although NetChannel was asked to; empty if it did not.
    pub fallbacks: BTreeSet<String>,
}

impl From<Figures> for Run {
    fn from(figures: Figures) -> Self {
        Run {
            figures,
            fallbacks: BTreeSet::new(),
        }
    }
}

/// Every other pair runs the other way round, so that a drift of the machine favours nobody.
fn order(transports: &[Transport], pair: usize) -> Vec<Transport> {
    let mut order = transports.to_vec();
    if pair % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_alternates() {
        assert_eq!(order(&Transport::ALL, 0), Transport::ALL);
        let reversed = [Transport::Netchannel, Transport::Unix, Transport::Tcp];
        assert_eq!(order(&Transport::ALL, 1), reversed);
        assert_eq!(order(&Transport::ALL, 2), Transport::ALL);
    }
}
