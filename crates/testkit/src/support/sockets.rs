//! Sockets by family, connected pairs, complete transfers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{await_events, pattern_mismatch};
use crate::far::Side;
use crate::sys::{self, Descriptor, Errno};

/// The families every case runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4
    V4,
    /// IPv6
    V6,
}

impl Family {
    /// `AF_INET` or `AF_INET6`
    #[must_use]
    pub fn domain(self) -> libc::c_int {
        match self {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        }
    }

    /// The family of an address.
    #[must_use]
    pub fn of(address: SocketAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// Its word on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }

    /// The other family.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Family::V4 => Family::V6,
            Family::V6 => Family::V4,
        }
    }

    /// The loopback address with a port.
    #[must_use]
    pub fn loopback(self, port: u16) -> SocketAddr {
        match self {
            Family::V4 => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
            Family::V6 => SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port),
        }
    }

    /// The address of all interfaces with a port.
    #[must_use]
    pub fn any(self, port: u16) -> SocketAddr {
        match self {
            Family::V4 => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port),
            Family::V6 => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port),
        }
    }
}

/// A blocking TCP socket.
#[must_use]
pub fn tcp(family: Family) -> Descriptor {
    sys::socket(family.domain(), libc::SOCK_STREAM, 0).expect("socket")
}

/// A blocking TCP socket for one end of a connection. Between two hosts the socket may be on the other host.
#[must_use]
pub fn tcp_for(end: Side, family: Family) -> Descriptor {
    sys::socket_for(end, family.domain()).expect("socket")
}

/// A non-blocking TCP socket.
#[must_use]
pub fn tcp_nonblocking(family: Family) -> Descriptor {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
    sys::socket(family.domain(), kind, 0).expect("socket")
}

/// A listener on a free port of the loopback address.
#[must_use]
pub fn listener(family: Family) -> (Descriptor, SocketAddr) {
    listener_with(family, 128)
}

/// A listener on a free port with a backlog.
#[must_use]
pub fn listener_with(family: Family, backlog: libc::c_int) -> (Descriptor, SocketAddr) {
    let socket = tcp_for(Side::Server, family);
    sys::bind(socket, family.loopback(0)).expect("bind");
    sys::listen(socket, backlog).expect("listen");
    (socket, sys::getsockname(socket).expect("getsockname"))
}

/// The variable that holds the first of the ports of [`listener_on_own_port`], and how many there are.
pub const OWN_PORTS_VARIABLE: &str = "CONFORMANCE_OWN_PORTS";

fn own_ports() -> (u16, u16) {
    let said = std::env::var(OWN_PORTS_VARIABLE).unwrap_or_default();
    let said = said.split_once(',');
    let said = said.and_then(|(first, count)| Some((first.parse().ok()?, count.parse().ok()?)));
    said.unwrap_or((10_000, 21_000))
}

/// A listener on a port that the system gives to no socket that asks for any free port. The port stays free between a
/// close and the next bind.
#[must_use]
pub fn listener_on_own_port(family: Family) -> (Descriptor, SocketAddr) {
    let socket = tcp_for(Side::Server, family);
    let (first, count) = own_ports();
    let start = u16::try_from(std::process::id() * 8 % u32::from(count)).expect("below the count");
    let bound = |&port: &u16| sys::bind(socket, family.loopback(port)).is_ok();
    let ports = (start..count).chain(0..start).map(|port| first + port);
    ports.take(1000).find(bound).expect("a free port");
    sys::listen(socket, 128).expect("listen");
    (socket, sys::getsockname(socket).expect("getsockname"))
}

/// A socket connected to a listener.
#[must_use]
pub fn connect_to(address: SocketAddr) -> Descriptor {
    let family = Family::of(address);
    let socket = tcp_for(Side::Client, family);
    sys::connect(socket, address).expect("connect");
    socket
}

/// An address of the family on which no socket listens.
#[must_use]
pub fn unused_address(family: Family) -> SocketAddr {
    // Bound and not listening: no other socket can take the port while the process lives.
    let socket = tcp(family);
    sys::bind(socket, family.loopback(0)).expect("bind");
    sys::getsockname(socket).expect("getsockname")
}

/// A connected pair in this process: the client's end and the server's end.
#[must_use]
pub fn pair(family: Family) -> (Descriptor, Descriptor) {
    pairs(family, 1).remove(0)
}

/// Several connected pairs, all through one listener. Between hosts each new listener must first be announced.
#[must_use]
pub fn pairs(family: Family, count: usize) -> Vec<(Descriptor, Descriptor)> {
    let (listening, address) = listener(family);
    let pairs = (0..count)
        .map(|_| {
            let client = connect_to(address);
            (client, sys::accept(listening).expect("accept"))
        })
        .collect();
    sys::close(listening).expect("close");
    pairs
}

/// A connected pair with small buffers, for cases that fill them.
#[must_use]
pub fn small_pair(family: Family) -> (Descriptor, Descriptor) {
    let listening = tcp_for(Side::Server, family);
    set_int(listening, libc::SOL_SOCKET, libc::SO_RCVBUF, 16 * 1024);
    set_int(listening, libc::SOL_SOCKET, libc::SO_SNDBUF, 16 * 1024);
    sys::bind(listening, family.loopback(0)).expect("bind");
    sys::listen(listening, 8).expect("listen");
    let client = tcp_for(Side::Client, family);
    set_int(client, libc::SOL_SOCKET, libc::SO_RCVBUF, 16 * 1024);
    set_int(client, libc::SOL_SOCKET, libc::SO_SNDBUF, 16 * 1024);
    sys::connect(client, sys::getsockname(listening).expect("getsockname")).expect("connect");
    let server = sys::accept(listening).expect("accept");
    sys::close(listening).expect("close");
    (client, server)
}

/// Sets an option that is an integer.
pub fn set_int(socket: Descriptor, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    if let Err(errno) = sys::set_option(socket, level, name, value) {
        panic!("setsockopt({level}, {name}, {value}): {errno:?}");
    }
}

/// Makes the socket non-blocking.
pub fn set_nonblocking(socket: Descriptor) {
    let flags = sys::fcntl(socket, libc::F_GETFL, 0).expect("F_GETFL");
    sys::fcntl(socket, libc::F_SETFL, flags | libc::O_NONBLOCK).expect("F_SETFL");
}

/// Makes the socket blocking.
pub fn set_blocking(socket: Descriptor) {
    let flags = sys::fcntl(socket, libc::F_GETFL, 0).expect("F_GETFL");
    sys::fcntl(socket, libc::F_SETFL, flags & !libc::O_NONBLOCK).expect("F_SETFL");
}

/// Sets `SO_LINGER`.
pub fn set_linger(socket: Descriptor, seconds: libc::c_int) {
    let value = libc::linger {
        l_onoff: 1,
        l_linger: seconds,
    };
    sys::set_option(socket, libc::SOL_SOCKET, libc::SO_LINGER, value).expect("SO_LINGER");
}

/// Closes with a reset.
pub fn close_with_reset(socket: Descriptor) {
    set_linger(socket, 0);
    sys::close(socket).expect("close");
}

/// Reads and thereby clears `SO_ERROR`.
#[must_use]
pub fn socket_error(socket: Descriptor) -> Errno {
    let level = libc::SOL_SOCKET;
    Errno(sys::option_int(socket, level, libc::SO_ERROR).expect("SO_ERROR"))
}

/// Sends all bytes, waiting where the socket does not block.
pub fn send_all(socket: Descriptor, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        match sys::send(socket, rest, libc::MSG_NOSIGNAL) {
            Ok(size) => rest = &rest[size..],
            Err(Errno(libc::EAGAIN)) => {
                await_events(socket, libc::POLLOUT);
            }
            Err(errno) => panic!(
                "send with {} of {} left: {errno:?}",
                rest.len(),
                bytes.len()
            ),
        }
    }
}

/// Receives exactly `length` bytes, waiting where the socket does not block.
#[must_use]
pub fn receive_exact(socket: Descriptor, length: usize) -> Vec<u8> {
    let mut bytes = vec![0_u8; length];
    let mut filled = 0;
    while filled < length {
        match sys::recv(socket, &mut bytes[filled..], 0) {
            Ok(0) => panic!("end of stream after {filled} of {length} bytes"),
            Ok(size) => filled += size,
            Err(Errno(libc::EAGAIN)) => {
                await_events(socket, libc::POLLIN);
            }
            Err(errno) => panic!("recv after {filled} of {length} bytes: {errno:?}"),
        }
    }
    bytes
}

/// Receives until the end of the stream, waiting where the socket does not block.
#[must_use]
pub fn receive_to_end(socket: Descriptor) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0_u8; 64 * 1024];
    loop {
        match sys::recv(socket, &mut buffer, 0) {
            Ok(0) => return bytes,
            Ok(size) => bytes.extend_from_slice(&buffer[..size]),
            Err(Errno(libc::EAGAIN)) => {
                await_events(socket, libc::POLLIN);
            }
            Err(errno) => panic!("recv after {} bytes: {errno:?}", bytes.len()),
        }
    }
}

/// Receives the text, no more and no less, and compares it.
#[track_caller]
pub fn expect_bytes(socket: Descriptor, expected: &[u8]) {
    let received = receive_exact(socket, expected.len());
    assert_eq!(
        String::from_utf8_lossy(&received),
        String::from_utf8_lossy(expected),
        "other bytes than were sent"
    );
}

/// Checks that the stream has ended: `recv` returns 0. Waits for the end.
#[track_caller]
pub fn expect_end(socket: Descriptor) {
    await_events(socket, libc::POLLIN);
    let mut byte = [0_u8];
    assert_eq!(
        sys::recv(socket, &mut byte, 0),
        Ok(0),
        "end of stream expected"
    );
}

/// Sends a byte each way, to check that the connection works.
#[track_caller]
pub fn expect_alive(one: Descriptor, other: Descriptor) {
    send_all(one, b">");
    expect_bytes(other, b">");
    send_all(other, b"<");
    expect_bytes(one, b"<");
}

/// Sends `length` bytes of the pattern, from `offset` on.
pub fn send_pattern(socket: Descriptor, offset: usize, length: usize) {
    let mut sent = 0;
    while sent < length {
        let chunk = (length - sent).min(64 * 1024);
        send_all(socket, &super::pattern(offset + sent, chunk));
        sent += chunk;
    }
}

/// Receives `length` bytes of the pattern, from `offset` on.
#[track_caller]
pub fn expect_pattern(socket: Descriptor, offset: usize, length: usize) {
    let mut received = 0;
    while received < length {
        let chunk = (length - received).min(64 * 1024);
        let bytes = receive_exact(socket, chunk);
        let mismatch = pattern_mismatch(offset + received, &bytes);
        assert_eq!(
            mismatch,
            None,
            "wrong byte in the block at {}",
            offset + received
        );
        received += chunk;
    }
}

/// Sends until the socket takes no more bytes and has taken none for a while. Returns how many bytes of the pattern it
/// took. The socket stays non-blocking.
#[must_use]
pub fn fill(socket: Descriptor) -> usize {
    set_nonblocking(socket);
    let mut total = 0;
    let mut refused = 0;
    // Bytes still in transit to the peer may make room once more, also a later window probe.
    while refused < 40 {
        match sys::send(
            socket,
            &super::pattern(total, 16 * 1024),
            libc::MSG_NOSIGNAL,
        ) {
            Ok(size) => {
                total += size;
                refused = 0;
            }
            Err(Errno(libc::EAGAIN)) => {
                refused += 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            Err(errno) => panic!("send after {total} bytes: {errno:?}"),
        }
    }
    total
}
