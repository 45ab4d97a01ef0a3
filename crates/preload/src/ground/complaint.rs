//! Messages to the user who runs the program: at most one sentence per process, and only where nothing else would
//! report the cause.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use netchannel_trust::Distrust;

use crate::ground::sys;

static REPORTED: AtomicBool = AtomicBool::new(false);
/// Standard error at the start of the process. The program may have closed it since and reused its number.
#[unsafe(link_section = ".data.netchannel_start")]
static ERRORS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Device and inode of the file behind standard error.
fn errors() -> Option<[u64; 2]> {
    sys::file::identity(libc::STDERR_FILENO).map(<[u64; 2]>::from)
}

/// Remembers standard error at the start of a program.
pub fn remember() {
    for (word, value) in ERRORS.iter().zip(errors().unwrap_or_default()) {
        word.store(value, Ordering::Relaxed);
    }
}

/// The judged daemon, if it can be trusted. An untrusted owner is reported; a missing daemon is not.
pub fn unless_distrusted<T>(path: &[u8], judged: Result<T, Distrust>) -> Option<T> {
    let why = match judged {
        Ok(judged) => return Some(judged),
        Err(Distrust::Unreachable(..)) => return None,
        Err(why) => why,
    };
    if !REPORTED.swap(true, Ordering::Relaxed) {
        let path = Path::new(OsStr::from_bytes(path)).display();
        say(&format!(
            "netchannel: the daemon at {path} is not used: {why}; running over kernel TCP\n"
        ));
    }
    None
}

/// Reports that the program has a ring of `io_uring`.
pub fn has_ring() {
    if !REPORTED.swap(true, Ordering::Relaxed) {
        say(
            "netchannel: this program has an io_uring, whose operations come past NetChannel; its sockets are \
             kernel TCP from now on\n",
        );
    }
}

/// Reports that the program began under a filter of system calls.
pub fn is_confined() {
    if !REPORTED.swap(true, Ordering::Relaxed) {
        say(
            "netchannel: this program began under a filter of system calls that does not allow what NetChannel needs; \
             running over kernel TCP\n",
        );
    }
}

fn say(sentence: &str) {
    let then = ERRORS.each_ref().map(|word| word.load(Ordering::Relaxed));
    if errors() != Some(then) {
        return;
    }
    let fd = sys::int(libc::STDERR_FILENO);
    let words = [fd, sentence.as_ptr().addr(), sentence.len(), 0, 0, 0];
    // SAFETY: the kernel reads the sentence. A failed write can be reported nowhere.
    let _ = unsafe { sys::raw(libc::SYS_write, words) };
}
