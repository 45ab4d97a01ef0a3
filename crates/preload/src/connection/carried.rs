//! Connects that are under way, as the program was told, and that the daemons then refuse: the kernel carries them on, under the same
//! descriptors. The program notices nothing but the time it took.
//!
//! Who finds out may hold locks of event loops; so the socket is noted, and replaced when the loop has let go of them. Until then
//! it shows what a connect under way shows. Whoever finds out is awake, and looks here before sleeping again.

use core::sync::atomic::{AtomicUsize, Ordering};

use netchannel_abi::link::side_flags;
use netchannel_abi::reason::Reason;

use super::REPLACING;
use super::connect::falls_back;
use super::dissolve::{become_kernel, make_kernel};
use super::pending::Progress;
use crate::lane::Lane;
use crate::lock::Lock;
use crate::poll;
use crate::socket::{self, Socket, status};
use crate::table::{self, Word};
use crate::{epoll, names};

/// How many sockets are noted.
static NOTED: AtomicUsize = AtomicUsize::new(0);
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
        && socket.entry.references.load(Ordering::Acquire) <= 1
}

/// Notes a socket that is to be carried on. False where it can not be noted now.
pub(super) fn note(lane: &Lane) -> bool {
    let Some(mut words) = WORDS.lock() else {
        return false;
    };
    let word = lane.socket.word;
    if !words.iter().any(|(known, _)| *known == word) {
        words.push((word, lane.fd));
        NOTED.store(words.len(), Ordering::Release);
    }
    true
}

/// Whether sockets wait to be carried on.
#[inline]
pub fn are_due() -> bool {
    NOTED.load(Ordering::Acquire) > 0
}

/// Carries on what was noted. The caller holds no lock of a socket or an event loop. True if descriptors are something else now.
#[inline]
pub fn carry() -> bool {
    are_due() && carry_noted()
}

#[cold]
fn carry_noted() -> bool {
    let Some(words) = WORDS.lock().map(|mut words| {
        NOTED.store(0, Ordering::Release);
        core::mem::take(&mut *words)
    }) else {
        return false;
    };
    for (word, fd) in words {
        let found = socket::of_word(word).filter(|socket| socket.has(status::PENDING));
        if let Some((fd, socket)) = descriptor(word, fd).zip(found) {
            carry_on(fd, &socket);
        }
    }
    true
}

/// A number that names the socket.
fn descriptor(word: Word, fd: i32) -> Option<i32> {
    if table::get(fd) == word {
        return Some(fd);
    }
    let mut found = None;
    table::for_each(|other, known| {
        if known == word {
            found = Some(other);
        }
    });
    found
}

fn carry_on(fd: i32, socket: &Socket) {
    let replacing = REPLACING.lock();
    let Some(lane) = Lane::of(*socket, fd) else {
        return;
    };
    if table::get(fd) != socket.word || lane.decided() != Progress::Failed {
        // Another thread was quicker, or it was closed.
        return;
    }
    let peer = socket.entry.peer.load();
    let connected = make_kernel(socket).and_then(|made| {
        let connected = names::connect(made, &peer);
        match connected {
            Ok(()) | Err(libc::EINPROGRESS) => {
                let slept = poll::begin_replacement(fd);
                let replaced =
                    become_kernel(fd, socket, made, side_flags::FIN | side_flags::CLOSED);
                if slept {
                    poll::end_replacement();
                }
                replaced
            }
            Err(error) => {
                crate::sys::close(made);
                Err(error)
            }
        }
    });
    match connected {
        Ok(kernel) => falls_back(&kernel, Reason::NoListener, Some(peer)),
        Err(error) => lane.fail_with(error),
    }
    drop(replacing);
    if connected.is_err() {
        epoll::changed(socket);
    }
}

/// In a forked child nobody holds the lock.
pub fn reset_in_child() {
    WORDS.reset();
}
