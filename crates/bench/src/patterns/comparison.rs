//! Which comparisons there are, and making them: the runs of both cells in turns, every other pair the other way round.

use super::compared::Runs;
use super::lab::Measured;
use crate::error::RunError;
use crate::interrupt;
use crate::repetitions::Often;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Makes the runs of several cells in turns. `measure` gets the cell, and whether to profile it. More than
/// `often.pairs` are made until they are `enough`, or the limit is reached. `None`: interrupted before all were done.
pub fn compare(
    names: &[String],
    often: Often,
    progress: &mut Progress,
    enough: impl Fn(&[Runs]) -> bool,
    mut measure: impl FnMut(usize, bool) -> Result<Measured, RunError>,
) -> Option<Vec<Runs>> {
    let mut all = vec![Runs::default(); names.len()];
    let mut done = 0;
    for until in often.stages() {
        if done > 0 {
            if enough(&all) {
                break;
            }
            progress.more((until - done) * names.len());
        }
        for pair in done..until {
            let number = format!("pair {} of {until}", pair + 1);
            in_turn(names, pair, &mut all, progress, &number, |which, runs| {
                runs.add(measure(which, false)?);
                Ok(())
            })?;
        }
        done = until;
    }
    if often.profile {
        // A run that is profiled besides is a little slower: its rate is not taken.
        in_turn(
            names,
            done,
            &mut all,
            progress,
            "profiled",
            |which, runs| {
                runs.shares.extend(measure(which, true)?.shares);
                Ok(())
            },
        )?;
    }
    (!interrupt::requested()).then_some(all)
}

/// Makes one run of each cell, every other time the other way round.
fn in_turn(
    names: &[String],
    pair: usize,
    all: &mut [Runs],
    progress: &mut Progress,
    number: &str,
    mut run: impl FnMut(usize, &mut Runs) -> Result<(), RunError>,
) -> Option<()> {
    for place in 0..names.len() {
        let which = if pair.is_multiple_of(2) {
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
        match run(which, runs) {
            Ok(()) => {}
            Err(RunError::Interrupted) => return None,
            Err(error) => {
                progress.say(&format!("  {error}"));
                runs.failure = Some(error.to_string());
            }
        }
    }
    Some(())
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

    /// Runs that are made besides.
    fn more(&mut self, count: usize) {
        self.total += count;
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
        // A closed terminal does not stop the measurement.
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

/// The remaining time at the present pace.
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
