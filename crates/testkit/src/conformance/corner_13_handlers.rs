//! Corner 13, socket calls in signal handlers, signals by and during socket calls.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno};

use crate::case::cases;
use crate::helpers::{interrupting, nothing};

cases! {
    families: [
        corner_13_send_in_signal_handler,
        corner_13_signal_storm_during_transfer,
        corner_13_sigio,
        corner_13_sigio_for_room,
        corner_13_sigchld_during_recv,
        corner_13_handler_wakes_poll_by_socket,
    ];
}

static HANDLER_SOCKET: AtomicI32 = AtomicI32::new(-1);
static HANDLER_SENT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn send_one(_: libc::c_int) {
    let errno = sys::last_errno();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    if sys::send(HANDLER_SOCKET.load(Ordering::Relaxed), b"s", flags) == Ok(1) {
        HANDLER_SENT.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the location is the thread's own.
    unsafe { *libc::__errno_location() = errno.0 };
}

fn corner_13_send_in_signal_handler(family: Family) {
    // The handler sends on the same connection whose calls it interrupts.
    sys::handle_signal(libc::SIGUSR1, send_one, libc::SA_RESTART).unwrap();
    let (client, server) = pair(family);
    // Otherwise every small answer would wait for a delayed acknowledgement.
    set_int(client, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    set_int(server, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    HANDLER_SOCKET.store(client, Ordering::Relaxed);
    let (thread, task) = start_thread(move || {
        // A signal must arrive in between, however fast the loop is.
        let mut round = 0;
        while round < 3000 || HANDLER_SENT.load(Ordering::Relaxed) == 0 {
            send_all(client, b"n");
            if round % 10 == 0 {
                expect_bytes(client, b"ok");
            }
            round += 1;
        }
        sys::shutdown(client, libc::SHUT_WR).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        round
    });
    let (reader, _) = start_thread(move || {
        let mut normal = 0;
        let mut extra = 0;
        let mut buffer = [0_u8; 512];
        loop {
            let size = uninterrupted(|| sys::recv(server, &mut buffer, 0)).unwrap();
            if size == 0 {
                return (normal, extra);
            }
            for byte in &buffer[..size] {
                match byte {
                    b'n' => {
                        if normal % 10 == 0 {
                            send_all(server, b"ok");
                        }
                        normal += 1;
                    }
                    b's' => extra += 1,
                    other => panic!("byte {other} was never sent"),
                }
            }
        }
    });
    while !thread.is_finished() {
        let _ = sys::signal_thread(task, libc::SIGUSR1);
        std::thread::sleep(Duration::from_micros(200));
    }
    let rounds = join_thread(thread);
    let (normal, extra) = join_thread(reader);
    assert_eq!(normal, rounds);
    assert_eq!(extra, HANDLER_SENT.load(Ordering::Relaxed));
    assert!(extra > 0, "no signal came");
}

fn corner_13_signal_storm_during_transfer(family: Family) {
    const TOTAL: usize = 4 * 1024 * 1024;
    interrupting();
    let (client, server) = small_pair(family);
    let (sender, sender_task) = start_thread(move || {
        let bytes = pattern(0, TOTAL);
        let mut sent = 0;
        while sent < TOTAL {
            sent += uninterrupted(|| sys::send(client, &bytes[sent..], 0)).unwrap();
        }
    });
    let (receiver, receiver_task) = start_thread(move || {
        let mut buffer = vec![0_u8; 30_000];
        let mut received = 0;
        while received < TOTAL {
            let size = uninterrupted(|| sys::recv(server, &mut buffer, 0)).unwrap();
            assert_ne!(size, 0, "an end after {received} bytes");
            assert_eq!(pattern_mismatch(received, &buffer[..size]), None);
            received += size;
        }
    });
    while !sender.is_finished() || !receiver.is_finished() {
        let _ = sys::signal_thread(sender_task, libc::SIGUSR1);
        let _ = sys::signal_thread(receiver_task, libc::SIGUSR1);
        std::thread::sleep(Duration::from_micros(100));
    }
    join_thread(sender);
    join_thread(receiver);
}

static IO_SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_io(_: libc::c_int) {
    IO_SIGNALS.fetch_add(1, Ordering::Relaxed);
}

fn corner_13_sigio(family: Family) {
    sys::handle_signal(libc::SIGIO, count_io, libc::SA_RESTART).unwrap();
    let (client, server) = pair(family);
    sys::fcntl(client, libc::F_SETOWN, sys::getpid()).unwrap();
    assert_eq!(sys::fcntl(client, libc::F_GETOWN, 0), Ok(sys::getpid()));
    let flags = sys::fcntl(client, libc::F_GETFL, 0).unwrap();
    sys::fcntl(client, libc::F_SETFL, flags | libc::O_ASYNC).unwrap();
    IO_SIGNALS.store(0, Ordering::Relaxed);
    for _ in 0..3 {
        send_all(server, b"x");
        eventually("a signal for the data", || {
            IO_SIGNALS.load(Ordering::Relaxed) > 0
        });
        expect_bytes(client, b"x");
        IO_SIGNALS.store(0, Ordering::Relaxed);
    }
}

/// Who has met a want of room is signalled when there is some. A want that was met before signals were asked for does
/// not count.
fn corner_13_sigio_for_room(family: Family) {
    sys::handle_signal(libc::SIGIO, count_io, libc::SA_RESTART).unwrap();
    let (client, server) = pair(family);
    sys::fcntl(client, libc::F_SETOWN, sys::getpid()).unwrap();
    for asks_first in [false, true] {
        IO_SIGNALS.store(0, Ordering::Relaxed);
        let filled = fill(client);
        expect_pattern(server, 0, filled);
        if asks_first {
            eventually("a signal for the room", || {
                IO_SIGNALS.load(Ordering::Relaxed) > 0
            });
        } else {
            let flags = sys::fcntl(client, libc::F_GETFL, 0).unwrap();
            sys::fcntl(client, libc::F_SETFL, flags | libc::O_ASYNC).unwrap();
            assert_eq!(IO_SIGNALS.load(Ordering::Relaxed), 0);
        }
    }
}

fn corner_13_sigchld_during_recv(family: Family) {
    sys::handle_signal(libc::SIGCHLD, nothing, 0).unwrap();
    let (client, server) = pair(family);
    let go = Baton::new();
    let child = fork_child(|| go.take());
    let (starter, _) = start_thread(move || {
        std::thread::sleep(Duration::from_millis(30));
        go.pass();
        std::thread::sleep(Duration::from_millis(30));
        send_all(server, b"x");
    });
    // Interrupted by the child's end or woken by data, never anything else.
    let answer = sys::recv(client, &mut [0_u8; 1], 0);
    match answer {
        Ok(size) => assert_eq!(size, 1),
        Err(errno) => {
            assert_eq!(errno, Errno(libc::EINTR));
            expect_bytes(client, b"x");
        }
    }
    join_thread(starter);
    child.join();
}

static SELF_PIPE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn write_self_pipe(_: libc::c_int) {
    let _ = sys::write(SELF_PIPE.load(Ordering::Relaxed), b"!");
}

fn corner_13_handler_wakes_poll_by_socket(family: Family) {
    // A common event-loop pattern: a handler writes to a socket pair that the loop of the same process polls.
    let (wake_reader, wake_writer) = pair(family);
    SELF_PIPE.store(wake_writer, Ordering::Relaxed);
    sys::handle_signal(libc::SIGUSR1, write_self_pipe, libc::SA_RESTART).unwrap();
    let (client, _server) = pair(family);
    let (thread, task) = start_thread(move || {
        let mut entries = [
            libc::pollfd {
                fd: client,
                events: libc::POLLIN,
                revents: 0,
            },
            libc::pollfd {
                fd: wake_reader,
                events: libc::POLLIN,
                revents: 0,
            },
        ];
        let _ = uninterrupted(|| sys::poll(&mut entries, 10_000)).unwrap();
        (entries[0].revents, entries[1].revents)
    });
    await_asleep(task);
    sys::signal_thread(task, libc::SIGUSR1).unwrap();
    assert_eq!(join_thread(thread), (0, libc::POLLIN));
    expect_bytes(wake_reader, b"!");
}
