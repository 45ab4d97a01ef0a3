//! `SO_RCVLOWAT`: fewer bytes make nothing readable, and wake nobody.

use std::time::Duration;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, ET, Event, IN, OUT};

use crate::case::cases;

cases! {
    families: [
        options_low_water_mark,
        options_low_water_mark_poll,
        options_low_water_mark_edge,
    ];
}

fn set_mark(socket: Descriptor, bytes: libc::c_int) {
    set_int(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes);
}

fn options_low_water_mark(family: Family) {
    let (client, server) = pair(family);
    set_mark(client, 5);
    let set = sys::option_int(client, libc::SOL_SOCKET, libc::SO_RCVLOWAT);
    assert_eq!(set, Ok(5));
    // A blocking recv waits for that many bytes.
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 16], 0));
    await_asleep(task);
    send_all(server, b"abc");
    std::thread::sleep(Duration::from_millis(20));
    assert!(!thread.is_finished());
    send_all(server, b"def");
    let size = join_thread(thread).unwrap();
    assert!((5..=6).contains(&size), "{size}");
}

fn options_low_water_mark_poll(family: Family) {
    for is_signalled in [false, true] {
        let (client, server) = pair(family);
        if is_signalled {
            let flags = sys::fcntl(server, libc::F_GETFL, 0).unwrap();
            sys::fcntl(server, libc::F_SETFL, flags | libc::O_ASYNC).unwrap();
        }
        set_mark(client, 5);
        send_all(server, b"abc");
        expect_quiet(client, libc::POLLIN);
        send_all(server, b"def");
        assert_eq!(await_events(client, libc::POLLIN), libc::POLLIN);
        expect_bytes(client, b"abcdef");
    }
}

/// Room is told of with what arrives, so that an edge shows that somebody was woken.
fn options_low_water_mark_edge(family: Family) {
    let (client, server) = pair(family);
    set_mark(client, 5);
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN | OUT | ET, 1).unwrap();
    let told = |events| vec![Event { data: 1, events }];
    assert_eq!(sys::epoll_wait(set, 8, -1).unwrap(), told(OUT));
    send_all(server, b"abc");
    assert_eq!(sys::epoll_wait(set, 8, 50).unwrap(), []);
    send_all(server, b"def");
    assert_eq!(sys::epoll_wait(set, 8, -1).unwrap(), told(IN | OUT));
    expect_bytes(client, b"abcdef");
    assert_eq!(sys::epoll_wait(set, 8, 50).unwrap(), []);
}
