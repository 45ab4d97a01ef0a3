//! Connects that the daemons have refused and the kernel may carry on, and connections that are to be made anew: either
//! is found under various locks and noted here, and `carry_noted` carries them on when the locks are released.

use core::sync::atomic::Ordering;

use crate::descriptors::gateway;
use crate::descriptors::table::Word;
use crate::ground::lock::Lock;
use crate::sockets::lane::Lane;
use crate::sockets::socket::{Socket, status};
use crate::waiting::housekeeping::NOTED_CONNECTS;

/// The words of the sockets, each with a descriptor.
static WORDS: Lock<Vec<(Word, i32)>> = Lock::new(Vec::new());

/// Whether the kernel shall try a connect that the daemons refuse with `error`: the knowledge of the listener is
/// outdated, the other host refuses the connection on a channel, or a daemon has no room for it. Where the other host
/// does not answer, or its program has ended the connection, the kernel would return the same. An interrupted call was
/// not refused.
pub(super) fn is_for_kernel(error: i32) -> bool {
    let is_tried = matches!(
        error,
        libc::ECONNREFUSED
            | libc::EADDRNOTAVAIL
            | libc::ENOBUFS
            | libc::ENOMEM
            | libc::EMFILE
            | libc::ENFILE
    );
    // A tenant has no network but its stack.
    is_tried && !gateway::is_used()
}

/// Whether it can be carried on behind the program's descriptor: no call waits in the connect, and a socket that other
/// processes have, too, can not be replaced for them.
pub(super) fn may_carry(socket: &Socket, error: i32) -> bool {
    is_for_kernel(error)
        && socket.has(status::NONBLOCKING | status::CONNECTING)
        && !socket.is_foreign()
        && socket.entry.references.load(Ordering::Relaxed) <= 1
}

/// Notes a socket that is to be carried on. False where that is impossible now.
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

/// Takes all noted sockets. `None` where another thread holds the list.
pub(super) fn take() -> Option<Vec<(Word, i32)>> {
    let mut words = WORDS.lock()?;
    NOTED_CONNECTS.store(0, Ordering::Relaxed);
    Some(core::mem::take(&mut *words))
}

/// In a forked child, where another thread that held the lock does not exist.
pub fn reset_in_child() {
    WORDS.reset();
}
