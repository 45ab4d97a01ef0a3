//! Lanes between ends that keep the rules: order, rings that move, slots that are used again.

use super::*;
use netchannel_abi::class;
use netchannel_abi::link::{SMALL_RING, side_flags};
use netchannel_scheduler::{Class, Hints};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

#[test]
fn bytes_arrive_in_order_whatever_the_sizes() {
    let mut random = Random(0x9e37_79b9);
    let (client, server) = link();
    let (mut one, mut other) = connect(&client, &server);
    let mut underway: VecDeque<u8> = VecDeque::new();
    for step in 0..3000 {
        let length = usize::try_from(random.below(1 + (step as u64 % 60) * 500)).unwrap();
        let bytes = pattern(length, step);
        let done = write(&mut one, &bytes);
        underway.extend(&bytes[..done]);
        if random.below(3) > 0 {
            let most = usize::try_from(random.below(20_000)).unwrap();
            let from = other.consumed();
            let got = peek(&other, from, most);
            let expected: Vec<u8> = underway.drain(..got.len()).collect();
            assert_eq!(got, expected, "step {step}");
            other.consume(from + got.len() as u64).unwrap();
        }
    }
    assert_eq!(read(&mut other), Vec::from(underway));
    assert!(one.published() > 1 << 20);
}

#[test]
fn bytes_are_placed_out_of_order_and_shown_when_contiguous() {
    let (client, server) = link();
    let (one, mut other) = connect(&client, &server);
    let bytes = pattern(1500, 1);
    assert_eq!(place(&mut other, 1000, &bytes[1000..]), 500);
    assert_eq!(one.frontier(), Ok(0));
    // Nothing moves to another ring under what is placed.
    assert_eq!(other.grow(100_000), Ok(false));
    assert_eq!(place(&mut other, 0, &bytes[..400]), 400);
    other.publish(400).unwrap();
    assert_eq!(peek(&one, 0, 5000), bytes[..400]);
    assert_eq!(place(&mut other, 400, &bytes[400..1000]), 600);
    other.publish(1500).unwrap();
    assert_eq!(peek(&one, 0, 5000), bytes);
    // Beyond the limit, and behind what is published, is no room.
    let limit = other.limit().unwrap();
    assert_eq!(limit, SMALL_RING as u64);
    assert_eq!(place(&mut other, limit, &bytes), 0);
    assert_eq!(place(&mut other, 1499, &bytes), 0);
    assert!(other.publish(limit + 1).is_err());
    assert!(other.publish(1499).is_err());
}

#[test]
fn what_is_not_consumed_can_be_read_again_across_a_move() {
    let (client, server) = link();
    let (mut one, mut other) = connect(&client, &server);
    let bytes = pattern(100_000, 5);
    assert_eq!(write(&mut one, &bytes), bytes.len());
    let mut at = 0;
    let mut seen = Vec::new();
    while at < 100_000 {
        let got = peek(&other, at, 7000);
        assert!(!got.is_empty());
        at += got.len() as u64;
        seen.extend(got);
    }
    assert_eq!(seen, bytes);
    assert_eq!(other.consumed(), 0);
    // Again, from the middle, and then in pieces that end before, at and after the move.
    assert_eq!(peek(&other, 50_000, 10), bytes[50_000..50_010]);
    for to in [1000, SMALL_RING as u64, SMALL_RING as u64 + 1, 90_000] {
        other.consume(to).unwrap();
        let at = usize::try_from(to).unwrap();
        assert_eq!(peek(&other, to, 10), bytes[at..at + 10]);
    }
    assert!(other.consume(100_001).is_err());
    let limit = one.limit().unwrap();
    assert!(limit > 100_000);
}

#[test]
fn a_limit_never_shrinks() {
    let mut random = Random(77);
    let (client, server) = link();
    let (mut one, mut other) = connect(&client, &server);
    let mut before = 0;
    for step in 0..2000 {
        let length = usize::try_from(random.below(30_000)).unwrap();
        write(&mut one, &pattern(length, step));
        let limit = one.limit().unwrap();
        assert!(limit >= before && limit >= one.published());
        before = limit;
        if random.below(2) == 0 {
            let to = other.frontier().unwrap();
            other
                .consume(other.consumed() + random.below(1 + to - other.consumed()))
                .unwrap();
        }
    }
}

#[test]
fn slots_and_anchors_are_used_again() {
    let (client, server) = link();
    for round in 0..500 {
        let (one, mut other) = connect(&client, &server);
        assert!(one.handle().index < 16, "round {round}");
        let mut one = one;
        assert_eq!(write(&mut one, b"hello"), 5);
        assert_eq!(read(&mut other), b"hello");
        if round % 2 == 0 {
            one.close(false);
            assert_ne!(other.peer_flags() & side_flags::CLOSED, 0);
            other.close(false);
        } else {
            other.close(false);
            one.close(false);
        }
        assert_eq!((client.connections(), server.connections()), (0, 0));
    }
    // Both ends are in this process.
    assert_eq!(client.count.held(), 32);
}

#[test]
fn an_anchor_that_was_let_go_is_replaced() {
    let (client, server) = link();
    for _ in 0..200 {
        let (one, mut other) = connect(&client, &server);
        // As a program whose child still holds it.
        other.hang_up_for_test();
        other.close(false);
        one.close(false);
        assert_eq!((client.connections(), server.connections()), (0, 0));
    }
}

#[test]
fn a_full_link_refuses_and_recovers() {
    let (client, server) = link();
    let lanes: Vec<_> = (0..LAYOUT.slots)
        .map(|_| connect(&client, &server))
        .collect();
    assert!(client.lend().is_err());
    for (one, other) in lanes {
        one.close(false);
        other.close(true);
    }
    let (one, other) = connect(&client, &server);
    one.close(false);
    other.close(false);
}

#[test]
fn rings_of_closed_connections_are_given_back() {
    let (client, server) = link();
    // Many times what the arena holds.
    for round in 0..200 {
        let (mut one, mut other) = connect(&client, &server);
        let bytes = pattern(200_000, round);
        assert!(write(&mut one, &bytes) > 100_000);
        assert!(write(&mut other, &bytes) > 100_000);
        one.close(true);
        other.close(true);
    }
}

#[test]
fn an_end_without_a_word_is_a_reset_where_tcp_has_one() {
    for (unread, accepted) in [(false, false), (true, true), (false, true)] {
        let (client, server) = link();
        let (mut one, mut other) = connect(&client, &server);
        if accepted {
            other.set_flags(side_flags::ACCEPTED);
        }
        assert_eq!(write(&mut one, b"unread"), 6);
        if !unread {
            read(&mut other);
        }
        drop(other);
        one.on_token(true);
        assert!(one.has_hung_up());
        assert_eq!(one.ended_by_reset(), unread || !accepted);
        one.close(false);
    }
}

#[test]
fn a_refusal_carries_its_reason() {
    let (client, server) = link();
    let (one, other) = connect(&client, &server);
    other.refuse(113);
    assert_ne!(one.peer_flags() & side_flags::RESET, 0);
    let (_, peer) = one.sides().unwrap();
    assert_eq!(peer.error.load(std::sync::atomic::Ordering::Relaxed), 113);
}

#[test]
fn jobs_announced_before_an_end_are_still_taken() {
    let (client, server) = link();
    let lane = dial(&client);
    client.fail();
    drop(lane);
    assert!(!server.read_channel() || !server.check());
    let (client, server) = link();
    let lane = dial(&client);
    drop((lane, client));
    assert!(!server.read_channel());
    assert_eq!(take(&server).len(), 1);
}

#[test]
fn what_a_program_says_about_its_class_is_heard() {
    let (client, server) = link();
    let (mine, theirs) = connect(&client, &server);
    assert_eq!(theirs.hints(), Hints::default());
    let word = class::Hints {
        run: class::LATENCY,
        dscp: 46,
        ..class::Hints::default()
    };
    let (own, _) = mine.sides().unwrap();
    own.hints.store(word.to_word(), Ordering::Relaxed);
    let heard = theirs.hints();
    assert_eq!((heard.run, heard.dscp), (Some(Class::Latency), 46));
    assert_eq!(heard.option, None);
    // Of another connection it says nothing.
    own.generation.store(0, Ordering::Relaxed);
    assert_eq!(theirs.hints(), Hints::default());
}

#[test]
fn a_link_gives_the_memory_of_its_peak_back() {
    const MANY: usize = 120;
    let layout = Layout {
        slots: MANY,
        arena: 1 << 28,
    };
    let (client, server) = parts(None, layout);
    let file = client.memory.try_clone().unwrap();
    let memory = || rustix::fs::fstat(&file).unwrap().st_blocks * 512;
    let count = Arc::new(Count::new(1000));
    let [client, server] = [client, server].map(|end| Arc::new(LinkEnd::new(end, &count).unwrap()));
    for round in 0..3 {
        let mut lanes: Vec<_> = (0..MANY).map(|_| connect(&client, &server)).collect();
        for (one, other) in &mut lanes {
            // Neither reads.
            write(one, &[1; 250_000]);
            write(other, &[2; 250_000]);
        }
        assert!(memory() > 56 << 20, "{round}: {}", memory());
        for (one, other) in lanes {
            if round == 1 {
                one.close(false);
                other.close(false);
            } else {
                other.close(false);
                one.close(false);
            }
        }
        // What the last ones left is seen with the next.
        let (one, other) = connect(&client, &server);
        one.close(false);
        other.close(false);
        assert!(memory() < 36 << 20, "{round}: {} bytes stay", memory());
    }
}
