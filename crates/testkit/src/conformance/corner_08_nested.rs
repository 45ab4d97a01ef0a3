//! Corner 8: sets within sets, poll on a set, changes to a set in which another thread waits.

use std::time::Duration;

use netchannel_testkit::far::Side;
use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, ET, Errno, IN, ONESHOT, OUT};

use crate::case::cases;
use crate::helpers::nothing;

cases! {
    families: [
        corner_08_nested_set_tells,
        corner_08_nested_three_deep,
        corner_08_nested_five_deep,
        corner_08_nested_five_deep_each_is_woken,
        corner_08_nested_edge_triggered,
        corner_08_nested_sleeper_is_woken,
        corner_08_nested_member_of_two_processes,
        corner_08_nested_told_once_around_held_bytes,
        corner_08_poll_on_a_set,
        corner_08_select_on_a_set,
        corner_08_select_on_a_listener_and_its_set,
        corner_08_poll_on_a_set_sleeper_is_woken,
        corner_08_add_ready_socket_wakes_sleeper,
        corner_08_add_then_data_wakes_sleeper,
        corner_08_mod_wakes_sleeper,
        corner_08_mod_to_nothing_silences,
        corner_08_del_while_waiting,
        corner_08_control_errors,
        corner_08_close_set_while_socket_lives,
        corner_08_events_zero_tells_errors_only,
    ];
}

fn add(set: Descriptor, descriptor: Descriptor, events: u32, data: u64) {
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, descriptor, events, data).expect("add");
}

fn data_of(reported: &[sys::Event]) -> Vec<u64> {
    reported.iter().map(|event| event.data).collect()
}

fn corner_08_nested_set_tells(family: Family) {
    let (client, server) = pair(family);
    let inner = sys::epoll_create().unwrap();
    let outer = sys::epoll_create().unwrap();
    add(inner, client, IN, 1);
    add(outer, inner, IN, 2);
    assert_eq!(sys::epoll_wait(outer, 4, 0), Ok(Vec::new()));
    send_all(server, b"x");
    assert_eq!(data_of(&sys::epoll_wait(outer, 4, 10_000).unwrap()), [2]);
    assert_eq!(data_of(&sys::epoll_wait(inner, 4, 10_000).unwrap()), [1]);
    expect_bytes(client, b"x");
    assert_eq!(sys::epoll_wait(inner, 4, 0), Ok(Vec::new()));
    assert_eq!(sys::epoll_wait(outer, 4, 0), Ok(Vec::new()));
}

fn corner_08_nested_three_deep(family: Family) {
    let (client, server) = pair(family);
    let sets: Vec<_> = (0..3).map(|_| sys::epoll_create().unwrap()).collect();
    add(sets[0], client, IN, 10);
    add(sets[1], sets[0], IN, 11);
    add(sets[2], sets[1], IN, 12);
    send_all(server, b"x");
    assert_eq!(data_of(&sys::epoll_wait(sets[2], 4, 10_000).unwrap()), [12]);
    assert_eq!(data_of(&sys::epoll_wait(sets[1], 4, 0).unwrap()), [11]);
    assert_eq!(data_of(&sys::epoll_wait(sets[0], 4, 0).unwrap()), [10]);
    expect_bytes(client, b"x");
    assert_eq!(sys::epoll_wait(sets[2], 4, 0), Ok(Vec::new()));
}

/// As deep as the kernel allows.
fn corner_08_nested_five_deep(family: Family) {
    let (client, server) = pair(family);
    let mut outermost = client;
    for depth in 0..5 {
        let set = sys::epoll_create().unwrap();
        add(set, outermost, IN, depth);
        outermost = set;
    }
    send_all(server, b"x");
    let reported = sys::epoll_wait(outermost, 4, 10_000).unwrap();
    assert_eq!(data_of(&reported), [4]);
    expect_bytes(client, b"x");
}

/// Sets are nested in any order. A sleeper in any of them is woken, and no event is reported after it was taken.
fn corner_08_nested_five_deep_each_is_woken(family: Family) {
    for downwards in [false, true] {
        let (client, server) = pair(family);
        let sets: Vec<_> = (0..5).map(|_| sys::epoll_create().unwrap()).collect();
        let mut places: Vec<usize> = (0..5).collect();
        if downwards {
            places.reverse();
        }
        for place in places {
            let member = if place == 0 { client } else { sets[place - 1] };
            add(sets[place], member, IN, place as u64);
        }
        for (place, set) in sets.iter().copied().enumerate() {
            let (thread, task) = start_thread(move || sys::epoll_wait(set, 4, 10_000).unwrap());
            await_asleep(task);
            send_all(server, b"x");
            assert_eq!(data_of(&join_thread(thread)), [place as u64]);
            expect_bytes(client, b"x");
            assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
            let (thread, task) = start_thread(move || poll_one(set, libc::POLLIN, 10_000));
            await_asleep(task);
            send_all(server, b"x");
            assert_eq!(join_thread(thread), libc::POLLIN);
            expect_bytes(client, b"x");
            assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
            assert_eq!(poll_one(set, libc::POLLIN, 0), 0);
        }
        let sixth = sys::epoll_create().unwrap();
        let deeper = sys::epoll_control(sixth, libc::EPOLL_CTL_ADD, sets[4], IN, 0);
        assert_eq!(deeper, Err(Errno(libc::ELOOP)));
        // Without the set between, the innermost set no longer matters.
        sys::epoll_control(sets[1], libc::EPOLL_CTL_DEL, sets[0], 0, 0).unwrap();
        send_all(server, b"y");
        assert_eq!(data_of(&sys::epoll_wait(sets[0], 4, 10_000).unwrap()), [0]);
        assert_eq!(
            sys::epoll_wait(sets[4], 4, QUIET_MILLISECONDS),
            Ok(Vec::new())
        );
        sys::close(sets[0]).unwrap();
        expect_bytes(client, b"y");
    }
}

fn corner_08_nested_edge_triggered(family: Family) {
    let (client, server) = pair(family);
    let inner = sys::epoll_create().unwrap();
    let outer = sys::epoll_create().unwrap();
    add(inner, client, IN, 1);
    add(outer, inner, IN | ET, 2);
    send_all(server, b"x");
    assert_eq!(data_of(&sys::epoll_wait(outer, 4, 10_000).unwrap()), [2]);
    assert_eq!(sys::epoll_wait(outer, 4, 0), Ok(Vec::new()));
    assert_eq!(data_of(&sys::epoll_wait(inner, 4, 0).unwrap()), [1]);
    expect_bytes(client, b"x");
    assert_eq!(sys::epoll_wait(inner, 4, 0), Ok(Vec::new()));
    send_all(server, b"y");
    assert_eq!(data_of(&sys::epoll_wait(outer, 4, 10_000).unwrap()), [2]);
}

fn corner_08_nested_sleeper_is_woken(family: Family) {
    let (client, server) = pair(family);
    let inner = sys::epoll_create().unwrap();
    let outer = sys::epoll_create().unwrap();
    add(inner, client, IN, 1);
    add(outer, inner, IN, 2);
    for _ in 0..5 {
        let (thread, task) = start_thread(move || sys::epoll_wait(outer, 4, 10_000).unwrap());
        await_asleep(task);
        send_all(server, b"x");
        assert_eq!(data_of(&join_thread(thread)), [2]);
        expect_bytes(client, b"x");
    }
}

/// Another process waits for the member, too, and is told as well.
fn corner_08_nested_member_of_two_processes(family: Family) {
    const ROUNDS: usize = 100;
    let (client, server) = pair(family);
    let [send, told, again] = [(); 3].map(|()| Baton::new());
    let sender = fork_child(|| {
        for _ in 0..ROUNDS {
            send.take();
            std::thread::sleep(std::time::Duration::from_millis(2));
            send_all(server, b"x");
        }
    });
    let other = fork_child(|| {
        for _ in 0..ROUNDS {
            await_events(client, libc::POLLIN);
            told.pass();
            again.take();
        }
    });
    let inner = sys::epoll_create().unwrap();
    let outer = sys::epoll_create().unwrap();
    add(inner, client, IN, 1);
    add(outer, inner, IN, 2);
    for _ in 0..ROUNDS {
        send.pass();
        assert_eq!(data_of(&sys::epoll_wait(outer, 4, 10_000).unwrap()), [2]);
        told.take();
        expect_bytes(client, b"x");
        again.pass();
    }
    sender.join();
    other.join();
}

/// Bytes that the peer has held back come while a thread waits for more of a set that has told all it may.
fn corner_08_nested_told_once_around_held_bytes(family: Family) {
    sys::handle_signal(libc::SIGUSR1, nothing, 0).unwrap();
    let (client, server) = pair(family);
    assert_eq!(sys::send(server, b"abc", libc::MSG_MORE), Ok(3));
    let inner = sys::epoll_create().unwrap();
    let outer = sys::epoll_create().unwrap();
    add(inner, client, IN | OUT, 1);
    add(outer, inner, IN | ONESHOT, 2);
    assert_eq!(data_of(&sys::epoll_wait(outer, 4, 10_000).unwrap()), [2]);
    let (sleeper, task) = start_thread(move || sys::epoll_wait(outer, 4, 10_000));
    await_asleep(task);
    await_events(client, libc::POLLIN);
    std::thread::sleep(Duration::from_millis(50));
    sys::signal_thread(task, libc::SIGUSR1).unwrap();
    assert_eq!(join_thread(sleeper), Err(Errno(libc::EINTR)));
    expect_bytes(client, b"abc");
}

fn corner_08_poll_on_a_set(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    add(set, client, IN, 1);
    assert_eq!(poll_one(set, libc::POLLIN, 0), 0);
    send_all(server, b"x");
    assert_eq!(await_events(set, libc::POLLIN), libc::POLLIN);
    assert_eq!(data_of(&sys::epoll_wait(set, 4, 0).unwrap()), [1]);
    expect_bytes(client, b"x");
    assert_eq!(poll_one(set, libc::POLLIN, 0), 0);
}

fn corner_08_select_on_a_set(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    add(set, client, IN, 1);
    let mut read = sys::Set::of(&[set]);
    assert_eq!(sys::select(set, Some(&mut read), None, None, 0), Ok(0));
    send_all(server, b"x");
    let mut read = sys::Set::of(&[set]);
    assert_eq!(sys::select(set, Some(&mut read), None, None, 10_000), Ok(1));
    assert!(read.has(set));
}

/// The first connection of another program makes both readable.
fn corner_08_select_on_a_listener_and_its_set(family: Family) {
    let (listener, address) = listener(family);
    let set = sys::epoll_create().unwrap();
    add(set, listener, IN, 1);
    let client = tcp_for(Side::Client, family);
    sys::connect(client, address).unwrap();
    let mut read = sys::Set::of(&[listener, set]);
    let count = sys::select(set, Some(&mut read), None, None, 10_000);
    assert_eq!(count, Ok(2), "{} {}", read.has(listener), read.has(set));
}

fn corner_08_poll_on_a_set_sleeper_is_woken(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    add(set, client, IN, 1);
    let (thread, task) = start_thread(move || poll_one(set, libc::POLLIN, 10_000));
    await_asleep(task);
    send_all(server, b"x");
    assert_eq!(join_thread(thread), libc::POLLIN);
}

fn corner_08_add_ready_socket_wakes_sleeper(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"x");
    await_events(client, libc::POLLIN);
    let set = sys::epoll_create().unwrap();
    let (thread, task) = start_thread(move || sys::epoll_wait(set, 4, 10_000).unwrap());
    await_asleep(task);
    add(set, client, IN, 5);
    assert_eq!(data_of(&join_thread(thread)), [5]);
}

fn corner_08_add_then_data_wakes_sleeper(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    let (thread, task) = start_thread(move || sys::epoll_wait(set, 4, 10_000).unwrap());
    await_asleep(task);
    add(set, client, IN, 5);
    send_all(server, b"x");
    assert_eq!(data_of(&join_thread(thread)), [5]);
}

fn corner_08_mod_wakes_sleeper(family: Family) {
    let (client, _server) = pair(family);
    let set = sys::epoll_create().unwrap();
    add(set, client, IN, 1);
    let (thread, task) = start_thread(move || sys::epoll_wait(set, 4, 10_000).unwrap());
    await_asleep(task);
    sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, IN | OUT, 2).unwrap();
    assert_eq!(
        join_thread(thread),
        [sys::Event {
            data: 2,
            events: OUT
        }]
    );
}

fn corner_08_mod_to_nothing_silences(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    add(set, client, IN | OUT, 1);
    assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap()[0].events, OUT);
    sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, 0, 1).unwrap();
    send_all(server, b"x");
    await_events(client, libc::POLLIN);
    assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
    sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, IN, 3).unwrap();
    assert_eq!(
        sys::epoll_wait(set, 4, 10_000).unwrap(),
        [sys::Event {
            data: 3,
            events: IN
        }]
    );
}

fn corner_08_del_while_waiting(family: Family) {
    let (client, server) = pair(family);
    let (other, other_server) = pair(family);
    let set = sys::epoll_create().unwrap();
    add(set, client, IN, 1);
    add(set, other, IN, 2);
    let (thread, task) = start_thread(move || sys::epoll_wait(set, 4, 10_000).unwrap());
    await_asleep(task);
    sys::epoll_control(set, libc::EPOLL_CTL_DEL, client, 0, 0).unwrap();
    send_all(server, b"x");
    await_events(client, libc::POLLIN);
    send_all(other_server, b"y");
    assert_eq!(data_of(&join_thread(thread)), [2]);
}

fn corner_08_control_errors(family: Family) {
    let (client, _server) = pair(family);
    let set = sys::epoll_create().unwrap();
    let control = |operation, descriptor| sys::epoll_control(set, operation, descriptor, IN, 0);
    assert_eq!(
        control(libc::EPOLL_CTL_MOD, client),
        Err(Errno(libc::ENOENT))
    );
    assert_eq!(
        control(libc::EPOLL_CTL_DEL, client),
        Err(Errno(libc::ENOENT))
    );
    assert_eq!(control(libc::EPOLL_CTL_ADD, client), Ok(()));
    assert_eq!(
        control(libc::EPOLL_CTL_ADD, client),
        Err(Errno(libc::EEXIST))
    );
    assert_eq!(
        control(libc::EPOLL_CTL_ADD, 1_000_000),
        Err(Errno(libc::EBADF))
    );
    assert_eq!(control(libc::EPOLL_CTL_ADD, set), Err(Errno(libc::EINVAL)));
    assert_eq!(control(99, client), Err(Errno(libc::EINVAL)));
    let on_socket = sys::epoll_control(client, libc::EPOLL_CTL_ADD, set, IN, 0);
    assert_eq!(on_socket, Err(Errno(libc::EINVAL)));
    assert_eq!(sys::epoll_wait(client, 4, 0), Err(Errno(libc::EINVAL)));
    assert_eq!(sys::epoll_wait(set, 0, 0), Err(Errno(libc::EINVAL)));
    let other = sys::epoll_create().unwrap();
    sys::epoll_control(other, libc::EPOLL_CTL_ADD, set, IN, 0).unwrap();
    assert_eq!(control(libc::EPOLL_CTL_ADD, other), Err(Errno(libc::ELOOP)));
}

fn corner_08_close_set_while_socket_lives(family: Family) {
    let (client, server) = pair(family);
    for _ in 0..20 {
        let set = sys::epoll_create().unwrap();
        add(set, client, IN, 1);
        send_all(server, b"x");
        assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap().len(), 1);
        expect_bytes(client, b"x");
        sys::close(set).unwrap();
        assert_eq!(sys::epoll_wait(set, 4, 0), Err(Errno(libc::EBADF)));
    }
    expect_alive(client, server);
}

fn corner_08_events_zero_tells_errors_only(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    add(set, client, 0, 1);
    send_all(server, b"x");
    await_events(client, libc::POLLIN);
    assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
    close_with_reset(server);
    let expected = sys::ERR | sys::HUP;
    assert_eq!(
        sys::epoll_wait(set, 4, 10_000).unwrap(),
        [sys::Event {
            data: 1,
            events: expected
        }]
    );
}
