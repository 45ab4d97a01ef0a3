use super::*;

/// Lets A's time run until it ends or `most` is over; its frames go nowhere. Gives when it ended and what it said.
fn alone(pair: &mut Pair, most: u64) -> (u64, Vec<Transmit>) {
    let began = pair.now;
    let mut said = Vec::new();
    while let Some(transmit) = pair.a_sends(9999, ONE) {
        said.push(transmit);
    }
    while let Some(at) = pair.a.next_timeout().filter(|at| *at <= began + most) {
        assert!(at > pair.now, "the time stands still at {at}");
        pair.now = at;
        pair.a.on_timeout(at);
        while let Some(transmit) = pair.a_sends(9999, ONE) {
            said.push(transmit);
        }
    }
    (pair.now - began, said)
}

#[test]
fn a_silent_peer_is_given_up_as_tcp_does() {
    let mut pair = Pair::new();
    pair.written(100);
    let (time, said) = alone(&mut pair, 10_000 * SECOND);
    assert_eq!(time, 924 * SECOND);
    assert_eq!(
        pair.a.state(),
        State::Closed(End::Aborted(Reason::TimedOut))
    );
    let resets = said
        .iter()
        .filter(|said| matches!(said, Transmit::Reset { .. }));
    assert_eq!(resets.count(), 1);
    // 200 ms doubled up to 30 s.
    assert_eq!(pair.a.counters().probes, 37);
}

#[test]
fn user_time_out_counts_from_the_oldest_unacknowledged_byte() {
    let user = Settings {
        user_timeout: Some(5 * SECOND),
        ..settings()
    };
    let mut pair = Pair::with(user);
    pair.pass(100 * SECOND);
    pair.written(100);
    pair.a_sends(999, ONE);
    pair.pass(4 * SECOND);
    pair.a_hears(window(A.wrapping_add(50), A.wrapping_add(CAPACITY)));
    let (time, _) = alone(&mut pair, 100 * SECOND);
    assert_eq!(time, 5 * SECOND);
    assert_eq!(
        pair.a.state(),
        State::Closed(End::Aborted(Reason::TimedOut))
    );
}

#[test]
fn user_time_out_also_ends_waiting_for_a_window_of_a_peer_that_lives() {
    let mut pair = Pair::new();
    pair.a.set_user_timeout(Some(5 * SECOND));
    pair.written(5000);
    pair.acknowledge();
    for _ in 0..49 {
        pair.pass(100 * MILLISECOND);
        pair.acknowledge();
        assert_eq!(pair.a.state(), State::Established);
    }
    pair.pass(100 * MILLISECOND);
    assert_eq!(
        pair.a.state(),
        State::Closed(End::Aborted(Reason::TimedOut))
    );
}

#[test]
fn without_it_a_closed_window_may_stay_closed_for_ever() {
    let mut pair = Pair::new();
    pair.written(5000);
    pair.acknowledge();
    for _ in 0..2000 {
        pair.pass(SECOND);
        pair.acknowledge();
    }
    assert_eq!(pair.a.state(), State::Established);
    assert!(pair.a.counters().probes < 100, "seldom asked");
    pair.read(4000);
    pair.acknowledge();
    assert_eq!(pair.b.frontier(), A.wrapping_add(5000));
}

#[test]
fn an_idle_connection_has_no_timer() {
    let mut pair = Pair::new();
    pair.written(100);
    pair.acknowledge();
    assert_eq!(pair.a.next_timeout(), None);
    assert_eq!(pair.b.next_timeout(), None);
}

#[test]
fn a_timer_that_ran_out_does_not_run_out_again() {
    let mut pair = Pair::new();
    pair.b_hears(data(A, 10));
    pair.now = pair.b.next_timeout().unwrap();
    pair.b.on_timeout(pair.now);
    // No channel has room for the Window that is due; nobody need ask for it again.
    assert_eq!(pair.b.next_timeout(), None);
    assert!(pair.b_sends(0, ONE).is_some());
}

#[test]
fn keep_alive_asks_and_gives_up() {
    let keep_alive = KeepAlive {
        idle: 10 * SECOND,
        interval: 2 * SECOND,
        count: 3,
    };
    let mut pair = Pair::new();
    pair.a.set_keep_alive(Some(keep_alive));
    let (time, said) = alone(&mut pair, 100 * SECOND);
    assert_eq!(time, 16 * SECOND);
    let reset = Transmit::Reset {
        reason: Reason::TimedOut,
    };
    let asked = asking(B, B.wrapping_add(CAPACITY));
    assert_eq!(said, [asked, asked, asked, reset]);

    // An answer starts it anew.
    let mut pair = Pair::new();
    pair.a.set_keep_alive(Some(keep_alive));
    for _ in 0..100 {
        pair.pass(SECOND);
        pair.acknowledge();
    }
    assert_eq!(pair.a.state(), State::Established);
    assert_eq!(pair.a.counters().probes, 10);
}

#[test]
fn a_closed_program_waits_for_the_peer_s_end_only_so_long() {
    let mut pair = Pair::new();
    pair.a.close(Linger::Background, pair.now);
    pair.acknowledge();
    let (time, said) = alone(&mut pair, 1000 * SECOND);
    assert_eq!((time, said.len()), (60 * SECOND, 0));
    assert!(pair.a.is_finished(pair.now));
    // The peer learns it when it speaks.
    assert_eq!(
        pair.a.final_state().answer_to(Arrived::Data),
        Some(Transmit::Reset {
            reason: Reason::NoSocket
        })
    );
}

#[test]
fn a_closed_program_s_bytes_wait_only_so_long_for_a_window() {
    let mut pair = Pair::new();
    pair.written(5000);
    pair.acknowledge();
    pair.a.close(Linger::Background, pair.now);
    for _ in 0..61 {
        pair.pass(SECOND);
        pair.acknowledge();
    }
    assert_eq!(
        pair.a.state(),
        State::Closed(End::Aborted(Reason::TimedOut))
    );
    assert_eq!(pair.b.state(), State::Closed(End::Reset(Reason::TimedOut)));
}

#[test]
fn times_of_zero_end() {
    let zero = Settings {
        acknowledge_delay: 0,
        probe_interval: 0,
        probe_interval_most: 0,
        user_timeout: Some(0),
        keep_alive: Some(KeepAlive {
            idle: 0,
            interval: 0,
            count: 0,
        }),
        ..settings()
    };
    let mut pair = Pair::with(zero);
    pair.written(10);
    pair.a.on_timeout(pair.now);
    pair.a.on_timeout(pair.now);
    assert!(matches!(pair.a.state(), State::Closed(_)));
}
