//! Listeners of one host in the directory of the other.

use super::world::*;
use netchannel_abi::address::Address;
use netchannel_wire::{Frame, Listen};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

fn set(rows: &[(&str, u32)]) -> BTreeSet<(String, u32)> {
    let rows = rows.iter();
    rows.map(|(address, number)| ((*address).to_owned(), *number))
        .collect()
}

fn shows(a: &mut Host, b: &mut Host, rows: &[(&str, u32)]) {
    let wanted = set(rows);
    until(&mut [b, a], "the directory is as it should be", |hosts| {
        hosts[1].shown() == wanted
    });
}

/// `b` has two addresses that it may announce, and others.
fn addressed(place: u8) -> (Host, Host) {
    let (a, mut b) = two(place);
    let mut six = [0; 16];
    six[0] = 0xfd;
    b.peers.on_addresses(&[
        Address::v4([10, 2, 0, 1], 0),
        Address::v4([10, 2, 0, 2], 0),
        Address::v4([172, 17, 0, 1], 0),
        Address::v6(six, 0, 0),
    ]);
    (a, b)
}

#[test]
fn listeners_come_and_go() {
    let (mut a, mut b) = addressed(11);
    b.listen(7, Address::v4([10, 2, 0, 1], 80));
    come_up(&mut a, &mut b);
    shows(&mut a, &mut b, &[("10.2.0.1:80", 7)]);
    b.listen(8, Address::v4([10, 2, 0, 1], 81));
    b.listen(9, Address::v4([127, 0, 0, 1], 82));
    b.listen(10, Address::v4([0; 4], 83));
    shows(
        &mut a,
        &mut b,
        &[
            ("10.2.0.1:80", 7),
            ("10.2.0.1:81", 8),
            ("10.2.0.1:83", 10),
            ("10.2.0.2:83", 10),
        ],
    );
    b.peers.on_listener_removed(7);
    b.peers.on_listener_removed(9);
    b.peers.on_listener_removed(10);
    shows(&mut a, &mut b, &[("10.2.0.1:81", 8)]);
    b.peers.on_addresses(&[]);
    b.listen(11, Address::v4([0; 4], 84));
    b.peers.on_listener_removed(8);
    shows(&mut a, &mut b, &[]);
    b.peers.on_addresses(&[Address::v4([10, 2, 0, 9], 0)]);
    shows(&mut a, &mut b, &[("10.2.0.9:84", 11)]);
}

#[test]
fn wildcards_are_scored_as_the_kernel_does() {
    let (mut a, mut b) = addressed(12);
    b.listen(1, Address::v6([0; 16], 80, 0));
    b.listen(2, Address::v4([10, 2, 0, 1], 80));
    // A group: all of them.
    b.listen(3, Address::v4([10, 2, 0, 2], 90));
    b.listen(4, Address::v4([10, 2, 0, 2], 90).mapped());
    come_up(&mut a, &mut b);
    let group = [("10.2.0.2:90", 3), ("10.2.0.2:90", 4)];
    let mut rows = vec![("10.2.0.1:80", 2), ("10.2.0.2:80", 1)];
    rows.extend(group);
    shows(&mut a, &mut b, &rows);
    // What stood before it is gone: the wildcard takes its place.
    b.peers.on_listener_removed(2);
    let mut rows = vec![("10.2.0.1:80", 1), ("10.2.0.2:80", 1)];
    rows.extend(group);
    shows(&mut a, &mut b, &rows);
    b.listen(5, Address::v4([0; 4], 80));
    let mut rows = vec![("10.2.0.1:80", 5), ("10.2.0.2:80", 5)];
    rows.extend(group);
    shows(&mut a, &mut b, &rows);
}

#[test]
fn what_is_outside_the_prefixes_is_ignored_and_counted() {
    let (mut a, mut b) = addressed(13);
    b.listen(1, Address::v4([10, 1, 0, 1], 80));
    b.listen(2, Address::v4([8, 8, 8, 8], 53));
    b.listen(3, Address::v4([10, 2, 0, 1], 80));
    come_up(&mut a, &mut b);
    shows(&mut a, &mut b, &[("10.2.0.1:80", 3)]);
    let view = a.peers.view(Instant::now());
    assert_eq!(view.peers[0].left_out.outside, 2);
    assert_eq!(view.peers[0].listeners, 1);
    // Nor what this host has itself.
    a.peers.on_addresses(&[Address::v4([10, 2, 0, 1], 0)]);
    shows(&mut a, &mut b, &[]);
    a.peers.on_addresses(&[]);
    shows(&mut a, &mut b, &[("10.2.0.1:80", 3)]);
}

#[test]
fn more_than_there_is_room_for_is_left_out() {
    let (mut a, mut b) = addressed(14);
    let most = a.settings.limits.listeners;
    // Each wildcard is two entries here, and a host of these settings tells no more than that.
    for number in 1..=30 {
        b.listen(
            number,
            Address::v4([0; 4], u16::try_from(1000 + number).unwrap()),
        );
    }
    come_up(&mut a, &mut b);
    until(
        &mut [&mut b, &mut a],
        "as many as there is room for",
        |hosts| hosts[1].shown.rows.len() == most,
    );
    let view = a.peers.view(Instant::now());
    assert_eq!(
        (view.peers[0].entries, view.peers[0].listeners),
        (most, most)
    );
    assert!(view.peers[0].left_out.beyond > 0);
    // One that was not told takes the place of one that is gone.
    b.peers.on_listener_removed(1);
    until(&mut [&mut b, &mut a], "another one is told", |hosts| {
        hosts[1].shown.rows.len() == most
            && !hosts[1]
                .shown
                .rows
                .values()
                .any(|(_, theirs, _)| *theirs == 1)
    });
    // A full directory is no reason to fall over.
    a.shown.most = Some(most);
    b.peers.on_listener_removed(2);
    wait(&mut [&mut a, &mut b], Duration::from_millis(20));
    assert!(a.shown.rows.len() <= most);
}

#[test]
fn a_peer_without_a_channel_has_no_entries() {
    let (mut a, mut b) = addressed(15);
    b.listen(7, Address::v4([10, 2, 0, 1], 80));
    come_up(&mut a, &mut b);
    shows(&mut a, &mut b, &[("10.2.0.1:80", 7)]);
    for working in &mut a.working {
        working.break_transport();
    }
    until(&mut [&mut a], "all are lost", |hosts| {
        hosts[0].channels().is_empty()
    });
    assert_eq!(a.shown(), set(&[]));
    come_up(&mut a, &mut b);
    shows(&mut a, &mut b, &[("10.2.0.1:80", 7)]);
}

#[test]
fn announcements_survive_the_loss_of_their_channel() {
    let (mut a, mut b) = addressed(16);
    b.listen(7, Address::v4([10, 2, 0, 1], 80));
    come_up(&mut a, &mut b);
    shows(&mut a, &mut b, &[("10.2.0.1:80", 7)]);
    // Said on a channel that is lost at that very moment.
    for working in &mut b.working {
        working.break_transport();
    }
    b.peers.on_listener_removed(7);
    b.listen(8, Address::v4([10, 2, 0, 1], 81));
    come_up(&mut a, &mut b);
    shows(&mut a, &mut b, &[("10.2.0.1:81", 8)]);
}

#[test]
fn a_new_start_forgets_what_the_former_one_said() {
    let (mut a, mut b) = addressed(17);
    b.listen(7, Address::v4([10, 2, 0, 1], 80));
    come_up(&mut a, &mut b);
    shows(&mut a, &mut b, &[("10.2.0.1:80", 7)]);
    b.restart();
    b.peers.on_addresses(&[Address::v4([10, 2, 0, 1], 0)]);
    b.listen(1, Address::v4([0; 4], 90));
    shows(&mut a, &mut b, &[("10.2.0.1:90", 1)]);
}

#[test]
fn a_peer_that_announces_without_end_is_bounded() {
    let (mut a, mut b) = addressed(18);
    come_up(&mut a, &mut b);
    // Behind the back of its own peers, from a serial far ahead.
    for number in 1..5000u32 {
        let listen = Listen {
            serial: 1000 + u64::from(number),
            listener: number,
            address: Address::v4([10, 2, 0, 1], u16::try_from(1 + number % 50).unwrap()),
            v6_only: false,
        };
        b.working[0].say(&Frame::Listen(listen));
    }
    let most = a.settings.limits.listeners;
    until(&mut [&mut b, &mut a], "it is counted", |hosts| {
        let view = hosts[1].peers.view(Instant::now());
        view.peers[0].left_out.beyond + most as u64 >= 4999
    });
    let view = a.peers.view(Instant::now());
    assert!(view.peers[0].listeners <= most && view.peers[0].entries <= most);
}
