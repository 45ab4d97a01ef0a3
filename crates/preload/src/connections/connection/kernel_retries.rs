//! Connects that are under way for the program and that the daemons then refuse: the kernel carries them on, under the
//! same descriptors. The program notices only the time.
//!
//! The refusal may be found under locks of event loops. So the socket is noted, and replaced when the loop has released
//! its locks. Until then it shows a connect under way. The thread that finds the refusal is awake, and looks here
//! before it sleeps again.

use netchannel_abi::reason::Reason;

use super::reconnecting::connect_anew;
use super::replacing::{go_on_in_kernel, make_kernel};
use super::{REPLACING, falls_back, flags, refused_connects};
use crate::descriptors::names;
use crate::descriptors::table::{self, Word};
use crate::ground::sys;
use crate::sockets::lane::{Lane, Progress};
use crate::sockets::socket::{self, Socket, status};

/// Carries on the noted connects. The caller holds no lock of a socket or an event loop. True if a descriptor has
/// changed its kind.
#[cold]
pub fn carry_noted() -> bool {
    let Some(words) = refused_connects::take() else {
        return false;
    };
    for (word, fd) in words {
        if let Some((fd, socket)) = descriptor(word, fd).zip(socket::of_word(word)) {
            if socket.has(status::PENDING) {
                carry_on(fd, &socket);
            } else {
                connect_anew(fd, &socket);
            }
        }
    }
    true
}

/// A number that names the socket.
fn descriptor(word: Word, fd: i32) -> Option<i32> {
    if table::get(fd) == word {
        return Some(fd);
    }
    table::find(word)
}

fn carry_on(fd: i32, socket: &Socket) {
    let replacing = REPLACING.lock();
    let Some(lane) = Lane::of(*socket, fd) else {
        return;
    };
    if table::get(fd) != socket.word || lane.relay_answer() != Progress::Failed {
        // Another thread was quicker, or the socket was closed.
        return;
    }
    let peer = socket.entry.peer.load();
    let connected = make_kernel(socket, true).and_then(|made| {
        // A signal may have interrupted the connect of a socket that blocks, or the program has made it block since.
        let _ = sys::fcntl(made, libc::F_SETFL, sys::int(libc::O_NONBLOCK));
        let connected = names::connect(made, &peer);
        flags::apply(socket, made);
        match connected {
            Ok(()) | Err(libc::EINPROGRESS) => go_on_in_kernel(fd, socket, made, |_| Ok(())),
            Err(error) => {
                sys::close(made);
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
        lane.notify_of_change();
    }
}
