use super::*;
use crate::time::SECOND;

const MICROSECOND: u64 = 1_000;

#[test]
fn short_exchanges_are_latency() {
    let mut observer = Observer::new();
    let mut now = 0;
    let mut exchanges = 0;
    while observer.class().is_none() {
        observer.on_sent(64, now);
        observer.on_received(4096, now + 20 * MICROSECOND);
        now += 30 * MICROSECOND;
        exchanges += 1;
    }
    assert_eq!(observer.class(), Some(Class::Latency));
    assert!(exchanges <= 6, "{exchanges}");
}

#[test]
fn messages_one_way_with_pauses_are_latency() {
    let mut observer = Observer::new();
    for index in 0..20 {
        observer.on_sent(200, index * 10 * MILLISECOND);
    }
    assert_eq!(observer.class(), Some(Class::Latency));
}

#[test]
fn a_stream_is_throughput_in_either_direction() {
    for sending in [true, false] {
        let mut observer = Observer::new();
        let mut bytes = 0;
        let mut now = 0;
        while observer.class().is_none() {
            observer.observe(sending, 4096, now);
            bytes += 4096;
            now += MICROSECOND;
        }
        assert_eq!(observer.class(), Some(Class::Throughput));
        assert!(bytes <= 512 << 10, "{bytes}");
    }
}

#[test]
fn a_stream_with_short_answers_stays_throughput() {
    let mut observer = Observer::new();
    let mut now = 0;
    for _ in 0..100 {
        for _ in 0..16 {
            observer.on_sent(64 << 10, now);
            now += 50 * MICROSECOND;
        }
        observer.on_received(2, now);
        now += 50 * MICROSECOND;
    }
    assert_eq!(observer.class(), Some(Class::Throughput));
}

/// What is left of a run after its last whole stretch is no message.
#[test]
fn the_end_of_a_long_run_is_no_message() {
    let mut observer = Observer::new();
    for run in 0..4 {
        assert_eq!(observer.class(), None);
        observer.on_sent(STRETCH + 1000, run * SECOND);
    }
    assert_eq!(observer.class(), Some(Class::Throughput));
}

#[test]
fn a_large_answer_now_and_then_changes_nothing() {
    let mut observer = Observer::new();
    let mut changes = 0;
    for index in 0..10_000u64 {
        let now = index * 50 * MICROSECOND;
        changes += u32::from(observer.on_received(100, now).is_some());
        let answer = if index % 20 == 19 { 256 << 10 } else { 4096 };
        changes += u32::from(observer.on_sent(answer, now + 1).is_some());
    }
    assert_eq!(observer.class(), Some(Class::Latency));
    assert_eq!(changes, 1, "once, at the beginning");
}

#[test]
fn a_socket_that_changes_its_ways_changes_class() {
    let mut observer = Observer::new();
    let mut now = 0;
    for round in 0..4 {
        for _ in 0..40 {
            observer.on_sent(100, now);
            observer.on_received(100, now + 10);
            now += 100 * MICROSECOND;
        }
        assert_eq!(observer.class(), Some(Class::Latency), "round {round}");
        for _ in 0..40 {
            observer.on_sent(64 << 10, now);
            now += 10 * MICROSECOND;
        }
        assert_eq!(observer.class(), Some(Class::Throughput), "round {round}");
    }
}

/// The worst case for hysteresis: signs of both classes in turn. Between two changes there is the whole band.
#[test]
fn mixed_signs_do_not_flap() {
    let mut observer = Observer::new();
    let mut changes = 0;
    let mut now = 0;
    for index in 0..100_000u64 {
        // Two messages, then a stretch: as many points for either.
        let changed = match index % 4 {
            0 => observer.on_sent(100, now),
            1 => observer.on_received(100, now),
            2 => observer.on_sent(STRETCH, now),
            _ => observer.on_received(100, now),
        };
        changes += u32::from(changed.is_some());
        now += 10 * MICROSECOND;
    }
    assert!(changes <= 1, "{changes}");
}

#[test]
fn it_is_small() {
    assert!(size_of::<Observer>() <= 24);
    let mut observer = Observer::new();
    assert_eq!(observer.on_sent(u32::MAX, SECOND), Some(Class::Throughput));
    assert_eq!(observer.on_sent(0, 0), None);
}
