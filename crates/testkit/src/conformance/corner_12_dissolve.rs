//! Corner 12, `connect` to `AF_UNSPEC`: the connection ends, the socket stays and can be connected anew.

use std::os::fd::AsRawFd;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno, HUP, IN, RDHUP};

use crate::case::cases;
use crate::corner_06_rights::receiver;
use crate::helpers::send_and_wait;

cases! {
    families: [
        corner_12_dissolve_resets_the_peer,
        corner_12_dissolve_and_connect_again,
        corner_12_dissolve_of_an_accepted_socket,
        corner_12_dissolve_keeps_the_address_of_a_listener_that_is_gone,
        corner_12_dissolve_what_had_ended,
        corner_12_dissolve_keeps_a_bound_address,
        corner_12_dissolve_by_every_number,
        corner_12_dissolve_wakes_a_reader,
        corner_12_dissolve_in_an_event_loop,
        corner_12_dissolve_of_a_listener,
        corner_12_dissolve_gives_the_port_of_a_listener_back,
        corner_12_dissolve_of_a_passed_listener_in_a_set,
        corner_12_dissolve_of_what_is_not_connected,
        corner_12_dissolve_many_times,
        corner_12_dissolve_leaves_an_error,
        corner_12_dissolve_leaves_an_error_at_once,
        corner_12_dissolve_leaves_an_error_to_a_listener,
        corner_12_dissolve_of_a_silent_client_leaves_an_error,
        corner_12_dissolve_beyond_a_lower_limit,
        corner_12_dissolve_drops_what_came,
        corner_12_dissolve_of_what_a_child_has_too,
        corner_12_dissolve_leaves_no_end_to_a_child,
    ];
}

const ALL: libc::c_short = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
const NOT: Errno = Errno(libc::ENOTCONN);
const RESET: Errno = Errno(libc::ECONNRESET);

pub(crate) fn connect_unspecified(socket: Descriptor) -> sys::Outcome<()> {
    sys::connect_raw(socket, &sys::RawAddress::empty())
}

/// Dissolves the connection, and reads the error that Linux leaves in some states.
fn dissolve(socket: Descriptor) {
    assert_eq!(connect_unspecified(socket), Ok(()));
    let _ = socket_error(socket);
    assert_eq!(sys::getpeername(socket), Err(NOT));
    let received = sys::recv(socket, &mut [0_u8; 8], libc::MSG_DONTWAIT);
    assert_eq!(received, Err(NOT), "nothing is left of it");
    let hung = libc::POLLOUT | libc::POLLHUP;
    assert_eq!(poll_one(socket, ALL, 0), hung);
}

/// Connects to a new listener and exchanges bytes.
fn again(family: Family, socket: Descriptor) -> Descriptor {
    let (listening, address) = listener(family);
    assert_eq!(sys::connect(socket, address), Ok(()));
    let server = sys::accept(listening).unwrap();
    sys::close(listening).unwrap();
    expect_alive(socket, server);
    server
}

fn corner_12_dissolve_drops_what_came(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(server, client, b"never read");
    let child = fork_child(|| {
        assert_eq!(connect_unspecified(client), Ok(()));
        let received = sys::recv(client, &mut [0_u8; 8], libc::MSG_DONTWAIT);
        assert_eq!(received, Err(RESET));
    });
    child.join();
}

/// The socket keeps its number where the limit lies below it.
fn corner_12_dissolve_beyond_a_lower_limit(family: Family) {
    let (client, _server) = pair(family);
    let limit = sys::descriptor_limit().unwrap();
    sys::set_descriptor_limit(3).unwrap();
    let dissolved = connect_unspecified(client);
    sys::set_descriptor_limit(limit.rlim_cur).unwrap();
    assert_eq!(dissolved, Ok(()));
    let _ = socket_error(client);
    assert_eq!(sys::getpeername(client), Err(NOT));
}

fn corner_12_dissolve_resets_the_peer(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(client, server, b"read");
    dissolve(client);
    await_exactly(server, ALL, ALL | libc::POLLERR | libc::POLLHUP);
    expect_bytes(server, b"read");
    assert_eq!(sys::recv(server, &mut [0_u8; 8], 0), Err(RESET));
    assert_eq!(sys::recv(server, &mut [0_u8; 8], 0), Ok(0));
    assert_eq!(sys::getpeername(server), Err(NOT));
}

fn corner_12_dissolve_and_connect_again(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(server, client, b"never read");
    set_int(client, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    dissolve(client);
    again(family, client);
    let option = sys::option_int(client, libc::IPPROTO_TCP, libc::TCP_NODELAY);
    assert_eq!(option, Ok(1));
    dissolve(client);
    set_nonblocking(client);
    let (_listening, address) = listener(family);
    let connected = sys::connect(client, address);
    assert!(matches!(connected, Ok(()) | Err(Errno(libc::EINPROGRESS))));
    await_events(client, libc::POLLOUT);
    assert_eq!(socket_error(client), Errno(0));
}

fn corner_12_dissolve_of_an_accepted_socket(family: Family) {
    let (client, server) = pair(family);
    dissolve(server);
    await_exactly(client, ALL, ALL | libc::POLLERR | libc::POLLHUP);
    assert_eq!(socket_error(client), RESET);
    again(family, server);
}

fn corner_12_dissolve_keeps_the_address_of_a_listener_that_is_gone(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    sys::close(listening).unwrap();
    dissolve(server);
    assert_eq!(sys::getsockname(server).unwrap().ip(), address.ip());
    sys::close(client).unwrap();
}

fn corner_12_dissolve_what_had_ended(family: Family) {
    let (client, server) = pair(family);
    sys::close(server).unwrap();
    await_exactly(client, ALL, ALL);
    dissolve(client);
    let server = again(family, client);
    sys::shutdown(client, libc::SHUT_RDWR).unwrap();
    expect_end(server);
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    await_exactly(client, ALL, ALL | libc::POLLHUP);
    dissolve(client);
    again(family, client);
    let (client, server) = pair(family);
    close_with_reset(server);
    await_events(client, libc::POLLERR);
    dissolve(client);
    again(family, client);
}

fn corner_12_dissolve_keeps_a_bound_address(family: Family) {
    let bound = || {
        let socket = tcp(family);
        set_int(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
        socket
    };
    let first = bound();
    sys::bind(first, family.loopback(0)).unwrap();
    let address = sys::getsockname(first).unwrap();
    sys::close(first).unwrap();
    let client = bound();
    sys::bind(client, address).unwrap();
    for _ in 0..3 {
        let server = again(family, client);
        assert_eq!(sys::getpeername(server), Ok(address));
        dissolve(client);
        assert_eq!(sys::getsockname(client), Ok(address));
        await_events(server, libc::POLLERR);
    }
}

fn corner_12_dissolve_by_every_number(family: Family) {
    let (client, _server) = pair(family);
    let other = sys::dup(client).unwrap();
    dissolve(client);
    assert_eq!(sys::getpeername(other), Err(NOT));
    let server = again(family, other);
    assert!(sys::getpeername(client).is_ok());
    expect_alive(client, server);
    sys::close(other).unwrap();
    expect_alive(client, server);
    sys::close(client).unwrap();
    expect_end(server);
}

fn corner_12_dissolve_wakes_a_reader(family: Family) {
    let (client, _server) = pair(family);
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 8], 0));
    await_asleep(task);
    assert_eq!(connect_unspecified(client), Ok(()));
    assert_eq!(join_thread(thread), Err(Errno(libc::EPIPE)));
    let _ = socket_error(client);
    again(family, client);
}

fn corner_12_dissolve_in_an_event_loop(family: Family) {
    let (client, _server) = pair(family);
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN | RDHUP, 7).unwrap();
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap(), []);
    dissolve(client);
    let reported = |events| [sys::Event { data: 7, events }];
    assert_eq!(sys::epoll_wait(set, 4, 1000).unwrap(), reported(HUP));
    let server = again(family, client);
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap(), []);
    send_all(server, b"x");
    assert_eq!(sys::epoll_wait(set, 4, 1000).unwrap(), reported(IN));
    sys::epoll_control(set, libc::EPOLL_CTL_DEL, client, 0, 0).unwrap();
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap(), []);
}

fn corner_12_dissolve_of_a_listener(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    assert_eq!(connect_unspecified(listening), Ok(()));
    await_events(client, libc::POLLERR);
    assert_eq!(socket_error(client), RESET);
    let refused = sys::connect(tcp(family), address);
    assert_eq!(refused, Err(Errno(libc::ECONNREFUSED)));
    assert_eq!(sys::accept(listening), Err(Errno(libc::EINVAL)));
    sys::listen(listening, 8).unwrap();
    let client = connect_to(sys::getsockname(listening).unwrap());
    let server = sys::accept(listening).unwrap();
    expect_alive(client, server);
}

/// A listener that was dissolved keeps its port only if the program has named the port.
fn corner_12_dissolve_gives_the_port_of_a_listener_back(family: Family) {
    let free = tcp(family);
    sys::bind(free, family.loopback(0)).unwrap();
    let named = sys::getsockname(free).unwrap();
    sys::close(free).unwrap();
    for (bound, shuts) in [
        (None, false),
        (None, true),
        (Some(family.loopback(0)), false),
        (Some(named), false),
        (Some(named), true),
    ] {
        let listening = tcp(family);
        set_int(listening, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
        if let Some(bound) = bound {
            sys::bind(listening, bound).unwrap();
        }
        sys::listen(listening, 4).unwrap();
        let port = sys::getsockname(listening).unwrap().port();
        if shuts {
            sys::shutdown(listening, libc::SHUT_RDWR).unwrap();
        } else {
            assert_eq!(connect_unspecified(listening), Ok(()));
        }
        let (other, address) = listener(family);
        sys::connect(listening, address).unwrap();
        let server = sys::accept(other).unwrap();
        let seen = sys::getpeername(server).unwrap();
        assert_eq!(sys::getsockname(listening), Ok(seen));
        assert_eq!(seen.port() == port, bound == Some(named), "{bound:?}");
        expect_alive(listening, server);
    }
}

/// There is room for one event, and a connection waits that came before.
fn corner_12_dissolve_of_a_passed_listener_in_a_set(family: Family) {
    let (received, end) = (Baton::new(), Baton::new());
    let (child, channel) = receiver(|_listening| {
        received.pass();
        end.take();
    });
    let (listening, address) = listener(family);
    let _client = connect_to(address);
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, 0, 7).unwrap();
    sys::send_descriptor(channel, listening).unwrap();
    received.take();
    assert_eq!(connect_unspecified(listening), Ok(()));
    let told = sys::epoll_wait(set, 1, 0).unwrap();
    let told: Vec<_> = told
        .iter()
        .map(|event| (event.data, event.events))
        .collect();
    assert_eq!(told, [(7, HUP)]);
    end.pass();
    child.join();
}

fn corner_12_dissolve_of_what_is_not_connected(family: Family) {
    let socket = tcp(family);
    assert_eq!(connect_unspecified(socket), Ok(()));
    assert_eq!(connect_unspecified(socket), Ok(()));
    let mut short = sys::RawAddress::empty();
    short.length = 2;
    assert_eq!(sys::connect_raw(socket, &short), Ok(()));
    short.length = 1;
    assert_eq!(
        sys::connect_raw(socket, &short),
        Err(Errno(libc::EINVAL)),
        "no family"
    );
    again(family, socket);
}

fn corner_12_dissolve_many_times(family: Family) {
    let (listening, address) = listener(family);
    let client = tcp(family);
    for _ in 0..500 {
        assert_eq!(sys::connect(client, address), Ok(()));
        let server = sys::accept(listening).unwrap();
        send_all(client, b"x");
        expect_bytes(server, b"x");
        assert_eq!(connect_unspecified(client), Ok(()));
        let _ = socket_error(client);
        sys::close(server).unwrap();
    }
}

/// The first call that sends learns of it, also by `sendfile`.
fn corner_12_dissolve_leaves_an_error_to_a_listener(family: Family) {
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    for by_sendfile in [false, true] {
        let (client, _server) = pair(family);
        assert_eq!(connect_unspecified(client), Ok(()));
        sys::listen(client, 1).unwrap();
        let sent = || match by_sendfile {
            true => sys::sendfile(client, file.as_raw_fd(), Some(&mut 0), 8),
            false => sys::send(client, b"byte", libc::MSG_NOSIGNAL),
        };
        assert_eq!(sent(), Err(RESET));
    }
}

fn corner_12_dissolve_of_a_silent_client_leaves_an_error(family: Family) {
    let listening = tcp(family);
    set_int(listening, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 5);
    sys::bind(listening, family.loopback(0)).unwrap();
    sys::listen(listening, 8).unwrap();
    let address = sys::getsockname(listening).unwrap();
    let client = connect_to(address);
    assert_eq!(connect_unspecified(client), Ok(()));
    let sent = || sys::send(client, b"byte", libc::MSG_NOSIGNAL);
    assert_eq!(sent(), Err(RESET));
    assert_eq!(sent(), Err(Errno(libc::EPIPE)));
}

fn corner_12_dissolve_leaves_an_error(family: Family) {
    let (client, server) = pair(family);
    assert_eq!(connect_unspecified(client), Ok(()));
    let error = ALL | libc::POLLHUP | libc::POLLERR;
    assert_eq!(
        poll_one(client, ALL, 0),
        error & !(libc::POLLIN | libc::POLLRDHUP)
    );
    assert_eq!(socket_error(client), RESET);
    assert_eq!(socket_error(client), Errno(0));
    await_events(server, libc::POLLERR);
    // Without a connection, no error is left.
    assert_eq!(connect_unspecified(server), Ok(()));
    assert_eq!(socket_error(server), RESET);
    assert_eq!(connect_unspecified(server), Ok(()));
    assert_eq!(socket_error(server), Errno(0));
    let (client, _server) = pair(family);
    set_blocking(client);
    assert_eq!(connect_unspecified(client), Ok(()));
    let received = |flags| sys::recv(client, &mut [0_u8; 8], flags);
    assert_eq!(received(0), Err(RESET));
    assert_eq!(received(0), Err(NOT));
    again(family, client);
}

/// The peer was closed, and an option delays the acknowledgements of a connecting socket.
fn corner_12_dissolve_leaves_an_error_at_once(family: Family) {
    let times = (0..3).map(|_| {
        let (client, server) = pair(family);
        set_int(client, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 2);
        sys::close(server).unwrap();
        let _ = sys::send(client, b"x", libc::MSG_NOSIGNAL);
        let begun = std::time::Instant::now();
        assert_eq!(connect_unspecified(client), Ok(()));
        begun.elapsed()
    });
    let least = times.min().unwrap();
    assert!(least < std::time::Duration::from_millis(150), "{least:?}");
}

/// The address is removed for both processes, and the port is still shown. No state of the connection is left, not even
/// its end, for other processes that have the socket.
fn corner_12_dissolve_leaves_no_end_to_a_child(family: Family) {
    for parent_reads_error in [false, true] {
        let (client, server) = pair(family);
        send_and_wait(server, client, b"never read");
        send_and_wait(client, server, b"unread");
        let (parent_baton, child_baton) = (Baton::new(), Baton::new());
        let set = sys::epoll_create().unwrap();
        let child = fork_child(|| {
            child_baton.take();
            if !parent_reads_error {
                assert_eq!(socket_error(client), RESET);
            }
            assert_eq!(socket_error(client), Errno(0));
            let received = sys::recv(client, &mut [0_u8; 8], 0);
            assert_eq!(received, Err(NOT));
            let hung = libc::POLLOUT | libc::POLLHUP;
            assert_eq!(poll_one(client, ALL, 0), hung);
            sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN | RDHUP, 7).unwrap();
            let reported = [sys::Event {
                data: 7,
                events: HUP,
            }];
            assert_eq!(sys::epoll_wait(set, 4, 1000).unwrap(), reported);
            let sent = sys::send(client, b"x", libc::MSG_NOSIGNAL);
            assert_eq!(sent, Err(Errno(libc::EPIPE)));
            assert_eq!(sys::shutdown(client, libc::SHUT_RD), Err(NOT));
            parent_baton.pass();
        });
        assert_eq!(connect_unspecified(client), Ok(()));
        if parent_reads_error {
            assert_eq!(socket_error(client), RESET);
        }
        child_baton.pass();
        parent_baton.take();
        child.join();
        assert_eq!(sys::recv(client, &mut [0_u8; 8], 0), Ok(0), "it was shut");
        assert_eq!(poll_one(client, ALL, 0), ALL | libc::POLLHUP);
    }
}

fn corner_12_dissolve_of_what_a_child_has_too(family: Family) {
    for named in [false, true] {
        let (listening, address) = listener(family);
        let client = tcp(family);
        if named {
            sys::bind(client, family.loopback(0)).unwrap();
        }
        sys::connect(client, address).unwrap();
        let server = sys::accept(listening).unwrap();
        let before = sys::getsockname(client).unwrap();
        let (parent_baton, child_baton) = (Baton::new(), Baton::new());
        let expect = || {
            let after = sys::getsockname(client).unwrap();
            assert_eq!(after.port(), before.port());
            assert_eq!(after.ip().is_unspecified(), !named, "{after}");
        };
        let child = fork_child(|| {
            child_baton.take();
            expect();
            parent_baton.pass();
        });
        assert_eq!(connect_unspecified(client), Ok(()));
        expect();
        child_baton.pass();
        parent_baton.take();
        child.join();
        sys::close(client).unwrap();
        sys::close(server).unwrap();
    }
}
