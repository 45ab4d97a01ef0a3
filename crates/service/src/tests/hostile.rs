//! A program that writes what it may not, wherever it may: faults, never a panic, never a byte outside.

use super::*;
use netchannel_abi::handle::Handle;
use netchannel_abi::link::{Geometry, QueueIndices, Side};
use netchannel_abi::nqe::Nqe;
use netchannel_ring::Fault;
use std::sync::atomic::Ordering;

/// The words of the side that plays the program (the client).
fn words(client: &LinkEnd, lane: &Lane) -> usize {
    client
        .layout
        .slot(usize::try_from(lane.handle().index).unwrap())
}

fn side<'a>(client: &'a LinkEnd, lane: &Lane) -> &'a Side {
    client.sides(client.slot(lane.handle().index).unwrap()).0
}

/// Announces whatever it likes.
fn push(client: &LinkEnd, handle: Handle) {
    let (indices, elements) = client.job_queue().unwrap();
    let nqe = Nqe {
        operation: 1,
        handle: handle.to_word(),
        ..Nqe::default()
    };
    let mut state = client.state();
    let pushed = state
        .producer
        .push(&indices.tail, &indices.head, elements, &[nqe]);
    assert_eq!(pushed, Ok(1));
}

#[test]
fn wrong_indices_are_faults() {
    let (client, server) = link();
    let (one, mut other) = connect(&client, &server);
    let side = side(&client, &one);
    for tail in [2049, u64::MAX, 1 << 40] {
        side.tail.store(tail, Ordering::Relaxed);
        assert_eq!(other.frontier(), Err(Fault), "{tail}");
        assert_eq!(other.readable(0, 10), Err(Fault));
        assert_eq!(other.consume(1), Err(Fault));
    }
    side.tail.store(0, Ordering::Relaxed);
    assert_eq!(write(&mut other, b"abc"), 3);
    for head in [4, u64::MAX, 1 << 40] {
        side.head.store(head, Ordering::Relaxed);
        assert_eq!(other.limit(), Err(Fault), "{head}");
        assert_eq!(other.grow(10), Err(Fault));
    }
}

#[test]
fn wrong_rings_are_faults() {
    let (client, server) = link();
    let (one, other) = connect(&client, &server);
    let side = side(&client, &one);
    side.tail.store(2000, Ordering::Relaxed);
    side.switch_sequence.store(1000, Ordering::Relaxed);
    let outside = LAYOUT.arena_start(Role::Server) as u64;
    for (offset, log2) in [
        (0, 11),
        (0, 63),
        (outside, 16),
        (u64::MAX >> 8, 14),
        (64, 14),
    ] {
        let word = Geometry { offset, log2 }.to_word();
        side.geometry.store(word, Ordering::Relaxed);
        assert_eq!(other.readable(1000, 10), Err(Fault));
    }
}

#[test]
fn wrong_jobs_end_the_link() {
    let handle = |index, generation| Handle { index, generation };
    for bad in [
        handle(0, 0),
        handle(64, 1),
        handle(u32::MAX, 1),
        handle(40, 1),
    ] {
        let (client, server) = link();
        // A good one first, so that anchors are there.
        let (one, other) = connect(&client, &server);
        push(&client, bad);
        assert_eq!(
            server.take_jobs(QUEUE_CAPACITY, |_| panic!("{bad:?}")),
            Err(Fault)
        );
        assert!(!server.is_alive());
        // Others go on.
        let (mut one, mut other) = (one, other);
        assert_eq!(write(&mut one, b"on"), 2);
        assert_eq!(read(&mut other), b"on");
    }
    let (client, server) = link();
    let (one, _other) = connect(&client, &server);
    push(&client, one.handle());
    assert_eq!(
        server.take_jobs(QUEUE_CAPACITY, |_| panic!("twice")),
        Err(Fault)
    );
    let (client, server) = link();
    let queue: &QueueIndices = client.region.at(client.layout.job_queue()).unwrap();
    queue.tail.store(5000, Ordering::Relaxed);
    assert_eq!(
        server.take_jobs(QUEUE_CAPACITY, |_| panic!("none")),
        Err(Fault)
    );
}

#[test]
fn more_anchors_than_anybody_needs_are_not_kept() {
    let (client, server) = link();
    for _ in 0..100 {
        // A program that says of every slot that it needs a new pair.
        let slots = (0..16).collect::<Vec<u32>>();
        client.state().bare.extend(slots);
        let _ = client.make_anchors_for_test();
        server.read_channel();
    }
    // Both ends are in this process.
    assert_eq!(server.count.held(), 32);
}

/// Every word of the slot and the cells, with any value, between any two steps.
#[test]
fn any_word_at_any_time_is_survived() {
    for seed in 1..=200 {
        let mut random = Random(seed * 0x1234_5677);
        let (client, server) = link();
        let (one, mut other) = connect(&client, &server);
        let start = words(&client, &one);
        for _ in 0..60 {
            // The first line of the slot is the program's: eight words; then its waiter and meta.
            let offset = [0, 8, 16, 24, 32, 64, 96, 128, 160, 192, 256, 304];
            let at = offset[usize::try_from(random.below(12)).unwrap()];
            let word: &std::sync::atomic::AtomicU64 = client.region.at(start + at).unwrap();
            let value = match random.below(4) {
                0 => random.next(),
                1 => random.below(5000),
                2 => word.load(Ordering::Relaxed).wrapping_add(random.below(3)),
                _ => word.load(Ordering::Relaxed) ^ (1 << random.below(64)),
            };
            word.store(value, Ordering::Relaxed);
            let _ = other.frontier().map(|to| other.consume(to));
            if let Ok(limit) = other.limit() {
                assert!(limit >= other.published());
                let at = other.published();
                if let Ok(room) = other.room(at, 300) {
                    let bytes = [7; 300];
                    let done = transfer(&[Run::from(&bytes[..])], &other.rooms(room));
                    other.publish(at + done as u64).unwrap();
                }
                let _ = other.grow(100_000);
            }
            let _ = (other.peer_flags(), other.ended_by_reset());
        }
        other.close(random.below(2) == 0);
    }
}

#[test]
fn a_program_that_announces_without_end_gets_its_turn_and_no_more() {
    let (client, server) = link();
    let lanes: Vec<Lane> = (0..LAYOUT.slots).map(|_| dial(&client)).collect();
    let mut opened = Vec::new();
    server.take_jobs(20, |one| opened.push(one)).unwrap();
    assert!((20..=52).contains(&opened.len()), "{}", opened.len());
    assert!(server.has_jobs());
    opened.extend(take(&server));
    assert_eq!(opened.len(), lanes.len());
}

#[test]
fn a_burst_of_connections_finds_all_its_anchors() {
    // As many as the queue holds, announced before the first is taken.
    let (client, server) = many(QUEUE_CAPACITY);
    let lanes: Vec<_> = (0..QUEUE_CAPACITY).map(|_| dial(&client)).collect();
    assert_eq!(take(&server).len(), lanes.len());
}

#[test]
fn anchors_that_no_connection_uses_are_few() {
    let (client, server) = many(4096);
    for _ in 0..40 {
        client.make_anchors_for_test().unwrap();
    }
    server.read_channel();
    let pooled = server.pooled.load(Ordering::Relaxed);
    assert_eq!(pooled, 256);
}
