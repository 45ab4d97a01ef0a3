//! Corner 17, receives that wait for more than has come.

use std::time::Duration;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno};

use crate::case::cases;
use crate::corner_13_timeouts::set_timeout;
use crate::helpers::{interrupting, nothing};

cases! {
    families: [
        corner_17_waits_for_all_under_a_number_that_is_replaced,
        corner_17_waits_for_more_than_it_asks,
    ];
}

/// The call goes on with the file that it began with.
fn corner_17_waits_for_all_under_a_number_that_is_replaced(family: Family) {
    for (by_itself, timed) in [(true, false), (false, false), (true, true), (false, true)] {
        let (client, server) = pair(family);
        if timed {
            set_timeout(server, libc::SO_RCVTIMEO, 900);
        } else {
            sys::handle_signal(libc::SIGURG, nothing, 0).unwrap();
        }
        let other = sys::dup(client).unwrap();
        send_all(client, &pattern(0, 100));
        let (reader, task) = start_thread(move || {
            let mut bytes = vec![0; 4096];
            let size = sys::recv(server, &mut bytes, libc::MSG_WAITALL);
            size.map(|size| bytes[..size] == pattern(0, size) && size == 4096)
        });
        await_asleep(task);
        let sender = if by_itself {
            assert_eq!(sys::dup2(client, server), Ok(server));
            server
        } else {
            sys::close(server).unwrap();
            other
        };
        send_all(sender, &pattern(100, 8092));
        assert_eq!(join_thread(reader), Ok(true), "{by_itself} {timed}");
    }
}

/// Nobody is woken for fewer bytes than the low-water mark, whatever the call asks for.
fn corner_17_waits_for_more_than_it_asks(family: Family) {
    interrupting();
    let (client, server) = pair(family);
    for mark in [4096, libc::c_int::MAX] {
        set_int(server, libc::SOL_SOCKET, libc::SO_RCVLOWAT, mark);
        let (reader, task) = start_thread(move || sys::recv(server, &mut [0; 10], 0));
        await_asleep(task);
        (0..3).for_each(|_| send_all(client, &pattern(0, 1000)));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!reader.is_finished(), "{mark}");
        let received = crate::helpers::interrupt(reader, task);
        assert_eq!(received, Ok(10));
        // Who finds so many does not wait.
        assert_eq!(sys::recv(server, &mut [0; 10], 0), Ok(10));
        let rest = sys::recv(server, &mut [0; 4096], libc::MSG_DONTWAIT);
        assert_eq!(rest, Ok(2980));
        let none = sys::recv(server, &mut [0; 10], libc::MSG_DONTWAIT);
        assert_eq!(none, Err(Errno(libc::EAGAIN)));
    }
}
