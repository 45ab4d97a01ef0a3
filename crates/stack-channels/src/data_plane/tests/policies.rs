//! Who serves a connection, and by which policy: what programs say, what traffic shows, what is configured.

use super::*;
use crate::data_plane::ConnectionSnapshot;
use netchannel_scheduler::Settings;
use netchannel_service::played::pattern;

const L: ChannelId = id(Class::Latency, 0);

const fn t(number: u32) -> ChannelId {
    id(Class::Throughput, number)
}

fn run(class: u8) -> class::Hints {
    class::Hints {
        run: class,
        option: class::NONE,
        dscp: 0,
        priority: 0,
    }
}

/// The one connection of a host, and of the other.
fn both(world: &World) -> Option<[ConnectionSnapshot; 2]> {
    let one = |peer: &Arc<Peer>| peer.snapshots(0, usize::MAX).0.pop();
    Some([one(&world.peers[0])?, one(&world.peers[1])?])
}

/// Carries bytes both ways until both hosts serve the connection as said.
fn settle(world: &mut World, lanes: &mut (Lane, Lane), class: Class, source: [&str; 2]) {
    let start = Instant::now();
    loop {
        world.carry(&mut lanes.0, &mut lanes.1, &pattern(100, 1));
        world.carry(&mut lanes.1, &mut lanes.0, &pattern(100, 2));
        let seen = both(world).unwrap();
        let worker = usize::from(class == Class::Throughput);
        if seen
            .iter()
            .zip(source)
            .all(|(one, source)| (one.class, one.source, one.worker) == (class, source, worker))
        {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{seen:?}");
    }
}

#[test]
fn what_the_connecting_program_says_holds_on_both_hosts() {
    for (code, class) in [
        (class::THROUGHPUT, Class::Throughput),
        (class::LATENCY, Class::Latency),
    ] {
        let mut world = World::with_workers(&[L, t(0)], Some(2));
        let mut lanes = world.connect_as(run(code));
        settle(&mut world, &mut lanes, class, ["run", "peer"]);
        // Another word: only this direction is its own.
        let option = class::Hints {
            option: class::LATENCY,
            ..run(code)
        };
        say(&lanes.0, option);
        settle_one(&mut world, &mut lanes, Class::Latency, "SO_APP_TYPE");
    }
}

/// The same for the first host alone.
fn settle_one(world: &mut World, lanes: &mut (Lane, Lane), class: Class, source: &str) {
    let start = Instant::now();
    loop {
        world.carry(&mut lanes.0, &mut lanes.1, &pattern(100, 1));
        let seen = both(world).unwrap();
        if (seen[0].class, seen[0].source) == (class, source) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{seen:?}");
    }
}

#[test]
fn traffic_that_says_nothing_is_observed() {
    let mut world = World::with_workers(&[L, t(0)], Some(2));
    let mut lanes = world.connect();
    let seen = both(&world).unwrap();
    assert_eq!((seen[0].class, seen[0].source), (Class::Latency, "default"));
    world.carry(&mut lanes.0, &mut lanes.1, &pattern(3_000_000, 7));
    let both_are = |world: &mut World| {
        let seen = both(world)?;
        let is = |one: &ConnectionSnapshot| {
            (one.class, one.source, one.worker) == (Class::Throughput, "observed", 1)
        };
        seen.iter().all(is).then_some(())
    };
    world.wait(both_are);
}

#[test]
fn what_was_said_is_not_overruled_by_what_is_seen() {
    let mut world = World::with_workers(&[L, t(0)], Some(2));
    let mut lanes = world.connect_as(run(class::LATENCY));
    world.carry(&mut lanes.0, &mut lanes.1, &pattern(3_000_000, 7));
    let seen = both(&world).unwrap();
    assert!(
        seen.iter().all(|one| one.class == Class::Latency),
        "{seen:?}"
    );
    assert!(seen.iter().all(|one| one.channels == [L]), "{seen:?}");
}

/// Another policy while bytes move: none is lost, and the next segments go as it says.
#[test]
fn policies_change_while_connections_live() {
    let channels: Vec<_> = (0..4).map(t).collect();
    let mut world = World::with_workers(&channels, Some(2));
    let mut lanes = world.connect_as(run(class::THROUGHPUT));
    let registry = netchannel_scheduler::Registry::builtin();
    let mut policies = Settings::default();
    for text in [
        "round-robin stay=1",
        "sticky",
        "deficit-round-robin",
        "shortest-queue",
        "weighted-tenants",
        "socket-hash",
    ] {
        policies.set(registry.parse(text).unwrap());
        for hosts in &world.hosts {
            hosts.send(Command::Policies(Arc::new(policies.clone())));
        }
        world.carry(&mut lanes.0, &mut lanes.1, &pattern(2_000_000, 3));
    }
    let before: Vec<u64> = sent(&world);
    // By its number: one channel takes all.
    world.carry(&mut lanes.0, &mut lanes.1, &pattern(2_000_000, 5));
    let after = sent(&world);
    let grown = before.iter().zip(&after).filter(|(one, other)| one < other);
    assert_eq!(grown.count(), 1, "{before:?} {after:?}");
    assert_eq!(after.iter().sum::<u64>(), 14_000_000);
    // Each in turn.
    policies.set(registry.parse("round-robin stay=1").unwrap());
    world.hosts[0].send(Command::Policies(Arc::new(policies)));
    world.carry(&mut lanes.0, &mut lanes.1, &pattern(6_000_000, 5));
    let last = sent(&world);
    assert!(
        after.iter().zip(&last).all(|(one, other)| one < other),
        "{after:?} {last:?}"
    );
    assert_eq!(world.peers[0].traffic().repeated_bytes, 0);
}

/// Bytes given to each channel by the first host.
fn sent(world: &World) -> Vec<u64> {
    let (mut routes, _) = world.peers[0].all_routes();
    routes.sort_by_key(|route| route.id);
    let sent = routes.iter().map(|route| route.traffic.shown().sent_bytes);
    sent.collect()
}

/// More workers than two: sockets and channels are spread over them, and every channel serves every socket.
#[test]
fn many_workers_share_sockets_and_channels() {
    let mut channels = vec![L];
    channels.extend((0..3).map(t));
    let mut world = World::with_workers(&channels, Some(4));
    let mut lanes: Vec<_> = (0..6)
        .map(|_| world.connect_as(run(class::THROUGHPUT)))
        .collect();
    for round in 0..4 {
        for (client, server) in &mut lanes {
            world.carry(client, server, &pattern(1_000_000 + round, 3));
            world.carry(server, client, &pattern(1_000_000 + round, 4));
        }
    }
    let snapshots = world.peers[0].snapshots(0, usize::MAX).0;
    let mut workers: Vec<usize> = snapshots.iter().map(|one| one.worker).collect();
    workers.sort_unstable();
    assert_eq!(workers, [1, 1, 2, 2, 3, 3]);
    let (routes, _) = world.peers[0].all_routes();
    for route in &routes {
        let wanted = match route.id.class {
            Class::Latency => 0,
            Class::Throughput => 1 + route.id.number as usize,
        };
        assert_eq!(route.worker, wanted);
        assert!(
            route.id == L || route.traffic.shown().sent_bytes > 0,
            "{route:?}"
        );
    }
}
