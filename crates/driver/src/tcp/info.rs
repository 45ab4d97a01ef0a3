//! The kernel's information about a connection.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::Status;

/// Bytes not sent yet; `linux/sockios.h`.
const SIOCOUTQNSD: libc::Ioctl = 0x894b;

/// The status of a connection; zeros where it is not connected any more.
pub fn status(socket: BorrowedFd<'_>) -> Status {
    let info = info(socket);
    let unsent = count(socket, SIOCOUTQNSD);
    Status {
        unacknowledged: count(socket, libc::TIOCOUTQ),
        unsent,
        unread: count(socket, libc::FIONREAD),
        round_trip: Duration::from_micros(info.tcpi_rtt.into()),
        least_round_trip: match info.tcpi_min_rtt {
            u32::MAX => Duration::ZERO,
            known => Duration::from_micros(known.into()),
        },
        // The window is full of packets in flight, and more bytes wait.
        congestion_limited: unsent > 0 && in_flight(&info) >= info.tcpi_snd_cwnd,
        repeats: info.tcpi_unacked > 0 && info.tcpi_retransmits > 0,
        retransmissions: info.tcpi_total_retrans.into(),
        packet: info.tcpi_pmtu,
        delivery_rate: info.tcpi_delivery_rate,
    }
}

/// Packets in the network, as the kernel's congestion control counts them.
const fn in_flight(info: &libc::tcp_info) -> u32 {
    let left = info.tcpi_sacked.saturating_add(info.tcpi_lost);
    let first = info.tcpi_unacked.saturating_sub(left);
    first.saturating_add(info.tcpi_retrans)
}

fn info(socket: BorrowedFd<'_>) -> libc::tcp_info {
    // SAFETY: plain numbers, for which zero is a value. An older kernel leaves the last of them.
    let mut info: libc::tcp_info = unsafe { core::mem::zeroed() };
    let mut size = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).unwrap_or(0);
    // SAFETY: the kernel writes at most `size` bytes into a structure of that size.
    unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut size,
        );
    };
    info
}

fn count(socket: BorrowedFd<'_>, request: libc::Ioctl) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: each of the requests writes one int.
    unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut bytes) };
    u64::try_from(bytes).unwrap_or(0)
}
