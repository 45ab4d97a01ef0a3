use super::*;

#[test]
fn a_connection_costs_one_round_trip() {
    let mut pair = Pair::opening(settings());
    assert_eq!(pair.a.state(), State::Opening);
    assert_eq!(pair.b.state(), State::Deciding);
    assert_eq!(pair.a_sends(9999, ONE), None);
    assert_eq!(pair.b_sends(9999, ONE), None);
    pair.b.accept(pair.now);
    let answer = pair.b_sends(9999, ONE).unwrap();
    assert_eq!(
        answer,
        Transmit::Answer {
            limit: A.wrapping_add(CAPACITY)
        }
    );
    pair.a_hears(answer);
    assert_eq!(pair.a.state(), State::Established);
    assert_eq!(pair.a.take_changes(), Changes::ESTABLISHED);
    assert_eq!(pair.b.take_changes(), Changes::ESTABLISHED);
    assert_eq!(pair.a.tcp_state(), TcpState::Established);
    pair.acknowledge();
}

#[test]
fn a_refusal_ends_it_at_once() {
    let mut pair = Pair::opening(settings());
    pair.b.refuse(Reason::NoListener, pair.now);
    let reset = pair.b_sends(0, ONE).unwrap();
    assert_eq!(
        reset,
        Transmit::Reset {
            reason: Reason::NoListener
        }
    );
    assert!(pair.b.is_finished(pair.now));
    pair.a_hears(reset);
    assert_eq!(
        pair.a.state(),
        State::Closed(End::Reset(Reason::NoListener))
    );
    assert_eq!(pair.a.take_changes(), Changes::CLOSED);
    assert!(pair.a.is_finished(pair.now));
    assert_eq!(pair.a.next_timeout(), None);
}

#[test]
fn without_an_answer_it_is_asked_again_and_given_up() {
    let mut pair = Pair::opening(settings());
    let began = pair.now;
    let mut asked = Vec::new();
    while pair.a.state() == State::Opening {
        pair.now = pair.a.next_timeout().unwrap();
        pair.a.on_timeout(pair.now);
        if let Some(Transmit::Open { .. }) = pair.a_sends(0, TWO) {
            asked.push((pair.now - began) / MILLISECOND);
        }
    }
    assert_eq!(asked[..4], [200, 600, 1400, 3000]);
    assert_eq!(pair.now - began, 127 * SECOND);
    assert_eq!(
        pair.a.state(),
        State::Closed(End::Aborted(Reason::TimedOut))
    );
    assert_eq!(pair.a_sends(0, ONE), None, "nobody to send a reset to");
}

#[test]
fn a_repeated_open_gets_the_same_answer() {
    let mut pair = Pair::opening(settings());
    let open = Transmit::Open {
        limit: B.wrapping_add(CAPACITY),
    };
    pair.b_hears(open);
    assert_eq!(pair.b_sends(0, ONE), None, "not decided yet");
    pair.b.accept(pair.now);
    let answer = pair.b_sends(0, ONE).unwrap();
    pair.b_hears(open);
    assert_eq!(pair.b_sends(0, TWO), Some(answer));
    pair.a_hears(answer);
    pair.a_hears(answer);
    pair.written(10);
    let first = pair.a_sends(99, ONE).unwrap();
    pair.b_hears(first);
    pair.b_hears(open);
    assert_eq!(
        pair.b_sends(0, TWO),
        None,
        "the peer has shown that it knows"
    );
}

#[test]
fn a_lost_channel_takes_open_and_answer_along_and_they_are_said_again() {
    let mut pair = Pair::opening(settings());
    pair.a.on_channel_lost(TWO, pair.now);
    assert_eq!(pair.a_sends(0, TWO), None, "it was not on that one");
    pair.a.on_channel_lost(ONE, pair.now);
    assert!(matches!(pair.a_sends(0, TWO), Some(Transmit::Open { .. })));
    pair.b.accept(pair.now);
    pair.b_sends(0, ONE).unwrap();
    pair.b.on_channel_lost(ONE, pair.now);
    let answer = pair.b_sends(0, TWO).unwrap();
    pair.a_hears(answer);
    assert_eq!(pair.a.state(), State::Established);
    pair.acknowledge();
}

#[test]
fn bytes_may_overtake_the_answer() {
    let mut pair = Pair::opening(settings());
    pair.b.accept(pair.now);
    let answer = pair.b_sends(0, ONE).unwrap();
    pair.b.on_written(B.wrapping_add(10), pair.now).unwrap();
    pair.b.shutdown_write(pair.now);
    let bytes = pair.b_sends(99, TWO).unwrap();
    let fin = pair.b_sends(99, TWO).unwrap();
    pair.a_hears(bytes);
    pair.a_hears(fin);
    assert_eq!(pair.a.frontier(), B.wrapping_add(10));
    assert!(pair.a.at_end());
    assert_eq!(pair.a_sends(99, ONE), None, "it cannot name the peer yet");
    pair.a_hears(answer);
    assert_eq!(pair.a.state(), State::Established);
    pair.acknowledge();
    assert_eq!(pair.b.tcp_state(), TcpState::FinWait2);
    assert_eq!(pair.a.tcp_state(), TcpState::CloseWait);
}

#[test]
fn who_gave_up_before_the_answer_says_so_when_it_comes() {
    let mut pair = Pair::opening(settings());
    pair.a.close(Linger::Background, pair.now);
    assert_eq!(pair.a.state(), State::Closed(End::Aborted(Reason::Aborted)));
    assert_eq!(pair.a_sends(0, ONE), None);
    assert_eq!(
        pair.a.final_state().answer_to(Arrived::Answer),
        Some(Transmit::Reset {
            reason: Reason::Aborted
        })
    );
    pair.b.accept(pair.now);
    let answer = pair.b_sends(0, ONE).unwrap();
    pair.a_hears(answer);
    let reset = pair.a_sends(0, ONE).unwrap();
    pair.b_hears(reset);
    assert_eq!(pair.b.state(), State::Closed(End::Reset(Reason::Aborted)));
}

#[test]
fn frames_for_what_was_not_accepted_are_a_violation() {
    for frame in [data(A, 1), window(B, B), Transmit::Fin { sequence: A }] {
        let mut pair = Pair::opening(settings());
        assert_eq!(
            deliver(&mut pair.b, frame, pair.now),
            Err(Violation::NotOpen)
        );
        assert_eq!(
            pair.b_sends(0, ONE),
            Some(Transmit::Reset {
                reason: Reason::Violation
            })
        );
    }
    let mut a = VirtualSocket::active(settings(), start(A, B), 0);
    assert_eq!(a.on_answer(A, 0), Err(Violation::NotOpen), "never asked");
}
