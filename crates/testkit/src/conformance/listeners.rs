//! Listeners: which process gets a connection, and what becomes of connections that are not accepted.

use std::collections::BTreeSet;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno, IN};

use crate::case::cases;

cases! {
    families: [
        listeners_close_resets_pending,
        listeners_process_exit_resets_pending,
        listeners_process_exit_resets_pending_in_a_set,
        listeners_pending_in_order,
        listeners_dup_keeps_listening,
        listeners_close_and_listen_again_same_port,
        listeners_listen_again_while_another_thread_closes,
        listeners_listen_again_changes_backlog,
        listeners_port_of_what_was_accepted,
        listeners_many_at_once,
        listeners_hundred_pending,
        listeners_pending_of_a_client_that_ended,
        listeners_older_connection_without_library_is_first,
        listeners_poll_and_epoll_readiness,
        listeners_in_two_processes_by_turns,
        listeners_accept_while_connections_end,
        listeners_shutdown_write_is_harmless,
        listeners_connect_to_self_process,
        listeners_concurrent_clients_many_threads,
        listeners_several_client_processes,
        listeners_accept_blocks_until_connection,
        listeners_keep_their_ports,
    ];
}

fn listeners_close_resets_pending(family: Family) {
    let (listening, address) = listener(family);
    let waiting: Vec<_> = (0..3).map(|_| connect_to(address)).collect();
    sys::close(listening).unwrap();
    for client in waiting {
        await_events(client, libc::POLLERR);
        assert_eq!(
            sys::recv(client, &mut [0_u8; 4], 0),
            Err(Errno(libc::ECONNRESET))
        );
    }
    assert_eq!(
        sys::connect(tcp(family), address),
        Err(Errno(libc::ECONNREFUSED))
    );
}

fn listeners_process_exit_resets_pending(family: Family) {
    let ready = Baton::new();
    let go = Baton::new();
    let child = fork_child(|| {
        let (_listening, address) = listener(family);
        ready.send(u64::from(address.port()));
        go.take();
    });
    let address = family.loopback(u16::try_from(ready.receive()).unwrap());
    let client = connect_to(address);
    go.pass();
    child.join();
    await_events(client, libc::POLLERR);
    assert_eq!(
        sys::recv(client, &mut [0_u8; 4], 0),
        Err(Errno(libc::ECONNRESET))
    );
}

/// Some connections were accepted, the others never, but all have sent bytes.
fn listeners_process_exit_resets_pending_in_a_set(family: Family) {
    const ACCEPTED: usize = 20;
    const PENDING: usize = 30;
    let (ready, go) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        let (listening, address) = listener_with(family, 128);
        ready.send(u64::from(address.port()));
        for _ in 0..ACCEPTED {
            expect_bytes(sys::accept(listening).unwrap(), b"hello");
        }
        ready.pass();
        go.take();
    });
    let address = family.loopback(u16::try_from(ready.receive()).unwrap());
    let set = sys::epoll_create().unwrap();
    let join = |index: usize| {
        let client = connect_to(address);
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN, index as u64).unwrap();
        send_all(client, b"hello");
        client
    };
    let mut clients: Vec<_> = (0..ACCEPTED).map(join).collect();
    ready.take();
    clients.extend((ACCEPTED..ACCEPTED + PENDING).map(join));
    assert_eq!(sys::epoll_wait(set, 64, 50), Ok(Vec::new()));
    go.pass();
    child.join();
    let mut left: BTreeSet<u64> = (0..clients.len() as u64).collect();
    while !left.is_empty() {
        let reported = sys::epoll_wait(set, 64, 10_000).unwrap();
        assert!(!reported.is_empty(), "nothing told of {left:?}");
        for event in reported {
            let index = usize::try_from(event.data).unwrap();
            let ended = sys::recv(clients[index], &mut [0_u8; 4], 0);
            let expected = if index < ACCEPTED {
                Ok(0)
            } else {
                Err(Errno(libc::ECONNRESET))
            };
            assert_eq!(ended, expected, "connection {index}");
            left.remove(&event.data);
            sys::close(clients[index]).unwrap();
        }
    }
}

fn listeners_pending_in_order(family: Family) {
    let (listening, address) = listener(family);
    let clients: Vec<_> = (0..20).map(|_| connect_to(address)).collect();
    for client in clients {
        let (server, peer) = sys::accept_from(listening).unwrap();
        assert_eq!(
            Ok(peer),
            sys::getsockname(client),
            "first come, first served"
        );
        expect_alive(client, server);
    }
}

fn listeners_dup_keeps_listening(family: Family) {
    let (listening, address) = listener(family);
    let copy = sys::dup(listening).unwrap();
    sys::close(listening).unwrap();
    expect_alive(connect_to(address), sys::accept(copy).unwrap());
    sys::close(copy).unwrap();
    assert_eq!(
        sys::connect(tcp(family), address),
        Err(Errno(libc::ECONNREFUSED))
    );
}

fn listeners_close_and_listen_again_same_port(family: Family) {
    let (listening, address) = listener_on_own_port(family);
    let mut listening = listening;
    for _ in 0..10 {
        let client = connect_to(address);
        let server = sys::accept(listening).unwrap();
        expect_alive(client, server);
        // The client's end closes first, so that no TIME_WAIT stays at the listener's port.
        sys::close(client).unwrap();
        expect_end(server);
        sys::close(server).unwrap();
        sys::close(listening).unwrap();
        listening = tcp(family);
        set_int(listening, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
        sys::bind(listening, address).unwrap();
        sys::listen(listening, 16).unwrap();
    }
}

fn listeners_listen_again_while_another_thread_closes(family: Family) {
    let (mut listening, address) = listener_on_own_port(family);
    set_int(listening, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    for _ in 0..50 {
        let client = connect_to(address);
        await_events(listening, libc::POLLIN);
        let server = sys::accept(listening).unwrap();
        expect_alive(client, server);
        sys::close(client).unwrap();
        expect_end(server);
        sys::close(server).unwrap();
        let (closer, _) = start_thread(move || sys::close(listening).unwrap());
        listening = tcp(family);
        set_int(listening, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
        // Its port is free as soon as the former one is closed.
        while sys::bind(listening, address) == Err(Errno(libc::EADDRINUSE)) {}
        sys::listen(listening, 16).unwrap();
        let first = connect_to(address);
        join_thread(closer);
        sys::close(first).unwrap();
        await_events(listening, libc::POLLIN);
        sys::close(sys::accept(listening).unwrap()).unwrap();
    }
}

fn listeners_listen_again_changes_backlog(family: Family) {
    let (listening, address) = listener_with(family, 1);
    sys::listen(listening, 64).unwrap();
    let clients: Vec<_> = (0..20).map(|_| connect_to(address)).collect();
    for client in clients {
        expect_alive(client, sys::accept(listening).unwrap());
    }
}

fn listeners_many_at_once(family: Family) {
    let listeners: Vec<_> = (0..50).map(|_| listener(family)).collect();
    for (listening, address) in listeners.iter().rev() {
        let client = connect_to(*address);
        let server = sys::accept(*listening).unwrap();
        assert_eq!(sys::getsockname(server), Ok(*address));
        expect_alive(client, server);
    }
}

fn listeners_hundred_pending(family: Family) {
    let (listening, address) = listener_with(family, 256);
    let clients: Vec<_> = (0..100).map(|_| connect_to(address)).collect();
    for (index, client) in clients.iter().enumerate() {
        send_pattern(*client, index, 300);
    }
    for (index, client) in clients.into_iter().enumerate() {
        let server = sys::accept(listening).unwrap();
        expect_pattern(server, index, 300);
        sys::close(server).unwrap();
        expect_end(client);
    }
}

fn listeners_pending_of_a_client_that_ended(family: Family) {
    let (listening, address) = listener_with(family, 64);
    let client = fork_child(|| {
        (0..30).for_each(|_| send_all(connect_to(address), b"the last words"));
    });
    client.join();
    for _ in 0..30 {
        let server = sys::accept(listening).unwrap();
        expect_bytes(server, b"the last words");
        expect_end(server);
        sys::close(server).unwrap();
    }
}

fn listeners_older_connection_without_library_is_first(family: Family) {
    netchannel_testkit::far::only_within("a client without the library");
    let (listening, address) = listener(family);
    let child = fork_child(|| {
        exec_helper(&["connect-say", &address.to_string(), "first"], false);
    });
    await_events(listening, libc::POLLIN);
    let second = connect_to(address);
    send_all(second, b"other");
    // Any process that polls finds both connections.
    await_events(listening, libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    expect_bytes(server, b"first");
    let other = sys::accept(listening).unwrap();
    expect_bytes(other, b"other");
    sys::close(server).unwrap();
    child.join();
}

fn listeners_poll_and_epoll_readiness(family: Family) {
    let (listening, address) = listener(family);
    set_nonblocking(listening);
    let set = sys::epoll_create().unwrap();
    let events = sys::IN | sys::OUT | sys::RDHUP;
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, events, 5).unwrap();
    assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
    assert_eq!(poll_one(listening, libc::POLLIN | libc::POLLOUT, 0), 0);
    let clients = [connect_to(address), connect_to(address)];
    for _ in clients {
        let reported = sys::epoll_wait(set, 4, 10_000).unwrap();
        assert_eq!(
            reported,
            [sys::Event {
                data: 5,
                events: sys::IN
            }]
        );
        assert_eq!(
            poll_one(listening, libc::POLLIN | libc::POLLOUT, 0),
            libc::POLLIN
        );
        sys::accept(listening).unwrap();
    }
    assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
    assert_eq!(sys::accept(listening), Err(Errno(libc::EAGAIN)));
}

fn listeners_in_two_processes_by_turns(family: Family) {
    // Parent and child have the listener and take turns; the ends work wherever they are.
    let (listening, address) = listener(family);
    let turn = Baton::new();
    let back = Baton::new();
    let child = fork_child(|| {
        for _ in 0..10 {
            turn.take();
            let server = sys::accept(listening).unwrap();
            send_all(server, b"child");
            sys::close(server).unwrap();
            back.pass();
        }
    });
    for _ in 0..10 {
        let client = connect_to(address);
        turn.pass();
        back.take();
        assert_eq!(receive_to_end(client), b"child");
        sys::close(client).unwrap();
        let client = connect_to(address);
        let server = sys::accept(listening).unwrap();
        expect_alive(client, server);
        sys::close(client).unwrap();
        sys::close(server).unwrap();
    }
    child.join();
}

fn listeners_accept_while_connections_end(family: Family) {
    let (listening, address) = listener(family);
    let (thread, _) = start_thread(move || {
        let mut random = Random::new(3);
        for _ in 0..100 {
            let client = connect_to(address);
            if random.once_in(2) {
                let _ = sys::send(client, b"abc", libc::MSG_NOSIGNAL);
            }
            if random.once_in(3) {
                close_with_reset(client);
            } else {
                sys::close(client).unwrap();
            }
        }
    });
    for _ in 0..100 {
        let server = sys::accept(listening).unwrap();
        await_events(server, libc::POLLIN);
        match sys::recv(server, &mut [0_u8; 8], 0) {
            Ok(0 | 3) | Err(Errno(libc::ECONNRESET)) => {}
            other => panic!("recv: {other:?}"),
        }
        sys::close(server).unwrap();
    }
    join_thread(thread);
}

fn listeners_shutdown_write_is_harmless(family: Family) {
    let (listening, address) = listener(family);
    sys::shutdown(listening, libc::SHUT_WR).unwrap();
    expect_alive(connect_to(address), sys::accept(listening).unwrap());
}

fn listeners_connect_to_self_process(family: Family) {
    // One thread, both ends, blocking calls only.
    let (listening, address) = listener(family);
    for round in 0..50_usize {
        let client = connect_to(address);
        let server = sys::accept(listening).unwrap();
        send_pattern(client, round, 10_000);
        expect_pattern(server, round, 10_000);
        send_pattern(server, round, 10_000);
        expect_pattern(client, round, 10_000);
        sys::close(client).unwrap();
        expect_end(server);
        sys::close(server).unwrap();
    }
}

fn echo_server(family: Family, connections: usize) -> (Child, std::net::SocketAddr) {
    let ready = Baton::new();
    let child = fork_child(|| {
        let (listening, address) = listener(family);
        ready.send(u64::from(address.port()));
        let mut threads = Vec::new();
        for _ in 0..connections {
            let server = sys::accept(listening).unwrap();
            threads.push(start_thread(move || {
                let mut buffer = vec![0_u8; 8192];
                loop {
                    match sys::recv(server, &mut buffer, 0).unwrap() {
                        0 => break,
                        size => send_all(server, &buffer[..size]),
                    }
                }
                sys::close(server).unwrap();
            }));
        }
        for (thread, _) in threads {
            join_thread(thread);
        }
    });
    (
        child,
        family.loopback(u16::try_from(ready.receive()).unwrap()),
    )
}

fn echo_client(address: std::net::SocketAddr, seed: usize) {
    let client = connect_to(address);
    for round in 0..20_usize {
        let length = 1 + (seed * 31 + round * 977) % 4000;
        send_pattern(client, seed + round, length);
        expect_pattern(client, seed + round, length);
    }
    sys::close(client).unwrap();
}

fn listeners_concurrent_clients_many_threads(family: Family) {
    let (child, address) = echo_server(family, 64);
    let threads: Vec<_> = (0..16)
        .map(|index| {
            start_thread(move || (0..4).for_each(|turn| echo_client(address, index * 4 + turn)))
        })
        .collect();
    for (thread, _) in threads {
        join_thread(thread);
    }
    child.join();
}

fn listeners_several_client_processes(family: Family) {
    let (child, address) = echo_server(family, 32);
    let clients: Vec<_> = (0..8)
        .map(|index| fork_child(|| (0..4).for_each(|turn| echo_client(address, index * 4 + turn))))
        .collect();
    clients.iter().for_each(Child::join);
    child.join();
}

fn listeners_accept_blocks_until_connection(family: Family) {
    let (listening, address) = listener(family);
    for _ in 0..3 {
        let (thread, task) = start_thread(move || sys::accept_from(listening));
        await_asleep(task);
        let client = connect_to(address);
        let (server, peer) = join_thread(thread).unwrap();
        assert_eq!(Ok(peer), sys::getsockname(client));
        expect_alive(client, server);
    }
}

/// An accepted connection keeps the port when no socket listens there any more.
fn listeners_port_of_what_was_accepted(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    sys::close(listening).unwrap();
    let other = tcp(family);
    let bound = sys::bind(other, address);
    assert_eq!(bound, Err(Errno(libc::EADDRINUSE)));
    let listens = tcp(family);
    sys::listen(listens, 1).unwrap();
    let bound = sys::bind(listens, address);
    assert_eq!(bound, Err(Errno(libc::EINVAL)));
    expect_alive(client, server);
    // The port is released with the connection, which ends here without waiting.
    close_with_reset(server);
    eventually("the port is free", || sys::bind(other, address) == Ok(()));
}

/// A client does not get a port on which another socket listens: a restarted server would find the port taken.
fn listeners_keep_their_ports(family: Family) {
    let (_first, address) = listener(family);
    let clients = |count: usize| {
        let connect = |_| connect_to(address);
        (0..count).map(connect).collect::<Vec<_>>()
    };
    let port_of = |client: &_| sys::getsockname(*client).unwrap().port();
    let before = clients(1);
    let after = port_of(&before[0])..;
    let listens = |port: u16| {
        let socket = tcp(family);
        set_int(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
        let bound = sys::bind(socket, family.loopback(port)).is_ok();
        bound.then(|| sys::listen(socket, 16).unwrap());
        bound.then_some(port)
    };
    // Where ports are given one after the other, the next ones.
    let taken: BTreeSet<u16> = after.skip(1).take(8).filter_map(listens).collect();
    assert!(!taken.is_empty());
    for client in clients(40) {
        assert!(!taken.contains(&port_of(&client)));
    }
}
