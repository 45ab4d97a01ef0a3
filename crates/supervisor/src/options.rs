//! Options of sockets: which are those of the TCP socket, which are those of the descriptor that the program waits at, and which
//! are refused, since their values are addresses of the program's memory.

use std::ffi::c_int;

/// The most bytes of a value. `TCP_INFO` has less than 300.
pub const LONGEST: usize = 1024;

/// Whose an option is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Of the TCP socket in the supervisor.
    Stream,
    /// Of the program's descriptor: it says how the program's own calls wait.
    Descriptor,
    /// Of nobody.
    Refused,
}

/// Of `SOL_SOCKET`, those whose values are plain bytes.
const PLAIN: [c_int; 25] = [
    libc::SO_DEBUG,
    libc::SO_REUSEADDR,
    libc::SO_REUSEPORT,
    libc::SO_TYPE,
    libc::SO_ERROR,
    libc::SO_DONTROUTE,
    libc::SO_BROADCAST,
    libc::SO_SNDBUF,
    libc::SO_RCVBUF,
    libc::SO_SNDBUFFORCE,
    libc::SO_RCVBUFFORCE,
    libc::SO_KEEPALIVE,
    libc::SO_OOBINLINE,
    libc::SO_PRIORITY,
    libc::SO_LINGER,
    libc::SO_ACCEPTCONN,
    libc::SO_PROTOCOL,
    libc::SO_DOMAIN,
    libc::SO_BINDTODEVICE,
    libc::SO_MARK,
    libc::SO_BUSY_POLL,
    libc::SO_INCOMING_CPU,
    libc::SO_COOKIE,
    libc::SO_ZEROCOPY,
    libc::SO_MAX_PACING_RATE,
];

/// How long and for how much the program's own calls wait.
const WAITING: [c_int; 4] = [
    libc::SO_RCVTIMEO,
    libc::SO_SNDTIMEO,
    libc::SO_RCVLOWAT,
    libc::SO_PEEK_OFF,
];

/// Of `IPPROTO_TCP`, those that have addresses in their values or that make another socket of it.
const OF_MEMORY: [c_int; 3] = [libc::TCP_ZEROCOPY_RECEIVE, libc::TCP_REPAIR, libc::TCP_ULP];

/// Whose an option is.
#[must_use]
pub fn whose(level: c_int, name: c_int) -> Whose {
    let is_stream = match level {
        libc::SOL_SOCKET if WAITING.contains(&name) => return Whose::Descriptor,
        libc::SOL_SOCKET => PLAIN.contains(&name),
        libc::IPPROTO_TCP => !OF_MEMORY.contains(&name),
        // Filters, the tables of the firewall and groups have addresses; they have names from 32 on or are of datagrams.
        libc::IPPROTO_IP => (1..32).contains(&name) || name == libc::IP_BIND_ADDRESS_NO_PORT,
        libc::IPPROTO_IPV6 => (1..32).contains(&name) || name == libc::IPV6_TCLASS,
        _ => false,
    };
    if is_stream {
        Whose::Stream
    } else {
        Whose::Refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_memory_are_refused() {
        let refused = [
            (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
            (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF),
            (libc::IPPROTO_TCP, libc::TCP_ZEROCOPY_RECEIVE),
            // The firewall's tables.
            (libc::IPPROTO_IP, 64),
            (270, 1),
        ];
        for (level, name) in refused {
            assert_eq!(whose(level, name), Whose::Refused, "{level} {name}");
        }
    }

    #[test]
    fn waiting_is_the_descriptors_and_the_rest_the_sockets() {
        let descriptor = whose(libc::SOL_SOCKET, libc::SO_RCVTIMEO);
        assert_eq!(descriptor, Whose::Descriptor);
        for (level, name) in [
            (libc::SOL_SOCKET, libc::SO_ERROR),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
            (libc::IPPROTO_TCP, libc::TCP_INFO),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY),
            (libc::IPPROTO_IP, libc::IP_TOS),
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
        ] {
            assert_eq!(whose(level, name), Whose::Stream, "{level} {name}");
        }
    }
}
