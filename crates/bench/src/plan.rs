//! The runs and their order.

use crate::case::Case;
use crate::error::{BenchError, RunError};
use crate::measurement::Measurement;
use crate::options::{Options, Transport};
use crate::repetitions::check;
use std::collections::BTreeSet;

/// The result of a run.
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
    /// Its cases, in order.
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

    /// Whether there is anything to do, within limits.
    pub fn check(&self) -> Result<(), BenchError> {
        if self.experiments.is_empty() || self.transports.is_empty() {
            return Err(BenchError::Options(
                "nothing to run: name at least one experiment and one transport".to_owned(),
            ));
        }
        check(self.seconds, self.pairs)
    }
}

/// One run.
pub struct Run {
    /// Its results.
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
