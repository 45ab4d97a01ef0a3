//! What a thread does beside a call that waits: connects that the daemons refuse and the kernel carries on, deferred connections whose
//! time is over, sockets that were closed while it slept. Who makes connections registers how.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;

use crate::ground::clock;
use crate::sockets::socket::Socket;

/// How each of them is done.
pub trait Housekeeping: Sync {
    /// Carries on the connects that were noted. The caller holds no lock of a socket or an event loop. True if descriptors are something
    /// else now.
    fn carry(&self) -> bool;
    /// Announces the deferred connections whose time is over.
    fn announce(&self);
    /// A call is over that kept its socket: if that was closed while it slept, the last sleeper lets it go.
    fn release(&self, socket: &Socket);
}

/// Registered when the library begins.
pub static HOUSEKEEPING: OnceLock<&'static dyn Housekeeping> = OnceLock::new();

/// Connects that wait to be carried on.
pub static NOTED: AtomicUsize = AtomicUsize::new(0);
/// Deferred connections of this process.
pub static DEFERRED: AtomicUsize = AtomicUsize::new(0);
/// When the first of them is due, in nanoseconds of [`clock::nanoseconds`].
pub static NEXT: AtomicU64 = AtomicU64::new(0);

/// Whether sockets wait to be carried on.
#[inline]
pub fn are_due() -> bool {
    NOTED.load(Ordering::Relaxed) > 0
}

/// As [`Housekeeping::carry`].
#[inline]
pub fn carry() -> bool {
    are_due() && HOUSEKEEPING.get().is_some_and(|how| how.carry())
}

/// As [`Housekeeping::release`].
#[inline]
pub fn release(socket: &Socket) {
    if socket.local.orphan.load(Ordering::Acquire) > 0 {
        HOUSEKEEPING.get().inspect(|how| how.release(socket));
    }
}

/// Whether this process has deferred connections.
#[inline]
pub fn any_deferred() -> bool {
    DEFERRED.load(Ordering::Relaxed) > 0
}

/// Announces those whose time is over.
#[inline]
pub fn look() {
    if any_deferred() {
        look_at_time();
    }
}

#[cold]
fn look_at_time() {
    if clock::nanoseconds() >= NEXT.load(Ordering::Relaxed) {
        HOUSEKEEPING.get().inspect(|how| how.announce());
    }
}

/// For how long a call may sleep that would sleep for `limit`, which is negative for ever.
#[inline]
pub fn bounded(limit: i64) -> i64 {
    if any_deferred() {
        until_next(limit)
    } else {
        limit
    }
}

#[cold]
fn until_next(limit: i64) -> i64 {
    let left = NEXT
        .load(Ordering::Relaxed)
        .saturating_sub(clock::nanoseconds());
    let left = i64::try_from(left).unwrap_or(i64::MAX);
    if limit < 0 { left } else { left.min(limit) }
}

/// The same where something else may end the sleep.
pub fn earlier(other: Option<i64>) -> Option<i64> {
    let bound = until_next(-1);
    Some(other.map_or(bound, |other| other.min(bound)))
}

/// A call that sleeps for `limit` at most, and says when nothing has come: where there are any it sleeps until one is due, several times.
#[inline]
pub fn sliced(limit: i64, mut call: impl FnMut(i64) -> Result<usize, i32>) -> Result<usize, i32> {
    if !any_deferred() {
        return call(limit);
    }
    let start = clock::nanoseconds();
    loop {
        look_at_time();
        let left = clock::remaining(limit, start);
        let slice = bounded(left);
        let told = call(slice);
        if told != Ok(0) || slice == left {
            return told;
        }
    }
}
