//! Measuring one figure: all that it compares, in turns, and what follows from it.

use super::figure::{Doing, Figure, Part};
use super::outcome::{Found, Outcome};
use super::verdict::Verdict;
use crate::ends::Ends;
use crate::error::RunError;
use crate::experiment;
use crate::options::{Options, Transport};
use crate::patterns::cell::Cell;
use crate::patterns::compared::{Runs, Spread, ratios};
use crate::patterns::comparison::{Progress, compare};
use crate::patterns::lab::{Lab, Measured};
use crate::repetitions::Often;
use crate::session::Session;
use std::path::Path;

const BOTH: [Transport; 2] = [Transport::Tcp, Transport::Netchannel];

/// The places of measurements.
pub struct Places<'a> {
    /// Two hosts.
    pub lab: Lab<'a>,
    /// This host; begun when first needed.
    pub here: Option<Session<'a>>,
    /// How it is begun.
    pub options: &'a Options,
    /// For its sockets and outputs.
    pub directory: &'a Path,
}

impl Places<'_> {
    fn measure(
        &mut self,
        doing: &Doing,
        transport: Transport,
        profile: bool,
    ) -> Result<Measured, RunError> {
        match doing {
            Doing::Pattern(work) => {
                let work = work.clone();
                self.lab.measure(&Cell { work, transport }, profile)
            }
            Doing::Program(case) => {
                let run = experiment::between_hosts(case)
                    .ok_or_else(|| RunError::Wrong(format!("there is no case {case}")))?;
                self.lab.program(case, transport, run)
            }
            Doing::Here(experiment, case) => {
                let (options, directory) = (self.options, self.directory);
                let session = self
                    .here
                    .get_or_insert_with(|| Session::start(options, directory));
                let figures = experiment::run(*experiment, &Ends::here(session), transport)?;
                let found = figures.into_iter().find(|(of, _)| of.name() == case);
                let (_, figures) =
                    found.ok_or_else(|| RunError::Wrong(format!("there is no case {case}")))?;
                Ok(Measured {
                    figures,
                    fallback: None,
                    shares: None,
                })
            }
        }
    }
}

/// The works of a figure: the first, and the one for comparison.
pub fn doings(figure: &Figure) -> Vec<Doing> {
    let specs = [&figure.a, &figure.b].into_iter().flatten();
    specs.filter_map(super::figure::Spec::doing).collect()
}

/// An outcome without figures.
pub fn without(figure: &Figure, verdict: Verdict, reason: Option<String>) -> Outcome {
    Outcome {
        name: figure.name.clone(),
        paper: figure.paper,
        of: figure.of.clone(),
        place: figure.place.clone(),
        claim: figure.claim.clone(),
        value: figure.value(),
        verdict,
        reason,
        kernel: None,
        netchannel: None,
        judged: None,
    }
}

/// Measures a figure. `None`: interrupted.
pub fn measure(
    figure: &Figure,
    places: &mut Places<'_>,
    often: Often,
    progress: &mut Progress,
) -> Option<Outcome> {
    let doings = doings(figure);
    let cells: Vec<(&Doing, Transport)> = BOTH
        .into_iter()
        .flat_map(|transport| doings.iter().map(move |doing| (doing, transport)))
        .collect();
    let name = |(doing, transport): &(&Doing, Transport)| {
        let what = match doing {
            Doing::Pattern(work) => work.to_string(),
            Doing::Program(case) | Doing::Here(_, case) => case.clone(),
        };
        format!("{}: {what}, {transport}", figure.name)
    };
    let names: Vec<String> = cells.iter().map(name).collect();
    let profile = figure.share.is_some();
    let enough = |all: &[Runs]| judge(figure, all).verdict != Verdict::WithinNoise;
    let all = compare(&names, often, progress, enough, |which, _| {
        let (doing, transport) = cells[which];
        places.measure(doing, transport, profile)
    })?;
    Some(judge(figure, &all))
}

/// Kernel TCP's runs come first, then NetChannel's; of each, a before b.
fn judge(figure: &Figure, all: &[Runs]) -> Outcome {
    if let Some(reason) = all.iter().find_map(|runs| runs.failure.clone()) {
        return without(figure, Verdict::Failed, Some(reason));
    }
    let mut outcome = without(figure, Verdict::NotComparable, None);
    if let Some(reason) = all.iter().find_map(|runs| runs.fallback.clone()) {
        outcome.reason = Some(format!(
            "kernel TCP carried what NetChannel was asked to ({reason})"
        ));
    }
    let (kernel, netchannel) = all.split_at(all.len() / 2);
    let of_kernel = values(figure, kernel);
    outcome.kernel = found(figure, kernel.len(), &of_kernel);
    outcome.netchannel = found(figure, netchannel.len(), &values(figure, netchannel));
    let judged = match (kernel, netchannel, figure.above) {
        (_, _, Some(above)) => of_kernel.iter().map(|share| share / above).collect(),
        _ if figure.absolute.is_some() => return outcome,
        _ if figure.part == Part::Sides => of_kernel,
        ([a], [b], _) => ratios(a, b, |run| figure.part.of(run)),
        _ => of_kernel,
    };
    outcome.judged = Spread::of_median(&judged);
    outcome.verdict = match outcome.judged {
        Some(spread) => Verdict::of(figure, spread),
        None => Verdict::Failed,
    };
    outcome
}

/// The values of a figure over one transport, one for each pair: the share of a category, a figure of a run, or a ratio
/// of two works.
fn values(figure: &Figure, runs: &[Runs]) -> Vec<f64> {
    match (runs, &figure.share) {
        ([a], Some(category)) => {
            let shares = a.shares.iter();
            let share = shares.map(|shares| shares.get(category).copied().unwrap_or(0.0));
            share.collect()
        }
        ([a], None) => a
            .runs
            .iter()
            .filter_map(|run| figure.part.of(run))
            .collect(),
        ([a, b], _) => ratios(a, b, |run| figure.part.of(run)),
        _ => Vec::new(),
    }
}

/// The same for people: the median, with the lowest and the highest.
fn found(figure: &Figure, works: usize, values: &[f64]) -> Option<Found> {
    let value = Spread::of(values)?;
    let text = |value: f64| match (works, &figure.share) {
        (1, Some(_)) => format!("{value:.1} %"),
        (1, None) => text(figure.part, value),
        _ => format!("x {value:.2}"),
    };
    let Spread { low, middle, high } = value;
    Some(Found {
        value,
        text: format!("{} ({} to {})", text(middle), text(low), text(high)),
    })
}

fn text(part: Part, value: f64) -> String {
    match part {
        Part::Rate if value >= 1000.0 => format!("{value:.0}/s"),
        Part::Rate => format!("{value:.2} Gbit/s"),
        Part::PerCore if value >= 1000.0 => format!("{value:.0} per CPU s"),
        Part::PerCore => format!("{value:.2} Gbit per CPU s"),
        Part::Cost => crate::table::time_text(value * 1e9),
        Part::P50 | Part::P99 | Part::P999 => crate::table::time_text(value),
        Part::Sides => format!("x {value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figure::all;
    use super::*;
    use crate::measurement::Measurement;

    fn runs(rates: &[f64]) -> Runs {
        let run = |rate: &f64| Measurement::new(*rate, 1.0, None, 1.0);
        Runs {
            runs: rates.iter().map(run).collect(),
            ..Runs::default()
        }
    }

    fn figure(name: &str) -> Figure {
        let mut figures = all().unwrap().into_iter();
        figures.find(|figure| figure.name == name).unwrap()
    }

    #[test]
    fn transports_are_compared_pair_by_pair() {
        let outcome = judge(
            &figure("netchannel-7a"),
            &[runs(&[10.0, 20.0]), runs(&[8.0, 15.0])],
        );
        assert_eq!(outcome.verdict, Verdict::SameDirection);
        let judged = outcome.judged.unwrap();
        assert_eq!((judged.low, judged.high), (0.75, 0.8));
    }

    #[test]
    fn works_are_judged_over_kernel_tcp() {
        let all = [
            runs(&[10.0, 10.0]),
            runs(&[5.0, 6.0]),
            runs(&[10.0, 10.0]),
            runs(&[20.0, 30.0]),
        ];
        let outcome = judge(&figure("study-mixed"), &all);
        assert_eq!(outcome.verdict, Verdict::SameDirection);
        assert_eq!(outcome.netchannel.unwrap().value.middle, 2.5);
    }

    #[test]
    fn another_machines_number_is_not_judged_and_a_failure_is_said() {
        let two = [runs(&[1.0]), runs(&[1.0])];
        let outcome = judge(&figure("study-single"), &two);
        assert_eq!(outcome.verdict, Verdict::NotComparable);
        let failed = Runs {
            failure: Some("no".to_owned()),
            ..Runs::default()
        };
        let outcome = judge(&figure("study-single"), &[failed, runs(&[1.0])]);
        assert_eq!(outcome.verdict, Verdict::Failed);
    }
}
