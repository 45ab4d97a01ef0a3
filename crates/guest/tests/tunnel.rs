//! Both sides of a tunnel, in one thread.

mod support;

use netchannel_abi::address::Address;
use netchannel_guest::{Datagram, Event, Families, Taken};
use std::time::Duration;
use support::{Both, Played, new_guest, new_host, open, opened, region, welcome};

const SIZE: usize = 1 << 20;

fn up() -> Both {
    let mut both = Both::new(SIZE, 100);
    both.settle();
    assert_eq!(both.host_events, [Event::Up]);
    assert_eq!(both.guest_events, [Event::Up, Event::Welcome(welcome(100))]);
    both
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 7 + at / 251).to_le_bytes()[0])
        .collect()
}

#[test]
fn bytes_go_both_ways_and_the_ends_of_streams_behind_them() {
    // Smaller than what is sent, by far: the rings wrap, and block.
    for size in [64 << 10, SIZE] {
        let mut both = Both::new(size, 100);
        both.settle();
        let (up, down) = (pattern(3_000_001), pattern(2_000_003));
        let (guest, host) = (Played::new(&up), Played::new(&down));
        guest.0.borrow_mut().then = Some(Taken::End);
        host.0.borrow_mut().then = Some(Taken::End);
        both.connect(&guest, &host);
        assert!(guest.0.borrow().accepted);
        assert!(host.0.borrow().got == up && guest.0.borrow().got == down);
        assert!(host.0.borrow().ended && guest.0.borrow().ended);
        assert_eq!((both.host.count(), both.guest.count()), (1, 1));
    }
}

#[test]
fn who_takes_nothing_holds_back_his_own_connection_only() {
    let mut both = up();
    let (slow, quick) = (pattern(1 << 20), pattern(1 << 20));
    let (one, other) = (Played::new(&slow), Played::new(&quick));
    let (stuck, free) = (Played::new(&[]), Played::new(&[]));
    stuck.0.borrow_mut().room = 1000;
    let (_, there) = both.connect(&one, &stuck);
    both.connect(&other, &free);
    assert!(free.0.borrow().got == quick);
    assert_eq!(stuck.0.borrow().got.len(), 1000);
    // No more is under way than was permitted.
    assert!(one.0.borrow().gives.len() >= (1 << 20) - (256 << 10) - 1000);
    stuck.0.borrow_mut().room = usize::MAX;
    both.host.queue(there);
    both.settle();
    assert!(stuck.0.borrow().got == slow);
}

#[test]
fn a_connection_ends_in_good_order_and_is_forgotten() {
    let mut both = up();
    let (guest, host) = (Played::new(b"request"), Played::new(b"answer"));
    guest.0.borrow_mut().then = Some(Taken::Closed);
    both.connect(&guest, &host);
    assert_eq!(host.0.borrow().got, b"request");
    assert_eq!(host.0.borrow().closed, Some((None, true)));
    assert_eq!(guest.0.borrow().closed, Some((None, true)));
    assert_eq!((both.host.count(), both.guest.count()), (0, 0));
}

#[test]
fn a_reset_reaches_the_other_side_behind_the_bytes() {
    let mut both = up();
    let (guest, host) = (Played::new(&[]), Played::new(b"last words"));
    host.0.borrow_mut().then = Some(Taken::Failed(110));
    both.connect(&guest, &host);
    assert_eq!(guest.0.borrow().got, b"last words");
    assert_eq!(guest.0.borrow().closed, Some((Some(110), true)));
    assert_eq!((both.host.count(), both.guest.count()), (0, 0));
}

#[test]
fn a_connect_that_fails_has_its_errno() {
    let mut both = up();
    let guest = Played::new(b"never sent");
    both.guest.open(open(), guest.clone()).unwrap();
    both.settle();
    let serial = opened(&both.host_events);
    both.host.refuse(serial, 13);
    both.settle();
    assert_eq!(guest.0.borrow().closed, Some((Some(13), false)));
    assert_eq!((both.host.count(), both.guest.count()), (0, 0));
}

#[test]
fn clients_of_the_host_find_where_the_guest_listens() {
    let mut both = up();
    let v4 = Families {
        v4: true,
        v6: false,
    };
    both.guest.listen(80, v4);
    both.guest.listen(80, v4);
    both.settle();
    assert_eq!(both.host_events.last(), Some(&Event::Listen(80, v4)));
    let (guest, host) = (Played::new(b"page"), Played::new(b"GET"));
    both.host.open(open(), host.clone()).unwrap();
    both.settle();
    let serial = opened(&both.guest_events);
    // What the client has sent waits.
    assert_eq!(host.0.borrow().gives, b"GET");
    both.guest.attach(serial, guest.clone());
    both.guest.accept(serial);
    both.settle();
    assert_eq!(guest.0.borrow().got, b"GET");
    assert_eq!(host.0.borrow().got, b"page");
    both.guest.listen(80, Families::NONE);
    both.settle();
    assert_eq!(
        both.host_events.last(),
        Some(&Event::Listen(80, Families::NONE))
    );
}

#[test]
fn a_client_that_goes_before_it_was_taken_is_forgotten() {
    let mut both = up();
    let host = Played::new(&[]);
    both.host.open(open(), host.clone()).unwrap();
    host.0.borrow_mut().then = Some(Taken::Closed);
    both.settle();
    let gone = both.guest_events.iter();
    assert!(gone.clone().any(|event| matches!(event, Event::Gone(_))));
    assert_eq!((both.host.count(), both.guest.count()), (0, 0));
    // The worker may not have heard of it.
    let late = Played::new(&[]);
    both.guest.attach(opened(&both.guest_events), late.clone());
    assert_eq!(late.0.borrow().closed, Some((Some(104), false)));
}

#[test]
fn no_more_connections_are_opened_than_the_host_permits() {
    let mut both = Both::new(SIZE, 2);
    assert!(both.guest.open(open(), Played::new(&[])).is_none());
    both.settle();
    let open_one = |both: &mut Both| both.guest.open(open(), Played::new(&[])).is_some();
    assert!(open_one(&mut both) && open_one(&mut both) && !open_one(&mut both));
    both.settle();
    both.host.refuse(opened(&both.host_events), 111);
    both.settle();
    assert!(open_one(&mut both) && !open_one(&mut both));
}

#[test]
fn either_side_may_begin_anew_and_nothing_of_before_is_left() {
    let memory = region(SIZE);
    let mut both = Both::over(&memory, 100);
    both.settle();
    for round in 0..6 {
        let (guest, host) = (Played::new(&pattern(70_000)), Played::new(&[]));
        both.connect(&guest, &host);
        assert_eq!(host.0.borrow().got.len(), 70_000);
        // Killed, without a word.
        let (kept, events) = if round % 2 == 0 {
            both.guest = new_guest(&memory);
            (&host, &mut both.host_events)
        } else {
            both.host = new_host(&memory, 100);
            (&guest, &mut both.guest_events)
        };
        events.clear();
        both.settle();
        let events = if round % 2 == 0 {
            &both.host_events
        } else {
            &both.guest_events
        };
        assert!(
            events.contains(&Event::Down) && events.contains(&Event::Up),
            "{events:?}"
        );
        assert_eq!(kept.0.borrow().closed, Some((Some(104), true)));
        assert_eq!((both.host.count(), both.guest.count()), (0, 0));
    }
}

#[test]
fn a_side_that_ends_says_so() {
    let mut both = up();
    let (guest, host) = (Played::new(&[]), Played::new(&[]));
    both.connect(&guest, &host);
    both.guest.end();
    both.settle();
    assert_eq!(both.host_events.last(), Some(&Event::Down));
    assert_eq!(host.0.borrow().closed, Some((Some(104), true)));
}

#[test]
fn a_side_that_does_not_answer_is_given_up_while_it_has_connections() {
    let mut both = up();
    let (guest, host) = (Played::new(&[]), Played::new(&[]));
    let much = Duration::from_secs(3600);
    both.now += much;
    both.settle();
    assert!(!both.host_events.contains(&Event::Down));
    both.connect(&guest, &host);
    // It answers.
    for _ in 0..20 {
        both.now += Duration::from_secs(9);
        both.settle();
    }
    assert!(!both.host_events.contains(&Event::Down));
    // It does not.
    for _ in 0..10 {
        both.now += Duration::from_secs(9);
        both.host.poll(both.now);
        both.host.work(both.now);
        let _ = both.host.flush();
    }
    let events: Vec<Event> = std::iter::from_fn(|| both.host.next_event()).collect();
    assert!(events.contains(&Event::Silent) && events.contains(&Event::Down));
    assert_eq!(host.0.borrow().closed, Some((Some(104), true)));
    // It comes again.
    both.settle();
    assert!(both.host.is_ready() && both.guest.is_ready());
}

#[test]
fn questions_and_answers_pass_and_what_finds_no_room_is_lost() {
    let mut both = Both::new(64 << 10, 100);
    let datagram = |asker, length| Datagram {
        asker,
        server: Address::v4([10, 0, 0, 53], 53),
        bytes: pattern(length),
    };
    // Nobody is there yet.
    both.guest.tell(&datagram(1, 30));
    both.settle();
    both.host_events.clear();
    both.guest_events.clear();
    let questions = [datagram(1, 1), datagram(7, 4096), datagram(1, 33)];
    questions.iter().for_each(|one| both.guest.tell(one));
    both.guest.forget_asker(7);
    let answers = [datagram(7, 20_000), datagram(9, 12)];
    answers.iter().for_each(|one| both.host.tell(one));
    both.settle();
    let mut wanted: Vec<_> = questions.into_iter().map(Event::Datagram).collect();
    wanted.push(Event::Forget(7));
    assert_eq!(both.host_events, wanted);
    assert_eq!(both.guest_events, answers.map(Event::Datagram));
    // Many times around the ring, and more than it holds.
    for round in 0..200_u64 {
        both.host_events.clear();
        for one in 0..9 {
            both.guest.tell(&datagram(round, 4000 + one));
        }
        both.settle();
        let whole = |one: &Event| matches!(one, Event::Datagram(one) if one.asker == round);
        assert!(both.host_events.iter().all(whole));
        assert!((5..9).contains(&both.host_events.len()));
    }
    both.host_events.clear();
    both.host.tell(&datagram(1, 40_000));
    both.settle();
    assert_eq!(both.guest_events.len(), 2);
    assert_eq!(both.host_events, []);
}

#[test]
fn who_sleeps_is_rung_for_once() {
    let mut both = up();
    let (guest, host) = (Played::new(&[]), Played::new(&[]));
    let (here, _) = both.connect(&guest, &host);
    assert!(!both.host.fall_asleep());
    let send = |both: &mut Both| {
        guest.0.borrow_mut().gives = vec![1; 10];
        both.guest.queue(here);
        both.guest.work(both.now);
        both.guest.flush()
    };
    assert!(send(&mut both) && !send(&mut both));
    both.host.wake();
    both.settle();
    assert_eq!(host.0.borrow().got.len(), 20);
    assert!(!send(&mut both), "nobody sleeps");
    assert!(both.host.fall_asleep(), "there is something");
}
