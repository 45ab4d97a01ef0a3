//! Large, long and random transfers, checked byte by byte.

use std::collections::HashMap;

use netchannel_testkit::far;
use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;

cases! {
    families: [
        streams_nonblocking_with_epoll_edge_both_directions,
        streams_slow_reader,
        streams_two_hundred_sockets_one_epoll_across_processes,
        streams_many_threads_many_connections,
        streams_full_buffer_stops_and_goes_on,
        streams_two_writers_in_two_threads,
        streams_two_readers_in_two_threads,
        streams_huge_single_send,
        streams_client_and_server_roles_swap,
    ];
    places: [
        streams_slow_writer,
        streams_single_bytes,
        streams_ping_pong,
        streams_alternating_directions_large,
        streams_nonblocking_with_poll,
        streams_random_sizes_one_direction,
        streams_large_both_directions_at_once,
    ];
}

const MEGABYTE: usize = 1024 * 1024;

/// Sends `total` bytes of the pattern in pieces of random sizes.
fn send_random(socket: Descriptor, total: usize, seed: u64) {
    let mut random = Random::new(seed);
    let source = pattern_block();
    let mut sent = 0;
    while sent < total {
        let length = random_size(&mut random).min(total - sent);
        let start = sent % BLOCK;
        let mut rest = &source[start..start + length];
        sent += length;
        while !rest.is_empty() {
            match sys::send(socket, rest, libc::MSG_NOSIGNAL) {
                Ok(size) => rest = &rest[size..],
                Err(Errno(libc::EAGAIN)) => {
                    await_events(socket, libc::POLLOUT);
                }
                Err(errno) => panic!("send: {errno:?}"),
            }
        }
    }
}

/// Receives and compares `total` bytes in pieces of random sizes.
fn receive_random(socket: Descriptor, total: usize, seed: u64) {
    let mut random = Random::new(seed);
    let source = pattern_block();
    let mut buffer = vec![0_u8; LARGEST];
    let mut received = 0;
    while received < total {
        let length = random_size(&mut random);
        match sys::recv(socket, &mut buffer[..length], 0) {
            Ok(0) => panic!("an end after {received} of {total} bytes"),
            Ok(size) => {
                let start = received % BLOCK;
                assert!(
                    buffer[..size] == source[start..start + size],
                    "wrong near {received}"
                );
                received += size;
            }
            Err(Errno(libc::EAGAIN)) => {
                await_events(socket, libc::POLLIN);
            }
            Err(errno) => panic!("recv: {errno:?}"),
        }
    }
}

/// The period of the stream: a prime, so that no buffer size divides it.
const BLOCK: usize = 1_000_003;
const LARGEST: usize = 256 * 1024;

fn pattern_block() -> Vec<u8> {
    let mut block = pattern(0, BLOCK);
    block.extend_from_within(..LARGEST);
    block
}

fn random_size(random: &mut Random) -> usize {
    match random.below(4) {
        0 => random.between(1, 64),
        1 => random.between(1, 2_000),
        2 => random.between(1, 40_000),
        _ => random.between(1, LARGEST),
    }
}

fn streams_random_sizes_one_direction(family: Family, place: Place) {
    const TOTAL: usize = 32 * MEGABYTE;
    converse(
        family,
        place,
        |server| {
            receive_random(server, TOTAL, 1);
            expect_end(server);
            sys::close(server).unwrap();
        },
        |client| {
            send_random(client, TOTAL, 2);
            sys::close(client).unwrap();
        },
    );
}

fn streams_large_both_directions_at_once(family: Family, place: Place) {
    const TOTAL: usize = 64 * MEGABYTE;
    let end = |socket: Descriptor, seed: u64| {
        let (sender, _) = start_thread(move || {
            send_random(socket, TOTAL, seed);
            sys::shutdown(socket, libc::SHUT_WR).unwrap();
        });
        receive_random(socket, TOTAL, seed + 1);
        expect_end(socket);
        join_thread(sender);
        sys::close(socket).unwrap();
    };
    converse(
        family,
        place,
        move |server| end(server, 10),
        move |client| end(client, 20),
    );
}

fn streams_nonblocking_with_poll(family: Family, place: Place) {
    converse(
        family,
        place,
        |server| {
            set_nonblocking(server);
            receive_random(server, 8 * MEGABYTE, 5);
            send_random(server, 8 * MEGABYTE, 6);
            sys::close(server).unwrap();
        },
        |client| {
            set_nonblocking(client);
            send_random(client, 8 * MEGABYTE, 7);
            receive_random(client, 8 * MEGABYTE, 8);
            expect_end(client);
        },
    );
}

/// One end of an exchange by an edge-triggered loop: sends and receives as either is possible.
fn edge_loop(socket: Descriptor, total: usize) {
    set_nonblocking(socket);
    let set = sys::epoll_create().unwrap();
    let events = sys::IN | sys::OUT | sys::RDHUP | sys::ET;
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, socket, events, 0).unwrap();
    let source = pattern_block();
    let mut buffer = vec![0_u8; 50_000];
    let (mut sent, mut received) = (0, 0);
    while sent < total || received < total {
        let reported = sys::epoll_wait(set, 1, 10_000).unwrap();
        assert!(
            !reported.is_empty(),
            "stuck at {sent} sent, {received} received of {total}"
        );
        while sent < total {
            let start = sent % BLOCK;
            let length = 100_000.min(total - sent).min(source.len() - start);
            match sys::send(socket, &source[start..start + length], libc::MSG_NOSIGNAL) {
                Ok(size) => sent += size,
                Err(errno) => {
                    assert_eq!(errno, Errno(libc::EAGAIN));
                    break;
                }
            }
        }
        while received < total {
            match sys::recv(socket, &mut buffer, 0) {
                Ok(size) => {
                    assert_ne!(size, 0, "an end after {received}");
                    let start = received % BLOCK;
                    assert!(
                        buffer[..size] == source[start..start + size],
                        "near {received}"
                    );
                    received += size;
                }
                Err(errno) => {
                    assert_eq!(errno, Errno(libc::EAGAIN));
                    break;
                }
            }
        }
    }
    // Neither end may close while the other still reads.
    sys::shutdown(socket, libc::SHUT_WR).unwrap();
    expect_end(socket);
}

fn streams_nonblocking_with_epoll_edge_both_directions(family: Family) {
    let end = |socket: Descriptor| edge_loop(socket, 16 * MEGABYTE);
    converse(family, Place::Processes, end, end);
}

fn streams_slow_reader(family: Family) {
    converse(
        family,
        Place::Processes,
        |server| {
            let mut received = 0;
            while received < MEGABYTE {
                let length = 40_000.min(MEGABYTE - received);
                expect_pattern(server, received, length);
                received += length;
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
            expect_end(server);
        },
        |client| {
            send_pattern(client, 0, MEGABYTE);
            sys::close(client).unwrap();
        },
    );
}

fn streams_slow_writer(family: Family, place: Place) {
    converse(
        family,
        place,
        |server| {
            let bytes = receive_to_end(server);
            assert_eq!((bytes.len(), pattern_mismatch(0, &bytes)), (100 * 37, None));
        },
        |client| {
            for index in 0..100_usize {
                send_pattern(client, index * 37, 37);
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            sys::close(client).unwrap();
        },
    );
}

fn streams_single_bytes(family: Family, place: Place) {
    converse(
        family,
        place,
        |server| {
            let bytes = receive_to_end(server);
            assert_eq!((bytes.len(), pattern_mismatch(0, &bytes)), (20_000, None));
        },
        |client| {
            (0..20_000).for_each(|index| send_all(client, &pattern(index, 1)));
            sys::close(client).unwrap();
        },
    );
}

fn streams_ping_pong(family: Family, place: Place) {
    converse(
        family,
        place,
        |server| {
            for round in 0..3000_usize {
                expect_pattern(server, round, 64);
                send_pattern(server, round + 1, 64);
            }
        },
        |client| {
            for round in 0..3000_usize {
                send_pattern(client, round, 64);
                expect_pattern(client, round + 1, 64);
            }
        },
    );
}

fn streams_two_hundred_sockets_one_epoll_across_processes(family: Family) {
    const COUNT: usize = 200;
    const EACH: usize = 15_000;
    let ready = Baton::new();
    let child = fork_child(|| {
        let (listening, address) = listener_with(family, 256);
        set_nonblocking(listening);
        ready.send(u64::from(address.port()));
        serve_echo(listening, COUNT);
    });
    let address = family.loopback(u16::try_from(ready.receive()).unwrap());
    let clients: Vec<_> = (0..COUNT).map(|_| connect_to(address)).collect();
    let mut random = Random::new(11);
    let mut sent = vec![0_usize; COUNT];
    let mut received = vec![0_usize; COUNT];
    while received.iter().any(|count| *count < EACH) {
        let index = random.below(COUNT);
        let length = random.between(1, 2_000).min(EACH - sent[index]);
        send_pattern(clients[index], index + sent[index], length);
        sent[index] += length;
        let index = random.below(COUNT);
        // A step back from what was sent, so that streams overlap.
        let length = sent[index] - received[index];
        expect_pattern(clients[index], index + received[index], length);
        received[index] += length;
    }
    for client in clients {
        sys::shutdown(client, libc::SHUT_WR).unwrap();
        expect_end(client);
        sys::close(client).unwrap();
    }
    child.join();
}

/// Echoes by one level-triggered loop until `connections` connections have ended.
fn serve_echo(listening: Descriptor, connections: usize) {
    const LISTENER: u64 = u64::MAX;
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, sys::IN, LISTENER).unwrap();
    let mut open: HashMap<u64, Descriptor> = HashMap::new();
    let mut ended = 0;
    let mut next = 0;
    let mut buffer = vec![0_u8; 16 * 1024];
    while ended < connections {
        let reported = sys::epoll_wait(set, 64, 10_000).unwrap();
        assert!(
            !reported.is_empty(),
            "nothing is told, {ended} of {connections} ended"
        );
        for entry in reported {
            if entry.data == LISTENER {
                while let Ok(socket) = sys::accept4(listening, libc::SOCK_NONBLOCK) {
                    sys::epoll_control(set, libc::EPOLL_CTL_ADD, socket, sys::IN, next).unwrap();
                    open.insert(next, socket);
                    next += 1;
                }
                continue;
            }
            let socket = open[&entry.data];
            match sys::recv(socket, &mut buffer, 0) {
                Ok(0) => {
                    sys::close(socket).unwrap();
                    open.remove(&entry.data);
                    ended += 1;
                }
                Ok(size) => send_all(socket, &buffer[..size]),
                Err(errno) => panic!("recv after an event: {errno:?}"),
            }
        }
    }
}

fn streams_many_threads_many_connections(family: Family) {
    let threads: Vec<_> = (0..16_u64)
        .map(|index| {
            start_thread(move || {
                for turn in 0..5 {
                    let (client, server) = pair(family);
                    let seed = index * 10 + turn;
                    let (sender, _) = start_thread(move || {
                        send_random(client, 200_000, seed);
                        sys::close(client).unwrap();
                    });
                    receive_random(server, 200_000, seed + 1);
                    expect_end(server);
                    sys::close(server).unwrap();
                    join_thread(sender);
                }
            })
        })
        .collect();
    for (thread, _) in threads {
        join_thread(thread);
    }
}

fn streams_full_buffer_stops_and_goes_on(family: Family) {
    let (client, server) = small_pair(family);
    for _ in 0..3 {
        let filled = fill(client);
        assert!(filled > 10_000, "{filled}");
        assert_eq!(
            poll_one(client, libc::POLLOUT, 0),
            0,
            "full is not writable"
        );
        let mut write = sys::Set::of(&[client]);
        assert_eq!(sys::select(client, None, Some(&mut write), None, 0), Ok(0));
        let (thread, task) = start_thread(move || poll_one(client, libc::POLLOUT, 10_000));
        await_asleep(task);
        expect_pattern(server, 0, filled);
        assert_eq!(join_thread(thread), libc::POLLOUT);
        assert_eq!(poll_one(client, libc::POLLOUT, 0), libc::POLLOUT);
    }
}

fn streams_two_writers_in_two_threads(family: Family) {
    // TCP tears them too when the buffer is full, and a reader on another host is slower.
    far::only_within("pieces of two writers stay whole while the buffer has room");
    let (client, server) = pair(family);
    let writers: Vec<_> = [b'a', b'b']
        .into_iter()
        .map(|letter| {
            start_thread(move || (0..2000).for_each(|_| send_all(client, &[letter; 100])))
        })
        .collect();
    let bytes = receive_exact(server, 2 * 2000 * 100);
    for (thread, _) in writers {
        join_thread(thread);
    }
    assert!(
        bytes
            .chunks(100)
            .all(|piece| piece.iter().all(|byte| *byte == piece[0])),
        "torn"
    );
    assert_eq!(bytes.iter().filter(|byte| **byte == b'a').count(), 200_000);
}

fn streams_two_readers_in_two_threads(family: Family) {
    const TOTAL: u64 = 2_000_000;
    let (client, server) = pair(family);
    let readers: Vec<_> = (0..2)
        .map(|_| {
            start_thread(move || {
                let mut buffer = [0_u8; 3_000];
                let (mut count, mut sum) = (0_u64, 0_u64);
                loop {
                    match sys::recv(server, &mut buffer, 0).unwrap() {
                        0 => return (count, sum),
                        size => {
                            count += size as u64;
                            sum += buffer[..size]
                                .iter()
                                .map(|byte| u64::from(*byte))
                                .sum::<u64>();
                        }
                    }
                }
            })
        })
        .collect();
    let total = usize::try_from(TOTAL).unwrap();
    send_pattern(client, 0, total);
    sys::close(client).unwrap();
    let parts: Vec<_> = readers
        .into_iter()
        .map(|(thread, _)| join_thread(thread))
        .collect();
    let expected: u64 = pattern(0, total).into_iter().map(u64::from).sum();
    assert_eq!(parts.iter().map(|part| part.0).sum::<u64>(), TOTAL);
    assert_eq!(parts.iter().map(|part| part.1).sum::<u64>(), expected);
}

fn streams_alternating_directions_large(family: Family, place: Place) {
    let turn = |socket: Descriptor, first: bool| {
        for round in 0..20_usize {
            if (round % 2 == 0) == first {
                send_pattern(socket, round, 300_000);
            } else {
                expect_pattern(socket, round, 300_000);
            }
        }
    };
    converse(
        family,
        place,
        move |server| turn(server, false),
        move |client| turn(client, true),
    );
}

fn streams_huge_single_send(family: Family) {
    const TOTAL: usize = 24 * MEGABYTE;
    converse(
        family,
        Place::Processes,
        |server| {
            let mut received = 0;
            let source = pattern_block();
            let mut buffer = vec![0_u8; 200_000];
            loop {
                let size = sys::read(server, &mut buffer).unwrap();
                if size == 0 {
                    break;
                }
                let start = received % BLOCK;
                assert!(
                    buffer[..size] == source[start..start + size],
                    "near {received}"
                );
                received += size;
            }
            assert_eq!(received, TOTAL);
        },
        |client| {
            let block = pattern(0, BLOCK);
            let bytes: Vec<u8> = block.iter().copied().cycle().take(TOTAL).collect();
            assert_eq!(
                sys::write(client, &bytes),
                Ok(TOTAL),
                "a blocking write takes it all"
            );
            sys::close(client).unwrap();
        },
    );
}

fn streams_client_and_server_roles_swap(family: Family) {
    // The same two processes connect to each other in both directions by turns.
    let to_child = Baton::new();
    let to_parent = Baton::new();
    let child = fork_child(|| {
        let (listening, address) = listener(family);
        to_parent.send(u64::from(address.port()));
        let parent = family.loopback(u16::try_from(to_child.receive()).unwrap());
        for round in 0..20_usize {
            let server = sys::accept(listening).unwrap();
            expect_pattern(server, round, 5_000);
            sys::close(server).unwrap();
            let client = connect_to(parent);
            send_pattern(client, round, 5_000);
            sys::close(client).unwrap();
        }
    });
    let (listening, address) = listener(family);
    let peer = family.loopback(u16::try_from(to_parent.receive()).unwrap());
    to_child.send(u64::from(address.port()));
    for round in 0..20_usize {
        let client = connect_to(peer);
        send_pattern(client, round, 5_000);
        sys::close(client).unwrap();
        let server = sys::accept(listening).unwrap();
        expect_pattern(server, round, 5_000);
        expect_end(server);
        sys::close(server).unwrap();
    }
    child.join();
}
