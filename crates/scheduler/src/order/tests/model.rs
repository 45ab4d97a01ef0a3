//! Every policy against a plain model.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::time::SECOND;

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
}
