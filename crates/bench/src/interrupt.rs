//! Ctrl-C and SIGTERM end the experiments in order, so that no process and no file stays behind.
//!
//! SIGPIPE is ignored meanwhile: a child that died is found out by waiting for it, not by dying
//! of a write to it.

use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Whether an interrupt was requested. Relaxed: the flag guards no other data.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Listens for the signals until it is dropped.
pub struct Listening {
    previous: [libc::sigaction; SIGNALS.len()],
    previous_pipe: libc::sighandler_t,
}

impl Listening {
    /// Takes over SIGINT, SIGTERM and SIGHUP.
    pub fn start() -> Self {
        REQUESTED.store(false, Ordering::Relaxed);
        // SAFETY: all-zero is a valid sigaction: default action, empty mask, no flags.
        let empty: libc::sigaction = unsafe { std::mem::zeroed() };
        // No SA_RESTART: a wait that is going on must end.
        let mut action = empty;
        let handler: extern "C" fn(libc::c_int) = on_signal;
        action.sa_sigaction = handler as libc::sighandler_t;
        let mut previous = [empty; SIGNALS.len()];
        for (signal, previous) in SIGNALS.iter().zip(&mut previous) {
            // SAFETY: both pointers are to live sigactions, and the handler only stores to an
            // atomic, which is async-signal-safe.
            unsafe { libc::sigaction(*signal, &raw const action, &raw mut *previous) };
        }
        // SAFETY: no handler is installed.
        let previous_pipe = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        Listening {
            previous,
            previous_pipe,
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // SAFETY: restores what the kernel handed out before.
        unsafe { libc::signal(libc::SIGPIPE, self.previous_pipe) };
        for (signal, previous) in SIGNALS.iter().zip(&self.previous) {
            // SAFETY: restores what the kernel handed out before.
            unsafe { libc::sigaction(*signal, &raw const *previous, std::ptr::null_mut()) };
        }
    }
}

extern "C" fn on_signal(_signal: libc::c_int) {
    REQUESTED.store(true, Ordering::Relaxed);
}
