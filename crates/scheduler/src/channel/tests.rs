//! One suite over every channel policy, and what each does by itself.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::registry::{Kind, Registry};
use crate::view::{ChannelId, Class, Phase, SocketId, TenantId, WorkerId};

fn channel(class: Class, number: u32) -> ChannelView {
    ChannelView::idle(ChannelId { class, number }, WorkerId(0))
}

fn channels(latency: u32, throughput: u32) -> Vec<ChannelView> {
    let latency = (0..latency).map(|number| channel(Class::Latency, number));
    let throughput = (0..throughput).map(|number| channel(Class::Throughput, number));
    latency.chain(throughput).collect()
}

fn socket(class: Class) -> SocketView {
    SocketView {
        id: SocketId(0),
        tenant: TenantId(0),
        class,
        ready: 4096,
        window: 4096,
        last_channel: None,
    }
}

fn all() -> Vec<(&'static str, Box<dyn ChannelPolicy>)> {
    let registry = Registry::builtin();
    registry
        .of_kind(Kind::Channel)
        .map(|entry| {
            let setting = registry.parse(entry.name).unwrap();
            (entry.name, registry.channel(&setting).unwrap())
        })
        .collect()
}

fn chosen(policy: &mut dyn ChannelPolicy, class: Class, list: &[ChannelView]) -> ChannelId {
    match policy.choose(&socket(class), 4096, list, 0) {
        Choice::Send(index) => list[index].id,
        other => panic!("{other:?}"),
    }
}

/// Defect 5 of the published module: class followed the order in which channels were accepted.
#[test]
fn class_is_what_the_channel_says_not_its_place() {
    for (name, mut policy) in all() {
        let mut list = channels(2, 3);
        for turn in 0..20 {
            list.rotate_left(turn % 5);
            if turn % 3 == 0 {
                list.reverse();
            }
            for class in Class::ALL {
                let id = chosen(&mut *policy, class, &list);
                assert_eq!(id.class, class, "{name}");
            }
        }
    }
}

#[test]
fn the_other_class_only_while_none_of_its_own_is_up() {
    for (name, mut policy) in all() {
        let mut list = channels(1, 2);
        list[0].phase = Phase::Draining;
        assert_eq!(
            chosen(&mut *policy, Class::Latency, &list).class,
            Class::Throughput,
            "{name}"
        );
        list[0].phase = Phase::Opening;
        assert_eq!(
            chosen(&mut *policy, Class::Latency, &list).class,
            Class::Throughput,
            "{name}"
        );
        list[0].phase = Phase::Up;
        assert_eq!(
            chosen(&mut *policy, Class::Latency, &list).class,
            Class::Latency,
            "{name}"
        );
        // Full is not down: it waits rather than disturb the other class.
        list[0].queued = THRESHOLD;
        let choice = policy.choose(&socket(Class::Latency), 1, &list, 0);
        assert_eq!(choice, Choice::Wait, "{name}");
        list[0].queued = 0;
        assert_eq!(
            chosen(&mut *policy, Class::Throughput, &list[..1]).class,
            Class::Latency,
            "{name}"
        );
    }
}

#[test]
fn without_channels_there_is_nothing_to_choose() {
    for (name, mut policy) in all() {
        let mut list = channels(1, 1);
        for class in Class::ALL {
            assert_eq!(
                policy.choose(&socket(class), 1, &[], 0),
                Choice::NoChannel,
                "{name}"
            );
        }
        for channel in &mut list {
            channel.phase = Phase::Draining;
        }
        for class in Class::ALL {
            assert_eq!(
                policy.choose(&socket(class), 1, &list, 0),
                Choice::NoChannel,
                "{name}"
            );
        }
    }
}

fn any_channel() -> impl Strategy<Value = ChannelView> {
    let phase = prop_oneof![Just(Phase::Up), Just(Phase::Draining), Just(Phase::Opening)];
    let occupancy = prop_oneof![Just(0u64), 0..2 * THRESHOLD, Just(u64::MAX)];
    (
        any::<bool>(),
        0..4u32,
        phase,
        occupancy.clone(),
        occupancy,
        any::<bool>(),
    )
        .prop_map(
            |(latency, number, phase, queued, unsent, congestion_limited)| {
                let class = if latency {
                    Class::Latency
                } else {
                    Class::Throughput
                };
                ChannelView {
                    phase,
                    queued,
                    unsent,
                    congestion_limited,
                    ..channel(class, number)
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the channels are, and however they change between two segments.
    #[test]
    fn every_policy_keeps_the_rules(
        lists in vec((vec(any_channel(), 0..6), any::<bool>(), 0..8u32, 0..4u32), 1..20),
    ) {
        for (name, mut policy) in all() {
            for (list, latency, id, last) in &lists {
                let class = if *latency { Class::Latency } else { Class::Throughput };
                let asking = SocketView {
                    id: SocketId(*id),
                    last_channel: Some(ChannelId { class, number: *last }),
                    ..socket(class)
                };
                let own_up = list.iter().any(|entry| entry.is_up() && entry.id.class == class);
                let allowed = |entry: &ChannelView| {
                    entry.is_up() && (entry.id.class == class) == own_up
                };
                match policy.choose(&asking, 4096, list, 0) {
                    Choice::Send(index) => {
                        prop_assert!(allowed(&list[index]), "{name}");
                        prop_assert!(list[index].occupancy() < THRESHOLD, "{name}");
                    }
                    Choice::Wait => {
                        prop_assert!(list.iter().any(allowed), "{name}");
                        let free = list.iter().any(|entry| allowed(entry) && entry.occupancy() < THRESHOLD);
                        prop_assert!(!free || name == "socket-hash", "{name}");
                    }
                    Choice::NoChannel => prop_assert!(!list.iter().any(ChannelView::is_up), "{name}"),
                }
            }
        }
    }
}

/// Defect 6 of the published module: memory behind a slow channel was unbounded.
#[test]
fn a_channel_never_holds_more_than_the_threshold_and_a_segment() {
    const SEGMENT: u32 = 64 << 10;
    for (name, mut policy) in all() {
        let mut list = channels(0, 3);
        for id in 0.. {
            let asking = SocketView {
                id: SocketId(id % 7),
                ..socket(Class::Throughput)
            };
            match policy.choose(&asking, SEGMENT, &list, 0) {
                Choice::Send(index) => list[index].queued += u64::from(SEGMENT),
                _ if id > 1000 => break,
                _ => {}
            }
        }
        for channel in &list {
            assert!(
                channel.occupancy() < THRESHOLD + u64::from(SEGMENT),
                "{name}"
            );
            assert!(channel.occupancy() >= THRESHOLD, "{name}");
        }
    }
}

#[test]
fn round_robin_takes_each_in_turn() {
    let list = channels(1, 3);
    let mut policy = RoundRobin::new(THRESHOLD, 1);
    let numbers: Vec<u32> = (0..6)
        .map(|_| chosen(&mut policy, Class::Throughput, &list).number)
        .collect();
    assert_eq!(numbers, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn round_robin_stays_for_some_requests() {
    let list = channels(0, 2);
    let mut policy = RoundRobin::new(THRESHOLD, 3);
    let numbers: Vec<u32> = (0..9)
        .map(|_| chosen(&mut policy, Class::Throughput, &list).number)
        .collect();
    assert_eq!(numbers, [0, 0, 0, 1, 1, 1, 0, 0, 0]);
}

#[test]
fn round_robin_passes_over_the_full_and_comes_back() {
    let mut list = channels(0, 3);
    list[1].unsent = THRESHOLD;
    let mut policy = RoundRobin::new(THRESHOLD, 1);
    let mut next = |list: &[ChannelView]| chosen(&mut policy, Class::Throughput, list).number;
    assert_eq!([next(&list), next(&list), next(&list)], [0, 2, 0]);
    list[1].unsent = THRESHOLD - 1;
    assert_eq!([next(&list), next(&list)], [1, 2]);
}

#[test]
fn round_robin_begins_anew_where_it_could_not_stay() {
    let mut list = channels(0, 3);
    let mut policy = RoundRobin::new(THRESHOLD, 3);
    let mut next = |list: &[ChannelView]| chosen(&mut policy, Class::Throughput, list).number;
    assert_eq!(next(&list), 0);
    list[0].queued = THRESHOLD;
    assert_eq!(
        [next(&list), next(&list), next(&list), next(&list)],
        [1, 1, 1, 2]
    );
    assert_eq!(
        next(
            &list[..1]
                .iter()
                .map(|_| channel(Class::Throughput, 9))
                .collect::<Vec<_>>()
        ),
        9
    );
}

#[test]
fn classes_have_turns_of_their_own() {
    let list = channels(2, 2);
    let mut policy = RoundRobin::new(THRESHOLD, 1);
    let mut next = |class| chosen(&mut policy, class, &list).number;
    let (latency, throughput) = (Class::Latency, Class::Throughput);
    let numbers = [
        next(latency),
        next(throughput),
        next(latency),
        next(throughput),
    ];
    assert_eq!(numbers, [0, 0, 1, 1]);
}

#[test]
fn shortest_queue_fills_channels_evenly() {
    let mut list = channels(0, 3);
    list[0].queued = 100_000;
    let mut policy = ShortestQueue::new(THRESHOLD, true);
    for _ in 0..300 {
        match policy.choose(&socket(Class::Throughput), 1000, &list, 0) {
            Choice::Send(index) => list[index].queued += 1000,
            other => panic!("{other:?}"),
        }
    }
    let occupancies: Vec<u64> = list.iter().map(ChannelView::occupancy).collect();
    assert!(occupancies.iter().max().unwrap() - occupancies.iter().min().unwrap() <= 1000);
}

#[test]
fn shortest_queue_shares_among_equals_and_shuns_the_congested() {
    let mut list = channels(0, 3);
    let mut policy = ShortestQueue::new(THRESHOLD, true);
    let mut next = |list: &[ChannelView]| chosen(&mut policy, Class::Throughput, list).number;
    assert_eq!([next(&list), next(&list), next(&list)], [0, 1, 2]);
    list[0].congestion_limited = true;
    list[1].queued = 1000;
    list[2].queued = 2000;
    assert_eq!([next(&list), next(&list)], [1, 1]);
    let mut indifferent = ShortestQueue::new(THRESHOLD, false);
    assert_eq!(chosen(&mut indifferent, Class::Throughput, &list).number, 0);
}

#[test]
fn sticky_stays_until_it_spills() {
    let mut list = channels(0, 3);
    let mut policy = Sticky::new(THRESHOLD, 1000);
    let mut asking = socket(Class::Throughput);
    let mut next = |asking: &mut SocketView, list: &[ChannelView]| {
        let Choice::Send(index) = policy.choose(asking, 1, list, 0) else {
            panic!("a channel is free");
        };
        asking.last_channel = Some(list[index].id);
        list[index].id.number
    };
    let first = next(&mut asking, &list);
    for _ in 0..10 {
        assert_eq!(next(&mut asking, &list), first);
    }
    list[first as usize].queued = 1000;
    let second = next(&mut asking, &list);
    assert_ne!(second, first);
    list[first as usize].queued = 0;
    assert_eq!(next(&mut asking, &list), second, "no way back without need");
    for channel in &mut list {
        channel.queued = 1500;
    }
    list[second as usize].queued = 1900;
    assert_eq!(
        next(&mut asking, &list),
        second,
        "all are busy: order is worth more"
    );
}

#[test]
fn new_sockets_spread_over_sticky_channels() {
    let list = channels(0, 3);
    let mut policy = Sticky::new(THRESHOLD, 1000);
    let mut next = || chosen(&mut policy, Class::Throughput, &list).number;
    assert_eq!([next(), next(), next(), next()], [0, 1, 2, 0]);
}
