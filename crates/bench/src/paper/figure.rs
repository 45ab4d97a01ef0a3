//! The papers' figures as data: `papers.toml`, which begins with what its words mean.

use crate::experiment;
use crate::measurement::Measurement;
use crate::options::Experiment;
use crate::patterns::cell::{Path, Pattern, Work};
use serde::{Deserialize, Serialize};

const PAPERS: &str = include_str!("../../papers.toml");

/// The papers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Paper {
    /// The study of the host's network stack.
    Study,
    /// NetChannel itself.
    Netchannel,
    /// NetKernel.
    Netkernel,
    /// NetPopcorn.
    Netpopcorn,
}

impl Paper {
    /// All of them, in the order they are shown.
    pub const ALL: [Paper; 4] = [
        Paper::Study,
        Paper::Netchannel,
        Paper::Netkernel,
        Paper::Netpopcorn,
    ];

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Paper::Study => "Understanding Host Network Stack Overheads (SIGCOMM 2021)",
            Paper::Netchannel => "NetChannel (SIGCOMM 2022)",
            Paper::Netkernel => "NetKernel (ATC 2020)",
            Paper::Netpopcorn => "NetPopcorn",
        }
    }
}

/// The direction of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Above one.
    More,
    /// Below one.
    Less,
}

/// Which figure of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Work in a second.
    #[default]
    Rate,
    /// Work for each second of a processor.
    PerCore,
    /// Processor seconds for a unit of work.
    Cost,
    /// The middle latency.
    P50,
    /// The latency that one of 100 exceeds.
    P99,
    /// The latency that one of 1000 exceeds.
    P999,
    /// The receiver's processor time in terms of the sender's.
    Sides,
}

impl Part {
    /// Takes it from a run.
    pub fn of(self, run: &Measurement) -> Option<f64> {
        match self {
            Part::Rate => Some(run.rate),
            Part::PerCore => Some(1.0 / run.cpu_per_unit),
            Part::Cost => Some(run.cpu_per_unit),
            Part::P50 => run.latency.map(|latency| latency.p50),
            Part::P99 => run.latency.map(|latency| latency.p99),
            Part::P999 => run.latency.map(|latency| latency.p999),
            Part::Sides => run.sides.map(|sides| sides.server / sides.client),
        }
    }
}

/// The work.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// A pattern between two hosts.
    pub pattern: Option<Pattern>,
    /// The number of flows.
    #[serde(default = "one")]
    pub flows: usize,
    /// Bytes of its writes.
    pub size: Option<usize>,
    /// The network path under it.
    #[serde(default)]
    pub path: Path,
    /// A case of `bench hosts`.
    pub program: Option<String>,
    /// A case of `bench` on one host.
    pub here: Option<String>,
}

fn one() -> usize {
    1
}

/// The work and its method.
#[derive(Debug, Clone, PartialEq)]
pub enum Doing {
    /// A pattern between two hosts.
    Pattern(Work),
    /// Real programs between two hosts.
    Program(String),
    /// Programs on one host.
    Here(Experiment, String),
}

impl Spec {
    /// The work; `None` where it can not be done.
    pub fn doing(&self) -> Option<Doing> {
        if let Some(pattern) = self.pattern {
            let size = self.size.or_else(|| pattern.sizes().first().copied())?;
            return pattern.takes(size).then(|| {
                Doing::Pattern(Work {
                    pattern,
                    flows: self.flows,
                    size,
                    path: self.path.clone(),
                })
            });
        }
        if let Some(program) = &self.program {
            experiment::between_hosts(program)?;
            return Some(Doing::Program(program.clone()));
        }
        let here = self.here.as_ref()?;
        let has =
            |experiment: &&Experiment| experiment.cases().iter().any(|case| case.name() == here);
        let experiment = Experiment::ALL.iter().find(has)?;
        Some(Doing::Here(*experiment, here.clone()))
    }
}

/// A figure of a paper, and how it is measured here.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The word on the command line.
    pub name: String,
    /// The paper.
    pub paper: Paper,
    /// Which figure or table.
    pub of: String,
    /// The place in the text.
    pub place: String,
    /// The claim.
    pub claim: String,
    /// The paper's ratio.
    pub ratio: Option<f64>,
    /// The direction, where the paper gives no number.
    pub direction: Option<Way>,
    /// The tolerance, where the paper claims that there is no difference.
    pub same: Option<f64>,
    /// A number of the paper's own machine.
    pub absolute: Option<String>,
    /// The category of a profile.
    pub share: Option<String>,
    /// The percentage that it is more than.
    pub above: Option<f64>,
    /// The requirements.
    pub needs: Option<String>,
    /// Processors that it takes in all.
    pub processors: Option<usize>,
    /// A missing feature.
    pub later: Option<String>,
    /// Which figure of a run.
    #[serde(default)]
    pub part: Part,
    /// The work.
    pub a: Option<Spec>,
    /// The work for comparison.
    pub b: Option<Spec>,
}

#[derive(Deserialize)]
struct Papers {
    figure: Vec<Figure>,
}

/// All figures, in the order of the file.
pub fn all() -> Result<Vec<Figure>, toml::de::Error> {
    let papers: Papers = toml::from_str(PAPERS)?;
    Ok(papers.figure)
}

impl Figure {
    /// The reason why it can not be measured on this number of processors, if any.
    pub fn hindrance(&self, processors: usize) -> Option<String> {
        let needs = self.needs.as_ref()?;
        match self.processors {
            Some(wanted) if processors < wanted => Some(format!(
                "needs {wanted} processors, here are {processors}: {needs}"
            )),
            Some(_) if self.a.is_some() => None,
            _ => Some(format!("needs {needs}")),
        }
    }

    /// The value of the paper, in short.
    pub fn value(&self) -> String {
        if let Some(ratio) = self.ratio {
            return format!("x {ratio}");
        }
        if let Some(above) = self.above {
            return format!("more than {above} %");
        }
        if let Some(absolute) = &self.absolute {
            return absolute.clone();
        }
        match (self.direction, self.same) {
            (Some(Way::More), _) => "more".to_owned(),
            (Some(Way::Less), _) => "less".to_owned(),
            (None, Some(_)) => "the same".to_owned(),
            (None, None) => "-".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_figure_is_measured_or_says_why_not() {
        let figures = all().unwrap();
        let names: HashSet<&str> = figures.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names.len(), figures.len());
        for figure in &figures {
            let Figure { name, a, b, .. } = figure;
            for spec in [a, b].into_iter().flatten() {
                assert!(spec.doing().is_some(), "{name}: {spec:?}");
            }
            let said = [
                figure.ratio.is_some(),
                figure.direction.is_some(),
                figure.same.is_some(),
                figure.absolute.is_some(),
                figure.share.is_some() && figure.above.is_some(),
            ];
            let said = said.into_iter().filter(|is| *is).count();
            let reason = figure.needs.is_some() || figure.later.is_some();
            assert_eq!(said, usize::from(a.is_some()), "{name}");
            assert!(a.is_some() || reason, "{name}");
            assert!(
                !(figure.needs.is_some() && figure.later.is_some()),
                "{name}"
            );
        }
        for paper in Paper::ALL {
            assert!(figures.iter().any(|figure| figure.paper == paper));
        }
    }

    #[test]
    fn what_lacks_processors_says_how_many() {
        let figures = all().unwrap();
        let figure = figures.iter().find(|one| one.name == "netchannel-6a");
        let figure = figure.unwrap();
        assert!(
            figure
                .hindrance(2)
                .unwrap()
                .starts_with("needs 8 processors, here are 2")
        );
        assert_eq!(figure.hindrance(8), None);
    }
}
