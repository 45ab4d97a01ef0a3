//! Corner 7, sets that processes share over a fork: members that only some of the processes still have, and edges.

use std::time::Duration;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, ET, Errno, HUP, IN};

use crate::case::cases;
use crate::corner_13_timeouts::set_timeout;

cases! {
    families: [
        corner_07_shared_member_closed_by_who_added_it,
        corner_07_shared_member_changed_by_who_has_it_still,
        corner_07_shared_member_shut_down_by_a_child,
        corner_07_shared_members_come_and_go,
        corner_07_shared_members_of_one_client_after_another,
        corner_07_shared_listener_closed_by_who_added_it,
        corner_07_shared_edge_is_told_once,
        corner_07_shared_member_that_another_process_waited_for,
        corner_07_shared_set_of_a_client_that_has_gone,
        corner_07_shared_with_another_program,
        corner_07_shared_with_a_spawned_program,
        corner_07_shared_edges_and_one_shots_over_exec,
    ];
}

fn set_of(member: Descriptor, events: u32) -> Descriptor {
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, member, events, 7).unwrap();
    set
}

fn reported(set: Descriptor, timeout: libc::c_int) -> usize {
    sys::epoll_wait(set, 4, timeout).unwrap().len()
}

/// The parent's set tells of it, whether the parent waits already or looks afterwards.
fn corner_07_shared_member_shut_down_by_a_child(family: Family) {
    for how in [libc::SHUT_RD, libc::SHUT_RDWR] {
        for (asked, waits) in [(IN, false), (IN, true), (0, false), (0, true)] {
            let (client, server) = pair(family);
            let set = set_of(client, asked);
            let told = |timeout| sys::epoll_wait(set, 4, timeout).unwrap();
            assert!(told(0).is_empty());
            let go = Baton::new();
            let child = fork_child(|| {
                go.take();
                std::thread::sleep(Duration::from_millis(if waits { 50 } else { 0 }));
                sys::shutdown(client, how).unwrap();
            });
            go.pass();
            let shut = |told: Vec<sys::Event>| told.first().map_or(0, |event| event.events);
            let both = how == libc::SHUT_RDWR;
            let expected = asked | if both { HUP } else { 0 };
            if expected == 0 {
                child.join();
                assert!(told(0).is_empty());
            } else if waits {
                assert_eq!(shut(told(10_000)), expected);
                child.join();
            } else {
                child.join();
                assert_eq!(shut(told(0)), expected);
            }
            for socket in [set, client, server] {
                sys::close(socket).unwrap();
            }
        }
    }
}

fn corner_07_shared_member_closed_by_who_added_it(family: Family) {
    let (client, server) = pair(family);
    let set = set_of(server, IN);
    let (parent_baton, child_baton) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        sys::close(client).unwrap();
        child_baton.take();
        for text in [b"one", b"two"] {
            assert_eq!(reported(set, 10_000), 1);
            expect_bytes(server, text);
            assert_eq!(reported(set, 0), 0);
            parent_baton.pass();
        }
        assert_eq!(reported(set, 10_000), 1);
        expect_end(server);
    });
    sys::close(server).unwrap();
    child_baton.pass();
    for text in [b"one", b"two"] {
        send_all(client, text);
        parent_baton.take();
    }
    sys::close(client).unwrap();
    child.join();
    assert_eq!(reported(set, 0), 0);
}

fn corner_07_shared_member_changed_by_who_has_it_still(family: Family) {
    let (client, server) = pair(family);
    let set = set_of(server, 0);
    let child_baton = Baton::new();
    let child = fork_child(|| {
        child_baton.take();
        sys::epoll_control(set, libc::EPOLL_CTL_MOD, server, IN, 8).unwrap();
        assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap()[0].data, 8);
        sys::epoll_control(set, libc::EPOLL_CTL_DEL, server, 0, 0).unwrap();
        assert_eq!(reported(set, 0), 0);
    });
    sys::close(server).unwrap();
    send_all(client, b"x");
    child_baton.pass();
    child.join();
}

/// More members than fit into the state that all sharing processes have in common.
fn corner_07_shared_members_come_and_go(family: Family) {
    let (listening, address) = listener(family);
    let set = set_of(listening, 0);
    let child_baton = Baton::new();
    let child = fork_child(|| child_baton.take());
    for _ in 0..3 {
        let all: Vec<_> = (0..8)
            .map(|_| {
                let client = connect_to(address);
                let server = sys::accept(listening).unwrap();
                sys::epoll_control(set, libc::EPOLL_CTL_ADD, server, IN, 9).unwrap();
                (client, server)
            })
            .collect();
        // The child ends without closing its descriptors.
        fork_child(|| sys::exit_now(0)).join();
        let holds = Baton::new();
        let holder = fork_child(|| holds.take());
        all.iter()
            .for_each(|(_, server)| sys::close(*server).unwrap());
        holder.kill();
        for (client, _) in all {
            expect_end(client);
            sys::close(client).unwrap();
        }
    }
    let client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, server, IN, 9).unwrap();
    send_all(client, b"x");
    assert_eq!(reported(set, 10_000), 1);
    child_baton.pass();
    child.join();
}

/// Each connection is the first of its client, and its server's end takes the place of the one before it.
fn corner_07_shared_members_of_one_client_after_another(family: Family) {
    let (listening, address) = listener(family);
    let set = set_of(listening, 0);
    let child_baton = Baton::new();
    let child = fork_child(|| child_baton.take());
    for _ in 0..4 {
        let client = fork_child(|| {
            let client = connect_to(address);
            send_all(client, b"x");
            expect_end(client);
        });
        let server = sys::accept(listening).unwrap();
        expect_bytes(server, b"x");
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, server, IN, 9).unwrap();
        let holds = Baton::new();
        let holder = fork_child(|| holds.take());
        sys::close(server).unwrap();
        holder.kill();
        client.join();
    }
    child_baton.pass();
    child.join();
}

fn corner_07_shared_listener_closed_by_who_added_it(family: Family) {
    let (listening, address) = listener(family);
    let set = set_of(listening, IN);
    let child_baton = Baton::new();
    let child = fork_child(|| {
        child_baton.take();
        for _ in 0..2 {
            assert_eq!(reported(set, 10_000), 1);
            let server = sys::accept(listening).unwrap();
            send_all(server, b"taken");
            sys::close(server).unwrap();
        }
    });
    sys::close(listening).unwrap();
    child_baton.pass();
    for _ in 0..2 {
        let client = connect_to(address);
        expect_bytes(client, b"taken");
        sys::close(client).unwrap();
    }
    child.join();
}

fn corner_07_shared_edge_is_told_once(family: Family) {
    let (client, server) = pair(family);
    let set = set_of(server, IN | ET);
    let (parent_baton, child_baton) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        for _ in 0..3 {
            child_baton.take();
            assert_eq!(reported(set, 0), 0, "the parent was told");
            parent_baton.pass();
        }
    });
    for step in 0..3 {
        match step {
            0 => send_all(client, b"one"),
            1 => send_all(client, b"two"),
            _ => sys::shutdown(client, libc::SHUT_WR).unwrap(),
        }
        assert_eq!(reported(set, 10_000), 1);
        child_baton.pass();
        parent_baton.take();
    }
    child.join();
    expect_bytes(server, b"onetwo");
}

/// A process that waits for a connection itself, and gives up, takes no event from another process's set.
fn corner_07_shared_member_that_another_process_waited_for(family: Family) {
    let (client, server) = pair(family);
    for give_up in [
        |socket| {
            set_timeout(socket, libc::SO_RCVTIMEO, 20);
            let received = sys::recv(socket, &mut [0_u8; 4], 0);
            assert_eq!(received, Err(sys::Errno(libc::EAGAIN)));
        },
        |socket| assert_eq!(poll_one(socket, libc::POLLIN, 20), 0),
    ] as [fn(Descriptor); 2]
    {
        let (parent_baton, child_baton) = (Baton::new(), Baton::new());
        let child = fork_child(|| {
            let set = set_of(server, IN);
            assert_eq!(reported(set, 0), 0);
            let (thread, task) = start_thread(move || reported(set, 5_000));
            child_baton.take();
            await_asleep(task);
            parent_baton.pass();
            assert_eq!(join_thread(thread), 1);
            expect_bytes(server, b"news");
        });
        // Both wait, the child a little longer.
        child_baton.pass();
        parent_baton.take();
        give_up(server);
        send_all(client, b"news");
        child.join();
    }
}

/// Processor time of this process.
fn spent() -> std::time::Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is a local.
    let got = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(got, 0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap();
    std::time::Duration::new(time.tv_sec.cast_unsigned(), nanoseconds)
}

/// An event that concerns only the process that has not looked yet keeps no other process awake.
fn corner_07_shared_set_of_a_client_that_has_gone(family: Family) {
    let (listening, address) = listener(family);
    let ready = Baton::new();
    let client = fork_child(|| {
        let _connected = connect_to(address);
        ready.take();
    });
    let _server = sys::accept(listening).unwrap();
    let set = set_of(listening, IN);
    assert_eq!(reported(set, 20), 0);
    ready.pass();
    client.join();
    // The parent looks at neither the set nor the connection.
    let child = fork_child(|| {
        let before = spent();
        assert_eq!(reported(set, 400), 0);
        let spent = spent() - before;
        assert!(spent < std::time::Duration::from_millis(200), "{spent:?}");
    });
    child.join();
}

/// Another program, started by `start`, has the members of the set, and its changes hold for its parent.
fn is_shared_with_a_program(family: Family, start: impl FnOnce(&[&str]) -> Child) {
    let (client, server) = pair(family);
    let (listening, address) = listener(family);
    let set = set_of(listening, IN);
    sys::fcntl(set, libc::F_SETFD, 0).unwrap();
    let control = |operation, data| sys::epoll_control(set, operation, server, IN, data);
    control(libc::EPOLL_CTL_ADD, 8).unwrap();
    sys::fcntl(client, libc::F_SETFD, libc::FD_CLOEXEC).unwrap();
    let numbers = [set, listening, server].map(|number| number.to_string());
    let child = start(&["set-is-shared", &numbers[0], &numbers[1], &numbers[2]]);
    expect_bytes(client, b"changed");
    assert_eq!(control(libc::EPOLL_CTL_ADD, 9), Err(Errno(libc::EEXIST)));
    send_all(client, b"one");
    await_events(server, libc::POLLIN);
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap()[0].data, 10);
    control(libc::EPOLL_CTL_MOD, 11).unwrap();
    expect_bytes(client, b"read");
    let other = connect_to(address);
    expect_end(other);
    expect_bytes(client, b"gone");
    let third = connect_to(address);
    assert_eq!(reported(set, 20), 0, "the listener was taken out");
    assert_eq!(
        control(libc::EPOLL_CTL_MOD, 12),
        Err(Errno(libc::ENOENT)),
        "the connection was taken out"
    );
    control(libc::EPOLL_CTL_ADD, 12).unwrap();
    send_all(client, b"two");
    child.join();
    sys::close(third).unwrap();
}

fn corner_07_shared_with_another_program(family: Family) {
    is_shared_with_a_program(family, |words| {
        fork_child(|| {
            exec_helper(words, true);
        })
    });
}

fn corner_07_shared_with_a_spawned_program(family: Family) {
    is_shared_with_a_program(family, |words| spawn_helper(words, None));
}

fn corner_07_shared_edges_and_one_shots_over_exec(family: Family) {
    const ONE_SHOT: u32 = libc::EPOLLONESHOT.cast_unsigned();
    for shared in [false, true] {
        let (client, server) = pair(family);
        let (talks, listens) = pair(family);
        let (_begun, ended) = pair(family);
        let set = sys::epoll_create().unwrap();
        sys::fcntl(set, libc::F_SETFD, 0).unwrap();
        for (member, events, data) in [
            (server, IN | ET, 1),
            (listens, IN | sys::OUT | ET, 2),
            (ended, sys::OUT | ONE_SHOT, 3),
        ] {
            sys::epoll_control(set, libc::EPOLL_CTL_ADD, member, events, data).unwrap();
        }
        send_all(talks, b"x");
        send_all(client, b"first");
        eventually("all are told", || {
            reported(set, 10);
            poll_one(server, libc::POLLIN, 0) == 1
        });
        reported(set, 20);
        let run = || {
            let numbers = [set, server].map(|number| number.to_string());
            exec_helper(&["set-has-told", &numbers[0], &numbers[1], "2"], true);
        };
        let wait = Baton::new();
        let child = fork_child(|| {
            // The set is the child's alone, once its parent has closed it.
            wait.take();
            sys::close(client).unwrap();
            run();
        });
        if !shared {
            sys::close(set).unwrap();
        }
        expect_bytes(server, b"first");
        wait.pass();
        for _ in 0..3 {
            expect_bytes(client, b"more");
            send_all(client, b"news");
        }
        child.join();
    }
}
