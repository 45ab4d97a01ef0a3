//! Bytes held back by `MSG_MORE` at the end of a connection: which end releases them, whether they meet a reset, and
//! when they are dropped.

use std::time::{Duration, Instant};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::corner_12_dissolve::connect_unspecified;
use crate::held::{self, Held, SOON, cork};
use crate::helpers::send_and_wait;

cases! {
    families: [
        held_and_lost_to_who_closes,
        held_and_lost_to_who_shuts_both,
        held_and_lost_to_who_is_killed,
        held_to_a_closed_peer,
        held_to_a_closed_peer_for_its_time,
        held_to_a_closed_peer_but_for_records_that_have_ended,
        held_and_kept_by_a_cork_that_comes_later,
        held_and_kept_where_an_answer_came_before_a_reset,
        held_and_kept_by_who_had_ended,
        held_and_kept_by_who_ends_reading_later,
        held_and_dropped_by_a_reset,
        held_and_dropped_by_linger,
    ];
}

const PIPE: Errno = Errno(libc::EPIPE);
/// More than the 200 ms for which bytes are held back.
const LATE: Duration = Duration::from_millis(600);
const QUIET: libc::c_int = libc::MSG_NOSIGNAL;

fn hold(socket: Descriptor) -> Held {
    held::hold(socket, b"held")
}

/// The end of the peer has released held-back bytes, which have met a reset. Any send returns the error before its
/// buffer is checked.
fn held_and_lost_to_who_closes(family: Family) {
    sys::ignore_signal(libc::SIGPIPE).unwrap();
    let lost = || {
        let (client, server) = pair(family);
        hold(client);
        sys::close(server).unwrap();
        await_events(client, libc::POLLHUP);
        client
    };
    // SAFETY: nothing is there to be read.
    let sent = unsafe { sys::send_raw(lost(), std::ptr::null(), 100, QUIET) };
    assert_eq!(sent, Err(PIPE));
    assert_eq!(sys::send(lost(), &[], QUIET), Err(PIPE));
    assert_eq!(sys::send(lost(), b"x", QUIET), Err(PIPE));
    let file = file_of(b"of a file");
    assert_eq!(sys::sendfile(lost(), file, None, 9), Err(PIPE));
}

fn held_and_lost_to_who_shuts_both(family: Family) {
    let (client, server) = pair(family);
    hold(client);
    sys::shutdown(server, libc::SHUT_RDWR).unwrap();
    await_events(client, libc::POLLHUP);
    assert_eq!(sys::send(client, &[], QUIET), Err(PIPE));
    let received = sys::recv(server, &mut [0; 8], 0);
    assert_eq!(received, Err(Errno(libc::ECONNRESET)));
}

/// Held-back bytes do not meet a reset yet. The bytes that release them do.
fn held_to_a_closed_peer(family: Family) {
    let (client, server) = pair(family);
    sys::close(server).unwrap();
    await_events(client, libc::POLLRDHUP);
    let quietly = |flags| sys::send(client, b"lost", flags | QUIET);
    assert_eq!(quietly(libc::MSG_MORE), Ok(4));
    assert_eq!(quietly(0), Ok(4));
    await_events(client, libc::POLLHUP);
    assert_eq!(quietly(0), Err(PIPE));
}

/// When the time is over, the bytes meet their reset, though this side makes no call.
fn held_to_a_closed_peer_for_its_time(family: Family) {
    let quietly = |client, flags| sys::send(client, b"lost", flags | QUIET);
    let told = |set, timeout| sys::epoll_wait(set, 4, timeout).unwrap().len();
    let holding = || {
        let (client, server) = pair(family);
        sys::close(server).unwrap();
        await_events(client, libc::POLLRDHUP);
        let sets = [(); 2].map(|()| sys::epoll_create().unwrap());
        for set in sets {
            let events = libc::EPOLLET.cast_unsigned();
            sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, events, 1).unwrap();
            assert_eq!(told(set, 0), 0);
        }
        assert_eq!(quietly(client, libc::MSG_MORE), Ok(4));
        (client, sets)
    };
    let begun = Instant::now();
    let (client, sets) = holding();
    await_events(client, libc::POLLERR);
    // Between hosts TCP holds back for longer, as long as it has waited for acknowledgements before.
    let late = LATE.max(begun.elapsed() * 3 / 2);
    for set in sets {
        assert_eq!(told(set, PATIENCE_MILLISECONDS), 1);
        assert_eq!(told(set, 0), 0);
    }
    assert_eq!(socket_error(client), PIPE);
    for set in holding().1 {
        assert_eq!(told(set, PATIENCE_MILLISECONDS), 1);
    }
    let (client, _) = holding();
    std::thread::sleep(late);
    assert_eq!(quietly(client, 0), Err(PIPE));
}

/// A record that has ended leaves before the next one is held back, and meets a reset.
fn held_to_a_closed_peer_but_for_records_that_have_ended(family: Family) {
    let (client, server) = pair(family);
    cork(client, 1);
    let quietly = |flags| sys::send(client, b"lost", flags | QUIET);
    assert_eq!(quietly(libc::MSG_EOR), Ok(4));
    sys::close(server).unwrap();
    await_events(client, libc::POLLRDHUP);
    assert_eq!(quietly(0), Ok(4));
    await_events(client, libc::POLLHUP);
    assert_eq!(quietly(0), Err(PIPE));
}

/// Nothing that the peer does releases what is corked, however it was held back before.
fn held_and_kept_by_a_cork_that_comes_later(family: Family) {
    let (client, server) = pair(family);
    let held = hold(client);
    cork(client, 1);
    send_all(server, b"answer");
    expect_bytes(client, b"answer");
    held.expect_nothing(server);
    cork(client, 0);
    expect_bytes(server, b"held");
    let held = hold(client);
    cork(client, 1);
    sys::close(server).unwrap();
    await_events(client, libc::POLLRDHUP);
    let events = poll_one(client, libc::POLLIN, 0);
    if held.0.elapsed() < SOON {
        assert_eq!(events, libc::POLLIN);
    }
}

fn held_and_kept_where_an_answer_came_before_a_reset(family: Family) {
    let (client, server) = pair(family);
    let _ = hold(client);
    send_all(server, b"answer");
    await_events(server, libc::POLLIN);
    connect_unspecified(client).unwrap();
    await_events(server, libc::POLLHUP);
    expect_bytes(server, b"held");
    let received = sys::recv(server, &mut [0; 8], 0);
    assert_eq!(received, Err(Errno(libc::ECONNRESET)));
}

fn held_and_lost_to_who_is_killed(family: Family) {
    let (child, client, _) = forked_server(family, |_| {
        std::thread::sleep(Duration::from_secs(30));
    });
    hold(client);
    sys::kill(child.process, libc::SIGKILL).unwrap();
    assert_eq!(child.wait(), Ended::Signal(libc::SIGKILL));
    await_events(client, libc::POLLHUP);
    eventually("it is told", || sys::send(client, &[], QUIET) == Err(PIPE));
}

/// The end of sending has delivered the bytes to a peer that still read then.
fn held_and_kept_by_who_ends_reading_later(family: Family) {
    let (client, server) = pair(family);
    hold(client);
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    await_events(server, libc::POLLIN);
    sys::shutdown(server, libc::SHUT_RD).unwrap();
    assert_eq!(sys::send(client, b"x", QUIET), Ok(1));
    expect_bytes(server, b"held");
}

/// The close of a peer that had sent its end before is not noticed: the bytes are still held back.
fn held_and_kept_by_who_had_ended(family: Family) {
    let (client, server) = pair(family);
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    await_events(client, libc::POLLRDHUP);
    let begun = std::time::Instant::now();
    hold(client);
    sys::close(server).unwrap();
    let named = sys::getpeername(client).is_ok();
    if begun.elapsed() < Duration::from_millis(150) {
        assert!(named, "it is connected still");
    }
}

fn expect_dropped(socket: Descriptor) {
    await_events(socket, libc::POLLERR);
    let waiting = sys::ioctl_int(socket, libc::FIONREAD, 0);
    assert_eq!(waiting, Ok(0));
    // Nor later.
    std::thread::sleep(Duration::from_millis(250));
    let received = sys::recv(socket, &mut [0; 8], 0);
    assert_eq!(received, Err(Errno(libc::ECONNRESET)));
    assert_eq!(sys::recv(socket, &mut [0; 8], 0), Ok(0));
}

/// An end that closes with unread bytes resets, and sends nothing more.
fn held_and_dropped_by_a_reset(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(client, server, b"unread");
    hold(server);
    sys::close(server).unwrap();
    expect_dropped(client);
}

fn held_and_dropped_by_linger(family: Family) {
    let (client, server) = pair(family);
    hold(server);
    close_with_reset(server);
    expect_dropped(client);
}
