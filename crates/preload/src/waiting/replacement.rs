//! Numbers that are given to other files while threads sleep on them in poll, in whatever call.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::descriptors::table::Kind;
use crate::ground::{clock, sys};
use crate::sockets::lane::Lane;
use crate::sockets::socket;
use crate::waiting::signals;

/// Replacements that are under way.
static REPLACING: AtomicUsize = AtomicUsize::new(0);

/// After this time sleepers in poll are awake, unless they were killed.
const LONGEST_WAKE: u64 = 50_000 * clock::MICROSECOND;

/// Before the program puts another file under `fd`: wakes threads that sleep on it in poll. They wait for
/// [`end`] before they resolve the number again. True when there were any.
///
/// Before the replacement, not after it: when the kernel wakes them it looks by number, too. It would find a file
/// without events and let them sleep on, and neither file would wake them. So they must have left the kernel.
pub fn begin(fd: i32) -> bool {
    let Some(lane) = socket::of(fd).and_then(|socket| Lane::of(socket, fd)) else {
        return false;
    };
    if lane.socket.word.kind() != Kind::Virtual {
        return false;
    }
    let entry = lane.socket.entry;
    let in_poll = || entry.transmit.sleepers.load(Ordering::Acquire) > 0;
    let by_number = sleeps_by_number(&lane);
    let in_calls = || by_number && entry.receive.sleepers.load(Ordering::Acquire) > 0;
    if !in_poll() && !in_calls() {
        return false;
    }
    REPLACING.fetch_add(1, Ordering::AcqRel);
    // To the sleepers it is no end of the peer: they hold the connection until they return.
    lane.wake_sleepers();
    // Acquire: pairs with the decrements in `end_poll_sleep` and `end_sleep`.
    let until = clock::now().wrapping_add(LONGEST_WAKE);
    while (in_poll() || in_calls()) && clock::now() < until {
        sys::yield_now();
    }
    true
}

/// Whether calls that send or receive sleep on the socket in poll, too.
fn sleeps_by_number(lane: &Lane) -> bool {
    let entry = lane.socket.entry;
    signals::interrupts_calls(libc::SIGURG)
        || lane.hold_remaining().is_some()
        || entry.receive_timeout.load(Ordering::Relaxed) != 0
        || entry.send_timeout.load(Ordering::Relaxed) != 0
}

/// Whether any is under way, as seen by a thread that was woken for it.
pub fn is_under_way() -> bool {
    // Acquire: pairs with the increment in `begin`, which precedes the wake-up.
    REPLACING.load(Ordering::Acquire) > 0
}

/// Waits until the numbers name their new files.
pub fn wait() {
    while is_under_way() {
        sys::yield_now();
    }
}

/// Called when the number names its new file.
pub fn end() {
    REPLACING.fetch_sub(1, Ordering::AcqRel);
}

/// In a forked child no other thread replaces anything.
pub fn reset_in_child() {
    REPLACING.store(0, Ordering::Relaxed);
}
