//! The daemon ended, and another one may serve: it is given the region of this program and told what
//! the program listens to. Meanwhile new connections go over kernel TCP. Nobody waits for a daemon;
//! it is looked for when a connection is accepted or made, now and then.

use core::sync::atomic::AtomicU64;

use crate::descriptors::attach;
use crate::ground::clock;

/// When it was last asked whether it has gone.
static ASKED: AtomicU64 = AtomicU64::new(0);
/// When a listener was last announced that no daemon knows.
static TRIED: AtomicU64 = AtomicU64::new(0);

/// Tells the next daemon of this program, if the last one has gone and there is one.
#[inline]
pub fn follow() {
    if attach::is_daemon_gone() && attach::current().is_some() {
        follow_now();
    }
}

#[cold]
fn follow_now() {
    if attach::is_daemon_serving() && attach::note_new_daemon() {
        super::renewal::announce_again();
    }
}

/// As [`follow`], at once, for who met a program that knows a daemon already.
#[cold]
pub fn catch_up() {
    attach::close_control_if_hung_up();
    attach::retry_now();
    follow();
}

/// Whether this was not tried for a second: to tell a daemon of a listener that none knows.
pub fn may_try() -> bool {
    clock::is_due(&TRIED, clock::SECOND)
}

/// As [`follow`], for who was told nothing: asks now and then whether the daemon has gone.
pub fn look() {
    if attach::current().is_some()
        && clock::is_due(&ASKED, clock::SECOND)
        && !attach::is_daemon_gone()
    {
        attach::close_control_if_hung_up();
    }
    follow();
}
