//! Connects that the daemons have refused and the kernel may carry on: found out under whatever locks, noted here, and carried on by
//! `carried` when those are given back.

use core::sync::atomic::Ordering;

use crate::descriptors::table::Word;
use crate::ground::lock::Lock;
use crate::sockets::lane::Lane;
use crate::sockets::socket::{Socket, status};
use crate::waiting::housekeeping::NOTED_CONNECTS;

/// Their words, and a descriptor of each.
static WORDS: Lock<Vec<(Word, i32)>> = Lock::new(Vec::new());

/// Whether the kernel shall try what the daemons refuse with `error`: what is known of the listener is old, the other host does not want
/// the connection on a channel, or a daemon can not have it. Where the other host does not answer, or its program has ended the
/// connection, the kernel would say the same. An interrupted call is none that was refused.
pub(super) const fn is_for_kernel(error: i32) -> bool {
    matches!(
        error,
        libc::ECONNREFUSED
            | libc::EADDRNOTAVAIL
            | libc::ENOBUFS
            | libc::ENOMEM
            | libc::EMFILE
            | libc::ENFILE
    )
}

/// Whether it can be carried on behind the program's descriptor: where other processes have the socket too, it can not be replaced
/// for them.
pub(super) fn may_carry(socket: &Socket, error: i32) -> bool {
    is_for_kernel(error)
        && socket.has(status::NONBLOCKING)
        && !socket.is_foreign()
        && socket.entry.references.load(Ordering::Relaxed) <= 1
}

/// Notes a socket that is to be carried on. False where it can not be noted now.
pub(super) fn note(lane: &Lane) -> bool {
    let Some(mut words) = WORDS.lock() else {
        return false;
    };
    let word = lane.socket.word;
    if !words.iter().any(|(known, _)| *known == word) {
        words.push((word, lane.fd));
        NOTED_CONNECTS.store(words.len(), Ordering::Relaxed);
    }
    true
}

/// Takes all that were noted. `None` where another thread holds the list.
pub(super) fn take() -> Option<Vec<(Word, i32)>> {
    let mut words = WORDS.lock()?;
    NOTED_CONNECTS.store(0, Ordering::Relaxed);
    Some(core::mem::take(&mut *words))
}

/// In a forked child nobody holds the lock.
pub fn reset_in_child() {
    WORDS.reset();
}
