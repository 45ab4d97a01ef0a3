//! Corner 10: half-close, end of stream, resets, and what poll and epoll report for each.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, ERR, ET, Errno, HUP, IN, OUT, RDHUP};

use crate::case::cases;

cases! {
    families: [
        corner_10_poll_of_each_state,
        corner_10_epoll_of_each_state,
        corner_10_select_of_each_state,
        corner_10_half_close_peer_goes_on_for_long,
        corner_10_shut_rd_then_data,
        corner_10_shut_rd_under_a_sleeper,
        corner_10_shut_rdwr,
        corner_10_shutdown_twice,
        corner_10_shutdown_wakes_peer_epoll,
        corner_10_reset_keeps_buffered_data,
        corner_10_reset_error_reported_once,
        corner_10_reset_so_error_cleared_once,
        corner_10_reset_wakes_blocked_recv,
        corner_10_reset_wakes_blocked_send,
        corner_10_reset_wakes_blocked_poll,
        corner_10_reset_then_send,
        corner_10_close_with_unread_data_resets,
        corner_10_close_with_unread_data_peer_reads_first,
        corner_10_send_after_peer_closed,
        corner_10_recv_after_local_shut_rd,
        corner_10_sigpipe_kills,
        corner_10_sigpipe_handler_runs,
        corner_10_sigpipe_by_a_send_that_connects,
        corner_10_sigpipe_not_with_nosignal,
        corner_10_sigpipe_by_write_and_sendfile,
        corner_10_end_of_stream_stays,
        corner_10_fin_behind_unread_data,
    ];
    places: [
        corner_10_half_close_request_answer,
        corner_10_both_half_close,
        corner_10_close_is_end_of_stream,
    ];
}

const ALL: libc::c_short = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;

fn corner_10_half_close_request_answer(family: Family, place: Place) {
    converse(
        family,
        place,
        |server| {
            assert_eq!(receive_to_end(server).len(), 100_000);
            send_pattern(server, 0, 200_000);
            sys::close(server).unwrap();
        },
        |client| {
            send_pattern(client, 0, 100_000);
            sys::shutdown(client, libc::SHUT_WR).unwrap();
            let answer = receive_to_end(client);
            assert_eq!(
                (answer.len(), pattern_mismatch(0, &answer)),
                (200_000, None)
            );
            sys::close(client).unwrap();
        },
    );
}

fn corner_10_both_half_close(family: Family, place: Place) {
    let end = |socket: Descriptor| {
        send_all(socket, b"last words");
        sys::shutdown(socket, libc::SHUT_WR).unwrap();
        assert_eq!(receive_to_end(socket), b"last words");
        sys::close(socket).unwrap();
    };
    converse(family, place, end, end);
}

fn corner_10_close_is_end_of_stream(family: Family, place: Place) {
    converse(
        family,
        place,
        |server| {
            send_all(server, b"bye");
            sys::close(server).unwrap();
        },
        |client| {
            assert_eq!(receive_to_end(client), b"bye");
            sys::close(client).unwrap();
        },
    );
}

fn corner_10_poll_of_each_state(family: Family) {
    let fresh = tcp(family);
    assert_eq!(
        poll_one(fresh, ALL, 0),
        libc::POLLOUT | libc::POLLHUP,
        "not connected"
    );
    let (client, server) = pair(family);
    assert_eq!(poll_one(client, ALL, 0), libc::POLLOUT, "idle");
    send_all(server, b"x");
    await_exactly(client, ALL, libc::POLLIN | libc::POLLOUT);
    expect_bytes(client, b"x");
    assert_eq!(poll_one(client, ALL, 0), libc::POLLOUT, "idle again");
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    await_exactly(client, ALL, libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP);
    expect_end(client);
    assert_eq!(poll_one(client, ALL, 0), ALL, "end of stream read");
    assert_eq!(
        poll_one(server, ALL, 0),
        libc::POLLOUT,
        "half-closed by ourselves"
    );
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    await_exactly(client, ALL, ALL | libc::POLLHUP);
    await_exactly(server, ALL, ALL | libc::POLLHUP);
    assert_eq!(
        poll_one(client, 0, 0),
        libc::POLLHUP,
        "not asked for and told"
    );
}

fn corner_10_epoll_of_each_state(family: Family) {
    let events = |socket: Descriptor, expected: u32| {
        let set = sys::epoll_create().unwrap();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, socket, IN | OUT | RDHUP, 1).unwrap();
        eventually("the events", || {
            let reported = sys::epoll_wait(set, 4, 0).unwrap();
            reported.first().map_or(0, |event| event.events) == expected
        });
        sys::close(set).unwrap();
    };
    events(tcp(family), OUT | HUP);
    let (client, server) = pair(family);
    events(client, OUT);
    send_all(server, b"x");
    events(client, IN | OUT);
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    events(client, IN | OUT | RDHUP);
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    events(client, IN | OUT | RDHUP | HUP);
    events(server, IN | OUT | RDHUP | HUP);
    let (client, server) = pair(family);
    close_with_reset(server);
    events(client, IN | OUT | RDHUP | ERR | HUP);
    assert_eq!(socket_error(client), Errno(libc::ECONNRESET));
    events(client, IN | OUT | RDHUP | HUP);
}

fn corner_10_select_of_each_state(family: Family) {
    let look = |socket: Descriptor| {
        let mut read = sys::Set::of(&[socket]);
        let mut write = sys::Set::of(&[socket]);
        let mut except = sys::Set::of(&[socket]);
        sys::select(
            socket,
            Some(&mut read),
            Some(&mut write),
            Some(&mut except),
            0,
        )
        .unwrap();
        (read.has(socket), write.has(socket), except.has(socket))
    };
    let (client, server) = pair(family);
    assert_eq!(look(client), (false, true, false));
    send_all(server, b"x");
    await_events(client, libc::POLLIN);
    assert_eq!(look(client), (true, true, false));
    expect_bytes(client, b"x");
    assert_eq!(look(client), (false, true, false));
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    await_events(client, libc::POLLIN);
    assert_eq!(look(client), (true, true, false));
    let (client, server) = pair(family);
    close_with_reset(server);
    await_events(client, libc::POLLIN);
    assert_eq!(look(client), (true, true, false));
    let (listening, address) = listener(family);
    assert_eq!(look(listening), (false, false, false));
    let _client = connect_to(address);
    await_events(listening, libc::POLLIN);
    assert_eq!(look(listening), (true, false, false));
}

fn corner_10_half_close_peer_goes_on_for_long(family: Family) {
    let (client, server) = pair(family);
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    expect_end(server);
    for round in 0..200_usize {
        send_pattern(server, round * 1000, 1000);
        expect_pattern(client, round * 1000, 1000);
    }
    sys::close(server).unwrap();
    expect_end(client);
}

fn corner_10_shut_rd_then_data(family: Family) {
    // Linux: after SHUT_RD an empty receive returns 0 at once, yet data that arrives is delivered.
    let (client, server) = pair(family);
    sys::shutdown(client, libc::SHUT_RD).unwrap();
    assert_eq!(sys::recv(client, &mut [0_u8; 4], 0), Ok(0));
    send_all(client, b"still writing");
    expect_bytes(server, b"still writing");
    send_all(server, b"more");
    eventually("the data is there", || {
        sys::ioctl_int(client, libc::FIONREAD, 0) == Ok(4)
    });
    let mut bytes = [0_u8; 4];
    assert_eq!(sys::recv(client, &mut bytes, 0), Ok(4));
    assert_eq!(&bytes, b"more");
    assert_eq!(sys::recv(client, &mut bytes, 0), Ok(0));
}

/// A reader that is woken by SHUT_RD goes on writing, also when the listener has closed, and is notified of the peer's
/// end.
fn corner_10_shut_rd_under_a_sleeper(family: Family) {
    for closes_listener in [false, true] {
        let (listening, address) = listener(family);
        let client = connect_to(address);
        let server = sys::accept(listening).unwrap();
        if closes_listener {
            sys::close(listening).unwrap();
        }
        let (thread, task) = start_thread(move || sys::recv(server, &mut [0], 0));
        await_asleep(task);
        sys::shutdown(server, libc::SHUT_RD).unwrap();
        assert_eq!(join_thread(thread), Ok(0));
        for text in [b"one", b"two"] {
            send_all(server, text);
            expect_bytes(client, text);
        }
        expect_quiet(server, libc::POLLHUP);
        sys::close(client).unwrap();
        eventually("its end is noticed", || {
            sys::send(server, b"x", libc::MSG_NOSIGNAL).is_err()
        });
    }
}

fn corner_10_shut_rdwr(family: Family) {
    let (client, server) = pair(family);
    sys::shutdown(client, libc::SHUT_RDWR).unwrap();
    assert_eq!(sys::recv(client, &mut [0_u8; 4], 0), Ok(0));
    assert_eq!(
        sys::send(client, b"x", libc::MSG_NOSIGNAL),
        Err(Errno(libc::EPIPE))
    );
    expect_end(server);
    assert_ne!(poll_one(client, ALL, 0) & libc::POLLHUP, 0);
    sys::close(server).unwrap();
}

fn corner_10_shutdown_twice(family: Family) {
    let (client, server) = pair(family);
    assert_eq!(sys::shutdown(client, libc::SHUT_WR), Ok(()));
    assert_eq!(sys::shutdown(client, libc::SHUT_WR), Ok(()));
    assert_eq!(sys::shutdown(client, 7), Err(Errno(libc::EINVAL)));
    expect_end(server);
    assert_eq!(
        sys::shutdown(tcp(family), libc::SHUT_WR),
        Err(Errno(libc::ENOTCONN))
    );
}

fn corner_10_shutdown_wakes_peer_epoll(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, RDHUP | ET, 1).unwrap();
    let (thread, task) = start_thread(move || sys::epoll_wait(set, 4, 10_000).unwrap());
    await_asleep(task);
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    assert_eq!(
        join_thread(thread),
        [sys::Event {
            data: 1,
            events: RDHUP
        }]
    );
}

fn corner_10_reset_keeps_buffered_data(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"before the reset");
    await_events(client, libc::POLLIN);
    close_with_reset(server);
    await_events(client, libc::POLLERR);
    expect_bytes(client, b"before the reset");
    assert_eq!(
        sys::recv(client, &mut [0_u8; 4], 0),
        Err(Errno(libc::ECONNRESET))
    );
    assert_eq!(sys::recv(client, &mut [0_u8; 4], 0), Ok(0));
}

fn corner_10_reset_error_reported_once(family: Family) {
    let (client, server) = pair(family);
    close_with_reset(server);
    await_events(client, libc::POLLERR);
    assert_eq!(
        sys::recv(client, &mut [0_u8; 4], 0),
        Err(Errno(libc::ECONNRESET))
    );
    assert_eq!(sys::recv(client, &mut [0_u8; 4], 0), Ok(0));
    assert_eq!(socket_error(client), Errno(0));
    assert_eq!(
        sys::send(client, b"x", libc::MSG_NOSIGNAL),
        Err(Errno(libc::EPIPE))
    );
    assert_eq!(poll_one(client, ALL, 0), ALL | libc::POLLHUP);
    assert_eq!(sys::getpeername(client), Err(Errno(libc::ENOTCONN)));
}

fn corner_10_reset_so_error_cleared_once(family: Family) {
    let (client, server) = pair(family);
    close_with_reset(server);
    await_exactly(client, ALL, ALL | libc::POLLERR | libc::POLLHUP);
    assert_eq!(socket_error(client), Errno(libc::ECONNRESET));
    assert_eq!(socket_error(client), Errno(0));
    assert_eq!(poll_one(client, ALL, 0), ALL | libc::POLLHUP);
    assert_eq!(sys::recv(client, &mut [0_u8; 4], 0), Ok(0));
}

fn corner_10_reset_wakes_blocked_recv(family: Family) {
    let (client, server) = pair(family);
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 8], 0));
    await_asleep(task);
    close_with_reset(server);
    assert_eq!(join_thread(thread), Err(Errno(libc::ECONNRESET)));
}

fn corner_10_reset_wakes_blocked_send(family: Family) {
    let (client, server) = small_pair(family);
    let (thread, task) = start_thread(move || {
        loop {
            if let Err(errno) = sys::send(client, &[0_u8; 256 * 1024], libc::MSG_NOSIGNAL) {
                return errno;
            }
        }
    });
    await_asleep(task);
    close_with_reset(server);
    let errno = join_thread(thread);
    assert!(
        [libc::ECONNRESET, libc::EPIPE].contains(&errno.0),
        "{errno:?}"
    );
}

fn corner_10_reset_wakes_blocked_poll(family: Family) {
    let (client, server) = pair(family);
    let (thread, task) = start_thread(move || poll_one(client, 0, 10_000));
    await_asleep(task);
    close_with_reset(server);
    assert_eq!(join_thread(thread), libc::POLLERR | libc::POLLHUP);
}

fn corner_10_reset_then_send(family: Family) {
    let (client, server) = pair(family);
    close_with_reset(server);
    await_events(client, libc::POLLERR);
    let send = || sys::send(client, b"x", libc::MSG_NOSIGNAL);
    assert_eq!(send(), Err(Errno(libc::ECONNRESET)));
    assert_eq!(send(), Err(Errno(libc::EPIPE)));
    assert_eq!(send(), Err(Errno(libc::EPIPE)));
}

fn corner_10_close_with_unread_data_resets(family: Family) {
    let (client, server) = pair(family);
    send_all(client, b"never read");
    await_events(server, libc::POLLIN);
    sys::close(server).unwrap();
    await_exactly(client, ALL, ALL | libc::POLLERR | libc::POLLHUP);
    assert_eq!(
        sys::recv(client, &mut [0_u8; 4], 0),
        Err(Errno(libc::ECONNRESET))
    );
}

fn corner_10_close_with_unread_data_peer_reads_first(family: Family) {
    let (client, server) = pair(family);
    send_all(client, b"never read");
    await_events(server, libc::POLLIN);
    send_all(server, b"an answer");
    await_events(client, libc::POLLIN);
    sys::close(server).unwrap();
    await_events(client, libc::POLLERR);
    expect_bytes(client, b"an answer");
    assert_eq!(
        sys::recv(client, &mut [0_u8; 4], 0),
        Err(Errno(libc::ECONNRESET))
    );
}

fn corner_10_send_after_peer_closed(family: Family) {
    let (client, server) = pair(family);
    sys::close(server).unwrap();
    expect_end(client);
    // The first send is taken. The answer to it is a reset.
    assert_eq!(sys::send(client, b"x", libc::MSG_NOSIGNAL), Ok(1));
    await_events(client, libc::POLLERR);
    assert_eq!(
        sys::send(client, b"x", libc::MSG_NOSIGNAL),
        Err(Errno(libc::EPIPE))
    );
    assert_eq!(sys::recv(client, &mut [0_u8; 4], 0), Ok(0));
}

fn corner_10_recv_after_local_shut_rd(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"already here");
    await_events(client, libc::POLLIN);
    sys::shutdown(client, libc::SHUT_RD).unwrap();
    expect_bytes(client, b"already here");
    assert_eq!(sys::recv(client, &mut [0_u8; 4], 0), Ok(0));
    // The peer does not notice.
    assert_eq!(poll_one(server, ALL, QUIET_MILLISECONDS), libc::POLLOUT);
}

fn corner_10_sigpipe_kills(family: Family) {
    let child = fork_child(|| {
        sys::default_signal(libc::SIGPIPE).unwrap();
        let (client, _server) = pair(family);
        sys::shutdown(client, libc::SHUT_WR).unwrap();
        let _ = sys::send(client, b"x", 0);
    });
    assert_eq!(child.wait(), Ended::Signal(libc::SIGPIPE));
}

static PIPE_SIGNALS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    PIPE_SIGNALS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

fn signals() -> usize {
    PIPE_SIGNALS.swap(0, std::sync::atomic::Ordering::Relaxed)
}

fn corner_10_sigpipe_handler_runs(family: Family) {
    sys::handle_signal(libc::SIGPIPE, count_signal, 0).unwrap();
    let (client, _server) = pair(family);
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    assert_eq!(sys::send(client, b"x", 0), Err(Errno(libc::EPIPE)));
    assert_eq!(signals(), 1);
    assert_eq!(sys::write(client, b"x"), Err(Errno(libc::EPIPE)));
    assert_eq!(signals(), 1);
    assert_eq!(sys::writev(client, &[b"x", b"y"]), Err(Errno(libc::EPIPE)));
    assert_eq!(signals(), 1);
    assert_eq!(
        sys::send_vector(client, &[b"x"], 0),
        Err(Errno(libc::EPIPE))
    );
    assert_eq!(signals(), 1);
}

fn corner_10_sigpipe_by_a_send_that_connects(family: Family) {
    sys::handle_signal(libc::SIGPIPE, count_signal, 0).unwrap();
    let (listening, address) = listener(family);
    let client = tcp_nonblocking(family);
    let connected = sys::connect(client, address);
    assert_eq!(connected, Err(Errno(libc::EINPROGRESS)));
    let server = sys::accept(listening).unwrap();
    sys::close(server).unwrap();
    await_events(client, libc::POLLRDHUP);
    send_all(client, b"late");
    await_events(client, libc::POLLERR);
    let sent = sys::send(client, b"x", libc::MSG_FASTOPEN);
    assert_eq!(sent, Err(Errno(libc::EPIPE)));
    assert_eq!(signals(), 1);
}

fn corner_10_sigpipe_not_with_nosignal(family: Family) {
    sys::handle_signal(libc::SIGPIPE, count_signal, 0).unwrap();
    let (client, _server) = pair(family);
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    let flags = libc::MSG_NOSIGNAL;
    assert_eq!(sys::send(client, b"x", flags), Err(Errno(libc::EPIPE)));
    assert_eq!(
        sys::send_vector(client, &[b"x"], flags),
        Err(Errno(libc::EPIPE))
    );
    assert_eq!(
        sys::sendmmsg(client, &[b"x"], flags),
        Err(Errno(libc::EPIPE))
    );
    assert_eq!(signals(), 0);
    // No signal for the reading side either, nor for a connection reset error.
    let (client, server) = pair(family);
    close_with_reset(server);
    await_events(client, libc::POLLERR);
    assert_eq!(sys::send(client, b"x", 0), Err(Errno(libc::ECONNRESET)));
    assert_eq!(signals(), 0);
    assert_eq!(sys::send(client, b"x", 0), Err(Errno(libc::EPIPE)));
    assert_eq!(signals(), 1);
}

fn corner_10_sigpipe_by_write_and_sendfile(family: Family) {
    sys::handle_signal(libc::SIGPIPE, count_signal, 0).unwrap();
    let file = file_of(&pattern(0, 1000));
    let (client, _server) = pair(family);
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    assert_eq!(sys::write(client, b"x"), Err(Errno(libc::EPIPE)));
    assert_eq!(signals(), 1);
    assert_eq!(
        sys::sendfile(client, file, None, 1000),
        Err(Errno(libc::EPIPE))
    );
    let _ = signals();
}

fn corner_10_end_of_stream_stays(family: Family) {
    let (client, server) = pair(family);
    sys::close(server).unwrap();
    for _ in 0..5 {
        expect_end(client);
        assert_eq!(sys::read(client, &mut [0_u8; 4]), Ok(0));
        assert_eq!(sys::recv(client, &mut [0_u8; 4], libc::MSG_PEEK), Ok(0));
        assert_eq!(sys::recv(client, &mut [0_u8; 4], libc::MSG_DONTWAIT), Ok(0));
    }
    assert_eq!(socket_error(client), Errno(0));
}

fn corner_10_fin_behind_unread_data(family: Family) {
    let (client, server) = pair(family);
    send_pattern(server, 0, 30_000);
    sys::close(server).unwrap();
    await_exactly(client, ALL, ALL);
    expect_pattern(client, 0, 29_999);
    assert_eq!(poll_one(client, ALL, 0), ALL);
    expect_pattern(client, 29_999, 1);
    expect_end(client);
}
