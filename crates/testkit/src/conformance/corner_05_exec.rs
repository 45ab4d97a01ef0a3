//! Corner 5: listeners and connections go through `exec`, unless they are CLOEXEC.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;

cases! {
    families: [
        corner_05_exec_listener,
        corner_05_exec_listener_with_pending_connections,
        corner_05_exec_listener_as_nginx_upgrades,
        corner_05_exec_listener_without_library,
        corner_05_exec_listener_of_a_spawned_program,
        corner_05_exec_listener_by_another_number_of_a_spawned_program,
        corner_05_exec_connection,
        corner_05_exec_connection_with_unread_data,
        corner_05_exec_connection_several_times,
        corner_05_exec_connection_into_epoll,
        corner_05_exec_connection_without_library,
        corner_05_exec_without_library_with_unread_data,
        corner_05_exec_cloexec_listener_is_closed,
        corner_05_exec_cloexec_connection_is_closed,
        corner_05_exec_parent_keeps_its_end,
        corner_05_exec_in_place_peer_unharmed,
        corner_05_exec_nonblocking_flag_survives,
        corner_05_exec_shell_reads_the_socket,
        corner_05_exec_set_with_members,
        corner_05_exec_set_with_members_of_a_spawned_program,
        corner_05_exec_set_by_another_number_of_a_spawned_program,
        corner_05_exec_set_with_a_member_by_another_number,
        corner_05_exec_set_with_an_end_that_it_made,
        corner_05_exec_set_with_room_that_comes_before_it_waits,
        corner_05_exec_set_polled_for_nothing,
        corner_05_exec_set_with_a_member_that_was_shut,
        corner_05_exec_listener_with_times,
        corner_05_exec_listener_with_options,
        corner_05_exec_connection_with_options,
    ];
}

pub(crate) fn exec_child(
    words: &[&str],
    descriptor: Descriptor,
    more: &[&str],
    library: bool,
) -> Child {
    let number = descriptor.to_string();
    fork_child(|| {
        let mut arguments: Vec<&str> = words.to_vec();
        arguments.push(&number);
        arguments.extend(more);
        exec_helper(&arguments, library);
    })
}

pub(crate) fn ask_echo(socket: Descriptor, text: &[u8]) {
    send_all(socket, text);
    expect_bytes(socket, text);
}

fn corner_05_exec_listener(family: Family) {
    let (listening, address) = listener(family);
    let child = exec_child(&["accept-echo"], listening, &["3"], true);
    sys::close(listening).unwrap();
    for text in [b"one", b"two", b"six"] {
        let socket = connect_to(address);
        ask_echo(socket, text);
        sys::close(socket).unwrap();
    }
    child.join();
    assert_eq!(
        sys::connect(tcp(family), address),
        Err(Errno(libc::ECONNREFUSED))
    );
}

fn corner_05_exec_listener_with_pending_connections(family: Family) {
    let (listening, address) = listener(family);
    let sockets: Vec<_> = (0..5).map(|_| connect_to(address)).collect();
    for socket in &sockets {
        // The program must not hold the clients' ends too, or its streams would never end.
        sys::fcntl(*socket, libc::F_SETFD, libc::FD_CLOEXEC).unwrap();
        send_all(*socket, b"early");
    }
    let child = exec_child(&["accept-echo"], listening, &["5"], true);
    sys::close(listening).unwrap();
    for socket in sockets {
        expect_bytes(socket, b"early");
        sys::close(socket).unwrap();
    }
    child.join();
}

fn corner_05_exec_listener_as_nginx_upgrades(family: Family) {
    // The old program and the new one both serve the listener for a while; nothing is refused.
    let (listening, address) = listener(family);
    let old = fork_child(|| {
        for _ in 0..2 {
            let connection = sys::accept(listening).unwrap();
            let bytes = receive_to_end(connection);
            send_all(connection, &bytes);
            sys::close(connection).unwrap();
        }
    });
    let new = exec_child(&["accept-echo"], listening, &["20"], true);
    sys::close(listening).unwrap();
    for _ in 0..22 {
        let socket = connect_to(address);
        send_all(socket, b"served");
        sys::shutdown(socket, libc::SHUT_WR).unwrap();
        assert_eq!(receive_to_end(socket), b"served");
        sys::close(socket).unwrap();
    }
    old.join();
    new.join();
}

fn corner_05_exec_listener_without_library(family: Family) {
    let (listening, address) = listener(family);
    let child = exec_child(&["accept-echo"], listening, &["3"], false);
    sys::close(listening).unwrap();
    for text in [b"one", b"two", b"six"] {
        let socket = connect_to(address);
        ask_echo(socket, text);
        sys::close(socket).unwrap();
    }
    child.join();
}

/// A connection comes after a program was spawned and before that has begun. Its parent, which closes the listener, did
/// not take it along.
fn comes_before_a_spawned_program(family: Family, at: Option<Descriptor>) {
    for _ in 0..5 {
        let (listening, address) = listener(family);
        let cloexec = at.map_or(0, |_| libc::FD_CLOEXEC);
        sys::fcntl(listening, libc::F_SETFD, cloexec).unwrap();
        let number = at.unwrap_or(listening).to_string();
        let child = spawn_helper(&["accept-echo", &number, "1"], at.map(|_| listening));
        let client = connect_to(address);
        sys::close(listening).unwrap();
        ask_echo(client, b"early");
        sys::close(client).unwrap();
        child.join();
    }
}

fn corner_05_exec_listener_of_a_spawned_program(family: Family) {
    comes_before_a_spawned_program(family, None);
}

fn corner_05_exec_listener_by_another_number_of_a_spawned_program(family: Family) {
    comes_before_a_spawned_program(family, Some(0));
}

fn corner_05_exec_connection(family: Family) {
    let (client, server) = pair(family);
    let child = exec_child(&["echo"], server, &[], true);
    sys::close(server).unwrap();
    ask_echo(client, b"through exec");
    ask_echo(client, b"and again");
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    child.join();
    sys::close(client).unwrap();
}

fn corner_05_exec_connection_with_unread_data(family: Family) {
    let (client, server) = pair(family);
    send_pattern(client, 0, 20_000);
    expect_pattern(server, 0, 5_000);
    let child = exec_child(&["echo"], server, &[], true);
    sys::close(server).unwrap();
    expect_pattern(client, 5_000, 15_000);
    ask_echo(client, b"later");
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    child.join();
}

fn corner_05_exec_connection_several_times(family: Family) {
    let (client, server) = pair(family);
    let child = exec_child(&["again"], server, &["3"], true);
    sys::close(server).unwrap();
    ask_echo(client, b"after four programs");
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    child.join();
}

fn corner_05_exec_connection_into_epoll(family: Family) {
    let (client, server) = pair(family);
    send_all(client, b"before");
    let child = exec_child(&["epoll-echo"], server, &[], true);
    sys::close(server).unwrap();
    expect_bytes(client, b"before");
    ask_echo(client, b"after");
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    child.join();
}

fn corner_05_exec_connection_without_library(family: Family) {
    let (client, server) = pair(family);
    ask_alive_both_ways(client, server);
    let child = exec_child(&["read-write"], server, &[], false);
    sys::close(server).unwrap();
    ask_echo(client, b"plain");
    send_pattern(client, 0, 100_000);
    expect_pattern(client, 0, 100_000);
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    child.join();
}

fn corner_05_exec_without_library_with_unread_data(family: Family) {
    let (client, server) = pair(family);
    send_pattern(client, 0, 50_000);
    expect_pattern(server, 0, 10_000);
    send_all(server, b"unread answer");
    let child = exec_child(&["read-write"], server, &[], false);
    sys::close(server).unwrap();
    expect_bytes(client, b"unread answer");
    expect_pattern(client, 10_000, 40_000);
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    child.join();
}

fn ask_alive_both_ways(client: Descriptor, server: Descriptor) {
    expect_alive(client, server);
    expect_alive(server, client);
}

fn corner_05_exec_cloexec_listener_is_closed(family: Family) {
    let (listening, address) = listener(family);
    sys::fcntl(listening, libc::F_SETFD, libc::FD_CLOEXEC).unwrap();
    let child = exec_child(&["expect-closed"], listening, &[], true);
    child.join();
    // Still this process's.
    let client = connect_to(address);
    expect_alive(client, sys::accept(listening).unwrap());
}

fn corner_05_exec_cloexec_connection_is_closed(family: Family) {
    let (client, server, child) = {
        let ready = Baton::new();
        let (child, client, _) = forked_server(family, |connection| {
            sys::fcntl(connection, libc::F_SETFD, libc::FD_CLOEXEC).unwrap();
            ready.take();
            exec_helper(&["expect-closed", &connection.to_string()], true);
        });
        (client, ready, child)
    };
    expect_quiet(client, libc::POLLIN | libc::POLLRDHUP);
    server.pass();
    expect_end(client);
    child.join();
}

fn corner_05_exec_parent_keeps_its_end(family: Family) {
    let (client, server) = pair(family);
    sys::fcntl(client, libc::F_SETFD, libc::FD_CLOEXEC).unwrap();
    let child = exec_child(&["echo"], server, &[], true);
    ask_echo(client, b"by the child");
    // The end goes to the child only: it stops, and the parent's copy still works.
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    child.join();
    expect_quiet(client, libc::POLLIN);
    send_all(server, b"by the parent");
    expect_bytes(client, b"by the parent");
}

fn corner_05_exec_in_place_peer_unharmed(family: Family) {
    let ready = Baton::new();
    let (child, client, _) = forked_server(family, |connection| {
        send_all(connection, b"before;");
        ready.pass();
        exec_helper(&["echo", &connection.to_string()], true);
    });
    ready.take();
    expect_bytes(client, b"before;");
    ask_echo(client, b"after");
    sys::close(client).unwrap();
    child.join();
}

fn corner_05_exec_nonblocking_flag_survives(family: Family) {
    let (client, server) = pair(family);
    set_nonblocking(server);
    let child = exec_child(&["epoll-echo"], server, &[], true);
    ask_echo(client, b"x");
    let flags = sys::fcntl(server, libc::F_GETFL, 0).unwrap();
    assert_eq!(flags & libc::O_NONBLOCK, libc::O_NONBLOCK);
    sys::close(server).unwrap();
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    child.join();
}

fn corner_05_exec_shell_reads_the_socket(family: Family) {
    use std::ffi::CString;
    let (client, server) = pair(family);
    sys::fcntl(client, libc::F_SETFD, libc::FD_CLOEXEC).unwrap();
    let child = fork_child(|| {
        sys::dup2(server, 0).unwrap();
        sys::dup2(server, 1).unwrap();
        let text = |text: &str| CString::new(text).expect("no zero byte");
        let words = [
            text("sh"),
            text("-c"),
            text("read line; echo \"got $line\"; cat"),
        ];
        let pointers: Vec<_> = words
            .iter()
            .map(|word| word.as_ptr())
            .chain([std::ptr::null()])
            .collect();
        // SAFETY: path and words are terminated and alive.
        unsafe { libc::execv(c"/bin/sh".as_ptr(), pointers.as_ptr()) };
        panic!("execv: {:?}", sys::last_errno());
    });
    sys::close(server).unwrap();
    send_all(client, b"hello\nrest of it");
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    assert_eq!(
        String::from_utf8_lossy(&receive_to_end(client)),
        "got hello\nrest of it"
    );
    child.join();
}

fn corner_05_exec_set_with_members(family: Family) {
    let (client, server) = pair(family);
    let (listening, address) = listener(family);
    let child = fork_child(|| {
        sys::close(client).unwrap();
        let set = sys::epoll_create().unwrap();
        sys::fcntl(set, libc::F_SETFD, 0).unwrap();
        for (member, data) in [(listening, 7), (server, 8)] {
            sys::epoll_control(set, libc::EPOLL_CTL_ADD, member, sys::IN, data).unwrap();
        }
        assert!(sys::epoll_wait(set, 8, 1).unwrap().is_empty());
        let numbers = [set, listening, server].map(|number| number.to_string());
        exec_helper(
            &["set-goes-on", &numbers[0], &numbers[1], &numbers[2]],
            true,
        );
    });
    expect_bytes(client, b"begun");
    let other = connect_to(address);
    send_all(client, b"news");
    expect_bytes(client, b"done");
    sys::close(client).unwrap();
    child.join();
    sys::close(other).unwrap();
}

/// A program that `posix_spawn` starts has the members of a set that it inherits, under this number.
fn is_inherited_by_spawned(family: Family, at: Option<Descriptor>) {
    let (client, server) = pair(family);
    let (listening, address) = listener(family);
    sys::fcntl(client, libc::F_SETFD, libc::FD_CLOEXEC).unwrap();
    let set = sys::epoll_create().unwrap();
    sys::fcntl(set, libc::F_SETFD, 0).unwrap();
    for (member, data) in [(listening, 7), (server, 8)] {
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, member, sys::IN, data).unwrap();
    }
    assert!(sys::epoll_wait(set, 8, 1).unwrap().is_empty());
    let numbers = [at.unwrap_or(set), listening, server].map(|number| number.to_string());
    let words = ["set-goes-on", &numbers[0], &numbers[1], &numbers[2]];
    let child = spawn_helper(&words, at.map(|_| set));
    expect_bytes(client, b"begun");
    let other = connect_to(address);
    send_all(client, b"news");
    expect_bytes(client, b"done");
    sys::close(server).unwrap();
    sys::close(client).unwrap();
    child.join();
    assert!(sys::epoll_wait(set, 8, 0).unwrap().is_empty());
    sys::close(other).unwrap();
    let next = connect_to(address);
    let control = |operation| sys::epoll_control(set, operation, listening, sys::IN, 9);
    assert_eq!(control(libc::EPOLL_CTL_MOD), Err(Errno(libc::ENOENT)));
    control(libc::EPOLL_CTL_ADD).unwrap();
    assert_eq!(sys::epoll_wait(set, 8, 10_000).unwrap()[0].data, 9);
    sys::close(next).unwrap();
}

fn corner_05_exec_set_with_members_of_a_spawned_program(family: Family) {
    is_inherited_by_spawned(family, None);
}

fn corner_05_exec_set_by_another_number_of_a_spawned_program(family: Family) {
    is_inherited_by_spawned(family, Some(0));
}

/// The number under which a member was added is closed by the exec, and another one of the same socket is not.
fn corner_05_exec_set_with_a_member_by_another_number(family: Family) {
    let (client, server) = pair(family);
    let child = fork_child(|| {
        sys::close(client).unwrap();
        let set = sys::epoll_create().unwrap();
        sys::fcntl(set, libc::F_SETFD, 0).unwrap();
        let copy = sys::dup(server).unwrap();
        sys::fcntl(server, libc::F_SETFD, libc::FD_CLOEXEC).unwrap();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, server, sys::IN, 8).unwrap();
        let numbers = [set, copy].map(|number| number.to_string());
        exec_helper(&["set-knows-a-copy", &numbers[0], &numbers[1]], true);
    });
    sys::close(server).unwrap();
    expect_bytes(client, b"begun");
    send_all(client, b"news");
    child.join();
}

/// The former image was told of room. The next one fills the connection, and the peer reads, before it asks the set.
fn corner_05_exec_set_with_room_that_comes_before_it_waits(family: Family) {
    let (client, server) = pair(family);
    let [ours, theirs] = crate::corner_06_rights::unix_pair();
    let child = fork_child(|| {
        let set = sys::epoll_create().unwrap();
        sys::fcntl(set, libc::F_SETFD, 0).unwrap();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, server, sys::OUT | sys::ET, 1).unwrap();
        assert_eq!(sys::epoll_wait(set, 4, 0).unwrap().len(), 1);
        let numbers = [set, server, theirs].map(|number| number.to_string());
        let [set, server, theirs] = &numbers;
        exec_helper(&["set-tells-of-room", set, server, theirs], true);
    });
    for fd in [server, theirs] {
        sys::close(fd).unwrap();
    }
    let mut filled = [0; 8];
    assert_eq!(sys::recv(ours, &mut filled, libc::MSG_WAITALL), Ok(8));
    let filled = usize::try_from(u64::from_ne_bytes(filled)).unwrap();
    expect_pattern(client, 0, filled);
    send_all(ours, b"read");
    child.join();
}

fn corner_05_exec_set_polled_for_nothing(family: Family) {
    let (client, server) = pair(family);
    let child = exec_child(&["poll-for-nothing"], server, &[], true);
    child.join();
    expect_alive(client, server);
}

/// The former image shut a member while one of its threads slept on it. The next one waits for room.
fn corner_05_exec_set_with_a_member_that_was_shut(family: Family) {
    let (client, server) = pair(family);
    let [ours, theirs] = crate::corner_06_rights::unix_pair();
    let filled = fill(server);
    let child = fork_child(|| {
        sys::close(client).unwrap();
        let set = sys::epoll_create().unwrap();
        sys::fcntl(set, libc::F_SETFD, 0).unwrap();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, server, sys::OUT, 1).unwrap();
        assert!(sys::epoll_wait(set, 4, 1).unwrap().is_empty());
        let (sleeper, task) = start_thread(move || await_events(server, libc::POLLIN));
        await_asleep(task);
        sys::shutdown(server, libc::SHUT_RD).unwrap();
        join_thread(sleeper);
        assert!(sys::epoll_wait(set, 4, 20).unwrap().is_empty());
        let numbers = [set, theirs].map(|number| number.to_string());
        exec_helper(&["set-waits-for-room", &numbers[0], &numbers[1]], true);
    });
    for fd in [server, theirs] {
        sys::close(fd).unwrap();
    }
    expect_bytes(ours, b"begun");
    // The child sleeps in its set.
    await_asleep(child.process);
    expect_pattern(client, 0, filled);
    child.join();
}

/// The exec closes the peer of an edge-triggered member. The next image receives the end before it asks the set.
fn corner_05_exec_set_with_an_end_that_it_made(family: Family) {
    let child = fork_child(|| {
        let (client, server) = pair(family);
        let set = sys::epoll_create().unwrap();
        for (descriptor, flags) in [(client, libc::FD_CLOEXEC), (server, 0), (set, 0)] {
            sys::fcntl(descriptor, libc::F_SETFD, flags).unwrap();
        }
        let events = sys::IN | libc::EPOLLET.cast_unsigned();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, server, events, 1).unwrap();
        assert!(sys::epoll_wait(set, 4, 0).unwrap().is_empty());
        let numbers = [set, server].map(|number| number.to_string());
        exec_helper(&["set-tells-of-the-end", &numbers[0], &numbers[1]], true);
    });
    child.join();
}

fn corner_05_exec_listener_with_times(family: Family) {
    let (listening, address) = listener(family);
    for (name, value) in [(libc::TCP_KEEPIDLE, 77), (libc::TCP_KEEPCNT, 3)] {
        set_int(listening, libc::IPPROTO_TCP, name, value);
    }
    let child = exec_child(&["accept-keeps-idle"], listening, &[], true);
    let client = connect_to(address);
    child.join();
    sys::close(client).unwrap();
}

/// Options that an accepted socket inherits from its listener, and a value for each.
const HANDED_ON: [(libc::c_int, libc::c_int, libc::c_int); 32] = [
    (libc::SOL_SOCKET, libc::SO_DEBUG, 1),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR, 1),
    (libc::SOL_SOCKET, libc::SO_BROADCAST, 1),
    (libc::SOL_SOCKET, libc::SO_NO_CHECK, 1),
    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE, 1),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT, 3),
    (libc::SOL_SOCKET, libc::SO_PEEK_OFF, 2),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP, 1),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 70_000),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 33),
    (libc::IPPROTO_TCP, libc::TCP_LINGER2, 7),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 5000),
    (libc::IPPROTO_TCP, libc::TCP_INQ, 1),
    (libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS, 1),
    (libc::IPPROTO_IP, libc::IP_TTL, 44),
    (libc::IPPROTO_IP, libc::IP_TOS, 8),
    (libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
    (libc::IPPROTO_IP, libc::IP_RECVTTL, 1),
    (libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, 3),
    (libc::IPPROTO_IP, libc::IP_RECVERR, 1),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, 45),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, 16),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, 3),
    (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1),
];

/// Checks the options in the new program.
pub fn expect_handed_on(listening: Descriptor) {
    for _ in 0..2 {
        let accepted = sys::accept(listening).expect("accept");
        for (level, name, value) in HANDED_ON {
            let values = [listening, accepted].map(|socket| sys::option_int(socket, level, name));
            assert_eq!(values[0], values[1], "option {level}/{name}");
            assert!(
                values[0].is_err() || values[0] == Ok(value),
                "{level}/{name}"
            );
        }
    }
}

fn corner_05_exec_listener_with_options(family: Family) {
    let (listening, address) = listener(family);
    for (level, name, value) in HANDED_ON {
        if level != libc::IPPROTO_IPV6 || family == Family::V6 {
            set_int(listening, level, name, value);
        }
    }
    let before = connect_to(address);
    let child = exec_child(&["accept-has-options"], listening, &[], true);
    let after = connect_to(address);
    child.join();
    sys::close(before).unwrap();
    sys::close(after).unwrap();
}

fn corner_05_exec_connection_with_options(family: Family) {
    let (listening, address) = listener(family);
    let set_times = |socket| {
        sys::set_option(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, [9_i64, 0]).unwrap();
        sys::set_option(socket, libc::SOL_SOCKET, libc::SO_LINGER, [1, 7]).unwrap();
        sys::set_option(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 5).unwrap();
        set_int(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 77);
        set_int(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 5000);
    };
    // The accepted socket's own options, and those from its listener.
    let client = connect_to(address);
    set_times(client);
    set_times(listening);
    let accepted = sys::accept(listening).unwrap();
    let later = connect_to(address);
    let inherited = sys::accept(listening).unwrap();
    exec_child(&["expect-options"], client, &[], true).join();
    exec_child(&["expect-options"], inherited, &[], true).join();
    // A receive that sleeps for one byte is not woken by fewer bytes than the mark.
    sys::set_option(inherited, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1).unwrap();
    expect_alive(later, inherited);
    sys::close(accepted).unwrap();
}
