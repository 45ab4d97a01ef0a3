//! Processes, threads and signals.

use std::mem::zeroed;

use super::{Outcome, check, check_unit};

/// `kill`
pub fn kill(process: libc::pid_t, signal: libc::c_int) -> Outcome<()> {
    // SAFETY: takes integers; only children are signalled.
    check_unit(unsafe { libc::kill(process, signal) })
}

/// `waitpid`; the status as the kernel gives it
pub fn waitpid(process: libc::pid_t, flags: libc::c_int) -> Outcome<(libc::pid_t, libc::c_int)> {
    let mut status = 0;
    // SAFETY: status has room.
    let child = check(unsafe { libc::waitpid(process, &raw mut status, flags) })?;
    Ok((child, status))
}

/// Whether this process goes on where its parent ends before it.
pub fn outlive_parent() {
    // SAFETY: takes integers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) }, 0);
}

/// Becomes the parent of those below it whose parent ends.
pub fn adopt_orphans() {
    // SAFETY: takes integers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
}

/// `gettid`
#[must_use]
pub fn gettid() -> libc::pid_t {
    // SAFETY: no argument, cannot fail.
    unsafe { libc::gettid() }
}

/// `getpid`
#[must_use]
pub fn getpid() -> libc::pid_t {
    // SAFETY: no argument, cannot fail.
    unsafe { libc::getpid() }
}

/// `_exit`
pub fn exit_now(code: libc::c_int) -> ! {
    // SAFETY: takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// `sigaction` with a handler
pub fn handle_signal(
    signal: libc::c_int,
    handler: extern "C" fn(libc::c_int),
    flags: libc::c_int,
) -> Outcome<()> {
    set_action(signal, handler as *const () as libc::sighandler_t, flags)
}

/// `sigaction` with `SIG_IGN`
pub fn ignore_signal(signal: libc::c_int) -> Outcome<()> {
    set_action(signal, libc::SIG_IGN, 0)
}

/// `sigaction` with `SIG_DFL`
pub fn default_signal(signal: libc::c_int) -> Outcome<()> {
    set_action(signal, libc::SIG_DFL, 0)
}

fn set_action(signal: libc::c_int, action: libc::sighandler_t, flags: libc::c_int) -> Outcome<()> {
    // SAFETY: a sigaction of zeroes is valid: default action, empty mask.
    let mut value: libc::sigaction = unsafe { zeroed() };
    value.sa_sigaction = action;
    value.sa_flags = flags;
    // SAFETY: value is valid; handlers used here only touch atomics and sockets.
    check_unit(unsafe { libc::sigaction(signal, &raw const value, std::ptr::null_mut()) })
}

/// A set of signals.
#[must_use]
pub fn signal_set(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: a sigset_t of zeroes is valid, and sigaddset only sets bits in it.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

/// `pthread_sigmask(SIG_BLOCK)`
pub fn block_signals(signals: &[libc::c_int]) {
    let set = signal_set(signals);
    // SAFETY: set is valid.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// `tgkill` on a thread of this process
pub fn signal_thread(thread: libc::pid_t, signal: libc::c_int) -> Outcome<()> {
    // SAFETY: takes integers.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, getpid(), thread, signal) };
    if result < 0 {
        Err(super::last_errno())
    } else {
        Ok(())
    }
}

/// `pthread_kill` on the calling thread
pub fn signal_self(signal: libc::c_int) {
    // SAFETY: the calling thread lives.
    unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
}

/// `alarm`
pub fn alarm(seconds: libc::c_uint) {
    // SAFETY: takes an integer.
    unsafe { libc::alarm(seconds) };
}

/// `getrusage`
pub fn usage(of: libc::c_int) -> Outcome<libc::rusage> {
    // SAFETY: zeroes are a valid value, and it has room.
    unsafe {
        let mut used: libc::rusage = zeroed();
        check_unit(libc::getrusage(of, &raw mut used))?;
        Ok(used)
    }
}
