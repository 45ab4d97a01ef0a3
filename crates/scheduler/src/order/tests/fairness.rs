//! How far apart shares can be, and what cannot be gained by pausing.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::time::SECOND;

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

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

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
