//! Corner 14, calls in states for which they are not meant, and addresses that are taken.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;

cases! {
    plain: [
        corner_14_states_addresses_without_a_port,
        corner_14_states_addresses_of_another_host,
        corner_14_states_addresses_other_than_a_clients,
        corner_14_states_addresses_of_another_form,
    ];
    families: [
        corner_14_states_connect_until_it_says_so,
        corner_14_states_shutdown_says_that_it_is_connected,
        corner_14_states_shutdown_before_connect,
        corner_14_states_shutdown_of_a_bound_socket,
        corner_14_states_bind_of_an_accepted_socket,
        corner_14_states_addresses_from_one_port_twice,
        corner_14_states_addresses_from_one_port_in_two_processes,
        corner_14_states_addresses_of_a_client,
        corner_14_states_fast_open,
    ];
}

const ALL: libc::c_short = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
const INVALID: Errno = Errno(libc::EINVAL);
const CONNECTED: Errno = Errno(libc::EISCONN);
const IN_USE: Errno = Errno(libc::EADDRINUSE);
const PIPE: Errno = Errno(libc::EPIPE);

const IP_BIND_ADDRESS_NO_PORT: libc::c_int = 24;

fn under_way(family: Family) -> (Descriptor, std::net::SocketAddr) {
    let (_listening, address) = listener(family);
    let client = tcp_nonblocking(family);
    let begun = sys::connect(client, address);
    assert_eq!(begun, Err(Errno(libc::EINPROGRESS)));
    await_events(client, libc::POLLOUT);
    (client, address)
}

fn corner_14_states_connect_until_it_says_so(family: Family) {
    let (client, address) = under_way(family);
    assert_eq!(socket_error(client), Errno(0));
    assert!(sys::getpeername(client).is_ok());
    send_all(client, b"x");
    assert_eq!(sys::connect(client, address), Ok(()));
    assert_eq!(sys::connect(client, address), Err(CONNECTED));
}

fn corner_14_states_shutdown_says_that_it_is_connected(family: Family) {
    let (client, address) = under_way(family);
    assert_eq!(sys::shutdown(client, libc::SHUT_WR), Ok(()));
    assert_eq!(sys::connect(client, address), Err(CONNECTED));
}

/// A socket that was shut down before it was connected cannot send afterwards.
fn expect_shut(family: Family, socket: Descriptor) {
    let (listening, address) = listener(family);
    for how in [libc::SHUT_RD, libc::SHUT_WR, libc::SHUT_RDWR] {
        let shut = sys::shutdown(socket, how);
        assert_eq!(shut, Err(Errno(libc::ENOTCONN)));
    }
    assert_eq!(poll_one(socket, ALL, 0), ALL | libc::POLLHUP);
    assert_eq!(poll_one(tcp(family), ALL, 0), libc::POLLOUT | libc::POLLHUP);
    assert_eq!(sys::recv(socket, &mut [0_u8; 4], 0), Ok(0));
    assert_eq!(sys::send(socket, b"x", libc::MSG_NOSIGNAL), Err(PIPE));
    assert_eq!(sys::connect(socket, address), Ok(()));
    let _server = sys::accept(listening).unwrap();
    assert_eq!(sys::send(socket, b"x", libc::MSG_NOSIGNAL), Err(PIPE));
}

fn corner_14_states_shutdown_before_connect(family: Family) {
    expect_shut(family, tcp(family));
}

fn corner_14_states_bind_of_an_accepted_socket(family: Family) {
    let (listening, address) = listener(family);
    set_int(listening, libc::IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    let client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    for own in [address, sys::getsockname(client).unwrap()] {
        assert_eq!(sys::bind(server, own), Err(Errno(libc::EINVAL)));
    }
    expect_alive(client, server);
}

fn corner_14_states_shutdown_of_a_bound_socket(family: Family) {
    let socket = tcp(family);
    sys::bind(socket, family.loopback(0)).unwrap();
    expect_shut(family, socket);
}

fn corner_14_states_addresses_from_one_port_twice(family: Family) {
    let (listening, address) = listener(family);
    let (_another, elsewhere) = listener(family);
    let bound = |to| {
        let socket = tcp(family);
        set_int(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
        sys::bind(socket, to).unwrap();
        socket
    };
    let one = bound(family.loopback(0));
    let own = sys::getsockname(one).unwrap();
    let other = bound(own);
    assert_eq!(sys::connect(one, address), Ok(()));
    let server = sys::accept(listening).unwrap();
    let refused = sys::connect(other, address);
    assert_eq!(refused, Err(Errno(libc::EADDRNOTAVAIL)));
    expect_alive(one, server);
    // A connection to another listener is another connection.
    assert_eq!(sys::connect(other, elsewhere), Ok(()));
    assert_eq!(sys::getsockname(other), Ok(own));
}

/// The connection belongs to another process.
fn corner_14_states_addresses_from_one_port_in_two_processes(family: Family) {
    let (listening, address) = listener(family);
    let (_another, elsewhere) = listener(family);
    let bound = move |to| {
        let socket = tcp(family);
        set_int(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
        sys::bind(socket, to).unwrap();
        socket
    };
    // Before any connection, so that the processes do not share one.
    let (tell, go, done) = (Baton::new(), Baton::new(), Baton::new());
    let child = fork_child(|| {
        let own = family.loopback(u16::try_from(tell.receive()).unwrap());
        let other = bound(own);
        let refused = sys::connect(other, address);
        assert_eq!(refused, Err(Errno(libc::EADDRNOTAVAIL)));
        assert_eq!(sys::connect(other, elsewhere), Ok(()));
        assert_eq!(sys::getsockname(other), Ok(own));
        let third = bound(own);
        done.pass();
        go.take();
        // The connection was reset, which leaves no state.
        assert_eq!(sys::connect(third, address), Ok(()));
    });
    let one = bound(family.loopback(0));
    let own = sys::getsockname(one).unwrap();
    assert_eq!(sys::connect(one, address), Ok(()));
    let server = sys::accept(listening).unwrap();
    tell.send(own.port().into());
    done.take();
    expect_alive(one, server);
    close_with_reset(one);
    go.pass();
    sys::accept(listening).unwrap();
    child.join();
}

fn corner_14_states_addresses_of_a_client(family: Family) {
    let (client, _server) = pair(family);
    let own = sys::getsockname(client).unwrap();
    for reuses in [0, 1] {
        for address in [own, family.any(own.port())] {
            let socket = tcp(family);
            set_int(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, reuses);
            assert_eq!(sys::bind(socket, address), Err(IN_USE), "{address}");
            sys::bind(socket, family.loopback(0)).unwrap();
        }
    }
}

fn corner_14_states_addresses_other_than_a_clients() {
    // Another case may have the port at one of the other addresses just then.
    assert!((0..10).any(|_| binds_beside_a_client()));
}

fn binds_beside_a_client() -> bool {
    let (client, _server) = pair(Family::V4);
    let port = sys::getsockname(client).unwrap().port();
    let socket = tcp(Family::V4);
    let beside = std::net::SocketAddr::from(([127, 0, 0, 2], port));
    let at_other = sys::bind(socket, beside);
    let six = tcp(Family::V6);
    assert_eq!(sys::bind(six, Family::V6.any(port)), Err(IN_USE));
    let six = tcp(Family::V6);
    set_int(six, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1);
    let of_other = sys::bind(six, Family::V6.any(port));
    at_other.and(of_other).is_ok()
}

fn corner_14_states_fast_open(family: Family) {
    let (client, server) = pair(family);
    let flags = libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL;
    assert_eq!(sys::send(client, b"x", flags), Err(CONNECTED));
    let to = sys::getpeername(client).unwrap();
    assert_eq!(sys::sendto(client, b"x", flags, to), Err(CONNECTED));
    expect_quiet(server, libc::POLLIN);
    for name in [libc::TCP_FASTOPEN, libc::TCP_FASTOPEN_CONNECT] {
        let set = sys::set_option(client, libc::IPPROTO_TCP, name, 1_i32);
        assert_eq!(set, Err(INVALID));
        assert_eq!(sys::option_int(client, libc::IPPROTO_TCP, name), Ok(0));
    }
    expect_alive(client, server);
    let (listening, address) = listener(family);
    let client = tcp_nonblocking(family);
    let under_way = sys::connect(client, address);
    assert_eq!(under_way, Err(Errno(libc::EINPROGRESS)));
    await_events(client, libc::POLLOUT);
    assert_eq!(sys::sendto(client, b"x", flags, address), Ok(1), "once");
    assert_eq!(sys::sendto(client, b"y", flags, address), Err(CONNECTED));
    let server = sys::accept(listening).unwrap();
    expect_bytes(server, b"x");
}

fn corner_14_states_addresses_without_a_port() {
    let family = Family::V4;
    let listening = tcp(family);
    sys::bind(listening, family.any(0)).unwrap();
    sys::listen(listening, 8).unwrap();
    let to = family.loopback(sys::getsockname(listening).unwrap().port());
    for (own, shown) in [
        ([127, 0, 0, 2], [127, 0, 0, 2]),
        ([127, 0, 0, 1], [127, 0, 0, 1]),
        ([0, 0, 0, 0], [127, 0, 0, 1]),
    ] {
        let client = tcp(family);
        set_int(client, libc::IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
        sys::bind(client, (own, 0).into()).unwrap();
        assert_eq!(sys::getsockname(client), Ok((own, 0).into()));
        sys::connect(client, to).unwrap();
        let (server, from) = sys::accept_from(listening).unwrap();
        assert_eq!(sys::getsockname(client), Ok(from));
        assert_eq!(sys::getpeername(server), Ok(from));
        assert_eq!(from.ip(), std::net::IpAddr::from(shown));
        assert_ne!(from.port(), 0);
        expect_alive(client, server);
    }
}

fn corner_14_states_addresses_of_another_host() {
    let family = Family::V4;
    let listening = tcp(family);
    sys::bind(listening, family.any(0)).unwrap();
    sys::listen(listening, 8).unwrap();
    let to = family.loopback(sys::getsockname(listening).unwrap().port());
    for early in [0, 1] {
        let client = tcp_nonblocking(family);
        set_int(client, libc::IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, early);
        let set = sys::set_option(client, libc::IPPROTO_IP, libc::IP_TRANSPARENT, 1_i32);
        if set.is_err() {
            skip("IP_TRANSPARENT is not allowed");
        }
        sys::bind(client, ([192, 0, 2, 1], 0).into()).unwrap();
        let connected = sys::connect(client, to);
        assert!(connected.is_err(), "nobody answers there");
        expect_quiet(listening, libc::POLLIN);
    }
}

fn corner_14_states_addresses_of_another_form() {
    let listening = tcp(Family::V6);
    set_int(listening, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0);
    sys::bind(listening, Family::V6.any(0)).unwrap();
    sys::listen(listening, 8).unwrap();
    let port = sys::getsockname(listening).unwrap().port();
    let connected = |to: std::net::IpAddr| {
        let client = tcp(Family::V6);
        sys::connect(client, (to, port).into()).unwrap();
        (client, sys::accept(listening).unwrap())
    };
    let change = |socket, form: libc::c_int| {
        sys::set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_ADDRFORM, form)
    };
    let mapped = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    let (client, server) = connected(mapped.into());
    for socket in [client, server] {
        assert_eq!(change(socket, libc::AF_INET6), Err(INVALID));
        assert_eq!(change(socket, libc::AF_INET), Ok(()));
        assert!(sys::getsockname(socket).unwrap().is_ipv4());
        assert!(sys::getpeername(socket).unwrap().is_ipv4());
        let domain = sys::option_int(socket, libc::SOL_SOCKET, libc::SO_DOMAIN);
        assert_eq!(domain, Ok(libc::AF_INET));
        let again = change(socket, libc::AF_INET);
        assert_eq!(again, Err(Errno(libc::ENOPROTOOPT)));
    }
    expect_alive(client, server);
    let (client, server) = connected(std::net::Ipv6Addr::LOCALHOST.into());
    for socket in [client, server] {
        let form = sys::option_int(socket, libc::IPPROTO_IPV6, libc::IPV6_ADDRFORM);
        assert_eq!(form, Ok(libc::AF_INET6));
        let refused = Err(Errno(libc::EADDRNOTAVAIL));
        assert_eq!(change(socket, libc::AF_INET), refused);
        // Of a longer value its first word counts.
        let longer = [libc::AF_INET, 0, 0, 0, 0, 0];
        let answer = sys::set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_ADDRFORM, longer);
        assert_eq!(answer, refused);
    }
    assert_eq!(
        change(tcp(Family::V6), libc::AF_INET),
        Err(Errno(libc::ENOTCONN))
    );
    expect_alive(client, server);
}
