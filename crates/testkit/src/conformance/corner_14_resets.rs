//! Corner 14: the causes of a reset, which end is notified of it, and when.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno};

use crate::case::cases;
use crate::helpers::send_and_wait;

cases! {
    families: [
        corner_14_reset_is_told_to_who_has_shut_its_side,
        corner_14_reset_after_the_end_is_a_broken_pipe,
        corner_14_reset_by_close_with_unread_bytes_after_shut_rd,
        corner_14_reset_by_bytes_that_came_too_late,
        corner_14_reset_is_told_after_the_bytes_before_it,
        corner_14_reset_is_none_after_both_ends,
        corner_14_reset_of_what_waits_when_the_listener_closes,
        corner_14_reset_of_what_waits_when_a_duplicate_is_shut,
        corner_14_edge_of_a_shutdown,
        corner_14_edge_of_a_reset_whose_error_was_taken,
        corner_14_poll_tells_a_listener_among_others,
        corner_14_epoll_tells_a_listener_among_others,
        corner_14_options_of_an_accepted_socket,
        corner_14_options_of_connections_that_wait,
    ];
}

const RESET: Errno = Errno(libc::ECONNRESET);
const PIPE: Errno = Errno(libc::EPIPE);

fn try_send(socket: sys::Descriptor) -> sys::Outcome<usize> {
    sys::send(socket, b"x", libc::MSG_NOSIGNAL)
}

fn corner_14_reset_is_told_to_who_has_shut_its_side(family: Family) {
    let (client, server) = pair(family);
    sys::shutdown(server, libc::SHUT_RDWR).unwrap();
    send_all(client, b"too late");
    eventually("the reset is there", || {
        poll_one(server, 0, 0) & libc::POLLERR != 0
    });
    assert_eq!(try_send(server), Err(RESET));
    assert_eq!(try_send(server), Err(PIPE));
}

fn corner_14_reset_after_the_end_is_a_broken_pipe(family: Family) {
    let (client, server) = pair(family);
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    send_and_see(server, client);
    sys::close(client).unwrap();
    eventually("the reset is there", || {
        poll_one(server, 0, 0) & libc::POLLERR != 0
    });
    assert_eq!(try_send(server), Err(PIPE));
}

fn send_and_see(from: sys::Descriptor, to: sys::Descriptor) {
    crate::helpers::send_and_wait(from, to, b"unread");
}

fn corner_14_reset_by_close_with_unread_bytes_after_shut_rd(family: Family) {
    let (client, server) = pair(family);
    send_and_see(client, server);
    sys::shutdown(server, libc::SHUT_RD).unwrap();
    sys::close(server).unwrap();
    await_events(client, libc::POLLIN);
    assert_eq!(sys::recv(client, &mut [0], 0), Err(RESET));
}

fn corner_14_reset_by_bytes_that_came_too_late(family: Family) {
    let (client, server) = pair(family);
    sys::shutdown(server, libc::SHUT_RDWR).unwrap();
    send_all(client, b"too late");
    sys::close(client).unwrap();
    eventually("the reset is there", || {
        poll_one(server, 0, 0) & libc::POLLERR != 0
    });
    assert_eq!(sys::send(server, &[], libc::MSG_NOSIGNAL), Err(RESET));
}

fn corner_14_reset_is_told_after_the_bytes_before_it(family: Family) {
    let (client, server) = pair(family);
    send_and_see(server, client);
    send_and_see(client, server);
    sys::close(client).unwrap();
    await_events(server, libc::POLLERR);
    let (mut one, mut other) = ([0; 3], [0; 16]);
    assert_eq!(sys::readv(server, &mut [&mut one, &mut other]), Ok(6));
    assert_eq!(sys::recv(server, &mut [0], 0), Err(RESET));
}

/// A connection that both sides have ended is over: who closes it with unread bytes resets nothing.
fn corner_14_reset_is_none_after_both_ends(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(client, server, b"unread");
    send_and_wait(server, client, b"read");
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    await_events(server, libc::POLLRDHUP);
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    eventually("over", || sys::getpeername(client).is_err());
    sys::close(server).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(socket_error(client), Errno(0));
    expect_bytes(client, b"read");
    expect_end(client);
}

fn corner_14_reset_of_what_waits_when_the_listener_closes(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    sys::close(listening).unwrap();
    await_events(client, libc::POLLIN);
    assert_eq!(sys::recv(client, &mut [0], 0), Err(RESET));
}

fn corner_14_reset_of_what_waits_when_a_duplicate_is_shut(family: Family) {
    let (listening, address) = listener(family);
    let again = sys::dup(listening).unwrap();
    let client = connect_to(address);
    sys::shutdown(again, libc::SHUT_RDWR).unwrap();
    await_events(client, libc::POLLIN);
    assert_eq!(sys::recv(client, &mut [0], 0), Err(RESET));
}

fn corner_14_edge_of_a_shutdown(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    let edge = libc::EPOLLET.cast_unsigned();
    sys::close(client).unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, server, sys::IN | edge, 1).unwrap();
    assert_eq!(sys::epoll_wait(set, 4, 1000).unwrap().len(), 1);
    assert!(sys::epoll_wait(set, 4, 0).unwrap().is_empty());
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    assert_eq!(sys::epoll_wait(set, 4, 1000).unwrap().len(), 1);
}

/// The set is asked when a call has taken the error of the reset.
fn corner_14_edge_of_a_reset_whose_error_was_taken(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    let edge = libc::EPOLLET.cast_unsigned();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, edge, 1).unwrap();
    sys::shutdown(client, libc::SHUT_RDWR).unwrap();
    assert_eq!(sys::epoll_wait(set, 4, 1000).unwrap().len(), 1);
    send_all(server, b"too late");
    eventually("the reset is there", || {
        poll_one(client, 0, 0) & libc::POLLERR != 0
    });
    assert_eq!(try_send(client), Err(RESET));
    assert_eq!(sys::epoll_wait(set, 4, 1000).unwrap().len(), 1);
}

fn corner_14_poll_tells_a_listener_among_others(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    let mut entries =
        [(listening, libc::POLLIN), (client, libc::POLLOUT)].map(|(fd, events)| libc::pollfd {
            fd,
            events,
            revents: 0,
        });
    assert_eq!(sys::poll(&mut entries, 0), Ok(2));
}

fn corner_14_epoll_tells_a_listener_among_others(family: Family) {
    for edge in [0, libc::EPOLLET.cast_unsigned()] {
        let (listening, address) = listener(family);
        let client = connect_to(address);
        let set = sys::epoll_create().unwrap();
        for (member, events) in [(client, sys::OUT), (listening, sys::IN | edge)] {
            sys::epoll_control(set, libc::EPOLL_CTL_ADD, member, events, 0).unwrap();
        }
        assert_eq!(sys::epoll_wait(set, 4, 0).unwrap().len(), 2);
    }
}

fn corner_14_options_of_an_accepted_socket(family: Family) {
    let (listening, address) = listener(family);
    set_int(listening, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, 5);
    set_int(listening, libc::SOL_SOCKET, libc::SO_PRIORITY, 5);
    set_int(listening, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    let _client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    let get = |level, name| sys::option_int(server, level, name).unwrap();
    assert_eq!(get(libc::IPPROTO_TCP, libc::TCP_FASTOPEN), 0);
    assert_eq!(get(libc::SOL_SOCKET, libc::SO_PRIORITY), 0);
    assert_eq!(get(libc::IPPROTO_TCP, libc::TCP_NODELAY), 1);
    if family == Family::V6 {
        let of_listener = sys::option_int(listening, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
        assert_eq!(of_listener, Ok(1), "it is bound to an address of IPv6");
        assert_eq!(get(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), 1);
    }
}

/// Options of a listener hold for connections that arrive later.
fn corner_14_options_of_connections_that_wait(family: Family) {
    let (listening, address) = listener(family);
    let set = |times: i32| {
        set_int(listening, libc::IPPROTO_TCP, libc::TCP_NODELAY, times % 2);
        set_int(
            listening,
            libc::SOL_SOCKET,
            libc::SO_KEEPALIVE,
            times % 3 % 2,
        );
        set_int(listening, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 70 + times);
        set_int(listening, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1 + times);
        let time = [i64::from(times), 0];
        sys::set_option(listening, libc::SOL_SOCKET, libc::SO_RCVTIMEO, time).unwrap();
        set_linger(listening, times);
    };
    let expect = |server, times: i32| {
        let get = |level, name| sys::option_int(server, level, name);
        assert_eq!(get(libc::IPPROTO_TCP, libc::TCP_NODELAY), Ok(times % 2));
        assert_eq!(get(libc::SOL_SOCKET, libc::SO_KEEPALIVE), Ok(times % 3 % 2));
        assert_eq!(get(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), Ok(70 + times));
        assert_eq!(get(libc::SOL_SOCKET, libc::SO_RCVLOWAT), Ok(1 + times));
        let time = sys::option::<[i64; 2]>(server, libc::SOL_SOCKET, libc::SO_RCVTIMEO);
        assert_eq!(time, Ok([i64::from(times), 0]));
        let linger = sys::option::<[i32; 2]>(server, libc::SOL_SOCKET, libc::SO_LINGER);
        assert_eq!(linger, Ok([1, times]));
    };
    // Over a new link, over a known link, and where a child has the listener, too.
    for shared in [false, false, true, true] {
        let end = Baton::new();
        let child = shared.then(|| fork_child(|| end.take()));
        let mut clients = Vec::new();
        for times in 1..=4 {
            set(times);
            clients.extend([0; 2].map(|_| connect_to(address)));
            // Between hosts the client is connected a moment before its server.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        set(5);
        for times in [1, 1, 2, 2, 3, 3, 4, 4] {
            let server = sys::accept(listening).unwrap();
            expect(server, times);
            set_linger(server, 0);
            sys::close(server).unwrap();
        }
        let last = connect_to(address);
        expect(sys::accept(listening).unwrap(), 5);
        sys::close(last).unwrap();
        for client in clients {
            sys::close(client).unwrap();
        }
        end.pass();
        child.inspect(Child::join);
    }
}
