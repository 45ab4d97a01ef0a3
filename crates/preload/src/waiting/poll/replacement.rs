//! Numbers that are given other files while threads sleep on them in poll.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::descriptors::table::Kind;
use crate::ground::{clock, sys};
use crate::sockets::lane::Lane;
use crate::sockets::socket;

/// Numbers that are being given other files while threads sleep on them in poll.
static REPLACING: AtomicUsize = AtomicUsize::new(0);

/// Who sleeps in poll is awake by then, unless it was killed.
const LONGEST_RISE: u64 = 50_000 * clock::MICROSECOND;

/// Before the program puts another file under `fd`: threads that sleep on it in poll are woken, and
/// wait for [`end_replacement`] before they look again by number. True when there were any.
///
/// Before, not after: the kernel too looks by number when it is woken, and would find a file that
/// has nothing to tell, and sleep on, no longer woken by either. So they must have left the kernel.
pub fn begin_replacement(fd: i32) -> bool {
    let Some(lane) = socket::of(fd).and_then(|socket| Lane::of(socket, fd)) else {
        return false;
    };
    if lane.socket.word.kind() != Kind::Virtual
        || lane.socket.entry.transmit.sleepers.load(Ordering::Acquire) == 0
    {
        return false;
    }
    REPLACING.fetch_add(1, Ordering::AcqRel);
    // The peer takes it for no end: they keep the connection until they return.
    lane.rouse();
    // Acquire: pairs with the leave in `rise_in_poll`.
    let sleepers = &lane.socket.entry.transmit.sleepers;
    let until = clock::now().wrapping_add(LONGEST_RISE);
    while sleepers.load(Ordering::Acquire) > 0 && clock::now() < until {
        sys::yield_now();
    }
    true
}

/// Whether any is, as a thread sees it that was woken for it.
pub fn is_under_way() -> bool {
    // Acquire: pairs with the change in `begin_replacement`, which comes before the wake-up.
    REPLACING.load(Ordering::Acquire) > 0
}

/// Waits until the numbers name their new files.
pub fn wait() {
    while is_under_way() {
        sys::yield_now();
    }
}

/// The number names its new file.
pub fn end_replacement() {
    REPLACING.fetch_sub(1, Ordering::AcqRel);
}

/// In a forked child no other thread replaces anything.
pub fn reset_in_child() {
    REPLACING.store(0, Ordering::Relaxed);
}
