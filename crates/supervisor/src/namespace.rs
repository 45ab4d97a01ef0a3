//! A network namespace of the supervisor's own. Where a tenant's program is run in the host's network, its ports must not be the
//! host's: they are of an empty namespace, as those of a program in a sandbox are.

use std::fs;
use std::os::fd::AsRawFd;

use crate::system;

/// Enters one, where this process's namespace has more than loopback and the rights are there; otherwise nothing happens.
pub fn enter_own() {
    let has_network = fs::read_to_string("/proc/self/net/dev").is_ok_and(|text| has_network(&text));
    // SAFETY: no pointers.
    if !has_network || unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return;
    }
    raise_loopback();
    // The tenant's own address is the operator's to give; there is no device that has it.
    for family in ["ipv4", "ipv6"] {
        let _ = fs::write(format!("/proc/sys/net/{family}/ip_nonlocal_bind"), "1");
    }
}

fn has_network(devices: &str) -> bool {
    let names = devices.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim()).any(|name| name != "lo")
}

fn raise_loopback() {
    let Ok((socket, _)) = system::pair(0) else {
        return;
    };
    // SAFETY: a structure of numbers, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(1);
    // SAFETY: the request is read.
    unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_no_network() {
        let head = "Inter-|   Receive\n face |bytes\n";
        assert!(!has_network(&format!("{head}    lo: 0 0\n")));
        assert!(has_network(&format!("{head}    lo: 0 0\n  eth0: 1 2\n")));
        assert!(!has_network(head));
    }
}
