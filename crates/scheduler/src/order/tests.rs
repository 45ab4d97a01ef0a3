//! One suite over every order policy, and the bounds of fairness.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::rate::Rate;
use crate::registry::{Kind, Registry};
use crate::view::{MILLISECOND, SECOND};

const QUANTUM: u32 = 64 << 10;
const L: Class = Class::Latency;
const T: Class = Class::Throughput;

fn all() -> Vec<(&'static str, Box<dyn OrderPolicy>)> {
    let registry = Registry::builtin();
    registry
        .of_kind(Kind::Order)
        .map(|entry| {
            let setting = registry.parse(entry.name).unwrap();
            (entry.name, registry.order(&setting).unwrap())
        })
        .collect()
}

fn fair(parameters: FairParameters) -> Fair {
    Fair::new(parameters)
}

fn tenant(id: u32, weight: u16) -> TenantView {
    TenantView {
        weight,
        ..TenantView::unlimited(TenantId(id))
    }
}

/// Attaches a socket with bytes without end.
fn busy(policy: &mut dyn OrderPolicy, socket: u32, tenant: u32, class: Class) {
    policy
        .attach(SocketId(socket), TenantId(tenant), class)
        .unwrap();
    policy.update(SocketId(socket), u64::MAX);
}

fn granted(policy: &mut dyn OrderPolicy, room: Room, now: u64) -> Grant {
    match policy.next(room, now) {
        Next::Grant(grant) => grant,
        other => panic!("{other:?}"),
    }
}

/// Sends `count` segments of at most `most` and says how many bytes each socket sent.
fn send(policy: &mut dyn OrderPolicy, most: u32, count: usize) -> BTreeMap<u32, u64> {
    let mut sent = BTreeMap::new();
    for _ in 0..count {
        let grant = granted(policy, Room::both(most), 0);
        policy.on_sent(&grant, grant.bytes, 0);
        *sent.entry(grant.socket.0).or_default() += u64::from(grant.bytes);
    }
    sent
}

#[test]
fn numbers_are_checked() {
    for (name, mut policy) in all() {
        let attach = |policy: &mut dyn OrderPolicy, socket, tenant| {
            policy.attach(SocketId(socket), TenantId(tenant), L)
        };
        assert_eq!(
            attach(&mut *policy, 0, 0),
            Err(OrderError::UnknownTenant),
            "{name}"
        );
        let far = tenant(MOST_TENANTS, 1);
        assert_eq!(policy.set_tenant(far, 0), Err(OrderError::TooMany));
        policy.set_tenant(tenant(3, 1), 0).unwrap();
        assert_eq!(attach(&mut *policy, 0, 2), Err(OrderError::UnknownTenant));
        assert_eq!(
            attach(&mut *policy, MOST_SOCKETS, 3),
            Err(OrderError::TooMany)
        );
        assert_eq!(attach(&mut *policy, 5, 3), Ok(()));
        assert_eq!(attach(&mut *policy, 5, 3), Err(OrderError::Taken));
        assert_eq!(
            policy.remove_tenant(TenantId(3)),
            Err(OrderError::HasSockets)
        );
        policy.detach(SocketId(5));
        policy.detach(SocketId(5));
        policy.update(SocketId(5), 1);
        policy.set_class(SocketId(77), T);
        assert_eq!(policy.remove_tenant(TenantId(3)), Ok(()));
        assert_eq!(
            policy.remove_tenant(TenantId(3)),
            Err(OrderError::UnknownTenant)
        );
        assert_eq!(policy.next(Room::both(1), 0), Next::Idle);
        assert_eq!(policy.admit(TenantId(3), 0), Ok(()));
    }
}

#[test]
fn asking_again_without_sending_gives_the_same() {
    for (name, mut policy) in all() {
        policy.set_tenant(tenant(0, 1), 0).unwrap();
        for socket in 0..3 {
            busy(&mut *policy, socket, 0, T);
        }
        let grant = granted(&mut *policy, Room::both(100), 0);
        for _ in 0..10 {
            assert_eq!(granted(&mut *policy, Room::both(100), 0), grant, "{name}");
            policy.on_sent(&grant, 0, 0);
        }
    }
}

#[test]
fn latency_goes_first_and_throughput_gets_all_the_rest() {
    for (name, mut policy) in all() {
        policy.set_tenant(tenant(0, 1), 0).unwrap();
        policy.set_tenant(tenant(1, 1000), 0).unwrap();
        policy.attach(SocketId(0), TenantId(0), L).unwrap();
        busy(&mut *policy, 1, 1, T);
        // L is idle: T has everything.
        let sent = send(&mut *policy, QUANTUM, 100);
        assert_eq!(sent[&1], 100 * u64::from(QUANTUM), "{name}");
        for _ in 0..10 {
            policy.update(SocketId(0), 500);
            let grant = granted(&mut *policy, Room::both(QUANTUM), 0);
            assert_eq!(
                (grant.socket, grant.class, grant.bytes),
                (SocketId(0), L, 500),
                "{name}"
            );
            policy.on_sent(&grant, 500, 0);
            let grant = granted(&mut *policy, Room::both(QUANTUM), 0);
            assert_eq!((grant.socket, grant.class), (SocketId(1), T), "{name}");
            policy.on_sent(&grant, grant.bytes, 0);
        }
    }
}

#[test]
fn a_class_without_room_does_not_hold_up_the_other() {
    for (name, mut policy) in all() {
        policy.set_tenant(tenant(0, 1), 0).unwrap();
        busy(&mut *policy, 0, 0, L);
        busy(&mut *policy, 1, 0, T);
        let room = Room::both(QUANTUM);
        assert_eq!(granted(&mut *policy, room.without(L), 0).class, T, "{name}");
        assert_eq!(granted(&mut *policy, room.without(T), 0).class, L, "{name}");
        assert_eq!(policy.next(Room::both(0), 0), Next::Idle, "{name}");
    }
}

/// Defect 6 of the published module: one reader that does not read throttled every socket on the channel.
#[test]
fn a_closed_window_stops_its_socket_only() {
    for (name, mut policy) in all() {
        policy.set_tenant(tenant(0, 1), 0).unwrap();
        for socket in 0..4 {
            busy(&mut *policy, socket, 0, T);
        }
        policy.update(SocketId(2), 0);
        let sent = send(&mut *policy, QUANTUM, 90);
        assert_eq!(sent.get(&2), None, "{name}");
        for socket in [0, 1, 3] {
            assert_eq!(sent[&socket], 30 * u64::from(QUANTUM), "{name}");
        }
        // It opens a little: no more than that goes out.
        policy.update(SocketId(2), 1000);
        let sent = send(&mut *policy, QUANTUM, 90);
        assert_eq!(sent[&2], 1000, "{name}");
    }
}

#[test]
fn an_idle_socket_saves_no_credit() {
    let mut policy = fair(FairParameters::default());
    policy.set_tenant(tenant(0, 1), 0).unwrap();
    busy(&mut policy, 0, 0, T);
    policy.attach(SocketId(1), TenantId(0), T).unwrap();
    for _ in 0..1000 {
        // A byte, of a turn of a quantum.
        policy.update(SocketId(1), 1);
        send(&mut policy, QUANTUM, 2);
    }
    policy.update(SocketId(1), u64::MAX);
    let sent = send(&mut policy, QUANTUM, 100);
    assert!(
        sent[&1].abs_diff(sent[&0]) <= u64::from(QUANTUM),
        "{sent:?}"
    );
}

/// Segments of two thirds of a quantum overdraw every other turn. Who always pauses after that turn gains nothing.
#[test]
fn a_pause_is_no_way_out_of_a_debt() {
    const SIZE: u32 = QUANTUM / 3 * 2;
    let mut policy = fair(FairParameters::default());
    policy.set_tenant(tenant(0, 1), 0).unwrap();
    for socket in 0..3 {
        busy(&mut policy, socket, 0, T);
    }
    let mut sent = [0u64; 3];
    policy.update(SocketId(0), u64::from(2 * SIZE));
    for _ in 0..10_000 {
        let grant = granted(&mut policy, Room::both(SIZE), 0);
        policy.on_sent(&grant, grant.bytes, 0);
        let index = grant.socket.0 as usize;
        sent[index] += u64::from(grant.bytes);
        if sent[0] % u64::from(2 * SIZE) == 0 && index == 0 {
            policy.update(SocketId(0), u64::from(2 * SIZE));
        }
    }
    assert!(sent[0] <= sent[1] + 2 * u64::from(QUANTUM), "{sent:?}");
    assert!(sent[0] * 2 > sent[1], "{sent:?}");
}

#[test]
fn many_sockets_buy_a_tenant_nothing_unless_configured() {
    for (shares, part) in [(Shares::Weighted, 2), (Shares::PerSocket, 10)] {
        let mut policy = fair(FairParameters {
            shares,
            ..FairParameters::default()
        });
        policy.set_tenant(tenant(0, 1), 0).unwrap();
        policy.set_tenant(tenant(1, 1), 0).unwrap();
        busy(&mut policy, 0, 0, T);
        for socket in 1..10 {
            busy(&mut policy, socket, 1, T);
        }
        let sent = send(&mut policy, QUANTUM, 10_000);
        let whole: u64 = sent.values().sum();
        assert!(
            (whole / part).abs_diff(sent[&0]) <= 20 * u64::from(QUANTUM),
            "{shares:?}"
        );
    }
}

#[test]
fn equal_classes_share_alike() {
    let mut policy = fair(FairParameters {
        class_priority: false,
        ..FairParameters::default()
    });
    policy.set_tenant(tenant(0, 1), 0).unwrap();
    busy(&mut policy, 0, 0, L);
    busy(&mut policy, 1, 0, T);
    let sent = send(&mut policy, QUANTUM, 100);
    assert_eq!(sent[&0], sent[&1]);
}

#[test]
fn throughput_keeps_the_share_it_was_promised() {
    for share in [0u8, 1, 5, 20, 50] {
        let mut policy = fair(FairParameters {
            throughput_share: share,
            ..FairParameters::default()
        });
        policy.set_tenant(tenant(0, 1), 0).unwrap();
        busy(&mut policy, 0, 0, L);
        busy(&mut policy, 1, 0, T);
        let sent = send(&mut policy, 4096, 100_000);
        let throughput = sent.get(&1).copied().unwrap_or(0) as f64;
        let percent = throughput * 100.0 / sent.values().sum::<u64>() as f64;
        assert!(
            (percent - f64::from(share)).abs() < 0.1,
            "{share} {percent}"
        );
        // What T did not use while it had nothing is not made up for.
        policy.update(SocketId(1), 0);
        send(&mut policy, 4096, 100_000);
        policy.update(SocketId(1), u64::MAX);
        let sent = send(&mut policy, 4096, 1000);
        let throughput = sent.get(&1).copied().unwrap_or(0) as f64;
        assert!(
            throughput <= (f64::from(share) / 100.0 + 0.02) * 1000.0 * 4096.0,
            "{share}"
        );
    }
}

#[test]
fn a_capped_tenant_waits_aside_and_others_go_on() {
    for (name, mut policy) in all() {
        let capped = TenantView {
            bytes: Some(Rate::new(1_000_000, 10_000)),
            ..tenant(0, 1)
        };
        policy.set_tenant(capped, 0).unwrap();
        policy.set_tenant(tenant(1, 1), 0).unwrap();
        busy(&mut *policy, 0, 0, T);
        let grant = granted(&mut *policy, Room::both(QUANTUM), 0);
        assert_eq!(grant.bytes, 10_000, "{name}");
        policy.on_sent(&grant, grant.bytes, 0);
        assert_eq!(
            policy.next(Room::both(QUANTUM), 0),
            Next::Until(10 * MILLISECOND),
            "{name}"
        );
        busy(&mut *policy, 1, 1, T);
        let sent = send(&mut *policy, QUANTUM, 10);
        assert_eq!(sent.keys().collect::<Vec<_>>(), [&1], "{name}");
        policy.update(SocketId(1), 0);
        let grant = granted(&mut *policy, Room::both(QUANTUM), 10 * MILLISECOND);
        assert_eq!((grant.socket, grant.bytes), (SocketId(0), 10_000), "{name}");
        policy.on_sent(&grant, grant.bytes, 10 * MILLISECOND);
        assert!(matches!(
            policy.next(Room::both(QUANTUM), 10 * MILLISECOND),
            Next::Until(_)
        ));
        // The cap is taken away: at once.
        policy.set_tenant(tenant(0, 1), 10 * MILLISECOND).unwrap();
        granted(&mut *policy, Room::both(QUANTUM), 10 * MILLISECOND);
    }
}

#[test]
fn the_bulk_of_a_capped_tenant_does_not_hold_up_its_messages() {
    for (name, mut policy) in all() {
        let capped = TenantView {
            bytes: Some(Rate::new(1_000_000, 60_000)),
            ..tenant(0, 1)
        };
        policy.set_tenant(capped, 0).unwrap();
        busy(&mut *policy, 0, 0, T);
        let grant = granted(&mut *policy, Room::both(QUANTUM), 0);
        policy.on_sent(&grant, grant.bytes, 0);
        assert!(matches!(
            policy.next(Room::both(QUANTUM), 0),
            Next::Until(_)
        ));
        policy.attach(SocketId(1), TenantId(0), L).unwrap();
        policy.update(SocketId(1), 500);
        let grant = granted(&mut *policy, Room::both(QUANTUM), MILLISECOND);
        assert_eq!((grant.socket, grant.bytes), (SocketId(1), 500), "{name}");
    }
}

#[test]
fn operations_are_capped_too() {
    for (name, mut policy) in all() {
        let capped = TenantView {
            operations: Some(Rate::new(1000, 3)),
            ..tenant(0, 1)
        };
        policy.set_tenant(capped, 0).unwrap();
        busy(&mut *policy, 0, 0, L);
        assert_eq!(policy.admit(TenantId(0), 0), Ok(()), "a connect");
        send(&mut *policy, 10, 2);
        assert_eq!(
            policy.next(Room::both(10), 0),
            Next::Until(MILLISECOND),
            "{name}"
        );
        assert_eq!(policy.admit(TenantId(0), 0), Err(MILLISECOND), "{name}");
    }
}

#[test]
fn changing_the_policy_keeps_sockets_and_is_no_way_around_a_cap() {
    for which in 0..all().len() {
        for (name, mut to) in all() {
            let (_, mut from) = all().swap_remove(which);
            let capped = TenantView {
                bytes: Some(Rate::new(1_000_000, 10_000)),
                ..tenant(0, 7)
            };
            from.set_tenant(capped, 0).unwrap();
            from.set_tenant(tenant(4, 2), 0).unwrap();
            busy(&mut *from, 0, 0, L);
            from.attach(SocketId(9), TenantId(4), T).unwrap();
            let grant = granted(&mut *from, Room::both(QUANTUM), 0);
            from.on_sent(&grant, 10_000, 0);
            to.restore(&from.snapshot(), 0);
            assert_eq!(
                to.next(Room::both(QUANTUM), 0),
                Next::Until(10 * MILLISECOND),
                "{name}"
            );
            let (before, after) = (from.snapshot(), to.snapshot());
            assert_eq!(before.sockets, after.sockets);
            assert_eq!(before.tenants, after.tenants);
        }
    }
}

/// What happens to a policy, for the model below.
#[derive(Clone, Debug)]
enum Event {
    Attach(u32, u32, bool),
    Detach(u32),
    Class(u32, bool),
    Update(u32, u64),
    Send(u32, u32, u32),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let room = prop_oneof![Just(0u32), 1..200_000u32];
    let bytes = prop_oneof![Just(0u64), 1..300_000u64, Just(u64::MAX)];
    prop_oneof![
        2 => (0..12u32, 0..4u32, any::<bool>()).prop_map(|(socket, tenant, class)| Event::Attach(socket, tenant, class)),
        1 => (0..12u32).prop_map(Event::Detach),
        1 => (0..12u32, any::<bool>()).prop_map(|(socket, class)| Event::Class(socket, class)),
        4 => (0..12u32, bytes).prop_map(|(socket, bytes)| Event::Update(socket, bytes)),
        8 => (room.clone(), room, 0..200_000u32).prop_map(|(latency, throughput, sent)| Event::Send(latency, throughput, sent)),
        2 => (0..50 * MILLISECOND).prop_map(Event::Wait),
    ]
}

fn class_of(latency: bool) -> Class {
    if latency { L } else { T }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Against a plain model: only who has bytes and room is granted, latency first, nobody idle while somebody could
    /// send, and no cap exceeded over any span.
    #[test]
    fn every_policy_keeps_the_rules(
        events in vec(event(), 1..200),
        caps in vec((any::<bool>(), 1_000..100_000_000u64, 1_000..100_000u64, any::<bool>(), 1..100_000u64, 1..50u64), 4),
    ) {
        for (name, mut policy) in all() {
            let mut sockets: BTreeMap<u32, (u32, Class, u64)> = BTreeMap::new();
            let mut sent: Vec<(u64, u32, u64)> = Vec::new();
            let mut now = 0;
            for (id, cap) in (0..).zip(&caps) {
                let view = TenantView {
                    bytes: cap.0.then(|| Rate::new(cap.1, cap.2)),
                    operations: cap.3.then(|| Rate::new(cap.4, cap.5)),
                    ..tenant(id, 1 + u16::try_from(id).unwrap())
                };
                policy.set_tenant(view, now).unwrap();
            }
            for event in &events {
                match *event {
                    Event::Attach(socket, tenant, latency) => {
                        let answer = policy.attach(SocketId(socket), TenantId(tenant), class_of(latency));
                        prop_assert_eq!(answer.is_ok(), !sockets.contains_key(&socket));
                        sockets.entry(socket).or_insert((tenant, class_of(latency), 0));
                    }
                    Event::Detach(socket) => {
                        policy.detach(SocketId(socket));
                        sockets.remove(&socket);
                    }
                    Event::Class(socket, latency) => {
                        policy.set_class(SocketId(socket), class_of(latency));
                        if let Some(entry) = sockets.get_mut(&socket) {
                            entry.1 = class_of(latency);
                        }
                    }
                    Event::Update(socket, bytes) => {
                        policy.update(SocketId(socket), bytes);
                        if let Some(entry) = sockets.get_mut(&socket) {
                            entry.2 = bytes;
                        }
                    }
                    Event::Wait(time) => now += time,
                    Event::Send(latency, throughput, part) => {
                        let room = Room { bytes: [latency, throughput] };
                        let could = |class: Class| {
                            sockets.values().any(|(tenant, its, bytes)| {
                                let cap = caps[*tenant as usize];
                                *its == class && *bytes > 0 && room.of(class) > 0 && !cap.0 && !cap.3
                            })
                        };
                        let (latency_could, anyone_could) = (could(L), could(L) || could(T));
                        match policy.next(room, now) {
                            Next::Grant(grant) => {
                                let entry = sockets.get_mut(&grant.socket.0).expect("attached");
                                prop_assert_eq!((grant.tenant.0, grant.class), (entry.0, entry.1));
                                prop_assert!(grant.bytes > 0);
                                prop_assert!(u64::from(grant.bytes) <= entry.2);
                                prop_assert!(grant.bytes <= room.of(grant.class).min(QUANTUM));
                                let bytes = grant.bytes.min(part);
                                entry.2 -= u64::from(bytes);
                                prop_assert!(grant.class == L || !latency_could, "{name}: T before L");
                                policy.on_sent(&grant, bytes, now);
                                if bytes > 0 {
                                    sent.push((now, grant.tenant.0, u64::from(bytes)));
                                }
                            }
                            Next::Until(until) => {
                                prop_assert!(until > now);
                                prop_assert!(!anyone_could, "{name}: somebody could send");
                            }
                            Next::Idle => {
                                let anybody = sockets
                                    .values()
                                    .any(|(_, class, bytes)| *bytes > 0 && room.of(*class) > 0);
                                prop_assert!(!anybody, "{name}: somebody waits and nobody knows till when");
                            }
                        }
                    }
                }
            }
            for from in 0..sent.len() {
                let mut sums = [(0u128, 0u128); 4];
                for (at, tenant, bytes) in &sent[from..] {
                    let sum = &mut sums[*tenant as usize];
                    sum.0 += u128::from(*bytes);
                    sum.1 += 1;
                    let cap = caps[*tenant as usize];
                    let second = u128::from(SECOND);
                    let span = u128::from(at - sent[from].0);
                    let most = |rate: u64, burst: u64| u128::from(burst) * second + u128::from(rate) * span;
                    prop_assert!(!cap.0 || sum.0 * second <= most(cap.1, cap.2), "{name}");
                    prop_assert!(!cap.3 || sum.1 * second <= most(cap.4, cap.5), "{name}");
                }
            }
        }
    }

    /// Sockets that always have bytes never differ by two quanta or more, whatever the sizes of the segments.
    #[test]
    fn sockets_are_within_two_quanta(
        quantum in 1_000..200_000u32,
        sockets in 2..20u32,
        sizes in vec(1..300_000u32, 1..600),
    ) {
        let mut policy = fair(FairParameters { quantum, ..FairParameters::default() });
        policy.set_tenant(tenant(0, 1), 0).unwrap();
        for socket in 0..sockets {
            busy(&mut policy, socket, 0, T);
        }
        let mut sent = vec![0u64; sockets as usize];
        for size in sizes {
            let grant = granted(&mut policy, Room::both(size), 0);
            policy.on_sent(&grant, grant.bytes, 0);
            sent[grant.socket.0 as usize] += u64::from(grant.bytes);
            let difference = sent.iter().max().unwrap() - sent.iter().min().unwrap();
            prop_assert!(difference < 2 * u64::from(quantum), "{sent:?}");
        }
    }

    /// Bytes divided by weight: the same bound for tenants, at every moment.
    #[test]
    fn tenants_are_within_two_quanta_of_their_weights(
        quantum in 1_000..100_000u32,
        weights in vec((1..20u16, 1..5u32), 2..8),
        sizes in vec(1..150_000u32, 1..2000),
    ) {
        let mut policy = fair(FairParameters { quantum, ..FairParameters::default() });
        let mut socket = 0;
        for (id, (weight, sockets)) in (0..).zip(&weights) {
            policy.set_tenant(tenant(id, *weight), 0).unwrap();
            for _ in 0..*sockets {
                busy(&mut policy, socket, id, T);
                socket += 1;
            }
        }
        let mut sent = vec![0u64; weights.len()];
        for size in sizes {
            let grant = granted(&mut policy, Room::both(size), 0);
            policy.on_sent(&grant, grant.bytes, 0);
            sent[grant.tenant.0 as usize] += u64::from(grant.bytes);
            let shares = sent.iter().zip(&weights).map(|(sent, (weight, _))| *sent as f64 / f64::from(*weight));
            let (least, most) = shares.fold((f64::MAX, 0f64), |(least, most), share| (least.min(share), most.max(share)));
            prop_assert!(most - least < 2.0 * f64::from(quantum), "{sent:?} {weights:?}");
        }
    }
}

/// In the long run weights are met within a per cent.
#[test]
fn weights_are_respected() {
    let mut policy = fair(FairParameters::default());
    let weights = [1u16, 2, 3, 10, 100];
    for (id, weight) in (0..).zip(weights) {
        policy.set_tenant(tenant(id, weight), 0).unwrap();
        busy(&mut policy, id, id, T);
    }
    let sent = send(&mut policy, QUANTUM, 116 * 200);
    let whole: u64 = sent.values().sum();
    for (id, weight) in (0u32..).zip(weights) {
        let share = sent[&id] as f64 / whole as f64;
        let wanted = f64::from(weight) / 116.0;
        assert!(
            (share / wanted - 1.0).abs() < 0.01,
            "{weight}: {share} of {wanted}"
        );
    }
}

/// A link of 1 GB/s: a tenant's cap below its share holds it there, one above its share does not cost it anything.
#[test]
fn caps_and_weights_go_together() {
    for which in 0..all().len() {
        for (percent, wanted) in [(10, 10), (30, 30), (45, 45), (60, 50), (90, 50)] {
            let (name, mut policy) = all().swap_remove(which);
            let capped = TenantView {
                bytes: Some(Rate::bytes(percent * 10_000_000)),
                ..tenant(0, 1)
            };
            policy.set_tenant(capped, 0).unwrap();
            policy.set_tenant(tenant(1, 1), 0).unwrap();
            for id in 0..2 {
                busy(&mut *policy, id, id, T);
            }
            let (mut now, mut sent) = (0u64, [0u64; 2]);
            while now < 4 * SECOND {
                let grant = granted(&mut *policy, Room::both(QUANTUM), now);
                policy.on_sent(&grant, grant.bytes, now);
                now += u64::from(grant.bytes);
                sent[grant.tenant.0 as usize] += u64::from(grant.bytes);
            }
            let share = sent[0] as f64 * 100.0 / (sent[0] + sent[1]) as f64;
            let wanted = wanted as f64;
            assert!(
                (share - wanted).abs() < 1.0,
                "{name}: {share} of {wanted} ({percent})"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// However sockets are spread over tenants: alike, within three quanta.
    #[test]
    fn sockets_share_alike_whoever_has_them(
        quantum in 1_000..100_000u32,
        tenants in vec(1..8u32, 1..6),
        sizes in vec(1..150_000u32, 1..2000),
    ) {
        let mut policy = fair(FairParameters { shares: Shares::PerSocket, quantum, ..FairParameters::default() });
        let mut sockets = 0;
        for (id, count) in (0..).zip(&tenants) {
            policy.set_tenant(tenant(id, 1), 0).unwrap();
            for _ in 0..*count {
                busy(&mut policy, sockets, id, T);
                sockets += 1;
            }
        }
        let mut sent = vec![0u64; sockets as usize];
        for size in sizes {
            let grant = granted(&mut policy, Room::both(size), 0);
            policy.on_sent(&grant, grant.bytes, 0);
            sent[grant.socket.0 as usize] += u64::from(grant.bytes);
            let difference = sent.iter().max().unwrap() - sent.iter().min().unwrap();
            prop_assert!(difference < 3 * u64::from(quantum), "{sent:?}");
        }
    }
}
