//! The reasons why an experiment has no figure, or why there is no report at all.

use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Exit statuses of `netchannel run` itself.
const NETCHANNEL_RUN_FAILED: RangeInclusive<i32> = 125..=127;

fn described(status: Option<ExitStatus>) -> String {
    status.map_or_else(|| "unknown how".to_owned(), |status| status.to_string())
}

/// A run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A program that the experiment needs is not on this machine.
    #[error("{0} is not installed")]
    NotInstalled(&'static str),
    /// The transport makes no sense for this experiment.
    #[error("{0}")]
    NotApplicable(String),
    /// A program could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// Which one.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A program ended too early, or without success.
    #[error("{program} ended ({}): {complaint}", described(*.status))]
    Ended {
        /// Which one.
        program: String,
        /// How, if that is known.
        status: Option<ExitStatus>,
        /// Its last line.
        complaint: String,
    },
    /// A program took too long.
    #[error("{program} was not done after {seconds} s: {complaint}")]
    TooLate {
        /// Which one.
        program: String,
        /// The limit.
        seconds: u64,
        /// Its last line.
        complaint: String,
    },
    /// A program printed something that cannot be understood.
    #[error("cannot read what {program} printed: {text:?}")]
    Output {
        /// Which one.
        program: String,
        /// The text in question.
        text: String,
    },
    /// Programs under `netchannel run` used the kernel's TCP.
    #[error(
        "kernel TCP carried programs under `netchannel run` ({0} ends of connections seen); \
         is libnetchannel.so beside the program netchannel?"
    )]
    KernelTcp(usize),
    /// The figures contradict each other, or a program counted errors.
    #[error("{0}")]
    Wrong(String),
    /// Temporary files, sockets or the wait for a child failed.
    #[error("{0}")]
    Files(#[source] io::Error),
    /// Interrupted by Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

impl RunError {
    /// Whether `netchannel run` could not do its part; programs that it started and that failed
    /// then are another matter.
    pub fn is_netchannel_missing(&self) -> bool {
        match self {
            RunError::KernelTcp(_) => true,
            RunError::Ended { status, .. } => {
                let code = status.and_then(|status| status.code());
                code.is_some_and(|code| NETCHANNEL_RUN_FAILED.contains(&code))
            }
            _ => false,
        }
    }

    /// Whether it was known beforehand that there is nothing to measure.
    pub fn is_absence(&self) -> bool {
        matches!(self, RunError::NotInstalled(_) | RunError::NotApplicable(_))
    }
}

/// There is no report.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The options leave nothing to do.
    #[error("{0}")]
    Options(String),
    /// No directory for sockets and outputs.
    #[error("cannot make a temporary directory: {0}; set TMPDIR to one that is writable")]
    Directory(#[source] io::Error),
    /// The two hosts cannot be made.
    #[error(transparent)]
    Hosts(#[from] netchannel_namespaces::Error),
    /// Interrupted by Ctrl-C; all programs were ended.
    #[error("interrupted; all programs were ended")]
    Interrupted,
    /// A file that was asked for could not be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The report could not be printed.
    #[error("cannot print the report: {0}")]
    Print(#[source] io::Error),
    /// The picture could not be written.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

/// The picture could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The file's name does not say what it is to be.
    #[error("{0}: the name of a picture must end in .png or .svg")]
    Format(PathBuf),
    /// Nothing was measured.
    #[error("no picture: nothing was measured")]
    Empty,
    /// The file cannot be written.
    #[error("cannot write {0}: {1}")]
    File(PathBuf, #[source] io::Error),
    /// The drawing library refused.
    #[error("cannot draw: {0}")]
    Drawing(String),
}
