//! Corner 14, receives that peek first (`SO_PEEK_OFF`), that want a number of bytes (`SO_RCVLOWAT`), or none.

use std::time::Duration;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::helpers::{nothing, send_and_wait, send_urgent};

cases! {
    families: [
        corner_14_peeking_at_an_offset,
        corner_14_peeking_at_an_offset_beyond,
        corner_14_peeking_at_an_offset_is_inherited,
        corner_14_peeking_at_an_offset_counts_an_urgent_byte,
        corner_14_low_water_and_an_interrupted_receive,
        corner_14_low_water_and_full_buffers,
        corner_14_low_water_and_full_buffers_polled,
        corner_14_peeking_at_several_messages_interrupted,
        corner_14_nothing_to_receive,
        corner_14_nothing_to_receive_interrupted,
    ];
}

const LATER: Errno = Errno(libc::EAGAIN);
const NOW: libc::c_int = libc::MSG_DONTWAIT;
const PEEK: libc::c_int = libc::MSG_PEEK;

fn offset(socket: Descriptor) -> libc::c_int {
    sys::option_int(socket, libc::SOL_SOCKET, libc::SO_PEEK_OFF).unwrap()
}

fn set_offset(socket: Descriptor, value: libc::c_int) {
    set_int(socket, libc::SOL_SOCKET, libc::SO_PEEK_OFF, value);
}

/// The result of a receive, and the peek offset after it.
fn received(socket: Descriptor, most: usize, flags: libc::c_int) -> (Vec<u8>, libc::c_int) {
    let mut bytes = vec![0_u8; most];
    let size = sys::recv(socket, &mut bytes, flags | NOW).unwrap();
    bytes.truncate(size);
    (bytes, offset(socket))
}

fn corner_14_peeking_at_an_offset(family: Family) {
    let (client, server) = pair(family);
    assert_eq!(offset(client), -1);
    set_offset(client, 2);
    send_and_wait(server, client, b"abcdef");
    eventually("all is there", || {
        sys::ioctl_int(client, libc::FIONREAD, 0) == Ok(6)
    });
    assert_eq!(received(client, 2, PEEK), (b"cd".to_vec(), 4));
    assert_eq!(received(client, 1, 0), (b"a".to_vec(), 3));
    assert_eq!(received(client, 10, PEEK), (b"ef".to_vec(), 5));
    assert_eq!(sys::recv(client, &mut [0_u8; 9], PEEK | NOW), Err(LATER));
    assert_eq!(sys::recv(client, &mut [0_u8; 2], libc::MSG_TRUNC), Ok(2));
    assert_eq!(offset(client), 3);
    set_offset(client, 1);
    let (mut one, mut other) = ([0_u8; 1], [0_u8; 1]);
    let vector = sys::recv_vector(client, &mut [&mut one, &mut other], PEEK);
    assert_eq!((vector, one, other), (Ok((2, 0)), *b"e", *b"f"));
    set_offset(client, -5);
    assert_eq!(received(client, 9, PEEK), (b"def".to_vec(), -5));
    assert_eq!(received(client, 9, 0), (b"def".to_vec(), -5));
}

fn corner_14_peeking_at_an_offset_beyond(family: Family) {
    let (client, server) = pair(family);
    set_offset(client, 10);
    send_and_wait(server, client, b"abc");
    assert_eq!(sys::recv(client, &mut [0_u8; 9], PEEK | NOW), Err(LATER));
    assert_eq!(poll_one(client, libc::POLLIN, 0), libc::POLLIN);
    let (sender, _) = start_thread(move || {
        std::thread::sleep(Duration::from_millis(50));
        send_all(server, b"defghijklm");
    });
    let mut bytes = [0_u8; 2];
    assert_eq!(sys::recv(client, &mut bytes, PEEK), Ok(2));
    assert_eq!((&bytes, offset(client)), (b"kl", 12));
    join_thread(sender);
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    await_events(client, libc::POLLRDHUP);
    set_offset(client, 100);
    assert_eq!(sys::recv(client, &mut bytes, PEEK), Ok(0));
    assert_eq!(receive_to_end(client), b"abcdefghijklm");
    assert_eq!(offset(client), 87);
}

fn corner_14_peeking_at_an_offset_is_inherited(family: Family) {
    let (listening, address) = listener(family);
    set_offset(listening, 1);
    let client = tcp(family);
    set_offset(client, 2);
    sys::connect(client, address).unwrap();
    let server = sys::accept(listening).unwrap();
    assert_eq!((offset(server), offset(client)), (1, 2));
    send_and_wait(client, server, b"abc");
    eventually("all is there", || {
        sys::ioctl_int(server, libc::FIONREAD, 0) == Ok(3)
    });
    assert_eq!(received(server, 9, PEEK), (b"bc".to_vec(), 3));
}

/// An offset counts an urgent byte, what was peeked at does not.
fn corner_14_peeking_at_an_offset_counts_an_urgent_byte(family: Family) {
    let (client, server) = pair(family);
    send_urgent(server, b"abc!");
    send_all(server, b"defgh");
    eventually("all is there", || {
        set_offset(client, 4);
        sys::recv(client, &mut [0_u8; 9], PEEK | NOW) == Ok(5)
    });
    assert_eq!(offset(client), 9);
    set_offset(client, 1);
    assert_eq!(received(client, 9, PEEK), (b"bc".to_vec(), 3));
    assert_eq!(received(client, 9, PEEK), (b"defgh".to_vec(), 8));
    assert_eq!(received(client, 9, PEEK), (b"h".to_vec(), 9));
    assert_eq!(sys::recv(client, &mut [0_u8; 9], PEEK | NOW), Err(LATER));
    set_offset(client, 0);
    assert_eq!(received(client, 3, 0), (b"abc".to_vec(), 0));
    assert_eq!(received(client, 2, PEEK), (b"de".to_vec(), 2));
    assert_eq!(received(client, 9, PEEK), (b"efgh".to_vec(), 6));
    set_offset(client, 0);
    let (mut one, mut other) = ([0_u8; 2], [0_u8; 2]);
    let vector = sys::recv_vector(client, &mut [&mut one, &mut other], PEEK);
    assert_eq!((vector, one, other), (Ok((4, 0)), *b"de", *b"fg"));
    set_offset(client, 6);
    let (sender, _) = start_thread(move || {
        std::thread::sleep(Duration::from_millis(50));
        send_all(server, b"i");
    });
    let mut byte = [0_u8; 1];
    assert_eq!(sys::recv(client, &mut byte, PEEK), Ok(1));
    assert_eq!(&byte, b"i");
    join_thread(sender);
    assert_eq!(received(client, 9, 0), (b"defghi".to_vec(), 1));
}

/// The result of a receive that a signal interrupts while it sleeps.
fn interrupted(
    socket: Descriptor,
    most: usize,
    flags: libc::c_int,
    before: &'static [u8],
    peer: Descriptor,
) -> sys::Outcome<usize> {
    let (receiver, task) = start_thread(move || sys::recv(socket, &mut vec![0_u8; most], flags));
    await_asleep(task);
    send_all(peer, before);
    std::thread::sleep(Duration::from_millis(30));
    await_asleep(task);
    sys::signal_thread(task, libc::SIGUSR1).unwrap();
    join_thread(receiver)
}

fn corner_14_low_water_and_an_interrupted_receive(family: Family) {
    sys::handle_signal(libc::SIGUSR1, nothing, 0).unwrap();
    let (client, server) = pair(family);
    set_int(client, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 10);
    assert_eq!(interrupted(client, 20, 0, b"abc", server), Ok(3));
    assert_eq!(interrupted(client, 20, PEEK, b"abc", server), Ok(3));
    assert_eq!(sys::recv(client, &mut [0_u8; 20], NOW), Ok(3));
    set_int(client, libc::SOL_SOCKET, libc::SO_RCVLOWAT, -1);
    assert_eq!(interrupted(client, 20, 0, b"abc", server), Ok(3));
    set_int(client, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 10);
    let none = Errno(libc::EINTR);
    assert_eq!(interrupted(client, 20, 0, b"", server), Err(none));
    let limit = libc::timeval {
        tv_sec: 0,
        tv_usec: 50_000,
    };
    sys::set_option(client, libc::SOL_SOCKET, libc::SO_RCVTIMEO, limit).unwrap();
    send_and_wait(server, client, b"abc");
    assert_eq!(sys::recv(client, &mut [0_u8; 20], 0), Ok(3));
    assert_eq!(sys::recv(client, &mut [0_u8; 20], 0), Err(LATER));
    // A receive that comes too late for the following byte would wait for ten.
    set_int(client, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1);
    expect_alive(client, server);
}

/// Sends more than the buffers hold, in messages of which a receive leaves less than the low-water mark.
fn with_full_buffers(family: Family, flags: libc::c_int, mut await_ready: impl FnMut(Descriptor)) {
    const ALL: usize = 180_000;
    let (client, server) = pair(family);
    set_int(client, libc::SOL_SOCKET, libc::SO_SNDBUF, 2000);
    set_int(server, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 900);
    let (sender, _) = start_thread(move || {
        (0..ALL)
            .step_by(1800)
            .for_each(|sent| send_pattern(client, sent, 1800));
        sys::shutdown(client, libc::SHUT_WR).unwrap();
    });
    let (mut received, mut bytes) = (0, [0_u8; 1000]);
    loop {
        await_ready(server);
        let size = sys::recv(server, &mut bytes, flags).unwrap();
        if size == 0 {
            break;
        }
        assert_eq!(pattern_mismatch(received, &bytes[..size]), None);
        received += size;
    }
    assert_eq!(received, ALL);
    join_thread(sender);
}

fn corner_14_low_water_and_full_buffers(family: Family) {
    with_full_buffers(family, 0, |_| {});
}

fn corner_14_low_water_and_full_buffers_polled(family: Family) {
    with_full_buffers(family, NOW, |socket| {
        await_events(socket, libc::POLLIN);
    });
}

fn corner_14_nothing_to_receive(family: Family) {
    let (client, server) = pair(family);
    assert_eq!(sys::recv(client, &mut [], NOW), Err(LATER));
    assert_eq!(sys::recv_vector(client, &mut [], NOW), Err(LATER));
    assert_eq!(sys::read(client, &mut []), Ok(0));
    let limit = libc::timeval {
        tv_sec: 0,
        tv_usec: 50_000,
    };
    sys::set_option(client, libc::SOL_SOCKET, libc::SO_RCVTIMEO, limit).unwrap();
    assert_eq!(sys::recv(client, &mut [], 0), Ok(0));
    send_and_wait(server, client, b"x");
    assert_eq!(sys::recv(client, &mut [], NOW), Ok(0));
    expect_bytes(client, b"x");
}

fn corner_14_nothing_to_receive_interrupted(family: Family) {
    let (client, server) = pair(family);
    for flags in [0, libc::SA_RESTART] {
        sys::handle_signal(libc::SIGUSR1, nothing, flags).unwrap();
        assert_eq!(interrupted(client, 0, 0, b"", server), Ok(0));
    }
    // Of several messages the first one only.
    let (receiver, task) = start_thread(move || sys::recvmmsg(client, &mut [&mut [], &mut []], 0));
    await_asleep(task);
    sys::signal_thread(task, libc::SIGUSR1).unwrap();
    assert_eq!(join_thread(receiver), Ok(vec![0]));
    // Linux leaves an errno of its own.
    let _ = socket_error(client);
    expect_alive(client, server);
}

/// Where the first message is interrupted, the others are not waited for. In front of an urgent byte none follows.
fn corner_14_peeking_at_several_messages_interrupted(family: Family) {
    for is_urgent in [false, true] {
        let (client, server) = pair(family);
        if is_urgent {
            send_urgent(server, b"u");
        }
        send_all(server, b"abc");
        eventually("all is there", || {
            sys::recv(client, &mut [0; 8], PEEK | NOW) == Ok(3)
        });
        sys::handle_signal(libc::SIGUSR1, nothing, 0).unwrap();
        let (receiver, task) = start_thread(move || {
            let mut buffers = [[0; 8]; 3];
            let [one, two, three] = &mut buffers;
            sys::recvmmsg(client, &mut [one, two, three], PEEK | libc::MSG_WAITALL)
        });
        await_asleep(task);
        sys::signal_thread(task, libc::SIGUSR1).unwrap();
        let messages = if is_urgent { 1 } else { 3 };
        assert_eq!(join_thread(receiver), Ok(vec![3; messages]));
        expect_bytes(client, b"abc");
    }
}
