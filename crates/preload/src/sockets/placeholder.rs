//! What the kernel has under the number of a deferred connection: one end of a pair of sockets. Its other end is closed
//! to wake who sleeps at the first.
//!
//! ```text
//!  take --> stands for a connection --> idle --> stands for another one
//!                  a thread sleeps at it, or it has two numbers --> closed with the connection
//! ```
//!
//! To make a pair and to close it costs the kernel as much as all else of a short connection. So the library keeps a
//! duplicate of the first end, and a pair at which nobody has slept stands for another connection later. Two numbers
//! may leave a member of a set under a closed number, which only the end of the file removes.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::descriptors::{attach, limits};
use crate::ground::sys;
use crate::sockets::socket::Socket;

/// Idle pairs: both numbers plus one, the first end's above; 0 for none. An event loop announces one connection, and
/// begins the next, so that few are idle at a time.
static IDLE: [AtomicU64; MOST_IDLE] = [const { AtomicU64::new(0) }; MOST_IDLE];
const MOST_IDLE: usize = 8;

/// A pair that stands for no connection. Both numbers are the library's.
pub struct Pair {
    /// The end that programs see.
    pub first: i32,
    other: i32,
}

impl Pair {
    /// An idle pair, or a new one.
    ///
    /// # Errors
    /// Those of `socketpair`.
    pub fn take() -> Result<Self, i32> {
        if let Some(idle) = IDLE.iter().find_map(take_from) {
            return Ok(idle);
        }
        let (first, other) = limits::for_library(|| sys::socket_pair(libc::SOCK_STREAM))?;
        Ok(Self {
            first: attach::make_internal(first),
            other: attach::make_internal(other),
        })
    }

    /// Lets it stand for a connection, under whose number the first end is.
    pub fn stand_for(self, socket: &Socket) {
        let local = socket.local;
        local.first_end.store(self.first + 1, Ordering::Relaxed);
        // Pairs with the swap in `dismiss`, which takes both.
        local.other_end.store(self.other + 1, Ordering::Release);
    }

    /// Closes both ends.
    pub fn close(self) {
        attach::close_internal(self.first);
        attach::close_internal(self.other);
    }

    fn keep(self) {
        let end = |fd: i32| u64::from((fd + 1).cast_unsigned());
        let word = end(self.first) << 32 | end(self.other);
        let is_kept = IDLE.iter().any(|place| {
            place.load(Ordering::Relaxed) == 0
                // Pairs with the swap in `take_from`.
                && place
                    .compare_exchange(0, word, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
        });
        if !is_kept {
            self.close();
        }
    }
}

fn take_from(place: &AtomicU64) -> Option<Pair> {
    if place.load(Ordering::Relaxed) == 0 {
        return None;
    }
    // Pairs with the exchange in `keep`.
    let word = place.swap(0, Ordering::Acquire);
    let end = |word: u64| i32::try_from(word & u64::from(u32::MAX)).unwrap_or(0) - 1;
    (word != 0).then(|| Pair {
        first: end(word >> 32),
        other: end(word),
    })
}

/// The pair will stand for no other connection: a thread is about to sleep at the first end, and looks afterwards
/// whether the connection is still deferred, or the program duplicates its number.
pub fn end_with_connection(socket: &Socket) {
    // Either `dismiss` finds it taken and closes the other end, or this call sees what was written before `dismiss`.
    let first = socket.local.first_end.swap(0, Ordering::AcqRel);
    attach::close_internal(first - 1);
}

/// The pair stands for the connection no longer. False where it did not. With `is_free` no number of the program, and
/// no set of the kernel, has the first end any more.
pub fn dismiss(socket: &Socket, is_free: bool) -> bool {
    let local = socket.local;
    let other = local.other_end.swap(0, Ordering::AcqRel);
    if other == 0 {
        return false;
    }
    let pair = Pair {
        // Pairs with `end_with_connection`.
        first: local.first_end.swap(0, Ordering::AcqRel) - 1,
        other: other - 1,
    };
    if is_free && pair.first >= 0 {
        pair.keep();
    } else {
        pair.close();
    }
    true
}

/// Closes the idle pairs: numbers are short, or this is a forked child, whose parent goes on to use them. Whether there
/// were any.
#[cold]
pub fn drop_idle() -> bool {
    IDLE.iter().filter_map(take_from).map(Pair::close).count() > 0
}

/// Notes that a descriptor of the library has a new number.
pub fn relocate(from: i32, to: i32) {
    for place in &IDLE {
        if let Some(Pair { first, other }) = take_from(place) {
            let moved = |fd: i32| if fd == from { to } else { fd };
            Pair {
                first: moved(first),
                other: moved(other),
            }
            .keep();
        }
    }
}
