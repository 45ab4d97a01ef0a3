use super::*;

#[test]
fn bytes_are_kept_until_acknowledged() {
    let mut pair = Pair::new();
    pair.written(2500);
    assert_eq!(pair.a_sends(1000, ONE), Some(data(A, 1000)));
    assert_eq!(
        pair.a_sends(1000, TWO),
        Some(data(A.wrapping_add(1000), 1000))
    );
    assert_eq!(
        pair.a_sends(1000, ONE),
        Some(data(A.wrapping_add(2000), 500))
    );
    assert_eq!(pair.a_sends(1000, ONE), None);
    assert_eq!((pair.a.acknowledged(), pair.a.in_flight()), (A, 2500));

    // The second and third come first.
    pair.b_hears(data(A.wrapping_add(1000), 1000));
    pair.b_hears(data(A.wrapping_add(2000), 500));
    assert_eq!((pair.b.frontier(), pair.b.gaps()), (A, 1));
    assert_eq!(pair.b_sends(0, ONE), None);
    pair.b_hears(data(A, 1000));
    assert_eq!(
        (pair.b.frontier(), pair.b.gaps()),
        (A.wrapping_add(2500), 0)
    );
    assert_eq!(pair.b.take_changes(), Changes::FRONTIER);
    let told = pair.b_sends(0, ONE).unwrap();
    assert_eq!(told, window(A.wrapping_add(2500), A.wrapping_add(CAPACITY)));
    pair.a_hears(told);
    assert_eq!(pair.a.acknowledged(), A.wrapping_add(2500));
    assert_eq!(pair.a.take_changes(), Changes::ACKNOWLEDGED);
    assert_eq!(pair.a.next_timeout(), None);
}

/// Defect 3 of the module: the failed request's bytes are lost.
#[test]
fn defect_3_what_a_lost_channel_carried_is_sent_again_before_new_bytes() {
    let mut pair = Pair::new();
    pair.written(2000);
    pair.a_sends(1000, ONE).unwrap();
    let second = pair.a_sends(1000, TWO).unwrap();
    pair.written(3000);
    pair.a.on_channel_lost(ONE, pair.now);
    assert_eq!(pair.a.sendable(), 2000);
    pair.b_hears(second);
    // The Window first: the loss may have taken one along.
    let told = window(B, B.wrapping_add(CAPACITY));
    assert_eq!(pair.a_sends(600, TWO), Some(told));
    assert_eq!(pair.a_sends(600, TWO), Some(data(A, 600)));
    assert_eq!(pair.a_sends(600, TWO), Some(data(A.wrapping_add(600), 400)));
    assert_eq!(
        pair.a_sends(9999, TWO),
        Some(data(A.wrapping_add(2000), 1000))
    );
    assert_eq!(pair.a.counters().bytes_repeated, 1000);
    pair.b_hears(data(A, 600));
    pair.b_hears(data(A.wrapping_add(600), 400));
    assert_eq!(pair.b.frontier(), A.wrapping_add(2000));
}

#[test]
fn a_late_copy_changes_nothing() {
    let mut pair = Pair::new();
    pair.written(1000);
    let late = pair.a_sends(1000, ONE).unwrap();
    pair.a.on_channel_lost(ONE, pair.now);
    pair.acknowledge();
    assert_eq!(pair.b.frontier(), A.wrapping_add(1000));
    assert_eq!(pair.b.on_data(A, 1000, pair.now), Ok(Placement::Discard));
    pair.b_hears(late);
    assert_eq!(pair.b.counters().bytes_duplicate, 2000);
    let again = pair.b_sends(0, ONE).unwrap();
    assert_eq!(
        again,
        window(A.wrapping_add(1000), A.wrapping_add(CAPACITY))
    );
    pair.a_hears(again);
    assert_eq!(pair.a_sends(0, ONE), None, "a Window is never answered");
}

#[test]
fn a_segment_that_is_partly_here_is_placed_in_part() {
    let mut pair = Pair::new();
    pair.b_hears(data(A, 100));
    pair.b_hears(data(A.wrapping_add(300), 100));
    let Ok(Placement::Write {
        skip,
        sequence,
        length,
        claim,
    }) = pair.b.on_data(A.wrapping_add(50), 300, pair.now)
    else {
        panic!()
    };
    assert_eq!((skip, sequence, length), (50, A.wrapping_add(100), 200));
    pair.b.placed(&claim, sequence, 120, pair.now);
    assert_eq!(pair.b.frontier(), A.wrapping_add(220));
    pair.b.placed(&claim, A.wrapping_add(220), 80, pair.now);
    pair.b.finish(claim, pair.now);
    assert_eq!(pair.b.frontier(), A.wrapping_add(400));
}

#[test]
fn a_claim_keeps_its_place_from_being_used_again() {
    let mut pair = Pair::new();
    // A slow worker reads the first bytes from a channel that is then lost at the other end.
    let Ok(Placement::Write { claim: slow, .. }) = pair.b.on_data(A, 1000, pair.now) else {
        panic!()
    };
    // The same bytes come by another, are published and read.
    pair.b_hears(data(A, 1000));
    pair.b_hears(data(A.wrapping_add(1000), 3000));
    pair.read(4000);
    pair.pass(DELAY);
    let told = pair.b_sends(0, ONE).unwrap();
    let limit = A.wrapping_add(CAPACITY);
    assert_eq!(told, window(A.wrapping_add(4000), limit), "not opened");
    pair.b.placed(&slow, A, 400, pair.now);
    pair.pass(SECOND);
    let limit = A.wrapping_add(CAPACITY + 400);
    assert_eq!(
        pair.b_sends(0, ONE),
        Some(window(A.wrapping_add(4000), limit))
    );
    assert_eq!(pair.b.claims(), 1);
    pair.b.finish(slow, pair.now);
    let limit = A.wrapping_add(CAPACITY + 4000);
    assert_eq!(
        pair.b_sends(0, ONE),
        Some(window(A.wrapping_add(4000), limit))
    );
    assert_eq!(pair.b.claims(), 0);
}

#[test]
fn what_is_held_is_not_given_back() {
    let mut pair = Pair::new();
    pair.written(3000);
    pair.a_sends(1000, ONE).unwrap();
    // A slow worker has not taken the second thousand yet; a copy goes by another channel.
    let slow = pair.a_sends(1000, TWO).unwrap();
    let hold = pair.a.hold(A.wrapping_add(1000)).unwrap();
    pair.acknowledge();
    pair.now += SECOND;
    pair.a.on_timeout(pair.now);
    pair.acknowledge();
    pair.b_hears(data(A, 1000));
    pair.b_hears(slow);
    pair.acknowledge();
    assert_eq!(pair.b.frontier(), A.wrapping_add(3000));
    assert_eq!(pair.a.acknowledged(), A.wrapping_add(1000));
    assert_eq!(pair.a.next_timeout(), None, "nothing is waited for");
    pair.a.take_changes();
    pair.a.release(hold, pair.now);
    assert_eq!(pair.a.acknowledged(), A.wrapping_add(3000));
    assert_eq!(pair.a.take_changes(), Changes::ACKNOWLEDGED);

    let hold = pair.a.hold(A).unwrap();
    pair.a.fail(Reason::Unreachable, pair.now);
    assert!(!pair.a.is_finished(pair.now));
    pair.a.release(hold, pair.now);
    assert!(pair.a.is_finished(pair.now));
}

#[test]
fn a_socket_with_a_claim_is_not_finished() {
    let mut pair = Pair::new();
    let Ok(Placement::Write { claim, .. }) = pair.b.on_data(A, 1000, pair.now) else {
        panic!()
    };
    pair.b_hears(Transmit::Reset {
        reason: Reason::Aborted,
    });
    assert!(!pair.b.is_finished(pair.now));
    pair.b.placed(&claim, A, 1000, pair.now);
    pair.b.finish(claim, pair.now);
    assert!(pair.b.is_finished(pair.now));
    assert_eq!(pair.b.frontier(), A.wrapping_add(1000));
    assert!(!pair.b.take_changes().contains(Changes::FRONTIER));
}

#[test]
fn what_the_peer_had_forgotten_is_sent_again_once() {
    let mut pair = Pair::new();
    pair.written(4000);
    for _ in 0..4 {
        pair.a_sends(1000, ONE).unwrap();
    }
    let limit = A.wrapping_add(CAPACITY);
    pair.a_hears(again(A.wrapping_add(500), limit));
    assert_eq!(
        pair.a_sends(9999, TWO),
        Some(data(A.wrapping_add(500), 3500))
    );
    pair.a_hears(again(A.wrapping_add(500), limit));
    pair.a_hears(again(A.wrapping_add(1000), limit));
    assert_eq!(pair.a_sends(9999, TWO), None, "that is on its way");
    // An old one, overtaken.
    pair.a_hears(again(A, limit));
    assert_eq!(pair.a_sends(9999, TWO), None);
    // Not even that helped: the answer to a probe says so.
    pair.now = pair.a.next_timeout().unwrap();
    pair.a.on_timeout(pair.now);
    assert!(matches!(pair.a_sends(9999, TWO), Some(Transmit::Window(window)) if window.ask));
    pair.a_hears(again(A.wrapping_add(1000), limit));
    assert_eq!(
        pair.a_sends(9999, ONE),
        Some(data(A.wrapping_add(1000), 3000))
    );
    pair.a_hears(window(A.wrapping_add(4000), limit));
    assert_eq!(pair.a.next_timeout(), None);
}

#[test]
fn when_asking_does_not_help_the_oldest_is_sent_again() {
    let mut pair = Pair::new();
    pair.written(3000);
    pair.a.shutdown_write(pair.now);
    while pair.a_sends(1000, ONE).is_some() {}
    let limit = A.wrapping_add(CAPACITY);
    for probe in 1..=3 {
        pair.now = pair.a.next_timeout().unwrap();
        pair.a.on_timeout(pair.now);
        let asked = pair.a_sends(9999, ONE);
        assert_eq!(asked, Some(asking(B, B.wrapping_add(CAPACITY))));
        let oldest = (probe == 3).then_some(data(A, 1000));
        assert_eq!(pair.a_sends(9999, ONE), oldest);
        pair.a_hears(window(A, limit));
    }
    let sequence = A.wrapping_add(3000);
    assert_eq!(pair.a_sends(9999, ONE), Some(Transmit::Fin { sequence }));
    assert_eq!(pair.a_sends(9999, ONE), None);
}

#[test]
fn more_ranges_than_may_be_remembered_are_forgotten_not_acknowledged() {
    let mut pair = Pair::new();
    let count = MOST_RANGES as u64 + 50;
    pair.written(2 * count);
    pair.a_sends(9999, ONE).unwrap();
    let limit = A.wrapping_add(CAPACITY);
    for at in 0..count {
        pair.b_hears(data(A.wrapping_add(2 * at + 1), 1));
        assert!(pair.b.gaps() <= MOST_RANGES);
        // Told at once, and once.
        let told = (at == MOST_RANGES as u64).then_some(again(A, limit));
        assert_eq!(pair.b_sends(0, ONE), told);
    }
    assert_eq!(pair.b.counters().bytes_dropped, 50);
    for at in 0..count {
        pair.b_hears(data(A.wrapping_add(2 * at), 1));
    }
    let frontier = A.wrapping_add(2 * MOST_RANGES as u64 + 1);
    assert_eq!(pair.b.frontier(), frontier);
    pair.pass(DELAY);
    assert_eq!(pair.b_sends(0, ONE), Some(again(frontier, limit)));
    pair.a_hears(again(frontier, limit));
    pair.acknowledge();
    assert_eq!(pair.a.acknowledged(), A.wrapping_add(2 * count));
    assert_eq!(pair.a.counters().probes, 0);
}

#[test]
fn more_claims_than_there_may_be_are_dropped() {
    let mut pair = Pair::new();
    let mut claims = Vec::new();
    for at in 0..MOST_CLAIMS as u64 {
        match pair.b.on_data(A.wrapping_add(at), 1, pair.now) {
            Ok(Placement::Write { claim, .. }) => claims.push(claim),
            other => panic!("{other:?}"),
        }
    }
    let one_more = A.wrapping_add(MOST_CLAIMS as u64);
    assert_eq!(
        pair.b.on_data(one_more, 1, pair.now),
        Ok(Placement::Discard)
    );
    assert_eq!(pair.b.counters().bytes_dropped, 1);
    for claim in claims {
        pair.b.finish(claim, pair.now);
    }
    assert!(matches!(
        pair.b.on_data(one_more, 1, pair.now),
        Ok(Placement::Write { .. })
    ));
}
