//! Corner 12: connecting without blocking, refusals, names and ports.

use std::time::{Duration, Instant};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno};

use crate::case::cases;

cases! {
    families: [
        corner_12_nonblocking_connect_poll,
        corner_12_nonblocking_connect_epoll_edge,
        corner_12_nonblocking_connect_select,
        corner_12_nonblocking_connect_called_again,
        corner_12_nonblocking_connect_refused,
        corner_12_nonblocking_connect_refused_epoll,
        corner_12_nonblocking_connect_refused_recv_tells,
        corner_12_nonblocking_connect_hundred_at_once,
        corner_12_epoll_added_before_connect,
        corner_12_blocking_connect_refused_at_once,
        corner_12_connect_again_after_refusal,
        corner_12_connect_twice_is_connected,
        corner_12_connect_bound_socket_keeps_its_port,
        corner_12_bind_zero_agrees_with_getsockname,
        corner_12_bind_taken_port,
        corner_12_names_agree_at_both_ends,
        corner_12_accept_tells_the_peer,
        corner_12_names_of_listener_on_any,
        corner_12_connect_to_any_address,
        corner_12_backlog_counts_what_waits,
        corner_12_backlog_full_waits,
        corner_12_backlog_full_send_timeout,
        corner_12_connect_wrong_family,
        corner_12_connect_on_listener,
        corner_12_send_before_accept,
        corner_12_client_closes_before_accept,
        corner_12_client_resets_before_accept,
        corner_12_close_connecting_socket,
        corner_12_unconnected_calls,
    ];
}

fn start_connect(family: Family, address: std::net::SocketAddr) -> sys::Descriptor {
    let socket = tcp_nonblocking(family);
    assert_eq!(sys::connect(socket, address), Err(Errno(libc::EINPROGRESS)));
    socket
}

fn corner_12_nonblocking_connect_poll(family: Family) {
    let (listening, address) = listener(family);
    let client = start_connect(family, address);
    assert_eq!(
        await_events(client, libc::POLLIN | libc::POLLOUT),
        libc::POLLOUT
    );
    assert_eq!(socket_error(client), Errno(0));
    expect_alive(client, sys::accept(listening).unwrap());
}

fn corner_12_nonblocking_connect_epoll_edge(family: Family) {
    let (listening, address) = listener(family);
    let client = start_connect(family, address);
    let set = sys::epoll_create().unwrap();
    let events = sys::IN | sys::OUT | sys::RDHUP | sys::ET;
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, events, 4).unwrap();
    let reported = sys::epoll_wait(set, 4, 10_000).unwrap();
    assert_eq!(
        reported,
        [sys::Event {
            data: 4,
            events: sys::OUT
        }]
    );
    assert_eq!(sys::epoll_wait(set, 4, QUIET_MILLISECONDS), Ok(Vec::new()));
    let server = sys::accept(listening).unwrap();
    send_all(server, b"x");
    let reported = sys::epoll_wait(set, 4, 10_000).unwrap();
    assert_eq!(
        reported,
        [sys::Event {
            data: 4,
            events: sys::IN | sys::OUT
        }]
    );
}

fn corner_12_nonblocking_connect_select(family: Family) {
    let (listening, address) = listener(family);
    let client = start_connect(family, address);
    let mut read = sys::Set::of(&[client]);
    let mut write = sys::Set::of(&[client]);
    assert_eq!(
        sys::select(client, Some(&mut read), Some(&mut write), None, 10_000),
        Ok(1)
    );
    assert!(write.has(client) && !read.has(client));
    expect_alive(client, sys::accept(listening).unwrap());
}

fn corner_12_nonblocking_connect_called_again(family: Family) {
    let (listening, address) = listener(family);
    let client = start_connect(family, address);
    await_events(client, libc::POLLOUT);
    // The first call after the connection is established returns success, the next one EISCONN.
    assert_eq!(sys::connect(client, address), Ok(()));
    assert_eq!(sys::connect(client, address), Err(Errno(libc::EISCONN)));
    expect_alive(client, sys::accept(listening).unwrap());
}

fn corner_12_nonblocking_connect_refused(family: Family) {
    let client = start_connect(family, unused_address(family));
    let events = await_events(client, libc::POLLIN | libc::POLLOUT);
    let expected = libc::POLLIN | libc::POLLOUT | libc::POLLERR | libc::POLLHUP;
    assert_eq!(events, expected);
    assert_eq!(socket_error(client), Errno(libc::ECONNREFUSED));
    assert_eq!(socket_error(client), Errno(0), "cleared by reading it");
    assert_eq!(sys::getpeername(client), Err(Errno(libc::ENOTCONN)));
}

fn corner_12_nonblocking_connect_refused_epoll(family: Family) {
    let client = start_connect(family, unused_address(family));
    let set = sys::epoll_create().unwrap();
    let events = sys::OUT | sys::ET;
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, events, 1).unwrap();
    let reported = sys::epoll_wait(set, 4, 10_000).unwrap();
    let expected = sys::OUT | sys::ERR | sys::HUP;
    assert_eq!(
        reported,
        [sys::Event {
            data: 1,
            events: expected
        }]
    );
    assert_eq!(socket_error(client), Errno(libc::ECONNREFUSED));
}

fn corner_12_nonblocking_connect_refused_recv_tells(family: Family) {
    let client = start_connect(family, unused_address(family));
    await_events(client, libc::POLLERR);
    assert_eq!(
        sys::recv(client, &mut [0_u8; 4], 0),
        Err(Errno(libc::ECONNREFUSED))
    );
    assert_eq!(socket_error(client), Errno(0));
    let client = start_connect(family, unused_address(family));
    await_events(client, libc::POLLERR);
    let sent = sys::send(client, b"x", libc::MSG_NOSIGNAL);
    assert_eq!(sent, Err(Errno(libc::ECONNREFUSED)));
}

fn corner_12_nonblocking_connect_hundred_at_once(family: Family) {
    let (listening, address) = listener_with(family, 128);
    let clients: Vec<_> = (0..100).map(|_| start_connect(family, address)).collect();
    let mut waiting: Vec<_> = clients
        .iter()
        .map(|client| libc::pollfd {
            fd: *client,
            events: libc::POLLOUT,
            revents: 0,
        })
        .collect();
    while !waiting.is_empty() {
        assert!(
            sys::poll(&mut waiting, 10_000).unwrap() > 0,
            "{} never connect",
            waiting.len()
        );
        waiting.retain(|entry| entry.revents == 0);
    }
    for _ in &clients {
        let (server, peer) = sys::accept_from(listening).unwrap();
        let client = clients
            .iter()
            .find(|client| sys::getsockname(**client) == Ok(peer));
        expect_alive(*client.expect("one of the clients"), server);
    }
}

fn corner_12_epoll_added_before_connect(family: Family) {
    let (listening, address) = listener(family);
    let client = tcp_nonblocking(family);
    let set = sys::epoll_create().unwrap();
    let events = sys::IN | sys::OUT | sys::RDHUP | sys::ET;
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, events, 3).unwrap();
    let reported = sys::epoll_wait(set, 4, 0).unwrap();
    assert_eq!(
        reported,
        [sys::Event {
            data: 3,
            events: sys::OUT | sys::HUP
        }]
    );
    assert_eq!(sys::connect(client, address), Err(Errno(libc::EINPROGRESS)));
    let reported = sys::epoll_wait(set, 4, 10_000).unwrap();
    assert_eq!(
        reported,
        [sys::Event {
            data: 3,
            events: sys::OUT
        }]
    );
    let server = sys::accept(listening).unwrap();
    send_all(server, b"x");
    let reported = sys::epoll_wait(set, 4, 10_000).unwrap();
    assert_eq!(
        reported,
        [sys::Event {
            data: 3,
            events: sys::IN | sys::OUT
        }]
    );
    expect_alive(server, {
        expect_bytes(client, b"x");
        client
    });
}

fn corner_12_blocking_connect_refused_at_once(family: Family) {
    let address = unused_address(family);
    let start = Instant::now();
    for _ in 0..20 {
        let socket = tcp(family);
        assert_eq!(
            sys::connect(socket, address),
            Err(Errno(libc::ECONNREFUSED))
        );
        assert_eq!(socket_error(socket), Errno(0), "connect told it already");
        sys::close(socket).unwrap();
    }
    assert!(start.elapsed() < Duration::from_secs(2));
}

fn corner_12_connect_again_after_refusal(family: Family) {
    let holder = tcp(family);
    sys::bind(holder, family.loopback(0)).unwrap();
    let address = sys::getsockname(holder).unwrap();
    let socket = tcp(family);
    assert_eq!(
        sys::connect(socket, address),
        Err(Errno(libc::ECONNREFUSED))
    );
    sys::listen(holder, 8).unwrap();
    assert_eq!(sys::connect(socket, address), Ok(()));
    expect_alive(socket, sys::accept(holder).unwrap());
}

fn corner_12_connect_twice_is_connected(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    assert_eq!(sys::connect(client, address), Err(Errno(libc::EISCONN)));
    let server = sys::accept(listening).unwrap();
    assert_eq!(sys::connect(server, address), Err(Errno(libc::EISCONN)));
    assert_eq!(sys::listen(client, 4), Err(Errno(libc::EINVAL)));
    assert_eq!(sys::accept(client), Err(Errno(libc::EINVAL)));
    assert_eq!(
        sys::bind(client, family.loopback(0)),
        Err(Errno(libc::EINVAL))
    );
    expect_alive(client, server);
}

fn corner_12_connect_bound_socket_keeps_its_port(family: Family) {
    let (listening, address) = listener(family);
    let client = tcp(family);
    sys::bind(client, family.loopback(0)).unwrap();
    let bound = sys::getsockname(client).unwrap();
    assert_ne!(bound.port(), 0);
    sys::connect(client, address).unwrap();
    assert_eq!(sys::getsockname(client), Ok(bound));
    let (server, peer) = sys::accept_from(listening).unwrap();
    assert_eq!(peer, bound);
    expect_alive(client, server);
}

fn corner_12_bind_zero_agrees_with_getsockname(family: Family) {
    let socket = tcp(family);
    assert_eq!(sys::getsockname(socket), Ok(family.any(0)), "not bound yet");
    sys::bind(socket, family.loopback(0)).unwrap();
    let bound = sys::getsockname(socket).unwrap();
    assert_eq!(bound, family.loopback(bound.port()));
    assert_ne!(bound.port(), 0);
    sys::listen(socket, 8).unwrap();
    assert_eq!(sys::getsockname(socket), Ok(bound));
    expect_alive(connect_to(bound), sys::accept(socket).unwrap());
    // A listener that was never bound gets a port too.
    let socket = tcp(family);
    sys::listen(socket, 8).unwrap();
    let bound = sys::getsockname(socket).unwrap();
    assert_ne!(bound.port(), 0);
    expect_alive(
        connect_to(family.loopback(bound.port())),
        sys::accept(socket).unwrap(),
    );
}

fn corner_12_bind_taken_port(family: Family) {
    let (_listening, address) = listener(family);
    let socket = tcp(family);
    assert_eq!(sys::bind(socket, address), Err(Errno(libc::EADDRINUSE)));
    set_int(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    assert_eq!(
        sys::bind(socket, address),
        Err(Errno(libc::EADDRINUSE)),
        "it listens"
    );
    sys::bind(socket, family.loopback(0)).unwrap();
    assert_eq!(
        sys::bind(socket, family.loopback(0)),
        Err(Errno(libc::EINVAL)),
        "bound twice"
    );
}

fn corner_12_names_agree_at_both_ends(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    assert_eq!(sys::getpeername(client), Ok(address));
    assert_eq!(sys::getsockname(server), Ok(address));
    assert_eq!(sys::getpeername(server), sys::getsockname(client));
    assert_eq!(sys::getsockname(client).unwrap().ip(), address.ip());
    assert_eq!(sys::getpeername(listening), Err(Errno(libc::ENOTCONN)));
    // The names stay while the connection ends.
    let name = sys::getsockname(client).unwrap();
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    expect_end(server);
    assert_eq!(sys::getsockname(client), Ok(name));
    assert_eq!(sys::getpeername(client), Ok(address));
    sys::close(server).unwrap();
    expect_end(client);
    assert_eq!(sys::getsockname(client), Ok(name));
}

fn corner_12_accept_tells_the_peer(family: Family) {
    let (listening, address) = listener(family);
    for _ in 0..5 {
        let client = connect_to(address);
        let (server, peer) = sys::accept_from(listening).unwrap();
        assert_eq!(Ok(peer), sys::getsockname(client));
        assert_eq!(Ok(peer), sys::getpeername(server));
        sys::close(client).unwrap();
        sys::close(server).unwrap();
    }
}

fn corner_12_names_of_listener_on_any(family: Family) {
    let listening = tcp(family);
    sys::bind(listening, family.any(0)).unwrap();
    sys::listen(listening, 8).unwrap();
    let port = sys::getsockname(listening).unwrap().port();
    assert_eq!(sys::getsockname(listening), Ok(family.any(port)));
    let client = connect_to(family.loopback(port));
    let server = sys::accept(listening).unwrap();
    // The connection knows the address that was really used.
    assert_eq!(sys::getsockname(server), Ok(family.loopback(port)));
    assert_eq!(sys::getpeername(client), Ok(family.loopback(port)));
    expect_alive(client, server);
}

fn corner_12_connect_to_any_address(family: Family) {
    // To connect to the unspecified address is to connect to this host.
    let (listening, address) = listener(family);
    let client = connect_to(family.any(address.port()));
    let server = sys::accept(listening).unwrap();
    assert_eq!(sys::getpeername(client), Ok(address));
    assert_eq!(sys::getpeername(server), sys::getsockname(client));
    expect_alive(client, server);
}

fn corner_12_backlog_counts_what_waits(family: Family) {
    let (listening, address) = listener_with(family, 1);
    // An accepted connection no longer counts against the backlog, whichever end was closed.
    let clients: Vec<_> = (0..8)
        .map(|round| {
            let client = connect_to(address);
            let server = sys::accept(listening).unwrap();
            if round < 4 {
                sys::close(server).unwrap();
            }
            client
        })
        .collect();
    for client in &clients[..4] {
        expect_end(*client);
    }
}

fn corner_12_backlog_full_waits(family: Family) {
    let (listening, address) = listener_with(family, 1);
    let clients: Vec<_> = (0..3).map(|_| start_connect(family, address)).collect();
    let connected = |clients: &[sys::Descriptor]| {
        clients
            .iter()
            .filter(|client| poll_one(**client, libc::POLLOUT, 0) != 0)
            .count()
    };
    // Linux takes one connection more than the backlog.
    eventually("two connect", || connected(&clients) >= 2);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(connected(&clients), 2, "the third waits, it is not refused");
    for _ in 0..clients.len() {
        await_events(listening, libc::POLLIN);
        let server = sys::accept(listening).unwrap();
        send_all(server, b"welcome");
        sys::close(server).unwrap();
    }
    for client in clients {
        assert_eq!(receive_to_end(client), b"welcome");
    }
}

fn corner_12_backlog_full_send_timeout(family: Family) {
    let (_listening, address) = listener_with(family, 0);
    let _first = connect_to(address);
    let client = tcp(family);
    let timeout = libc::timeval {
        tv_sec: 0,
        tv_usec: 150_000,
    };
    sys::set_option(client, libc::SOL_SOCKET, libc::SO_SNDTIMEO, timeout).unwrap();
    let start = Instant::now();
    assert_eq!(sys::connect(client, address), Err(Errno(libc::EINPROGRESS)));
    assert!(
        start.elapsed() >= Duration::from_millis(140),
        "{:?}",
        start.elapsed()
    );
    let again = tcp_nonblocking(family);
    assert_eq!(sys::connect(again, address), Err(Errno(libc::EINPROGRESS)));
    assert_eq!(sys::connect(again, address), Err(Errno(libc::EALREADY)));
}

fn corner_12_connect_wrong_family(family: Family) {
    let other = if family == Family::V4 {
        Family::V6
    } else {
        Family::V4
    };
    let (_listening, address) = listener(other);
    let expected = match family {
        Family::V4 => libc::EAFNOSUPPORT,
        // An IPv6 socket takes an IPv4 address to be too short.
        Family::V6 => libc::EINVAL,
    };
    let answer = sys::connect(tcp(family), address);
    assert!(
        answer == Err(Errno(expected)) || answer == Err(Errno(libc::EAFNOSUPPORT)),
        "{answer:?}"
    );
    let mut short = sys::RawAddress::from(family.loopback(1));
    short.length = 3;
    assert_eq!(
        sys::connect_raw(tcp(family), &short),
        Err(Errno(libc::EINVAL))
    );
}

fn corner_12_connect_on_listener(family: Family) {
    let (listening, address) = listener(family);
    let (other, other_address) = listener(family);
    assert_eq!(
        sys::connect(listening, other_address),
        Err(Errno(libc::EISCONN))
    );
    expect_alive(connect_to(address), sys::accept(listening).unwrap());
    sys::close(other).unwrap();
}

fn corner_12_send_before_accept(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    send_pattern(client, 0, 20_000);
    let server = sys::accept(listening).unwrap();
    expect_pattern(server, 0, 20_000);
    expect_alive(client, server);
}

fn corner_12_client_closes_before_accept(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    let name = sys::getsockname(client).unwrap();
    send_all(client, b"short visit");
    sys::close(client).unwrap();
    let (server, peer) = sys::accept_from(listening).unwrap();
    assert_eq!(peer, name);
    assert_eq!(receive_to_end(server), b"short visit");
}

fn corner_12_client_resets_before_accept(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    close_with_reset(client);
    // Linux returns the connection from accept nevertheless.
    await_events(listening, libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    await_events(server, libc::POLLERR);
    assert_eq!(
        sys::recv(server, &mut [0_u8; 4], 0),
        Err(Errno(libc::ECONNRESET))
    );
    expect_alive(connect_to(address), sys::accept(listening).unwrap());
}

fn corner_12_close_connecting_socket(family: Family) {
    let (listening, address) = listener(family);
    set_nonblocking(listening);
    for _ in 0..20 {
        let client = start_connect(family, address);
        sys::close(client).unwrap();
    }
    // Connections established before the close are returned from accept and end. The next one works.
    let mut accepted = 0;
    while poll_one(listening, libc::POLLIN, 100) != 0 {
        let server = sys::accept(listening).unwrap();
        await_events(server, libc::POLLIN);
        sys::close(server).unwrap();
        accepted += 1;
    }
    assert!(accepted <= 20);
    let client = connect_to(address);
    await_events(listening, libc::POLLIN);
    expect_alive(client, sys::accept(listening).unwrap());
}

fn corner_12_unconnected_calls(family: Family) {
    let socket = tcp(family);
    assert_eq!(
        sys::recv(socket, &mut [0_u8; 4], 0),
        Err(Errno(libc::ENOTCONN))
    );
    assert_eq!(
        sys::send(socket, b"x", libc::MSG_NOSIGNAL),
        Err(Errno(libc::EPIPE))
    );
    assert_eq!(sys::getpeername(socket), Err(Errno(libc::ENOTCONN)));
    assert_eq!(sys::accept(socket), Err(Errno(libc::EINVAL)));
    assert_eq!(
        sys::shutdown(socket, libc::SHUT_RDWR),
        Err(Errno(libc::ENOTCONN))
    );
    assert_eq!(
        sys::sendto(socket, b"x", libc::MSG_NOSIGNAL, family.loopback(9)),
        { Err(Errno(libc::EPIPE)) }
    );
    let (listening, _) = listener(family);
    assert_eq!(
        sys::recv(listening, &mut [0_u8; 4], 0),
        Err(Errno(libc::ENOTCONN))
    );
    assert_eq!(
        sys::send(listening, b"x", libc::MSG_NOSIGNAL),
        Err(Errno(libc::EPIPE))
    );
}
