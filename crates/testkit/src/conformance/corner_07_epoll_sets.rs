//! Corner 7: one socket in several sets, one set in several threads, a set shared over fork.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, ET, Errno, IN, ONESHOT, OUT};

use crate::case::cases;

cases! {
    families: [
        corner_07_one_socket_in_two_sets,
        corner_07_two_sets_two_sleepers,
        corner_07_edge_and_level_in_two_sets,
        corner_07_joins_while_another_thread_sleeps,
        corner_07_listener_joins_while_another_thread_sleeps,
        corner_07_sleeps_on_while_another_thread_is_told,
        corner_07_one_set_several_threads_oneshot,
        corner_07_one_set_several_threads_edge,
        corner_07_one_set_several_threads_each_event_once,
        corner_07_set_shared_over_fork,
        corner_07_child_waits_on_inherited_set,
        corner_07_child_removes_from_inherited_set,
        corner_07_exclusive_in_two_sets,
        corner_07_dup_and_original_in_one_set,
        corner_07_listener_stays_under_its_other_number,
        corner_07_out_and_in_again,
        corner_07_out_then_closed,
        corner_07_out_before_fork,
        corner_07_mixed_with_pipes_and_eventfds,
        corner_07_both_kinds_are_told_each_time,
        corner_07_two_hundred_sockets_in_one_set,
        corner_07_many_come_after_a_client_whose_end_poll_saw,
    ];
}

fn set_of(entries: &[(Descriptor, u32)]) -> Descriptor {
    let set = sys::epoll_create().unwrap();
    for (index, (descriptor, events)) in entries.iter().enumerate() {
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, *descriptor, *events, index as u64).unwrap();
    }
    set
}

fn corner_07_one_socket_in_two_sets(family: Family) {
    let (client, server) = pair(family);
    let first = set_of(&[(client, IN)]);
    let second = set_of(&[(client, IN)]);
    send_all(server, b"x");
    for set in [first, second] {
        assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap().len(), 1);
    }
    expect_bytes(client, b"x");
    for set in [first, second] {
        assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
    }
    sys::epoll_control(first, libc::EPOLL_CTL_DEL, client, 0, 0).unwrap();
    send_all(server, b"y");
    assert_eq!(sys::epoll_wait(second, 4, 10_000).unwrap().len(), 1);
    assert_eq!(sys::epoll_wait(first, 4, 0), Ok(Vec::new()));
}

fn corner_07_two_sets_two_sleepers(family: Family) {
    let (client, server) = pair(family);
    let sleepers: Vec<_> = (0..2)
        .map(|_| {
            let set = set_of(&[(client, IN)]);
            start_thread(move || sys::epoll_wait(set, 4, 10_000).map(|reported| reported.len()))
        })
        .collect();
    sleepers.iter().for_each(|(_, task)| await_asleep(*task));
    send_all(server, b"x");
    for (thread, _) in sleepers {
        assert_eq!(join_thread(thread), Ok(1));
    }
}

fn corner_07_edge_and_level_in_two_sets(family: Family) {
    let (client, server) = pair(family);
    let edge = set_of(&[(client, IN | ET)]);
    let level = set_of(&[(client, IN)]);
    send_all(server, b"x");
    assert_eq!(sys::epoll_wait(edge, 4, 10_000).unwrap().len(), 1);
    assert_eq!(sys::epoll_wait(edge, 4, 0).unwrap().len(), 0);
    for _ in 0..3 {
        assert_eq!(sys::epoll_wait(level, 4, 10_000).unwrap().len(), 1);
    }
    send_all(server, b"y");
    assert_eq!(sys::epoll_wait(edge, 4, 10_000).unwrap().len(), 1);
    expect_bytes(client, b"xy");
    assert_eq!(sys::epoll_wait(level, 4, 0).unwrap().len(), 0);
}

/// A thread that sleeps in a set. It gets one event, or none within ten seconds.
fn sleeper_in(set: Descriptor) -> std::thread::JoinHandle<sys::Outcome<usize>> {
    let (thread, id) =
        start_thread(move || sys::epoll_wait(set, 4, 10_000).map(|reported| reported.len()));
    await_asleep(id);
    thread
}

fn corner_07_joins_while_another_thread_sleeps(family: Family) {
    let (idle, _other) = pair(family);
    let set = set_of(&[(idle, IN)]);
    for _ in 0..50 {
        let (client, server) = pair(family);
        let sleeper = sleeper_in(set);
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN, 1).unwrap();
        // The event that woke the sleeper may be taken here.
        assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
        send_all(server, b"x");
        assert_eq!(join_thread(sleeper), Ok(1));
        sys::close(client).unwrap();
        sys::close(server).unwrap();
    }
}

fn corner_07_listener_joins_while_another_thread_sleeps(family: Family) {
    let (idle, _other) = pair(family);
    let set = set_of(&[(idle, IN)]);
    for _ in 0..20 {
        let (listening, address) = listener(family);
        // So that there is a link to the listener.
        for _ in 0..2 {
            let client = connect_to(address);
            sys::close(sys::accept(listening).unwrap()).unwrap();
            sys::close(client).unwrap();
        }
        let sleeper = sleeper_in(set);
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, IN, 1).unwrap();
        assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
        let client = connect_to(address);
        assert_eq!(join_thread(sleeper), Ok(1));
        sys::close(client).unwrap();
        sys::close(listening).unwrap();
    }
}

/// The event that woke a thread may be taken by another thread before the first one runs. It sleeps on, and is woken by
/// later events.
fn corner_07_sleeps_on_while_another_thread_is_told(family: Family) {
    let pairs = pairs(family, 2);
    let events = IN | ET | ONESHOT;
    let entries: Vec<_> = pairs.iter().map(|(client, _)| (*client, events)).collect();
    let set = set_of(&entries);
    let read = |index: usize| {
        let (client, _) = pairs[index];
        expect_bytes(client, b"x");
        let data = index as u64;
        sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, events, data).unwrap();
    };
    for _ in 0..200 {
        let sleeper = sleeper_in(set);
        send_all(pairs[0].1, b"x");
        let is_reported = sys::epoll_wait(set, 4, 0).unwrap().len() == 1;
        if is_reported {
            read(0);
            // The wake-up of the sleeper for the change may be taken here, too.
            assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
            send_all(pairs[1].1, b"x");
        }
        assert_eq!(join_thread(sleeper), Ok(1));
        read(usize::from(is_reported));
    }
}

/// Four threads take events of one set, with a re-arm per event, until everything is echoed.
fn echo_with_threads(family: Family, events: u32, connections: usize, rounds: usize) {
    let pairs = pairs(family, connections);
    pairs
        .iter()
        .for_each(|(_, server)| set_nonblocking(*server));
    let entries: Vec<_> = pairs.iter().map(|(_, server)| (*server, events)).collect();
    let set = set_of(&entries);
    let left = Arc::new(AtomicUsize::new(connections));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let left = Arc::clone(&left);
            let entries = entries.clone();
            start_thread(move || {
                while left.load(Ordering::Acquire) > 0 {
                    for reported in sys::epoll_wait(set, 1, 20).unwrap() {
                        let index = usize::try_from(reported.data).unwrap();
                        let (socket, _) = entries[index];
                        if echo_available(socket) {
                            left.fetch_sub(1, Ordering::AcqRel);
                        } else {
                            sys::epoll_control(
                                set,
                                libc::EPOLL_CTL_MOD,
                                socket,
                                events,
                                reported.data,
                            )
                            .unwrap();
                        }
                    }
                }
            })
        })
        .collect();
    for round in 0..rounds {
        for (client, _) in &pairs {
            send_pattern(*client, round * 300, 300);
        }
        for (client, _) in &pairs {
            expect_pattern(*client, round * 300, 300);
        }
    }
    pairs
        .iter()
        .for_each(|(client, _)| sys::shutdown(*client, libc::SHUT_WR).unwrap());
    for (thread, _) in threads {
        join_thread(thread);
    }
}

/// Echoes the bytes that are there. True at the end of the stream.
fn echo_available(socket: Descriptor) -> bool {
    let mut buffer = [0_u8; 1024];
    loop {
        match sys::recv(socket, &mut buffer, 0) {
            Ok(0) => return true,
            Ok(size) => send_all(socket, &buffer[..size]),
            Err(Errno(libc::EAGAIN)) => return false,
            Err(errno) => panic!("recv: {errno:?}"),
        }
    }
}

fn corner_07_one_set_several_threads_oneshot(family: Family) {
    echo_with_threads(family, IN | ONESHOT, 8, 20);
}

fn corner_07_one_set_several_threads_edge(family: Family) {
    echo_with_threads(family, IN | ET | ONESHOT, 8, 20);
}

fn corner_07_one_set_several_threads_each_event_once(family: Family) {
    // Edge-triggered: one of several sleepers gets the event, which is reported only once.
    let (client, server) = pair(family);
    let set = set_of(&[(client, IN | ET)]);
    let threads: Vec<_> = (0..3)
        .map(|_| start_thread(move || sys::epoll_wait(set, 4, 300).unwrap().len()))
        .collect();
    threads.iter().for_each(|(_, task)| await_asleep(*task));
    send_all(server, b"x");
    let reported: Vec<_> = threads
        .into_iter()
        .map(|(thread, _)| join_thread(thread))
        .collect();
    assert_eq!(reported.iter().sum::<usize>(), 1, "{reported:?}");
}

fn corner_07_set_shared_over_fork(family: Family) {
    let (client, server) = pair(family);
    let set = set_of(&[(client, IN)]);
    let child = fork_child(|| {
        let reported = sys::epoll_wait(set, 4, 10_000).unwrap();
        assert_eq!(reported.len(), 1);
        expect_bytes(client, b"for the child");
        send_all(client, b"read");
    });
    send_all(server, b"for the child");
    expect_bytes(server, b"read");
    child.join();
    assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
    send_all(server, b"x");
    assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap().len(), 1);
}

fn corner_07_child_waits_on_inherited_set(family: Family) {
    // The child adds a socket that the parent does not have. The parent's wait reports it too.
    let (client, server) = pair(family);
    let set = set_of(&[(client, IN)]);
    let added = Baton::new();
    let go = Baton::new();
    let child = fork_child(|| {
        let (own, peer) = pair(family);
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, own, IN, 77).unwrap();
        added.pass();
        go.take();
        send_all(peer, b"x");
        go.take();
    });
    added.take();
    assert_eq!(sys::epoll_wait(set, 4, QUIET_MILLISECONDS), Ok(Vec::new()));
    go.pass();
    let reported = sys::epoll_wait(set, 4, 10_000).unwrap();
    assert_eq!(reported.first().map(|event| event.data), Some(77));
    go.pass();
    child.join();
    // The member went with the child, which held the only reference.
    assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
    send_all(server, b"x");
    assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap().len(), 1);
}

fn corner_07_child_removes_from_inherited_set(family: Family) {
    let (client, server) = pair(family);
    let set = set_of(&[(client, IN)]);
    fork_child(|| sys::epoll_control(set, libc::EPOLL_CTL_DEL, client, 0, 0).unwrap()).join();
    send_all(server, b"x");
    await_events(client, libc::POLLIN);
    assert_eq!(sys::epoll_wait(set, 4, QUIET_MILLISECONDS), Ok(Vec::new()));
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN, 0).unwrap();
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap().len(), 1);
}

fn corner_07_exclusive_in_two_sets(family: Family) {
    let (listening, address) = listener(family);
    let exclusive = IN | sys::EXCLUSIVE;
    let woken = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let set = set_of(&[(listening, exclusive)]);
            let woken = Arc::clone(&woken);
            start_thread(move || {
                if !sys::epoll_wait(set, 1, 10_000).unwrap().is_empty() {
                    woken.fetch_add(1, Ordering::AcqRel);
                }
            })
        })
        .collect();
    threads.iter().for_each(|(_, task)| await_asleep(*task));
    let first = connect_to(address);
    eventually("one is woken", || woken.load(Ordering::Acquire) >= 1);
    expect_alive(first, sys::accept(listening).unwrap());
    let second = connect_to(address);
    for (thread, _) in threads {
        join_thread(thread);
    }
    assert_eq!(woken.load(Ordering::Acquire), 2);
    expect_alive(second, sys::accept(listening).unwrap());
    // EXCLUSIVE cannot be changed afterwards.
    let set = set_of(&[(listening, exclusive)]);
    let changed = sys::epoll_control(set, libc::EPOLL_CTL_MOD, listening, IN, 0);
    assert_eq!(changed, Err(Errno(libc::EINVAL)));
}

/// A loop removes a connection and adds it again with every request, and sleeps with and without it.
fn corner_07_out_and_in_again(family: Family) {
    let (client, server) = pair(family);
    let set = set_of(&[(client, IN)]);
    assert_eq!(sys::epoll_wait(set, 4, 20), Ok(Vec::new()));
    for round in 1..4 {
        sys::epoll_control(set, libc::EPOLL_CTL_DEL, client, 0, 0).unwrap();
        let again = sys::epoll_control(set, libc::EPOLL_CTL_DEL, client, 0, 0);
        assert_eq!(again, Err(Errno(libc::ENOENT)));
        if round % 2 == 0 {
            send_all(server, b"x");
        }
        assert_eq!(sys::epoll_wait(set, 4, 20), Ok(Vec::new()));
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN, round).unwrap();
        let again = sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN, round);
        assert_eq!(again, Err(Errno(libc::EEXIST)));
        if round % 2 != 0 {
            assert_eq!(sys::epoll_wait(set, 4, 20), Ok(Vec::new()));
            send_all(server, b"x");
        }
        let reported = sys::epoll_wait(set, 4, 10_000).unwrap();
        assert_eq!(
            reported.iter().map(|one| one.data).collect::<Vec<_>>(),
            [round]
        );
        expect_bytes(client, b"x");
        assert_eq!(sys::epoll_wait(set, 4, 20), Ok(Vec::new()));
    }
}

/// A new socket under the number of a removed connection is another member.
fn corner_07_out_then_closed(family: Family) {
    let (client, server) = pair(family);
    let (other, far) = pair(family);
    let set = set_of(&[(client, IN), (other, IN)]);
    assert_eq!(sys::epoll_wait(set, 4, 20), Ok(Vec::new()));
    for taken in [client, other] {
        sys::epoll_control(set, libc::EPOLL_CTL_DEL, taken, 0, 0).unwrap();
    }
    let copy = sys::dup(client).unwrap();
    sys::dup2(other, client).unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN, 7).unwrap();
    send_all(server, b"x");
    assert_eq!(sys::epoll_wait(set, 4, 20), Ok(Vec::new()));
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, copy, IN, 8).unwrap();
    let reported = sys::epoll_wait(set, 4, 10_000).unwrap();
    assert_eq!(reported.iter().map(|one| one.data).collect::<Vec<_>>(), [8]);
    expect_bytes(copy, b"x");
    send_all(far, b"y");
    let reported = sys::epoll_wait(set, 4, 10_000).unwrap();
    assert_eq!(reported.iter().map(|one| one.data).collect::<Vec<_>>(), [7]);
    expect_bytes(client, b"y");
    sys::close(copy).unwrap();
    expect_end(server);
    assert_eq!(sys::epoll_wait(set, 4, 20), Ok(Vec::new()));
}

/// A member that was removed before a fork is added again by the child.
fn corner_07_out_before_fork(family: Family) {
    let (client, server) = pair(family);
    let set = set_of(&[(client, IN)]);
    assert_eq!(sys::epoll_wait(set, 4, 20), Ok(Vec::new()));
    sys::epoll_control(set, libc::EPOLL_CTL_DEL, client, 0, 0).unwrap();
    let child = fork_child(|| {
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN, 3).unwrap();
        send_all(client, b"ready");
        let reported = sys::epoll_wait(set, 4, 10_000).unwrap();
        assert_eq!(reported.iter().map(|one| one.data).collect::<Vec<_>>(), [3]);
        expect_bytes(client, b"x");
    });
    expect_bytes(server, b"ready");
    send_all(server, b"x");
    child.join();
}

fn corner_07_dup_and_original_in_one_set(family: Family) {
    let (client, server) = pair(family);
    let copy = sys::dup(client).unwrap();
    let set = set_of(&[(client, IN), (copy, IN)]);
    send_all(server, b"x");
    // A waiting thread may be woken between the two.
    eventually("both are told", || {
        let mut reported: Vec<_> = sys::epoll_wait(set, 4, 10_000)
            .unwrap()
            .iter()
            .map(|event| event.data)
            .collect();
        reported.sort_unstable();
        reported == [0, 1]
    });
    let again = sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN, 5);
    assert_eq!(again, Err(Errno(libc::EEXIST)));
    expect_bytes(client, b"x");
    assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
}

fn corner_07_mixed_with_pipes_and_eventfds(family: Family) {
    let (client, server) = pair(family);
    let [reader, writer] = sys::pipe(0).unwrap();
    let counter = sys::eventfd(0, 0).unwrap();
    let set = set_of(&[(client, IN), (reader, IN), (counter, IN)]);
    let reported = |expected: &[u64]| {
        eventually("told", || {
            let mut reported: Vec<_> = sys::epoll_wait(set, 8, 100)
                .unwrap()
                .iter()
                .map(|event| event.data)
                .collect();
            reported.sort_unstable();
            reported == expected
        });
    };
    send_all(server, b"x");
    reported(&[0]);
    sys::write(writer, b"x").unwrap();
    reported(&[0, 1]);
    sys::write(counter, &1_u64.to_ne_bytes()).unwrap();
    reported(&[0, 1, 2]);
    expect_bytes(client, b"x");
    reported(&[1, 2]);
    // With room for one event at a time, several ready members take turns.
    send_all(server, b"y");
    await_events(client, libc::POLLIN);
    let mut seen = [0; 3];
    for _ in 0..30 {
        for reported in sys::epoll_wait(set, 1, 1000).unwrap() {
            seen[usize::try_from(reported.data).unwrap()] += 1;
        }
    }
    assert!(
        seen.iter().all(|count| *count >= 5),
        "one starves: {seen:?}"
    );
}

fn corner_07_two_hundred_sockets_in_one_set(family: Family) {
    let pairs = pairs(family, 200);
    let entries: Vec<_> = pairs.iter().map(|(client, _)| (*client, IN)).collect();
    let set = set_of(&entries);
    let mut random = Random::new(7);
    for _ in 0..20 {
        let mut expected = Vec::new();
        for (index, (_, server)) in pairs.iter().enumerate() {
            if random.once_in(3) {
                send_all(*server, b"x");
                expected.push(index as u64);
            }
        }
        let mut reported = Vec::new();
        while reported.len() < expected.len() {
            let more = sys::epoll_wait(set, 64, 10_000).unwrap();
            assert!(
                !more.is_empty(),
                "only {} of {} told",
                reported.len(),
                expected.len()
            );
            for entry in more {
                expect_bytes(pairs[usize::try_from(entry.data).unwrap()].0, b"x");
                reported.push(entry.data);
            }
        }
        reported.sort_unstable();
        assert_eq!(reported, expected);
        assert_eq!(sys::epoll_wait(set, 64, 0), Ok(Vec::new()));
    }
}

/// The set has not reported the first client's end, and must not take the second client for the first.
fn corner_07_many_come_after_a_client_whose_end_poll_saw(family: Family) {
    (0..4).for_each(|_| come_after_an_end(family));
}

fn come_after_an_end(family: Family) {
    const FIRST: usize = 16;
    const MORE: usize = 30;
    let (address, go_on) = (Baton::new(), Baton::new());
    let server_task = sys::getpid();
    let learn = || family.loopback(u16::try_from(address.receive()).unwrap());
    let early = fork_child(|| {
        let client = connect_to(learn());
        expect_end(client);
    });
    let late = fork_child(|| {
        go_on.take();
        let to = learn();
        let mut clients: Vec<_> = (0..FIRST).map(|_| connect_to(to)).collect();
        clients
            .iter()
            .for_each(|client| expect_bytes(*client, b"!"));
        await_asleep(server_task);
        clients.extend((0..MORE).map(|_| connect_to(to)));
        for (index, client) in clients.iter().enumerate() {
            send_pattern(*client, index, 100);
        }
        clients
            .iter()
            .skip(FIRST)
            .for_each(|client| expect_bytes(*client, b"!"));
    });
    let (listening, at) = listener_with(family, 128);
    let set = set_of(&[(listening, IN)]);
    address.send(u64::from(at.port()));
    assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap().len(), 1);
    let served = sys::accept(listening).unwrap();
    assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
    sys::close(served).unwrap();
    early.join();
    expect_quiet(listening, libc::POLLIN);

    address.send(u64::from(at.port()));
    go_on.pass();
    for index in 0..FIRST + MORE {
        assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap().len(), 1);
        let server = sys::accept(listening).unwrap();
        send_all(server, b"!");
        if index >= FIRST {
            expect_pattern(server, index, 100);
        }
    }
    late.join();
    for descriptor in [set, listening] {
        sys::close(descriptor).unwrap();
    }
}

/// Kernel members are reported together with virtual ones, however soon a wait follows another.
fn corner_07_both_kinds_are_told_each_time(family: Family) {
    let (client, _server) = pair(family);
    let set = set_of(&[(client, OUT), (tcp(family), IN)]);
    for _ in 0..50 {
        assert_eq!(sys::epoll_wait(set, 4, 0).unwrap().len(), 2);
    }
}

fn corner_07_listener_stays_under_its_other_number(family: Family) {
    for removed_first in [false, true] {
        let (listening, address) = listener(family);
        let other = sys::dup(listening).unwrap();
        let set = set_of(&[(other, 0), (listening, IN)]);
        let remove = || sys::epoll_control(set, libc::EPOLL_CTL_DEL, other, 0, 0).unwrap();
        if removed_first {
            remove();
        }
        let client = connect_to(address);
        if !removed_first {
            remove();
        }
        assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap().len(), 1);
        let server = sys::accept(listening).unwrap();
        expect_alive(client, server);
        assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
    }
}
