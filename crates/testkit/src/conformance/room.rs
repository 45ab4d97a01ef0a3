//! Numbers of descriptors: which ones the program gets, and the error when none is left, whatever the limits are and
//! were.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;

cases! {
    families: [
        room_numbers_are_the_lowest,
        room_numbers_are_the_lowest_after_lowering,
        room_accept_with_none_left_and_nothing_waiting,
        room_accept_of_a_connection,
        room_lowered_while_connections_wait,
        room_lowered_by_a_child_while_connections_wait,
        room_none_left_for_a_child_that_shuts_the_listener,
        room_none_left_to_send_to_a_listener,
        room_wake_up_with_none_left,
        room_server_of_few,
        room_server_of_many,
        room_server_of_few_begins_while_connections_wait,
        room_children_of_few,
    ];
}

fn set_limits(soft: u64, hard: u64) {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: a local of the right type.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(set, 0);
}

/// Takes every number that is left.
fn fill_up(with: Descriptor) -> Vec<Descriptor> {
    std::iter::from_fn(|| sys::dup(with).ok()).collect()
}

fn close_all(descriptors: Vec<Descriptor>) {
    for descriptor in descriptors {
        sys::close(descriptor).unwrap();
    }
}

/// Connections and sockets in turn get all numbers up to the limit, in order.
fn expect_all_numbers(family: Family, address: std::net::SocketAddr, listening: Descriptor) {
    let expected = fill_up(listening);
    close_all(expected.clone());
    let mut made = Vec::new();
    while made.len() + 3 <= expected.len() {
        let client = connect_to(address);
        let server = sys::accept(listening).unwrap();
        made.extend([client, server, tcp(family)]);
    }
    made.extend(fill_up(listening));
    assert_eq!(made, expected);
    close_all(made);
}

fn room_numbers_are_the_lowest(family: Family) {
    let (client, server) = pair(family);
    let (listening, address) = listener(family);
    set_limits(100, sys::descriptor_limit().unwrap().rlim_max);
    expect_all_numbers(family, address, listening);
    set_limits(700, sys::descriptor_limit().unwrap().rlim_max);
    expect_all_numbers(family, address, listening);
    expect_alive(client, server);
}

fn room_numbers_are_the_lowest_after_lowering(family: Family) {
    let (client, server) = pair(family);
    let (listening, address) = listener(family);
    set_limits(100, 100);
    expect_all_numbers(family, address, listening);
    expect_alive(client, server);
}

fn room_accept_with_none_left_and_nothing_waiting(family: Family) {
    let (listening, address) = listener(family);
    // A first accept, so that any one-time work of accept is done.
    let first = connect_to(address);
    let accepted = sys::accept(listening).unwrap();
    sys::set_descriptor_limit(64).unwrap();
    let fillers = fill_up(listening);
    assert_eq!(sys::accept(listening), Err(Errno(libc::EMFILE)));
    set_nonblocking(listening);
    assert_eq!(sys::accept(listening), Err(Errno(libc::EMFILE)));
    close_all(fillers);
    assert_eq!(sys::accept(listening), Err(Errno(libc::EAGAIN)));
    expect_alive(first, accepted);
}

fn room_accept_of_a_connection(family: Family) {
    let (client, _server) = pair(family);
    assert_eq!(sys::accept(client), Err(Errno(libc::EINVAL)));
    sys::set_descriptor_limit(64).unwrap();
    let fillers = fill_up(client);
    assert_eq!(sys::accept(client), Err(Errno(libc::EMFILE)));
    close_all(fillers);
}

fn room_lowered_while_connections_wait(family: Family) {
    const COUNT: u8 = 20;
    let (listening, address) = listener(family);
    let connected = Baton::new();
    let clients = fork_child(|| {
        let clients: Vec<_> = (0..COUNT).map(|_| connect_to(address)).collect();
        connected.pass();
        for (number, client) in (0..).zip(&clients) {
            send_all(*client, &[number]);
        }
        for (number, client) in (0..).zip(clients) {
            expect_bytes(client, &[number]);
            expect_end(client);
        }
    });
    connected.take();
    let expected: Vec<_> = (0..COUNT).map(|_| sys::dup(listening).unwrap()).collect();
    close_all(expected.clone());
    let limit = u64::try_from(expected[expected.len() - 1] + 1).unwrap();
    set_limits(limit, limit);
    let accepted: Vec<_> = (0..COUNT)
        .map(|_| sys::accept(listening).unwrap())
        .collect();
    assert_eq!(accepted, expected, "the lowest numbers");
    for server in accepted {
        let byte = receive_exact(server, 1);
        send_all(server, &byte);
        sys::close(server).unwrap();
    }
    clients.join();
}

/// The number after which none is left.
fn next_number(with: Descriptor) -> u64 {
    let next = sys::dup(with).unwrap();
    sys::close(next).unwrap();
    u64::try_from(next).unwrap()
}

/// What waits is anybody's, also of those who lower their limits: of a parent, and of a child with one number left.
fn room_lowered_by_a_child_while_connections_wait(family: Family) {
    let (listening, address) = listener(family);
    set_nonblocking(listening);
    let clients: Vec<_> = (0..3).map(|_| connect_to(address)).collect();
    let (lowered, go_on) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        let next = next_number(listening);
        set_limits(next + 1, next + 1);
        lowered.pass();
        go_on.take();
        for client in &clients[1..] {
            let server = sys::accept(listening).unwrap();
            assert_eq!(u64::try_from(server).unwrap(), next);
            expect_alive(*client, server);
            sys::close(server).unwrap();
        }
        assert_eq!(sys::accept(listening), Err(Errno(libc::EAGAIN)));
    });
    lowered.take();
    assert_eq!(poll_one(listening, libc::POLLIN, 0), libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    expect_alive(clients[0], server);
    go_on.pass();
    child.join();
}

fn room_none_left_for_a_child_that_shuts_the_listener(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    let next = next_number(listening);
    set_limits(next, next);
    let child = fork_child(|| sys::shutdown(listening, libc::SHUT_RD).unwrap());
    child.join();
    await_events(client, libc::POLLHUP);
    assert_eq!(sys::getpeername(client), Err(Errno(libc::ENOTCONN)));
    assert_eq!(sys::recv(client, &mut [0], 0), Err(Errno(libc::ECONNRESET)));
}

fn room_wake_up_with_none_left(family: Family) {
    let (idle, _other) = pair(family);
    let (readable, writer) = pair(family);
    let (third, third_writer) = pair(family);
    let set = sys::epoll_create().unwrap();
    let unused = sys::epoll_create().unwrap();
    sys::set_descriptor_limit(64).unwrap();
    const EVENTS: u32 = libc::EPOLLIN.cast_unsigned();
    let add = |set, fd: Descriptor| {
        let data = u64::try_from(fd).unwrap();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, fd, EVENTS, data)
    };
    add(set, idle).unwrap();
    let (sleeper, task) = start_thread(move || sys::epoll_wait(set, 4, 10_000));
    await_asleep(task);
    let fillers = fill_up(set);
    send_all(writer, b"here");
    add(set, readable).unwrap();
    let reported = join_thread(sleeper).unwrap();
    assert_eq!(reported.len(), 1, "{reported:?}");
    add(unused, third).unwrap();
    send_all(third_writer, b"there");
    assert_eq!(sys::epoll_wait(unused, 4, 10_000).unwrap().len(), 1);
    close_all(fillers);
}

/// More clients than the server may have descriptors, all at once. The server answers one client when there is no
/// number for the next.
fn serve_at_the_limit(family: Family, limit: u64, clients: u16) {
    let (listening, address) = listener_with(family, 4096);
    // Closed by exec, which shows that the new program begins.
    let (mut executed, closed_on_exec) = std::io::pipe().expect("a pipe");
    let server = fork_child(|| {
        set_limits(limit, limit);
        let words = [
            "answer-at-limit",
            &listening.to_string(),
            &clients.to_string(),
        ];
        exec_helper(&words, true);
    });
    sys::close(listening).unwrap();
    drop(closed_on_exec);
    assert_eq!(std::io::Read::read(&mut executed, &mut [0]).ok(), Some(0));
    drop(executed);
    let hard = sys::descriptor_limit().unwrap().rlim_max;
    set_limits(hard.min(u64::from(clients) + 1000), hard);
    let sockets: Vec<_> = (0..clients)
        .map(|number| {
            let socket = connect_to(address);
            send_all(socket, &number.to_be_bytes());
            socket
        })
        .collect();
    for (number, socket) in (0_u16..).zip(sockets) {
        expect_bytes(socket, &number.to_be_bytes());
        expect_end(socket);
        sys::close(socket).unwrap();
    }
    server.join();
}

fn room_server_of_few(family: Family) {
    serve_at_the_limit(family, 300, 600);
}

fn room_server_of_many(family: Family) {
    // Through the relay both families run at once. Together with parallel cases they stay below half of the numbers
    // that a daemon commonly has: each connection needs two of them.
    serve_at_the_limit(family, 1500, 1700);
}

/// As many connections as the new program may have descriptors wait when it begins, and more arrive then.
fn room_server_of_few_begins_while_connections_wait(family: Family) {
    const EACH: u16 = 60;
    let (listening, address) = listener_with(family, 4096);
    let (mut report_reader, report_writer) = std::io::pipe().expect("a pipe");
    // Closed by exec, which shows that the new program begins.
    let (mut executed, closed_on_exec) = std::io::pipe().expect("a pipe");
    let server = fork_child(|| {
        assert_eq!(
            std::io::Read::read(&mut report_reader, &mut [0]).ok(),
            Some(1)
        );
        set_limits(64, 64);
        let words = [
            "answer-at-limit",
            &listening.to_string(),
            &(2 * EACH).to_string(),
        ];
        exec_helper(&words, true);
    });
    sys::close(listening).unwrap();
    drop(closed_on_exec);
    let mut sockets: Vec<_> = (0..EACH).map(|_| connect_to(address)).collect();
    std::io::Write::write_all(&mut &report_writer, b"x").unwrap();
    assert_eq!(std::io::Read::read(&mut executed, &mut [0]).ok(), Some(0));
    // Until then the server has numbers for no more connections, and waits for bytes of the first ones.
    std::thread::sleep(std::time::Duration::from_millis(200));
    sockets.extend((0..EACH).map(|_| connect_to(address)));
    for (number, socket) in (0_u16..).zip(&sockets) {
        send_all(*socket, &number.to_be_bytes());
    }
    for (number, socket) in (0_u16..).zip(sockets) {
        expect_bytes(socket, &number.to_be_bytes());
        expect_end(socket);
        sys::close(socket).unwrap();
    }
    server.join();
}

/// A child has the numbers that its parent has left, however few these are, and its parent's sockets.
fn room_children_of_few(family: Family) {
    let (client, server) = pair(family);
    let (done, end) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        let (listening, address) = listener(family);
        let set = sys::epoll_create().unwrap();
        for member in [listening, server] {
            sys::epoll_control(set, libc::EPOLL_CTL_ADD, member, sys::IN, 0).unwrap();
        }
        let waiting = connect_to(address);
        let last = sys::dup(set).unwrap();
        sys::close(last).unwrap();
        let limit = u64::try_from(last).unwrap() + 5;
        set_limits(limit, limit);
        let expect_all = || {
            let left = fill_up(set);
            assert_eq!(left, (last..last + 5).collect::<Vec<_>>());
            close_all(left);
        };
        expect_all();
        let _child = fork_child(|| {
            // SAFETY: takes integers. It outlives its parent.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
            expect_all();
            let grandchild = fork_child(expect_all);
            grandchild.join();
            let first = sys::accept(listening).unwrap();
            expect_alive(waiting, first);
            sys::close(first).unwrap();
            let second = connect_to(address);
            let accepted = sys::accept(listening).unwrap();
            expect_alive(second, accepted);
            close_all(vec![second, accepted]);
            expect_all();
            done.pass();
            end.take();
            send_all(server, b"last");
        });
        done.take();
        expect_all();
        sys::exit_now(0);
    });
    child.join();
    // The connection of the first process goes on in its child.
    sys::close(server).unwrap();
    end.pass();
    expect_bytes(client, b"last");
    expect_end(client);
}

/// The server first accepts all connections that it can.
pub fn answer_at_limit(listening: Descriptor, count: usize) {
    let mut waiting = std::collections::VecDeque::new();
    let mut accepted = 0;
    while accepted < count || !waiting.is_empty() {
        if accepted < count {
            match sys::accept(listening) {
                Ok(connection) => {
                    accepted += 1;
                    waiting.push_back(connection);
                    continue;
                }
                Err(errno) => assert_eq!(errno, Errno(libc::EMFILE)),
            }
        }
        let connection: Descriptor = waiting.pop_front().expect("numbers that others have");
        let bytes = receive_exact(connection, 2);
        send_all(connection, &bytes);
        sys::close(connection).expect("close");
    }
}

fn room_none_left_to_send_to_a_listener(family: Family) {
    let (listening, address) = listener(family);
    sys::ignore_signal(libc::SIGPIPE).unwrap();
    let file = file_of(b"file");
    let [reader, writer] = sys::pipe(0).unwrap();
    sys::write(writer, b"piped").unwrap();
    let client = connect_to(address);
    let next = next_number(listening);
    set_limits(next + 1, next + 1);
    let taken = fill_up(listening);
    assert_eq!(taken.len(), 1);
    let broken = Err(Errno(libc::EPIPE));
    assert_eq!(sys::sendfile(listening, file, None, 4), broken);
    assert_eq!(sys::splice(reader, listening, 5, 0), broken);
    assert_eq!(sys::fcntl(listening, libc::F_GETFL, 0), Ok(libc::O_RDWR));
    close_all(taken);
    let server = sys::accept(listening).unwrap();
    expect_alive(client, server);
}
