//! A daemon that follows another one: it is given the region and the listeners of this program. Meanwhile new
//! connections use kernel TCP. No call waits for a daemon; it is looked for now and then, when a connection is accepted
//! or made. In a tenant, where no connection comes meanwhile, who waits at a listener is woken when a daemon comes.

use core::sync::atomic::AtomicU64;

use crate::descriptors::attach;
use crate::ground::clock;
use crate::ground::lock::Lock;

/// Held while listeners get other channels, because a daemon has come or gone.
static RENEWING: Lock<()> = Lock::new(());
/// When it was last checked whether the daemon has ended.
static ASKED: AtomicU64 = AtomicU64::new(0);
/// When a listener that no daemon knows was last announced.
static TRIED: AtomicU64 = AtomicU64::new(0);

/// Announces this program to the next daemon, if the last one has ended and another one serves.
#[inline]
pub fn follow() {
    if attach::is_daemon_gone() && attach::current().is_some() {
        follow_now();
    }
}

#[cold]
fn follow_now() {
    if attach::is_daemon_serving() {
        let _renewing = RENEWING.lock();
        if attach::note_new_daemon() {
            attach::arrival::has_come();
            super::renewal::announce_again();
        }
    }
}

/// Runs `work` if there is no daemon, and meanwhile no thread introduces this program to one. False where it was not run, or as it says.
pub fn while_gone(work: impl FnOnce() -> bool) -> bool {
    let _renewing = RENEWING.lock();
    attach::is_daemon_gone() && work()
}

/// Runs `work` where a daemon serves that knows this program, and meanwhile no thread introduces it to another one.
pub fn while_serving(work: impl FnOnce()) {
    let _renewing = RENEWING.lock();
    if !attach::is_daemon_gone() {
        work();
    }
}

/// In a forked child, where another thread that held the lock does not exist.
pub fn reset_in_child() {
    RENEWING.reset();
}

/// As [`follow`], at once, for a process that met a program that already knows the next daemon.
#[cold]
pub fn catch_up() {
    attach::close_control_if_hung_up();
    attach::retry_now();
    follow();
}

/// Whether a listener that no daemon knows may be announced: at most once a second.
pub fn may_try() -> bool {
    clock::is_due(&TRIED, clock::SECOND)
}

/// As [`follow`], where nothing has shown the end of the daemon: checks it now and then.
pub fn check() {
    if attach::current().is_some()
        && clock::is_due(&ASKED, clock::SECOND)
        && !attach::is_daemon_gone()
    {
        attach::close_control_if_hung_up();
    }
    follow();
}
