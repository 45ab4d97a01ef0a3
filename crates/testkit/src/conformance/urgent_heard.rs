//! Notifications of urgent data: poll, select, epoll, signals, sleeping calls, other processes.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, ET, Errno, IN, PRI};

use crate::case::cases;
use crate::helpers::{expect_no_urgent, expect_taken, send_urgent};

cases! {
    families: [
        urgent_wakes_poll,
        urgent_wakes_select,
        urgent_epoll_level,
        urgent_epoll_edges,
        urgent_epoll_wakes,
        urgent_sleeping_reader_passes_over_it,
        urgent_sleeping_peek_leaves_it,
        urgent_sleeping_waitall_ends,
        urgent_as_a_reader_below_low_water_begins_to_sleep,
        urgent_signals_the_process,
        urgent_signals_the_thread,
        urgent_signals_the_group,
        urgent_signals_nobody_any_more,
        urgent_signals_by_ioctl,
        urgent_signals_owner_from_before_connect,
        urgent_signal_interrupts_recv,
        urgent_signal_of_an_owner_named_meanwhile,
        urgent_signal_restarts_recv,
        urgent_is_of_the_socket_not_of_the_process,
        urgent_for_a_socket_that_was_passed,
        urgent_splice_ends_at_the_mark,
        urgent_stops_at_no_room,
        urgent_many_in_a_row,
        urgent_far_within_what_meets_a_reset,
    ];
}

fn after_a_while(work: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    let (thread, _) = start_thread(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        work();
    });
    thread
}

fn urgent_wakes_poll(family: Family) {
    let (client, server) = pair(family);
    let sender = after_a_while(move || send_urgent(server, b"!"));
    let events = poll_one(client, libc::POLLIN | libc::POLLPRI, 10_000);
    assert_eq!(events, libc::POLLPRI);
    join_thread(sender);
    expect_taken(client, b'!');
    expect_quiet(client, libc::POLLIN | libc::POLLPRI);
    // A call that waits for ordinary bytes sleeps on.
    let sender = after_a_while(move || {
        send_urgent(server, b"?");
        send_all(server, b"x");
    });
    await_events(client, libc::POLLIN);
    join_thread(sender);
    expect_bytes(client, b"x");
    expect_alive(client, server);
}

fn urgent_wakes_select(family: Family) {
    let (client, server) = pair(family);
    let look = |milliseconds| {
        let mut read = sys::Set::of(&[client]);
        let mut except = sys::Set::of(&[client]);
        let count = sys::select(
            client,
            Some(&mut read),
            None,
            Some(&mut except),
            milliseconds,
        );
        (count, read.has(client), except.has(client))
    };
    let sender = after_a_while(move || send_urgent(server, b"!"));
    assert_eq!(look(10_000), (Ok(1), false, true));
    join_thread(sender);
    send_all(server, b"a");
    await_events(client, libc::POLLIN);
    assert_eq!(look(0), (Ok(2), true, true));
    expect_taken(client, b'!');
    assert_eq!(look(0), (Ok(1), true, false));
    expect_bytes(client, b"a");
    assert_eq!(look(0), (Ok(0), false, false));
}

fn add(set: Descriptor, member: Descriptor, events: u32) {
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, member, events, 7).unwrap();
}

#[track_caller]
fn expect_reported(set: Descriptor, events: u32) {
    let reported = sys::epoll_wait(set, 4, 0).unwrap();
    let reported: Vec<_> = reported.iter().map(|event| event.events).collect();
    let expected: &[u32] = if events == 0 { &[] } else { &[events] };
    assert_eq!(reported, expected);
}

fn urgent_epoll_level(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    add(set, client, IN | PRI);
    expect_reported(set, 0);
    send_urgent(server, b"!");
    await_events(client, libc::POLLPRI);
    expect_reported(set, PRI);
    expect_reported(set, PRI);
    send_all(server, b"a");
    await_events(client, libc::POLLIN);
    expect_reported(set, IN | PRI);
    expect_taken(client, b'!');
    expect_reported(set, IN);
    expect_bytes(client, b"a");
    expect_reported(set, 0);
}

fn urgent_epoll_edges(family: Family) {
    let (client, server) = pair(family);
    let (set, only) = (sys::epoll_create().unwrap(), sys::epoll_create().unwrap());
    add(set, client, IN | PRI | ET);
    add(only, client, PRI | ET);
    // TCP may report bytes that arrive at once twice.
    let settle = || std::thread::sleep(std::time::Duration::from_millis(10));
    send_urgent(server, b"!");
    await_events(client, libc::POLLPRI);
    settle();
    expect_reported(set, PRI);
    expect_reported(only, PRI);
    expect_reported(set, 0);
    expect_reported(only, 0);
    send_all(server, b"a");
    await_events(client, libc::POLLIN);
    settle();
    expect_reported(set, IN | PRI);
    expect_reported(only, PRI);
    expect_reported(set, 0);
    expect_taken(client, b'!');
    expect_reported(set, 0);
    send_urgent(server, b"?");
    await_events(client, libc::POLLPRI);
    settle();
    expect_reported(set, IN | PRI);
    expect_reported(only, PRI);
    expect_reported(only, 0);
}

fn urgent_epoll_wakes(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    add(set, client, PRI);
    for _ in 0..3 {
        let sender = after_a_while(move || {
            send_all(server, b"a");
            std::thread::sleep(std::time::Duration::from_millis(20));
            send_urgent(server, b"!");
        });
        let reported = sys::epoll_wait(set, 4, 10_000).unwrap();
        assert_eq!((reported.len(), reported[0].events), (1, PRI));
        join_thread(sender);
        expect_taken(client, b'!');
        expect_bytes(client, b"a");
    }
}

fn urgent_sleeping_reader_passes_over_it(family: Family) {
    let (client, server) = pair(family);
    let (reader, task) = start_thread(move || {
        let mut bytes = [0_u8; 8];
        let size = sys::recv(client, &mut bytes, 0).unwrap();
        assert_eq!(bytes[..size], *b"x");
    });
    await_asleep(task);
    send_urgent(server, b"!");
    // The reader has received the byte from the stream, and sleeps on.
    std::thread::sleep(std::time::Duration::from_millis(20));
    await_asleep(task);
    expect_no_urgent(client);
    send_all(server, b"x");
    join_thread(reader);
}

fn urgent_sleeping_peek_leaves_it(family: Family) {
    let (client, server) = pair(family);
    let (reader, task) = start_thread(move || {
        let mut bytes = [0_u8; 8];
        let size = sys::recv(client, &mut bytes, libc::MSG_PEEK).unwrap();
        assert_eq!(bytes[..size], *b"x");
    });
    await_asleep(task);
    send_urgent(server, b"!");
    std::thread::sleep(std::time::Duration::from_millis(20));
    await_asleep(task);
    send_all(server, b"x");
    join_thread(reader);
    expect_taken(client, b'!');
    expect_bytes(client, b"x");
}

fn urgent_sleeping_waitall_ends(family: Family) {
    let (client, server) = pair(family);
    let (reader, task) = start_thread(move || {
        let mut bytes = [0_u8; 8];
        let size = sys::recv(client, &mut bytes, libc::MSG_WAITALL).unwrap();
        assert_eq!(bytes[..size], *b"ab");
    });
    await_asleep(task);
    send_all(server, b"ab");
    await_asleep(task);
    send_urgent(server, b"!");
    join_thread(reader);
    assert_eq!(sys::at_mark(client), Ok(true));
    expect_taken(client, b'!');
}

/// The urgent byte comes at any moment between the call and its sleep.
fn urgent_as_a_reader_below_low_water_begins_to_sleep(family: Family) {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let (client, server) = pair(family);
    set_int(client, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 50);
    for peek in [0, libc::MSG_PEEK] {
        for round in 0..150 {
            let before = BEGUN.load(Ordering::Relaxed);
            let (thread, _) = start_thread(move || {
                BEGUN.fetch_add(1, Ordering::Relaxed);
                sys::recv(client, &mut [0; 100], peek)
            });
            while BEGUN.load(Ordering::Relaxed) == before {
                std::hint::spin_loop();
            }
            for _ in 0..round * 20 {
                std::hint::spin_loop();
            }
            send_urgent(server, b"ab!");
            assert_eq!(join_thread(thread), Ok(2), "round {round}");
            expect_taken(client, b'!');
            if peek != 0 {
                assert_eq!(sys::recv(client, &mut [0; 100], 0), Ok(2));
                // A peek that stands at the mark sees bytes twice when TCP moves it on for the next one.
                send_all(server, &[b'x'; 50]);
                assert_eq!(sys::recv(client, &mut [0; 100], 0), Ok(50));
            }
        }
    }
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);
static THREAD: AtomicI32 = AtomicI32::new(0);

extern "C" fn count(_: libc::c_int) {
    THREAD.store(sys::gettid(), Ordering::Relaxed);
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

fn listen_for_signals() {
    sys::handle_signal(libc::SIGURG, count, libc::SA_RESTART).unwrap();
}

#[track_caller]
fn expect_signal() {
    eventually("a signal", || SIGNALS.load(Ordering::Relaxed) == 1);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(SIGNALS.swap(0, Ordering::Relaxed), 1);
}

fn urgent_signals_the_process(family: Family) {
    listen_for_signals();
    let (client, server) = pair(family);
    sys::fcntl(client, libc::F_SETOWN, sys::getpid()).unwrap();
    send_all(server, b"a");
    await_events(client, libc::POLLIN);
    assert_eq!(SIGNALS.load(Ordering::Relaxed), 0);
    for byte in *b"!?" {
        send_urgent(server, &[byte]);
        expect_signal();
        expect_taken(client, byte);
    }
    // The other end asked for no signal.
    send_urgent(client, b"!");
    await_events(server, libc::POLLPRI);
    assert_eq!(SIGNALS.load(Ordering::Relaxed), 0);
    expect_bytes(client, b"a!");
    assert_eq!(sys::at_mark(client), Ok(true));
    send_all(server, b"z");
    expect_bytes(client, b"z");
}

const F_SETOWN_EX: libc::c_int = 15;

#[repr(C)]
struct Owner {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// Urgent data of the socket raises a signal in this thread.
fn signal_thread_of(socket: Descriptor, task: libc::pid_t) {
    netchannel_testkit::far::only_near(socket, "an owner by pointer");
    let owner = Owner { kind: 0, id: task };
    // SAFETY: the structure lives meanwhile.
    let set = unsafe { libc::fcntl(socket, F_SETOWN_EX, &raw const owner) };
    assert_eq!(set, 0);
}

fn urgent_signals_the_thread(family: Family) {
    listen_for_signals();
    let (client, server) = pair(family);
    let (waiter, task) = start_thread(|| {
        while THREAD.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    signal_thread_of(client, task);
    send_urgent(server, b"!");
    expect_signal();
    assert_eq!(THREAD.load(Ordering::Relaxed), task);
    join_thread(waiter);
    expect_taken(client, b'!');
}

fn urgent_signals_the_group(family: Family) {
    listen_for_signals();
    // SAFETY: no pointers.
    let group = unsafe {
        libc::setpgid(0, 0);
        libc::getpgrp()
    };
    let (client, server) = pair(family);
    sys::fcntl(client, libc::F_SETOWN, -group).unwrap();
    send_urgent(server, b"!");
    expect_signal();
    expect_taken(client, b'!');
}

fn urgent_signals_nobody_any_more(family: Family) {
    listen_for_signals();
    let (client, server) = pair(family);
    sys::fcntl(client, libc::F_SETOWN, sys::getpid()).unwrap();
    send_urgent(server, b"!");
    expect_signal();
    sys::fcntl(client, libc::F_SETOWN, 0).unwrap();
    send_urgent(server, b"?");
    await_events(client, libc::POLLPRI);
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert_eq!(SIGNALS.load(Ordering::Relaxed), 0);
}

fn urgent_signals_by_ioctl(family: Family) {
    const SIOCSPGRP: libc::c_ulong = 0x8902;
    listen_for_signals();
    let (client, server) = pair(family);
    sys::ioctl_int(client, SIOCSPGRP, sys::getpid()).unwrap();
    assert_eq!(sys::fcntl(client, libc::F_GETOWN, 0), Ok(sys::getpid()));
    send_urgent(server, b"!");
    expect_signal();
}

fn urgent_signals_owner_from_before_connect(family: Family) {
    listen_for_signals();
    let (listening, address) = listener(family);
    let client = tcp(family);
    sys::fcntl(client, libc::F_SETOWN, sys::getpid()).unwrap();
    sys::connect(client, address).unwrap();
    let server = sys::accept(listening).unwrap();
    assert_eq!(sys::fcntl(client, libc::F_GETOWN, 0), Ok(sys::getpid()));
    send_urgent(server, b"!");
    expect_signal();
    expect_taken(client, b'!');
}

fn urgent_signal_interrupts_recv(family: Family) {
    sys::handle_signal(libc::SIGURG, count, 0).unwrap();
    let (client, server) = pair(family);
    let (reader, task) = start_thread(move || {
        signal_thread_of(client, sys::gettid());
        sys::recv(client, &mut [0_u8; 8], 0)
    });
    await_asleep(task);
    send_urgent(server, b"!");
    assert_eq!(join_thread(reader), Err(Errno(libc::EINTR)));
    expect_taken(client, b'!');
}

fn urgent_signal_of_an_owner_named_meanwhile(family: Family) {
    sys::handle_signal(libc::SIGURG, count, 0).unwrap();
    for tv_sec in [0, 10] {
        let (client, server) = pair(family);
        let limit = libc::timeval { tv_sec, tv_usec: 0 };
        sys::set_option(client, libc::SOL_SOCKET, libc::SO_RCVTIMEO, limit).unwrap();
        let (reader, task) = start_thread(move || sys::recv(client, &mut [0_u8; 8], 0));
        await_asleep(task);
        signal_thread_of(client, task);
        send_urgent(server, b"!");
        assert_eq!(join_thread(reader), Err(Errno(libc::EINTR)));
        expect_taken(client, b'!');
    }
}

fn urgent_signal_restarts_recv(family: Family) {
    listen_for_signals();
    let (client, server) = pair(family);
    let (reader, task) = start_thread(move || {
        signal_thread_of(client, sys::gettid());
        sys::recv(client, &mut [0_u8; 8], 0)
    });
    await_asleep(task);
    send_urgent(server, b"!");
    expect_signal();
    send_all(server, b"x");
    assert_eq!(join_thread(reader), Ok(1));
}

fn urgent_is_of_the_socket_not_of_the_process(family: Family) {
    let (client, server) = pair(family);
    send_urgent(server, b"a!");
    send_all(server, b"b");
    await_events(client, libc::POLLPRI);
    let child = fork_child(move || {
        expect_bytes(client, b"a");
        assert_eq!(sys::at_mark(client), Ok(true));
        expect_taken(client, b'!');
    });
    child.join();
    expect_no_urgent(client);
    assert_eq!(sys::at_mark(client), Ok(true));
    expect_bytes(client, b"b");
    let child = fork_child(move || send_urgent(server, b"?"));
    child.join();
    await_events(client, libc::POLLPRI);
    expect_taken(client, b'?');
}

fn urgent_for_a_socket_that_was_passed(family: Family) {
    let (client, server) = pair(family);
    let [ours, theirs] = sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM).unwrap();
    send_urgent(server, b"a!");
    await_events(client, libc::POLLPRI);
    sys::send_descriptor(ours, client).unwrap();
    let copy = sys::recv_descriptor(theirs).unwrap();
    sys::close(client).unwrap();
    expect_taken(copy, b'!');
    expect_bytes(copy, b"a");
    assert_eq!(sys::at_mark(copy), Ok(true));
    send_urgent(server, b"?");
    await_events(copy, libc::POLLPRI);
    expect_taken(copy, b'?');
    send_urgent(copy, b"!");
    await_events(server, libc::POLLPRI);
    expect_taken(server, b'!');
}

fn urgent_splice_ends_at_the_mark(family: Family) {
    let (client, server) = pair(family);
    let [reader, writer] = sys::pipe(0).unwrap();
    send_all(server, b"ab");
    send_urgent(server, b"!");
    send_all(server, b"cd");
    await_events(client, libc::POLLPRI);
    assert_eq!(sys::splice(client, writer, 16, 0), Ok(2));
    assert_eq!(sys::splice(client, writer, 16, 0), Ok(0));
    set_nonblocking(client);
    let again = sys::splice(client, writer, 16, 0);
    assert_eq!(again, Err(Errno(libc::EAGAIN)));
    expect_taken(client, b'!');
    expect_bytes(client, b"cd");
    let mut bytes = [0_u8; 8];
    assert_eq!(sys::read(reader, &mut bytes), Ok(2));
    assert_eq!(bytes[..2], *b"ab");
}

/// If not all bytes fit, the last byte that was taken is urgent.
fn urgent_stops_at_no_room(family: Family) {
    let (client, server) = small_pair(family);
    set_nonblocking(server);
    let bytes = pattern(0, 8 << 20);
    let sent = sys::send(server, &bytes, libc::MSG_OOB).unwrap();
    assert!(sent < bytes.len());
    expect_pattern(client, 0, sent - 1);
    await_events(client, libc::POLLPRI);
    expect_taken(client, pattern_byte(sent - 1));
}

/// A reader before several urgent bytes loses all but the last, however quickly they arrive. A reader that is not
/// before them reads them in place.
fn urgent_many_in_a_row(family: Family) {
    let (client, server) = pair(family);
    let bytes: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    for before in ["", "xyz"] {
        send_all(server, before.as_bytes());
        let sent = sys::sendmmsg(server, &bytes, libc::MSG_OOB);
        assert_eq!(sent, Ok(vec![1; 4]));
        eventually("the last one is there", || {
            let mut byte = [0];
            let peek = libc::MSG_OOB | libc::MSG_PEEK;
            sys::recv(client, &mut byte, peek) == Ok(1) && byte == *b"d"
        });
        expect_taken(client, b'd');
        let mut room = [0; 16];
        let read = sys::recv(client, &mut room, libc::MSG_DONTWAIT);
        match before {
            "" => assert_eq!(read, Err(Errno(libc::EAGAIN))),
            _ => assert_eq!((read, &room[..6]), (Ok(6), &b"xyzabc"[..])),
        }
        expect_alive(client, server);
    }
}

/// Only the first packet of what is refused is looked at.
fn urgent_far_within_what_meets_a_reset(family: Family) {
    let (client, server) = pair(family);
    sys::shutdown(client, libc::SHUT_RDWR).unwrap();
    await_events(server, libc::POLLRDHUP);
    let bytes = vec![1; 40_000];
    assert_eq!(sys::send(server, &bytes, libc::MSG_OOB), Ok(bytes.len()));
    await_events(server, libc::POLLERR);
    assert_eq!(poll_one(client, libc::POLLPRI, 0) & libc::POLLPRI, 0);
}
