//! The reasons for which a connection ends, converted between the socket, the frames and the errno of a program.

use netchannel_vns::Reason;
use netchannel_wire::{Refusal, ResetReason};
use rustix::io::Errno;

/// The errno of a connect that fails.
pub fn errno_of_connect(reason: Reason) -> u32 {
    let errno = match reason {
        Reason::TimedOut | Reason::Unreachable => Errno::TIMEDOUT,
        Reason::Aborted | Reason::ProgramEnded => Errno::CONNRESET,
        // The connecting program continues over kernel TCP.
        _ => Errno::CONNREFUSED,
    };
    errno.raw_os_error().unsigned_abs()
}

/// The reason in NCRST, if a reset for this reason is a refusal.
pub const fn refusal(reason: Reason) -> Option<Refusal> {
    Some(match reason {
        Reason::NoListener => Refusal::NoListener,
        Reason::BacklogFull => Refusal::BacklogFull,
        Reason::NotAllowed => Refusal::NotAllowed,
        Reason::Quota => Refusal::Quota,
        Reason::KernelOnly => Refusal::KernelOnly,
        _ => return None,
    })
}

/// The reason in RST.
pub const fn reset(reason: Reason) -> ResetReason {
    match reason {
        Reason::Aborted => ResetReason::Aborted,
        Reason::ProgramEnded => ResetReason::ProgramEnded,
        Reason::Violation => ResetReason::Violation,
        Reason::ProgramFault => ResetReason::ProgramFault,
        Reason::TimedOut => ResetReason::TimedOut,
        _ => ResetReason::Ending,
    }
}

/// The reason that a received NCRST stands for.
pub const fn of_refusal(refusal: Refusal) -> Reason {
    match refusal {
        Refusal::NoListener => Reason::NoListener,
        Refusal::BacklogFull => Reason::BacklogFull,
        Refusal::NotAllowed => Reason::NotAllowed,
        Refusal::Quota => Reason::Quota,
        Refusal::KernelOnly => Reason::KernelOnly,
        Refusal::Ending => Reason::Ending,
    }
}

/// The reason that a received RST stands for.
pub const fn of_reset(reset: ResetReason) -> Reason {
    match reset {
        ResetReason::Aborted => Reason::Aborted,
        ResetReason::ProgramEnded => Reason::ProgramEnded,
        ResetReason::Violation => Reason::Violation,
        ResetReason::ProgramFault => Reason::ProgramFault,
        ResetReason::Ending => Reason::Ending,
        ResetReason::TimedOut => Reason::TimedOut,
    }
}
