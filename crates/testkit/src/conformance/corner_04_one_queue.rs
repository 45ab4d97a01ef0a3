//! Corner 4: a connection belongs to the process that accepts first. Processes that are busy, are killed, or start
//! later, keep and miss no connection.

use std::time::{Duration, Instant};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::corner_05_exec::{ask_echo, exec_child};
use crate::helpers::restarting;

cases! {
    families: [
        corner_04_one_queue_a_busy_worker_keeps_none,
        corner_04_one_queue_a_loop_that_looks_no_more_keeps_none,
        corner_04_one_queue_wakes_a_sleeping_loop_at_once,
        corner_04_one_queue_a_killed_worker_keeps_none,
        corner_04_one_queue_a_later_worker_takes_what_waits,
        corner_04_one_queue_workers_that_end_lose_none,
        corner_04_one_queue_signals_lose_none,
        corner_04_one_queue_after_an_exec_that_failed,
        corner_04_one_queue_large_answers,
        corner_04_one_queue_child_accepts_where_its_parent_listens,
        corner_04_one_queue_waits_over_an_exec,
        corner_04_one_queue_keeps_the_last_of_a_client_for_another_worker,
        corner_04_one_queue_threads_of_a_new_program,
        corner_04_one_queue_old_relatives_keep_none_from_a_new_program,
        corner_04_one_queue_a_look_keeps_none_from_a_new_program,
        corner_04_one_queue_a_look_of_a_new_program_keeps_none,
        corner_04_one_queue_an_edge_beside_a_new_program_is_told_once,
        corner_04_one_queue_ends_for_all_when_one_shuts_it,
    ];
}

/// Connections that each send their number.
fn numbered(address: std::net::SocketAddr, count: u8) -> Vec<Descriptor> {
    let made = (0..count).map(|number| {
        let client = connect_to(address);
        send_all(client, &[number]);
        client
    });
    made.collect()
}

fn echo_one(listening: Descriptor) {
    let server = sys::accept(listening).unwrap();
    let byte = receive_exact(server, 1);
    send_all(server, &byte);
    sys::close(server).unwrap();
}

fn expect_echoes(clients: Vec<Descriptor>) {
    for (number, client) in (0..).zip(clients) {
        expect_bytes(client, &[number]);
        expect_end(client);
        sys::close(client).unwrap();
    }
}

/// A child that has accepted one connection and does nothing more until it is released.
fn busy_worker(listening: Descriptor, address: std::net::SocketAddr) -> (Child, Baton, Descriptor) {
    let (accepted, end) = (Baton::new(), Baton::new());
    let worker = fork_child(|| {
        let server = sys::accept(listening).unwrap();
        accepted.pass();
        end.take();
        sys::close(server).unwrap();
    });
    let client = connect_to(address);
    accepted.take();
    (worker, end, client)
}

fn corner_04_one_queue_a_busy_worker_keeps_none(family: Family) {
    let (listening, address) = listener(family);
    let (worker, end, held) = busy_worker(listening, address);
    let idle = fork_child(|| (0..6).for_each(|_| echo_one(listening)));
    for number in 0..6 {
        // One after the other, also when no process waits in accept.
        let client = connect_to(address);
        send_all(client, &[number]);
        expect_bytes(client, &[number]);
        sys::close(client).unwrap();
    }
    idle.join();
    end.pass();
    worker.join();
    sys::close(held).unwrap();
}

/// Whoever accepts the last connection of a client that has ended gets its bytes, also where another process had all before it.
fn corner_04_one_queue_keeps_the_last_of_a_client_for_another_worker(family: Family) {
    const SERVED: usize = 100;
    let (listening, address) = listener(family);
    let ended = Baton::new();
    let worker = fork_child(|| {
        ended.take();
        echo_one(listening);
    });
    let client = fork_child(|| {
        sys::close(listening).unwrap();
        for _ in 0..SERVED {
            expect_echoes(numbered(address, 1));
        }
        send_all(connect_to(address), &[1]);
    });
    (0..SERVED).for_each(|_| echo_one(listening));
    client.join();
    ended.pass();
    worker.join();
    sys::close(listening).unwrap();
}

/// An event that a worker's set has reported may be accepted by any process, and so may later connections.
fn corner_04_one_queue_a_loop_that_looks_no_more_keeps_none(family: Family) {
    let (listening, address) = listener(family);
    let (looked, end) = (Baton::new(), Baton::new());
    let worker = fork_child(|| {
        let set = sys::epoll_create().unwrap();
        let events = libc::EPOLLIN.cast_unsigned();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, events, 1).unwrap();
        assert_eq!(sys::epoll_wait(set, 8, 10_000).unwrap().len(), 1);
        looked.pass();
        end.take();
    });
    let patience = libc::timeval {
        tv_sec: 5,
        tv_usec: 0,
    };
    sys::set_option(listening, libc::SOL_SOCKET, libc::SO_RCVTIMEO, patience).unwrap();
    let first = numbered(address, 1);
    looked.take();
    std::thread::sleep(Duration::from_millis(10));
    echo_one(listening);
    expect_echoes(first);
    for _ in 0..3 {
        let next = numbered(address, 1);
        echo_one(listening);
        expect_echoes(next);
    }
    end.pass();
    worker.join();
}

/// A loop that has nothing but the listener is woken by the queue. It answers as soon as a process that sleeps in
/// `accept`: nothing else says on every machine what "at once" is.
fn corner_04_one_queue_wakes_a_sleeping_loop_at_once(family: Family) {
    let ((queued, looped), (plain, blocked)) = (listener(family), listener(family));
    let workers = [
        fork_child(|| {
            let set = sys::epoll_create().unwrap();
            let events = libc::EPOLLIN.cast_unsigned();
            sys::epoll_control(set, libc::EPOLL_CTL_ADD, queued, events, 1).unwrap();
            loop {
                assert_eq!(sys::epoll_wait(set, 1, 10_000).unwrap().len(), 1);
                echo_one(queued);
            }
        }),
        fork_child(|| {
            loop {
                echo_one(plain);
            }
        }),
    ];
    let answer_of_a_sleeper = |address| {
        // Until the worker sleeps.
        std::thread::sleep(Duration::from_millis(4));
        let began = Instant::now();
        expect_echoes(numbered(address, 1));
        began.elapsed()
    };
    let (mut by_loop, mut by_accept) = (Duration::MAX, Duration::MAX);
    eventually("a loop answers as soon as a blocking accept", || {
        by_accept = by_accept.min(answer_of_a_sleeper(blocked));
        by_loop = by_loop.min(answer_of_a_sleeper(looped));
        by_loop < by_accept + Duration::from_micros(700)
    });
    workers.iter().for_each(Child::kill);
}

fn corner_04_one_queue_a_killed_worker_keeps_none(family: Family) {
    let (listening, address) = listener(family);
    let (worker, _end, held) = busy_worker(listening, address);
    let waiting = numbered(address, 6);
    worker.kill();
    (0..6).for_each(|_| echo_one(listening));
    expect_echoes(waiting);
    sys::close(held).unwrap();
}

fn corner_04_one_queue_a_later_worker_takes_what_waits(family: Family) {
    let (listening, address) = listener(family);
    let (worker, end, held) = busy_worker(listening, address);
    let waiting = numbered(address, 6);
    let later = fork_child(|| (0..6).for_each(|_| echo_one(listening)));
    expect_echoes(waiting);
    later.join();
    end.pass();
    worker.join();
    sys::close(held).unwrap();
}

fn corner_04_one_queue_workers_that_end_lose_none(family: Family) {
    const EACH: u8 = 3;
    const WORKERS: u8 = 12;
    let (listening, address) = listener(family);
    let work = || (0..EACH).for_each(|_| echo_one(listening));
    let mut workers: Vec<_> = (0..WORKERS / 2).map(|_| fork_child(work)).collect();
    let clients = numbered(address, EACH * WORKERS);
    workers.extend((0..WORKERS / 2).map(|_| fork_child(work)));
    expect_echoes(clients);
    workers.iter().for_each(Child::join);
}

/// A signal may come at any moment of an accept. Few of them come between a client's connect and what it says first.
fn corner_04_one_queue_signals_lose_none(family: Family) {
    const COUNT: usize = 3000;
    restarting();
    let (listening, address) = listener(family);
    let worker = fork_child(|| {
        let set = sys::epoll_create().unwrap();
        let events = libc::EPOLLIN.cast_unsigned();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, events, 1).unwrap();
        for _ in 0..COUNT {
            let told = uninterrupted(|| sys::epoll_wait(set, 1, 10_000)).unwrap();
            assert_eq!(told.len(), 1);
            echo_one(listening);
        }
    });
    let (clients, _) = start_thread(move || {
        (0..COUNT).for_each(|_| expect_echoes(numbered(address, 1)));
    });
    while !clients.is_finished() {
        let _ = sys::kill(worker.process, libc::SIGUSR1);
        std::thread::sleep(Duration::from_micros(50));
    }
    join_thread(clients);
    worker.join();
}

fn corner_04_one_queue_after_an_exec_that_failed(family: Family) {
    let (listening, address) = listener(family);
    let ready = Baton::new();
    let worker = fork_child(|| {
        let arguments = [c"/nowhere".as_ptr(), core::ptr::null()];
        // SAFETY: a list of one string.
        let failed = unsafe { libc::execv(c"/nowhere".as_ptr(), arguments.as_ptr()) };
        assert_eq!(failed, -1);
        ready.pass();
        (0..4).for_each(|_| echo_one(listening));
    });
    ready.take();
    expect_echoes(numbered(address, 4));
    worker.join();
}

/// More bytes than fit into a new connection's buffers, in both directions.
fn corner_04_one_queue_large_answers(family: Family) {
    const LENGTH: usize = 3_000_000;
    let (listening, address) = listener(family);
    let worker = fork_child(|| {
        let server = sys::accept(listening).unwrap();
        expect_pattern(server, 0, LENGTH);
        send_pattern(server, 0, LENGTH);
        sys::close(server).unwrap();
    });
    let client = connect_to(address);
    send_pattern(client, 0, LENGTH);
    expect_pattern(client, 0, LENGTH);
    expect_end(client);
    worker.join();
}

/// The child inherits the socket before any process listens on it.
fn corner_04_one_queue_child_accepts_where_its_parent_listens(family: Family) {
    let listening = tcp(family);
    sys::bind(listening, family.loopback(0)).unwrap();
    let listens = Baton::new();
    let child = fork_child(|| {
        listens.take();
        echo_one(listening);
    });
    sys::listen(listening, 16).unwrap();
    let address = sys::getsockname(listening).unwrap();
    listens.pass();
    // The accept waits until a connection arrives.
    std::thread::sleep(Duration::from_millis(50));
    expect_echoes(numbered(address, 1));
    child.join();
}

fn corner_04_one_queue_waits_over_an_exec(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    let child = exec_child(&["accept-echo"], listening, &["1"], true);
    ask_echo(client, b"waited");
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    child.join();
    sys::close(client).unwrap();
}

fn corner_04_one_queue_old_relatives_keep_none_from_a_new_program(family: Family) {
    // As in an upgrade: an old worker has polled and ends. Its master has the listener and never accepts.
    let (listening, address) = listener(family);
    let [remote, local] = sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM).unwrap();
    sys::fcntl(local, libc::F_SETFD, libc::FD_CLOEXEC).unwrap();
    let worker = fork_child(|| {
        for _ in 0..4 {
            await_events(listening, libc::POLLIN);
        }
        sys::close(listening).unwrap();
    });
    let number = remote.to_string();
    let new = exec_child(&["accept-when-told"], listening, &[&number], true);
    assert_eq!(sys::read(local, &mut [0; 8]), Ok(4));
    let client = connect_to(address);
    worker.join();
    assert_eq!(sys::write(local, b"go"), Ok(2));
    ask_echo(client, b"for the new program");
    sys::close(client).unwrap();
    new.join();
}

/// A listener that does not block, and a child with it that has executed a helper, and a socket to talk to it.
fn new_program(
    family: Family,
    helper: &str,
) -> (Descriptor, std::net::SocketAddr, Child, Descriptor) {
    let (listening, address) = listener(family);
    sys::fcntl(listening, libc::F_SETFL, libc::O_NONBLOCK).unwrap();
    let [remote, local] = sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM).unwrap();
    sys::fcntl(local, libc::F_SETFD, libc::FD_CLOEXEC).unwrap();
    let new = exec_child(&[helper], listening, &[&remote.to_string()], true);
    sys::close(remote).unwrap();
    (listening, address, new, local)
}

fn corner_04_one_queue_a_look_keeps_none_from_a_new_program(family: Family) {
    let (listening, address, new, control) = new_program(family, "accept-at-once-when-told");
    assert_eq!(sys::read(control, &mut [0; 8]), Ok(4));
    let client = connect_to(address);
    // Twice: the connection is still there after the first look.
    await_events(listening, libc::POLLIN);
    await_events(listening, libc::POLLIN);
    assert_eq!(sys::write(control, b"go"), Ok(2));
    ask_echo(client, b"for the new program");
    sys::close(client).unwrap();
    new.join();
}

fn corner_04_one_queue_a_look_of_a_new_program_keeps_none(family: Family) {
    let (listening, address, new, control) = new_program(family, "look-when-told");
    let client = connect_to(address);
    assert_eq!(sys::read(control, &mut [0; 8]), Ok(4));
    send_all(client, &[0]);
    let server = sys::accept4(listening, 0).expect("accept4");
    expect_bytes(server, &[0]);
    sys::close(server).unwrap();
    assert_eq!(sys::write(control, b"go"), Ok(2));
    new.join();
    sys::close(client).unwrap();
}

fn corner_04_one_queue_an_edge_beside_a_new_program_is_told_once(family: Family) {
    let (listening, address, new, control) = new_program(family, "accept-at-once-when-told");
    assert_eq!(sys::read(control, &mut [0; 8]), Ok(4));
    let set = sys::epoll_create().unwrap();
    let events = sys::IN | libc::EPOLLET.cast_unsigned();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, events, 7).unwrap();
    let told = |timeout| sys::epoll_wait(set, 8, timeout).unwrap().len();
    assert_eq!(told(0), 0);
    let clients = [connect_to(address), connect_to(address)];
    eventually("the set is told", || told(100) == 1);
    // Nothing has come since, and the connections wait as before.
    while told(20) > 0 {}
    let server = sys::accept4(listening, 0).unwrap();
    expect_alive(clients[0], server);
    sys::close(set).unwrap();
    sys::close(listening).unwrap();
    assert_eq!(sys::write(control, b"go"), Ok(2));
    ask_echo(clients[1], b"for the new program");
    sys::close(clients[1]).unwrap();
    new.join();
}

fn corner_04_one_queue_threads_of_a_new_program(family: Family) {
    // The threads find the listener that was inherited over the exec at the same time.
    for _ in 0..4 {
        let listening = tcp(family);
        sys::set_option(listening, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 1).unwrap();
        sys::bind(listening, family.loopback(0)).unwrap();
        sys::listen(listening, 16).unwrap();
        let address = sys::getsockname(listening).unwrap();
        let [remote, local] = sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM).unwrap();
        sys::fcntl(local, libc::F_SETFD, libc::FD_CLOEXEC).unwrap();
        let number = remote.to_string();
        let new = exec_child(&["watch-in-threads"], listening, &[&number], true);
        sys::close(remote).unwrap();
        sys::close(listening).unwrap();
        for _ in 0..4 {
            assert_eq!(sys::read(local, &mut [0; 4]), Ok(4));
            let client = connect_to(address);
            ask_echo(client, b"for whichever thread");
            sys::close(client).unwrap();
        }
        new.join();
        sys::close(local).unwrap();
    }
}

fn corner_04_one_queue_ends_for_all_when_one_shuts_it(family: Family) {
    let (listening, address) = listener(family);
    let shut = Baton::new();
    let child = fork_child(|| {
        shut.take();
        assert_eq!(sys::accept(listening), Err(Errno(libc::EINVAL)));
    });
    sys::shutdown(listening, libc::SHUT_RDWR).unwrap();
    let refused = sys::connect(tcp(family), address);
    assert_eq!(refused, Err(Errno(libc::ECONNREFUSED)));
    shut.pass();
    child.join();
}
