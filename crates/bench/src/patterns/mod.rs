//! Traffic patterns between two hosts, over kernel TCP and NetChannel, with what lies under them varied.
//!
//! ```text
//!   arguments ──> Work (pattern, flows, size, path) ──> compare: pairs of cells in turns
//!                                                          │
//!                  Lab: two hosts, daemons, devices <──────┤ measure one cell
//!                    programs: receivers, senders   <──────┘
//!                    profiled: `netchannel profile` beside a run
//! ```

mod arguments;
pub mod cell;
pub mod compared;
pub mod comparison;
pub mod lab;
mod profiled;
mod programs;
mod report;

pub use arguments::{HELP, PatternsArguments};
pub use report::{PatternRow, PatternsReport};

use crate::error::BenchError;
use crate::host::Host;
use crate::interrupt;
use crate::options::WorkerCommand;
use crate::report::Absence;
use cell::{Cell, Optimisations};
use compared::Runs;
use comparison::{Progress, compare};
use lab::Lab;
use report::TRANSPORTS;
use std::path::PathBuf;

/// Runs the patterns; progress goes to stderr. To be called while the process has one thread only. Ends early with what was done,
/// if it is interrupted.
pub fn run(
    arguments: &PatternsArguments,
    netchannel: PathBuf,
    worker: WorkerCommand,
) -> Result<PatternsReport, BenchError> {
    let (works, often) = (arguments.works()?, arguments.often());
    often.check()?;
    let options = arguments.lab(netchannel, worker);
    let _listening = interrupt::Listening::start();
    let mut lab = Lab::make(&options)?;
    let mut rows = Vec::new();
    {
        let mut progress = Progress::new(often.progress, 2 * works.len() * often.runs());
        for work in &works {
            let cells = TRANSPORTS.map(|transport| Cell {
                work: work.clone(),
                transport,
            });
            let names = cells.each_ref().map(ToString::to_string);
            let runs = compare(
                &names,
                often,
                &mut progress,
                |_| true,
                |which, profile| lab.measure(&cells[which], profile),
            );
            let Some(Ok(runs)) = runs.map(<[Runs; 2]>::try_from) else {
                break;
            };
            rows.push(PatternRow::new(work.clone(), runs));
        }
    }
    let pinned = |row: &PatternRow| row.work.path.optimisations == Optimisations::Pinned;
    let mut absent = Vec::new();
    if rows.iter().any(pinned) && lab.processors() < 2 {
        absent.push(Absence {
            what: "a processor for each program".to_owned(),
            reason: "each host has one processor here: `pinned` is `jumbo`, and flows share it; four processors and more tell them \
                     apart"
                .to_owned(),
        });
    }
    Ok(PatternsReport {
        host: Host::this(),
        place: lab.place(),
        seconds: often.seconds,
        pairs: often.pairs,
        rows,
        absent,
        interrupted: interrupt::requested(),
    })
}
