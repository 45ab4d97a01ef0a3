//! Channels come up, collide, are lost and come back.

use super::world::*;
use crate::peers::{Bounds, Loss};
use netchannel_wire::GoAwayReason;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

#[test]
fn both_dial_and_agree_on_one_channel_each() {
    let (mut a, mut b) = two(1);
    come_up(&mut a, &mut b);
    for host in [&a, &b] {
        let began = host
            .events
            .iter()
            .filter(|event| matches!(event, Event::Began(_)));
        assert_eq!(began.count(), 1);
        let lost =
            |event: &&Event| matches!(event, Event::Lost(_, loss) if *loss != Loss::Completed);
        assert_eq!(
            host.events.iter().filter(lost).count(),
            0,
            "{:?}",
            host.events
        );
        assert_eq!(host.counters().violations, 0);
    }
}

#[test]
fn it_is_enough_that_one_dials() {
    let mut a = Host::new("127.2.0.1");
    let mut b = Host::new("127.2.0.2");
    let shared = key('k');
    // Found by its prefix: 127.2.
    let mut stranger = peer("a", vec![], "127.2.0.0", &shared);
    stranger.channels.latency = Bounds { least: 0, most: 1 };
    b.add_peer(stranger);
    a.add_peer(peer("b", vec![b.address()], "10.2.0.0", &shared));
    come_up(&mut a, &mut b);
    assert_eq!(a.counters().collisions + b.counters().collisions, 0);
}

/// Both ends see their own attempt through before they hear of the other's.
#[test]
fn of_two_channels_at_a_time_the_lower_hosts_one_is_kept() {
    let mut collided = false;
    for _ in 0..20 {
        let (mut a, mut b) = two(3);
        let now = Instant::now();
        a.peers.dial(now);
        b.peers.dial(now);
        a.peers.work(now);
        b.peers.work(now);
        // Its own attempt first: HELLO_PROOF of the other one has come, too.
        a.peers.advance(1, now);
        come_up(&mut a, &mut b);
        let announced = |host: &Host| {
            let reason = GoAwayReason::Collision;
            let mut events = host.events.iter();
            events.any(|event| matches!(event, Event::Retire(_, why) if *why == reason))
        };
        if announced(&a) || announced(&b) {
            collided = true;
            let lower_is_a = a.peers.host() < b.peers.host();
            let view = |host: &Host| host.peers.view(Instant::now()).peers[0].channels.clone();
            let first = |host: &Host| view(host)[0];
            assert_eq!(first(&a).dialled, lower_is_a);
            assert_eq!(first(&b).dialled, !lower_is_a);
        }
    }
    assert!(collided, "the two never met on their way");
}

#[test]
fn a_lost_channel_comes_back() {
    let (mut a, mut b) = two(4);
    come_up(&mut a, &mut b);
    wait(&mut [&mut a, &mut b], Duration::from_millis(120));
    for index in 0..3 {
        a.events.clear();
        a.working[index].break_transport();
        until(&mut [&mut a, &mut b], "it is lost", |hosts| {
            !hosts[0].events.is_empty()
        });
        come_up(&mut a, &mut b);
        let ended = |event: &Event| matches!(event, Event::Ended(_) | Event::Unreachable(_));
        assert!(!a.events.iter().any(ended) && !b.events.iter().any(ended));
    }
    let counters = a.counters();
    assert!(counters.lost >= 3 && counters.starts == 1, "{counters:?}");
}

#[test]
fn a_peer_that_is_gone_is_given_up_after_a_while_and_taken_back() {
    let (mut a, mut b) = two(5);
    come_up(&mut a, &mut b);
    let address = b.address();
    drop(b);
    let gone = Instant::now();
    until(&mut [&mut a], "it is given up", |hosts| {
        let given_up = |event: &Event| matches!(event, Event::Unreachable(_));
        hosts[0].events.iter().any(given_up)
    });
    assert!(gone.elapsed() >= quick().unreachable);
    let attempts = a.counters().failed;
    assert!(
        (2..60).contains(&attempts),
        "{attempts} in {:?}",
        gone.elapsed()
    );
    // Another daemon at that address, with the same key.
    let mut b = Host::new("127.5.0.2");
    b.settings.listen = vec![address];
    let shared = a.settings.peers[0].key.clone();
    b.add_peer(peer("a", vec![a.address()], "10.1.0.0", &shared));
    a.events.clear();
    come_up(&mut a, &mut b);
    assert!(
        matches!(a.events[..2], [Event::Ended(_), Event::Began(_)]),
        "{:?}",
        a.events
    );
}

#[test]
fn a_new_start_of_a_daemon_ends_the_former_one() {
    let (mut a, mut b) = two(6);
    come_up(&mut a, &mut b);
    let started = |host: &Host| {
        let starts = host.events.iter().filter_map(|event| match event {
            Event::Began(start) => Some(*start),
            _ => None,
        });
        starts.collect::<Vec<_>>()
    };
    let before = started(&a);
    b.restart();
    b.events.clear();
    until(&mut [&mut a, &mut b], "the new start is met", |hosts| {
        let ended = |event: &Event| *event == Event::Ended(before[0]);
        hosts[0].events.iter().any(ended)
    });
    come_up(&mut a, &mut b);
    assert_eq!(started(&a).len(), 2);
    assert_ne!(started(&a)[1], before[0]);
    assert_eq!(started(&b).len(), 1);
    assert!(
        a.working
            .iter()
            .all(|one| one.channel.start == started(&a)[1])
    );
}

#[test]
fn a_daemon_that_ends_says_so() {
    let (mut a, mut b) = two(7);
    come_up(&mut a, &mut b);
    let now = Instant::now();
    b.peers.end(now);
    until(&mut [&mut a, &mut b], "it is over", |hosts| {
        let ending = |event: &Event| matches!(event, Event::GoAway(_, GoAwayReason::Ending));
        let ended = |event: &Event| matches!(event, Event::Ended(_));
        let events = &hosts[0].events;
        events.iter().any(ending) && events.iter().any(ended)
    });
    let broken = |event: &Event| matches!(event, Event::Lost(_, Loss::Broken(_)));
    assert!(!a.events.iter().any(broken), "{:?}", a.events);
}

#[test]
fn more_channels_and_fewer() {
    let (mut a, mut b) = two(8);
    come_up(&mut a, &mut b);
    let start = a.working[0].channel.start;
    let class = netchannel_wire::Class::Throughput;
    let count = |host: &Host| host.channels().len();
    // Never beyond what is configured.
    a.peers.set_channel_count(start, class, 9, Instant::now());
    until(&mut [&mut a, &mut b], "one more", |hosts| {
        hosts.iter().all(|host| count(host) == 4)
    });
    a.peers.set_channel_count(start, class, 0, Instant::now());
    until(&mut [&mut a, &mut b], "it is retired", |hosts| {
        hosts
            .iter()
            .all(|host| count(host) == 3 && host.working.len() == 3)
    });
    wait(&mut [&mut a, &mut b], Duration::from_millis(50));
    assert_eq!(
        (a.channels(), b.channels()),
        (all_channels(), all_channels())
    );
    let retired = |event: &Event| matches!(event, Event::GoAway(_, GoAwayReason::Retired));
    assert!(b.events.iter().any(retired));
}

#[test]
fn nothing_wakes_it_when_all_is_up() {
    let (mut a, mut b) = two(9);
    come_up(&mut a, &mut b);
    wait(&mut [&mut a, &mut b], Duration::from_millis(100));
    for host in [&a, &b] {
        assert_eq!(host.peers.deadline(Instant::now()), None);
        let mut entry = [rustix::event::PollFd::from_borrowed_fd(
            host.peers.descriptor(),
            rustix::event::PollFlags::IN,
        )];
        let zero = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        assert_eq!(rustix::event::poll(&mut entry, Some(&zero)).unwrap(), 0);
    }
}

/// Whoever only sleeps on the descriptor and until the deadline misses nothing.
#[test]
fn sleeping_is_enough() {
    let (mut a, b) = two(10);
    drop(b);
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < Duration::from_millis(300) {
        let now = Instant::now();
        a.step();
        rounds += 1;
        let pause = a
            .peers
            .deadline(now)
            .unwrap()
            .saturating_duration_since(now);
        let pause = rustix::event::Timespec::try_from(pause).unwrap();
        let mut entry = [rustix::event::PollFd::from_borrowed_fd(
            a.peers.descriptor(),
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut entry, Some(&pause)).unwrap();
    }
    let attempts = a.counters().dialled;
    assert!(
        (4..20).contains(&attempts) && rounds < 60,
        "{attempts} {rounds}"
    );
}

#[test]
fn where_a_channel_stalled_is_dialled_last() {
    let key = key('k');
    let addresses: Vec<SocketAddr> = ["10.0.0.1:1", "10.0.1.1:1"]
        .map(|text| text.parse().unwrap())
        .to_vec();
    let settings = peer("b", addresses.clone(), "10.0.0.0", &key);
    let mut peer = crate::peers::peer::Peer::new(settings);
    let now = Instant::now();
    assert_eq!(peer.next_address(now), Some(addresses[0]));
    let times = quick();
    peer.suspect(addresses[0].ip(), now, &times);
    assert_eq!(peer.next_address(now), Some(addresses[1]));
    // It may be the only one that works by now.
    peer.turn += 1;
    peer.suspect(addresses[1].ip(), now, &times);
    assert_eq!(peer.next_address(now), Some(addresses[0]));
    assert_eq!(
        peer.next_address(now + 2 * times.silence),
        Some(addresses[1])
    );
    peer.settings.addresses.truncate(1);
    peer.suspect(addresses[0].ip(), now, &times);
    assert_eq!(peer.next_address(now), Some(addresses[0]));
}

#[test]
fn a_host_that_dials_again_has_lost_what_was_there() {
    let (mut a, mut b) = two(30);
    come_up(&mut a, &mut b);
    wait(&mut [&mut a, &mut b], Duration::from_millis(1100));
    b.events.clear();
    // Lost without a word: to b they are all there still.
    let lost: Vec<_> = a.working.drain(..).collect();
    for working in &lost {
        a.peers
            .on_lost(working.channel.instance, &Loss::Stalled, Instant::now());
    }
    until(&mut [&mut a, &mut b], "they are made again", |hosts| {
        let cut = |event: &&Event| matches!(event, Event::Cut(_));
        hosts[1].events.iter().filter(cut).count() == lost.len()
    });
    come_up(&mut a, &mut b);
    let retired = |event: &Event| matches!(event, Event::Retire(..));
    assert!(!b.events.iter().any(retired), "{:?}", b.events);
}
