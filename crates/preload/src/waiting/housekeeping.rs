//! The work of a thread around a call that waits: carrying on connects that daemons refuse, announcing deferred
//! connections that are due, releasing sockets that were closed during the sleep. The module that makes connections
//! registers the functions.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;

use crate::ground::clock;
use crate::sockets::listener;
use crate::sockets::socket::Socket;

/// The functions for this work.
pub trait Housekeeping: Sync {
    /// Carries on the noted connects. The caller holds no lock of a socket or an event loop. True if a descriptor has
    /// changed its kind.
    fn carry(&self) -> bool;
    /// Announces the deferred connections that are due.
    fn announce(&self);
    /// Withdraws connections that nobody has accepted for long.
    fn withdraw(&self);
    /// Called after a call that held its socket: if the socket was closed during the sleep, the last sleeper releases
    /// it.
    fn release(&self, socket: &Socket);
}

/// Registered when the library begins.
pub static HOUSEKEEPING: OnceLock<&'static dyn Housekeeping> = OnceLock::new();

/// Connects that wait to be carried on.
pub static NOTED_CONNECTS: AtomicUsize = AtomicUsize::new(0);
/// Deferred connections of this process.
pub static DEFERRED: AtomicUsize = AtomicUsize::new(0);
/// When the first deferred connection is due, in nanoseconds of [`clock::nanoseconds`].
pub static NEXT: AtomicU64 = AtomicU64::new(0);

/// When a connection that one of several processes has not accepted may have waited for long, in the same unit; 0 for
/// never.
pub static UNACCEPTED: AtomicU64 = AtomicU64::new(0);

/// This process has had such connections.
pub static ANNOUNCED: AtomicBool = AtomicBool::new(false);
/// A connection has waited for long after so many nanoseconds.
pub const PATIENCE: u64 = 100_000_000;

/// Notes that a connection was announced to one of several processes, and can be withdrawn.
pub fn note_announced(socket: &Socket) {
    let announced = clock::now().max(1);
    socket.local.announced.store(announced, Ordering::Relaxed);
    if UNACCEPTED.load(Ordering::Relaxed) == 0 {
        ANNOUNCED.store(true, Ordering::Relaxed);
        look_later();
    }
}

/// Has the connections looked at that wait when they may have waited for long.
pub fn look_later() {
    let due = clock::nanoseconds().saturating_add(PATIENCE);
    UNACCEPTED.store(due, Ordering::Relaxed);
}

/// Whether connects wait to be carried on.
#[inline]
pub fn are_due() -> bool {
    NOTED_CONNECTS.load(Ordering::Relaxed) > 0
}

/// As [`Housekeeping::carry`].
#[inline]
pub fn carry() -> bool {
    are_due()
        && HOUSEKEEPING
            .get()
            .is_some_and(|housekeeper| housekeeper.carry())
}

/// As [`Housekeeping::release`].
#[inline]
pub fn release(socket: &Socket) {
    if socket.local.orphan.load(Ordering::Acquire) > 0 {
        HOUSEKEEPING
            .get()
            .inspect(|housekeeper| housekeeper.release(socket));
    }
}

/// Whether this process has deferred connections.
#[inline]
pub fn any_deferred() -> bool {
    DEFERRED.load(Ordering::Relaxed) > 0
}

/// Whether a sleep may have to be divided.
#[inline]
pub fn any_due() -> bool {
    any_deferred() || listener::leave_at() > 0 || UNACCEPTED.load(Ordering::Relaxed) > 0
}

/// Announces the deferred connections that are due, and leaves connections to other processes.
#[inline]
pub fn announce_due() {
    if any_due() {
        announce_if_due();
    }
}

#[cold]
fn announce_if_due() {
    let now = clock::nanoseconds();
    if any_deferred() && now >= NEXT.load(Ordering::Relaxed) {
        HOUSEKEEPING
            .get()
            .inspect(|housekeeper| housekeeper.announce());
    }
    if (1..=now).contains(&UNACCEPTED.load(Ordering::Relaxed)) {
        HOUSEKEEPING
            .get()
            .inspect(|housekeeper| housekeeper.withdraw());
    }
    listener::leave_if_late(now);
}

/// How long a call that would sleep for `limit` may sleep; negative is forever.
#[inline]
pub fn bounded_sleep(limit: i64) -> i64 {
    if any_due() { until_next(limit) } else { limit }
}

#[cold]
fn until_next(limit: i64) -> i64 {
    let deferred = any_deferred().then(|| NEXT.load(Ordering::Relaxed));
    let unaccepted = Some(UNACCEPTED.load(Ordering::Relaxed)).filter(|due| *due > 0);
    let leave = Some(listener::leave_at()).filter(|due| *due > 0);
    let due = [deferred, unaccepted, leave].into_iter().flatten().min();
    let next = due.unwrap_or(u64::MAX);
    let left = next.saturating_sub(clock::nanoseconds());
    let left = i64::try_from(left).unwrap_or(i64::MAX);
    if limit < 0 { left } else { left.min(limit) }
}

/// The earlier of the next due time and `other`.
pub fn earliest(other: Option<i64>) -> Option<i64> {
    let bound = until_next(-1);
    Some(other.map_or(bound, |other| other.min(bound)))
}

/// Makes a call that sleeps for at most `limit` and returns 0 if nothing has happened. Where something is due
/// meanwhile the sleep is divided.
#[inline]
pub fn in_slices(
    limit: i64,
    mut call: impl FnMut(i64) -> Result<usize, i32>,
) -> Result<usize, i32> {
    if !any_due() {
        return call(limit);
    }
    let start = clock::nanoseconds();
    loop {
        announce_if_due();
        let left = clock::remaining(limit, start);
        let slice = bounded_sleep(left);
        let result = call(slice);
        if result != Ok(0) || slice == left {
            return result;
        }
    }
}
