//! `TCP_DEFER_ACCEPT`: a connection can be accepted when its client has sent bytes, or the time is over.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use netchannel_testkit::far::Side;
use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::corner_13_timeouts::set_timeout;

cases! {
    families: [
        deferred_silent_client_is_nobodys,
        deferred_accept_waits_for_data,
        deferred_client_asks_for_urgent_data,
        deferred_data_before_the_look,
        deferred_epoll_level,
        deferred_epoll_edge,
        deferred_select,
        deferred_client_in_a_set,
        deferred_client_is_told,
        deferred_client_has_two_numbers,
        deferred_time_is_over,
        deferred_time_is_over_in_accept,
        deferred_time_is_over_in_epoll,
        deferred_client_waits_for_the_first_word,
        deferred_end_comes,
        deferred_half_close_comes,
        deferred_reset_never_comes,
        deferred_reset_after_data_comes,
        deferred_killed_client_comes,
        deferred_in_the_order_of_speaking,
        deferred_more_than_the_backlog,
        held_back_before_a_deferred_accept,
        deferred_set_after_listen,
        deferred_taken_back,
        deferred_option_of_what_is_accepted,
        deferred_many_threads_accept,
        deferred_listener_is_closed,
    ];
}

const TCP: libc::c_int = libc::IPPROTO_TCP;
/// Longer than any case waits.
pub const LONG: libc::c_int = 60;

/// A listener that defers accept for `seconds` until clients send bytes.
pub fn deferring(family: Family, seconds: libc::c_int) -> (Descriptor, SocketAddr) {
    let listening = tcp_for(Side::Server, family);
    sys::bind(listening, family.loopback(0)).unwrap();
    // Before listen, because the other host is not notified of a later change.
    set_int(listening, TCP, libc::TCP_DEFER_ACCEPT, seconds);
    sys::listen(listening, 128).unwrap();
    (listening, sys::getsockname(listening).unwrap())
}

/// A deferring listener whose accept does not wait either.
pub fn nonblocking_deferring(family: Family, seconds: libc::c_int) -> (Descriptor, SocketAddr) {
    let (listening, address) = deferring(family, seconds);
    set_nonblocking(listening);
    (listening, address)
}

#[track_caller]
pub fn expect_none(listening: Descriptor) {
    assert_eq!(sys::accept(listening), Err(Errno(libc::EAGAIN)));
}

/// Accepts the next connection, whose client has sent these bytes.
#[track_caller]
pub fn accept_saying(listening: Descriptor, bytes: &[u8]) -> Descriptor {
    await_events(listening, libc::POLLIN);
    let server = sys::accept(listening).expect("a connection");
    set_blocking(server);
    expect_bytes(server, bytes);
    server
}

pub fn set_with(listening: Descriptor, events: u32) -> Descriptor {
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, events, 7).unwrap();
    set
}

pub fn reported(set: Descriptor, timeout: libc::c_int) -> usize {
    sys::epoll_wait(set, 8, timeout).unwrap().len()
}

/// TCP checks a silent client after one second, after three, seven and so on, with a precision of a tenth.
#[track_caller]
fn expect_seconds(start: Instant, seconds: u64) {
    let (passed, expected) = (start.elapsed(), Duration::from_secs(seconds));
    assert!(
        passed + Duration::from_millis(100) > expected,
        "after {passed:?} already"
    );
    assert!(
        passed < expected + Duration::from_millis(900),
        "only after {passed:?}"
    );
}

fn deferred_silent_client_is_nobodys(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let client = connect_to(address);
    // For the client the connection is like any other.
    assert_eq!(sys::getpeername(client), Ok(address));
    assert_eq!(
        poll_one(client, libc::POLLIN | libc::POLLOUT, 0),
        libc::POLLOUT
    );
    expect_quiet(listening, libc::POLLIN);
    expect_none(listening);
    send_all(client, b"now");
    let server = accept_saying(listening, b"now");
    expect_none(listening);
    assert_eq!(sys::getpeername(server), sys::getsockname(client));
    expect_alive(client, server);
}

fn deferred_client_asks_for_urgent_data(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let client = connect_to(address);
    let mut buffer = [0; 4];
    for (flags, error) in [(0, libc::EINVAL), (libc::MSG_ERRQUEUE, libc::EAGAIN)] {
        assert_eq!(
            sys::recv(client, &mut buffer, libc::MSG_OOB | flags),
            Err(Errno(error))
        );
    }
    expect_quiet(listening, libc::POLLIN);
    send_all(client, b"now");
    accept_saying(listening, b"now");
}

fn deferred_accept_waits_for_data(family: Family) {
    let (listening, address) = deferring(family, LONG);
    for round in 0..3 {
        let (accepting, task) = start_thread(move || sys::accept(listening).expect("accept"));
        await_asleep(task);
        let client = connect_to(address);
        await_asleep(task);
        std::thread::sleep(Duration::from_millis(20));
        assert!(!accepting.is_finished(), "round {round}");
        send_all(client, b"now");
        let server = join_thread(accepting);
        expect_bytes(server, b"now");
        expect_alive(client, server);
    }
}

fn deferred_data_before_the_look(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    for round in 0..20_u8 {
        let client = connect_to(address);
        send_all(client, &[round]);
        sys::close(accept_saying(listening, &[round])).unwrap();
        expect_end(client);
        sys::close(client).unwrap();
    }
    expect_none(listening);
}

fn deferred_epoll_level(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let set = set_with(listening, sys::IN);
    let first = connect_to(address);
    let second = connect_to(address);
    assert_eq!(reported(set, 100), 0);
    send_all(second, b"2");
    assert_eq!(reported(set, PATIENCE_MILLISECONDS), 1);
    assert_eq!(reported(set, 0), 1, "until it is accepted");
    accept_saying(listening, b"2");
    assert_eq!(reported(set, 0), 0);
    let (waiting, task) = start_thread(move || reported(set, PATIENCE_MILLISECONDS));
    await_asleep(task);
    send_all(first, b"1");
    assert_eq!(join_thread(waiting), 1);
    accept_saying(listening, b"1");
    assert_eq!(reported(set, 0), 0);
}

fn deferred_epoll_edge(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let set = set_with(listening, sys::IN | libc::EPOLLET.cast_unsigned());
    let clients = [connect_to(address), connect_to(address)];
    assert_eq!(reported(set, 100), 0);
    for client in clients {
        send_all(client, b"x");
        assert_eq!(reported(set, PATIENCE_MILLISECONDS), 1);
        assert_eq!(reported(set, 50), 0, "told once");
    }
    accept_saying(listening, b"x");
    accept_saying(listening, b"x");
    expect_none(listening);
}

/// A silent client's waits and its reported events stay unchanged when it sends.
fn deferred_client_in_a_set(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    for once in [0, libc::EPOLLONESHOT.cast_unsigned()] {
        let client = tcp(family);
        set_nonblocking(client);
        assert_eq!(sys::connect(client, address), Err(Errno(libc::EINPROGRESS)));
        let set = set_with(client, sys::OUT | sys::IN | once);
        assert_eq!(reported(set, PATIENCE_MILLISECONDS), 1);
        assert_eq!(sys::connect(client, address), Ok(()));
        assert_eq!(sys::connect(client, address), Err(Errno(libc::EISCONN)));
        let again = usize::from(once == 0);
        assert_eq!(reported(set, 0), again);
        expect_none(listening);
        send_all(client, b"now");
        assert_eq!(reported(set, 0), again);
        let server = accept_saying(listening, b"now");
        send_all(server, b"answer");
        sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, sys::IN | once, 7).unwrap();
        assert_eq!(reported(set, PATIENCE_MILLISECONDS), 1);
        expect_bytes(client, b"answer");
        assert_eq!(reported(set, 0), 0);
    }
}

/// Calls on a silent client return the same as on any connection, and the listener is not notified.
fn deferred_client_is_told(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let client = connect_to(address);
    let own = sys::getsockname(client).unwrap();
    assert_ne!(own.port(), 0);
    assert_eq!(sys::getpeername(client), Ok(address));
    let option = |level, name| sys::option_int(client, level, name);
    assert_eq!(option(libc::SOL_SOCKET, libc::SO_ERROR), Ok(0));
    set_int(client, TCP, libc::TCP_NODELAY, 1);
    assert_eq!(option(TCP, libc::TCP_NODELAY), Ok(1));
    set_nonblocking(client);
    assert_eq!(sys::recv(client, &mut [0; 4], 0), Err(Errno(libc::EAGAIN)));
    assert_eq!(sys::read(client, &mut [0; 4]), Err(Errno(libc::EAGAIN)));
    set_blocking(client);
    set_timeout(client, libc::SO_RCVTIMEO, 50);
    assert_eq!(sys::recv(client, &mut [0; 4], 0), Err(Errno(libc::EAGAIN)));
    assert_eq!(sys::ioctl_int(client, libc::FIONREAD, -1), Ok(0));
    assert_eq!(poll_one(client, libc::POLLIN, 20), 0);
    let (waiting, task) = start_thread(move || await_events(client, libc::POLLIN));
    await_asleep(task);
    expect_none(listening);
    send_all(client, b"now");
    let server = accept_saying(listening, b"now");
    assert_eq!(sys::getpeername(server), Ok(own));
    assert_eq!(sys::getsockname(client), Ok(own));
    send_all(server, b"answer");
    assert_eq!(join_thread(waiting), libc::POLLIN);
    expect_bytes(client, b"answer");
}

fn deferred_client_has_two_numbers(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    for speaks_first in [true, false] {
        let first = connect_to(address);
        let second = sys::dup(first).unwrap();
        let set = set_with(second, sys::IN);
        if !speaks_first {
            sys::close(sys::dup(second).unwrap()).unwrap();
        }
        expect_none(listening);
        send_all(if speaks_first { first } else { second }, b"one");
        let server = accept_saying(listening, b"one");
        for (client, word) in [(second, b"two"), (first, b"six")] {
            send_all(client, word);
            expect_bytes(server, word);
        }
        send_all(server, b"back");
        assert_eq!(reported(set, PATIENCE_MILLISECONDS), 1);
        expect_bytes(second, b"back");
        sys::close(first).unwrap();
        expect_alive(second, server);
        sys::close(second).unwrap();
        expect_end(server);
    }
    // The last of them ends it.
    let first = connect_to(address);
    let second = sys::dup(first).unwrap();
    sys::close(first).unwrap();
    expect_none(listening);
    sys::close(second).unwrap();
    await_events(listening, libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    set_blocking(server);
    expect_end(server);
}

fn deferred_select(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let client = connect_to(address);
    let is_reported = |milliseconds: i64| {
        let mut read = sys::Set::of(&[listening]);
        sys::select(listening, Some(&mut read), None, None, milliseconds).unwrap();
        read.has(listening)
    };
    assert!(!is_reported(100));
    send_all(client, b"now");
    assert!(is_reported(i64::from(PATIENCE_MILLISECONDS)));
    accept_saying(listening, b"now");
    assert!(!is_reported(0));
}

fn deferred_time_is_over(family: Family) {
    let (listening, address) = nonblocking_deferring(family, 1);
    let start = Instant::now();
    let client = connect_to(address);
    expect_quiet(listening, libc::POLLIN);
    await_events(listening, libc::POLLIN);
    expect_seconds(start, 1);
    let server = sys::accept(listening).unwrap();
    set_blocking(server);
    assert_eq!(poll_one(server, libc::POLLIN, 0), 0, "it has said nothing");
    expect_alive(client, server);
}

fn deferred_time_is_over_in_accept(family: Family) {
    let (listening, address) = deferring(family, 2);
    // As the kernel rounds it.
    assert_eq!(
        sys::option_int(listening, TCP, libc::TCP_DEFER_ACCEPT),
        Ok(3)
    );
    let start = Instant::now();
    let client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    expect_seconds(start, 3);
    expect_alive(client, server);
}

fn deferred_time_is_over_in_epoll(family: Family) {
    let (listening, address) = nonblocking_deferring(family, 1);
    let set = set_with(listening, sys::IN);
    let start = Instant::now();
    let early = connect_to(address);
    std::thread::sleep(Duration::from_millis(300));
    let late = connect_to(address);
    for _ in [early, late] {
        assert_eq!(reported(set, PATIENCE_MILLISECONDS), 1);
        expect_seconds(start, 1);
        sys::accept(listening).unwrap();
    }
    expect_none(listening);
}

fn deferred_client_waits_for_the_first_word(family: Family) {
    let (listening, address) = deferring(family, 1);
    let (greeting, _) = start_thread(move || {
        let server = sys::accept(listening).unwrap();
        send_all(server, b"hello");
        expect_bytes(server, b"thanks");
    });
    let client = connect_to(address);
    expect_bytes(client, b"hello");
    send_all(client, b"thanks");
    join_thread(greeting);
}

fn deferred_end_comes(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let client = connect_to(address);
    expect_quiet(listening, libc::POLLIN);
    sys::close(client).unwrap();
    await_events(listening, libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    set_blocking(server);
    expect_end(server);
    // The same without a poll between.
    sys::close(connect_to(address)).unwrap();
    await_events(listening, libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    set_blocking(server);
    expect_end(server);
}

fn deferred_half_close_comes(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let client = connect_to(address);
    sys::shutdown(client, libc::SHUT_RD).unwrap();
    expect_quiet(listening, libc::POLLIN);
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    await_events(listening, libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    set_blocking(server);
    expect_end(server);
    let other = connect_to(address);
    expect_quiet(listening, libc::POLLIN);
    sys::shutdown(other, libc::SHUT_WR).unwrap();
    await_events(listening, libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    set_blocking(server);
    expect_end(server);
    send_all(server, b"bye");
    sys::close(server).unwrap();
    expect_bytes(other, b"bye");
    expect_end(other);
}

fn deferred_reset_never_comes(family: Family) {
    let (listening, address) = nonblocking_deferring(family, 1);
    let client = connect_to(address);
    expect_quiet(listening, libc::POLLIN);
    close_with_reset(client);
    close_with_reset(connect_to(address));
    assert_eq!(poll_one(listening, libc::POLLIN, 1500), 0);
    expect_none(listening);
    let client = connect_to(address);
    send_all(client, b"after");
    let server = accept_saying(listening, b"after");
    expect_alive(client, server);
}

fn deferred_reset_after_data_comes(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let client = connect_to(address);
    expect_quiet(listening, libc::POLLIN);
    send_all(client, b"x");
    close_with_reset(client);
    await_events(listening, libc::POLLIN);
    sys::accept(listening).unwrap();
    expect_none(listening);
}

fn deferred_killed_client_comes(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let connected = Baton::new();
    let client = fork_child(|| {
        sys::close(listening).unwrap();
        let _client = connect_to(address);
        connected.pass();
        std::thread::sleep(PATIENCE);
    });
    connected.take();
    expect_quiet(listening, libc::POLLIN);
    client.kill();
    await_events(listening, libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    set_blocking(server);
    expect_end(server);
}

fn deferred_in_the_order_of_speaking(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let clients = [0_u8, 1, 2].map(|name| (connect_to(address), name));
    expect_quiet(listening, libc::POLLIN);
    for (client, name) in clients.into_iter().rev() {
        send_all(client, &[name]);
        await_events(listening, libc::POLLIN);
    }
    for name in [2, 1, 0] {
        accept_saying(listening, &[name]);
    }
}

fn deferred_more_than_the_backlog(family: Family) {
    let (listening, address) = listener_with(family, 2);
    set_nonblocking(listening);
    set_int(listening, TCP, libc::TCP_DEFER_ACCEPT, LONG);
    // The backlog plus one connections may be silent. A connection beyond that is accepted without waiting for bytes.
    let silent = [
        connect_to(address),
        connect_to(address),
        connect_to(address),
    ];
    expect_quiet(listening, libc::POLLIN);
    let beyond = connect_to(address);
    await_events(listening, libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    set_blocking(server);
    expect_none(listening);
    expect_alive(beyond, server);
    for client in silent {
        send_all(client, b"x");
        let server = accept_saying(listening, b"x");
        expect_alive(client, server);
    }
}

fn held_back_before_a_deferred_accept(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let client = connect_to(address);
    set_int(client, TCP, libc::TCP_CORK, 1);
    send_all(client, b"held");
    assert_eq!(poll_one(listening, libc::POLLIN, 50), 0);
    set_int(client, TCP, libc::TCP_CORK, 0);
    accept_saying(listening, b"held");
    // After a while the held-back bytes are released by themselves.
    let client = connect_to(address);
    set_int(client, TCP, libc::TCP_CORK, 1);
    send_all(client, b"late");
    accept_saying(listening, b"late");
}

fn deferred_set_after_listen(family: Family) {
    let (listening, address) = listener(family);
    set_nonblocking(listening);
    let before = connect_to(address);
    await_events(listening, libc::POLLIN);
    set_int(listening, TCP, libc::TCP_DEFER_ACCEPT, LONG);
    // Established connections are there.
    assert_eq!(poll_one(listening, libc::POLLIN, 0), libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    set_blocking(server);
    expect_alive(before, server);
    let after = connect_to(address);
    expect_quiet(listening, libc::POLLIN);
    send_all(after, b"now");
    accept_saying(listening, b"now");
    set_int(listening, TCP, libc::TCP_DEFER_ACCEPT, 0);
    let plain = connect_to(address);
    await_events(listening, libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    set_blocking(server);
    expect_alive(plain, server);
}

fn deferred_taken_back(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let start = Instant::now();
    let client = connect_to(address);
    expect_quiet(listening, libc::POLLIN);
    // A connection that arrived before waits until TCP would have checked anyway.
    set_int(listening, TCP, libc::TCP_DEFER_ACCEPT, 0);
    await_events(listening, libc::POLLIN);
    expect_seconds(start, 1);
    let server = sys::accept(listening).unwrap();
    set_blocking(server);
    expect_alive(client, server);
}

fn deferred_option_of_what_is_accepted(family: Family) {
    let (listening, address) = nonblocking_deferring(family, 5);
    let client = connect_to(address);
    send_all(client, b"now");
    let server = accept_saying(listening, b"now");
    let option = |socket| sys::option_int(socket, TCP, libc::TCP_DEFER_ACCEPT);
    assert_eq!(
        [listening, server, client].map(option),
        [Ok(7), Ok(0), Ok(0)]
    );
    set_int(server, TCP, libc::TCP_DEFER_ACCEPT, 2);
    set_int(client, TCP, libc::TCP_DEFER_ACCEPT, 9);
    assert_eq!(
        [listening, server, client].map(option),
        [Ok(7), Ok(3), Ok(15)]
    );
    expect_alive(client, server);
}

fn deferred_many_threads_accept(family: Family) {
    let (listening, address) = deferring(family, LONG);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            start_thread(move || {
                let server = sys::accept(listening).expect("accept");
                let byte = receive_exact(server, 1)[0];
                // Busy for as long as the client wants.
                expect_bytes(server, b"end");
                byte
            })
        })
        .collect();
    threads.iter().for_each(|(_, task)| await_asleep(*task));
    let clients: Vec<_> = (0..3_u8).map(|name| (connect_to(address), name)).collect();
    std::thread::sleep(Duration::from_millis(50));
    for (client, name) in clients.iter().rev() {
        send_all(*client, &[*name]);
        std::thread::sleep(Duration::from_millis(20));
    }
    clients
        .iter()
        .for_each(|(client, _)| send_all(*client, b"end"));
    let mut received: Vec<u8> = threads
        .into_iter()
        .map(|(one, _)| join_thread(one))
        .collect();
    received.sort_unstable();
    assert_eq!(received, [0, 1, 2]);
}

/// A client that sends to a closed listener is reset.
fn deferred_listener_is_closed(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let client = connect_to(address);
    expect_quiet(listening, libc::POLLIN);
    sys::close(listening).unwrap();
    let _ = sys::send(client, b"x", libc::MSG_NOSIGNAL);
    await_events(client, libc::POLLIN);
    let answer = sys::recv(client, &mut [0; 4], 0);
    assert_eq!(answer, Err(Errno(libc::ECONNRESET)));
}
