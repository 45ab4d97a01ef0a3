use super::*;

/// Defect 1 of the module: a FIN without a sequence overtakes bytes on other channels.
#[test]
fn defect_1_fin_never_overtakes_data() {
    let mut pair = Pair::new();
    pair.written(1500);
    pair.a.shutdown_write(pair.now);
    let first = pair.a_sends(1000, ONE).unwrap();
    let second = pair.a_sends(1000, TWO).unwrap();
    let fin = pair.a_sends(1000, TWO).unwrap();
    let sequence = A.wrapping_add(1500);
    assert_eq!(fin, Transmit::Fin { sequence });
    pair.b_hears(fin);
    pair.b_hears(second);
    assert!(!pair.b.at_end());
    assert!(pair.b.take_changes().is_empty());
    assert_eq!(pair.b.tcp_state(), TcpState::Established);
    pair.b_hears(first);
    assert!(pair.b.at_end());
    let changes = pair.b.take_changes();
    assert!(changes.contains(Changes::FRONTIER) && changes.contains(Changes::AT_END));
    assert_eq!(pair.b.frontier(), sequence);
    let told = pair.b_sends(0, ONE).unwrap();
    assert_eq!(told, with_fin(sequence, A.wrapping_add(CAPACITY)));
}

/// Defect 2 of the module: no half-close, no end that a program sees, no reset, no refusal.
#[test]
fn defect_2_each_direction_ends_by_itself() {
    let mut pair = Pair::new();
    pair.written(10);
    pair.a.shutdown_write(pair.now);
    pair.acknowledge();
    assert!(pair.b.take_changes().contains(Changes::AT_END));
    assert_eq!(pair.a.tcp_state(), TcpState::FinWait2);
    assert_eq!(pair.b.tcp_state(), TcpState::CloseWait);
    // The other direction goes on.
    pair.b.on_written(B.wrapping_add(3000), pair.now).unwrap();
    pair.acknowledge();
    assert_eq!(pair.a.frontier(), B.wrapping_add(3000));
    assert!(!pair.a.at_end());
    pair.b.shutdown_write(pair.now);
    assert_eq!(pair.b.tcp_state(), TcpState::LastAck);
    pair.acknowledge();
    assert!(pair.a.at_end());
    for socket in [&pair.a, &pair.b] {
        assert_eq!(socket.state(), State::Closed(End::Finished));
        assert!(socket.is_finished(pair.now));
        assert_eq!(socket.next_timeout(), None);
    }
}

#[test]
fn defect_2_a_reset_is_seen_at_once_by_both() {
    let mut pair = Pair::new();
    pair.written(3000);
    pair.a_sends(1000, ONE).unwrap();
    pair.a.abort(Reason::Aborted, pair.now);
    let reset = pair.a_sends(9999, TWO).unwrap();
    assert_eq!(
        reset,
        Transmit::Reset {
            reason: Reason::Aborted
        }
    );
    assert_eq!(pair.a_sends(9999, TWO), None);
    pair.b_hears(reset);
    assert_eq!(pair.b.state(), State::Closed(End::Reset(Reason::Aborted)));
    assert!(pair.b.take_changes().contains(Changes::CLOSED));
    assert_eq!(pair.b_sends(9999, ONE), None, "a reset is not answered");
}

#[test]
fn what_the_window_takes_goes_before_a_reset_of_the_program() {
    let mut pair = Pair::new();
    pair.written(100_000);
    pair.a.reset(Reason::Aborted, pair.now);
    // What is written behind a reset is nobody's, and says nothing new.
    pair.a.on_written(A.wrapping_add(1), pair.now).unwrap();
    let mut sent = 0;
    let last = loop {
        let transmit = pair.a_sends(1000, ONE).unwrap();
        pair.b_hears(transmit);
        match transmit {
            Transmit::Data { length, .. } => sent += u64::from(length),
            other => break other,
        }
    };
    assert!((1000..100_000).contains(&sent), "{sent}");
    assert_eq!(pair.b.frontier(), A.wrapping_add(sent));
    let reason = Reason::Aborted;
    assert_eq!(last, Transmit::Reset { reason });
    assert_eq!(pair.a.state(), State::Closed(End::Aborted(reason)));
    assert_eq!(pair.b.state(), State::Closed(End::Reset(reason)));
}

#[test]
fn both_may_end_at_once() {
    let mut pair = Pair::new();
    pair.a.shutdown_write(pair.now);
    pair.b.shutdown_write(pair.now);
    let (one, other) = (pair.a_sends(0, ONE).unwrap(), pair.b_sends(0, ONE).unwrap());
    pair.b_hears(one);
    pair.a_hears(other);
    assert_eq!(pair.a.tcp_state(), TcpState::Closing);
    pair.acknowledge();
    assert!(pair.a.is_finished(pair.now) && pair.b.is_finished(pair.now));
}

#[test]
fn a_lost_fin_and_its_lost_acknowledgement_are_said_again() {
    let mut pair = Pair::new();
    pair.a.shutdown_write(pair.now);
    let fin = pair.a_sends(0, ONE).unwrap();
    pair.a.on_channel_lost(ONE, pair.now);
    assert_eq!(
        pair.a_sends(0, TWO),
        Some(window(B, B.wrapping_add(CAPACITY)))
    );
    assert_eq!(pair.a_sends(0, TWO), Some(fin));
    pair.b_hears(fin);
    pair.b_sends(0, TWO).unwrap();
    pair.b.on_channel_lost(TWO, pair.now);
    pair.a.on_channel_lost(TWO, pair.now);
    pair.acknowledge();
    assert_eq!(pair.a.tcp_state(), TcpState::FinWait2);
}

#[test]
fn who_is_finished_still_says_that_the_end_was_taken() {
    let mut pair = Pair::new();
    pair.b.shutdown_write(pair.now);
    pair.acknowledge();
    pair.a.shutdown_write(pair.now);
    let fin = pair.a_sends(0, ONE).unwrap();
    pair.b_hears(fin);
    assert_eq!(pair.b.state(), State::Closed(End::Finished));
    assert!(!pair.b.is_finished(pair.now), "the Window is due");
    let told = pair.b_sends(0, TWO).unwrap();
    assert!(pair.b.is_finished(pair.now));
    let final_state = pair.b.final_state();
    assert_eq!(final_state.answer_to(Arrived::Fin), Some(told));
    // Lost: said again on the loss, and whenever the peer says its end again.
    pair.b.on_channel_lost(TWO, pair.now);
    assert_eq!(pair.b_sends(0, ONE), Some(told));
    pair.b_hears(fin);
    assert_eq!(pair.b_sends(0, ONE), Some(told));
    pair.a_hears(told);
    assert!(pair.a.is_finished(pair.now));
}

#[test]
fn a_peer_that_has_forgotten_an_ended_connection_had_heard_the_end() {
    let mut pair = Pair::new();
    pair.b.shutdown_write(pair.now);
    pair.acknowledge();
    pair.a.shutdown_write(pair.now);
    pair.a_sends(0, ONE).unwrap();
    pair.a_hears(Transmit::Reset {
        reason: Reason::NoSocket,
    });
    assert_eq!(pair.a.state(), State::Closed(End::Finished));
    // With bytes that nobody acknowledged it is a reset.
    let mut pair = Pair::new();
    pair.b.shutdown_write(pair.now);
    pair.acknowledge();
    pair.written(1);
    pair.a.shutdown_write(pair.now);
    pair.a_sends(9, ONE).unwrap();
    pair.a_hears(Transmit::Reset {
        reason: Reason::NoSocket,
    });
    assert_eq!(pair.a.state(), State::Closed(End::Reset(Reason::NoSocket)));
}

#[test]
fn an_end_that_moves_is_a_violation() {
    let at = |offset: u64| A.wrapping_add(offset);
    let fin = |offset| Transmit::Fin {
        sequence: at(offset),
    };
    let cases: [(&[Transmit], Transmit, Violation); 5] = [
        (&[fin(10)], fin(11), Violation::EndMoved),
        (&[fin(10)], fin(9), Violation::EndMoved),
        (&[data(at(5), 10)], fin(14), Violation::EndMoved),
        (&[fin(10)], data(at(5), 6), Violation::DataAfterEnd),
        (
            &[],
            Transmit::Fin {
                sequence: at(u64::MAX),
            },
            Violation::BeforeStart,
        ),
    ];
    for (before, frame, violation) in cases {
        let mut pair = Pair::new();
        before.iter().for_each(|frame| pair.b_hears(*frame));
        assert_eq!(deliver(&mut pair.b, frame, pair.now), Err(violation));
    }
    let mut pair = Pair::new();
    pair.b_hears(data(at(0), 10));
    pair.b_hears(fin(10));
    pair.b_hears(fin(10));
    pair.b_hears(data(at(2), 8));
    assert!(pair.b.at_end());
}

#[test]
fn closing_with_unread_bytes_resets() {
    let mut pair = Pair::new();
    pair.b_hears(data(A, 10));
    pair.read(9);
    pair.b.close(Linger::Background, pair.now);
    assert_eq!(
        pair.b_sends(0, ONE),
        Some(Transmit::Reset {
            reason: Reason::Aborted
        })
    );
}

#[test]
fn bytes_for_a_closed_program_reset() {
    let mut pair = Pair::new();
    pair.b.close(Linger::Background, pair.now);
    pair.acknowledge();
    assert_eq!(pair.a.tcp_state(), TcpState::CloseWait);
    pair.written(1);
    pair.acknowledge();
    assert_eq!(pair.b.state(), State::Closed(End::Aborted(Reason::Aborted)));
    assert_eq!(pair.a.state(), State::Closed(End::Reset(Reason::Aborted)));

    // Also bytes that were on their way into the ring.
    let mut pair = Pair::new();
    let Ok(Placement::Write { claim, .. }) = pair.b.on_data(A, 5, pair.now) else {
        panic!()
    };
    pair.b.close(Linger::Background, pair.now);
    pair.b.placed(&claim, A, 5, pair.now);
    pair.b.finish(claim, pair.now);
    assert_eq!(pair.b.state(), State::Closed(End::Aborted(Reason::Aborted)));
}

#[test]
fn a_closed_program_s_bytes_are_still_delivered() {
    let mut pair = Pair::new();
    pair.written(10_000);
    pair.a.close(Linger::Background, pair.now);
    pair.acknowledge();
    assert_eq!(pair.a.state(), State::Established);
    pair.read(4096);
    pair.acknowledge();
    pair.read(8192);
    pair.acknowledge();
    pair.read(10_000);
    assert!(pair.b.at_end());
    pair.b.close(Linger::Background, pair.now);
    pair.acknowledge();
    assert!(pair.a.is_finished(pair.now) && pair.b.is_finished(pair.now));
}

#[test]
fn linger_of_zero_resets() {
    let mut pair = Pair::new();
    pair.written(10);
    pair.a.close(Linger::Abort, pair.now);
    // What TCP would have sent long before goes first.
    assert!(matches!(pair.a_sends(99, ONE), Some(Transmit::Data { .. })));
    assert!(matches!(
        pair.a_sends(99, ONE),
        Some(Transmit::Reset { .. })
    ));
}

#[test]
fn linger_tells_when_all_is_delivered_or_the_time_is_over() {
    let mut pair = Pair::new();
    pair.written(10);
    pair.a.close(Linger::Wait(SECOND), pair.now);
    assert!(!pair.a.take_changes().contains(Changes::LINGER_OVER));
    pair.acknowledge();
    assert!(pair.a.take_changes().contains(Changes::LINGER_OVER));

    let mut pair = Pair::new();
    pair.written(10_000);
    pair.a.close(Linger::Wait(SECOND), pair.now);
    pair.acknowledge();
    pair.pass(SECOND - 1);
    assert!(!pair.a.take_changes().contains(Changes::LINGER_OVER));
    pair.pass(1);
    assert!(pair.a.take_changes().contains(Changes::LINGER_OVER));
    pair.read(4096);
    pair.acknowledge();
    assert!(
        pair.b.frontier() == A.wrapping_add(8192),
        "it goes on behind"
    );

    let mut pair = Pair::new();
    pair.written(10);
    pair.a.close(Linger::Wait(SECOND), pair.now);
    pair.a_hears(Transmit::Reset {
        reason: Reason::Aborted,
    });
    assert!(pair.a.take_changes().contains(Changes::LINGER_OVER));
}

#[test]
fn a_reset_that_a_channel_took_along_is_said_again() {
    let mut pair = Pair::new();
    pair.written(1);
    pair.acknowledge();
    pair.a.abort(Reason::Aborted, pair.now);
    let reset = pair.a_sends(0, ONE).unwrap();
    pair.a.on_channel_lost(ONE, pair.now);
    assert_eq!(pair.a_sends(0, TWO), Some(reset));
    // And who lives asks after a loss, also without having sent anything there.
    pair.b.on_channel_lost(ONE, pair.now);
    let Some(Transmit::Window(_)) = pair.b_sends(0, TWO) else {
        panic!()
    };
    assert_eq!(
        pair.a
            .final_state()
            .answer_to(Arrived::Window { ask: false }),
        Some(reset)
    );
}

#[test]
fn a_peer_that_began_anew_ends_it_without_a_word() {
    let mut pair = Pair::new();
    pair.a.fail(Reason::Restarted, pair.now);
    assert_eq!(
        pair.a.state(),
        State::Closed(End::Aborted(Reason::Restarted))
    );
    assert!(pair.a.is_finished(pair.now));
    assert_eq!(pair.a.next_timeout(), None);
}

#[test]
fn after_the_end_nothing_happens() {
    let mut pair = Pair::new();
    pair.a.abort(Reason::Aborted, pair.now);
    pair.a_sends(0, ONE);
    pair.a.take_changes();
    let now = pair.now;
    pair.a.on_written(A.wrapping_sub(9), now).unwrap();
    pair.a.on_read(B.wrapping_sub(9), now).unwrap();
    pair.a.shutdown_write(now);
    pair.a.close(Linger::Wait(1), now);
    pair.a.abort(Reason::TimedOut, now);
    pair.a.fail(Reason::TimedOut, now);
    pair.a.on_reset(Reason::TimedOut, now);
    pair.a.on_timeout(now);
    pair.a.on_window(plain(77, 7), now).unwrap();
    assert!(pair.a.take_changes().is_empty());
    assert_eq!(pair.a.state(), State::Closed(End::Aborted(Reason::Aborted)));
}

#[test]
fn who_neither_reads_nor_writes_any_more_answers_bytes_with_a_reset() {
    let mut pair = Pair::new();
    pair.written(10);
    pair.acknowledge();
    pair.b.shutdown_read();
    pair.written(20);
    pair.acknowledge();
    assert_eq!(pair.b.frontier(), A.wrapping_add(20), "taken all the same");
    pair.b.shutdown_write(pair.now);
    pair.acknowledge();
    assert_eq!(pair.b.tcp_state(), TcpState::FinWait2, "nothing came");
    pair.written(30);
    pair.acknowledge();
    assert_eq!(pair.b.state(), State::Closed(End::Aborted(Reason::Aborted)));
    assert_eq!(pair.b.frontier(), A.wrapping_add(20));
    assert_eq!(pair.a.state(), State::Closed(End::Reset(Reason::Aborted)));
}
