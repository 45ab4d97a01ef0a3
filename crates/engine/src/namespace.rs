//! The network namespace of a socket. Its addresses have no meaning in another one.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

/// `SO_NETNS_COOKIE`, since Linux 5.14.
const NAMESPACE_COOKIE: libc::c_int = 71;

fn cookie(socket: impl AsFd) -> Option<u64> {
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
    let inode = |path: &str| std::fs::metadata(path).map(|found| found.ino()).ok();
    let own = inode("/proc/self/ns/net")?;
    Some(inode(&format!("/proc/{process}/ns/net"))? == own)
}

/// Whether the client of `socket` may be in another network namespace. This is assumed where nothing is known: a
/// program that stays with kernel TCP only loses time.
pub fn is_elsewhere(socket: impl AsFd, process: u32) -> bool {
    let looked = if process == 0 { None } else { has(process) };
    match is_own(socket) {
        // The process may have moved since it made the socket.
        Some(own) => !own || looked == Some(false),
        None => looked != Some(true),
    }
}

/// As [`is_own`], as a result.
///
/// # Errors
/// `NONET` where it belongs to another namespace, or that is not known.
pub fn demand_own(socket: impl AsFd) -> Result<(), Errno> {
    match is_own(socket) {
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
        assert!(!is_elsewhere(&one, std::process::id()));
        // Neither of the socket nor of the process anything is known.
        assert!(is_elsewhere(&file, u32::MAX));
        assert!(is_elsewhere(&file, 0));
        assert!(demand_own(&file).is_err());
    }
}
