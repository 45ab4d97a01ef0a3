//! Corner 17, receives that wait for more than has come, and waits for a number that is closed meanwhile.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::corner_13_timeouts::set_timeout;
use crate::helpers::{interrupt, interrupting, nothing};

cases! {
    families: [
        corner_17_waits_for_all_under_a_number_that_is_replaced,
        corner_17_waits_for_more_than_it_asks,
        corner_17_waits_end_with_a_signal_and_a_closed_number,
        corner_17_waits_end_with_a_signal_under_a_number_of_another_file,
        corner_17_waits_end_with_their_time_and_a_closed_number,
        corner_17_waits_end_with_a_handler_that_closes,
        corner_17_waits_for_nothing_end_with_a_shutdown,
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
        let received = interrupt(reader, task);
        assert_eq!(received, Ok(10));
        // Who finds so many does not wait.
        assert_eq!(sys::recv(server, &mut [0; 10], 0), Ok(10));
        let rest = sys::recv(server, &mut [0; 4096], libc::MSG_DONTWAIT);
        assert_eq!(rest, Ok(2980));
        let none = sys::recv(server, &mut [0; 10], libc::MSG_DONTWAIT);
        assert_eq!(none, Err(Errno(libc::EAGAIN)));
    }
}

/// A wait for an event that never comes. Returns how many descriptors were reported, and as what.
fn wait_for_nothing(watched: Descriptor, polls: bool, timeout: i32) -> (sys::Outcome<i32>, i32) {
    if polls {
        let mut entries = [libc::pollfd {
            fd: watched,
            events: libc::POLLPRI,
            revents: 0,
        }];
        let count = sys::poll(&mut entries, timeout);
        return (count, i32::from(entries[0].revents));
    }
    let mut except = sys::Set::of(&[watched]);
    let count = sys::select(watched, None, None, Some(&mut except), timeout.into());
    (count, i32::from(except.has(watched)))
}

/// Calls `look` with a listener and with a connection, for poll and for select.
fn with_each_watched(family: Family, look: impl Fn(Descriptor, bool)) {
    for listens in [true, false] {
        for polls in [true, false] {
            let (client, server) = pair(family);
            let (listening, _) = listener(family);
            look(if listens { listening } else { server }, polls);
            let _ = sys::close(listening);
            let _ = sys::close(server);
            sys::close(client).unwrap();
        }
    }
}

const fn closed(polls: bool) -> (sys::Outcome<i32>, i32) {
    (Ok(1), if polls { libc::POLLNVAL as i32 } else { 1 })
}

/// What a signal interrupts looks once more, and finds that another thread has closed the number.
fn corner_17_waits_end_with_a_signal_and_a_closed_number(family: Family) {
    interrupting();
    with_each_watched(family, |watched, polls| {
        let (waiter, task) = start_thread(move || wait_for_nothing(watched, polls, 10_000));
        await_asleep(task);
        sys::close(watched).unwrap();
        assert_eq!(interrupt(waiter, task), closed(polls), "{polls}");
    });
}

/// Another thread closes the number of a receive that waits, and opens another socket under it.
fn corner_17_waits_end_with_a_signal_under_a_number_of_another_file(family: Family) {
    interrupting();
    for hears_of_urgent_bytes in [false, true] {
        if hears_of_urgent_bytes {
            sys::handle_signal(libc::SIGURG, nothing, 0).unwrap();
        }
        let (_client, server) = pair(family);
        let other = tcp(family);
        let (reader, task) = start_thread(move || sys::recv(server, &mut [0; 4], 0));
        await_asleep(task);
        assert_eq!(sys::dup2(other, server), Ok(server));
        assert_eq!(interrupt(reader, task), Err(Errno(libc::EINTR)));
    }
}

/// So does who waits no longer.
fn corner_17_waits_end_with_their_time_and_a_closed_number(family: Family) {
    with_each_watched(family, |watched, polls| {
        let (waiter, task) = start_thread(move || wait_for_nothing(watched, polls, 500));
        await_asleep(task);
        sys::close(watched).unwrap();
        assert_eq!(join_thread(waiter), closed(polls), "{polls}");
    });
}

static CLOSED_BY_HANDLER: AtomicI32 = AtomicI32::new(-1);

extern "C" fn close_one(_: libc::c_int) {
    let _ = sys::close(CLOSED_BY_HANDLER.swap(-1, Ordering::Relaxed));
}

/// The last look comes before the handler.
fn corner_17_waits_end_with_a_handler_that_closes(family: Family) {
    sys::handle_signal(libc::SIGUSR1, close_one, 0).unwrap();
    with_each_watched(family, |watched, polls| {
        let (waiter, task) = start_thread(move || wait_for_nothing(watched, polls, 10_000).0);
        await_asleep(task);
        CLOSED_BY_HANDLER.store(watched, Ordering::Relaxed);
        let interrupted = interrupt(waiter, task);
        assert_eq!(interrupted, Err(Errno(libc::EINTR)), "{polls}");
        assert_eq!(sys::close(watched), Err(Errno(libc::EBADF)));
    });
}

/// Who receives into no room waits once, whatever ends the sleep: also an end that another thread makes.
fn corner_17_waits_for_nothing_end_with_a_shutdown(family: Family) {
    for all in [false, true] {
        let (client, server) = pair(family);
        let flags = if all { libc::MSG_WAITALL } else { 0 };
        let (reader, task) = start_thread(move || sys::recv(server, &mut [], flags));
        await_asleep(task);
        sys::shutdown(server, libc::SHUT_WR).unwrap();
        assert_eq!(join_thread(reader), Ok(0));
        expect_end(client);
        send_all(client, b"more");
        expect_bytes(server, b"more");
    }
}
