//! The names of the numbers that calls take.

/// Names and the numbers that they stand for.
pub type Words = &'static [(&'static str, i64)];

macro_rules! words {
    ($name:ident: $($word:ident)*) => {
        pub const $name: Words = &[$((stringify!($word), libc::$word as i64)),*];
    };
}

words!(FAMILIES: AF_INET AF_INET6 AF_UNIX AF_UNSPEC AF_NETLINK);
words!(TYPES: SOCK_STREAM SOCK_DGRAM SOCK_SEQPACKET SOCK_NONBLOCK SOCK_CLOEXEC);
words!(PROTOCOLS: IPPROTO_IP IPPROTO_TCP IPPROTO_UDP IPPROTO_MPTCP);
words!(OPEN_FLAGS: O_NONBLOCK O_CLOEXEC O_APPEND O_ASYNC O_DIRECT);
words!(ACCEPT_FLAGS: SOCK_NONBLOCK SOCK_CLOEXEC);
words!(HOWS: SHUT_RD SHUT_WR SHUT_RDWR);
words!(SEND_FLAGS: MSG_DONTWAIT MSG_NOSIGNAL MSG_MORE MSG_OOB MSG_DONTROUTE MSG_EOR MSG_CONFIRM
    MSG_ERRQUEUE MSG_FASTOPEN MSG_ZEROCOPY);
words!(RECEIVE_FLAGS: MSG_DONTWAIT MSG_PEEK MSG_WAITALL MSG_TRUNC MSG_OOB MSG_ERRQUEUE MSG_CMSG_CLOEXEC
    MSG_NOSIGNAL MSG_WAITFORONE);
words!(POLL_EVENTS: POLLIN POLLOUT POLLPRI POLLRDHUP POLLERR POLLHUP POLLNVAL POLLRDNORM POLLWRNORM
    POLLRDBAND POLLWRBAND);
/// The bits of an event. The last one is the sign bit.
pub const EPOLL_EVENTS: Words = &[
    ("EPOLLIN", libc::EPOLLIN as i64),
    ("EPOLLOUT", libc::EPOLLOUT as i64),
    ("EPOLLPRI", libc::EPOLLPRI as i64),
    ("EPOLLRDHUP", libc::EPOLLRDHUP as i64),
    ("EPOLLERR", libc::EPOLLERR as i64),
    ("EPOLLHUP", libc::EPOLLHUP as i64),
    ("EPOLLONESHOT", libc::EPOLLONESHOT as i64),
    ("EPOLLEXCLUSIVE", libc::EPOLLEXCLUSIVE as i64),
    ("EPOLLRDNORM", libc::EPOLLRDNORM as i64),
    ("EPOLLWRNORM", libc::EPOLLWRNORM as i64),
    ("EPOLLWAKEUP", libc::EPOLLWAKEUP as i64),
    ("EPOLLET", 1 << 31),
];
words!(EPOLL_OPERATIONS: EPOLL_CTL_ADD EPOLL_CTL_MOD EPOLL_CTL_DEL);
words!(EPOLL_FLAGS: EPOLL_CLOEXEC);
words!(PIPE_FLAGS: O_NONBLOCK O_CLOEXEC O_DIRECT);
words!(FCNTL: F_GETFL F_SETFL F_GETFD F_SETFD F_DUPFD F_DUPFD_CLOEXEC F_GETOWN F_SETOWN F_GETSIG F_SETSIG
    F_GETLK F_GETPIPE_SZ F_GETLEASE F_GET_SEALS);
words!(IOCTL: FIONREAD FIONBIO FIOASYNC FIOCLEX FIONCLEX TIOCOUTQ SIOCATMARK FIOSETOWN FIOGETOWN SIOCSPGRP
    SIOCGPGRP TCGETS TIOCGWINSZ);
words!(CLOSE_RANGE: CLOSE_RANGE_CLOEXEC);
words!(SPLICE_FLAGS: SPLICE_F_NONBLOCK SPLICE_F_MOVE SPLICE_F_MORE);
words!(READ_FLAGS: RWF_NOWAIT RWF_HIPRI RWF_APPEND RWF_DSYNC);
words!(SIGNALS: SIGPIPE SIGUSR1 SIGIO SIGURG SIGCHLD);
words!(LIMITS: RLIMIT_NOFILE RLIMIT_FSIZE);

/// Constants that the libc crate does not name.
mod libc {
    pub use ::libc::*;
    pub const FIOSETOWN: u64 = 0x8901;
    pub const SIOCSPGRP: u64 = 0x8902;
    pub const FIOGETOWN: u64 = 0x8903;
    pub const SIOCGPGRP: u64 = 0x8904;
    pub const SIOCATMARK: u64 = 0x8905;
    pub const SPLICE_F_NONBLOCK: u32 = 2;
    pub const F_SETSIG: i32 = 10;
    pub const F_GETSIG: i32 = 11;
}

/// Places of a buffer.
pub const PLACES: Words = &[
    ("good", 0),
    ("null", 1),
    ("bad", 2),
    ("edge", 3),
    ("readonly", 4),
];
/// Addresses that calls get.
pub const ADDRESSES: Words = &[
    ("of", 0),
    ("loopback", 1),
    ("any", 2),
    ("null", 3),
    ("bad", 4),
    ("unix", 5),
    ("unspec", 6),
    ("closed", 7),
    ("mapped", 8),
    ("second", 9),
    ("elsewhere", 10),
    ("peer", 11),
];
/// Lengths that are passed for an address.
pub const LENGTHS: Words = &[
    ("right", 0),
    ("minus", 1),
    ("short", 2),
    ("huge", 3),
    ("zero", 4),
    ("room", 5),
];
/// Buffers for an output value, and their lengths.
pub const ROOMS: Words = &[
    ("right", 0),
    ("null", 1),
    ("bad", 2),
    ("short", 3),
    ("minus", 4),
    ("zero", 5),
    ("odd", 6),
    ("huge", 7),
];
/// Times that calls get.
pub const TIMES: Words = &[
    ("ever", 0),
    ("zero", 1),
    ("soon", 2),
    ("invalid", 3),
    ("bad", 4),
    ("negative", 5),
];
/// Masks of signals.
pub const MASKS: Words = &[("none", 0), ("empty", 1), ("usr1", 2), ("bad", 4)];
/// Values that an option is set to.
pub const VALUES: Words = &[
    ("int", 0),
    ("linger", 1),
    ("time", 2),
    ("null", 3),
    ("bad", 4),
    ("bytes", 5),
];
/// The actions of a signal.
pub const ACTIONS: Words = &[
    ("default", 0),
    ("ignore", 1),
    ("handle", 2),
    ("restart", 3),
    ("block", 4),
    ("unblock", 5),
];

/// A socket option: its name, its level and number, and the type of its value.
pub struct SocketOption {
    pub name: &'static str,
    pub level: i32,
    pub number: i32,
    pub shape: Shape,
}

/// The type of an option's value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Int,
    Linger,
    Time,
    /// Bytes of which only the length is compared.
    Opaque,
    /// A name.
    Text,
}

macro_rules! options {
    ($($level:ident $name:ident $shape:ident;)*) => {
        pub const OPTIONS: &[SocketOption] = &[$(SocketOption {
            name: stringify!($name),
            level: ::libc::$level,
            number: ::libc::$name,
            shape: Shape::$shape,
        }),*];
    };
}

options! {
    SOL_SOCKET SO_REUSEADDR Int; SOL_SOCKET SO_REUSEPORT Int; SOL_SOCKET SO_KEEPALIVE Int;
    SOL_SOCKET SO_BROADCAST Int; SOL_SOCKET SO_OOBINLINE Int; SOL_SOCKET SO_LINGER Linger;
    SOL_SOCKET SO_SNDBUF Int; SOL_SOCKET SO_RCVBUF Int; SOL_SOCKET SO_RCVLOWAT Int;
    SOL_SOCKET SO_SNDLOWAT Int; SOL_SOCKET SO_RCVTIMEO Time; SOL_SOCKET SO_SNDTIMEO Time;
    SOL_SOCKET SO_ERROR Int; SOL_SOCKET SO_TYPE Int; SOL_SOCKET SO_DOMAIN Int;
    SOL_SOCKET SO_PROTOCOL Int; SOL_SOCKET SO_ACCEPTCONN Int; SOL_SOCKET SO_PRIORITY Int;
    SOL_SOCKET SO_DONTROUTE Int; SOL_SOCKET SO_DEBUG Int; SOL_SOCKET SO_TIMESTAMP Int;
    SOL_SOCKET SO_PASSCRED Int; SOL_SOCKET SO_BUSY_POLL Int; SOL_SOCKET SO_INCOMING_CPU Opaque;
    SOL_SOCKET SO_MARK Int; SOL_SOCKET SO_RXQ_OVFL Int; SOL_SOCKET SO_PEEK_OFF Int;
    SOL_SOCKET SO_MAX_PACING_RATE Opaque; SOL_SOCKET SO_ZEROCOPY Int; SOL_SOCKET SO_PEERCRED Opaque;
    SOL_SOCKET SO_BINDTODEVICE Text; SOL_SOCKET SO_NO_CHECK Int; SOL_SOCKET SO_COOKIE Opaque;
    SOL_SOCKET SO_SNDBUFFORCE Int; SOL_SOCKET SO_RCVBUFFORCE Int; SOL_SOCKET SO_PEERNAME Opaque;
    IPPROTO_TCP TCP_NODELAY Int; IPPROTO_TCP TCP_MAXSEG Int; IPPROTO_TCP TCP_CORK Int;
    IPPROTO_TCP TCP_KEEPIDLE Int; IPPROTO_TCP TCP_KEEPINTVL Int; IPPROTO_TCP TCP_KEEPCNT Int;
    IPPROTO_TCP TCP_SYNCNT Int; IPPROTO_TCP TCP_LINGER2 Int; IPPROTO_TCP TCP_DEFER_ACCEPT Int;
    IPPROTO_TCP TCP_WINDOW_CLAMP Int; IPPROTO_TCP TCP_INFO Opaque; IPPROTO_TCP TCP_QUICKACK Int;
    IPPROTO_TCP TCP_CONGESTION Text; IPPROTO_TCP TCP_USER_TIMEOUT Int; IPPROTO_TCP TCP_FASTOPEN Int;
    IPPROTO_TCP TCP_NOTSENT_LOWAT Int; IPPROTO_TCP TCP_THIN_LINEAR_TIMEOUTS Int;
    IPPROTO_TCP TCP_TIMESTAMP Opaque; IPPROTO_TCP TCP_ULP Text;
    IPPROTO_IP IP_TOS Int; IPPROTO_IP IP_TTL Int; IPPROTO_IP IP_MTU_DISCOVER Int; IPPROTO_IP IP_MTU Int;
    IPPROTO_IP IP_RECVTOS Int; IPPROTO_IP IP_FREEBIND Int; IPPROTO_IP IP_TRANSPARENT Int;
    IPPROTO_IP IP_PKTINFO Int; IPPROTO_IP IP_RECVERR Int; IPPROTO_IP IP_BIND_ADDRESS_NO_PORT Int;
    IPPROTO_IP IP_MINTTL Int; IPPROTO_IP IP_MULTICAST_TTL Int;
    IPPROTO_IPV6 IPV6_V6ONLY Int; IPPROTO_IPV6 IPV6_TCLASS Int; IPPROTO_IPV6 IPV6_UNICAST_HOPS Int;
    IPPROTO_IPV6 IPV6_RECVPKTINFO Int; IPPROTO_IPV6 IPV6_MTU_DISCOVER Int; IPPROTO_IPV6 IPV6_RECVERR Int;
    IPPROTO_IPV6 IPV6_ADDRFORM Int;
    IPPROTO_UDP IP_TOS Int;
}

/// The names of signals that are counted.
pub fn signal_name(signal: i32) -> &'static str {
    let known = SIGNALS
        .iter()
        .find(|(_, number)| *number == i64::from(signal));
    known.map_or("signal", |(name, _)| name)
}
