//! Corner 9: edge-triggered and one-shot notification, and events of closed numbers.

use std::sync::{Arc, Mutex, mpsc};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, ET, Errno, Event, IN, ONESHOT, OUT, RDHUP};

use crate::case::cases;

cases! {
    families: [
        corner_09_edge_told_once,
        corner_09_edge_again_with_new_data_undrained,
        corner_09_edge_again_on_end_of_stream,
        corner_09_edge_add_when_ready_tells,
        corner_09_edge_mod_rearms,
        corner_09_edge_out_told_once_and_again_after_full,
        corner_09_edge_out_of_what_a_child_inherited,
        corner_09_edge_out_in_two_sets,
        corner_09_edge_in_and_out_together,
        corner_09_edge_listener,
        corner_09_edge_listener_sent_over_tcp,
        corner_09_edge_drain_loop_large_stream,
        corner_09_edge_partial_read_then_rest_without_event,
        corner_09_oneshot_told_once,
        corner_09_oneshot_rearm_while_ready,
        corner_09_oneshot_silent_even_for_hangup,
        corner_09_oneshot_data_between_event_and_rearm,
        corner_09_oneshot_rearmed_by_other_threads,
        corner_09_stale_event_after_close,
        corner_09_stale_event_after_close_and_reuse,
        corner_09_closed_number_reused_and_added_again,
        corner_09_event_lives_with_the_dup,
        corner_09_event_lives_with_the_dup_of_a_sleeper,
        corner_09_edge_many_small_sends,
        corner_09_level_told_until_drained,
    ];
}

fn set_with(descriptor: Descriptor, events: u32) -> Descriptor {
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, descriptor, events, 1).unwrap();
    set
}

/// Waits for exactly one event with exactly these bits.
#[track_caller]
fn expect_reported(set: Descriptor, events: u32) {
    // Without a time-out: at the end of a time-out the event would be found even without a wake-up.
    assert_eq!(
        sys::epoll_wait(set, 8, -1).unwrap(),
        [Event { data: 1, events }]
    );
}

#[track_caller]
fn expect_silence(set: Descriptor) {
    assert_eq!(sys::epoll_wait(set, 8, QUIET_MILLISECONDS).unwrap(), []);
}

fn corner_09_edge_told_once(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN | ET);
    expect_silence(set);
    send_all(server, b"abc");
    expect_reported(set, IN);
    expect_silence(set);
    expect_bytes(client, b"abc");
    expect_silence(set);
}

fn corner_09_edge_again_with_new_data_undrained(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN | ET);
    for round in 0..5_usize {
        send_pattern(server, round * 10, 10);
        expect_reported(set, IN);
        // More bytes stay unread with every round: no event until more bytes arrive.
        expect_pattern(client, round * 3, 3);
        expect_silence(set);
    }
    expect_pattern(client, 15, 35);
    expect_silence(set);
}

fn corner_09_edge_again_on_end_of_stream(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN | RDHUP | ET);
    send_all(server, b"x");
    expect_reported(set, IN);
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    expect_reported(set, IN | RDHUP);
    expect_silence(set);
    expect_bytes(client, b"x");
    expect_end(client);
    expect_silence(set);
}

fn corner_09_edge_add_when_ready_tells(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"x");
    await_events(client, libc::POLLIN);
    let set = set_with(client, IN | OUT | ET);
    expect_reported(set, IN | OUT);
    expect_silence(set);
}

fn corner_09_edge_mod_rearms(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN | ET);
    send_all(server, b"x");
    expect_reported(set, IN);
    for _ in 0..3 {
        expect_silence(set);
        sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, IN | ET, 1).unwrap();
        expect_reported(set, IN);
    }
    expect_bytes(client, b"x");
    sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, IN | ET, 1).unwrap();
    expect_silence(set);
}

fn corner_09_edge_out_told_once_and_again_after_full(family: Family) {
    let (client, server) = small_pair(family);
    let set = set_with(client, OUT | ET);
    expect_reported(set, OUT);
    expect_silence(set);
    let mut sent = 0;
    for _ in 0..3 {
        // Room that appears while bytes are in transit to a far reader is reported, too. The writer gets no further
        // edge until the buffer is full again, so the room is filled until no more appears.
        let mut filled = 0;
        loop {
            filled += fill_from(client, sent + filled);
            if sys::epoll_wait(set, 8, QUIET_MILLISECONDS)
                .unwrap()
                .is_empty()
            {
                break;
            }
        }
        expect_pattern(server, sent, filled);
        sent += filled;
        expect_reported(set, OUT);
    }
}

fn fill_from(socket: Descriptor, offset: usize) -> usize {
    set_nonblocking(socket);
    let mut total = 0;
    while let Ok(size) = sys::send(socket, &pattern(offset + total, 8192), libc::MSG_NOSIGNAL) {
        total += size;
    }
    total
}

fn corner_09_edge_out_of_what_a_child_inherited(family: Family) {
    let (client, server) = small_pair(family);
    fork_child(|| {
        let set = set_with(client, OUT | ET);
        expect_reported(set, OUT);
        let mut sent = 0;
        for _ in 0..3 {
            // A sleeper that has slept while there was room is still woken by new room.
            expect_silence(set);
            let filled = fill_from(client, sent);
            expect_pattern(server, sent, filled);
            sent += filled;
            expect_reported(set, OUT);
        }
    })
    .join();
}

fn corner_09_edge_out_in_two_sets(family: Family) {
    let (client, server) = small_pair(family);
    let sets = [set_with(client, OUT | ET), set_with(client, OUT | ET)];
    for set in sets {
        expect_reported(set, OUT);
        expect_silence(set);
    }
    let filled = fill_from(client, 0);
    expect_pattern(server, 0, filled);
    for set in sets {
        expect_reported(set, OUT);
    }
}

fn corner_09_edge_in_and_out_together(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN | OUT | ET);
    expect_reported(set, OUT);
    send_all(server, b"x");
    // The wake-up by data reports all bits that hold.
    expect_reported(set, IN | OUT);
    expect_bytes(client, b"x");
    expect_silence(set);
}

fn corner_09_edge_listener(family: Family) {
    let (listening, address) = listener(family);
    set_nonblocking(listening);
    let set = set_with(listening, IN | ET);
    let first = connect_to(address);
    expect_reported(set, IN);
    expect_silence(set);
    // One connection stays in the queue. The next one is reported all the same.
    let second = connect_to(address);
    expect_reported(set, IN);
    for socket in [first, second] {
        expect_alive(socket, sys::accept(listening).unwrap());
    }
    assert_eq!(sys::accept(listening), Err(sys::Errno(libc::EAGAIN)));
    expect_silence(set);
}

/// TCP passes no descriptors, so the listener goes nowhere.
fn corner_09_edge_listener_sent_over_tcp(family: Family) {
    sys::ignore_signal(libc::SIGPIPE).unwrap();
    let (listening, address) = listener(family);
    let client = connect_to(address);
    let set = set_with(listening, IN | ET);
    set_int(listening, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 0);
    assert_eq!(sys::send_descriptor(client, listening), Ok(()));
    let refused = sys::send_descriptor(listening, listening);
    assert_eq!(refused, Err(Errno(libc::EPIPE)));
    expect_reported(set, IN);
    expect_silence(set);
    let server = sys::accept(listening).unwrap();
    expect_bytes(server, b"D");
    expect_alive(client, server);
}

fn corner_09_edge_drain_loop_large_stream(family: Family) {
    const TOTAL: usize = 4 * 1024 * 1024;
    converse(
        family,
        Place::Processes,
        |connection| {
            send_pattern(connection, 0, TOTAL);
            sys::close(connection).unwrap();
        },
        |connection| {
            set_nonblocking(connection);
            let set = set_with(connection, IN | RDHUP | ET);
            let mut buffer = vec![0_u8; 10_000];
            let mut received = 0;
            'stream: loop {
                assert!(
                    !sys::epoll_wait(set, 1, 10_000).unwrap().is_empty(),
                    "an edge is lost"
                );
                loop {
                    match sys::recv(connection, &mut buffer, 0) {
                        Ok(0) => break 'stream,
                        Ok(size) => {
                            assert_eq!(pattern_mismatch(received, &buffer[..size]), None);
                            received += size;
                        }
                        Err(errno) => {
                            assert_eq!(errno, sys::Errno(libc::EAGAIN));
                            break;
                        }
                    }
                }
            }
            assert_eq!(received, TOTAL);
        },
    );
}

fn corner_09_edge_partial_read_then_rest_without_event(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN | ET);
    send_pattern(server, 0, 1000);
    expect_reported(set, IN);
    expect_pattern(client, 0, 10);
    expect_silence(set);
    // No event, and the rest can be read nevertheless.
    expect_pattern(client, 10, 990);
    assert_eq!(poll_one(client, libc::POLLIN, 0), 0);
}

fn corner_09_oneshot_told_once(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN | ONESHOT);
    send_all(server, b"x");
    expect_reported(set, IN);
    expect_silence(set);
    send_all(server, b"y");
    expect_silence(set);
    expect_bytes(client, b"xy");
    sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, IN | ONESHOT, 1).unwrap();
    expect_silence(set);
    send_all(server, b"z");
    expect_reported(set, IN);
    expect_silence(set);
}

fn corner_09_oneshot_rearm_while_ready(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN | ONESHOT);
    send_all(server, b"x");
    for _ in 0..5 {
        expect_reported(set, IN);
        sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, IN | ONESHOT, 1).unwrap();
    }
    expect_reported(set, IN);
    expect_silence(set);
}

fn corner_09_oneshot_silent_even_for_hangup(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN | RDHUP | ONESHOT);
    send_all(server, b"x");
    expect_reported(set, IN);
    close_with_reset(server);
    await_events(client, libc::POLLERR);
    expect_silence(set);
    sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, IN | RDHUP | ONESHOT, 1).unwrap();
    let reported = sys::epoll_wait(set, 8, 10_000).unwrap();
    let expected = IN | RDHUP | sys::ERR | sys::HUP;
    assert_eq!(
        reported,
        [Event {
            data: 1,
            events: expected
        }]
    );
}

fn corner_09_oneshot_data_between_event_and_rearm(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN | ET | ONESHOT);
    for _ in 0..20 {
        send_all(server, b"x");
        expect_reported(set, IN);
        expect_bytes(client, b"x");
        send_all(server, b"y");
        await_events(client, libc::POLLIN);
        sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, IN | ET | ONESHOT, 1).unwrap();
        expect_reported(set, IN);
        expect_bytes(client, b"y");
        sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, IN | ET | ONESHOT, 1).unwrap();
    }
}

/// One thread waits. Others read a part of each event's bytes and arm the member again.
fn corner_09_oneshot_rearmed_by_other_threads(family: Family) {
    const PAIRS: usize = 8;
    const ROUNDS: usize = 300;
    const BYTES: usize = 2000;
    let set = sys::epoll_create().unwrap();
    let pairs: Vec<_> = (0..PAIRS).map(|_| pair(family)).collect();
    let (sender, tasks) = mpsc::channel();
    let tasks = Arc::new(Mutex::new(tasks));
    let (read, rounds) = mpsc::channel();
    for (number, (client, _)) in pairs.iter().enumerate() {
        sys::epoll_control(
            set,
            libc::EPOLL_CTL_ADD,
            *client,
            IN | ONESHOT,
            number as u64,
        )
        .unwrap();
    }
    let clients: Arc<[Descriptor]> = pairs.iter().map(|(client, _)| *client).collect();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let (tasks, read, clients) = (tasks.clone(), read.clone(), clients.clone());
            std::thread::spawn(move || {
                loop {
                    let task = tasks.lock().unwrap().recv();
                    let Ok(number) = task else { return };
                    let client = clients[usize::try_from(number).unwrap()];
                    let mut piece = [0; BYTES / 4];
                    let size = sys::recv(client, &mut piece, 0).unwrap();
                    read.send(size).unwrap();
                    sys::epoll_control(set, libc::EPOLL_CTL_MOD, client, IN | ONESHOT, number)
                        .unwrap();
                }
            })
        })
        .collect();
    let waiter = std::thread::spawn(move || {
        loop {
            for event in sys::epoll_wait(set, 4, -1).unwrap() {
                if event.data == u64::MAX {
                    return;
                }
                sender.send(event.data).unwrap();
            }
        }
    });
    for round in 0..ROUNDS {
        for (_, server) in &pairs {
            send_pattern(*server, round * BYTES, BYTES);
        }
        let mut left = PAIRS * BYTES;
        while left > 0 {
            left -= rounds.recv().unwrap();
        }
    }
    let (end, other) = pair(family);
    send_all(other, b"x");
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, end, IN, u64::MAX).unwrap();
    join_thread(waiter);
    workers.into_iter().for_each(join_thread);
}

fn corner_09_stale_event_after_close(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN);
    send_all(server, b"x");
    expect_reported(set, IN);
    sys::close(client).unwrap();
    expect_silence(set);
}

fn corner_09_stale_event_after_close_and_reuse(family: Family) {
    let (client, server) = pair(family);
    let (listening, address) = listener(family);
    let set = set_with(client, IN);
    send_all(server, b"x");
    await_events(client, libc::POLLIN);
    sys::close(client).unwrap();
    let again = connect_to(address);
    assert_eq!(again, client, "the lowest free number");
    let accepted = sys::accept(listening).unwrap();
    send_all(accepted, b"y");
    await_events(again, libc::POLLIN);
    // The new connection was never added.
    expect_silence(set);
    let changed = sys::epoll_control(set, libc::EPOLL_CTL_MOD, again, IN, 1);
    assert_eq!(changed, Err(sys::Errno(libc::ENOENT)));
}

fn corner_09_closed_number_reused_and_added_again(family: Family) {
    let set = sys::epoll_create().unwrap();
    let (listening, address) = listener(family);
    for round in 0..50 {
        let client = connect_to(address);
        let server = sys::accept(listening).unwrap();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN | ET, round).unwrap();
        send_all(server, b"x");
        let reported = sys::epoll_wait(set, 8, 10_000).unwrap();
        assert_eq!(
            reported,
            [Event {
                data: round,
                events: IN
            }]
        );
        if round % 2 == 0 {
            send_all(server, b"unread and untold");
        }
        sys::close(client).unwrap();
        sys::close(server).unwrap();
    }
    expect_silence(set);
}

fn corner_09_event_lives_with_the_dup(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN);
    let copy = sys::dup(client).unwrap();
    sys::close(client).unwrap();
    // The entry belongs to the open file, which the duplicate keeps.
    send_all(server, b"x");
    expect_reported(set, IN);
    expect_bytes(copy, b"x");
    expect_silence(set);
    sys::close(copy).unwrap();
    expect_silence(set);
    expect_end(server);
}

fn corner_09_event_lives_with_the_dup_of_a_sleeper(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN);
    // The thread has slept with the first descriptor.
    expect_silence(set);
    let copies = [sys::dup(client).unwrap(), sys::dup(client).unwrap()];
    let [reader, writer] = sys::pipe(0).unwrap();
    assert_eq!(sys::dup2(reader, client), Ok(client));
    // The file that the number means now is not in the set.
    sys::write(writer, b"other").unwrap();
    expect_silence(set);
    for copy in copies {
        let (thread, task) = start_thread(move || expect_reported(set, IN));
        await_asleep(task);
        send_all(server, b"x");
        join_thread(thread);
        expect_bytes(copy, b"x");
        expect_silence(set);
        if copy == copies[0] {
            sys::close(copy).unwrap();
        }
    }
    let (thread, task) = start_thread(move || expect_reported(set, IN));
    await_asleep(task);
    sys::close(server).unwrap();
    join_thread(thread);
    expect_end(copies[1]);
}

fn corner_09_edge_many_small_sends(family: Family) {
    let (client, server) = pair(family);
    set_nonblocking(client);
    let set = set_with(client, IN | ET);
    let (thread, _) = start_thread(move || {
        for index in 0..2000_usize {
            send_pattern(server, index * 3, 3);
            if index % 100 == 0 {
                std::thread::yield_now();
            }
        }
    });
    let mut received = 0;
    while received < 6000 {
        assert!(
            !sys::epoll_wait(set, 1, 10_000).unwrap().is_empty(),
            "an edge is lost"
        );
        let mut buffer = [0_u8; 64];
        while let Ok(size) = sys::recv(client, &mut buffer, 0) {
            assert_eq!(pattern_mismatch(received, &buffer[..size]), None);
            received += size;
        }
    }
    join_thread(thread);
}

fn corner_09_level_told_until_drained(family: Family) {
    let (client, server) = pair(family);
    let set = set_with(client, IN);
    send_all(server, b"abc");
    for letter in [b"a", b"b", b"c"] {
        expect_reported(set, IN);
        expect_reported(set, IN);
        expect_bytes(client, letter);
    }
    expect_silence(set);
}
