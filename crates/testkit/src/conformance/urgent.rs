//! Urgent data: the byte sent with `MSG_OOB`, its mark in the stream, and which calls are notified.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::helpers::{expect_no_urgent, expect_taken, send_urgent};

cases! {
    families: [
        urgent_none_is_einval,
        urgent_byte_is_taken_once,
        urgent_byte_is_peeked,
        urgent_last_byte_of_several,
        urgent_last_byte_of_a_vector,
        urgent_alone_is_nothing_to_read,
        urgent_read_ends_at_the_mark,
        urgent_read_passes_over_it,
        urgent_peek_passes_over_it,
        urgent_waitall_ends_at_the_mark,
        urgent_vector_ends_at_the_mark,
        urgent_earlier_one_is_in_line,
        urgent_earlier_one_taken_is_in_line_too,
        urgent_earlier_one_at_the_mark_is_lost,
        urgent_counts_for_fionread,
        urgent_low_water,
        urgent_wakes_a_reader_below_low_water,
        urgent_message_flags,
        urgent_messages,
        urgent_nothing_is_not_urgent,
        urgent_large,
        urgent_before_the_end,
        urgent_before_the_end_of_a_killed_peer,
        urgent_before_a_reset,
        urgent_after_shutdown_of_reading,
        urgent_after_shutdown_of_both,
    ];
}

pub const SOCKET: libc::c_int = libc::SOL_SOCKET;

/// Waits until this byte is the urgent byte.
#[track_caller]
pub fn await_urgent(socket: Descriptor, byte: u8) {
    let mut reported = [0_u8; 1];
    eventually("the urgent byte", || {
        sys::recv(socket, &mut reported, libc::MSG_OOB | libc::MSG_PEEK) == Ok(1)
            && reported[0] == byte
    });
}

/// Checks that one call receives exactly these bytes.
#[track_caller]
pub fn expect_read(socket: Descriptor, expected: &[u8], flags: libc::c_int) {
    let mut bytes = [0_u8; 64];
    let size = sys::recv(socket, &mut bytes, flags).unwrap();
    assert_eq!(bytes[..size], *expected);
}

#[track_caller]
pub fn expect_nothing(socket: Descriptor) {
    let answer = sys::recv(socket, &mut [0_u8; 8], libc::MSG_DONTWAIT);
    assert_eq!(answer, Err(Errno(libc::EAGAIN)));
}

#[track_caller]
pub fn expect_at_mark(socket: Descriptor, at: bool) {
    assert_eq!(sys::at_mark(socket), Ok(at));
}

pub fn count(socket: Descriptor) -> libc::c_int {
    sys::ioctl_int(socket, libc::FIONREAD, 0).unwrap()
}

#[track_caller]
pub fn await_count(socket: Descriptor, expected: libc::c_int) {
    eventually("so many bytes", || count(socket) == expected);
}

/// The input events that poll reports.
pub fn reported(socket: Descriptor) -> libc::c_short {
    poll_one(socket, libc::POLLIN | libc::POLLPRI, 0)
}

fn urgent_none_is_einval(family: Family) {
    let (client, server) = pair(family);
    expect_no_urgent(client);
    send_all(server, b"a");
    await_events(client, libc::POLLIN);
    expect_no_urgent(client);
    expect_at_mark(client, false);
    expect_alive_after(client, server, b"a");
}

#[track_caller]
fn expect_alive_after(client: Descriptor, server: Descriptor, rest: &[u8]) {
    expect_bytes(client, rest);
    expect_alive(client, server);
}

fn urgent_byte_is_taken_once(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"ab");
    send_urgent(server, b"!");
    send_all(server, b"cd");
    await_urgent(client, b'!');
    assert_eq!(reported(client), libc::POLLIN | libc::POLLPRI);
    expect_taken(client, b'!');
    assert_eq!(reported(client), libc::POLLIN);
    expect_no_urgent(client);
    expect_at_mark(client, false);
    expect_read(client, b"ab", 0);
    expect_at_mark(client, true);
    expect_bytes(client, b"cd");
    expect_at_mark(client, false);
    expect_alive(client, server);
}

fn urgent_byte_is_peeked(family: Family) {
    let (client, server) = pair(family);
    send_urgent(server, b"!");
    for _ in 0..3 {
        await_urgent(client, b'!');
        assert_eq!(reported(client), libc::POLLPRI);
    }
    expect_taken(client, b'!');
    assert_eq!(reported(client), 0);
    expect_at_mark(client, true);
    send_all(server, b"x");
    expect_alive_after(client, server, b"x");
}

fn urgent_last_byte_of_several(family: Family) {
    let (client, server) = pair(family);
    send_urgent(server, b"abc!");
    await_urgent(client, b'!');
    expect_read(client, b"abc", 0);
    expect_at_mark(client, true);
    expect_taken(client, b'!');
    expect_alive(client, server);
}

fn urgent_last_byte_of_a_vector(family: Family) {
    let (client, server) = pair(family);
    let parts: [&[u8]; 4] = [b"ab", b"", b"c!", b""];
    assert_eq!(sys::send_vector(server, &parts, libc::MSG_OOB), Ok(4));
    await_urgent(client, b'!');
    expect_read(client, b"abc", 0);
    let long = vec![b'-'; 6_000];
    let parts: [&[u8]; 2] = [&long, b"yz?"];
    assert_eq!(sys::send_vector(server, &parts, libc::MSG_OOB), Ok(6_003));
    await_urgent(client, b'?');
    expect_bytes(client, &long);
    expect_bytes(client, b"yz");
    expect_at_mark(client, true);
}

fn urgent_alone_is_nothing_to_read(family: Family) {
    let (client, server) = pair(family);
    send_urgent(server, b"!");
    await_urgent(client, b'!');
    assert_eq!(reported(client), libc::POLLPRI);
    assert_eq!(count(client), 0);
    expect_at_mark(client, true);
    // A read passes over the urgent byte all the same, and then the byte is lost.
    expect_nothing(client);
    expect_at_mark(client, false);
    assert_eq!(reported(client), 0);
    expect_no_urgent(client);
    expect_alive(client, server);
}

fn urgent_read_ends_at_the_mark(family: Family) {
    let (client, server) = pair(family);
    for round in 0..3 {
        send_all(server, b"before");
        send_urgent(server, b"!");
        send_all(server, b"behind");
        await_urgent(client, b'!');
        expect_read(client, b"before", 0);
        expect_at_mark(client, true);
        if round > 0 {
            expect_taken(client, b'!');
        }
        expect_bytes(client, b"behind");
    }
    expect_alive(client, server);
}

fn urgent_read_passes_over_it(family: Family) {
    let (client, server) = pair(family);
    send_urgent(server, b"!");
    send_all(server, b"cd");
    await_urgent(client, b'!');
    await_events(client, libc::POLLIN);
    expect_at_mark(client, true);
    let mut byte = [0_u8; 1];
    assert_eq!(sys::recv(client, &mut byte, 0), Ok(1));
    expect_no_urgent(client);
    expect_at_mark(client, false);
    if byte == *b"c" {
        expect_bytes(client, b"d");
    } else {
        panic!("{byte:?}");
    }
    expect_alive(client, server);
}

fn urgent_peek_passes_over_it(family: Family) {
    let (client, server) = pair(family);
    send_urgent(server, b"!");
    await_urgent(client, b'!');
    let peek = libc::MSG_PEEK;
    let answer = sys::recv(client, &mut [0_u8; 4], peek | libc::MSG_DONTWAIT);
    assert_eq!(answer, Err(Errno(libc::EAGAIN)));
    send_all(server, b"abcd");
    await_events(client, libc::POLLIN);
    let mut bytes = [0_u8; 4];
    eventually("all is there", || {
        sys::recv(client, &mut bytes, peek) == Ok(4)
    });
    assert_eq!(bytes, *b"abcd");
    let (mut one, mut two) = ([0_u8; 1], [0_u8; 8]);
    let got = sys::recv_vector(client, &mut [&mut one, &mut two], peek);
    assert_eq!(got.unwrap().0, 4);
    assert_eq!((one, &two[..3]), (*b"a", &b"bcd"[..]));
    expect_at_mark(client, true);
    expect_taken(client, b'!');
    expect_alive_after(client, server, b"abcd");
}

fn urgent_waitall_ends_at_the_mark(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"ab");
    send_urgent(server, b"!");
    send_all(server, b"cd");
    await_urgent(client, b'!');
    let mut bytes = [0_u8; 5];
    let whole = libc::MSG_WAITALL;
    assert_eq!(sys::recv(client, &mut bytes, whole), Ok(2));
    assert_eq!(sys::recv(client, &mut bytes[..2], whole), Ok(2));
    assert_eq!(bytes[..2], *b"cd");
    expect_alive(client, server);
}

fn urgent_vector_ends_at_the_mark(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"ab");
    send_urgent(server, b"!");
    send_all(server, b"cd");
    await_urgent(client, b'!');
    let (mut one, mut two) = ([0_u8; 2], [0_u8; 8]);
    let got = sys::recv_vector(client, &mut [&mut one, &mut two], 0);
    assert_eq!(got.unwrap().0, 2);
    assert_eq!(one, *b"ab");
    expect_bytes(client, b"cd");
    expect_alive(client, server);
}

fn urgent_earlier_one_is_in_line(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"a");
    send_urgent(server, b"x");
    await_urgent(client, b'x');
    send_all(server, b"bc");
    send_urgent(server, b"y");
    await_urgent(client, b'y');
    send_all(server, b"d");
    expect_read(client, b"axbc", 0);
    expect_at_mark(client, true);
    expect_taken(client, b'y');
    expect_bytes(client, b"d");
    expect_alive(client, server);
}

fn urgent_earlier_one_taken_is_in_line_too(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"a");
    send_urgent(server, b"x");
    await_urgent(client, b'x');
    expect_taken(client, b'x');
    send_all(server, b"bc");
    send_urgent(server, b"y");
    await_urgent(client, b'y');
    expect_read(client, b"axbc", 0);
    expect_taken(client, b'y');
    expect_alive(client, server);
}

fn urgent_earlier_one_at_the_mark_is_lost(family: Family) {
    let (client, server) = pair(family);
    for byte in *b"xyz" {
        send_urgent(server, &[byte]);
        await_urgent(client, byte);
        expect_at_mark(client, true);
        assert_eq!(count(client), 0);
    }
    send_all(server, b"ab");
    await_events(client, libc::POLLIN);
    expect_bytes(client, b"ab");
    // Also where the byte was received, and where bytes are between the two.
    send_urgent(server, b"x");
    await_urgent(client, b'x');
    expect_taken(client, b'x');
    send_all(server, b"cd");
    send_urgent(server, b"y");
    await_urgent(client, b'y');
    expect_at_mark(client, false);
    expect_read(client, b"cd", 0);
    expect_at_mark(client, true);
    expect_nothing(client);
    expect_alive(client, server);
}

fn urgent_counts_for_fionread(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"abc");
    send_urgent(server, b"!");
    await_urgent(client, b'!');
    send_all(server, b"de");
    assert_eq!(count(client), 3);
    expect_taken(client, b'!');
    assert_eq!(count(client), 3);
    expect_bytes(client, b"abc");
    assert_eq!(count(client), 0);
    expect_bytes(client, b"d");
    await_count(client, 1);
    expect_bytes(client, b"e");
    expect_alive(client, server);
}

fn urgent_low_water(family: Family) {
    let (client, server) = pair(family);
    set_int(client, SOCKET, libc::SO_RCVLOWAT, 3);
    send_urgent(server, b"!");
    await_urgent(client, b'!');
    send_all(server, b"ab");
    expect_quiet(client, libc::POLLIN);
    send_all(server, b"c");
    await_events(client, libc::POLLIN);
    expect_taken(client, b'!');
    expect_read(client, b"abc", 0);
}

/// Who waits for more bytes than there will be gets those before the urgent one.
fn urgent_wakes_a_reader_below_low_water(family: Family) {
    let (client, server) = pair(family);
    set_int(client, SOCKET, libc::SO_RCVLOWAT, -1);
    for has_some in [false, true] {
        let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 100], 0));
        await_asleep(task);
        if has_some {
            send_all(server, b"ab");
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!thread.is_finished());
        }
        send_urgent(server, b"cd!");
        let before = if has_some { 4 } else { 2 };
        assert_eq!(join_thread(thread), Ok(before));
        expect_taken(client, b'!');
    }
}

fn urgent_message_flags(family: Family) {
    let (client, server) = pair(family);
    send_urgent(server, b"!");
    await_urgent(client, b'!');
    let mut bytes = [0_u8; 3];
    let urgent = libc::MSG_OOB;
    let peek = urgent | libc::MSG_PEEK;
    let none: &mut [u8] = &mut [];
    let got = sys::recv_vector(client, &mut [none, &mut bytes], peek).unwrap();
    assert_eq!((got, bytes[0]), ((1, urgent), b'!'));
    let got = sys::recv_vector(client, &mut [], peek).unwrap();
    assert_eq!(got, (0, urgent | libc::MSG_TRUNC));
    // Received without a buffer for it.
    let got = sys::recv(client, &mut [], urgent);
    assert_eq!(got, Ok(0));
    expect_no_urgent(client);
    expect_alive(client, server);
}

fn urgent_messages(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"ab");
    send_urgent(server, b"!");
    await_urgent(client, b'!');
    send_all(server, b"cd");
    await_events(client, libc::POLLIN);
    eventually("all is there", || {
        let mut bytes = [0_u8; 8];
        let got = sys::recv(client, &mut bytes, libc::MSG_PEEK);
        got == Ok(2)
    });
    let (mut one, mut two) = ([0_u8; 4], [0_u8; 4]);
    let urgent = sys::recvmmsg(client, &mut [&mut one[..], &mut two[..]], libc::MSG_OOB);
    assert_eq!(urgent, Ok(vec![1]));
    let plain = sys::recvmmsg(
        client,
        &mut [&mut one[..], &mut two[..2]],
        libc::MSG_WAITFORONE,
    );
    assert_eq!(plain.unwrap()[0], 2);
    assert_eq!(&one[..2], b"ab");
}

fn urgent_nothing_is_not_urgent(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"a");
    assert_eq!(sys::send(server, b"", libc::MSG_OOB), Ok(0));
    await_count(client, 1);
    assert_eq!(reported(client), libc::POLLIN);
    expect_at_mark(client, false);
    expect_no_urgent(client);
    expect_alive_after(client, server, b"a");
}

fn urgent_large(family: Family) {
    const LENGTH: usize = 300_000;
    let (client, server) = pair(family);
    let (sender, _) = start_thread(move || {
        let mut bytes = pattern(0, LENGTH);
        bytes.push(b'!');
        send_urgent(server, &bytes);
    });
    let mut received = 0;
    let mut buffer = vec![0_u8; LENGTH];
    while received < LENGTH {
        let room = LENGTH - received;
        let size = sys::recv(client, &mut buffer[..room], 0).unwrap();
        assert_eq!(pattern_mismatch(received, &buffer[..size]), None);
        received += size;
    }
    join_thread(sender);
    await_urgent(client, b'!');
    expect_at_mark(client, true);
    expect_taken(client, b'!');
    expect_alive(client, server);
}

fn urgent_before_the_end(family: Family) {
    let (client, server) = pair(family);
    send_urgent(server, b"a!");
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    await_urgent(client, b'!');
    await_events(client, libc::POLLRDHUP);
    assert_eq!(count(client), 1);
    expect_read(client, b"a", 0);
    expect_at_mark(client, true);
    await_urgent(client, b'!');
    expect_read(client, b"", 0);
    expect_at_mark(client, false);
    expect_no_urgent(client);
}

/// A killed peer that has read everything ends its stream. What is sent after that meets a reset, and takes nothing.
fn urgent_before_the_end_of_a_killed_peer(family: Family) {
    let (child, client, _) = forked_server(family, |connection| {
        send_urgent(connection, b"a!");
        std::thread::sleep(std::time::Duration::from_secs(30));
    });
    await_urgent(client, b'!');
    child.kill();
    await_events(client, libc::POLLRDHUP);
    eventually("a broken pipe", || {
        sys::send(client, b"x", libc::MSG_NOSIGNAL) == Err(Errno(libc::EPIPE))
    });
    expect_taken(client, b'!');
    expect_no_urgent(client);
    expect_read(client, b"a", 0);
}

fn urgent_before_a_reset(family: Family) {
    let (client, server) = pair(family);
    send_urgent(server, b"!");
    await_urgent(client, b'!');
    close_with_reset(server);
    await_events(client, libc::POLLHUP);
    let answer = sys::recv(client, &mut [0_u8; 1], libc::MSG_OOB);
    assert_eq!(answer, Err(Errno(libc::ENOTCONN)));
}

fn urgent_after_shutdown_of_reading(family: Family) {
    let (client, server) = pair(family);
    send_urgent(server, b"a!");
    await_urgent(client, b'!');
    sys::shutdown(client, libc::SHUT_RD).unwrap();
    expect_taken(client, b'!');
    expect_read(client, b"a", 0);
    expect_read(client, b"", 0);
}

/// Bytes for a socket that has ended both directions meet a reset. Their urgent byte is reported all the same.
fn urgent_after_shutdown_of_both(family: Family) {
    let (client, server) = pair(family);
    sys::shutdown(client, libc::SHUT_RDWR).unwrap();
    await_events(server, libc::POLLRDHUP);
    send_urgent(server, b"!");
    // The socket's own end is a hang-up already.
    eventually("the urgent byte is told", || {
        poll_one(client, libc::POLLPRI, 0) & libc::POLLPRI != 0
    });
    let taken = sys::recv(client, &mut [0], libc::MSG_OOB);
    assert_eq!(taken, Err(Errno(libc::ENOTCONN)));
}
