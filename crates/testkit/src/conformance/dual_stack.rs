//! IPv4 and IPv6 together: dual-stack listeners, mapped addresses, IPV6_V6ONLY.

use std::net::{Ipv4Addr, SocketAddr};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;

cases! {
    plain: [
        dual_stack_listener_sees_mapped_address,
        dual_stack_listener_takes_both,
        dual_stack_across_processes,
        dual_stack_v6only_refuses_v4,
        dual_stack_v6only_and_v4_on_one_port,
        dual_stack_bind_conflict,
        dual_stack_bind_of_another_family,
        dual_stack_connect_to_mapped_address,
        dual_stack_v6only_names_nobody_of_v4,
        dual_stack_bind_mapped_address,
        dual_stack_v6only_round_trip,
        dual_stack_v4_options_on_mapped,
        dual_stack_listener_127_other_address,
        dual_stack_bind_specific_source,
    ];
}

fn mapped(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), port))
}

fn dual_listener(only_v6: bool) -> (Descriptor, u16) {
    let socket = tcp(Family::V6);
    set_int(
        socket,
        libc::IPPROTO_IPV6,
        libc::IPV6_V6ONLY,
        libc::c_int::from(only_v6),
    );
    sys::bind(socket, Family::V6.any(0)).unwrap();
    sys::listen(socket, 16).unwrap();
    (socket, sys::getsockname(socket).unwrap().port())
}

fn dual_stack_listener_sees_mapped_address() {
    let (listening, port) = dual_listener(false);
    let client = connect_to(Family::V4.loopback(port));
    let (server, peer) = sys::accept_from(listening).unwrap();
    let name = sys::getsockname(client).unwrap();
    assert_eq!(name, Family::V4.loopback(name.port()));
    assert_eq!(peer, mapped(name.port()));
    assert_eq!(sys::getpeername(server), Ok(mapped(name.port())));
    assert_eq!(sys::getsockname(server), Ok(mapped(port)));
    assert_eq!(sys::getpeername(client), Ok(Family::V4.loopback(port)));
    let level = libc::SOL_SOCKET;
    assert_eq!(
        sys::option_int(server, level, libc::SO_DOMAIN),
        Ok(libc::AF_INET6)
    );
    assert_eq!(
        sys::option_int(client, level, libc::SO_DOMAIN),
        Ok(libc::AF_INET)
    );
    expect_alive(client, server);
}

fn dual_stack_listener_takes_both() {
    let (listening, port) = dual_listener(false);
    for family in [Family::V4, Family::V6, Family::V4, Family::V6] {
        let client = connect_to(family.loopback(port));
        let (server, peer) = sys::accept_from(listening).unwrap();
        let own = sys::getsockname(client).unwrap();
        let expected = if family == Family::V4 {
            mapped(own.port())
        } else {
            own
        };
        assert_eq!(peer, expected);
        expect_alive(client, server);
    }
}

fn dual_stack_across_processes() {
    let ready = Baton::new();
    let child = fork_child(|| {
        let (listening, port) = dual_listener(false);
        ready.send(u64::from(port));
        for _ in 0..4 {
            let (server, peer) = sys::accept_from(listening).unwrap();
            send_all(server, format!("{}\n", peer.ip()).as_bytes());
            expect_end(server);
            sys::close(server).unwrap();
        }
    });
    let port = u16::try_from(ready.receive()).unwrap();
    for (address, expected) in [
        (Family::V4.loopback(port), &b"::ffff:127.0.0.1\n"[..]),
        (Family::V6.loopback(port), &b"::1\n"[..]),
        (mapped(port), &b"::ffff:127.0.0.1\n"[..]),
        (Family::V4.any(port), &b"::ffff:127.0.0.1\n"[..]),
    ] {
        let client = connect_to(address);
        expect_bytes(client, expected);
        sys::close(client).unwrap();
    }
    child.join();
}

fn dual_stack_v6only_refuses_v4() {
    let (listening, port) = dual_listener(true);
    let refused = sys::connect(tcp(Family::V4), Family::V4.loopback(port));
    assert_eq!(refused, Err(Errno(libc::ECONNREFUSED)));
    let refused = sys::connect(tcp(Family::V6), mapped(port));
    assert_eq!(refused, Err(Errno(libc::ECONNREFUSED)));
    expect_alive(
        connect_to(Family::V6.loopback(port)),
        sys::accept(listening).unwrap(),
    );
}

fn dual_stack_v6only_and_v4_on_one_port() {
    // Another program may have the port for IPv4. Then another port is tried.
    let (six, four, port) = loop {
        let (six, port) = dual_listener(true);
        let four = tcp(Family::V4);
        match sys::bind(four, Family::V4.any(port)) {
            Ok(()) => break (six, four, port),
            Err(errno) => assert_eq!(errno, Errno(libc::EADDRINUSE)),
        }
        sys::close(four).unwrap();
        sys::close(six).unwrap();
    };
    sys::listen(four, 4).unwrap();
    for (family, listening) in [(Family::V4, four), (Family::V6, six), (Family::V4, four)] {
        let client = connect_to(family.loopback(port));
        let (server, peer) = sys::accept_from(listening).unwrap();
        assert_eq!(Ok(peer), sys::getsockname(client));
        expect_alive(client, server);
    }
}

fn dual_stack_bind_conflict() {
    let (_listening, port) = dual_listener(false);
    let four = tcp(Family::V4);
    let answer = sys::bind(four, Family::V4.any(port));
    assert_eq!(answer, Err(Errno(libc::EADDRINUSE)));
}

/// Whether the port is in use does not matter in this case.
fn dual_stack_bind_of_another_family() {
    for family in [Family::V4, Family::V6] {
        let (_listening, address) = listener(family);
        let client = connect_to(address);
        let (other, refused) = match family {
            Family::V6 => (tcp(Family::V4), libc::EAFNOSUPPORT),
            Family::V4 => (tcp(Family::V6), libc::EINVAL),
        };
        for used in [address, sys::getsockname(client).unwrap()] {
            assert_eq!(sys::bind(other, used), Err(Errno(refused)));
        }
    }
}

fn dual_stack_connect_to_mapped_address() {
    let (listening, address) = listener(Family::V4);
    let client = tcp(Family::V6);
    sys::connect(client, mapped(address.port())).unwrap();
    let (server, peer) = sys::accept_from(listening).unwrap();
    let own = sys::getsockname(client).unwrap();
    assert_eq!(own, mapped(own.port()));
    assert_eq!(peer, Family::V4.loopback(own.port()));
    assert_eq!(sys::getpeername(client), Ok(mapped(address.port())));
    expect_alive(client, server);
}

/// A socket of IPv6 alone neither connects to a mapped address nor takes one.
fn dual_stack_v6only_names_nobody_of_v4() {
    let (listening, address) = listener(Family::V4);
    let only = || {
        let socket = tcp(Family::V6);
        set_int(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1);
        socket
    };
    let socket = only();
    let connected = sys::connect(socket, mapped(address.port()));
    assert_eq!(connected, Err(Errno(libc::ENETUNREACH)));
    assert_eq!(sys::bind(only(), mapped(0)), Err(Errno(libc::EINVAL)));
    expect_quiet(listening, libc::POLLIN);
    // Without the option the socket connects.
    set_int(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0);
    assert_eq!(sys::connect(socket, mapped(address.port())), Ok(()));
    let accepted = sys::accept(listening).expect("accept");
    expect_alive(socket, accepted);
    // A socket that is bound to an IPv6 address does not connect either.
    let bound = tcp(Family::V6);
    sys::bind(bound, Family::V6.loopback(0)).unwrap();
    let connected = sys::connect(bound, mapped(address.port()));
    assert_eq!(connected, Err(Errno(libc::ENETUNREACH)));
}

fn dual_stack_bind_mapped_address() {
    let listening = tcp(Family::V6);
    sys::bind(listening, mapped(0)).unwrap();
    sys::listen(listening, 4).unwrap();
    let port = sys::getsockname(listening).unwrap().port();
    assert_eq!(sys::getsockname(listening), Ok(mapped(port)));
    expect_alive(
        connect_to(Family::V4.loopback(port)),
        sys::accept(listening).unwrap(),
    );
    let refused = sys::connect(tcp(Family::V6), Family::V6.loopback(port));
    assert_eq!(refused, Err(Errno(libc::ECONNREFUSED)));
}

fn dual_stack_v6only_round_trip() {
    let (level, name) = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
    let socket = tcp(Family::V6);
    for value in [1, 0, 1] {
        set_int(socket, level, name, value);
        assert_eq!(sys::option_int(socket, level, name), Ok(value));
    }
    sys::bind(socket, Family::V6.loopback(0)).unwrap();
    assert_eq!(
        sys::set_option(socket, level, name, 0),
        Err(Errno(libc::EINVAL)),
        "bound"
    );
    let four = tcp(Family::V4);
    assert!(
        sys::set_option(four, level, name, 1).is_err(),
        "no option of IPv4"
    );
}

fn dual_stack_v4_options_on_mapped() {
    let (listening, port) = dual_listener(false);
    let client = connect_to(Family::V4.loopback(port));
    let server = sys::accept(listening).unwrap();
    set_int(server, libc::IPPROTO_IP, libc::IP_TOS, 0x08);
    assert_eq!(
        sys::option_int(server, libc::IPPROTO_IP, libc::IP_TOS),
        Ok(0x08)
    );
    set_int(server, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    expect_alive(client, server);
}

fn dual_stack_listener_127_other_address() {
    // All of 127/8 is this host.
    let listening = tcp(Family::V4);
    let address = SocketAddr::from(([127, 0, 0, 2], 0));
    sys::bind(listening, address).unwrap();
    sys::listen(listening, 4).unwrap();
    let address = sys::getsockname(listening).unwrap();
    let client = connect_to(address);
    let (server, peer) = sys::accept_from(listening).unwrap();
    assert_eq!(sys::getpeername(client), Ok(address));
    assert_eq!(Ok(peer), sys::getsockname(client));
    expect_alive(client, server);
    let refused = sys::connect(tcp(Family::V4), Family::V4.loopback(address.port()));
    assert_eq!(
        refused,
        Err(Errno(libc::ECONNREFUSED)),
        "another address of the host"
    );
}

fn dual_stack_bind_specific_source() {
    let (listening, address) = listener(Family::V4);
    let client = tcp(Family::V4);
    sys::bind(client, SocketAddr::from(([127, 0, 0, 9], 0))).unwrap();
    sys::connect(client, address).unwrap();
    let (server, peer) = sys::accept_from(listening).unwrap();
    assert_eq!(peer.ip(), std::net::IpAddr::from([127, 0, 0, 9]));
    assert_eq!(Ok(peer), sys::getsockname(client));
    expect_alive(client, server);
}
