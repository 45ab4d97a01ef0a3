//! Calls by number, through the C library's function `syscall`, and descriptors closed past it.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;

cases! {
    families: [
        numbers_close_ends_the_connection,
        numbers_close_with_unread_bytes_resets,
        numbers_close_of_a_duplicate,
        numbers_passed_then_closed,
        numbers_transfer,
        numbers_whole_life,
        numbers_duplicates,
        numbers_poll_and_select,
        numbers_epoll,
        numbers_epoll_by_ring_or_without,
        numbers_close_range,
        numbers_closed_unseen_and_used_again,
        numbers_closed_unseen_and_received_again,
        numbers_few_for_a_program_that_is_executed,
    ];
}

const SECOND: libc::timespec = libc::timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

fn numbers_close_ends_the_connection(family: Family) {
    for _ in 0..20 {
        let (client, server) = pair(family);
        send_all(client, b"last words");
        sys::number_close(client).unwrap();
        assert_eq!(receive_to_end(server), b"last words");
        sys::number_close(server).unwrap();
        assert_eq!(sys::number_close(server), Err(Errno(libc::EBADF)));
    }
}

fn numbers_close_with_unread_bytes_resets(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"never read");
    await_events(client, libc::POLLIN);
    sys::number_close(client).unwrap();
    await_events(server, libc::POLLIN);
    let mut byte = [0];
    let got = sys::recv(server, &mut byte, 0);
    assert_eq!(got, Err(Errno(libc::ECONNRESET)));
}

fn numbers_close_of_a_duplicate(family: Family) {
    let (client, server) = pair(family);
    let copy = sys::dup(client).unwrap();
    sys::number_close(client).unwrap();
    expect_quiet(server, libc::POLLIN | libc::POLLRDHUP);
    expect_alive(copy, server);
    sys::number_close(copy).unwrap();
    expect_end(server);
}

/// As libuv does: the process that accepts and those that serve close by number.
fn numbers_passed_then_closed(family: Family) {
    const WORKERS: usize = 2;
    let workers: Vec<(Child, Descriptor)> = (0..WORKERS)
        .map(|_| {
            let [ours, theirs] = sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM).unwrap();
            let child = fork_child(|| {
                sys::close(ours).unwrap();
                for round in 0..20_usize {
                    let socket = sys::recv_descriptor(theirs).expect("recvmsg");
                    expect_pattern(socket, round, 3_000);
                    send_pattern(socket, round, 30_000);
                    if round.is_multiple_of(2) {
                        expect_end(socket);
                    }
                    sys::number_close(socket).unwrap();
                }
            });
            sys::close(theirs).unwrap();
            (child, ours)
        })
        .collect();
    let (listening, address) = listener(family);
    for index in 0..WORKERS * 20 {
        let round = index / WORKERS;
        let client = connect_to(address);
        let server = sys::accept(listening).unwrap();
        sys::send_descriptor(workers[index % WORKERS].1, server).unwrap();
        sys::number_close(server).unwrap();
        send_pattern(client, round, 3_000);
        expect_pattern(client, round, 30_000);
        if !round.is_multiple_of(2) {
            expect_end(client);
        }
        sys::number_close(client).unwrap();
    }
    workers.iter().for_each(|(child, _)| child.join());
}

fn numbers_transfer(family: Family) {
    let (client, server) = pair(family);
    assert_eq!(sys::number_write(client, b"written "), Ok(8));
    assert_eq!(sys::number_send(client, b"sent ", 0), Ok(5));
    assert_eq!(sys::number_writev(client, &[b"in ", b"parts "]), Ok(9));
    assert_eq!(sys::number_sendmsg(client, b"in a message"), Ok(12));
    let all = b"written sent in parts in a message";
    let mut bytes = [0; 64];
    eventually("all is there", || {
        sys::number_recv(server, &mut bytes, libc::MSG_PEEK) == Ok(all.len())
    });
    assert_eq!(&bytes[..all.len()], all);
    assert_eq!(sys::number_read(server, &mut bytes), Ok(all.len()));
    assert_eq!(&bytes[..all.len()], all);
    let nothing = sys::number_recv(server, &mut bytes, libc::MSG_DONTWAIT);
    assert_eq!(nothing, Err(Errno(libc::EAGAIN)));
    let (reader, _) = start_thread(move || expect_pattern(server, 0, 500_000));
    let body = pattern(0, 500_000);
    let mut sent = 0;
    while sent < body.len() {
        sent += sys::number_write(client, &body[sent..]).unwrap();
    }
    join_thread(reader);
    sys::number(libc::SYS_shutdown, &[client, libc::SHUT_WR]).unwrap();
    assert_eq!(sys::number_read(server, &mut bytes), Ok(0));
}

fn numbers_whole_life(family: Family) {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let make = || sys::number(libc::SYS_socket, &[family.domain(), kind, 0]).unwrap();
    let listening = make();
    sys::number_address(libc::SYS_bind, listening, family.loopback(0)).unwrap();
    sys::number(libc::SYS_listen, &[listening, 16]).unwrap();
    let name = sys::number_name(libc::SYS_getsockname, listening);
    let address = name.unwrap().expect("an address");
    for _ in 0..3 {
        let client = make();
        sys::number_address(libc::SYS_connect, client, address).unwrap();
        let server =
            sys::number(libc::SYS_accept4, &[listening, 0, 0, libc::SOCK_CLOEXEC]).unwrap();
        let own = sys::number_name(libc::SYS_getsockname, client).unwrap();
        assert_eq!(sys::number_name(libc::SYS_getpeername, server), Ok(own));
        expect_alive(client, server);
        sys::number_close(server).unwrap();
        expect_end(client);
        sys::number_close(client).unwrap();
    }
    sys::number_close(listening).unwrap();
    let refused = sys::connect(tcp(family), address);
    assert_eq!(refused, Err(Errno(libc::ECONNREFUSED)));
}

fn numbers_duplicates(family: Family) {
    let (client, server) = pair(family);
    let one = sys::number(libc::SYS_dup, &[client]).unwrap();
    let two = sys::number(libc::SYS_dup3, &[client, 100, libc::O_CLOEXEC]).unwrap();
    let three = sys::number(libc::SYS_fcntl, &[client, libc::F_DUPFD, 200]).unwrap();
    assert_eq!((two, three), (100, 200));
    for copy in [one, two, three] {
        expect_alive(copy, server);
        sys::number_close(copy).unwrap();
    }
    expect_alive(client, server);
    let (other, peer) = pair(family);
    sys::number(libc::SYS_dup3, &[client, other, 0]).unwrap();
    expect_end(peer);
    sys::number_close(client).unwrap();
    expect_alive(other, server);
    let blocking = sys::number(libc::SYS_fcntl, &[other, libc::F_GETFL, 0]).unwrap();
    let flags = blocking | libc::O_NONBLOCK;
    sys::number(libc::SYS_fcntl, &[other, libc::F_SETFL, flags]).unwrap();
    let mut byte = [0];
    assert_eq!(sys::number_read(other, &mut byte), Err(Errno(libc::EAGAIN)));
}

fn numbers_poll_and_select(family: Family) {
    let (client, server) = pair(family);
    let mut entries = [libc::pollfd {
        fd: server,
        events: libc::POLLIN,
        revents: 0,
    }];
    let soon = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    assert_eq!(sys::number_ppoll(&mut entries, soon, None), Ok(0));
    assert_eq!(sys::number_pselect(server, soon, 0), Ok(false));
    let writer = move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        send_all(client, b"x");
    };
    let (thread, _) = start_thread(writer);
    assert_eq!(sys::number_ppoll(&mut entries, SECOND, Some(0)), Ok(1));
    assert_eq!(entries[0].revents, libc::POLLIN);
    assert_eq!(sys::number_pselect(server, SECOND, 0), Ok(true));
    join_thread(thread);
}

fn numbers_epoll(family: Family) {
    let (client, server) = pair(family);
    let set = sys::number(libc::SYS_epoll_create1, &[libc::EPOLL_CLOEXEC]).unwrap();
    sys::number_epoll_add(set, server, sys::IN | sys::RDHUP).unwrap();
    assert_eq!(sys::number_epoll_wait(set, 4, 0, 0), Ok(Vec::new()));
    let writer = move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        send_all(client, b"x");
    };
    let (thread, _) = start_thread(writer);
    let reported = sys::number_epoll_wait(set, 4, 1_000, 0).unwrap();
    assert_eq!(format!("{reported:?}"), format!("[{server}:0x1]"));
    join_thread(thread);
    expect_bytes(server, b"x");
    sys::number_close(client).unwrap();
    let reported = sys::number_epoll_wait(set, 4, 1_000, 0).unwrap();
    assert_eq!(reported.len(), 1);
    sys::number_close(server).unwrap();
    assert_eq!(sys::number_epoll_wait(set, 4, 10, 0), Ok(Vec::new()));
    sys::number_close(set).unwrap();
}

/// As libuv does from 1.50 on: where there are rings, members of a set are added by a ring.
fn numbers_epoll_by_ring_or_without(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    match sys::ring() {
        Ok(ring) => ring.epoll_add(set, server, sys::IN).unwrap(),
        Err(Errno(libc::ENOSYS | libc::EPERM)) => {
            sys::epoll_control(set, libc::EPOLL_CTL_ADD, server, sys::IN, 7).unwrap();
        }
        Err(error) => panic!("{error:?}"),
    }
    let writer = move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        send_all(client, b"x");
    };
    let (thread, _) = start_thread(writer);
    assert_eq!(sys::epoll_wait(set, 4, 1_000).unwrap().len(), 1);
    join_thread(thread);
    expect_bytes(server, b"x");
}

fn numbers_close_range(family: Family) {
    let (client, server) = pair(family);
    let high = sys::fcntl(client, libc::F_DUPFD, 300).unwrap();
    sys::number_close(client).unwrap();
    expect_quiet(server, libc::POLLIN | libc::POLLRDHUP);
    sys::number(libc::SYS_close_range, &[high, 310, 0]).unwrap();
    expect_end(server);
}

/// A descriptor is closed by a call that no library sees. The next file with its number is not harmed, and the old
/// connection ends at the latest then.
fn numbers_closed_unseen_and_used_again(family: Family) {
    let (listening, address) = listener(family);
    for _ in 0..5 {
        let client = connect_to(address);
        let server = sys::accept(listening).unwrap();
        expect_alive(client, server);
        sys::close_unseen(server);
        let again = connect_to(address);
        assert_eq!(again, server, "the lowest number");
        expect_end(client);
        let accepted = sys::accept(listening).unwrap();
        expect_alive(again, accepted);
        sys::close_unseen(accepted);
        let copy = sys::dup(again).unwrap();
        assert_eq!(copy, accepted);
        expect_end(copy);
        for fd in [again, copy, client] {
            sys::close(fd).unwrap();
        }
    }
}

fn numbers_closed_unseen_and_received_again(family: Family) {
    let [one, other] = sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM).unwrap();
    let (child, channel) = {
        let child = fork_child(|| {
            sys::close(one).unwrap();
            for _ in 0..10 {
                let socket = sys::recv_descriptor(other).expect("recvmsg");
                expect_bytes(socket, b"ping");
                send_all(socket, b"pong");
                sys::close_unseen(socket);
            }
        });
        sys::close(other).unwrap();
        (child, one)
    };
    let (listening, address) = listener(family);
    for _ in 0..10 {
        let client = connect_to(address);
        let server = sys::accept(listening).unwrap();
        sys::send_descriptor(channel, server).unwrap();
        sys::close_unseen(server);
        send_all(client, b"ping");
        assert_eq!(receive_to_end(client), b"pong");
        sys::close(client).unwrap();
    }
    child.join();
}

/// What a program sends on a connection that it inherits comes, or it is told that it does not.
fn numbers_few_for_a_program_that_is_executed(family: Family) {
    for free in 1..8 {
        let (client, server) = pair(family);
        let child = fork_child(|| {
            assert_eq!(sys::dup2(server, 0), Ok(0));
            sys::close_range(3, u32::MAX, 0).unwrap();
            let limit = libc::rlimit {
                rlim_cur: 3 + free,
                rlim_max: 3 + free,
            };
            sys::set_limit(libc::RLIMIT_NOFILE, &limit).unwrap();
            exec_helper(&["send-or-say-so"], true);
        });
        sys::close(server).unwrap();
        let mut bytes = vec![0; 10_000];
        let mut received = 0;
        while let Ok(size @ 1..) = sys::recv(client, &mut bytes, 0) {
            received += size;
        }
        match child.wait() {
            Ended::Exit(0) => assert_eq!(received, 5000, "{free} free numbers"),
            ended => assert_eq!(ended, Ended::Exit(7), "{free} free numbers"),
        }
        sys::close(client).unwrap();
    }
}
