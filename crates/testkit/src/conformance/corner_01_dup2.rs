//! Corner 1: another file is put over a socket's number while a thread sleeps in a call on it.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno};

use crate::case::cases;

cases! {
    families: [
        corner_01_dup2_while_blocked_recv,
        corner_01_dup2_then_signal_as_java_does,
        corner_01_dup2_while_blocked_send,
        corner_01_dup2_while_blocked_accept,
        corner_01_dup2_while_blocked_poll,
        corner_01_dup2_closes_the_replaced_connection,
        corner_01_dup3_sets_cloexec,
        corner_01_dup2_pipe_over_socket_and_back,
        corner_01_dup2_onto_itself,
        corner_01_dup2_onto_another_number_of_the_same_file,
    ];
}

extern "C" fn nothing(_: libc::c_int) {}

fn corner_01_dup2_while_blocked_recv(family: Family) {
    let (client, server) = pair(family);
    let (other_client, other_server) = pair(family);
    let (thread, task) = start_thread(move || {
        let mut bytes = [0_u8; 16];
        let size = sys::recv(client, &mut bytes, 0);
        (size, bytes)
    });
    await_asleep(task);
    assert_eq!(sys::dup2(other_client, client), Ok(client));
    sys::close(other_client).unwrap();
    // The sleeper still sleeps on the old connection.
    send_all(server, b"old");
    let (size, bytes) = join_thread(thread);
    assert_eq!((size, &bytes[..3]), (Ok(3), &b"old"[..]));
    // The sleeper held the last reference.
    expect_end(server);
    // The number is the other connection now.
    expect_alive(client, other_server);
}

fn corner_01_dup2_then_signal_as_java_does(family: Family) {
    sys::handle_signal(libc::SIGUSR1, nothing, 0).unwrap();
    let [marker, marker_peer] = sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM).unwrap();
    sys::shutdown(marker, libc::SHUT_RDWR).unwrap();
    sys::close(marker_peer).unwrap();
    let (client, server) = pair(family);
    let (thread, task) = start_thread(move || {
        let mut bytes = [0_u8; 16];
        let first = sys::recv(client, &mut bytes, 0);
        let second = sys::recv(client, &mut bytes, 0);
        (first, second)
    });
    await_asleep(task);
    assert_eq!(sys::dup2(marker, client), Ok(client));
    sys::signal_thread(task, libc::SIGUSR1).unwrap();
    assert_eq!(join_thread(thread), (Err(Errno(libc::EINTR)), Ok(0)));
    expect_end(server);
    sys::close(client).unwrap();
}

fn corner_01_dup2_while_blocked_send(family: Family) {
    let (client, server) = small_pair(family);
    let (other_client, other_server) = pair(family);
    let total = 4 * 1024 * 1024;
    let (thread, task) = start_thread(move || {
        // A single call keeps the connection while its number is given to another one.
        sys::send(client, &pattern(0, total), libc::MSG_NOSIGNAL)
    });
    await_asleep(task);
    assert_eq!(sys::dup2(other_client, client), Ok(client));
    expect_pattern(server, 0, total);
    assert_eq!(join_thread(thread), Ok(total));
    expect_end(server);
    expect_alive(client, other_server);
}

fn corner_01_dup2_while_blocked_accept(family: Family) {
    let (listening, address) = listener(family);
    let (client, server) = pair(family);
    let (thread, task) = start_thread(move || sys::accept(listening));
    await_asleep(task);
    assert_eq!(sys::dup2(client, listening), Ok(listening));
    // The sleeper keeps the old listener alive until it has accepted.
    let late = connect_to(address);
    let accepted = join_thread(thread).expect("accept");
    expect_alive(late, accepted);
    expect_alive(listening, server);
    eventually("the port refuses", || {
        let socket = tcp(family);
        let answer = sys::connect(socket, address);
        sys::close(socket).unwrap();
        answer == Err(Errno(libc::ECONNREFUSED))
    });
}

fn corner_01_dup2_while_blocked_poll(family: Family) {
    let (client, server) = pair(family);
    let (other_client, other_server) = pair(family);
    let (thread, task) = start_thread(move || poll_one(client, libc::POLLIN, -1));
    await_asleep(task);
    assert_eq!(sys::dup2(other_client, client), Ok(client));
    // A wake-up by the old connection makes poll look up the number again, and poll finds the new connection.
    send_all(other_server, b"new");
    send_all(server, b"old");
    assert_eq!(join_thread(thread), libc::POLLIN);
    expect_bytes(client, b"new");
    expect_alive(client, other_server);
}

fn corner_01_dup2_closes_the_replaced_connection(family: Family) {
    let (client, server) = pair(family);
    let (other_client, other_server) = pair(family);
    assert_eq!(sys::dup2(other_client, client), Ok(client));
    expect_end(server);
    // Two numbers of one connection: closing one leaves it open.
    sys::close(other_client).unwrap();
    expect_alive(client, other_server);
    sys::close(client).unwrap();
    expect_end(other_server);
}

fn corner_01_dup3_sets_cloexec(family: Family) {
    let (client, server) = pair(family);
    let (other_client, other_server) = pair(family);
    assert_eq!(sys::dup3(other_client, client, libc::O_CLOEXEC), Ok(client));
    assert_eq!(sys::fcntl(client, libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
    assert_eq!(sys::fcntl(other_client, libc::F_GETFD, 0), Ok(0));
    expect_end(server);
    expect_alive(client, other_server);
    expect_alive(other_client, other_server);
    assert_eq!(sys::dup3(client, client, 0), Err(Errno(libc::EINVAL)));
}

fn corner_01_dup2_pipe_over_socket_and_back(family: Family) {
    let (client, server) = pair(family);
    let [reader, writer] = sys::pipe(0).unwrap();
    assert_eq!(sys::dup2(reader, client), Ok(client));
    expect_end(server);
    let mut bytes = [0_u8; 4];
    assert_eq!(sys::write(writer, b"pipe"), Ok(4));
    assert_eq!(sys::read(client, &mut bytes), Ok(4));
    assert_eq!(sys::recv(client, &mut bytes, 0), Err(Errno(libc::ENOTSOCK)));
    let (again, peer) = pair(family);
    assert_eq!(sys::dup2(again, client), Ok(client));
    expect_alive(client, peer);
    assert_eq!(sys::dup2(again, reader), Ok(reader));
    expect_alive(reader, peer);
}

fn corner_01_dup2_onto_itself(family: Family) {
    let (client, server) = pair(family);
    assert_eq!(sys::dup2(client, client), Ok(client));
    expect_alive(client, server);
    assert_eq!(sys::dup2(client, 1_000_000), Err(Errno(libc::EBADF)));
    sys::close(client).unwrap();
    assert_eq!(sys::dup2(client, client), Err(Errno(libc::EBADF)));
    expect_end(server);
}

/// A member of a set is not affected.
fn corner_01_dup2_onto_another_number_of_the_same_file(family: Family) {
    let (client, server) = pair(family);
    let copy = sys::dup(server).unwrap();
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, copy, sys::IN, 7).unwrap();
    assert_eq!(sys::dup2(server, copy), Ok(copy));
    let again = sys::epoll_control(set, libc::EPOLL_CTL_ADD, copy, sys::IN, 8);
    assert_eq!(again, Err(sys::Errno(libc::EEXIST)));
    send_all(client, b"x");
    assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap()[0].data, 7);
    sys::close(server).unwrap();
    expect_bytes(copy, b"x");
    sys::epoll_control(set, libc::EPOLL_CTL_DEL, copy, 0, 0).unwrap();
    sys::close(copy).unwrap();
    expect_end(client);
}
