//! A process that has kernel TCP only from some moment on, because its calls come past the library ([`crate::rings`]) or because it may
//! not make those that the library needs ([`crate::confinement`]).

use core::sync::atomic::{AtomicU32, Ordering};

use netchannel_abi::reason::Reason;

use crate::table::{self, Kind};
use crate::{connection, copying, handover, socket};

/// Why, as a word; 0 for a process whose sockets may be virtual.
static WHY: AtomicU32 = AtomicU32::new(0);

/// Why the process has kernel TCP only, if it has.
#[inline]
pub fn reason() -> Option<Reason> {
    match WHY.load(Ordering::Relaxed) {
        0 => None,
        word => Some(Reason::from_word(word)),
    }
}

/// Everything that is virtual, or could become so, is the kernel's from now on. False where that was so before.
#[cold]
pub fn withdraw(why: Reason) -> bool {
    let first = WHY
        .compare_exchange(0, why as u32, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok();
    if first {
        leave_library(why);
    }
    first
}

/// What is virtual goes on over a pump; fresh sockets and listeners become the kernel's.
#[cold]
pub fn leave_library(why: Reason) {
    let (mut fresh, mut listeners) = (Vec::new(), Vec::new());
    table::for_each(|fd, word| match word.kind() {
        Kind::Fresh => fresh.push(fd),
        Kind::Listener => listeners.push(fd),
        _ => {}
    });
    for fd in fresh {
        // Where none can be made, the program finds one that the kernel connects to nothing.
        let _ = connection::to_kernel(fd, why);
    }
    for fd in listeners {
        connection::unlisten(fd);
        if let Some(socket) = socket::of(fd) {
            socket.falls_back(why);
        }
    }
    copying::without(|| {
        let kept = handover::prepare().complete();
        kept.iter().for_each(|one| one.publish(why));
    });
}
