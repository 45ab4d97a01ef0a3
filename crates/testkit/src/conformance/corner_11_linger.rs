//! Corner 11: SO_LINGER, and delivery of sent bytes although the sender exits or is killed.

use std::time::{Duration, Instant};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::helpers::wait_to_be_killed;

cases! {
    families: [
        corner_11_linger_zero_resets,
        corner_11_linger_zero_drops_unsent_data,
        corner_11_linger_zero_at_exit_resets,
        corner_11_linger_positive_waits_for_the_reader,
        corner_11_linger_positive_gives_up_in_time,
        corner_11_linger_positive_nonblocking_socket,
        corner_11_linger_positive_nothing_unsent_returns_at_once,
        corner_11_linger_off_returns_at_once,
        corner_11_exit_delivers_small,
        corner_11_exit_delivers_full_buffers,
        corner_11_exit_without_close_delivers_several_connections,
        corner_11_kill_delivers_small,
        corner_11_kill_delivers_full_buffers,
        corner_11_kill_with_unread_data_resets,
        corner_11_kill_with_unread_data_resets_nothing_that_is_over,
        corner_11_kill_without_unread_data_ends,
        corner_11_kill_while_peer_sends,
        corner_11_kill_while_peer_sleeps_in_recv,
        corner_11_kill_while_peer_sleeps_in_epoll,
        corner_11_kill_while_peer_that_shut_a_sender_sleeps_in_recv,
        corner_11_kill_while_peer_that_shut_a_sender_sleeps_in_poll,
        corner_11_kill_while_peer_that_shut_a_sender_sleeps_in_epoll,
        corner_11_kill_sleeper_in_recv,
        corner_11_kill_listener_process,
        corner_11_kill_client_before_accept,
        corner_11_kill_client_between_two_accepts,
        corner_11_close_with_full_buffers_delivers,
        corner_11_abort_and_segfault_deliver,
        corner_11_close_thousand_connections_in_turn,
        corner_11_linger_refused_has_no_effect,
        corner_11_kill_with_inherited_linger_resets,
        corner_11_linger_negative_resets_nothing,
    ];
}

fn corner_11_linger_zero_resets(family: Family) {
    let (client, server) = pair(family);
    close_with_reset(server);
    await_events(client, libc::POLLERR);
    assert_eq!(
        sys::recv(client, &mut [0_u8; 4], 0),
        Err(Errno(libc::ECONNRESET))
    );
}

fn corner_11_linger_zero_drops_unsent_data(family: Family) {
    let (client, server) = small_pair(family);
    let filled = fill(server);
    close_with_reset(server);
    await_events(client, libc::POLLERR);
    let mut received = 0;
    let mut buffer = vec![0_u8; 64 * 1024];
    loop {
        match sys::recv(client, &mut buffer, 0) {
            Ok(size) => {
                assert_ne!(size, 0, "a reset, not an end, after {received} bytes");
                assert_eq!(pattern_mismatch(received, &buffer[..size]), None);
                received += size;
            }
            Err(errno) => {
                assert_eq!(errno, Errno(libc::ECONNRESET));
                break;
            }
        }
    }
    assert!(received <= filled);
}

fn corner_11_linger_zero_at_exit_resets(family: Family) {
    let (child, client, _) = forked_server(family, |connection| set_linger(connection, 0));
    child.join();
    await_events(client, libc::POLLERR);
    assert_eq!(
        sys::recv(client, &mut [0_u8; 4], 0),
        Err(Errno(libc::ECONNRESET))
    );
}

/// Fills a connection, and closes its full end in a thread. The thread returns how long that took.
fn close_full(full: Descriptor) -> (std::thread::JoinHandle<Duration>, libc::pid_t) {
    start_thread(move || {
        let start = Instant::now();
        sys::close(full).expect("close");
        start.elapsed()
    })
}

fn corner_11_linger_positive_waits_for_the_reader(family: Family) {
    let (client, server) = small_pair(family);
    let filled = fill(server);
    set_blocking(server);
    set_linger(server, 9);
    let (thread, task) = close_full(server);
    await_asleep(task);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!thread.is_finished(), "close waits while data is unsent");
    let bytes = receive_to_end(client);
    assert_eq!((bytes.len(), pattern_mismatch(0, &bytes)), (filled, None));
    // A FIN in answer to its own is not part of that: the reader's end stays open.
    let elapsed = join_thread(thread);
    assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
}

fn corner_11_linger_positive_gives_up_in_time(family: Family) {
    let (client, server) = small_pair(family);
    let filled = fill(server);
    set_blocking(server);
    set_linger(server, 1);
    let (thread, _) = close_full(server);
    let elapsed = join_thread(thread);
    assert!(elapsed >= Duration::from_millis(900), "{elapsed:?}");
    assert!(elapsed < Duration::from_secs(6), "{elapsed:?}");
    // The delivery goes on in the background.
    let bytes = receive_to_end(client);
    assert_eq!((bytes.len(), pattern_mismatch(0, &bytes)), (filled, None));
}

fn corner_11_linger_positive_nonblocking_socket(family: Family) {
    // O_NONBLOCK does not make close return early (Linux).
    let (client, server) = small_pair(family);
    let filled = fill(server);
    set_linger(server, 1);
    let (thread, _) = close_full(server);
    let elapsed = join_thread(thread);
    assert!(elapsed >= Duration::from_millis(900), "{elapsed:?}");
    assert_eq!(receive_to_end(client).len(), filled);
}

fn corner_11_linger_positive_nothing_unsent_returns_at_once(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"small");
    set_linger(server, 10);
    expect_bytes(client, b"small");
    let (thread, _) = close_full(server);
    expect_end(client);
    sys::close(client).unwrap();
    let elapsed = join_thread(thread);
    assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
}

fn corner_11_linger_off_returns_at_once(family: Family) {
    let (client, server) = small_pair(family);
    let filled = fill(server);
    set_blocking(server);
    let start = Instant::now();
    sys::close(server).unwrap();
    assert!(start.elapsed() < Duration::from_secs(2));
    let bytes = receive_to_end(client);
    assert_eq!((bytes.len(), pattern_mismatch(0, &bytes)), (filled, None));
}

fn corner_11_exit_delivers_small(family: Family) {
    let (child, client, _) = forked_server(family, |connection| {
        send_all(connection, b"last words");
        // No close: the exit closes the socket.
    });
    child.join();
    assert_eq!(receive_to_end(client), b"last words");
}

fn corner_11_exit_delivers_full_buffers(family: Family) {
    let size = Baton::new();
    let (child, client, _) = forked_server(family, |connection| {
        let filled = fill(connection);
        size.send(filled as u64);
    });
    child.join();
    let filled = usize::try_from(size.receive()).unwrap();
    let bytes = receive_to_end(client);
    assert_eq!((bytes.len(), pattern_mismatch(0, &bytes)), (filled, None));
}

fn corner_11_exit_without_close_delivers_several_connections(family: Family) {
    let ready = Baton::new();
    let child = fork_child(|| {
        let (listening, address) = listener(family);
        ready.send(u64::from(address.port()));
        for index in 0..20_usize {
            let connection = sys::accept(listening).unwrap();
            send_pattern(connection, index, 5000);
        }
    });
    let address = family.loopback(u16::try_from(ready.receive()).unwrap());
    let sockets: Vec<_> = (0..20).map(|_| connect_to(address)).collect();
    child.join();
    for (index, socket) in sockets.into_iter().enumerate() {
        let bytes = receive_to_end(socket);
        assert_eq!((bytes.len(), pattern_mismatch(index, &bytes)), (5000, None));
    }
}

/// A forked server that runs a body, reports its result, and then sleeps until it is killed.
fn victim(family: Family, body: impl FnOnce(Descriptor) -> usize) -> (Child, Descriptor, usize) {
    let ready = Baton::new();
    let (child, client, _) = forked_server(family, |connection| {
        ready.send(body(connection) as u64);
        wait_to_be_killed();
    });
    (child, client, usize::try_from(ready.receive()).unwrap())
}

fn corner_11_kill_delivers_small(family: Family) {
    let (child, client, _) = victim(family, |connection| {
        send_all(connection, b"last words");
        0
    });
    child.kill();
    assert_eq!(receive_to_end(client), b"last words");
}

fn corner_11_kill_delivers_full_buffers(family: Family) {
    let (child, client, filled) = victim(family, fill);
    child.kill();
    let bytes = receive_to_end(client);
    assert_eq!((bytes.len(), pattern_mismatch(0, &bytes)), (filled, None));
}

fn corner_11_kill_with_unread_data_resets(family: Family) {
    let ready = Baton::new();
    let (child, client, _) = forked_server(family, |connection| {
        await_events(connection, libc::POLLIN);
        ready.pass();
        wait_to_be_killed();
    });
    send_all(client, b"never read");
    ready.take();
    child.kill();
    await_events(client, libc::POLLERR);
    assert_eq!(
        sys::recv(client, &mut [0_u8; 4], 0),
        Err(Errno(libc::ECONNRESET))
    );
}

/// Both sides have ended their streams before.
fn corner_11_kill_with_unread_data_resets_nothing_that_is_over(family: Family) {
    let ready = Baton::new();
    let (child, client, _) = forked_server(family, |server| {
        sys::shutdown(server, libc::SHUT_WR).expect("shutdown");
        // The end of the client's stream is there behind the bytes.
        await_events(server, libc::POLLRDHUP);
        ready.pass();
        std::thread::sleep(Duration::from_secs(30));
    });
    assert_eq!(sys::send(client, b"unread", 0), Ok(6));
    sys::shutdown(client, libc::SHUT_WR).expect("shutdown");
    ready.take();
    await_events(client, libc::POLLHUP);
    child.kill();
    // A reset would have come by then.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(poll_one(client, 0, 0), libc::POLLHUP);
    assert_eq!(sys::recv(client, &mut [0; 8], 0), Ok(0));
    assert_eq!(socket_error(client), Errno(0));
}

fn corner_11_kill_without_unread_data_ends(family: Family) {
    let (child, client, _) = victim(family, |_| 0);
    child.kill();
    expect_end(client);
    assert_eq!(socket_error(client), Errno(0));
    assert_eq!(sys::send(client, b"x", libc::MSG_NOSIGNAL), Ok(1));
    await_events(client, libc::POLLERR);
    assert_eq!(
        sys::send(client, b"x", libc::MSG_NOSIGNAL),
        Err(Errno(libc::EPIPE))
    );
}

fn corner_11_kill_while_peer_sends(family: Family) {
    let (child, client, _) = victim(family, |_| 0);
    let (thread, task) = start_thread(move || {
        loop {
            if let Err(errno) = sys::send(client, &[0_u8; 256 * 1024], libc::MSG_NOSIGNAL) {
                return errno;
            }
        }
    });
    await_asleep(task);
    child.kill();
    let errno = join_thread(thread);
    assert!(
        [libc::ECONNRESET, libc::EPIPE].contains(&errno.0),
        "{errno:?}"
    );
}

fn corner_11_kill_while_peer_sleeps_in_recv(family: Family) {
    let (child, client, _) = victim(family, |_| 0);
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 8], 0));
    await_asleep(task);
    child.kill();
    assert_eq!(join_thread(thread), Ok(0));
}

fn corner_11_kill_while_peer_sleeps_in_epoll(family: Family) {
    let (child, client, _) = victim(family, |_| 0);
    let set = sys::epoll_create().unwrap();
    let events = sys::IN | sys::RDHUP | sys::ET;
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, events, 1).unwrap();
    let (thread, task) = start_thread(move || sys::epoll_wait(set, 4, 10_000).unwrap());
    await_asleep(task);
    child.kill();
    assert_eq!(
        join_thread(thread),
        [sys::Event {
            data: 1,
            events: sys::IN | sys::RDHUP
        }]
    );
}

/// A client whose side was shut while one of its threads waited for room, and the server, which has read all and is
/// about to be killed.
fn shut_below_a_sender(family: Family) -> (Child, Descriptor) {
    let (begin, done) = (Baton::new(), Baton::new());
    let (child, client, _) = forked_server(family, |connection| {
        begin.take();
        while sys::recv(connection, &mut [0; 64 * 1024], 0) != Ok(0) {}
        done.pass();
        wait_to_be_killed();
    });
    let filled = fill(client);
    assert!(filled > 0);
    set_blocking(client);
    let send = move || sys::send(client, b"more", libc::MSG_NOSIGNAL);
    let (sender, task) = start_thread(send);
    await_asleep(task);
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    assert_eq!(join_thread(sender), Err(Errno(libc::EPIPE)));
    begin.pass();
    done.take();
    (child, client)
}

fn corner_11_kill_while_peer_that_shut_a_sender_sleeps_in_recv(family: Family) {
    let (child, client) = shut_below_a_sender(family);
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 8], 0));
    await_asleep(task);
    child.kill();
    assert_eq!(join_thread(thread), Ok(0));
}

fn corner_11_kill_while_peer_that_shut_a_sender_sleeps_in_poll(family: Family) {
    let (child, client) = shut_below_a_sender(family);
    let (thread, task) = start_thread(move || poll_one(client, libc::POLLIN, 10_000));
    await_asleep(task);
    child.kill();
    assert_ne!(join_thread(thread) & libc::POLLIN, 0);
}

fn corner_11_kill_while_peer_that_shut_a_sender_sleeps_in_epoll(family: Family) {
    let (child, client) = shut_below_a_sender(family);
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, sys::IN, 1).unwrap();
    let (thread, task) = start_thread(move || sys::epoll_wait(set, 4, 10_000).unwrap().len());
    await_asleep(task);
    child.kill();
    assert_eq!(join_thread(thread), 1);
}

fn corner_11_kill_sleeper_in_recv(family: Family) {
    let (child, client, _) = forked_server(family, |connection| {
        let _ = sys::recv(connection, &mut [0_u8; 8], 0);
    });
    await_asleep(child.process);
    child.kill();
    expect_end(client);
}

fn corner_11_kill_listener_process(family: Family) {
    let ready = Baton::new();
    let child = fork_child(|| {
        let (_listening, address) = listener(family);
        ready.send(u64::from(address.port()));
        wait_to_be_killed();
    });
    let address = family.loopback(u16::try_from(ready.receive()).unwrap());
    let waiting: Vec<_> = (0..3).map(|_| connect_to(address)).collect();
    child.kill();
    for socket in waiting {
        await_events(socket, libc::POLLIN);
        assert_eq!(
            sys::recv(socket, &mut [0_u8; 4], 0),
            Err(Errno(libc::ECONNRESET))
        );
    }
    assert_eq!(
        sys::connect(tcp(family), address),
        Err(Errno(libc::ECONNREFUSED))
    );
    // The port is free again at once.
    let socket = tcp(family);
    set_int(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    sys::bind(socket, address).expect("bind");
    sys::listen(socket, 8).expect("listen");
    expect_alive(connect_to(address), sys::accept(socket).unwrap());
}

fn corner_11_kill_client_before_accept(family: Family) {
    let (listening, address) = listener(family);
    let ready = Baton::new();
    let child = fork_child(|| {
        sys::close(listening).unwrap();
        let client = connect_to(address);
        send_all(client, b"from the dead");
        ready.pass();
        wait_to_be_killed();
    });
    ready.take();
    child.kill();
    let server = sys::accept(listening).unwrap();
    assert_eq!(receive_to_end(server), b"from the dead");
}

/// What the accepted connection tells of the client's end loses nothing of the one that waits.
fn corner_11_kill_client_between_two_accepts(family: Family) {
    let (port, accepted, ready) = (Baton::new(), Baton::new(), Baton::new());
    let child = fork_child(|| {
        let address = family.loopback(u16::try_from(port.receive()).unwrap());
        let _first = connect_to(address);
        accepted.take();
        let second = connect_to(address);
        send_all(second, b"from the dead");
        ready.pass();
        wait_to_be_killed();
    });
    let (listening, address) = listener(family);
    port.send(u64::from(address.port()));
    let first = sys::accept(listening).unwrap();
    accepted.pass();
    ready.take();
    child.kill();
    set_nonblocking(first);
    eventually("the end", || sys::recv(first, &mut [0_u8; 4], 0) == Ok(0));
    sys::close(first).unwrap();
    await_events(listening, libc::POLLIN);
    let second = sys::accept(listening).unwrap();
    assert_eq!(receive_to_end(second), b"from the dead");
}

fn corner_11_close_with_full_buffers_delivers(family: Family) {
    let (client, server) = pair(family);
    let filled = fill(client);
    sys::close(client).unwrap();
    let bytes = receive_to_end(server);
    assert_eq!((bytes.len(), pattern_mismatch(0, &bytes)), (filled, None));
}

fn corner_11_abort_and_segfault_deliver(family: Family) {
    for signal in [libc::SIGABRT, libc::SIGSEGV, libc::SIGTERM] {
        let (child, client, _) = forked_server(family, |connection| {
            sys::default_signal(signal).unwrap();
            send_pattern(connection, 0, 50_000);
            sys::kill(sys::getpid(), signal).unwrap();
        });
        assert_eq!(child.wait(), Ended::Signal(signal));
        let bytes = receive_to_end(client);
        assert_eq!((bytes.len(), pattern_mismatch(0, &bytes)), (50_000, None));
        sys::close(client).unwrap();
    }
}

fn corner_11_close_thousand_connections_in_turn(family: Family) {
    let (listening, address) = listener(family);
    let mut before = 0;
    for index in 0..1000_usize {
        if index == 50 {
            // Descriptors that are opened once and kept for later use are open by now.
            before = count_descriptors();
        }
        let client = connect_to(address);
        let server = sys::accept(listening).unwrap();
        send_pattern(client, index, 64);
        if index % 2 == 0 {
            sys::close(client).unwrap();
            expect_pattern(server, index, 64);
            expect_end(server);
        } else {
            expect_pattern(server, index, 64);
            sys::close(client).unwrap();
        }
        sys::close(server).unwrap();
    }
    let after = count_descriptors();
    assert!(
        after <= before + 16,
        "descriptors leak: {before} became {after}"
    );
}

fn corner_11_linger_refused_has_no_effect(family: Family) {
    let (listening, address) = listener(family);
    // Half of a `struct linger`.
    let refused = sys::set_option(listening, libc::SOL_SOCKET, libc::SO_LINGER, 1_i32);
    assert_eq!(refused, Err(Errno(libc::EINVAL)));
    let client = connect_to(address);
    sys::close(sys::accept(listening).unwrap()).unwrap();
    expect_end(client);
}

fn corner_11_kill_with_inherited_linger_resets(family: Family) {
    let (listening, address) = listener(family);
    set_linger(listening, 0);
    let accepted = Baton::new();
    let child = fork_child(|| {
        let _connection = sys::accept(listening).unwrap();
        accepted.pass();
        Baton::new().take();
    });
    let client = connect_to(address);
    accepted.take();
    child.kill();
    await_events(client, libc::POLLERR);
    let received = sys::recv(client, &mut [0_u8; 4], 0);
    assert_eq!(received, Err(Errno(libc::ECONNRESET)));
}

fn corner_11_linger_negative_resets_nothing(family: Family) {
    let (client, server) = pair(family);
    set_linger(server, -1);
    sys::close(server).unwrap();
    expect_end(client);
}
