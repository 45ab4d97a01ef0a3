//! Which handlers restart the calls they interrupt. The kernel restarts `recv` and `accept`, but
//! never `poll`: so where the library polls in their place it has to know.
//!
//! A poll that must go on after some handlers but end after others sleeps with the former blocked,
//! and with a descriptor that tells of them: then it is left, the handlers run, and it goes on.

use core::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, pollfd, sigset_t};

use crate::descriptors::{attach, limits};
use crate::ground::{cancel, process, real, sys};

/// Signals with a handler that says `SA_RESTART`, a bit each.
static RESTARTING: AtomicU64 = AtomicU64::new(0);
/// Signals with a handler that does not.
static ENDING: AtomicU64 = AtomicU64::new(0);

/// Those that a thread raises itself by a fault: they interrupt no wait.
const FAULTS: [c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
];

/// The program may have changed what it does at `signal`.
pub fn changed(signal: c_int) {
    let Ok(shift @ 0..64) = u32::try_from(signal - 1) else {
        return;
    };
    if FAULTS.contains(&signal) || process::is_vfork_child() {
        return;
    }
    // SAFETY: all zero is a valid action, and asking changes nothing.
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
        (&ENDING, handled && !restart),
    ] {
        if on {
            word.fetch_or(1 << shift, Ordering::Relaxed);
        } else {
            word.fetch_and(!(1 << shift), Ordering::Relaxed);
        }
    }
}

/// Whether `signal` has a handler that ends calls.
pub fn ends_calls(signal: c_int) -> bool {
    ENDING.load(Ordering::Relaxed) >> (signal - 1) & 1 != 0
}

/// While it lives, signals whose handlers end calls wait: a call that sleeps several times in turn
/// sleeps with the mask from `before`, and so misses none that comes between two sleeps.
pub struct Held {
    before: sigset_t,
}

impl Held {
    /// Holds them back, if there are any.
    pub fn new() -> Option<Self> {
        let ending = ENDING.load(Ordering::Relaxed);
        (ending != 0).then(|| Self {
            before: change_mask(libc::SIG_BLOCK, ending),
        })
    }

    /// Holds back all that is not a fault, also those that end no calls.
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

    /// Whether `signal` has come since, or before.
    pub fn has_come(signal: c_int) -> bool {
        Self::pending() >> (signal - 1) & 1 != 0
    }

    /// Whether one has come whose handler ends calls.
    pub fn has_any_come() -> bool {
        Self::pending() & ENDING.load(Ordering::Relaxed) != 0
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

    /// The mask to sleep with.
    pub fn mask(held: Option<&Self>) -> *const sigset_t {
        held.map_or(core::ptr::null(), |held| &raw const held.before)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        change_mask(libc::SIG_SETMASK, first_word(&self.before));
    }
}

/// Sleeps with `poll`, given one descriptor at least, until `fd` can be read, as a call would
/// that the kernel restarts. Returns what poll told of it. `held` when the caller sleeps more than once.
///
/// # Errors
/// As `ppoll`; `EINTR` only after a handler that asks for it.
pub fn sleep_restarting(
    fd: c_int,
    held: Option<&Held>,
    poll: impl Fn(&mut [pollfd], *const sigset_t) -> Result<usize, c_int>,
) -> Result<i16, c_int> {
    loop {
        let entry = pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let restarting = RESTARTING.load(Ordering::Relaxed);
        let mixed = restarting != 0 && ENDING.load(Ordering::Relaxed) != 0;
        let Some(told) = mixed.then(|| descriptor_of(restarting)).flatten() else {
            let mut set = [entry];
            match poll(&mut set, Held::mask(held)) {
                Err(libc::EINTR) if ENDING.load(Ordering::Relaxed) == 0 => continue,
                result => return result.map(|_| set[0].revents),
            }
        };
        let mut set = [entry, pollfd { fd: told, ..entry }];
        let mask = blocked_too(restarting, held);
        let slept = cancel::guarded(
            || attach::close_internal(told),
            || poll(&mut set, &raw const mask),
        );
        attach::close_internal(told);
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

/// A descriptor that is readable while one of these signals is pending.
fn descriptor_of(signals: u64) -> Option<c_int> {
    let flags = sys::int(libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
    let mask = (&raw const signals).addr();
    // SAFETY: the mask is a local of eight bytes.
    let make = || unsafe { sys::raw(libc::SYS_signalfd4, [usize::MAX, mask, 8, flags, 0, 0]) };
    let made = limits::for_library(make).ok()?;
    Some(attach::make_internal(c_int::try_from(made).ok()?))
}

/// The mask to sleep with, and these signals added.
fn blocked_too(signals: u64, held: Option<&Held>) -> sigset_t {
    let mut set = held.map_or_else(|| change_mask(libc::SIG_BLOCK, 0), |held| held.before);
    // SAFETY: a set has room for the eight bytes that count.
    unsafe { *(&raw mut set).cast::<u64>() |= signals };
    set
}

const fn first_word(set: &sigset_t) -> u64 {
    // SAFETY: a set has room for the eight bytes that count.
    unsafe { *core::ptr::from_ref(set).cast::<u64>() }
}

/// Changes the thread's mask; returns what it was.
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

/// `ppoll`, as a cancellation point; `nanoseconds` negative for ever.
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
