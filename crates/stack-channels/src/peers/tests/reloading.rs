//! Settings change while channels are up.

use super::world::*;
use crate::peers::{Bounds, Loss};
use netchannel_abi::address::Address;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

#[test]
fn the_same_settings_change_nothing() {
    let (mut a, mut b) = two(40);
    come_up(&mut a, &mut b);
    a.events.clear();
    a.apply();
    wait(&mut [&mut a, &mut b], Duration::from_millis(50));
    assert!(a.events.is_empty(), "{:?}", a.events);
    assert_eq!(a.channels(), all_channels());
}

#[test]
fn a_peer_can_be_taken_out() {
    let (mut a, mut b) = two(41);
    b.peers.on_addresses(&[Address::v4([10, 2, 0, 1], 0)]);
    b.listen(7, Address::v4([0; 4], 80));
    come_up(&mut a, &mut b);
    until(&mut [&mut a, &mut b], "it is shown", |hosts| {
        hosts[0].shown().len() == 1
    });
    a.settings.peers.clear();
    a.apply();
    until(&mut [&mut a, &mut b], "it is gone", |hosts| {
        hosts[0].working.is_empty() && hosts[0].shown().is_empty() && hosts[1].channels().is_empty()
    });
    assert!(
        a.events
            .iter()
            .any(|event| matches!(event, Event::Ended(_)))
    );
}

#[test]
fn prefixes_and_bounds_are_followed() {
    let (mut a, mut b) = two(42);
    b.peers
        .on_addresses(&[Address::v4([10, 2, 0, 1], 0), Address::v4([10, 9, 0, 1], 0)]);
    b.listen(7, Address::v4([0; 4], 80));
    come_up(&mut a, &mut b);
    until(&mut [&mut a, &mut b], "it is shown", |hosts| {
        hosts[0].shown().len() == 1
    });
    a.settings.peers[0].prefixes[0].address = ip("10.9.0.0");
    a.apply();
    let other = BTreeSet::from([("10.9.0.1:80".to_owned(), 7)]);
    until(&mut [&mut a, &mut b], "the other one is shown", |hosts| {
        hosts[0].shown() == other
    });

    for host in [&mut a, &mut b] {
        host.settings.peers[0].channels.throughput = Bounds { least: 1, most: 1 };
        host.apply();
    }
    until(&mut [&mut a, &mut b], "fewer channels", |hosts| {
        hosts
            .iter()
            .all(|host| host.channels().len() == 2 && host.working.len() == 2)
    });
    for host in [&mut a, &mut b] {
        host.settings.peers[0].channels.throughput = Bounds { least: 2, most: 4 };
        host.apply();
    }
    come_up(&mut a, &mut b);
}

#[test]
fn a_new_key_is_for_new_channels() {
    let (mut a, mut b) = two(43);
    come_up(&mut a, &mut b);
    let shared = key('n');
    a.events.clear();
    a.settings.peers[0].key = shared.clone();
    a.apply();
    wait(&mut [&mut a, &mut b], Duration::from_millis(50));
    assert!(a.events.is_empty(), "{:?}", a.events);
    assert_eq!(a.channels(), all_channels());
    // One that is lost comes back as soon as both have the key.
    let lost = a.working[0].channel.instance;
    a.cut(lost, Loss::Broken("cut".to_owned()), Instant::now());
    b.settings.peers[0].key = shared;
    b.apply();
    come_up(&mut a, &mut b);
    let ended = |event: &Event| matches!(event, Event::Ended(_) | Event::Began(_));
    assert!(!a.events.iter().any(ended), "{:?}", a.events);
}

#[test]
fn doors_open_and_close() {
    let (mut a, mut b) = two(44);
    come_up(&mut a, &mut b);
    let before = b.address();
    b.settings.listen = vec!["127.44.0.3:0".parse().unwrap()];
    b.apply();
    assert_ne!(b.address(), before);
    assert!(std::net::TcpStream::connect(before).is_err());
    assert_eq!(b.channels(), all_channels());
    b.settings.listen.push("192.0.2.1:1".parse().unwrap());
    let error = b.peers.apply(b.settings.clone(), std::time::Instant::now());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("192.0.2.1:1"), "{error}");
}
