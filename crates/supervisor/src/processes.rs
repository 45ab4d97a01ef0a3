//! Children of the supervisor and what the runner is told of them.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::system::{Sys, errno};

/// What the supervisor tells the runner, in one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The program runs: its process, and the descriptor at which the kernel asks, or -1.
    Started(c_int, c_int),
    /// It could not be executed: the errno.
    NotStarted(c_int),
    /// It has stopped.
    Stopped,
    /// It has ended, with this status of `waitpid`.
    Ended(c_int),
}

/// Bytes of a report.
pub const REPORT: usize = 12;

impl Report {
    /// As bytes.
    #[must_use]
    pub fn encode(self) -> [u8; REPORT] {
        let words: [c_int; 3] = match self {
            Self::Started(process, notify) => [0, process, notify],
            Self::NotStarted(error) => [1, error, 0],
            Self::Stopped => [2, 0, 0],
            Self::Ended(status) => [3, status, 0],
        };
        let mut bytes = [0; REPORT];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// From bytes.
    #[must_use]
    pub fn decode(bytes: &[u8; REPORT]) -> Option<Self> {
        let word = |at: usize| {
            let bytes = bytes[4 * at..4 * at + 4].try_into();
            bytes.map_or(-1, c_int::from_ne_bytes)
        };
        Some(match word(0) {
            0 => Self::Started(word(1), word(2)),
            1 => Self::NotStarted(word(1)),
            2 => Self::Stopped,
            3 => Self::Ended(word(1)),
            _ => return None,
        })
    }
}

/// The set of all signals, or of one.
#[must_use]
pub fn signals(one: Option<c_int>) -> libc::sigset_t {
    // SAFETY: a structure of numbers, for which zeros are valid.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is written.
    unsafe {
        match one {
            Some(signal) => {
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, signal);
            }
            None => {
                libc::sigfillset(&raw mut set);
            }
        }
    }
    set
}

/// Makes the signals of a set wait, and returns what waited before.
#[must_use]
pub fn block(set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = signals(Some(libc::SIGURG));
    // SAFETY: one set is read, the other written.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set, &raw mut before) };
    before
}

/// A descriptor that tells of signals that wait.
///
/// # Errors
/// The errno.
pub fn signal_descriptor(set: &libc::sigset_t) -> Sys<OwnedFd> {
    // SAFETY: the set is read.
    let made = unsafe { libc::signalfd(-1, set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if made < 0 {
        return Err(errno());
    }
    // SAFETY: the kernel made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// The next signal of a descriptor: its number, and whether a program sent it (and not a terminal, which tells all).
#[must_use]
pub fn next_signal(descriptor: BorrowedFd<'_>) -> Option<(c_int, bool)> {
    // SAFETY: a structure of numbers, for which zeros are valid.
    let mut told: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: at most `size` bytes are written.
    let got = unsafe { libc::read(descriptor.as_raw_fd(), (&raw mut told).cast(), size) };
    if usize::try_from(got) != Ok(size) {
        return None;
    }
    let signal = c_int::try_from(told.ssi_signo).ok()?;
    Some((signal, told.ssi_code <= 0))
}

/// Sends a signal.
pub fn signal(process: c_int, signal: c_int) {
    if process > 0 {
        // SAFETY: no pointers.
        unsafe { libc::kill(process, signal) };
    }
}

/// What has happened to a child since: the child, and its status.
#[must_use]
pub fn next_change(child: c_int) -> Option<(c_int, c_int)> {
    let mut status = 0;
    let how = libc::WNOHANG | libc::WUNTRACED | libc::__WALL;
    // SAFETY: the status is written.
    let changed = unsafe { libc::waitpid(child, &raw mut status, how) };
    (changed > 0).then_some((changed, status))
}

/// The children of the supervisor: the program, and what it left behind.
#[derive(Debug)]
pub struct Children {
    program: c_int,
    signals: OwnedFd,
    reports: OwnedFd,
    has_ended: bool,
}

impl Children {
    /// With the program, and where the runner listens.
    ///
    /// # Errors
    /// The errno.
    pub fn new(program: c_int, reports: OwnedFd) -> Sys<Self> {
        Ok(Self {
            program,
            signals: signal_descriptor(&signals(Some(libc::SIGCHLD)))?,
            reports,
            has_ended: false,
        })
    }

    /// What tells that a child has changed.
    #[must_use]
    pub fn signals(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// Tells the runner.
    pub fn tell(&self, report: Report) {
        let bytes = report.encode();
        // SAFETY: the bytes are read for their length.
        unsafe { libc::write(self.reports.as_raw_fd(), bytes.as_ptr().cast(), REPORT) };
    }

    /// Takes note of children that have changed.
    pub fn look(&mut self) {
        while next_signal(self.signals.as_fd()).is_some() {}
        while let Some((child, status)) = next_change(-1) {
            if child != self.program {
                continue;
            }
            if libc::WIFSTOPPED(status) {
                self.tell(Report::Stopped);
            } else {
                self.has_ended = true;
                self.tell(Report::Ended(status));
            }
        }
    }

    /// The runner was killed.
    pub fn runner_is_gone(&self) {
        if !self.has_ended {
            signal(self.program, libc::SIGKILL);
        }
    }

    /// Whether the program has ended.
    #[must_use]
    pub const fn are_gone(&self) -> bool {
        self.has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_come_back() {
        for report in [
            Report::Started(7, -1),
            Report::NotStarted(libc::ENOENT),
            Report::Stopped,
            Report::Ended(0x0900),
        ] {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
        assert_eq!(Report::decode(&[9; REPORT]), None);
    }
}
