//! The papers' figures by one command: each with what the paper says, what is found here, and a verdict that is computed.
//!
//! ```text
//!   papers.toml ──> Figure ──> measure: cells in turns, in a Lab or on this host ──> judge ──> Outcome (kept in a file)
//!                                                                                   verdict      │
//!                                                             table, JSON, HTML <── PaperReport <┘
//! ```

mod agreement;
mod figure;
mod measure;
mod outcome;
mod report;
mod verdict;

use crate::error::BenchError;
use crate::host::Host;
use crate::hosts::Made;
use crate::interrupt;
use crate::options::{Launcher, Options, Transport, WorkerCommand};
use crate::output::{Shown, print};
use crate::patterns::comparison::Progress;
use crate::patterns::lab::{Lab, LabOptions};
use crate::repetitions::{OfFigures, Often, Repeated};
use agreement::Agreement;
use clap::Args;
use figure::Figure;
use measure::{Places, doings, without};
use outcome::{Kept, PaperReport};
use std::path::PathBuf;
use verdict::Verdict;

/// So many times as many runs are made where fewer do not agree.
const MORE: usize = 5;

/// Examples and exit codes, below `--help`.
pub const HELP: &str = "\
Examples:
  netchannel bench paper                                  every figure; goes on where it was interrupted
  netchannel bench paper --html papers.html               with pictures, in one file
  netchannel bench paper --figure netchannel-6d           one of them
  netchannel bench paper --list                           what there is, and what cannot be measured here
  netchannel bench paper --fresh --pairs 9 --json
  netchannel bench paper --compare first.json second.json whether two reports say the same

Verdicts are computed from the spread of the pairs, and more pairs are made where they do not agree: docs/papers.md explains them. What was found is kept in --state and taken from there as long as machine and options are the same.

Exit codes:
  0  nothing failed; the two agree    1  something did; they do not    2  the command line is wrong
  77  no network namespaces can be made here    130  interrupted";

/// What can be asked for.
#[derive(Debug, Clone, Args)]
pub struct PaperArguments {
    /// Only this figure; may be given several times
    #[arg(long, value_name = "NAME")]
    pub figure: Vec<String>,

    /// List the figures, and measure nothing
    #[arg(long)]
    pub list: bool,

    /// Write a report with pictures into this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Where what was found is kept
    #[arg(long, value_name = "FILE", default_value = "netchannel-paper.json")]
    pub state: PathBuf,

    /// Measure again what was found before
    #[arg(long)]
    pub fresh: bool,

    /// Compare the verdicts of two reports, which --json or --state wrote, and measure nothing
    #[arg(long, num_args = 2, value_names = ["A.json", "B.json"], conflicts_with_all = ["figure", "list", "html", "fresh"])]
    pub compare: Vec<PathBuf>,

    /// How often.
    #[command(flatten)]
    pub repeated: Repeated<OfFigures>,

    /// What the hosts are made of.
    #[command(flatten)]
    pub made: Made,

    /// How the report is shown.
    #[command(flatten)]
    pub shown: Shown,
}

impl PaperArguments {
    fn figures(&self) -> Result<Vec<Figure>, BenchError> {
        let all = figure::all()
            .map_err(|error| BenchError::Options(format!("the papers' figures: {error}")))?;
        for name in &self.figure {
            if !all.iter().any(|figure| figure.name == *name) {
                return Err(BenchError::Options(format!(
                    "there is no figure {name}: `netchannel bench paper --list` shows those that there are"
                )));
            }
        }
        let wanted = |figure: &Figure| self.figure.is_empty() || self.figure.contains(&figure.name);
        Ok(all.into_iter().filter(wanted).collect())
    }

    /// Shows whether two reports say the same. True when they do.
    pub fn agree(&self) -> Result<bool, BenchError> {
        let [a, b] = &self.compare[..] else {
            return Err(BenchError::Options("two reports are needed".to_owned()));
        };
        let agreement = Agreement::of([a, b])?;
        print(&agreement.table())?;
        Ok(agreement.is_good())
    }

    fn often(&self) -> Often {
        Often {
            seconds: self.repeated.seconds,
            pairs: self.repeated.pairs,
            most: MORE * self.repeated.pairs,
            profile: false,
            progress: !self.shown.quiet,
        }
    }

    /// Under what the figures hold, apart from how often they are measured.
    fn setting(&self) -> String {
        format!("{:?}", self.made)
    }
}

/// Measures the figures; progress goes to stderr. To be called while the process has one thread only. Ends early with what was done,
/// if it is interrupted.
pub fn run(
    arguments: &PaperArguments,
    netchannel: PathBuf,
    worker: WorkerCommand,
) -> Result<PaperReport, BenchError> {
    let (figures, often) = (arguments.figures()?, arguments.often());
    often.check()?;
    let host = Host::this();
    let mut kept = Kept::new(often.seconds, often.pairs, arguments.setting());
    if !arguments.fresh {
        kept.resume(&arguments.state);
    }
    // Said now, and not after the first figure.
    let targets = [Some(&arguments.state), arguments.html.as_ref()];
    if !arguments.list {
        targets
            .into_iter()
            .flatten()
            .try_for_each(|file| outcome::check(file))?;
    }
    let foregone = |figure: &Figure| {
        if let Some(what) = &figure.later {
            return Some(without(figure, Verdict::NotBuiltYet, Some(what.clone())));
        }
        let reason = figure.hindrance(host.processors)?;
        Some(without(figure, Verdict::NotMeasurable, Some(reason)))
    };
    let missing: Vec<&Figure> = figures
        .iter()
        .filter(|figure| foregone(figure).is_none() && kept.of(&figure.name).is_none())
        .collect();
    let mut failed = Vec::new();
    let mut place = None;
    let _listening = interrupt::Listening::start();
    if !missing.is_empty() && !arguments.list {
        let lab_options = LabOptions {
            seconds: often.seconds,
            cores: arguments.made.cores.of_hosts(),
            congestion_control: arguments.made.congestion_control.clone(),
            of_channels: arguments.made.channels_congestion_control.clone(),
            netchannel: netchannel.clone(),
            worker: worker.clone(),
        };
        let options = Options {
            experiments: Vec::new(),
            transports: vec![Transport::Tcp, Transport::Netchannel],
            seconds: often.seconds,
            pairs: often.pairs,
            launcher: Launcher {
                netchannel,
                socket: None,
            },
            worker,
            progress: false,
        };
        let lab = Lab::make(&lab_options)?;
        place = Some(lab.place());
        let directory = crate::temporary_directory()?;
        let mut places = Places {
            lab,
            here: None,
            options: &options,
            directory: directory.path(),
        };
        let runs = |figure: &&Figure| 2 * doings(figure).len() * often.runs();
        let mut progress = Progress::new(often.progress, missing.iter().map(runs).sum());
        for figure in missing {
            match measure::measure(figure, &mut places, often, &mut progress) {
                Some(outcome) if outcome.verdict == Verdict::Failed => failed.push(outcome),
                Some(outcome) => kept.add(outcome, &arguments.state)?,
                None => break,
            }
        }
    }
    let outcome = |figure: &Figure| {
        let known = failed.iter().find(|outcome| outcome.name == figure.name);
        let known = known.or_else(|| kept.of(&figure.name)).cloned();
        let unknown = || {
            arguments
                .list
                .then(|| without(figure, Verdict::NotMeasured, None))
        };
        foregone(figure).or(known).or_else(unknown)
    };
    Ok(PaperReport {
        host: host.clone(),
        place,
        seconds: often.seconds,
        pairs: often.pairs,
        outcomes: figures.iter().filter_map(outcome).collect(),
        interrupted: interrupt::requested(),
    })
}
