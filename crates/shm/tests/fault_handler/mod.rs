//! The fault handler that a user of `copy` installs, as small as it can be.

use std::sync::Once;

/// Installs it for the whole test process. A fault outside the copy routine ends the process.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zero is a valid sigaction.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            // SAFETY: the handler is async-signal-safe.
            let result =
                unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) };
            assert_eq!(result, 0);
        }
    });
}

extern "C" fn on_fault(
    signal: libc::c_int,
    _: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    const RIP: usize = libc::REG_RIP as usize;
    // SAFETY: the kernel passes a valid context, which only this handler uses.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let resume = usize::try_from(registers[RIP])
        .ok()
        .and_then(netchannel_shm::copy::resume_at);
    match resume {
        Some(target) => registers[RIP] = i64::try_from(target).unwrap_or(0),
        // SAFETY: returning to the faulting instruction then ends the process.
        None => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}
