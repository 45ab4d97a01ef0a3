//! How often runs are made, and how long each is.

use crate::error::BenchError;
use clap::Args;
use std::marker::PhantomData;

/// What holds where a command line says nothing.
pub trait Usual {
    /// Seconds of each run.
    const SECONDS: &str;
    /// Runs of each transport.
    const PAIRS: &str;
}

/// On one host.
#[derive(Debug, Clone, Copy)]
pub struct OnOneHost;

impl Usual for OnOneHost {
    const SECONDS: &str = "0.8";
    const PAIRS: &str = "5";
}

/// Between two hosts.
#[derive(Debug, Clone, Copy)]
pub struct BetweenHosts;

impl Usual for BetweenHosts {
    const SECONDS: &str = "0.8";
    const PAIRS: &str = "3";
}

/// Of the papers' figures, which are many.
#[derive(Debug, Clone, Copy)]
pub struct OfFigures;

impl Usual for OfFigures {
    const SECONDS: &str = "0.5";
    const PAIRS: &str = "5";
}

/// What is said of it on a command line.
#[derive(Debug, Clone, Args)]
pub struct Repeated<U: Usual> {
    /// Seconds of each run
    #[arg(long, default_value = U::SECONDS, value_name = "SECONDS")]
    pub seconds: f64,

    /// Runs of each transport, interleaved, in alternating order
    #[arg(long, default_value = U::PAIRS, value_name = "NUMBER")]
    pub pairs: usize,

    #[arg(skip)]
    usual: PhantomData<U>,
}

/// Whether there is anything to do, within reason.
pub fn check(seconds: f64, pairs: usize) -> Result<(), BenchError> {
    let problem = |text: &str| Err(BenchError::Options(text.to_owned()));
    if pairs == 0 {
        return problem("at least one pair is needed");
    }
    if !(0.05..=3600.0).contains(&seconds) {
        return problem("the seconds of a run must be between 0.05 and 3600");
    }
    Ok(())
}

/// How often, and with what, runs are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Often {
    /// Seconds of each run.
    pub seconds: f64,
    /// Runs of each cell.
    pub pairs: usize,
    /// Runs of each where so many do not tell enough.
    pub most: usize,
    /// Whether each cell is profiled in a run of its own.
    pub profile: bool,
    /// Whether progress goes to stderr.
    pub progress: bool,
}

impl Often {
    /// Whether there is anything to do, within reason.
    pub fn check(&self) -> Result<(), BenchError> {
        check(self.seconds, self.pairs)
    }

    /// How many runs of each cell there are when it is asked whether they tell enough: few times, since who asks often enough finds
    /// what he asks for.
    pub fn stages(&self) -> impl Iterator<Item = usize> {
        let pairs = self.pairs;
        let stages = [pairs, (9 * pairs).div_ceil(5), 3 * pairs, 5 * pairs];
        let most = self.most.max(self.pairs);
        stages.into_iter().filter(move |runs| *runs <= most)
    }

    /// Runs of each cell, if no more are needed.
    pub fn runs(&self) -> usize {
        self.pairs + usize::from(self.profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line<U: Usual + Send + Sync + 'static> {
        #[command(flatten)]
        repeated: Repeated<U>,
    }

    #[test]
    fn each_command_has_its_own_usual() {
        let of_hosts = Line::<BetweenHosts>::parse_from(["hosts"]).repeated;
        let of_figures = Line::<OfFigures>::parse_from(["paper"]).repeated;
        let on_one = Line::<OnOneHost>::parse_from(["bench", "--pairs", "7"]).repeated;
        assert_eq!((of_hosts.seconds, of_hosts.pairs), (0.8, 3));
        assert_eq!((of_figures.seconds, of_figures.pairs), (0.5, 5));
        assert_eq!((on_one.seconds, on_one.pairs), (0.8, 7));
    }

    #[test]
    fn more_runs_are_made_in_stages() {
        let stages = |pairs, most| {
            let often = Often {
                seconds: 1.0,
                pairs,
                most,
                profile: false,
                progress: false,
            };
            often.stages().collect::<Vec<_>>()
        };
        assert_eq!(stages(5, 25), [5, 9, 15, 25]);
        assert_eq!(stages(3, 3), [3]);
        assert_eq!(stages(1, 5), [1, 2, 3, 5]);
    }
}
