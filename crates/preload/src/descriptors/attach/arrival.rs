//! The arrival of a daemon, for a program of a tenant that only waits: while no daemon serves, no connection comes that could wake it.
//! A descriptor becomes readable when something happens in the folder of the daemon's socket.
//!
//! What has happened is never read, as relatives share the descriptor: who finds it readable takes a new one, and then looks.

use core::sync::atomic::{AtomicI32, Ordering};
use std::ffi::CString;

use super::{close_internal, duplicate, make_internal, socket_path};
use crate::descriptors::{confinement, limits};
use crate::ground::sys;

/// Seconds after which a program looks that can not be told.
const PAUSE: libc::time_t = 1;

/// The descriptor of this process, -1 for none. Each listener has a duplicate, as a user may have few of them.
static CURRENT: AtomicI32 = AtomicI32::new(-1);

/// A descriptor that is readable once a daemon may have come. `None` where there is no number for it.
pub fn descriptor() -> Option<i32> {
    let known = CURRENT.load(Ordering::Acquire);
    if known < 0 || sys::is_readable(known) {
        let made = make_internal(limits::for_library(watch).ok()?);
        // Another thread may be about to duplicate the former one, and then gets none.
        close_internal(CURRENT.swap(made, Ordering::AcqRel));
    }
    duplicate(CURRENT.load(Ordering::Acquire)).ok()
}

/// Another daemon serves.
pub fn has_come() {
    close_internal(CURRENT.swap(-1, Ordering::AcqRel));
}

/// Notes that a descriptor of the library has a new number.
pub fn relocate(from: i32, to: i32) {
    let _ = CURRENT.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
}

/// Watches the folder, or the time, where the kernel has no more watches for this user. The last thing that a daemon makes in the
/// folder, the socket of commands, comes after it serves.
fn watch() -> Result<i32, i32> {
    if confinement::is_filtered() {
        // The calls are none of those that connections need.
        return Err(libc::EPERM);
    }
    let path = socket_path().ok_or(libc::ENOENT)?;
    let folder = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => path.get(..=at),
        None => Some(&b"."[..]),
    };
    let folder = folder.and_then(|folder| CString::new(folder).ok());
    let folder = folder.ok_or(libc::EINVAL)?;
    sys::watching::folder(&folder).or_else(|_| sys::watching::seconds(PAUSE))
}
