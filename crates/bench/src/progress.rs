//! A line on stderr while the experiments run.

use crate::error::RunError;
use crate::measurement::Measurement;
use crate::options::{Case, Experiment, Options, Transport};
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
    pub fn new(options: &Options) -> Self {
        Progress {
            wanted: options.progress,
            terminal: io::stderr().is_terminal(),
            done: 0,
            total: options.experiments.len() * options.transports.len() * options.pairs,
            pairs: options.pairs,
        }
    }

    /// A run that is known to give nothing.
    pub fn skip(&mut self) {
        self.done += 1;
    }

    pub fn begin(&mut self, experiment: Experiment, transport: Transport, pair: usize) {
        self.done += 1;
        let (done, total, pairs) = (self.done, self.total, self.pairs);
        let width = total.to_string().len();
        let pair = pair + 1;
        self.write(&format!(
            "[{done:>width$}/{total}] {experiment:<11} {transport:<10} pair {pair} of {pairs}"
        ));
    }

    pub fn end(&mut self, result: &Result<Vec<(Case, Measurement)>, RunError>) {
        if self.terminal && result.is_ok() {
            // The next line shows soon enough; figures flicker by unread.
            return;
        }
        let text = match result {
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
        self.write(&format!("  {text}"));
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
            // A terminal that is gone is no reason to stop measuring.
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
