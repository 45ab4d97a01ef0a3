use super::*;

/// Defect 6 of the module: no credit, so that a slow reader holds up all that share its channel.
#[test]
fn defect_6_a_reader_that_stops_stops_its_sender_only_by_its_window() {
    let mut pair = Pair::new();
    pair.written(10_000);
    pair.acknowledge();
    assert_eq!(pair.b.frontier(), A.wrapping_add(CAPACITY));
    assert_eq!(
        pair.a.acknowledged(),
        A.wrapping_add(CAPACITY),
        "all placed, nothing on the way"
    );
    assert_eq!((pair.a.sendable(), pair.a_sends(9999, ONE)), (0, None));
    pair.read(1024);
    pair.acknowledge();
    assert_eq!(pair.b.frontier(), A.wrapping_add(CAPACITY + 1024));
}

#[test]
fn beyond_the_window_is_a_violation() {
    for frame in [
        data(A.wrapping_add(CAPACITY), 1),
        data(A, 4097),
        data(A, u32::MAX),
        data(A.wrapping_add(1 << 40), 1),
        Transmit::Fin {
            sequence: A.wrapping_add(CAPACITY + 1),
        },
    ] {
        let mut pair = Pair::new();
        assert_eq!(
            deliver(&mut pair.b, frame, pair.now),
            Err(Violation::WindowExceeded)
        );
        assert_eq!(
            pair.b_sends(99, ONE),
            Some(Transmit::Reset {
                reason: Reason::Violation
            })
        );
        assert_eq!(pair.b.take_changes(), Changes::CLOSED);
    }
    for frame in [data(A.wrapping_sub(1), 1), data(A.wrapping_add(1 << 63), 1)] {
        let mut pair = Pair::new();
        assert_eq!(
            deliver(&mut pair.b, frame, pair.now),
            Err(Violation::BeforeStart)
        );
    }
}

#[test]
fn windows_that_can_not_be_are_violations() {
    let at = |offset: u64| A.wrapping_add(offset);
    for (filled, limit, violation) in [
        (at(1001), at(CAPACITY), Violation::AcknowledgesUnsent),
        (at(500), at(CAPACITY - 1), Violation::WindowInvalid),
        (at(0), at(MOST_WINDOW + 1), Violation::WindowInvalid),
        (at(0), at(u64::MAX), Violation::WindowInvalid),
        (at(u64::MAX), at(CAPACITY), Violation::BeforeStart),
    ] {
        let mut pair = Pair::new();
        pair.written(1000);
        pair.a_sends(9999, ONE).unwrap();
        assert_eq!(
            pair.a.on_window(plain(filled, limit), pair.now),
            Err(violation),
            "{filled} {limit}"
        );
        assert_eq!(
            pair.a.state(),
            State::Closed(End::Aborted(Reason::Violation))
        );
    }
    // Less acknowledged than before, and yet a larger window: no order of honest Windows gives that.
    let mut pair = Pair::new();
    pair.written(1000);
    pair.a_sends(9999, ONE).unwrap();
    pair.a_hears(window(at(600), at(5000)));
    assert_eq!(
        pair.a.on_window(plain(at(500), at(5001)), pair.now),
        Err(Violation::WindowInvalid)
    );
}

#[test]
fn windows_may_overtake_each_other() {
    let at = |offset: u64| A.wrapping_add(offset);
    let mut pair = Pair::new();
    pair.written(1000);
    pair.a_sends(9999, ONE).unwrap();
    pair.a_hears(window(at(1000), at(5000)));
    pair.a_hears(window(at(300), at(4500)));
    pair.a_hears(window(at(300), at(CAPACITY)));
    pair.a_hears(window(at(1000), at(4800)));
    assert_eq!(pair.a.acknowledged(), at(1000));
    pair.written(10_000);
    assert_eq!(pair.a.sendable(), 4000);
}

#[test]
fn the_window_is_told_when_it_opened_by_much() {
    let mut pair = Pair::new();
    pair.b_hears(data(A, 4096));
    pair.b_sends(0, ONE).unwrap();
    pair.pass(SECOND);
    // It was closed: told at once.
    pair.read(1);
    assert_eq!(
        pair.b_sends(0, ONE),
        Some(window(A.wrapping_add(4096), A.wrapping_add(4097)))
    );
    // But not byte by byte.
    pair.b_hears(data(A.wrapping_add(4096), 1));
    pair.b_sends(0, ONE);
    pair.read(2);
    assert_eq!(pair.b_sends(0, ONE), None);
    // A quarter of the capacity.
    pair.read(1024);
    assert_eq!(pair.b_sends(0, ONE), None);
    pair.read(1025);
    assert_eq!(
        pair.b_sends(0, ONE),
        Some(window(A.wrapping_add(4097), A.wrapping_add(4096 + 1025)))
    );
    // And what is less, after a while.
    pair.read(1030);
    assert_eq!(pair.b_sends(0, ONE), None);
    assert_eq!(pair.b.next_timeout(), Some(pair.now + DELAY));
    pair.pass(DELAY);
    assert_eq!(
        pair.b_sends(0, ONE),
        Some(window(A.wrapping_add(4097), A.wrapping_add(4096 + 1030)))
    );
    assert_eq!(pair.b.next_timeout(), None, "and then no timer runs");
}

#[test]
fn acknowledgements_wait_a_little() {
    let mut pair = Pair::new();
    pair.b_hears(data(A, 100));
    assert_eq!(pair.b_sends(0, ONE), None);
    assert_eq!(pair.b.next_timeout(), Some(pair.now + DELAY));
    pair.pass(DELAY);
    assert!(pair.b_sends(0, ONE).is_some());
    assert_eq!(pair.b.next_timeout(), None);
    pair.pass(DELAY);
    assert_eq!(pair.b_sends(0, ONE), None);
    // Two segments, or a quarter of the capacity, do not wait.
    pair.b_hears(data(A.wrapping_add(100), 1024));
    assert!(pair.b_sends(0, ONE).is_some());
}

#[test]
fn who_asks_is_answered_at_once() {
    let mut pair = Pair::new();
    pair.written(100);
    let Some(bytes) = pair.a_sends(100, ONE) else {
        panic!("nothing to send");
    };
    pair.b_hears(bytes);
    assert_eq!(pair.b_sends(0, ONE), None);
    pair.a.ask(pair.now);
    let asked = pair.a_sends(0, ONE).unwrap();
    assert_eq!(pair.a_sends(0, ONE), None, "and only once");
    pair.b_hears(asked);
    let told = pair.b_sends(0, ONE).unwrap();
    pair.a_hears(told);
    assert_eq!(pair.a.acknowledged(), A.wrapping_add(100));
    assert_eq!(pair.b_sends(0, ONE), None);
}

#[test]
fn a_lost_window_is_said_again() {
    let mut pair = Pair::new();
    pair.written(10_000);
    pair.acknowledge();
    pair.read(4096);
    pair.b_sends(0, TWO).unwrap();
    pair.b.on_channel_lost(TWO, pair.now);
    let again = pair.b_sends(0, ONE).unwrap();
    pair.a_hears(again);
    assert!(pair.a.sendable() > 0);
}

#[test]
fn a_closed_window_is_asked_after() {
    let mut pair = Pair::new();
    pair.written(10_000);
    pair.acknowledge();
    pair.read(4096);
    // A peer that forgets to say it again.
    pair.b_sends(0, TWO).unwrap();
    let at = pair.a.next_timeout().unwrap();
    assert_eq!(at - pair.now, 200 * MILLISECOND);
    pair.now = at;
    pair.a.on_timeout(at);
    let probe = pair.a_sends(0, ONE).unwrap();
    assert_eq!(probe, asking(B, B.wrapping_add(CAPACITY)));
    assert_eq!(pair.a_sends(0, ONE), None);
    pair.b_hears(probe);
    let told = pair.b_sends(0, ONE).unwrap();
    pair.a_hears(told);
    assert!(pair.a.sendable() > 0);
}

#[test]
fn a_larger_ring_opens_the_window() {
    let mut pair = Pair::new();
    pair.written(100_000);
    pair.acknowledge();
    pair.b.on_capacity(1000, pair.now);
    assert_eq!(pair.b_sends(0, ONE), None);
    pair.b.on_capacity(65_536, pair.now);
    pair.acknowledge();
    assert_eq!(pair.b.frontier(), A.wrapping_add(65_536));
}

#[test]
fn indices_of_the_program_are_checked() {
    let mut pair = Pair::new();
    let now = pair.now;
    pair.written(100);
    assert_eq!(pair.a.on_written(A.wrapping_add(99), now), Err(Fault));
    assert_eq!(pair.a.on_written(A.wrapping_sub(1), now), Err(Fault));
    assert_eq!(pair.b.on_read(A.wrapping_add(1), now), Err(Fault));
    pair.acknowledge();
    pair.read(50);
    assert_eq!(pair.b.on_read(A.wrapping_add(49), now), Err(Fault));
    pair.a.shutdown_write(now);
    assert_eq!(pair.a.on_written(A.wrapping_add(100), now), Ok(()));
    assert_eq!(pair.a.on_written(A.wrapping_add(101), now), Err(Fault));
}
