//! Rings of `io_uring`. What is submitted to one comes past the library, and would find the anchor of a virtual socket, or the template
//! of a fresh one.
//!
//! ```text
//!  asked for by a function of the C library or of liburing --> refused, as filters of containers do
//!  there all the same (inherited, passed, made by an inline call) --> noticed among the descriptors: from then on the process
//!      has kernel TCP; listeners are the kernel's alone, connections that there are go on through a pump, over which a ring may go
//! ```
//!
//! A ring shows in `/proc/self/fd` and nowhere else. That is read when the first sockets are made and become virtual, then ever more
//! seldom: an inline call is never seen itself.

use core::sync::atomic::{AtomicU32, Ordering};

use netchannel_abi::reason::Reason;

use crate::descriptors::attach;
use crate::descriptors::table::{self, Kind, Word};
use crate::ground::{complaint, sys};
use crate::sockets::exclusion;

/// Times that a socket was made, or was to become virtual.
static BEGUN: AtomicU32 = AtomicU32::new(0);
/// So many of those look for a ring; later ones do when their number is a power of two.
const ALWAYS: u32 = 16;

/// What the kernel calls the file of a ring.
const NAME: &[u8] = b"anon_inode:[io_uring]";

/// Whether a ring that the program asks for is refused: its sockets may be virtual, now or later. Who has one already has kernel TCP,
/// and may have more of them.
pub fn refuses() -> bool {
    exclusion::reason().is_none() && attach::ensure().is_some()
}

/// A socket was made, or is about to become virtual: why it must not.
pub fn excludes() -> Option<Reason> {
    if exclusion::reason().is_none() {
        let begun = BEGUN.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if begun <= ALWAYS || begun.is_power_of_two() {
            look();
        }
    }
    exclusion::reason()
}

/// A connection has become virtual that the program did not make: what holds for the others holds for it.
pub fn arrived() {
    if let Some(why) = excludes() {
        exclusion::leave_library(why);
    }
}

/// Virtual sockets came with an exec.
pub fn inherited() {
    look();
}

/// A descriptor came in a message, and was adopted if it is a virtual socket.
pub fn received(fd: i32) {
    match table::get(fd).kind() {
        Kind::Virtual => exclusion::reason()
            .into_iter()
            .for_each(exclusion::leave_library),
        Kind::Foreign
            if exclusion::reason().is_none() && attach::current().is_some() && is_ring(fd) =>
        {
            note();
        }
        _ => {}
    }
}

/// A forked child has its parent's rings, and may make its own: one more look, since many serve one connection and end.
pub fn reset_in_child() {
    BEGUN.store(ALWAYS - 1, Ordering::Relaxed);
}

fn look() {
    if exclusion::reason().is_none() && sys::open_descriptors().into_iter().any(is_ring) {
        note();
    }
}

fn is_ring(fd: i32) -> bool {
    if table::get(fd) != Word::FOREIGN {
        return false;
    }
    let path = format!("/proc/self/fd/{fd}\0");
    let mut name = [0u8; NAME.len() + 1];
    let words = [
        sys::int(libc::AT_FDCWD),
        path.as_ptr().addr(),
        name.as_mut_ptr().addr(),
        name.len(),
        0,
        0,
    ];
    // SAFETY: the path ends with a zero byte, and the name is a local of that length.
    let read = unsafe { sys::raw(libc::SYS_readlinkat, words) };
    read.is_ok_and(|length| name.get(..length) == Some(NAME))
}

#[cold]
fn note() {
    if exclusion::withdraw(Reason::IoUring) {
        complaint::has_ring();
    }
}
