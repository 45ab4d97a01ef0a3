//! The cost for programs without sockets: calls on other files, the start of programs, and shells, which fork and
//! execute.

use super::programs::{count_of, second_line};
use crate::case::Case;
use crate::ends::{CpuSince, Ends};
use crate::error::RunError;
use crate::measurement::{Measurement, to_float};
use crate::options::Transport;
use crate::plan::Figures;
use crate::session::READY_LIMIT;

/// The cases, and the worker's word for each.
const CALLS: [(Case, &str); 7] = [
    (Case::CallsPoll, "poll"),
    (Case::CallsRead, "read"),
    (Case::CallsWrite, "write"),
    (Case::CallsOpen, "open"),
    (Case::CallsStart, "start"),
    (Case::CallsFork, "fork"),
    (Case::CallsShell, "shell"),
];

/// Each kind for its part of the run.
pub fn run(ends: &Ends<'_>, transport: Transport) -> Figures {
    if transport == Transport::Unix {
        return Err(RunError::NotApplicable("no socket is used".to_owned()));
    }
    let part = ends.seconds() / to_float(CALLS.len() as u64);
    let seconds = part.to_string();
    CALLS
        .into_iter()
        .map(|(case, word)| {
            let words = ["calls", word, &seconds];
            let mut program = ends.client.start_worker(transport.into(), &words)?;
            program.await_line("ready", READY_LIMIT)?;
            let since = CpuSince::now(ends, transport, &[], &[&program]);
            program.say("go")?;
            program.wait(ends.run_limit())?;
            let outcome = second_line(&program)?;
            let seconds = outcome.seconds;
            let cpu = since.used(&[], &[&program]);
            let count = count_of(&[outcome])?;
            Ok((case, Measurement::new(count, seconds, None, cpu)))
        })
        .collect()
}
