//! Handlers of the two signals that the library handles itself, and cancellation.

use libc::{c_int, sighandler_t};

use crate::descriptors::{faults, user};
use crate::ground::{cancel, real};
use crate::waiting::signals;

/// Installs a plain handler for such a signal and returns the former one.
fn replace(signal: c_int, handler: sighandler_t, flags: c_int, block: bool) -> sighandler_t {
    if handler == libc::SIG_ERR {
        return real::fail::<i64>(libc::EINVAL).cast_unsigned() as sighandler_t;
    }
    // SAFETY: all zero is a valid action.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    if block {
        // SAFETY: the set is a local, the signal one that exists.
        unsafe { libc::sigaddset(&raw mut action.sa_mask, signal) };
    }
    faults::change(signal, Some(&action)).map_or(libc::SIG_ERR, |old| old.sa_sigaction)
}

fn with_restart(signal: c_int, handler: sighandler_t) -> sighandler_t {
    let restart = !faults::interrupts(signal);
    let flags = if restart { libc::SA_RESTART } else { 0 };
    replace(signal, handler, flags, true)
}

/// `SA_INTERRUPT`, which the kernel ignores but returns.
const SA_INTERRUPT: c_int = 0x2000_0000;

/// Notes the program's change of a handler, for calls that wait.
fn note_change<T>(signal: c_int, result: T) -> T {
    signals::note_handler(signal);
    result
}

hook! {
    fn sigaction(
        signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction,
    ) -> c_int {
        if !faults::handles(signal) {
            let result = real::sigaction(signal, new, old);
            if result == 0 && !new.is_null() {
                signals::note_handler(signal);
            }
            return result;
        }
        let wanted = if new.is_null() { None } else { Some(user::read(new)) };
        let wanted = match wanted.transpose() {
            Ok(wanted) => wanted,
            Err(error) => return real::fail(error),
        };
        let before = faults::change(signal, wanted.as_ref());
        if let Some(before) = before
            && !old.is_null()
            && let Err(error) = user::write(old, before)
        {
            return real::fail(error);
        }
        0
    }

    fn __sigaction(
        number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction,
    ) -> c_int {
        sigaction(number, new, old)
    }

    fn signal(number: c_int, handler: sighandler_t) -> sighandler_t {
        if faults::handles(number) {
            return with_restart(number, handler);
        }
        note_change(number, real::signal(number, handler))
    }

    fn bsd_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
        signal(number, handler)
    }

    fn ssignal(number: c_int, handler: sighandler_t) -> sighandler_t {
        signal(number, handler)
    }

    fn __sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
        if faults::handles(number) {
            let flags = libc::SA_RESETHAND | libc::SA_NODEFER | SA_INTERRUPT;
            return replace(number, handler, flags, false);
        }
        note_change(number, real::__sysv_signal(number, handler))
    }

    fn sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
        __sysv_signal(number, handler)
    }

    fn sigset(number: c_int, handler: sighandler_t) -> sighandler_t {
        // SIG_HOLD only blocks.
        if !faults::handles(number) || handler == 2 {
            return note_change(number, real::sigset(number, handler));
        }
        let mut one: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        libc::sigaddset(&raw mut one, number);
        let old = replace(number, handler, 0, false);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const one, &raw mut before);
        if libc::sigismember(&raw const before, number) == 1 { 2 } else { old }
    }

    fn sigignore(number: c_int) -> c_int {
        if faults::handles(number) {
            replace(number, libc::SIG_IGN, 0, false);
            return 0;
        }
        note_change(number, real::sigignore(number))
    }

    fn siginterrupt(number: c_int, on: c_int) -> c_int {
        if !faults::handles(number) {
            return note_change(number, real::siginterrupt(number, on));
        }
        faults::set_interrupts(number, on != 0);
        if let Some(mut action) = faults::change(number, None) {
            action.sa_flags &= !libc::SA_RESTART;
            if on == 0 {
                action.sa_flags |= libc::SA_RESTART;
            }
            faults::change(number, Some(&action));
        }
        0
    }

    fn pthread_cancel(thread: libc::pthread_t) -> c_int {
        cancel::note_cancellation();
        real::pthread_cancel(thread)
    }
}
