//! The network namespace of a socket. Its addresses have no meaning in another one.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

/// `SO_NETNS_COOKIE`, since Linux 5.14.
const NAMESPACE_COOKIE: libc::c_int = 71;

/// Names the network namespace of a socket; `None` where the kernel does not tell.
pub fn cookie(socket: impl AsFd) -> Option<u64> {
    let (mut cookie, mut length) = (0_u64, 8);
    // SAFETY: writes at most the eight bytes of a local.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            NAMESPACE_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    (result == 0 && length == 8).then_some(cookie)
}

/// Whether a socket belongs to this network namespace; `None` where the kernel does not tell. The accepted end of a
/// local connection belongs to the namespace of the client.
pub fn is_own(socket: impl AsFd) -> Option<bool> {
    let flags = SocketFlags::CLOEXEC;
    let own = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
    let own = own.ok().and_then(cookie)?;
    Some(cookie(socket)? == own)
}

/// Whether a process is in this network namespace; `None` where the daemon may not examine the process. It may examine
/// processes of its own user, and those of others if it may trace them (`CAP_SYS_PTRACE`).
pub fn has(process: u32) -> Option<bool> {
    Some(inode(process, "net")? == inode("self", "net")?)
}

/// Names the namespace of one `kind` in which a process is, or `self`: a file of `/proc/PROCESS/ns`.
pub fn inode(process: impl std::fmt::Display, kind: &str) -> Option<u64> {
    let found = std::fs::metadata(format!("/proc/{process}/ns/{kind}"));
    found.map(|found| found.ino()).ok()
}

/// Whether the client of `socket` may be in another network namespace. This is assumed where nothing is known: a
/// program that stays with kernel TCP only loses time.
pub fn may_be_foreign(socket: impl AsFd, process: u32) -> bool {
    let looked = if process == 0 { None } else { has(process) };
    match is_own(socket) {
        // The process may have moved since it made the socket.
        Some(own) => !own || looked == Some(false),
        None => looked != Some(true),
    }
}

/// Whether a socket is of the namespace `home`, by its cookie, or of the daemon's where that is `None`.
///
/// # Errors
/// `NONET` where it is of another namespace, or that is not known.
pub fn demand(socket: impl AsFd, home: Option<u64>) -> Result<(), Errno> {
    let is_there = match home {
        Some(home) => cookie(socket).map(|cookie| cookie == home),
        None => is_own(socket),
    };
    match is_there {
        Some(true) => Ok(()),
        _ => Err(Errno::NONET),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_and_processes_of_here_are_told() {
        let (one, _other) = netchannel_service::packet::owned_pair(SocketType::STREAM).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        // An older kernel does not tell.
        assert_ne!(is_own(&one), Some(false));
        assert_eq!(is_own(&file), None);
        assert_eq!(has(std::process::id()), Some(true));
        assert!(!may_be_foreign(&one, std::process::id()));
        // Neither of the socket nor of the process anything is known.
        assert!(may_be_foreign(&file, u32::MAX));
        assert!(may_be_foreign(&file, 0));
        assert!(demand(&file, None).is_err() && demand(&file, Some(1)).is_err());
        assert!(demand(&one, cookie(&one)).is_ok() && demand(&one, Some(u64::MAX)).is_err());
    }
}
