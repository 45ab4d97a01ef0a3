//! Errors, each as a sentence with the remedy.

use crate::events::Target;
use netchannel_taxonomy::Problem;
use std::io;
use std::path::PathBuf;

const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// There is no profile.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options contradict each other.
    #[error("{0}")]
    Options(String),
    /// The kernel does not let this user sample.
    #[error("{0}")]
    Refused(String),
    /// The events could not be opened for another reason.
    #[error("cannot sample the processor ({0})")]
    Events(#[source] io::Error),
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The command could not be run.
    #[error("cannot run {program} ({source})")]
    Start {
        /// Which one.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// Nothing was sampled.
    #[error("{0}")]
    Nothing(String),
    /// A user's taxonomy is none.
    #[error("{path} is no taxonomy: {problem}")]
    Taxonomy {
        /// Which file.
        path: PathBuf,
        /// Why.
        problem: Problem,
    },
    /// A file could not be read.
    #[error("cannot read {path} ({source})")]
    Read {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is no profile.
    #[error("{path} is no profile that `netchannel profile --json` wrote ({source})")]
    Profile {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The result could not be written.
    #[error("cannot write {path} ({source})")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The result could not be printed.
    #[error("cannot print the profile ({0})")]
    Print(#[source] io::Error),
}

impl Error {
    /// The meaning of a refusal of the kernel, and the remedy.
    pub(crate) fn refused(error: io::Error, target: Target) -> Self {
        match (error.raw_os_error(), target) {
            (Some(libc::ENOENT), _) if !paranoid_is_there() => {
                return Self::Refused(
                    "this kernel was built without perf events; nothing can be sampled here"
                        .to_owned(),
                );
            }
            (Some(libc::ESRCH), Target::Process(pid)) => return Self::NoProcess(pid),
            (Some(libc::EACCES | libc::EPERM), _) => {}
            _ => return Self::Events(error),
        }
        let level = std::fs::read_to_string(PARANOID).unwrap_or_default();
        let level = level.trim();
        let number: i32 = level.parse().unwrap_or(2);
        let mend = "as root, or after `sysctl kernel.perf_event_paranoid=-1`";
        Self::Refused(match target {
            Target::System if number > 0 => format!(
                "an ordinary user may not sample all programs here (kernel.perf_event_paranoid is {level}); \
                 `netchannel profile -- COMMAND` samples your own, and all can be sampled {mend}"
            ),
            Target::Process(pid) if number <= 2 => format!(
                "process {pid} may not be sampled: it belongs to another user, or a container forbids it; \
                 it can be {mend}"
            ),
            _ if number > 2 => format!(
                "an ordinary user may sample nothing here (kernel.perf_event_paranoid is {level}); it can be done {mend}"
            ),
            _ => "perf_event_open is forbidden here, probably by a container's filter of system calls; \
                  start the container with `--cap-add PERFMON --security-opt seccomp=unconfined`"
                .to_owned(),
        })
    }
}

fn paranoid_is_there() -> bool {
    std::path::Path::new(PARANOID).exists()
}
