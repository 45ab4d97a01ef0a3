//! Corner 3: fork. The child's actions on its copies must not harm the parent's connection.

use std::sync::atomic::{AtomicBool, Ordering};

use netchannel_testkit::support::*;
use netchannel_testkit::sys;

use crate::case::cases;

cases! {
    families: [
        corner_03_child_exits,
        corner_03_child_closes,
        corner_03_child_is_killed,
        corner_03_child_returns_from_main,
        corner_03_parent_closes_child_goes_on,
        corner_03_both_read_one_stream,
        corner_03_both_write_one_stream,
        corner_03_child_shutdown_is_for_both,
        corner_03_child_of_child,
        corner_03_server_forks_per_connection,
        corner_03_fork_with_unread_data,
        corner_03_fork_while_thread_sleeps_in_recv,
        corner_03_child_makes_its_own_connections,
        corner_03_both_ends_in_one_process_then_fork,
        corner_03_forks_while_threads_open_and_close,
        corner_03_child_writes_what_nobody_reads,
        corner_03_parent_goes_on_writing_after_fork,
        corner_03_set_gets_a_member_after_fork,
        corner_03_clone_by_number,
        corner_03_options_are_the_sockets,
        corner_03_parents_whose_children_end_before_fork_returns,
    ];
}

fn corner_03_child_exits(family: Family) {
    let (client, server) = pair(family);
    fork_child(|| {}).join();
    expect_quiet(server, libc::POLLIN | libc::POLLRDHUP);
    expect_alive(client, server);
}

fn corner_03_child_closes(family: Family) {
    let (client, server) = pair(family);
    let child = fork_child(|| {
        sys::close(client).unwrap();
        sys::close(server).unwrap();
    });
    child.join();
    expect_alive(client, server);
    sys::close(client).unwrap();
    expect_end(server);
}

fn corner_03_child_is_killed(family: Family) {
    let (client, server) = pair(family);
    let ready = Baton::new();
    let child = fork_child(|| {
        expect_bytes(client, b"to the child");
        ready.pass();
        let _ = sys::recv(client, &mut [0_u8; 16], 0);
    });
    send_all(server, b"to the child");
    ready.take();
    child.kill();
    expect_quiet(server, libc::POLLIN | libc::POLLRDHUP);
    expect_alive(client, server);
}

fn corner_03_child_returns_from_main(family: Family) {
    let (client, server) = pair(family);
    // exit, not _exit: destructors and atexit handlers run in the child.
    let child = fork_child(|| std::process::exit(0));
    child.join();
    expect_alive(client, server);
}

fn corner_03_parent_closes_child_goes_on(family: Family) {
    let (client, server) = pair(family);
    let child = fork_child(|| {
        sys::close(server).unwrap();
        expect_bytes(client, b"question");
        send_all(client, b"answer");
    });
    sys::close(client).unwrap();
    expect_quiet(server, libc::POLLIN | libc::POLLRDHUP);
    send_all(server, b"question");
    assert_eq!(receive_to_end(server), b"answer");
    child.join();
}

fn corner_03_both_read_one_stream(family: Family) {
    let (client, server) = pair(family);
    let turn = Baton::new();
    let back = Baton::new();
    let child = fork_child(|| {
        for round in 0..50_usize {
            turn.take();
            expect_pattern(client, round * 200 + 100, 100);
            back.pass();
        }
    });
    send_pattern(server, 0, 50 * 200);
    for round in 0..50_usize {
        expect_pattern(client, round * 200, 100);
        turn.pass();
        back.take();
    }
    child.join();
}

fn corner_03_both_write_one_stream(family: Family) {
    let (client, server) = pair(family);
    let start = Baton::new();
    let write = |letter: u8| {
        for _ in 0..200 {
            send_all(client, &[letter; 64]);
        }
    };
    let child = fork_child(|| {
        start.take();
        write(b'c');
    });
    start.pass();
    write(b'p');
    let bytes = receive_exact(server, 2 * 200 * 64);
    let from_child = bytes.iter().filter(|byte| **byte == b'c').count();
    assert_eq!(from_child, 200 * 64);
    // A send that fits is one piece of the stream.
    assert!(
        bytes
            .chunks(64)
            .all(|piece| piece.iter().all(|byte| *byte == piece[0])),
        "torn"
    );
    child.join();
}

fn corner_03_child_shutdown_is_for_both(family: Family) {
    let (client, server) = pair(family);
    fork_child(|| sys::shutdown(client, libc::SHUT_WR).unwrap()).join();
    expect_end(server);
    let sent = sys::send(client, b"x", libc::MSG_NOSIGNAL);
    assert_eq!(sent, Err(sys::Errno(libc::EPIPE)));
    send_all(server, b"still this way");
    expect_bytes(client, b"still this way");
}

fn corner_03_child_of_child(family: Family) {
    let (client, server) = pair(family);
    let child = fork_child(|| {
        let grandchild = fork_child(|| {
            expect_bytes(client, b"deep");
            send_all(client, b"down");
        });
        grandchild.join();
    });
    send_all(server, b"deep");
    expect_bytes(server, b"down");
    child.join();
    expect_alive(client, server);
}

fn corner_03_server_forks_per_connection(family: Family) {
    let ready = Baton::new();
    let acceptor = fork_child(|| {
        let (listening, address) = listener(family);
        ready.send(u64::from(address.port()));
        let mut children = Vec::new();
        for _ in 0..10 {
            let connection = sys::accept(listening).unwrap();
            children.push(fork_child(|| {
                sys::close(listening).unwrap();
                let bytes = receive_exact(connection, 1000);
                send_all(connection, &bytes);
                expect_end(connection);
            }));
            sys::close(connection).unwrap();
        }
        children.iter().for_each(Child::join);
    });
    let address = family.loopback(u16::try_from(ready.receive()).unwrap());
    let clients: Vec<_> = (0..10).map(|_| connect_to(address)).collect();
    for (index, client) in clients.iter().enumerate() {
        send_pattern(*client, index, 1000);
    }
    for (index, client) in clients.iter().enumerate() {
        expect_pattern(*client, index, 1000);
        sys::close(*client).unwrap();
    }
    acceptor.join();
}

fn corner_03_fork_with_unread_data(family: Family) {
    let (client, server) = pair(family);
    send_pattern(server, 0, 10_000);
    await_events(client, libc::POLLIN);
    expect_pattern(client, 0, 1_000);
    fork_child(|| expect_pattern(client, 1_000, 4_000)).join();
    expect_pattern(client, 5_000, 5_000);
    expect_alive(client, server);
}

fn corner_03_fork_while_thread_sleeps_in_recv(family: Family) {
    let (client, server) = pair(family);
    let (thread, task) = start_thread(move || {
        let mut bytes = [0_u8; 8];
        (sys::recv(client, &mut bytes, 0), bytes)
    });
    await_asleep(task);
    // The child has no such thread, and uses the other direction.
    let child = fork_child(|| send_all(client, b"from the child"));
    expect_bytes(server, b"from the child");
    child.join();
    send_all(server, b"wake");
    let (size, bytes) = join_thread(thread);
    assert_eq!((size, &bytes[..4]), (Ok(4), &b"wake"[..]));
    expect_alive(client, server);
}

fn corner_03_child_makes_its_own_connections(family: Family) {
    let (client, server) = pair(family);
    let (listening, address) = listener(family);
    let child = fork_child(|| {
        for _ in 0..5 {
            let own = connect_to(address);
            expect_bytes(own, b"hello");
            sys::close(own).unwrap();
            let (one, other) = pair(family);
            expect_alive(one, other);
            sys::close(one).unwrap();
            sys::close(other).unwrap();
        }
    });
    for _ in 0..5 {
        let accepted = sys::accept(listening).unwrap();
        send_all(accepted, b"hello");
        expect_end(accepted);
        sys::close(accepted).unwrap();
        expect_alive(client, server);
    }
    child.join();
    expect_alive(client, server);
}

fn corner_03_both_ends_in_one_process_then_fork(family: Family) {
    let (client, server) = pair(family);
    let child = fork_child(|| {
        sys::close(client).unwrap();
        let bytes = receive_exact(server, 300_000);
        assert_eq!(pattern_mismatch(0, &bytes), None);
        send_pattern(server, 7, 300_000);
    });
    sys::close(server).unwrap();
    send_pattern(client, 0, 300_000);
    expect_pattern(client, 7, 300_000);
    expect_end(client);
    child.join();
}

fn corner_03_forks_while_threads_open_and_close(family: Family) {
    static OVER: AtomicBool = AtomicBool::new(false);
    OVER.store(false, Ordering::Relaxed);
    let exchange = move || {
        let (client, server) = pair(family);
        expect_alive(client, server);
        send_pattern(client, 0, 10_000);
        expect_pattern(server, 0, 10_000);
        sys::close(client).unwrap();
        expect_end(server);
        sys::close(server).unwrap();
    };
    let threads = [(); 2].map(|()| {
        start_thread(move || {
            while !OVER.load(Ordering::Relaxed) {
                exchange();
            }
        })
        .0
    });
    // The longer the kernel copies a process, the more the threads do meanwhile.
    let memory = vec![1_u8; 16 << 20];
    for _ in 0..60 {
        // The numbers of its descriptors are those that the threads have or are about to have.
        fork_child(exchange).join();
    }
    drop(std::hint::black_box(memory));
    OVER.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(join_thread);
}

/// The least number of bytes that TCP takes without a reader.
const MUCH: usize = 100_000;

fn corner_03_child_writes_what_nobody_reads(family: Family) {
    for before in [0, 100, 100_000] {
        let (client, server) = pair(family);
        send_pattern(client, 0, before);
        expect_pattern(server, 0, before);
        let taken = Baton::new();
        let child = fork_child(|| taken.send(fill(client) as u64));
        let count = usize::try_from(taken.receive()).unwrap();
        assert!(count > MUCH, "{count} after {before}");
        expect_pattern(server, 0, count);
        child.join();
        set_blocking(client);
        expect_alive(client, server);
        sys::close(client).unwrap();
        expect_end(server);
        sys::close(server).unwrap();
    }
}

fn corner_03_parent_goes_on_writing_after_fork(family: Family) {
    let (client, server) = pair(family);
    let (parent_baton, child_baton) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        for round in 0..4 {
            child_baton.take();
            send_pattern(client, round * 600_000, 300_000);
            parent_baton.pass();
        }
    });
    for round in 0..4 {
        let reader = fork_child(|| expect_pattern(server, round * 600_000, 600_000));
        child_baton.pass();
        parent_baton.take();
        send_pattern(client, round * 600_000 + 300_000, 300_000);
        reader.join();
    }
    child.join();
    expect_alive(client, server);
}

/// A member that one process adds is reported to the other one, which may change it.
fn corner_03_set_gets_a_member_after_fork(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    let (looked, added, seen) = (Baton::new(), Baton::new(), Baton::new());
    let reported = [sys::Event {
        data: 7,
        events: sys::IN,
    }];
    let child = fork_child(|| {
        assert_eq!(sys::epoll_wait(set, 4, 0).unwrap(), []);
        looked.pass();
        added.take();
        assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap(), reported);
        sys::epoll_control(set, libc::EPOLL_CTL_MOD, server, 0, 7).unwrap();
        seen.pass();
    });
    looked.take();
    send_all(client, b"before");
    await_events(server, libc::POLLIN);
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, server, sys::IN, 7).unwrap();
    added.pass();
    seen.take();
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap(), []);
    child.join();
}

/// Children that a program makes by the system call itself.
fn corner_03_clone_by_number(family: Family) {
    let (client, server) = pair(family);
    for round in 0..3 {
        // SAFETY: as fork: memory and descriptors are the child's own.
        let made = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        assert!(made >= 0, "clone: {:?}", sys::last_errno());
        if made == 0 {
            expect_bytes(server, b"question");
            send_all(server, b"answer");
            if round > 0 {
                sys::close(server).unwrap();
                sys::close(client).unwrap();
            }
            sys::exit_now(0);
        }
        send_all(client, b"question");
        expect_bytes(client, b"answer");
        child_of_id(libc::pid_t::try_from(made).unwrap()).join();
        expect_quiet(client, libc::POLLIN | libc::POLLRDHUP);
        expect_alive(client, server);
    }
    sys::close(server).unwrap();
    expect_end(client);
}

/// Options that one process sets of a socket hold in every process that has the socket.
fn corner_03_options_are_the_sockets(family: Family) {
    let (client, _server) = pair(family);
    let set = |name, value| set_int(client, libc::IPPROTO_TCP, name, value);
    let option_value = |name| sys::option_int(client, libc::IPPROTO_TCP, name);
    set(libc::TCP_KEEPIDLE, 77);
    let (go, done) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        assert_eq!(option_value(libc::TCP_KEEPIDLE), Ok(77));
        set(libc::TCP_KEEPCNT, 3);
        done.pass();
        go.take();
        assert_eq!(option_value(libc::TCP_KEEPINTVL), Ok(9));
        assert_eq!(option_value(libc::TCP_KEEPIDLE), Ok(78));
    });
    done.take();
    assert_eq!(option_value(libc::TCP_KEEPCNT), Ok(3));
    set(libc::TCP_KEEPINTVL, 9);
    set(libc::TCP_KEEPIDLE, 78);
    go.pass();
    child.join();
}

/// A handler of `pthread_atfork`: the child has ended, and others have forked, before `fork` returns.
extern "C" fn await_child() {
    let mut status = 0;
    // SAFETY: the status is a local.
    unsafe { libc::waitpid(-1, &raw mut status, 0) };
    std::thread::sleep(std::time::Duration::from_micros(500));
}

fn corner_03_parents_whose_children_end_before_fork_returns(family: Family) {
    let (listening, address) = listener(family);
    let late = fork_child(|| {
        // SAFETY: the handler only makes system calls.
        let registered = unsafe { libc::pthread_atfork(None, Some(await_child), None) };
        assert_eq!(registered, 0, "pthread_atfork");
        loop {
            let _ = fork_child(|| {});
        }
    });
    for _ in 0..100 {
        let client = connect_to(address);
        let server = sys::accept(listening).unwrap();
        let child = fork_child(|| {
            sys::close(client).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
            expect_bytes(server, b"question");
            send_all(server, b"answer");
            sys::close(server).unwrap();
        });
        sys::close(server).unwrap();
        // Looks for relatives that have ended.
        fork_child(|| {}).join();
        send_all(client, b"question");
        expect_bytes(client, b"answer");
        child.join();
        expect_end(client);
        sys::close(client).unwrap();
    }
    late.kill();
}
