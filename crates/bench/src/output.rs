//! How reports are shown: on the command line what is wanted, and showing it.

use crate::error::BenchError;
use crate::plot;
use crate::report::Report;
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;

/// How any report is shown.
#[derive(Debug, Clone, Args)]
pub struct Shown {
    /// Print JSON instead of the table
    #[arg(long)]
    pub json: bool,

    /// No progress on stderr
    #[arg(long)]
    pub quiet: bool,
}

impl Shown {
    /// Prints a report as it is wanted.
    pub fn print(
        &self,
        json: impl FnOnce() -> String,
        table: impl FnOnce() -> String,
    ) -> Result<(), BenchError> {
        print(&if self.json { json() + "\n" } else { table() })
    }
}

/// How a report that can be drawn is shown.
#[derive(Debug, Clone, Args)]
pub struct Output {
    /// As all are.
    #[command(flatten)]
    pub shown: Shown,

    /// Draw the result into FILE, which ends in .png or .svg
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

impl Output {
    /// Runs experiments and prints and draws their report.
    ///
    /// True when every run that could be made gave figures.
    pub fn present(
        &self,
        run: impl FnOnce() -> Result<Report, BenchError>,
    ) -> Result<bool, BenchError> {
        if let Some(path) = &self.plot {
            // Said now, and not after two minutes.
            plot::check(path)?;
        }
        let report = run()?;
        // Before the picture, which may fail: these figures took their time.
        self.shown.print(|| report.json(), || report.table())?;
        if let Some(path) = &self.plot {
            report.plot(path)?;
            if !self.shown.json {
                print(&format!("\npicture: {}\n", path.display()))?;
            }
        }
        Ok(report.is_complete())
    }
}

/// Prints a text.
pub fn print(text: &str) -> Result<(), BenchError> {
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(BenchError::Print)
}
