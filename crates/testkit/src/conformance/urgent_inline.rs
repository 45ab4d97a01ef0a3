//! Urgent data that stays in the stream (`SO_OOBINLINE`).

use netchannel_testkit::support::*;
use netchannel_testkit::sys;

use crate::case::cases;
use crate::helpers::{expect_no_urgent, expect_taken, send_urgent};
use crate::urgent::{
    SOCKET, await_count, await_urgent, count, expect_at_mark, expect_nothing, expect_read, reported,
};

cases! {
    families: [
        urgent_inline,
        urgent_inline_earlier_one_is_kept,
        urgent_inline_switched_on,
        urgent_inline_switched_off,
        urgent_inline_of_the_listener,
        urgent_inline_before_the_accept,
    ];
}

fn urgent_inline(family: Family) {
    let (client, server) = pair(family);
    set_int(client, SOCKET, libc::SO_OOBINLINE, 1);
    send_all(server, b"ab");
    send_urgent(server, b"!");
    send_all(server, b"cd");
    await_count(client, 5);
    assert_eq!(reported(client), libc::POLLIN | libc::POLLPRI);
    expect_no_urgent(client);
    expect_read(client, b"ab", libc::MSG_DONTWAIT);
    expect_at_mark(client, true);
    expect_read(client, b"!cd", libc::MSG_PEEK);
    assert_eq!(reported(client), libc::POLLIN | libc::POLLPRI);
    expect_bytes(client, b"!");
    expect_at_mark(client, false);
    assert_eq!(reported(client), libc::POLLIN);
    expect_bytes(client, b"cd");
    expect_alive(client, server);
}

fn urgent_inline_earlier_one_is_kept(family: Family) {
    let (client, server) = pair(family);
    set_int(client, SOCKET, libc::SO_OOBINLINE, 1);
    send_urgent(server, b"x");
    await_count(client, 1);
    send_urgent(server, b"y");
    await_count(client, 2);
    expect_at_mark(client, false);
    expect_read(client, b"x", 0);
    expect_at_mark(client, true);
    expect_bytes(client, b"y");
    expect_alive(client, server);
}

fn urgent_inline_switched_on(family: Family) {
    let (client, server) = pair(family);
    send_urgent(server, b"x");
    await_urgent(client, b'x');
    send_urgent(server, b"ay");
    await_urgent(client, b'y');
    expect_taken(client, b'y');
    // The first one was lost when the second came.
    set_int(client, SOCKET, libc::SO_OOBINLINE, 1);
    assert_eq!(count(client), 2);
    expect_read(client, b"a", 0);
    expect_at_mark(client, true);
    expect_bytes(client, b"y");
    expect_no_urgent(client);
    expect_alive(client, server);
}

fn urgent_inline_switched_off(family: Family) {
    let (client, server) = pair(family);
    set_int(client, SOCKET, libc::SO_OOBINLINE, 1);
    send_urgent(server, b"x");
    await_count(client, 1);
    send_urgent(server, b"y");
    await_count(client, 2);
    set_int(client, SOCKET, libc::SO_OOBINLINE, 0);
    await_urgent(client, b'y');
    expect_read(client, b"x", 0);
    expect_at_mark(client, true);
    expect_nothing(client);
    expect_alive(client, server);
}

fn urgent_inline_of_the_listener(family: Family) {
    let (listening, address) = listener(family);
    set_int(listening, SOCKET, libc::SO_OOBINLINE, 1);
    let client = tcp(family);
    set_int(client, SOCKET, libc::SO_OOBINLINE, 1);
    sys::connect(client, address).unwrap();
    let server = sys::accept(listening).unwrap();
    for (from, to) in [(client, server), (server, client)] {
        assert_eq!(sys::option_int(to, SOCKET, libc::SO_OOBINLINE), Ok(1));
        send_urgent(from, b"x");
        await_count(to, 1);
        send_urgent(from, b"y");
        expect_bytes(to, b"xy");
    }
    expect_alive(client, server);
}

fn urgent_inline_before_the_accept(family: Family) {
    let (listening, address) = listener(family);
    set_int(listening, SOCKET, libc::SO_OOBINLINE, 1);
    for before in ["", "ab"] {
        let client = connect_to(address);
        send_all(client, before.as_bytes());
        for byte in ["x", "y"] {
            send_urgent(client, byte.as_bytes());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let server = sys::accept(listening).unwrap();
        expect_bytes(server, before.as_bytes());
        expect_bytes(server, b"xy");
        // From now on an earlier one is lost.
        set_int(server, SOCKET, libc::SO_OOBINLINE, 0);
        send_urgent(client, b"u");
        await_urgent(server, b'u');
        send_urgent(client, b"v");
        await_urgent(server, b'v');
        send_all(client, b"w");
        expect_bytes(server, b"w");
        expect_alive(client, server);
    }
}
