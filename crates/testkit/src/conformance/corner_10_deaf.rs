//! Corner 10, a peer that neither reads nor writes any more and keeps the socket: bytes sent to it meet a reset. Also
//! connections that have ended though neither end has closed them.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno, HUP, IN, OUT, RDHUP};

use crate::case::cases;
use crate::helpers::{send_and_wait, send_until_error};

cases! {
    families: [
        corner_10_deaf_first_write_succeeds,
        corner_10_deaf_second_write_says_so,
        corner_10_deaf_receive_before_the_error,
        corner_10_deaf_keeps_what_was_there,
        corner_10_deaf_blocked_writer,
        corner_10_deaf_writer_without_room,
        corner_10_deaf_large_write,
        corner_10_deaf_tells_event_loops,
        corner_10_deaf_tells_the_writer_itself,
        corner_10_deaf_to_reading_only,
        corner_10_over_both_have_ended,
        corner_10_over_one_has_closed,
        corner_10_over_written_after_close,
    ];
}

const ALL: libc::c_short = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
const HUNG: libc::c_short = ALL | libc::POLLHUP;
const TORN: libc::c_short = HUNG | libc::POLLERR;

const PIPE: Errno = Errno(libc::EPIPE);
const RESET: Errno = Errno(libc::ECONNRESET);
const NOT: Errno = Errno(libc::ENOTCONN);

const WAYS: [&[libc::c_int]; 3] = [
    &[libc::SHUT_RDWR],
    &[libc::SHUT_RD, libc::SHUT_WR],
    &[libc::SHUT_WR, libc::SHUT_RD],
];

fn shut(socket: Descriptor, how: &[libc::c_int]) {
    for how in how {
        sys::shutdown(socket, *how).unwrap();
    }
}

fn send(socket: Descriptor) -> sys::Outcome<usize> {
    sys::send(socket, b"x", libc::MSG_NOSIGNAL)
}

fn receive(socket: Descriptor) -> sys::Outcome<usize> {
    sys::recv(socket, &mut [0_u8; 8], libc::MSG_DONTWAIT)
}

/// A writer and its deaf peer, of which the writer has been notified.
fn deaf_pair(family: Family, how: &[libc::c_int]) -> (Descriptor, Descriptor) {
    let (writer, peer) = pair(family);
    shut(peer, how);
    await_exactly(writer, ALL, ALL);
    await_exactly(peer, ALL, HUNG);
    (writer, peer)
}

fn expect_no_names(sockets: [Descriptor; 2]) {
    for socket in sockets {
        assert_eq!(sys::getpeername(socket), Err(NOT));
        assert!(sys::getsockname(socket).is_ok());
        for how in [libc::SHUT_RD, libc::SHUT_WR, libc::SHUT_RDWR] {
            assert_eq!(sys::shutdown(socket, how), Err(NOT));
        }
    }
}

fn corner_10_deaf_first_write_succeeds(family: Family) {
    for how in WAYS {
        let (writer, peer) = deaf_pair(family, how);
        assert!(sys::getpeername(writer).is_ok() && sys::getpeername(peer).is_ok());
        assert_eq!(send(writer), Ok(1));
        await_exactly(writer, ALL, TORN);
        await_exactly(peer, ALL, TORN);
        expect_no_names([writer, peer]);
        assert_eq!(socket_error(writer), PIPE);
        assert_eq!(socket_error(writer), Errno(0));
        assert_eq!(poll_one(writer, ALL, 0), HUNG);
        assert_eq!(receive(writer), Ok(0));
        assert_eq!(send(writer), Err(PIPE));
        assert_eq!(socket_error(peer), RESET);
        assert_eq!(socket_error(peer), Errno(0));
        assert_eq!(poll_one(peer, ALL, 0), HUNG);
        assert_eq!(receive(peer), Ok(0));
        assert_eq!(send(peer), Err(PIPE));
    }
}

fn corner_10_deaf_second_write_says_so(family: Family) {
    for how in WAYS {
        let (writer, peer) = deaf_pair(family, how);
        assert_eq!(send(writer), Ok(1));
        await_exactly(writer, ALL, TORN);
        assert_eq!(send(writer), Err(PIPE));
        assert_eq!(poll_one(writer, ALL, 0), HUNG);
        assert_eq!(socket_error(writer), Errno(0));
        assert_eq!(send(writer), Err(PIPE));
        await_exactly(peer, ALL, TORN);
        assert_eq!(receive(peer), Err(RESET));
        assert_eq!(receive(peer), Ok(0));
        assert_eq!(socket_error(peer), Errno(0));
    }
}

fn corner_10_deaf_receive_before_the_error(family: Family) {
    let (writer, peer) = deaf_pair(family, &[libc::SHUT_RDWR]);
    assert_eq!(receive(writer), Ok(0));
    assert_eq!(send(writer), Ok(1));
    await_exactly(writer, ALL, TORN);
    assert_eq!(receive(writer), Ok(0), "the end came first");
    assert_eq!(socket_error(writer), PIPE);
    sys::close(peer).unwrap();
    assert_eq!(send(writer), Err(PIPE));
}

fn corner_10_deaf_keeps_what_was_there(family: Family) {
    let (writer, peer) = pair(family);
    send_and_wait(writer, peer, b"before");
    send_and_wait(peer, writer, b"answer");
    shut(peer, &[libc::SHUT_RDWR]);
    await_exactly(writer, ALL, ALL);
    assert_eq!(sys::shutdown(peer, libc::SHUT_RD), Ok(()));
    assert_eq!(send(writer), Ok(1));
    await_exactly(peer, ALL, TORN);
    await_exactly(writer, ALL, TORN);
    expect_bytes(peer, b"before");
    assert_eq!(receive(peer), Err(RESET));
    assert_eq!(receive(peer), Ok(0));
    expect_bytes(writer, b"answer");
    assert_eq!(receive(writer), Ok(0));
    assert_eq!(send(writer), Err(PIPE));
}

fn corner_10_deaf_blocked_writer(family: Family) {
    let (writer, peer) = small_pair(family);
    let (thread, task) = start_thread(move || send_until_error(writer));
    await_asleep(task);
    shut(peer, &[libc::SHUT_RDWR]);
    // Linux: the bytes that the writer waits to send meet the reset once the peer has made room for them.
    let mut read = 0;
    let mut bytes = vec![0_u8; 64 * 1024];
    eventually("the writer ends", || {
        match sys::recv(peer, &mut bytes, libc::MSG_DONTWAIT) {
            Ok(size) => {
                assert_eq!(pattern_mismatch(read, &bytes[..size]), None);
                read += size;
            }
            Err(errno) => assert_eq!(errno, RESET),
        }
        thread.is_finished()
    });
    let (sent, errno, _) = join_thread(thread);
    assert_eq!(errno, PIPE);
    assert!(read <= sent, "{read} of {sent}");
    await_exactly(writer, ALL, HUNG);
    assert_eq!(socket_error(writer), Errno(0));
    expect_no_names([writer, peer]);
}

/// A writer that found no room waits, or gets EAGAIN, until the peer has made room.
fn corner_10_deaf_writer_without_room(family: Family) {
    for blocking in [true, false] {
        let (writer, peer) = small_pair(family);
        let set = sys::epoll_create().unwrap();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, writer, OUT, 1).unwrap();
        assert!(fill(writer) > 0);
        if blocking {
            set_blocking(writer);
        } else {
            set_nonblocking(writer);
        }
        let wait = move || sys::send(writer, &[0_u8; 30_000], libc::MSG_NOSIGNAL);
        let waiting = blocking.then(|| start_thread(wait));
        waiting.iter().for_each(|(_, task)| await_asleep(*task));
        shut(peer, &[libc::SHUT_RDWR]);
        await_exactly(writer, ALL, libc::POLLIN | libc::POLLRDHUP);
        expect_quiet(writer, libc::POLLOUT);
        assert_eq!(sys::epoll_wait(set, 4, 0), Ok(Vec::new()));
        let again = sys::send(writer, b"x", libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
        assert_eq!(again, Err(Errno(libc::EAGAIN)));
        assert!(waiting.iter().all(|(thread, _)| !thread.is_finished()));
        await_exactly(peer, ALL, HUNG);
        // Whatever the writer gets meanwhile, the peer reads all bytes.
        eventually("the writer has met it", || {
            while matches!(
                sys::recv(peer, &mut [0_u8; 4096], libc::MSG_DONTWAIT),
                Ok(1..)
            ) {}
            poll_one(writer, libc::POLLOUT, 0) & libc::POLLOUT != 0
        });
        if let Some((thread, _)) = waiting {
            assert_eq!(join_thread(thread), Err(PIPE));
            await_exactly(writer, ALL, HUNG);
        } else {
            await_exactly(writer, ALL, TORN);
            assert_eq!(sys::epoll_wait(set, 4, 0).unwrap().len(), 1);
            assert_eq!(socket_error(writer), PIPE);
        }
        assert_eq!(send(writer), Err(PIPE));
        sys::close(set).unwrap();
    }
}

/// Bytes that there is room for are taken, also of a write that does not fit.
fn corner_10_deaf_large_write(family: Family) {
    let (writer, peer) = pair(family);
    send_and_wait(writer, peer, &pattern(1, 4096));
    shut(peer, &[libc::SHUT_RDWR]);
    await_exactly(writer, ALL, libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP);
    let sent = sys::send(writer, &[0_u8; 400_000], libc::MSG_NOSIGNAL);
    assert!(matches!(sent, Ok(1..)), "{sent:?}");
    await_events(writer, libc::POLLHUP);
    assert_eq!(send(writer), Err(PIPE));
}

fn corner_10_deaf_tells_event_loops(family: Family) {
    let (writer, peer) = deaf_pair(family, &[libc::SHUT_RDWR]);
    let set = sys::epoll_create().unwrap();
    let events = IN | OUT | RDHUP | sys::ET;
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, peer, events, 1).unwrap();
    let reported = |events| [sys::Event { data: 1, events }];
    let shown = IN | OUT | RDHUP | HUP;
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap(), reported(shown));
    eventually("that is all", || {
        let reported = sys::epoll_wait(set, 4, QUIET_MILLISECONDS).unwrap();
        reported.is_empty()
    });
    let (thread, task) = start_thread(move || sys::epoll_wait(set, 4, 10_000).unwrap());
    await_asleep(task);
    assert_eq!(send(writer), Ok(1));
    assert_eq!(join_thread(thread), reported(shown | sys::ERR));
}

fn corner_10_deaf_tells_the_writer_itself(family: Family) {
    for closed in [false, true] {
        let (writer, peer) = pair(family);
        if closed {
            sys::close(peer).unwrap();
        } else {
            shut(peer, &[libc::SHUT_RDWR]);
        }
        await_exactly(writer, ALL, ALL);
        let set = sys::epoll_create().unwrap();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, writer, RDHUP | sys::ET, 1).unwrap();
        assert_eq!(sys::epoll_wait(set, 4, 0).unwrap().len(), 1);
        let (thread, task) = start_thread(move || sys::epoll_wait(set, 4, 10_000).unwrap());
        let (other, too) = start_thread(move || poll_one(writer, 0, 10_000));
        await_asleep(task);
        await_asleep(too);
        assert_eq!(send(writer), Ok(1));
        let events = RDHUP | HUP | sys::ERR;
        assert_eq!(join_thread(thread), [sys::Event { data: 1, events }]);
        assert_eq!(join_thread(other), libc::POLLERR | libc::POLLHUP);
    }
}

fn corner_10_deaf_to_reading_only(family: Family) {
    let (writer, peer) = pair(family);
    shut(peer, &[libc::SHUT_RD]);
    assert_eq!(send(writer), Ok(1));
    assert_eq!(send(writer), Ok(1));
    assert_eq!(poll_one(writer, ALL, 0), libc::POLLOUT);
    send_and_wait(writer, peer, b"abc");
    expect_bytes(peer, b"xxabc");
    send_all(peer, b"on");
    expect_bytes(writer, b"on");
    assert!(sys::getpeername(writer).is_ok() && sys::getpeername(peer).is_ok());
    // Bytes before the end are taken, bytes after it are not.
    shut(peer, &[libc::SHUT_WR]);
    await_exactly(writer, ALL, ALL);
    assert_eq!(send(writer), Ok(1));
    await_exactly(peer, ALL, TORN);
    assert_eq!(receive(peer), Err(RESET));
}

fn corner_10_over_both_have_ended(family: Family) {
    for unread in [false, true] {
        let (one, other) = pair(family);
        if unread {
            send_and_wait(one, other, b"there");
            send_and_wait(other, one, b"back");
        }
        shut(one, &[libc::SHUT_WR]);
        await_exactly(other, ALL, ALL);
        assert!(sys::getpeername(one).is_ok() && sys::getpeername(other).is_ok());
        shut(other, &[libc::SHUT_WR]);
        await_exactly(one, ALL, HUNG);
        await_exactly(other, ALL, HUNG);
        eventually("the last word is acknowledged", || {
            sys::getpeername(other) == Err(NOT)
        });
        expect_no_names([one, other]);
        if unread {
            expect_bytes(one, b"back");
            expect_bytes(other, b"there");
        }
        for socket in [one, other] {
            assert_eq!(receive(socket), Ok(0));
            assert_eq!(send(socket), Err(PIPE));
            assert_eq!(socket_error(socket), Errno(0));
            let peer = family.loopback(9);
            assert_eq!(sys::connect(socket, peer), Err(Errno(libc::EISCONN)));
        }
    }
}

fn corner_10_over_one_has_closed(family: Family) {
    let (one, other) = pair(family);
    sys::close(other).unwrap();
    await_exactly(one, ALL, ALL);
    assert!(sys::getpeername(one).is_ok());
    shut(one, &[libc::SHUT_RD, libc::SHUT_WR]);
    eventually("it is over", || sys::getpeername(one) == Err(NOT));
    assert_eq!(sys::shutdown(one, libc::SHUT_WR), Err(NOT));
    assert_eq!(poll_one(one, ALL, 0), HUNG);
    assert_eq!(socket_error(one), Errno(0));
}

fn corner_10_over_written_after_close(family: Family) {
    for unread in [false, true] {
        let (one, other) = pair(family);
        if unread {
            send_and_wait(other, one, b"bye");
        }
        sys::close(other).unwrap();
        await_exactly(one, ALL, ALL);
        assert_eq!(send(one), Ok(1));
        await_exactly(one, ALL, TORN);
        expect_no_names([one; 2]);
        if unread {
            expect_bytes(one, b"bye");
        }
        assert_eq!(receive(one), Ok(0));
        assert_eq!(socket_error(one), PIPE);
        assert_eq!(socket_error(one), Errno(0));
        assert_eq!(poll_one(one, ALL, 0), HUNG);
        assert_eq!(send(one), Err(PIPE));
    }
}
