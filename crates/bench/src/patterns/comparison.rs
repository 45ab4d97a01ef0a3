//! Which comparisons there are, and making them: the runs of both cells in turns, every other pair the other way round.

use super::compared::Runs;
use super::lab::Measured;
use crate::error::{BenchError, RunError};
use crate::interrupt;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often, and with what, runs are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Often {
    /// Seconds of each run.
    pub seconds: f64,
    /// Runs of each cell.
    pub pairs: usize,
    /// Whether each cell is profiled in a run of its own.
    pub profile: bool,
    /// Whether progress goes to stderr.
    pub progress: bool,
}

impl Often {
    /// Whether there is anything to do, within reason.
    pub fn check(&self) -> Result<(), BenchError> {
        let problem = |text: &str| Err(BenchError::Options(text.to_owned()));
        if self.pairs == 0 {
            return problem("at least one pair is needed");
        }
        if !(self.seconds >= 0.05 && self.seconds <= 3600.0) {
            return problem("the seconds of a run must be between 0.05 and 3600");
        }
        Ok(())
    }

    /// Runs of each cell.
    pub fn runs(&self) -> usize {
        self.pairs + usize::from(self.profile)
    }
}

/// Makes the runs of several cells in turns; `measure` is told which, and whether to profile it. `None`: somebody asked to stop, and
/// not all was done.
pub fn compare(
    names: &[String],
    often: Often,
    progress: &mut Progress,
    mut measure: impl FnMut(usize, bool) -> Result<Measured, RunError>,
) -> Option<Vec<Runs>> {
    let mut all = vec![Runs::default(); names.len()];
    let profiled = often.pairs..often.pairs + usize::from(often.profile);
    for pair in 0..profiled.end {
        let profile = profiled.contains(&pair);
        let number = if profile {
            "profiled".to_owned()
        } else {
            format!("pair {} of {}", pair + 1, often.pairs)
        };
        for place in 0..names.len() {
            let which = if pair % 2 == 0 {
                place
            } else {
                names.len() - 1 - place
            };
            let (name, runs) = (&names[which], &mut all[which]);
            if interrupt::requested() {
                return None;
            }
            if runs.failure.is_some() {
                progress.skip(1);
                continue;
            }
            progress.begin(&format!("{name}, {number}"));
            match measure(which, profile) {
                // A run that is profiled besides is a little slower: its rate is not taken.
                Ok(measured) if profile => runs.shares.extend(measured.shares),
                Ok(measured) => runs.add(measured),
                Err(RunError::Interrupted) => return None,
                Err(error) => {
                    progress.say(&format!("  {error}"));
                    runs.failure = Some(error.to_string());
                }
            }
        }
    }
    (!interrupt::requested()).then_some(all)
}

/// A line on stderr: what runs, and how long the rest will take.
pub struct Progress {
    wanted: bool,
    terminal: bool,
    done: usize,
    total: usize,
    begun: Instant,
}

impl Progress {
    /// For so many runs.
    pub fn new(wanted: bool, total: usize) -> Self {
        Progress {
            wanted,
            terminal: io::stderr().is_terminal(),
            done: 0,
            total,
            begun: Instant::now(),
        }
    }

    /// Runs that are not made.
    pub fn skip(&mut self, count: usize) {
        self.done += count;
    }

    fn begin(&mut self, what: &str) {
        let (done, total) = (self.done, self.total);
        self.done += 1;
        let width = total.to_string().len();
        let left = left(self.begun.elapsed(), done, total);
        let number = self.done;
        self.write(&format!("[{number:>width$}/{total}] {what}{left}"));
    }

    /// Says something that stays.
    pub fn say(&self, text: &str) {
        self.write(text);
        if self.wanted && self.terminal {
            eprintln!();
        }
    }

    fn write(&self, text: &str) {
        if !self.wanted {
            return;
        }
        // A terminal that is gone is no reason to stop measuring.
        let mut stderr = io::stderr().lock();
        if self.terminal {
            let _ = write!(stderr, "\r\x1b[K{text}");
            let _ = stderr.flush();
        } else {
            let _ = writeln!(stderr, "{text}");
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

/// What is left at the pace of what was done.
fn left(elapsed: Duration, done: usize, total: usize) -> String {
    let done = u32::try_from(done).unwrap_or(u32::MAX);
    let left = u32::try_from(total)
        .unwrap_or(u32::MAX)
        .saturating_sub(done);
    if done == 0 {
        return String::new();
    }
    let seconds = (elapsed / done).as_secs_f64() * f64::from(left);
    if seconds < 90.0 {
        format!("; about {seconds:.0} s left")
    } else {
        format!("; about {:.0} min left", seconds / 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_what_was_done() {
        let ten = Duration::from_secs(10);
        assert_eq!(left(ten, 0, 8), "");
        assert_eq!(left(ten, 5, 8), "; about 6 s left");
        assert_eq!(left(ten, 1, 61), "; about 10 min left");
    }
}
