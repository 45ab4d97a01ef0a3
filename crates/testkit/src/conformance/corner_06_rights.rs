//! Corner 6: a socket is passed to another process with `SCM_RIGHTS`.

use std::time::{Duration, Instant};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::deferred::reported;

cases! {
    families: [
        corner_06_rights_to_forked_child,
        corner_06_rights_sender_closes_first,
        corner_06_rights_to_executed_program,
        corner_06_rights_to_program_without_library,
        corner_06_rights_with_unread_data,
        corner_06_rights_with_unread_data_without_library,
        corner_06_rights_received_in_same_process,
        corner_06_rights_of_a_member_of_a_set,
        corner_06_rights_of_a_socket_that_connects_later,
        corner_06_rights_listener,
        corner_06_rights_both_use_it,
        corner_06_rights_never_received,
        corner_06_rights_dispatcher,
        corner_06_rights_sender_exits,
        corner_06_rights_with_options,
        corner_06_rights_beside_children_that_end,
        corner_06_rights_to_programs_that_begin,
        corner_06_rights_with_a_small_buffer,
    ];
}

pub fn unix_pair() -> [Descriptor; 2] {
    sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM).expect("socketpair")
}

/// A child made before the sockets, so that it has no copy of them. It receives one and runs the body.
pub fn receiver(body: impl FnOnce(Descriptor)) -> (Child, Descriptor) {
    let [ours, theirs] = unix_pair();
    let child = fork_child(|| {
        sys::close(ours).unwrap();
        body(sys::recv_descriptor(theirs).expect("recvmsg"));
    });
    sys::close(theirs).unwrap();
    (child, ours)
}

/// The same, as another program.
fn executed_receiver(with_library: bool) -> (Child, Descriptor) {
    let [ours, theirs] = unix_pair();
    let child = fork_child(|| {
        sys::close(ours).unwrap();
        let kind = if with_library { "tcp" } else { "any" };
        exec_helper(&["receive-echo", &theirs.to_string(), kind], with_library);
    });
    sys::close(theirs).unwrap();
    (child, ours)
}

fn corner_06_rights_to_forked_child(family: Family) {
    let (child, channel) = receiver(|socket| {
        expect_bytes(socket, b"ping");
        send_all(socket, b"pong");
        expect_end(socket);
    });
    let (client, server) = pair(family);
    sys::send_descriptor(channel, server).unwrap();
    send_all(client, b"ping");
    expect_bytes(client, b"pong");
    sys::close(client).unwrap();
    child.join();
}

fn corner_06_rights_sender_closes_first(family: Family) {
    let go = Baton::new();
    let [ours, theirs] = unix_pair();
    let child = fork_child(|| {
        sys::close(ours).unwrap();
        go.take();
        let socket = sys::recv_descriptor(theirs).expect("recvmsg");
        expect_bytes(socket, b"ping");
        send_all(socket, b"pong");
    });
    let (client, server) = pair(family);
    sys::send_descriptor(ours, server).unwrap();
    sys::close(server).unwrap();
    // In flight: no process has a number for the connection, and it is open.
    expect_quiet(client, libc::POLLIN | libc::POLLRDHUP);
    send_all(client, b"ping");
    go.pass();
    assert_eq!(receive_to_end(client), b"pong");
    child.join();
}

fn passes_to_program(family: Family, with_library: bool, unread: usize) {
    let (child, channel) = executed_receiver(with_library);
    let (client, server) = pair(family);
    send_pattern(client, 0, unread);
    if unread > 0 {
        expect_pattern(server, 0, unread / 2);
    }
    sys::send_descriptor(channel, server).unwrap();
    sys::close(server).unwrap();
    expect_pattern(client, unread / 2, unread - unread / 2);
    send_all(client, b"ping");
    expect_bytes(client, b"ping");
    send_pattern(client, 0, 100_000);
    expect_pattern(client, 0, 100_000);
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    expect_end(client);
    child.join();
}

fn corner_06_rights_to_executed_program(family: Family) {
    passes_to_program(family, true, 0);
}

fn corner_06_rights_to_program_without_library(family: Family) {
    passes_to_program(family, false, 0);
}

fn corner_06_rights_with_unread_data(family: Family) {
    passes_to_program(family, true, 40_000);
}

fn corner_06_rights_with_unread_data_without_library(family: Family) {
    passes_to_program(family, false, 40_000);
}

fn corner_06_rights_received_in_same_process(family: Family) {
    let [one, other] = unix_pair();
    let (client, server) = pair(family);
    sys::send_descriptor(one, server).unwrap();
    let copy = sys::recv_descriptor(other).unwrap();
    assert_ne!(copy, server);
    expect_alive(client, copy);
    expect_alive(client, server);
    sys::close(server).unwrap();
    expect_alive(client, copy);
    assert_eq!(sys::getpeername(copy), sys::getsockname(client));
    sys::close(copy).unwrap();
    expect_end(client);
}

fn corner_06_rights_listener(family: Family) {
    let (child, channel) = receiver(|listening| {
        for _ in 0..3 {
            let connection = sys::accept(listening).unwrap();
            send_all(connection, b"accepted elsewhere");
            sys::close(connection).unwrap();
        }
    });
    let (listening, address) = listener(family);
    sys::send_descriptor(channel, listening).unwrap();
    sys::close(listening).unwrap();
    for _ in 0..3 {
        assert_eq!(receive_to_end(connect_to(address)), b"accepted elsewhere");
    }
    child.join();
    assert_eq!(
        sys::connect(tcp(family), address),
        Err(Errno(libc::ECONNREFUSED))
    );
}

/// A member of a set is sent, closed, and ends. Whether the set tells of it or not, a wait ends with a signal.
fn corner_06_rights_of_a_member_of_a_set(family: Family) {
    extern "C" fn note(_signal: libc::c_int) {}
    sys::handle_signal(libc::SIGUSR1, note, 0).unwrap();
    let (client, server) = pair(family);
    let (listening, _) = listener(family);
    let set = sys::epoll_create().unwrap();
    for member in [client, listening] {
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, member, sys::IN, 7).unwrap();
    }
    assert_eq!(reported(set, 20), 0);
    let [ours, theirs] = unix_pair();
    for member in [client, listening] {
        sys::send_descriptor(ours, member).unwrap();
        sys::close(member).unwrap();
    }
    sys::close(server).unwrap();
    let (thread, task) = start_thread(move || sys::epoll_wait(set, 8, -1).map(drop));
    eventually("the wait ends", || {
        let _ = sys::signal_thread(task, libc::SIGUSR1);
        thread.is_finished()
    });
    assert!(matches!(
        join_thread(thread),
        Ok(()) | Err(Errno(libc::EINTR))
    ));
    let client = sys::recv_descriptor(theirs).expect("recvmsg");
    expect_end(client);
}

/// An accept finds it after one that has found nothing, without a look between them.
fn corner_06_rights_of_a_socket_that_connects_later(family: Family) {
    let (listening, address) = listener(family);
    set_nonblocking(listening);
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, sys::IN, 7).unwrap();
    let first = connect_to(address);
    assert_eq!(reported(set, PATIENCE_MILLISECONDS), 1);
    expect_alive(first, sys::accept(listening).unwrap());
    assert_eq!(sys::accept(listening), Err(Errno(libc::EAGAIN)));
    let [ours, _theirs] = unix_pair();
    let second = tcp(family);
    sys::send_descriptor(ours, second).unwrap();
    sys::connect(second, address).unwrap();
    // On a busy machine the kernel may queue it a moment after the connect has returned.
    let mut found = Err(Errno(libc::EAGAIN));
    eventually("it is accepted", || {
        found = sys::accept(listening);
        found != Err(Errno(libc::EAGAIN))
    });
    expect_alive(second, found.unwrap());
}

fn corner_06_rights_both_use_it(family: Family) {
    let turn = Baton::new();
    let back = Baton::new();
    let (child, channel) = receiver(|socket| {
        for round in 0..20_usize {
            turn.take();
            expect_pattern(socket, round * 100 + 50, 50);
            send_all(socket, b"c");
            back.pass();
        }
    });
    let (client, server) = pair(family);
    sys::send_descriptor(channel, server).unwrap();
    send_pattern(client, 0, 2_000);
    for round in 0..20_usize {
        expect_pattern(server, round * 100, 50);
        send_all(server, b"p");
        turn.pass();
        back.take();
    }
    assert_eq!(receive_exact(client, 40), b"pc".repeat(20));
    child.join();
    expect_alive(client, server);
}

fn corner_06_rights_never_received(family: Family) {
    let [one, other] = unix_pair();
    let (client, server) = pair(family);
    sys::send_descriptor(one, server).unwrap();
    sys::close(server).unwrap();
    expect_quiet(client, libc::POLLIN | libc::POLLRDHUP);
    // Dropped with the channel that carried it: the connection ends.
    sys::close(one).unwrap();
    sys::close(other).unwrap();
    expect_end(client);
}

fn corner_06_rights_dispatcher(family: Family) {
    // One process accepts, others serve: every connection is passed on.
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let [ours, theirs] = unix_pair();
            let child = fork_child(|| {
                sys::close(ours).unwrap();
                for _ in 0..10 {
                    let socket = sys::recv_descriptor(theirs).expect("recvmsg");
                    let bytes = receive_exact(socket, 500);
                    send_all(socket, &bytes);
                    sys::close(socket).unwrap();
                }
            });
            sys::close(theirs).unwrap();
            (child, ours)
        })
        .collect();
    let (listening, address) = listener(family);
    for index in 0..30_usize {
        let client = connect_to(address);
        let server = sys::accept(listening).unwrap();
        send_pattern(client, index, 500);
        sys::send_descriptor(workers[index % 3].1, server).unwrap();
        sys::close(server).unwrap();
        expect_pattern(client, index, 500);
        expect_end(client);
        sys::close(client).unwrap();
    }
    workers.iter().for_each(|(child, _)| child.join());
}

fn corner_06_rights_sender_exits(family: Family) {
    // The process that made the connection has ended before the receiver looks.
    let [ours, theirs] = unix_pair();
    let ready = Baton::new();
    let (child, client, _) = forked_server(family, |connection| {
        send_all(connection, b"first ");
        sys::send_descriptor(theirs, connection).unwrap();
        ready.pass();
    });
    ready.take();
    child.join();
    let socket = sys::recv_descriptor(ours).unwrap();
    send_all(socket, b"second");
    expect_bytes(client, b"first second");
    expect_alive(client, socket);
    sys::close(socket).unwrap();
    expect_end(client);
}

fn corner_06_rights_with_options(family: Family) {
    let options = [(libc::TCP_KEEPIDLE, 77), (libc::TCP_LINGER2, 9)];
    let (child, channel) = receiver(|socket| {
        for (name, value) in options {
            assert_eq!(sys::option_int(socket, libc::IPPROTO_TCP, name), Ok(value));
        }
    });
    let (_client, server) = pair(family);
    for (name, value) in options {
        set_int(server, libc::IPPROTO_TCP, name, value);
    }
    sys::send_descriptor(channel, server).unwrap();
    child.join();
}

/// Children of the receiver that live for a moment hold its end of the channel, too: some are found there and
/// have ended a moment later. On a busy machine the forks take long, and there are fewer rounds.
fn corner_06_rights_beside_children_that_end(family: Family) {
    let enough = Instant::now() + Duration::from_secs(10);
    for _ in (0..60).take_while(|_| Instant::now() < enough) {
        let [ours, theirs] = unix_pair();
        let child = fork_child(|| {
            sys::close(ours).unwrap();
            while poll_one(theirs, libc::POLLIN, 0) == 0 {
                let lives = |index: u64| std::thread::sleep(Duration::from_micros(30 * index));
                let children = [0, 1, 2, 3, 4, 5, 6, 7].map(|index| fork_child(|| lives(index)));
                children.iter().for_each(Child::join);
            }
            let socket = sys::recv_descriptor(theirs).expect("recvmsg");
            set_int(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
            send_all(socket, b"pong");
        });
        sys::close(theirs).unwrap();
        let (client, server) = pair(family);
        std::thread::sleep(Duration::from_millis(5));
        sys::send_descriptor(ours, server).unwrap();
        sys::close(server).unwrap();
        assert_eq!(receive_to_end(client), b"pong");
        child.join();
        for fd in [ours, client] {
            sys::close(fd).unwrap();
        }
    }
}

/// The message comes while the receiver executes a program, or while that is loaded.
fn corner_06_rights_to_programs_that_begin(family: Family) {
    for pause in 0..40 {
        let (child, channel) = executed_receiver(true);
        let (client, server) = pair(family);
        std::thread::sleep(Duration::from_micros(pause * 50));
        sys::send_descriptor(channel, server).unwrap();
        sys::close(server).unwrap();
        send_all(client, b"ping");
        expect_bytes(client, b"ping");
        sys::shutdown(client, libc::SHUT_WR).unwrap();
        expect_end(client);
        child.join();
        for fd in [channel, client] {
            sys::close(fd).unwrap();
        }
    }
}

/// A receiver that fills a small buffer is told so, and takes nothing out of a pipe for which there is no room.
fn corner_06_rights_with_a_small_buffer(family: Family) {
    let full = Baton::new();
    let (child, channel) = receiver(|socket| {
        set_nonblocking(socket);
        let sent = fill(socket);
        let [output, input] = sys::pipe(libc::O_NONBLOCK).unwrap();
        assert_eq!(sys::write(input, b"rest"), Ok(4));
        let full_now = Err(Errno(libc::EAGAIN));
        assert_eq!(sys::splice(output, socket, 4, 0), full_now);
        assert_eq!(sys::send(socket, b"x", libc::MSG_NOSIGNAL), full_now);
        assert_eq!(sys::ioctl_int(output, libc::FIONREAD, 0), Ok(4));
        full.send(sent as u64);
    });
    let (client, server) = pair(family);
    set_int(server, libc::SOL_SOCKET, libc::SO_SNDBUF, 3_000);
    sys::send_descriptor(channel, server).unwrap();
    sys::close(server).unwrap();
    let sent = usize::try_from(full.receive()).unwrap();
    child.join();
    assert_eq!(receive_to_end(client).len(), sent);
}
