//! The options of a socket.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;

use super::congestion;
use crate::Options;

/// `TCP_RTO_MAX_MS` of linux/tcp.h, which libc does not have: the longest time between two retransmissions. The default
/// of TCP is two minutes, reached by doubling. Available since Linux 6.15.
const RETRANSMISSION_MOST_MS: libc::c_int = 44;

/// Sets the options. A setting that the system refuses stays as it is: a channel still works without it, and the
/// configuration checks whether the host has an algorithm or permits a priority.
pub fn prepare(socket: &OwnedFd, options: &Options) {
    // The sender gathers bytes into one call: waiting for more would gain nothing.
    let _ = sockopt::set_tcp_nodelay(socket, true);
    congestion::set(socket, options.congestion_control.as_deref());
    if let Some(bytes) = options.send_buffer {
        let _ = sockopt::set_socket_send_buffer_size(socket, bytes as usize);
    }
    if let Some(bytes) = options.receive_buffer {
        let _ = sockopt::set_socket_recv_buffer_size(socket, bytes as usize);
    }
    if let Some(bytes) = options.unsent_low_water {
        let level = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
        set(socket.as_fd(), level, bytes);
    }
    if let Some(dscp) = options.dscp {
        // Of the kernel's two options one fits the socket. It sets the priority too, which is set after it.
        let octet = (dscp & 63) << 2;
        let _ = sockopt::set_ip_tos(socket, octet);
        let _ = sockopt::set_ipv6_tclass(socket, octet.into());
    }
    if let Some(priority) = options.priority {
        set(
            socket.as_fd(),
            (libc::SOL_SOCKET, libc::SO_PRIORITY),
            priority.into(),
        );
    }
    if let Some(unanswered) = options.unanswered {
        let _ = unanswered_limit(socket, unanswered);
    }
}

/// The kernel chooses the port when the connection is made, by its destination: other connections may use the same
/// port.
pub fn leave_port_open(socket: &OwnedFd) {
    set(
        socket.as_fd(),
        (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT),
        1,
    );
}

fn unanswered_limit(socket: &OwnedFd, limit: Duration) -> Result<(), Errno> {
    let milliseconds = u32::try_from(limit.as_millis()).unwrap_or(i32::MAX.unsigned_abs());
    // This applies to unacknowledged bytes, a closed window, and with keep-alive to an idle peer.
    sockopt::set_tcp_user_timeout(socket, milliseconds.clamp(1, i32::MAX.unsigned_abs()))?;
    // The kernel counts these in whole seconds.
    let third = Duration::from_secs((limit.as_secs() / 3).clamp(1, 32_767));
    sockopt::set_tcp_keepidle(socket, third)?;
    sockopt::set_tcp_keepintvl(socket, third)?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    sockopt::set_socket_keepalive(socket, true)?;
    // After a silence the next retransmission is at most a second away. This is set only with a time limit: without one
    // the kernel counts retransmissions, and gives up after a number of them.
    set(
        socket.as_fd(),
        (libc::IPPROTO_TCP, RETRANSMISSION_MOST_MS),
        1000,
    );
    Ok(())
}

fn set(socket: BorrowedFd<'_>, (level, name): (i32, i32), value: u32) {
    let size = libc::socklen_t::try_from(size_of::<u32>()).unwrap_or(4);
    // SAFETY: the value is borrowed for the call and has the size that is told. Refused is left as it is.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size,
        );
    };
}
