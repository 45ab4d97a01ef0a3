//! What can be said to `netchannel profile`, and doing it.

use crate::error::Error;
use crate::output::{Folded, bars, diff, flame, functions, table, unclassified};
use crate::recording::Pinned;
use crate::report::Report;
use crate::session::{self, Options, list};
use crate::work::{Source, Work};
use clap::{Args, Subcommand};
use netchannel_taxonomy::Taxonomy;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// `netchannel profile`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Something else than measuring.
    #[command(subcommand)]
    command: Option<Also>,
    /// Measure this process and what it starts meanwhile
    #[arg(long, value_name = "PID", conflicts_with_all = ["system", "program"])]
    attach: Option<u32>,
    /// Measure all programs and the kernel's own threads; with a command, while it runs
    #[arg(long)]
    system: bool,
    /// Measure all programs while a command of netchannel runs, such as `bench hosts stream`; all that follows is that command
    #[arg(long, value_name = "COMMAND", num_args = 1.., allow_hyphen_values = true,
        conflicts_with_all = ["attach", "system", "program", "duration"])]
    around: Vec<OsString>,
    /// How long, such as 500ms, 5s or 2m; a command is measured until it ends [default: 5s]
    #[arg(long = "for", value_name = "TIME", value_parser = duration, conflicts_with = "program")]
    duration: Option<Duration>,
    /// Measure so many times, and show the spread of each category
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    repeat: u16,
    /// Samples of a busy processor in a second [default: 999, or 199 where no counter of cycles takes them]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..=20_000))]
    frequency: Option<u64>,
    /// What runs on these processors is the sender's, such as 0-3,8
    #[arg(long, value_name = "LIST")]
    sender_processors: Option<String>,
    /// What runs on these processors is the receiver's
    #[arg(long, value_name = "LIST")]
    receiver_processors: Option<String>,
    /// Bytes that it moves, such as 10GB or 4GiB, where they are not known otherwise: then it is told what a gigabyte costs
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bytes: Option<u64>,
    /// Operations that it makes, such as requests: then it is told what one costs
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// A taxonomy in addition to the one that is built in; where both name a function, this one holds
    #[arg(long, value_name = "FILE")]
    taxonomy: Vec<PathBuf>,
    /// Show the functions that most samples were in, too
    #[arg(long, value_name = "COUNT", num_args = 0..=1, default_missing_value = "20")]
    functions: Option<usize>,
    /// Show what is in no category on this kernel, rather than the table
    #[arg(long)]
    unclassified: bool,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["unclassified", "folded", "functions"])]
    json: bool,
    /// Print chains as flame graph tools read them: functions from outside in, category and samples
    #[arg(long, conflicts_with = "unclassified")]
    folded: bool,
    /// Draw the shares as stacked bars into this file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Draw a flame graph coloured by category into this file
    #[arg(long, value_name = "FILE.svg")]
    flame: Option<PathBuf>,
    /// Write what would be printed into this file, apart from what the command prints
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The command to run and measure
    #[arg(last = true, value_name = "COMMAND")]
    program: Vec<OsString>,
}

/// Something else than measuring.
#[derive(Debug, Subcommand)]
enum Also {
    /// Show what changed between two profiles that were written with --json
    Diff {
        /// The one before
        a: PathBuf,
        /// The one after
        b: PathBuf,
    },
}

fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0)];
    let unit = units
        .into_iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let (number, seconds) = unit.unwrap_or((text, 1.0));
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 && number * seconds <= 86_400.0 => {
            Ok(Duration::from_secs_f64(number * seconds))
        }
        _ => Err("a time such as 500ms, 5s or 2m is needed".to_owned()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    let units: [(&str, u64); 9] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("", 1),
    ];
    let unit = units
        .into_iter()
        .find_map(|(unit, of)| Some((text.strip_suffix(unit)?, of)));
    let bytes = unit.and_then(|(number, of)| number.trim().parse::<u64>().ok()?.checked_mul(of));
    let bytes = bytes.filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "a number of bytes such as 500MB, 10GB or 4GiB is needed".to_owned())
}

impl Arguments {
    /// Does it, and shows the result.
    ///
    /// # Errors
    /// Why there is none.
    pub fn execute(&self) -> Result<(), Error> {
        if let Some(Also::Diff { a, b }) = &self.command {
            return self.show(&formatted(diff(&read(a)?, &read(b)?)));
        }
        let options = self.options()?;
        let taxonomy = self.taxonomy()?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Where a signal cannot be caught it ends the program, as it would anyway.
            let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
        }
        let mut folded = Folded::new();
        let mut runs = Vec::new();
        for number in 1..=self.repeat {
            let announce = || self.progress(&options, number);
            runs.push(session::run(
                &options,
                &taxonomy,
                &stop,
                &mut folded,
                announce,
            )?);
            // Relaxed: the flag guards no other data.
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        let report = Report::merged(runs).unwrap_or_default();
        if report.categories.total() == 0 {
            return Err(session::nothing(&options, report.seconds));
        }
        // Where the picture finds no room, the figures are shown all the same.
        let drawn = self.flame.as_ref().map_or(Ok(()), |path| {
            let svg = formatted(flame(&report.target, &folded));
            write(path, &svg)
        });
        let plotted = self
            .plot
            .as_ref()
            .map_or(Ok(()), |path| write(path, &formatted(bars(&report))));
        self.show(&self.text(&report, &folded))
            .and(drawn)
            .and(plotted)
    }

    fn options(&self) -> Result<Options, Error> {
        let command = self.command_line()?;
        if self.attach.is_none() && !self.system && command.is_empty() {
            return Err(Error::Options(
                "nothing to measure: say `-- COMMAND`, `--attach PID`, `--around bench ...` or `--system`".to_owned(),
            ));
        }
        let processors = |text: &Option<String>| {
            let list = text.as_deref().map_or(Ok(Vec::new()), list);
            list.map_err(Error::Options)
        };
        Ok(Options {
            command,
            process: self.attach,
            is_system: self.system || !self.around.is_empty(),
            duration: self.duration.unwrap_or(Duration::from_secs(5)),
            frequency: self.frequency,
            pinned: Pinned {
                sender: processors(&self.sender_processors)?,
                receiver: processors(&self.receiver_processors)?,
            },
            folds: self.folded || self.flame.is_some(),
            work: Work::of(
                self.bytes.unwrap_or(0),
                self.operations.unwrap_or(0),
                Source::Said,
            ),
        })
    }

    /// The command that is measured, or around which is measured.
    fn command_line(&self) -> Result<Vec<OsString>, Error> {
        if self.around.is_empty() {
            return Ok(self.program.clone());
        }
        let own = std::env::current_exe().map_err(|error| {
            Error::Options(format!(
                "cannot tell where this program lies ({error}); is /proc mounted?"
            ))
        })?;
        let mut command = vec![own.into_os_string()];
        command.extend(self.around.iter().cloned());
        Ok(command)
    }

    fn taxonomy(&self) -> Result<Taxonomy, Error> {
        let of = |path: &Path| {
            let path = path.to_owned();
            move |problem| Error::Taxonomy { path, problem }
        };
        let built_in = Path::new("the taxonomy that is built in");
        let mut taxonomy = Taxonomy::built_in().map_err(of(built_in))?;
        for path in &self.taxonomy {
            let text = text_of(path)?;
            taxonomy.add(&text).map_err(of(path))?;
        }
        Ok(taxonomy)
    }

    fn progress(&self, options: &Options, number: u16) {
        let repeats = match self.repeat {
            1 => String::new(),
            count => format!(" ({number} of {count})"),
        };
        if options.command.is_empty() {
            // Whom it does not reach does not need it.
            let _ = writeln!(
                std::io::stderr(),
                "measuring for {:.1} s{repeats}; Ctrl-C shows what there is by then",
                options.duration.as_secs_f64()
            );
        }
    }

    fn text(&self, report: &Report, folded: &Folded) -> String {
        if self.json {
            // Only numbers and text: what could fail is not in it.
            let mut text = serde_json::to_string_pretty(report).unwrap_or_default();
            text.push('\n');
            return text;
        }
        if self.folded {
            let lines = folded.iter().map(|((chain, category), count)| {
                format!("{};[{}] {count}\n", chain.join(";"), category.name())
            });
            return lines.collect();
        }
        if self.unclassified {
            return formatted(unclassified(report));
        }
        let mut text = formatted(table(report));
        if let Some(count) = self.functions {
            text.push_str(&formatted(functions(report, count)));
        }
        text
    }

    fn show(&self, text: &str) -> Result<(), Error> {
        let mut kept = Ok(());
        if let Some(path) = &self.output {
            kept = write(path, text);
            if kept.is_ok() {
                return kept;
            }
        }
        // What found no room in its file is printed, so that it is not lost.
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match written {
            // Who read it has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => kept,
            written => written.map_err(Error::Print).and(kept),
        }
    }
}

/// Writing into a text does not fail.
fn formatted(text: Result<String, fmt::Error>) -> String {
    text.unwrap_or_default()
}

fn text_of(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}

fn read(path: &Path) -> Result<Report, Error> {
    serde_json::from_str(&text_of(path)?).map_err(|source| Error::Profile {
        path: path.to_owned(),
        source,
    })
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|source| Error::Write {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(size("10GB"), Ok(10_000_000_000));
        assert_eq!(size("4KiB"), Ok(4096));
        assert_eq!(size("77"), Ok(77));
        for text in ["", "0", "GB", "-1", "1.5GB", "99999999TB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read() {
        let milliseconds = |text| duration(text).map(|time| time.as_millis());
        assert_eq!(milliseconds("500ms"), Ok(500));
        assert_eq!(milliseconds("5s"), Ok(5_000));
        assert_eq!(milliseconds("2m"), Ok(120_000));
        assert_eq!(milliseconds("1.5"), Ok(1_500));
        for text in ["", "s", "-1s", "0", "5h", "nan", "inf", "100000s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
