//! The default congestion control of a connection: the kernel's own, unless that is BBR.
//!
//! BBR paces. Without the queueing discipline `fq` under it the kernel arms a timer for each burst, and each burst of a
//! channel wakes the reader. Between two hosts on one machine a channel took twice the processor time per byte, and
//! carried half. BBR must be named explicitly, for a long path with losses.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use rustix::net::sockopt;

/// The replacement of BBR: the first algorithm that the kernel has and permits.
const INSTEAD: [&str; 2] = ["cubic", "reno"];

/// Sets the algorithm `name`, or else the preferred one. Where the kernel refuses, nothing changes.
pub fn set(socket: impl AsFd, name: Option<&str>) {
    let socket = socket.as_fd();
    if let Some(name) = name {
        let _ = sockopt::set_tcp_congestion(socket, name);
    } else if sockopt::tcp_congestion(socket).is_ok_and(|name| name.starts_with("bbr")) {
        let _ = INSTEAD
            .iter()
            .find(|name| sockopt::set_tcp_congestion(socket, name).is_ok());
    }
}

/// The algorithm of channels for which none is named; empty where this host has no TCP. The kernel is asked once.
pub fn default_congestion_control() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let socket: Option<OwnedFd> = super::socket::open(&([127, 0, 0, 1], 0).into()).ok();
        let name = socket.and_then(|socket| {
            set(&socket, None);
            sockopt::tcp_congestion(&socket).ok()
        });
        name.unwrap_or_default()
    })
}

/// Why channels can not have the algorithm `name`: this kernel has none of that name, nor a module that it could load.
/// `None` where it has, or where that is unknown.
#[must_use]
pub fn congestion_control_refusal(name: &str) -> Option<String> {
    let socket = super::socket::open(&([127, 0, 0, 1], 0).into()).ok()?;
    match sockopt::set_tcp_congestion(&socket, name) {
        Err(rustix::io::Errno::NOENT) => {
            let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
            let known = std::fs::read_to_string(path).unwrap_or_default();
            let known: Vec<&str> = known.split_whitespace().collect();
            Some(format!(
                "this kernel has no congestion control {name:?}: it has {}; `modprobe tcp_{name}` as root may bring it",
                known.join(", ")
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bbr_is_had_only_by_its_name() {
        assert!(!default_congestion_control().starts_with("bbr"));
        let socket = super::super::socket::open(&([127, 0, 0, 1], 0).into()).unwrap();
        let before = sockopt::tcp_congestion(&socket).unwrap();
        set(&socket, Some("reno"));
        assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), "reno");
        set(&socket, Some("no-such-algorithm"));
        assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), "reno");
        // The kernel's own algorithm is kept where it does not pace.
        set(&socket, Some(&before));
        set(&socket, None);
        let now = sockopt::tcp_congestion(&socket).unwrap();
        assert!(now == before || before.starts_with("bbr") && INSTEAD.contains(&now.as_str()));
    }
}
