//! Clients of a `TCP_DEFER_ACCEPT` listener one after another: nothing of one shows at the next.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno};

use crate::case::cases;
use crate::deferred::{LONG, accept_saying, nonblocking_deferring, reported, set_with};

cases! {
    families: [
        deferred_clients_do_not_inherit,
        deferred_clients_leave_their_sets,
        deferred_clients_are_slept_at,
        deferred_clients_connect_again,
    ];
}

/// Flags, a shut side and members of sets end with the client.
fn deferred_clients_do_not_inherit(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let set = sys::epoll_create().unwrap();
    for round in 0..12u8 {
        let client = connect_to(address);
        let flags = sys::fcntl(client, libc::F_GETFL, 0).unwrap();
        assert_eq!(flags & (libc::O_NONBLOCK | libc::O_APPEND), 0);
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, sys::IN | sys::OUT, 7).unwrap();
        let told = sys::epoll_wait(set, 8, PATIENCE_MILLISECONDS).unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].events, sys::OUT);
        let mut byte = [0];
        match round % 4 {
            0 => {
                sys::fcntl(client, libc::F_SETFL, libc::O_NONBLOCK | libc::O_APPEND).unwrap();
                assert_eq!(sys::recv(client, &mut byte, 0), Err(Errno(libc::EAGAIN)));
            }
            1 => {
                sys::shutdown(client, libc::SHUT_RD).unwrap();
                assert_eq!(sys::recv(client, &mut byte, 0), Ok(0));
            }
            _ => assert_eq!(
                sys::recv(client, &mut byte, libc::MSG_DONTWAIT),
                Err(Errno(libc::EAGAIN))
            ),
        }
        send_all(client, &[round]);
        let server = accept_saying(listening, &[round]);
        sys::close(client).unwrap();
        assert_eq!(reported(set, 0), 0);
        expect_end(server);
        sys::close(server).unwrap();
    }
}

/// A member whose number is closed stays as long as its file, and no longer.
fn deferred_clients_leave_their_sets(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    for speaks in [true, false, true] {
        let first = connect_to(address);
        let second = sys::dup(first).unwrap();
        let set = set_with(first, sys::OUT);
        sys::close(first).unwrap();
        assert_eq!(reported(set, PATIENCE_MILLISECONDS), 1);
        if speaks {
            send_all(second, b"one");
            let server = accept_saying(listening, b"one");
            assert_eq!(reported(set, PATIENCE_MILLISECONDS), 1);
            sys::close(server).unwrap();
        }
        sys::close(second).unwrap();
        assert_eq!(reported(set, 0), 0);
        if !speaks {
            await_events(listening, libc::POLLIN);
            sys::close(sys::accept(listening).unwrap()).unwrap();
        }
        let next = connect_to(address);
        assert_eq!(reported(set, 0), 0);
        send_all(next, b"two");
        accept_saying(listening, b"two");
        assert_eq!(reported(set, 0), 0);
    }
}

/// Who sleeps at a silent client hears of the answer to what another thread sends, also at a later client.
fn deferred_clients_are_slept_at(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    for round in 0..6u8 {
        let client = connect_to(address);
        let sleeper = (round % 3 > 0).then(|| {
            start_thread(move || {
                if round % 3 == 1 {
                    await_events(client, libc::POLLIN);
                }
                expect_bytes(client, b"answer");
            })
        });
        if let Some((_, task)) = &sleeper {
            await_asleep(*task);
        }
        send_all(client, b"word");
        let server = accept_saying(listening, b"word");
        send_all(server, b"answer");
        match sleeper {
            Some((thread, _)) => join_thread(thread),
            None => expect_bytes(client, b"answer"),
        }
        expect_alive(client, server);
    }
}

/// A client that connected without waiting hears once more how that went, also after bytes that met a closed listener.
/// Its address goes with the connection.
fn deferred_clients_connect_again(family: Family) {
    for is_closed in [false, true] {
        let (listening, address) = nonblocking_deferring(family, LONG);
        let client = tcp(family);
        set_nonblocking(client);
        let connected = sys::connect(client, address);
        assert_eq!(connected, Err(Errno(libc::EINPROGRESS)));
        await_events(client, libc::POLLOUT);
        if is_closed {
            sys::close(listening).unwrap();
            send_all(client, b"x");
            await_events(client, libc::POLLIN);
            let again = sys::connect(client, address);
            assert_eq!(again, Err(Errno(libc::ECONNRESET)));
            assert_eq!(sys::getpeername(client), Err(Errno(libc::ENOTCONN)));
            assert!(sys::getsockname(client).unwrap().ip().is_unspecified());
        } else {
            send_all(client, b"x");
            let server = accept_saying(listening, b"x");
            assert_eq!(sys::connect(client, address), Ok(()));
            let again = sys::connect(client, address);
            assert_eq!(again, Err(Errno(libc::EISCONN)));
            expect_alive(client, server);
        }
    }
}
