//! accept, accept4, bind, connect, getpeername, getsockname, listen, shutdown, socket, socketpair.

use std::ptr::null_mut;

use libc::{c_int, socklen_t};
use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno, RawAddress};

use super::{NOT_OPEN, any_name, expect, invalid_pointer, null_device, place, result_of};
use crate::case::cases;

cases! {
    families: [
        ltp_accept01, ltp_accept02, ltp_accept03, ltp_accept4_01, ltp_bind01, ltp_bind04, ltp_connect01, ltp_connect02,
        ltp_getpeername01, ltp_getsockname01, ltp_listen01, ltp_shutdown01, ltp_shutdown02, ltp_socket01, ltp_socket02,
        ltp_socketpair01,
    ];
}

const BAD_LENGTH: socklen_t = socklen_t::MAX;

fn accept(socket: c_int, name: *mut libc::sockaddr, length: *mut socklen_t) -> Result<i64, Errno> {
    // SAFETY: the kernel checks the pointers and refuses bad ones.
    result_of(unsafe { libc::accept(socket, name, length) })
}

fn ltp_accept01(family: Family) {
    let mut name = RawAddress::empty();
    let (to, length) = ((&raw mut name.storage).cast(), &raw mut name.length);
    let bound = tcp(family);
    sys::bind(bound, family.any(0)).expect("bind");
    let datagrams = sys::socket(family.domain(), libc::SOCK_DGRAM, 0).expect("socket");
    let mut short: socklen_t = 1;
    expect(
        "accept",
        &[
            ("not open", accept(NOT_OPEN, to, length), libc::EBADF),
            (
                "no socket",
                accept(null_device(), to, length),
                libc::ENOTSOCK,
            ),
            (
                "a bad place",
                accept(bound, invalid_pointer(), length),
                libc::EINVAL,
            ),
            (
                "a short one",
                accept(bound, to, &raw mut short),
                libc::EINVAL,
            ),
            ("nothing waits", accept(bound, to, length), libc::EINVAL),
            ("datagrams", accept(datagrams, to, length), libc::EOPNOTSUPP),
        ],
    );
}

/// An accepted socket does not inherit the groups that the listener joined.
fn ltp_accept02(family: Family) {
    if family == Family::V6 {
        return;
    }
    let (listening, address) = listener(family);
    /// `group_req` of the kernel.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Group {
        interface: u64,
        address: libc::sockaddr_storage,
    }
    const JOIN: c_int = 42;
    const LEAVE: c_int = 45;
    let group = Group {
        interface: 1,
        address: RawAddress::from(std::net::SocketAddr::from(([224, 0, 0, 7], 0))).storage,
    };
    sys::set_option(listening, libc::IPPROTO_IP, JOIN, group).expect("join");
    let client = connect_to(address);
    let accepted = sys::accept(listening).expect("accept");
    let left = sys::set_option(accepted, libc::IPPROTO_IP, LEAVE, group);
    assert_eq!(left, Err(Errno(libc::EADDRNOTAVAIL)));
    expect_alive(client, accepted);
}

fn ltp_accept03(_: Family) {
    let [reads, writes] = sys::pipe(0).expect("pipe");
    let counter = sys::eventfd(0, 0).expect("eventfd");
    let set = sys::epoll_create().expect("epoll_create");
    // SAFETY: the path ends with a zero.
    let path = unsafe { libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC) };
    let at = |socket| accept(socket, null_mut(), null_mut());
    expect(
        "accept",
        &[
            ("a pipe", at(reads), libc::ENOTSOCK),
            ("a pipe's other end", at(writes), libc::ENOTSOCK),
            ("an eventfd", at(counter), libc::ENOTSOCK),
            ("an epoll set", at(set), libc::ENOTSOCK),
            ("a path", at(path), libc::EBADF),
        ],
    );
}

fn ltp_accept4_01(family: Family) {
    let (listening, address) = listener(family);
    for flags in [
        0,
        libc::SOCK_CLOEXEC,
        libc::SOCK_NONBLOCK,
        libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
    ] {
        let client = connect_to(address);
        let accepted = sys::accept4(listening, flags).expect("accept4");
        let closes = sys::fcntl(accepted, libc::F_GETFD, 0).expect("fcntl") & libc::FD_CLOEXEC;
        let waits_not = sys::fcntl(accepted, libc::F_GETFL, 0).expect("fcntl") & libc::O_NONBLOCK;
        assert_eq!(closes != 0, flags & libc::SOCK_CLOEXEC != 0);
        assert_eq!(waits_not != 0, flags & libc::SOCK_NONBLOCK != 0);
        sys::close(accepted).expect("close");
        sys::close(client).expect("close");
    }
}

fn ltp_bind01(family: Family) {
    let socket = tcp(family);
    let name = any_name(family);
    let bind = |socket, at, length| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::bind(socket, at, length) })
    };
    let mut other = name;
    other.storage.ss_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or_default();
    let far = RawAddress::from(match family {
        Family::V4 => std::net::SocketAddr::from(([10, 255, 254, 253], 0)),
        Family::V6 => std::net::SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 9], 0)),
    });
    expect(
        "bind",
        &[
            (
                "a bad place",
                bind(socket, invalid_pointer(), name.length),
                libc::EFAULT,
            ),
            ("a short name", bind(socket, place(&name), 3), libc::EINVAL),
            (
                "no socket",
                bind(null_device(), place(&name), name.length),
                libc::ENOTSOCK,
            ),
            (
                "another family",
                bind(socket, place(&other), name.length),
                libc::EAFNOSUPPORT,
            ),
            (
                "not this host's",
                bind(socket, place(&far), far.length),
                libc::EADDRNOTAVAIL,
            ),
            (
                "not open",
                bind(NOT_OPEN, place(&name), name.length),
                libc::EBADF,
            ),
        ],
    );
    assert_eq!(bind(socket, place(&name), name.length), Ok(0));
}

/// A server at any address and at the loopback address. Bytes are exchanged over each.
fn ltp_bind04(family: Family) {
    for address in [family.any(0), family.loopback(0)] {
        let listening = tcp(family);
        sys::bind(listening, address).expect("bind");
        sys::listen(listening, 1).expect("listen");
        let port = sys::getsockname(listening).expect("getsockname").port();
        let client = connect_to(family.loopback(port));
        let accepted = sys::accept(listening).expect("accept");
        send_all(client, b"request");
        expect_bytes(accepted, b"request");
        send_all(accepted, b"response");
        expect_bytes(client, b"response");
        for socket in [client, accepted, listening] {
            sys::close(socket).expect("close");
        }
    }
}

fn ltp_connect01(family: Family) {
    let (listening, address) = listener(family);
    let name = RawAddress::from(address);
    let connect = |socket, at, length| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::connect(socket, at, length) })
    };
    let mut other = name;
    other.storage.ss_family = 47;
    let nobody = RawAddress::from(unused_address(family));
    let connected = connect_to(address);
    let refused = sys::connect(tcp(family), unused_address(family));
    let fresh = tcp(family);
    expect(
        "connect",
        &[
            (
                "not open",
                connect(NOT_OPEN, place(&name), name.length),
                libc::EBADF,
            ),
            (
                "a bad place",
                connect(fresh, invalid_pointer(), name.length),
                libc::EFAULT,
            ),
            (
                "a short name",
                connect(fresh, place(&name), 3),
                libc::EINVAL,
            ),
            (
                "no socket",
                connect(null_device(), place(&nobody), nobody.length),
                libc::ENOTSOCK,
            ),
            (
                "connected",
                connect(connected, place(&name), name.length),
                libc::EISCONN,
            ),
            ("nobody listens", refused.map(|()| 0), libc::ECONNREFUSED),
            (
                "another family",
                connect(tcp(family), place(&other), name.length),
                libc::EAFNOSUPPORT,
            ),
        ],
    );
    let accepted = sys::accept(listening).expect("accept");
    expect_alive(connected, accepted);
}

/// A socket of IPv6 that was converted to IPv4 and dissolved listens as a socket of IPv4.
fn ltp_connect02(family: Family) {
    if family == Family::V4 {
        return;
    }
    let (listening, address) = listener(Family::V4);
    let mapped = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    let socket = tcp(family);
    sys::set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0).expect("IPV6_V6ONLY");
    sys::connect(socket, (mapped, address.port()).into()).expect("connect");
    let accepted = sys::accept(listening).expect("accept");
    expect_alive(socket, accepted);
    const ADDRFORM: c_int = 1;
    let turned = sys::set_option(socket, libc::IPPROTO_IPV6, ADDRFORM, libc::AF_INET);
    assert_eq!(turned, Ok(()));
    let mut nobody = RawAddress::empty();
    nobody.length = 16;
    assert_eq!(sys::connect_raw(socket, &nobody), Ok(()));
    let v6 = RawAddress::from(Family::V6.any(0));
    // SAFETY: a name of its length.
    let bound = result_of(unsafe { libc::bind(socket, place(&v6), v6.length) });
    assert_eq!(bound, Err(Errno(libc::EAFNOSUPPORT)));
    sys::bind(socket, Family::V4.any(0)).expect("bind");
    sys::listen(socket, 5).expect("listen");
    let port = sys::getsockname(socket).expect("getsockname").port();
    let client = connect_to(Family::V4.loopback(port));
    let server = sys::accept(socket).expect("accept");
    expect_alive(client, server);
}

fn ltp_getpeername01(family: Family) {
    let (client, server) = pair(family);
    let ask = |socket, at, length: *mut socklen_t| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::getpeername(socket, at, length) })
    };
    let mut name = RawAddress::empty();
    let (to, length) = ((&raw mut name.storage).cast(), &raw mut name.length);
    let mut bad = BAD_LENGTH;
    expect(
        "getpeername",
        &[
            ("not open", ask(NOT_OPEN, to, length), libc::EBADF),
            ("no socket", ask(null_device(), to, length), libc::ENOTSOCK),
            (
                "not connected",
                ask(tcp(family), to, length),
                libc::ENOTCONN,
            ),
            ("a bad length", ask(client, to, &raw mut bad), libc::EINVAL),
            (
                "a bad place",
                ask(client, invalid_pointer(), length),
                libc::EFAULT,
            ),
            (
                "a length nowhere",
                ask(client, to, invalid_pointer()),
                libc::EFAULT,
            ),
        ],
    );
    expect_alive(client, server);
}

fn ltp_getsockname01(family: Family) {
    let socket = tcp(family);
    sys::bind(socket, family.any(0)).expect("bind");
    let ask = |socket, at, length: *mut socklen_t| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::getsockname(socket, at, length) })
    };
    let mut name = RawAddress::empty();
    let (to, length) = ((&raw mut name.storage).cast(), &raw mut name.length);
    let mut bad = BAD_LENGTH;
    expect(
        "getsockname",
        &[
            ("not open", ask(NOT_OPEN, to, length), libc::EBADF),
            ("no socket", ask(null_device(), to, length), libc::ENOTSOCK),
            (
                "a bad place",
                ask(socket, invalid_pointer(), length),
                libc::EFAULT,
            ),
            (
                "a length nowhere",
                ask(socket, to, invalid_pointer()),
                libc::EFAULT,
            ),
            ("a bad length", ask(socket, to, &raw mut bad), libc::EINVAL),
        ],
    );
}

fn ltp_listen01(family: Family) {
    let datagrams = sys::socket(family.domain(), libc::SOCK_DGRAM, 0).expect("socket");
    let listen = |socket| sys::listen(socket, 0).map(|()| 0);
    expect(
        "listen",
        &[
            ("not open", listen(NOT_OPEN), libc::EBADF),
            ("no socket", listen(null_device()), libc::ENOTSOCK),
            ("datagrams", listen(datagrams), libc::EOPNOTSUPP),
        ],
    );
}

/// Which direction goes on after each `shutdown`.
fn ltp_shutdown01(family: Family) {
    for how in [libc::SHUT_RD, libc::SHUT_WR, libc::SHUT_RDWR] {
        let (client, server) = pair(family);
        assert_eq!(sys::shutdown(client, how), Ok(()));
        let mut bytes = [0; 4];
        let got = sys::recv(client, &mut bytes, libc::MSG_DONTWAIT);
        let sent = sys::send(client, b"abcd", libc::MSG_NOSIGNAL);
        if how == libc::SHUT_WR {
            assert_eq!(got, Err(Errno(libc::EAGAIN)));
        } else {
            assert_eq!(got, Ok(0));
        }
        if how == libc::SHUT_RD {
            assert_eq!(sent, Ok(4));
            expect_bytes(server, b"abcd");
        } else {
            assert_eq!(sent, Err(Errno(libc::EPIPE)));
            expect_end(server);
        }
    }
}

fn ltp_shutdown02(family: Family) {
    let shut = |socket, how| sys::shutdown(socket, how).map(|()| 0);
    let (client, server) = pair(family);
    expect(
        "shutdown",
        &[
            ("not open", shut(NOT_OPEN, libc::SHUT_WR), libc::EBADF),
            (
                "no socket",
                shut(null_device(), libc::SHUT_WR),
                libc::ENOTSOCK,
            ),
            (
                "not connected",
                shut(tcp(family), libc::SHUT_WR),
                libc::ENOTCONN,
            ),
            ("no direction", shut(client, 100), libc::EINVAL),
        ],
    );
    expect_alive(client, server);
}

fn ltp_socket01(family: Family) {
    let domain = family.domain();
    let make = |domain, kind, protocol| sys::socket(domain, kind, protocol).map(i64::from);
    let (stream, datagrams) = (libc::SOCK_STREAM, libc::SOCK_DGRAM);
    let wrong = libc::EPROTONOSUPPORT;
    expect(
        "socket",
        &[
            ("no family", make(0, stream, 0), libc::EAFNOSUPPORT),
            ("no type", make(domain, 75, 0), libc::EINVAL),
            (
                "local datagrams as TCP",
                make(libc::AF_UNIX, datagrams, libc::IPPROTO_TCP),
                wrong,
            ),
            (
                "datagrams as TCP",
                make(domain, datagrams, libc::IPPROTO_TCP),
                wrong,
            ),
            (
                "a stream as UDP",
                make(domain, stream, libc::IPPROTO_UDP),
                wrong,
            ),
            ("a stream as ICMP", make(domain, stream, 1), wrong),
        ],
    );
    for (kind, protocol) in [(datagrams, 17), (stream, 6)] {
        let socket = make(domain, kind, protocol).expect("a socket");
        sys::close(c_int::try_from(socket).expect("a number")).expect("close");
    }
}

fn ltp_socket02(family: Family) {
    for flags in [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK] {
        let socket = sys::socket(family.domain(), libc::SOCK_STREAM | flags, 0).expect("socket");
        let closes = sys::fcntl(socket, libc::F_GETFD, 0).expect("fcntl") & libc::FD_CLOEXEC;
        let waits_not = sys::fcntl(socket, libc::F_GETFL, 0).expect("fcntl") & libc::O_NONBLOCK;
        assert_eq!(closes != 0, flags & libc::SOCK_CLOEXEC != 0);
        assert_eq!(waits_not != 0, flags & libc::SOCK_NONBLOCK != 0);
        sys::close(socket).expect("close");
    }
}

fn ltp_socketpair01(family: Family) {
    let make = |domain, kind, protocol, to: *mut c_int| {
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        result_of(unsafe { libc::socketpair(domain, kind, protocol, to) })
    };
    let mut room = [0; 2];
    let (to, domain) = (room.as_mut_ptr(), family.domain());
    let (stream, datagrams) = (libc::SOCK_STREAM, libc::SOCK_DGRAM);
    let wrong = libc::EPROTONOSUPPORT;
    expect(
        "socketpair",
        &[
            ("no family", make(0, stream, 0, to), libc::EAFNOSUPPORT),
            ("no type", make(domain, 75, 0, to), libc::EINVAL),
            (
                "a bad place",
                make(libc::AF_UNIX, datagrams, 0, invalid_pointer()),
                libc::EFAULT,
            ),
            (
                "datagrams",
                make(domain, datagrams, 17, to),
                libc::EOPNOTSUPP,
            ),
            ("datagrams as TCP", make(domain, datagrams, 6, to), wrong),
            ("a stream", make(domain, stream, 6, to), libc::EOPNOTSUPP),
            ("a stream as ICMP", make(domain, stream, 1, to), wrong),
        ],
    );
}
