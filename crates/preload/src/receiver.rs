//! Whether the process at the other end of an `AF_UNIX` socket has the library, and so can use a
//! virtual socket that is sent to it.

use std::fs::File;
use std::io::Read;

use libc::c_int;

use crate::lock::Lock;
use crate::{attach, sys};

/// Answers found before: channel, process, file of the program, answer.
static KNOWN: Lock<Vec<(u64, i32, u64, bool)>> = Lock::new(Vec::new());
const MOST: usize = 64;
const NAME: &[u8] = b"libnetchannel.so";

/// In a forked child no other thread holds the lock.
pub fn reset_in_child() {
    KNOWN.reset();
}

/// Whether the receiver of what is sent on `channel` can take virtual sockets.
pub fn has_library(channel: c_int) -> bool {
    let Some(peer) = credentials(channel) else {
        return true;
    };
    // SAFETY: plain question.
    let user = unsafe { libc::geteuid() };
    if peer.uid != user && peer.uid != 0 {
        // It may not look up what this user deposits.
        return false;
    }
    if u32::try_from(peer.pid) == Ok(attach::process()) {
        return true;
    }
    let cookie = sys::cookie(channel).unwrap_or(0);
    let program = program_of(peer.pid);
    let mut known = match KNOWN.lock() {
        Some(known) => known,
        None => return true,
    };
    let found = known
        .iter()
        .find(|one| (one.0, one.1, one.2) == (cookie, peer.pid, program));
    if let Some((_, _, _, answer)) = found {
        return *answer;
    }
    let answer = maps_library(peer.pid).unwrap_or(true);
    if known.len() >= MOST {
        known.remove(0);
    }
    known.push((cookie, peer.pid, program, answer));
    answer
}

fn credentials(channel: c_int) -> Option<libc::ucred> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to locals of the right size.
    let asked = unsafe {
        let (value, length) = ((&raw mut peer).addr(), (&raw mut length).addr());
        let (level, name) = (sys::int(libc::SOL_SOCKET), sys::int(libc::SO_PEERCRED));
        sys::raw(
            libc::SYS_getsockopt,
            [sys::int(channel), level, name, value, length, 0],
        )
    };
    (asked.is_ok() && peer.pid > 0).then_some(peer)
}

/// Something that changes when the process executes another program.
fn program_of(process: i32) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(format!("/proc/{process}/exe"))
        .map_or(0, |file| file.ino() ^ file.dev().rotate_left(32))
}

/// Whether the library is mapped into a process. `None` where that can not be told.
fn maps_library(process: i32) -> Option<bool> {
    let mut text = Vec::new();
    let mut file = File::open(format!("/proc/{process}/maps")).ok()?;
    file.read_to_end(&mut text).ok()?;
    Some(text.windows(NAME.len()).any(|window| window == NAME))
}
