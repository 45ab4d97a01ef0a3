//! A filter of system calls that was there when the program began, as in a sandbox or a unit of systemd. It can not be
//! read, so a child makes every call that the library will need, and its exit status is the answer.

use core::sync::atomic::{AtomicU32, Ordering};

use super::{RawCall, for_connections};
use crate::ground::{complaint, sys};

/// The answer for this process.
static ANSWER: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const FREE: u32 = 1;
const CONFINED: u32 = 2;

/// `__WALL`: waits also for a child that sends no signal when it ends.
const ALL: usize = 0x4000_0000;
/// Exit status of a child whose call was refused.
const REFUSED: usize = 1;

/// Whether the program began under a filter that does not allow what the library needs. Only the first call costs
/// anything; its caller excludes others meanwhile.
pub fn began_confined() -> bool {
    match ANSWER.load(Ordering::Relaxed) {
        UNKNOWN => {
            let confined = is_filtered() && !child_survives();
            let answer = if confined { CONFINED } else { FREE };
            ANSWER.store(answer, Ordering::Relaxed);
            if confined {
                complaint::is_confined();
            }
            confined
        }
        answer => answer == CONFINED,
    }
}

/// Whether there is a filter. Reads a file, with calls that the dynamic linker makes, too: a filter may kill for
/// `prctl`.
fn is_filtered() -> bool {
    let at = sys::int(libc::AT_FDCWD);
    let flags = sys::int(libc::O_RDONLY | libc::O_CLOEXEC);
    let path = c"/proc/self/status".as_ptr().addr();
    // SAFETY: the path is a C string.
    let Ok(file) = (unsafe { sys::raw(libc::SYS_openat, [at, path, flags, 0, 0, 0]) }) else {
        return false;
    };
    let mut text = [0_u8; 4096];
    let words = [file, text.as_mut_ptr().addr(), text.len(), 0, 0, 0];
    // SAFETY: the buffer is ours for its length.
    let read = unsafe { sys::raw(libc::SYS_read, words) }.unwrap_or(0);
    // SAFETY: made above.
    let _ = unsafe { sys::raw(libc::SYS_close, [file, 0, 0, 0, 0, 0]) };
    let text = text.get(..read).unwrap_or_default();
    has_filter(text)
}

fn has_filter(status: &[u8]) -> bool {
    status
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.strip_prefix(b"Seccomp:"))
        .any(|value| value.trim_ascii() == b"2")
}

fn child_survives() -> bool {
    // SAFETY: as fork; the child makes raw calls only, and never returns.
    let child = match unsafe { sys::raw(libc::SYS_clone, [0; 6]) } {
        Ok(0) => make_calls(),
        Ok(child) => child,
        Err(_) => return false,
    };
    let mut status = 0_i32;
    loop {
        let words = [child, (&raw mut status).addr(), ALL, 0, 0, 0];
        // SAFETY: a local that is written to.
        let waited = unsafe { sys::raw(libc::SYS_wait4, words) };
        if waited != Err(libc::EINTR) {
            return waited == Ok(child) && status == 0;
        }
    }
}

/// In the child: makes every call, and exits with whether all were allowed.
fn make_calls() -> ! {
    let refused = calls().any(|(number, arguments)| {
        // SAFETY: the descriptors are invalid, and the pointers lead nowhere but to the named values.
        let answer = unsafe { sys::raw(number, arguments) };
        matches!(
            answer,
            Err(libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EAFNOSUPPORT)
        )
    });
    let status = if refused { REFUSED } else { 0 };
    loop {
        // SAFETY: no pointers; does not return.
        let _ = unsafe { sys::raw(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0]) };
    }
}

/// All calls that the library makes: those for connections, and those for the daemon, listeners and sets. With
/// arguments for which they do nothing.
fn calls() -> impl Iterator<Item = RawCall> {
    let int = sys::int;
    let none = int(-1);
    let stream = int(libc::SOCK_STREAM | libc::SOCK_CLOEXEC);
    let packets = int(libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC);
    let local = int(libc::AF_UNIX);
    let memory = int(libc::PROT_READ | libc::PROT_WRITE);
    let private = int(libc::MAP_PRIVATE | libc::MAP_NORESERVE);
    let option = [none, int(libc::SOL_SOCKET), int(libc::SO_TYPE), 0, 0, 0];
    let on = |number| (number, [none, 0, 0, 0, 0, 0]);
    let others = [
        (libc::SYS_socket, [local, packets, 0, 0, 0, 0]),
        (libc::SYS_socketpair, [local, stream, 0, 0, 0, 0]),
        on(libc::SYS_connect),
        on(libc::SYS_listen),
        on(libc::SYS_accept4),
        on(libc::SYS_getsockname),
        on(libc::SYS_getpeername),
        on(libc::SYS_sendmsg),
        on(libc::SYS_shutdown),
        (libc::SYS_getsockopt, option),
        (libc::SYS_setsockopt, option),
        on(libc::SYS_epoll_create1),
        on(libc::SYS_epoll_ctl),
        (libc::SYS_epoll_pwait, [none, 0, 0, 0, 0, 8]),
        (libc::SYS_mmap, [0, 4096, memory, private, none, 0]),
        on(libc::SYS_fstat),
        (libc::SYS_futex, [0, int(libc::FUTEX_WAKE), 0, 0, 0, 0]),
        (libc::SYS_rt_sigaction, [int(libc::SIGSEGV), 0, 0, 8, 0, 0]),
    ];
    for_connections(none, 0).into_iter().chain(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_told_by_the_status() {
        assert!(has_filter(b"Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!has_filter(b"Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"));
        assert!(!has_filter(b"Seccomp_filters:\t2\n"));
        assert!(!has_filter(b""));
    }

    #[test]
    fn without_a_filter_every_call_is_allowed() {
        assert!(child_survives());
    }
}
