//! Bytes held back by `MSG_MORE` and `TCP_CORK`: bytes that go at once because they are enough, or because there is no
//! room for more.

use std::time::{Duration, Instant};

use netchannel_testkit::far;
use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor};

use crate::case::cases;
use crate::held::{Held, MORE, SOON, cork, expect_read, hold};

cases! {
    families: [
        held_less_than_a_piece,
        held_less_than_a_packet,
        held_until_there_is_no_room,
    ];
}

fn held_less_than_a_piece(family: Family) {
    const SIZE: usize = 70_000;
    let (client, server) = pair(family);
    cork(client, 1);
    let held = Held::now();
    send_pattern(client, 0, SIZE);
    // The first bytes may be seen before the others.
    eventually("a piece is there", || {
        sys::ioctl_int(server, libc::FIONREAD, 0).unwrap() >= 30_000
    });
    let readable = sys::ioctl_int(server, libc::FIONREAD, 0).unwrap();
    if held.0.elapsed() < SOON {
        assert!(
            (30_000..70_000).contains(&readable),
            "{readable} bytes are there"
        );
    }
    cork(client, 0);
    expect_pattern(server, 0, SIZE);
    // Bytes for half of a window or more are not held back.
    let (client, server) = pair(family);
    assert_eq!(sys::send(client, &pattern(0, 40_000), MORE), Ok(40_000));
    let held = Held::now();
    expect_pattern(server, 0, 30_000);
    assert!(held.0.elapsed() < SOON);
    let (client, server) = pair(family);
    assert_eq!(sys::send(client, &pattern(0, SIZE), MORE), Ok(SIZE));
    expect_pattern(server, 0, 65_000);
}

/// To another host a packet goes when it is full.
fn held_less_than_a_packet(family: Family) {
    const SIZE: usize = 5_000;
    let (client, server) = pair(family);
    let is_far = far::of(client).is_some() || far::of(server).is_some();
    cork(client, 1);
    let held = Held::now();
    send_pattern(client, 0, SIZE);
    if is_far {
        let readable = || sys::ioctl_int(server, libc::FIONREAD, 0).unwrap();
        eventually("full packets are there", || readable() >= 4_000);
        assert!(readable() < 5_000 || held.0.elapsed() >= SOON);
    } else {
        held.expect_nothing(server);
    }
    cork(client, 0);
    expect_pattern(server, 0, SIZE);
    // The acknowledgement releases bytes that are not corked.
    let held = Held::now();
    assert_eq!(sys::send(client, &pattern(0, SIZE), MORE), Ok(SIZE));
    if is_far {
        expect_pattern(server, 0, SIZE);
        assert!(held.0.elapsed() < SOON);
        // Later bytes are held back anew.
        let held = hold(client, b"held");
        held.expect_nothing(server);
        expect_read(server, b"held");
        held.expect_time();
    } else {
        held.expect_nothing(server);
    }
}

fn held_until_there_is_no_room(family: Family) {
    let (client, server) = small_pair(family);
    cork(client, 1);
    set_nonblocking(client);
    let sent = fill(client);
    expect_pattern_start(server, sent.min(1_000));
}

/// Checks that `length` bytes arrive soon.
#[track_caller]
fn expect_pattern_start(socket: Descriptor, length: usize) {
    let start = Instant::now();
    assert_eq!(receive_exact(socket, length).len(), length);
    assert!(start.elapsed() < Duration::from_secs(5));
}
