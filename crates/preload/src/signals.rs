//! Which signal handlers restart calls: asked only when a wait was interrupted that the kernel
//! itself would have restarted.

/// Those that a thread raises itself by a fault: they interrupt no wait.
const FAULTS: [libc::c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
];

/// Whether every handler the program has installed says `SA_RESTART`.
pub fn all_restart() -> bool {
    (1..=libc::SIGRTMAX()).all(|signal| {
        if FAULTS.contains(&signal) {
            return true;
        }
        // SAFETY: all zero is a valid action, and asking changes nothing.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            if libc::sigaction(signal, core::ptr::null(), &raw mut action) < 0 {
                return true;
            }
            action.sa_sigaction == libc::SIG_DFL
                || action.sa_sigaction == libc::SIG_IGN
                || action.sa_flags & libc::SA_RESTART != 0
        }
    })
}
