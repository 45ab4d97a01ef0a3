//! Which signal handlers restart the calls that they interrupt. The kernel restarts `recv` and `accept`, but never
//! `poll`. So where the library polls in their place it has to know the handlers' flags.
//!
//! A poll that must continue after some handlers but end after others sleeps with the signals of the former blocked,
//! and with a descriptor that becomes readable for them. Then the poll returns, the handlers run, and the poll is
//! repeated.

use core::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, pollfd, sigset_t};

use crate::descriptors::{attach, limits};
use crate::ground::{cancel, process, real, sys};

/// Signals with a handler that has `SA_RESTART`, a bit each.
static RESTARTING: AtomicU64 = AtomicU64::new(0);
/// Signals with a handler without `SA_RESTART`.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// Signals that a thread raises by a fault of its own: they interrupt no wait.
const FAULTS: [c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
];

/// Reads the program's action for `signal`, which may have changed.
pub fn note_handler(signal: c_int) {
    let Ok(shift @ 0..64) = u32::try_from(signal - 1) else {
        return;
    };
    if FAULTS.contains(&signal) || process::is_vfork_child() {
        return;
    }
    // SAFETY: all zero is a valid action, and the call only reads the present one.
    let (handler, flags) = unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        if real::sigaction(signal, core::ptr::null(), &raw mut action) < 0 {
            return;
        }
        (action.sa_sigaction, action.sa_flags)
    };
    let handled = handler != libc::SIG_DFL && handler != libc::SIG_IGN;
    let restart = flags & libc::SA_RESTART != 0;
    for (word, on) in [
        (&RESTARTING, handled && restart),
        (&INTERRUPTING, handled && !restart),
    ] {
        if on {
            word.fetch_or(1 << shift, Ordering::Relaxed);
        } else {
            word.fetch_and(!(1 << shift), Ordering::Relaxed);
        }
    }
}

/// Whether `signal` has a handler that interrupts calls.
pub fn interrupts_calls(signal: c_int) -> bool {
    INTERRUPTING.load(Ordering::Relaxed) >> (signal - 1) & 1 != 0
}

/// Whether any signal has such a handler.
pub fn any_interrupts() -> bool {
    INTERRUPTING.load(Ordering::Relaxed) != 0
}

/// Whether any signal has a handler after which calls are restarted.
pub fn any_restarts() -> bool {
    RESTARTING.load(Ordering::Relaxed) != 0
}

/// Blocks signals whose handlers interrupt calls, as long as it lives. A call that sleeps several times in a row sleeps
/// with the mask from `before`, and so misses no signal between two sleeps.
pub struct BlockedSignals {
    before: sigset_t,
}

impl BlockedSignals {
    /// Blocks them, if there are any.
    pub fn new() -> Option<Self> {
        Self::unless_none(INTERRUPTING.load(Ordering::Relaxed))
    }

    /// Blocks all signals with handlers, if there are any: each ends a `poll` or an `epoll_wait`.
    pub fn of_handlers() -> Option<Self> {
        Self::unless_none(INTERRUPTING.load(Ordering::Relaxed) | RESTARTING.load(Ordering::Relaxed))
    }

    fn unless_none(signals: u64) -> Option<Self> {
        (signals != 0).then(|| Self {
            before: change_mask(libc::SIG_BLOCK, signals),
        })
    }

    /// Blocks all signals that are no faults, also those that interrupt no call.
    pub fn all() -> Self {
        let faults = [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
            libc::SIGSYS,
        ];
        let faults = faults
            .iter()
            .fold(0, |all, signal| all | 1u64 << (signal - 1));
        Self {
            before: change_mask(libc::SIG_BLOCK, !faults),
        }
    }

    /// Whether `signal` is pending.
    pub fn is_pending(signal: c_int) -> bool {
        Self::pending() >> (signal - 1) & 1 != 0
    }

    /// Whether a signal is pending whose handler interrupts calls.
    pub fn is_any_pending() -> bool {
        Self::pending() & INTERRUPTING.load(Ordering::Relaxed) != 0
    }

    fn pending() -> u64 {
        let mut pending = 0u64;
        // SAFETY: a set of eight bytes, which is a local.
        let asked = unsafe {
            let set = (&raw mut pending).addr();
            sys::raw(libc::SYS_rt_sigpending, [set, 8, 0, 0, 0, 0])
        };
        if asked.is_ok() { pending } else { 0 }
    }

    /// The signals that end the call, of those that the thread itself does not block.
    pub fn ending(&self) -> u64 {
        INTERRUPTING.load(Ordering::Relaxed) & !first_word(&self.before)
    }

    /// The mask to sleep with, where the program may have `given` one.
    pub fn mask_for(held: Option<&Self>, given: *const sigset_t) -> *const sigset_t {
        if given.is_null() {
            Self::mask(held)
        } else {
            given
        }
    }

    /// The mask to sleep with.
    pub fn mask(held: Option<&Self>) -> *const sigset_t {
        held.map_or(core::ptr::null(), |held| &raw const held.before)
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        change_mask(libc::SIG_SETMASK, first_word(&self.before));
    }
}

/// Sleeps with `poll`, given at least one descriptor, until `fd` is readable, in the way of a call that the kernel
/// restarts. Returns the events of `fd`. `held` when the caller sleeps more than once.
///
/// # Errors
/// As `ppoll`; `EINTR` only after a handler without `SA_RESTART`.
pub fn sleep_restarting(
    fd: c_int,
    held: Option<&BlockedSignals>,
    poll: impl Fn(&mut [pollfd], *const sigset_t) -> Result<usize, c_int>,
) -> Result<i16, c_int> {
    loop {
        let entry = pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let Some((signal_descriptor, mask)) = watch_restarting(held) else {
            let mut set = [entry];
            match poll(&mut set, BlockedSignals::mask(held)) {
                Err(libc::EINTR) if INTERRUPTING.load(Ordering::Relaxed) == 0 => continue,
                result => return result.map(|_| set[0].revents),
            }
        };
        let mut set = [
            entry,
            pollfd {
                fd: signal_descriptor,
                ..entry
            },
        ];
        let slept = cancel::guarded(
            || attach::close_internal(signal_descriptor),
            || poll(&mut set, &raw const mask),
        );
        attach::close_internal(signal_descriptor);
        slept?;
        if set[0].revents != 0 {
            return Ok(set[0].revents);
        }
        // The handlers have run by now.
    }
}

/// As [`sleep_restarting`], on this descriptor alone.
///
/// # Errors
/// As [`sleep_restarting`].
pub fn sleep_on_one(fd: c_int) -> Result<i16, c_int> {
    sleep_restarting(fd, None, |set, mask| sleep_in_poll(set, -1, mask))
}

/// A descriptor that is readable while one of these signals is pending, under any number.
pub fn descriptor_of(signals: u64) -> Option<c_int> {
    let flags = sys::int(libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
    let mask = (&raw const signals).addr();
    // SAFETY: the mask is a local of eight bytes.
    let make = || unsafe { sys::raw(libc::SYS_signalfd4, [usize::MAX, mask, 8, flags, 0, 0]) };
    let made = limits::for_library(make).ok()?;
    c_int::try_from(made).ok()
}

/// Where some handlers end a call and others restart it: a descriptor that is readable for the signals of the latter, and
/// the mask to sleep with.
fn watch_restarting(held: Option<&BlockedSignals>) -> Option<(c_int, sigset_t)> {
    let all = RESTARTING.load(Ordering::Relaxed);
    if all == 0 || INTERRUPTING.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let mut mask = held.map_or_else(|| change_mask(libc::SIG_BLOCK, 0), |held| held.before);
    // One that the program itself blocks may be pending all the time, and ends no sleep.
    let restarting = all & !first_word(&mask);
    if restarting == 0 {
        return None;
    }
    let descriptor = attach::make_internal(descriptor_of(restarting)?);
    // SAFETY: a set has room for the eight bytes that count.
    unsafe { *(&raw mut mask).cast::<u64>() |= restarting };
    Some((descriptor, mask))
}

const fn first_word(set: &sigset_t) -> u64 {
    // SAFETY: a set has room for the eight bytes that count.
    unsafe { *core::ptr::from_ref(set).cast::<u64>() }
}

/// Changes the thread's signal mask and returns the former one.
fn change_mask(how: c_int, signals: u64) -> sigset_t {
    // SAFETY: all zero is a valid set of signals, and has room for the eight bytes that count.
    unsafe {
        let mut set: sigset_t = core::mem::zeroed();
        let new = (&raw const signals).addr();
        let old = (&raw mut set).addr();
        let _ = sys::raw(libc::SYS_rt_sigprocmask, [sys::int(how), new, old, 8, 0, 0]);
        set
    }
}

/// `ppoll`, as a cancellation point; negative `nanoseconds` are forever.
///
/// # Errors
/// As `ppoll`.
pub fn sleep_in_poll(
    set: &mut [libc::pollfd],
    nanoseconds: i64,
    mask: *const libc::sigset_t,
) -> Result<usize, i32> {
    let time = libc::timespec {
        tv_sec: nanoseconds / 1_000_000_000,
        tv_nsec: nanoseconds % 1_000_000_000,
    };
    let time: *const libc::timespec = if nanoseconds < 0 {
        core::ptr::null()
    } else {
        &raw const time
    };
    let count = set.len() as libc::nfds_t;
    // SAFETY: the slice is ours; the mask is null or the caller's valid set.
    let got = unsafe { real::ppoll(set.as_mut_ptr(), count, time, mask) };
    match usize::try_from(got).map_err(|_| real::errno()) {
        Err(libc::EINVAL) => sys::poll_by_select(set, nanoseconds, mask),
        got => got,
    }
}
