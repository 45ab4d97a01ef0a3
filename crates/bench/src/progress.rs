//! A line on stderr while the experiments run.

use crate::options::Transport;
use crate::plan::{Plan, Run};
use crate::report::reasons_text;
use crate::table::{rate_text, with_unit};
use std::io::{self, IsTerminal, Write};

/// Says what is going on: on a terminal in one line that is written over, else line by line.
pub struct Progress {
    wanted: bool,
    terminal: bool,
    done: usize,
    total: usize,
    pairs: usize,
}

impl Progress {
    pub fn new(plan: &Plan) -> Self {
        Progress {
            wanted: plan.progress,
            terminal: io::stderr().is_terminal(),
            done: 0,
            total: plan.experiments.len() * plan.transports.len() * plan.pairs,
            pairs: plan.pairs,
        }
    }

    /// Skips a run that is known to have no result.
    pub fn skip(&mut self) {
        self.done += 1;
    }

    pub fn begin(&mut self, experiment: &str, transport: Transport, pair: usize) {
        self.done += 1;
        let (done, total, pairs) = (self.done, self.total, self.pairs);
        let width = total.to_string().len();
        let pair = pair + 1;
        self.write(&format!(
            "[{done:>width$}/{total}] {experiment:<11} {transport:<10} pair {pair} of {pairs}"
        ));
    }

    pub fn end(&mut self, run: &Run) {
        if self.terminal && run.figures.is_ok() {
            // The next line shows soon enough; figures flicker by unread.
            return;
        }
        let text = match &run.figures {
            Ok(figures) => figures
                .iter()
                .map(|(case, measured)| {
                    format!(
                        "{}: {}",
                        case.name(),
                        with_unit(*case, &rate_text(*case, measured.rate))
                    )
                })
                .collect::<Vec<_>>()
                .join(", "),
            Err(error) => error.to_string(),
        };
        let fallback = reasons_text(&run.fallbacks);
        let fallback = fallback.map(|reasons| format!("; kernel TCP carried it ({reasons})"));
        self.write(&format!("  {text}{}", fallback.unwrap_or_default()));
        if self.terminal && self.wanted {
            eprintln!();
        }
    }

    fn write(&self, text: &str) {
        if !self.wanted {
            return;
        }
        if self.terminal {
            let mut stderr = io::stderr().lock();
            // A closed terminal does not stop the measurement.
            let _ = write!(stderr, "\r\x1b[K{text}");
            let _ = stderr.flush();
        } else {
            eprintln!("{text}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.wanted && self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}
