//! Rings of `io_uring`. Operations that are submitted to a ring bypass the library: they would reach the anchor of a
//! virtual socket, or the template of a fresh one.
//!
//! ```text
//!  created by a function of the C library or of liburing --> refused, as filters of containers do
//!  inherited, received, or created by an inline call      --> found among the descriptors: from then on the process
//!      uses kernel TCP; listeners become kernel listeners only, and connections continue through a pump, with which a
//!      ring works
//! ```
//!
//! A ring shows in `/proc/self/fd` and nowhere else. The library reads that when the first sockets are made and become
//! virtual, and later ever more rarely: an inline call can not be observed itself.

use core::sync::atomic::{AtomicU32, Ordering};

use netchannel_abi::reason::Reason;

use crate::descriptors::attach;
use crate::descriptors::table::{self, Kind, Word};
use crate::ground::{complaint, sys};
use crate::sockets::exclusion;

/// How often a socket was made or was about to become virtual.
static SOCKETS_BEGUN: AtomicU32 = AtomicU32::new(0);
/// Each of the first so many of these events looks for a ring; of the later ones those whose number is a power of two.
const ALWAYS: u32 = 16;

/// The kernel's name for the file of a ring.
const NAME: &[u8] = b"anon_inode:[io_uring]";

/// Whether a ring that the program asks for is refused: its sockets may be virtual, now or later. A program that
/// already has a ring uses kernel TCP, and may have more rings.
pub fn refuses() -> bool {
    exclusion::reason().is_none() && attach::ensure().is_some()
}

/// The reason why a socket must not be or become virtual. Called when one is made or is about to become virtual.
pub fn exclusion_reason() -> Option<Reason> {
    if exclusion::reason().is_none() {
        let begun = SOCKETS_BEGUN
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1);
        if begun <= ALWAYS || begun.is_power_of_two() {
            look_for_ring();
        }
    }
    exclusion::reason()
}

/// Called when a connection has become virtual without a call of the program: it follows the others.
pub fn note_virtual() {
    if let Some(why) = exclusion_reason() {
        exclusion::leave_library(why);
    }
}

/// Called when virtual sockets were inherited over an exec.
pub fn inherited() {
    look_for_ring();
}

/// Called when a descriptor was received in a message, and adopted if it is a virtual socket.
pub fn received(fd: i32) {
    match table::get(fd).kind() {
        Kind::Virtual => exclusion::reason()
            .into_iter()
            .for_each(exclusion::leave_library),
        Kind::Foreign
            if exclusion::reason().is_none() && attach::current().is_some() && is_ring(fd) =>
        {
            exclude();
        }
        _ => {}
    }
}

/// A forked child has its parent's rings, and may make its own. It looks once more only, since many children serve one
/// connection and end.
pub fn reset_in_child() {
    SOCKETS_BEGUN.store(ALWAYS - 1, Ordering::Relaxed);
}

fn look_for_ring() {
    if exclusion::reason().is_none() && sys::open_descriptors().into_iter().any(is_ring) {
        exclude();
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
fn exclude() {
    if exclusion::withdraw(Reason::IoUring) {
        complaint::has_ring();
    }
}
