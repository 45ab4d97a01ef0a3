//! One suite over every order policy; a model of all; the bounds of fairness.

mod fairness;
mod model;

use std::collections::BTreeMap;

use super::*;
use crate::rate::Rate;
use crate::registry::{Kind, Registry};
use crate::time::MILLISECOND;

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
