//! Whether the processes at the other end of an `AF_UNIX` socket have the library, and so can use a virtual socket that
//! is sent to them.
//!
//! The kernel names the process that connected or made a pair. Where that is this process, or has ended, the holders of
//! the other end are looked up.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use libc::c_int;

use crate::descriptors::credentials;
use crate::ground::lock::Lock;
use crate::ground::{clock, process, sys};

/// A cached answer.
struct CachedAnswer {
    channel: u64,
    /// A process at the other end, or 0 where only this process was found.
    holder: i32,
    /// The holder's program, `None` where it has ended.
    program: Option<u64>,
    answer: bool,
    since: u64,
}

static CACHE: Lock<Vec<CachedAnswer>> = Lock::new(Vec::new());
const MOST: usize = 256;
const NAME: &[u8] = b"libnetchannel.so";

/// In a forked child, where another thread that held the lock does not exist; the ends may be other processes'.
pub fn reset_in_child() {
    CACHE.reset();
    if let Some(mut known) = CACHE.lock() {
        known.clear();
    }
}

/// Whether the receiver of a message on `channel` can use virtual sockets.
pub fn has_library(channel: c_int) -> bool {
    let Ok(cookie) = sys::cookie(channel) else {
        return true;
    };
    let now = clock::now();
    let Some(mut known) = CACHE.lock() else {
        return true;
    };
    let found = known.iter().position(|one| one.channel == cookie);
    if let Some(index) = found {
        let one = &known[index];
        let fresh = if one.holder > 0 {
            one.program.is_some() && program_of(one.holder) == one.program
        } else {
            now.wrapping_sub(one.since) < clock::SECOND
        };
        if fresh {
            return one.answer;
        }
        known.swap_remove(index);
    }
    drop(known);
    let (holder, answer) = inspect(channel);
    let one = CachedAnswer {
        channel: cookie,
        holder,
        program: program_of(holder),
        answer,
        since: now,
    };
    if let Some(mut known) = CACHE.lock() {
        if known.len() >= MOST {
            known.remove(0);
        }
        known.push(one);
    }
    answer
}

/// A process at the other end of `channel`, 0 for none known, and the answer.
fn inspect(channel: c_int) -> (i32, bool) {
    let Some(peer) = credentials(channel) else {
        return (0, true);
    };
    let user = credentials::owner();
    if peer.uid != user {
        // A process that receives a virtual socket gets its memory: so only the same user may, and root is no exception
        // on either side.
        return (peer.pid, false);
    }
    let is_other = |users: &[u32]| users.iter().any(|one| *one != user);
    let is_own = |process: i32| u32::try_from(process) == Ok(process::number());
    if !is_own(peer.pid)
        && let (Some(answer), Some(users)) = (maps_library(peer.pid), users_of(peer.pid))
    {
        // The process may have become another user's since it connected.
        return (peer.pid, answer && !is_other(&users));
    }
    let mut first = 0;
    for process in peer_inode(channel).map(holders).unwrap_or_default() {
        if is_own(process) {
            continue;
        }
        // It has ended: it held the end, and receives nothing.
        let Some(users) = users_of(process) else {
            continue;
        };
        if first == 0 {
            first = process;
        }
        if maps_library(process) == Some(false) || is_other(&users) {
            return (process, false);
        }
    }
    (first, true)
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
        let words = [sys::int(channel), level, name, value, length, 0];
        sys::raw(libc::SYS_getsockopt, words)
    };
    (asked.is_ok() && peer.pid > 0).then_some(peer)
}

/// The real, effective, saved and file system user of a process. `None` where it has ended.
fn users_of(process: i32) -> Option<Vec<u32>> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    Some(
        line.split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect(),
    )
}

/// A number that changes when the process executes another program or becomes another user's. `None` where it has
/// ended.
fn program_of(process: i32) -> Option<u64> {
    let users = users_of(process)?;
    let user = users.iter().fold(0, |all, one| all << 16 ^ u64::from(*one));
    let file = fs::metadata(format!("/proc/{process}/exe"));
    Some(file.map_or(user, |file| {
        file.ino() ^ file.dev().rotate_left(32) ^ user.rotate_left(17)
    }))
}

/// How long a process may take to load its libraries, in nanoseconds.
const LOADING: u64 = 500_000_000;

/// What the maps of a process say of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mapped {
    Yes,
    No,
    /// The kernel, which maps the vDSO last, has not loaded the program yet; or its dynamic linker has not, which loads
    /// what is preloaded before the C library.
    NotYet,
}

impl Mapped {
    fn of(maps: &[u8]) -> Self {
        let has = |name: &[u8]| maps.windows(name.len()).any(|window| window == name);
        if has(NAME) {
            Self::Yes
        } else if !has(b"[vdso]") || has(b"/ld-linux") && !has(b"/libc.so.6") && !has(b"/libc-2.") {
            Self::NotYet
        } else {
            Self::No
        }
    }
}

/// Whether the library is mapped into a process. `None` where that can not be read.
fn maps_library(process: i32) -> Option<bool> {
    let until = clock::nanoseconds().saturating_add(LOADING);
    loop {
        let mut text = Vec::new();
        let mut file = File::open(format!("/proc/{process}/maps")).ok()?;
        file.read_to_end(&mut text).ok()?;
        if text.is_empty() {
            // A kernel thread, or a process that is just ending, has no maps.
            return None;
        }
        match Mapped::of(&text) {
            Mapped::NotYet if clock::nanoseconds() < until => sys::sleep(100_000),
            mapped => return Some(mapped == Mapped::Yes),
        }
    }
}

/// The inode of the other end, from the kernel's socket diagnosis.
fn peer_inode(channel: c_int) -> Option<u32> {
    const ASK: u16 = 20; // SOCK_DIAG_BY_FAMILY
    const SHOW_PEER: u32 = 4; // UDIAG_SHOW_PEER
    const PEER: u16 = 2; // UNIX_DIAG_PEER
    const HEADERS: usize = 32;
    let inode = fs::metadata(format!("/proc/self/fd/{channel}")).ok()?.ino();
    let mut question = Vec::with_capacity(40);
    question.extend_from_slice(&40u32.to_ne_bytes());
    question.extend_from_slice(&ASK.to_ne_bytes());
    question.extend_from_slice(&1u16.to_ne_bytes()); // NLM_F_REQUEST
    question.extend_from_slice(&[0; 8]);
    question.extend_from_slice(&[libc::AF_UNIX as u8, 0, 0, 0]);
    for word in [
        u32::MAX,
        u32::try_from(inode).ok()?,
        SHOW_PEER,
        u32::MAX,
        u32::MAX,
    ] {
        question.extend_from_slice(&word.to_ne_bytes());
    }
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    let netlink = sys::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG).ok()?;
    let mut answer = [0u8; 512];
    let got = sys::send(netlink, &question, 0)
        .and_then(|_| sys::receive(netlink, &mut answer, libc::MSG_DONTWAIT));
    sys::close(netlink);
    let answer = answer.get(..got.ok()?)?;
    let half = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    if half(4)? != ASK {
        return None;
    }
    let mut at = HEADERS;
    loop {
        let (length, kind) = (usize::from(half(at)?), half(at + 2)?);
        if kind == PEER && length >= 8 {
            return word(at + 4);
        }
        at += length.max(4).next_multiple_of(4);
    }
}

/// The processes that hold the socket with this inode, of those that may be inspected.
fn holders(inode: u32) -> Vec<i32> {
    let name = format!("socket:[{inode}]");
    let mut found = Vec::new();
    let Ok(processes) = fs::read_dir("/proc") else {
        return found;
    };
    for process in processes.flatten() {
        let number = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(number) = number else { continue };
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        let holds = descriptors.flatten().any(|one| {
            fs::read_link(one.path()).is_ok_and(|target| target.as_os_str() == name.as_str())
        });
        if holds {
            found.push(number);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::Mapped;

    #[test]
    fn a_program_that_is_being_loaded_is_told_from_one_without_the_library() {
        let maps = |names: &[&str]| {
            let lines = names
                .iter()
                .map(|name| format!("1-2 r--p 0 00:00 1 {name}\n"));
            Mapped::of(lines.collect::<String>().as_bytes())
        };
        let program = "/bin/program";
        let linker = "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
        let library = "/opt/libnetchannel.so";
        assert_eq!(maps(&["[stack]"]), Mapped::NotYet);
        assert_eq!(maps(&[program, "[stack]"]), Mapped::NotYet);
        assert_eq!(maps(&[program, "[vdso]", linker]), Mapped::NotYet);
        assert_eq!(maps(&[program, "[vdso]", linker, library]), Mapped::Yes);
        for c_library in ["/lib/libc.so.6", "/lib/libc-2.28.so"] {
            let without = [program, "[vdso]", linker, c_library];
            assert_eq!(maps(&without), Mapped::No);
        }
        assert_eq!(maps(&[program, "[vdso]"]), Mapped::No, "a static one");
    }
}
