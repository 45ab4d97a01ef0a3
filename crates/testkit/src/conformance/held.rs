//! Bytes held back by `MSG_MORE` and `TCP_CORK`: until when they are not visible, and that they arrive after 200 ms.

use std::time::{Duration, Instant};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::helpers::{expect_taken, send_urgent};

cases! {
    families: [
        held_until_a_send_without,
        held_not_for_ever_poll,
        held_not_for_ever_recv,
        held_not_for_ever_asleep_in_recv,
        held_not_for_ever_asleep_in_poll,
        held_not_for_ever_select,
        held_not_for_ever_epoll,
        held_not_for_ever_asleep_in_epoll,
        held_not_for_ever_epoll_within_epoll,
        held_not_for_ever_with_a_timeout,
        held_since_the_first,
        held_until_uncorked,
        held_again_after_its_time,
        held_until_another_descriptor_uncorks,
        held_until_a_child_uncorks,
        held_until_no_delay,
        held_until_shutdown,
        held_until_close,
        held_until_exit,
        held_over_exec,
        held_over_exec_without_library,
        held_until_urgent,
        held_until_the_peer_sends,
        held_until_the_peer_ends,
        held_by_a_cork_whatever_the_peer_sends,
        held_by_both,
        held_by_a_cork_of_the_listener,
        held_by_a_cork_before_connect,
        held_by_message_calls,
        held_by_splice,
        held_until_it_meets_nobody,
        held_by_a_cork_from_a_file,
        held_but_for_records_that_have_ended,
        held_is_not_acknowledged,
        held_behind_bytes_that_are_there,
        held_to_who_reads_no_more,
    ];
}

pub const MORE: libc::c_int = libc::MSG_MORE;
const SIOCOUTQNSD: libc::c_ulong = 0x894b;
/// A look within this time finds nothing. It is shorter than 200 ms because a host may be busy.
pub const SOON: Duration = Duration::from_millis(150);

/// The moment before bytes were held back.
pub struct Held(pub Instant);

impl Held {
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// Checks that exactly `expected` bytes can be read, unless so much time has passed that more may be.
    #[track_caller]
    fn expect_only(&self, socket: Descriptor, expected: libc::c_int) {
        let count = sys::ioctl_int(socket, libc::FIONREAD, 0).unwrap();
        let events = poll_one(socket, libc::POLLIN, 0);
        if self.0.elapsed() < SOON {
            assert_eq!((count, events != 0), (expected, expected != 0));
        }
    }

    #[track_caller]
    pub fn expect_nothing(&self, socket: Descriptor) {
        self.expect_only(socket, 0);
        let answer = sys::recv(socket, &mut [0; 8], libc::MSG_DONTWAIT | libc::MSG_PEEK);
        if self.0.elapsed() < SOON {
            assert_eq!(answer, Err(Errno(libc::EAGAIN)));
        }
    }

    /// Checks that the time is over, and not long before.
    #[track_caller]
    pub fn expect_time(&self) {
        let waited = self.0.elapsed();
        assert!(waited >= SOON, "seen after {waited:?} already");
    }
}

/// Checks what one call receives.
#[track_caller]
pub fn expect_read(socket: Descriptor, expected: &[u8]) {
    let mut bytes = [0_u8; 64];
    let size = sys::recv(socket, &mut bytes, 0).unwrap();
    assert_eq!(bytes[..size], *expected);
}

#[track_caller]
pub fn hold(socket: Descriptor, bytes: &[u8]) -> Held {
    let held = Held::now();
    assert_eq!(sys::send(socket, bytes, MORE), Ok(bytes.len()));
    held
}

pub fn cork(socket: Descriptor, on: libc::c_int) {
    set_int(socket, libc::IPPROTO_TCP, libc::TCP_CORK, on);
}

/// A corked pair with held-back bytes.
fn corked(family: Family) -> (Descriptor, Descriptor, Held) {
    let (client, server) = pair(family);
    cork(client, 1);
    let held = Held::now();
    assert_eq!(sys::send(client, b"held", 0), Ok(4));
    held.expect_nothing(server);
    (client, server, held)
}

fn held_until_a_send_without(family: Family) {
    let (client, server) = pair(family);
    let held = hold(client, b"held ");
    held.expect_nothing(server);
    assert_eq!(sys::send(client, b"a while ", MORE), Ok(8));
    assert_eq!(sys::send(client, b"", 0), Ok(0));
    held.expect_nothing(server);
    send_all(client, b"back");
    expect_read(server, b"held a while back");
    // Both ways, and again.
    let held = hold(server, b"x");
    held.expect_nothing(client);
    send_all(server, b"y");
    expect_read(client, b"xy");
}

fn held_not_for_ever_poll(family: Family) {
    let (client, server) = pair(family);
    let held = hold(client, b"held");
    assert_eq!(poll_one(server, libc::POLLIN, 10_000), libc::POLLIN);
    held.expect_time();
    expect_read(server, b"held");
}

fn held_not_for_ever_recv(family: Family) {
    let (client, server) = pair(family);
    let held = hold(client, b"held");
    expect_read(server, b"held");
    held.expect_time();
}

fn held_not_for_ever_asleep_in_recv(family: Family) {
    let (client, server) = pair(family);
    let (reader, task) = start_thread(move || expect_read(server, b"held"));
    await_asleep(task);
    let held = hold(client, b"held");
    join_thread(reader);
    held.expect_time();
}

fn held_not_for_ever_asleep_in_poll(family: Family) {
    let (client, server) = pair(family);
    let (reader, task) = start_thread(move || poll_one(server, libc::POLLIN, 10_000));
    await_asleep(task);
    let held = hold(client, b"held");
    assert_eq!(join_thread(reader), libc::POLLIN);
    held.expect_time();
}

fn held_not_for_ever_select(family: Family) {
    let (client, server) = pair(family);
    let held = hold(client, b"held");
    let mut read = sys::Set::of(&[server]);
    let count = sys::select(server, Some(&mut read), None, None, 10_000);
    assert_eq!(count, Ok(1));
    held.expect_time();
    expect_read(server, b"held");
}

fn set_of(member: Descriptor, events: libc::c_int) -> Descriptor {
    let set = sys::epoll_create().unwrap();
    let events = events.cast_unsigned();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, member, events, 1).unwrap();
    set
}

fn held_not_for_ever_epoll(family: Family) {
    for edge in [0, libc::EPOLLET] {
        let (client, server) = pair(family);
        let set = set_of(server, libc::EPOLLIN | edge);
        send_all(client, b"there");
        assert_eq!(sys::epoll_wait(set, 8, 10_000).unwrap().len(), 1);
        expect_read(server, b"there");
        let held = hold(client, b"held");
        assert_eq!(sys::epoll_wait(set, 8, 10_000).unwrap().len(), 1);
        held.expect_time();
        expect_read(server, b"held");
        assert!(sys::epoll_wait(set, 8, 0).unwrap().is_empty());
        // The bytes are reported once, with the call that ends the wait.
        let held = hold(client, b"held");
        assert!(sys::epoll_wait(set, 8, 0).unwrap().is_empty() || held.0.elapsed() > SOON);
        send_all(client, b"!");
        assert_eq!(sys::epoll_wait(set, 8, 10_000).unwrap().len(), 1);
        expect_bytes(server, b"held!");
        assert!(sys::epoll_wait(set, 8, 250).unwrap().is_empty());
    }
}

fn held_not_for_ever_asleep_in_epoll(family: Family) {
    for edge in [0, libc::EPOLLET] {
        let (client, server) = pair(family);
        let set = set_of(server, libc::EPOLLIN | edge);
        let (reader, task) = start_thread(move || sys::epoll_wait(set, 8, 10_000).unwrap().len());
        await_asleep(task);
        let held = hold(client, b"held");
        assert_eq!(join_thread(reader), 1);
        held.expect_time();
        expect_read(server, b"held");
    }
}

fn held_not_for_ever_epoll_within_epoll(family: Family) {
    let (client, server) = pair(family);
    let inner = set_of(server, libc::EPOLLIN);
    let outer = set_of(inner, libc::EPOLLIN);
    let held = hold(client, b"held");
    assert_eq!(sys::epoll_wait(outer, 8, 10_000).unwrap().len(), 1);
    held.expect_time();
    expect_read(server, b"held");
    let held = hold(client, b"held");
    assert_eq!(poll_one(outer, libc::POLLIN, 10_000), libc::POLLIN);
    held.expect_time();
}

fn held_not_for_ever_with_a_timeout(family: Family) {
    let (client, server) = pair(family);
    let short = libc::timeval {
        tv_sec: 0,
        tv_usec: 20_000,
    };
    sys::set_option(server, libc::SOL_SOCKET, libc::SO_RCVTIMEO, short).unwrap();
    let held = hold(client, b"held");
    let answer = sys::recv(server, &mut [0; 8], 0);
    if held.0.elapsed() < SOON {
        assert_eq!(answer, Err(Errno(libc::EAGAIN)));
        let long = libc::timeval {
            tv_sec: 10,
            tv_usec: 0,
        };
        sys::set_option(server, libc::SOL_SOCKET, libc::SO_RCVTIMEO, long).unwrap();
        expect_read(server, b"held");
        held.expect_time();
    }
}

fn held_since_the_first(family: Family) {
    let (client, server) = pair(family);
    let held = hold(client, b"held ");
    std::thread::sleep(Duration::from_millis(100));
    let second = hold(client, b"since");
    assert_eq!(poll_one(server, libc::POLLIN, 10_000), libc::POLLIN);
    held.expect_time();
    if second.0.elapsed() < SOON {
        expect_read(server, b"held since");
    }
}

fn held_until_uncorked(family: Family) {
    let (client, server, held) = corked(family);
    assert_eq!(sys::send(client, b" back", 0), Ok(5));
    assert_eq!(sys::writev(client, &[b", ", b"all"]), Ok(5));
    cork(client, 1);
    held.expect_nothing(server);
    cork(client, 0);
    expect_read(server, b"held back, all");
    // Without a cork, too.
    let held = hold(client, b"more");
    held.expect_nothing(server);
    cork(client, 0);
    expect_read(server, b"more");
    send_all(client, b"at once");
    assert_eq!(poll_one(server, libc::POLLIN, 10_000), libc::POLLIN);
}

fn held_again_after_its_time(family: Family) {
    let (client, server, held) = corked(family);
    expect_read(server, b"held");
    held.expect_time();
    for _ in 0..2 {
        let held = Held::now();
        assert_eq!(sys::send(client, b"again", 0), Ok(5));
        held.expect_nothing(server);
        assert_eq!(poll_one(server, libc::POLLIN, 10_000), libc::POLLIN);
        held.expect_time();
        expect_read(server, b"again");
    }
}

fn held_until_another_descriptor_uncorks(family: Family) {
    let (client, server, _held) = corked(family);
    let other = sys::dup(client).unwrap();
    cork(other, 0);
    expect_read(server, b"held");
}

fn held_until_a_child_uncorks(family: Family) {
    let (client, server, held) = corked(family);
    let child = fork_child(|| {
        assert_eq!(sys::send(client, b" on", 0), Ok(3));
        cork(client, 0);
    });
    child.join();
    if held.0.elapsed() < SOON {
        expect_read(server, b"held on");
    }
    let held = hold(client, b"anew");
    held.expect_nothing(server);
}

fn held_until_no_delay(family: Family) {
    let (client, server, _held) = corked(family);
    set_int(client, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    expect_read(server, b"held");
    // The cork stays.
    let held = Held::now();
    assert_eq!(sys::send(client, b"again", 0), Ok(5));
    held.expect_nothing(server);
    set_int(client, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    expect_read(server, b"again");
    cork(client, 0);
    let held = hold(client, b"more");
    held.expect_nothing(server);
}

fn held_until_shutdown(family: Family) {
    let (client, server, held) = corked(family);
    sys::shutdown(client, libc::SHUT_RD).unwrap();
    held.expect_nothing(server);
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    expect_bytes(server, b"held");
    expect_end(server);
}

fn held_until_close(family: Family) {
    let (client, server, _held) = corked(family);
    sys::close(client).unwrap();
    expect_bytes(server, b"held");
    expect_end(server);
}

fn held_until_exit(family: Family) {
    let (client, server) = pair(family);
    let start = Instant::now();
    let child = fork_child(|| {
        hold(client, b"held");
    });
    sys::close(client).unwrap();
    child.join();
    if start.elapsed() < SOON {
        expect_bytes(server, b"held");
    }
    assert_eq!(receive_to_end(server).len() % 4, 0);
}

/// Another program goes on with a corked socket that holds bytes back.
fn expect_time_over_exec(family: Family, library: bool) {
    let (client, server) = pair(family);
    let child = fork_child(|| {
        sys::close(server).unwrap();
        cork(client, 1);
        assert_eq!(sys::send(client, b"held", 0), Ok(4));
        exec_helper(&["echo", &client.to_string()], library);
    });
    sys::close(client).unwrap();
    expect_read(server, b"held");
    send_all(server, b"echoed");
    expect_bytes(server, b"echoed");
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    expect_end(server);
    child.join();
}

fn held_over_exec(family: Family) {
    expect_time_over_exec(family, true);
}

fn held_over_exec_without_library(family: Family) {
    expect_time_over_exec(family, false);
}

fn held_until_urgent(family: Family) {
    let (client, server, _held) = corked(family);
    send_urgent(client, b"!");
    await_events(server, libc::POLLPRI);
    expect_read(server, b"held");
    expect_taken(server, b'!');
    let held = Held::now();
    assert_eq!(sys::send(client, b"again", 0), Ok(5));
    held.expect_only(server, 0);
}

/// A connection whose client has held back bytes, which the server gets when it does this.
fn let_go_by(family: Family, release: impl Fn(Descriptor)) -> (Descriptor, Descriptor) {
    let mut last = None;
    expect_within(SOON, || {
        let (client, server) = pair(family);
        let held = hold(client, b"held");
        held.expect_nothing(server);
        release(server);
        await_events(server, libc::POLLIN);
        let waited = held.0.elapsed();
        expect_read(server, b"held");
        last = Some((client, server));
        waited
    });
    last.unwrap()
}

/// Bytes from the peer release bytes that `MSG_MORE` held back.
fn held_until_the_peer_sends(family: Family) {
    let (client, server) = let_go_by(family, |server| {
        // TCP does so for other bytes only where they acknowledge something.
        send_urgent(server, b"!");
    });
    // Bytes that are held back later wait again.
    let held = hold(client, b"third");
    held.expect_nothing(server);
    send_all(client, b"!");
    expect_read(server, b"third!");
}

fn held_until_the_peer_ends(family: Family) {
    let_go_by(family, |server| {
        sys::shutdown(server, libc::SHUT_WR).unwrap();
    });
}

/// `SHUT_RD` does not stop arriving bytes: they are read all the same.
fn held_to_who_reads_no_more(family: Family) {
    let (client, server) = pair(family);
    sys::shutdown(server, libc::SHUT_RD).unwrap();
    hold(client, b"held ");
    send_all(client, b"back");
    eventually("all is there", || {
        sys::ioctl_int(server, libc::FIONREAD, 0) == Ok(9)
    });
    expect_read(server, b"held back");
}

fn held_by_a_cork_whatever_the_peer_sends(family: Family) {
    let (client, server, held) = corked(family);
    send_all(server, b"answer");
    expect_read(client, b"answer");
    held.expect_nothing(server);
    cork(client, 0);
    expect_read(server, b"held");
}

fn held_by_both(family: Family) {
    let (client, server) = pair(family);
    let first = hold(client, b"one");
    let second = hold(server, b"two");
    first.expect_nothing(server);
    second.expect_nothing(client);
    send_all(client, b"!");
    expect_read(server, b"one!");
    expect_read(client, b"two");
}

fn held_by_a_cork_of_the_listener(family: Family) {
    let (listening, address) = listener(family);
    cork(listening, 1);
    let client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    let option = sys::option_int(server, libc::IPPROTO_TCP, libc::TCP_CORK);
    assert_eq!(option, Ok(1));
    let held = Held::now();
    assert_eq!(sys::send(server, b"held", 0), Ok(4));
    held.expect_nothing(client);
    cork(server, 0);
    expect_read(client, b"held");
}

fn held_by_a_cork_before_connect(family: Family) {
    let (listening, address) = listener(family);
    let client = tcp(family);
    cork(client, 1);
    sys::connect(client, address).unwrap();
    let server = sys::accept(listening).unwrap();
    let held = Held::now();
    assert_eq!(sys::send(client, b"held", 0), Ok(4));
    held.expect_nothing(server);
    cork(client, 0);
    expect_read(server, b"held");
}

fn held_by_message_calls(family: Family) {
    let (client, server) = pair(family);
    let held = Held::now();
    assert_eq!(sys::send_vector(client, &[b"on", b"e "], MORE), Ok(4));
    assert_eq!(
        sys::sendmmsg(client, &[b"two ", b"three "], MORE),
        Ok(vec![4, 6])
    );
    held.expect_nothing(server);
    assert_eq!(sys::sendmmsg(client, &[b"fo", b"ur"], 0), Ok(vec![2, 2]));
    expect_bytes(server, b"one two three four");
}

/// Bytes that are released by the end of a peer that no longer reads meet a reset there.
fn held_until_it_meets_nobody(family: Family) {
    for spliced in [false, true] {
        let (client, server) = pair(family);
        if spliced {
            let [out, into] = sys::pipe(0).unwrap();
            sys::write(into, b"never read").unwrap();
            let moved = sys::splice(out, server, 10, libc::SPLICE_F_MORE);
            assert_eq!(moved, Ok(10));
        } else {
            let sent = sys::send(server, b"never read", libc::MSG_MORE);
            assert_eq!(sent, Ok(10));
        }
        sys::shutdown(client, libc::SHUT_RDWR).unwrap();
        await_events(server, libc::POLLHUP);
        let sent = sys::send(server, b"x", libc::MSG_NOSIGNAL);
        assert_eq!(sent, Err(Errno(libc::EPIPE)), "{spliced}");
        // Through a daemon the reset arrives a moment later.
        eventually("the reset is told", || {
            let received = sys::recv(client, &mut [0; 8], 0);
            assert!(matches!(received, Ok(0) | Err(Errno(libc::ECONNRESET))));
            received.is_err()
        });
    }
}

fn held_by_splice(family: Family) {
    let (client, server) = pair(family);
    let [out, input] = sys::pipe(0).unwrap();
    assert_eq!(sys::write(input, b"held "), Ok(5));
    let held = Held::now();
    assert_eq!(sys::splice(out, client, 5, libc::SPLICE_F_MORE), Ok(5));
    held.expect_nothing(server);
    assert_eq!(sys::write(input, b"back"), Ok(4));
    assert_eq!(sys::splice(out, client, 9, 0), Ok(4));
    expect_bytes(server, b"held back");
}

fn held_by_a_cork_from_a_file(family: Family) {
    let (client, server, held) = corked(family);
    let file = file_of(b" of a file");
    assert_eq!(sys::sendfile(client, file, None, 10), Ok(10));
    held.expect_nothing(server);
    cork(client, 0);
    expect_bytes(server, b"held of a file");
}

/// TCP holds back its last packet only, into which nothing is put behind the end of a record.
fn held_but_for_records_that_have_ended(family: Family) {
    let (client, server, held) = corked(family);
    assert_eq!(sys::send(client, b" record", libc::MSG_EOR), Ok(7));
    held.expect_nothing(server);
    assert_eq!(sys::send(client, b"next", 0), Ok(4));
    await_events(server, libc::POLLIN);
    held.expect_only(server, 11);
    expect_bytes(server, b"held record");
    held.expect_nothing(server);
    cork(client, 0);
    expect_bytes(server, b"next");
}

fn held_is_not_acknowledged(family: Family) {
    let (client, server) = pair(family);
    let held = hold(client, b"held");
    let counts = [libc::TIOCOUTQ, SIOCOUTQNSD].map(|request| sys::ioctl_int(client, request, 0));
    if held.0.elapsed() < SOON {
        assert_eq!(counts, [Ok(4), Ok(4)]);
    }
    send_all(client, b"!");
    expect_bytes(server, b"held!");
    eventually("all is there", || {
        sys::ioctl_int(client, libc::TIOCOUTQ, 0) == Ok(0)
    });
}

fn held_behind_bytes_that_are_there(family: Family) {
    let (client, server) = pair(family);
    send_all(client, b"there");
    await_events(server, libc::POLLIN);
    let held = hold(client, b"held");
    held.expect_only(server, 5);
    expect_read(server, b"there");
    held.expect_nothing(server);
    expect_read(server, b"held");
    held.expect_time();
}
