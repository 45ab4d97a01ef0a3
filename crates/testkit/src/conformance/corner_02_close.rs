//! Corner 2: close and shutdown while a thread sleeps in a call, and immediate reuse of the number.

use std::net::SocketAddr;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::helpers::{interrupt, interrupting, nothing};

cases! {
    families: [
        corner_02_close_while_blocked_recv,
        corner_02_close_and_reuse_while_blocked_recv,
        corner_02_close_of_one_number_while_blocked_recv,
        corner_02_close_of_one_number_and_a_signal,
        corner_02_shutdown_wakes_blocked_recv,
        corner_02_shutdown_wakes_blocked_send,
        corner_02_shutdown_wakes_blocked_poll,
        corner_02_shutdown_wakes_a_poll_for_its_hang_up,
        corner_02_shutdown_wakes_a_poll_for_room,
        corner_02_shutdown_wakes_blocked_accept,
        corner_02_close_listener_while_blocked_accept,
        corner_02_close_listener_while_polled,
        corner_02_close_while_blocked_poll,
        corner_02_close_while_blocked_select,
        corner_02_close_listener_while_blocked_poll,
        corner_02_close_in_a_handler_while_polled,
        corner_02_dup2_while_blocked_poll_keeps_it,
        corner_02_close_while_polled_and_fork,
        corner_02_close_many_threads_race,
        corner_02_close_twice,
        corner_02_close_while_in_epoll_wait,
        corner_02_close_of_one_number_while_blocked_accept,
        corner_02_number_of_a_blocked_accept,
    ];
}

fn corner_02_close_while_blocked_recv(family: Family) {
    let (client, server) = pair(family);
    let (thread, task) = start_thread(move || {
        let mut bytes = [0_u8; 8];
        (sys::recv(client, &mut bytes, 0), bytes)
    });
    await_asleep(task);
    sys::close(client).unwrap();
    // The sleeper holds the connection: no end of stream at the other side, and data arrives.
    expect_quiet(server, libc::POLLIN | libc::POLLRDHUP);
    send_all(server, b"late");
    let (size, bytes) = join_thread(thread);
    assert_eq!((size, &bytes[..4]), (Ok(4), &b"late"[..]));
    expect_end(server);
    let mut byte = [0_u8];
    assert_eq!(sys::recv(client, &mut byte, 0), Err(Errno(libc::EBADF)));
}

fn corner_02_close_and_reuse_while_blocked_recv(family: Family) {
    let (client, server) = pair(family);
    let (listening, address) = listener(family);
    let (thread, task) = start_thread(move || {
        let mut bytes = [0_u8; 8];
        (sys::recv(client, &mut bytes, 0), bytes)
    });
    await_asleep(task);
    sys::close(client).unwrap();
    let again = tcp(family);
    assert_eq!(again, client, "the lowest free number");
    sys::connect(again, address).unwrap();
    let accepted = sys::accept(listening).unwrap();
    // Bytes for the new connection do not reach the sleeper.
    send_all(accepted, b"new");
    expect_bytes(again, b"new");
    expect_quiet(server, libc::POLLIN | libc::POLLRDHUP);
    send_all(server, b"old");
    let (size, bytes) = join_thread(thread);
    assert_eq!((size, &bytes[..3]), (Ok(3), &b"old"[..]));
    expect_end(server);
    expect_alive(again, accepted);
}

fn corner_02_close_of_one_number_while_blocked_recv(family: Family) {
    let (client, server) = pair(family);
    let other = sys::dup(client).unwrap();
    let (thread, task) = start_thread(move || {
        let mut bytes = [0_u8; 8];
        (sys::recv(client, &mut bytes, 0), bytes)
    });
    await_asleep(task);
    sys::close(client).unwrap();
    send_all(server, b"late");
    let (size, bytes) = join_thread(thread);
    assert_eq!((size, &bytes[..4]), (Ok(4), &b"late"[..]));
    expect_alive(other, server);
    sys::close(other).unwrap();
    expect_end(server);
}

fn corner_02_close_of_one_number_and_a_signal(family: Family) {
    interrupting();
    // Also with a handler for urgent bytes.
    for handles in [false, true] {
        if handles {
            sys::handle_signal(libc::SIGURG, nothing, 0).unwrap();
        }
        let (client, server) = pair(family);
        let other = sys::dup(client).unwrap();
        let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 8], 0));
        await_asleep(task);
        sys::close(client).unwrap();
        assert_eq!(interrupt(thread, task), Err(Errno(libc::EINTR)));
        expect_alive(other, server);
        sys::close(other).unwrap();
        expect_end(server);
    }
}

fn corner_02_shutdown_wakes_blocked_recv(family: Family) {
    let (client, server) = pair(family);
    let (thread, task) = start_thread(move || sys::recv(client, &mut [0_u8; 8], 0));
    await_asleep(task);
    sys::shutdown(client, libc::SHUT_RDWR).unwrap();
    assert_eq!(join_thread(thread), Ok(0));
    expect_end(server);
}

fn corner_02_shutdown_wakes_blocked_send(family: Family) {
    sys::ignore_signal(libc::SIGPIPE).unwrap();
    let (client, _server) = small_pair(family);
    let (thread, task) = start_thread(move || {
        loop {
            if let Err(errno) = sys::send(client, &[0_u8; 256 * 1024], 0) {
                return errno;
            }
        }
    });
    await_asleep(task);
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    assert_eq!(join_thread(thread), Errno(libc::EPIPE));
}

fn corner_02_shutdown_wakes_blocked_poll(family: Family) {
    let (client, _server) = pair(family);
    let (thread, task) = start_thread(move || poll_one(client, libc::POLLIN, 10_000));
    await_asleep(task);
    sys::shutdown(client, libc::SHUT_RD).unwrap();
    assert_eq!(join_thread(thread) & libc::POLLIN, libc::POLLIN);
}

/// The peer has ended already: with this end the connection is over.
fn corner_02_shutdown_wakes_a_poll_for_its_hang_up(family: Family) {
    for how in [libc::SHUT_WR, libc::SHUT_RDWR] {
        let (client, server) = pair(family);
        let (thread, task) = start_thread(move || {
            sys::close(server).unwrap();
            poll_one(client, 0, -1)
        });
        await_asleep(task);
        sys::shutdown(client, how).unwrap();
        assert_eq!(join_thread(thread), libc::POLLHUP);
    }
}

fn corner_02_shutdown_wakes_a_poll_for_room(family: Family) {
    for how in [libc::SHUT_WR, libc::SHUT_RDWR] {
        let (client, _server) = pair(family);
        let _ = fill(client);
        let (thread, task) = start_thread(move || poll_one(client, libc::POLLOUT, -1));
        await_asleep(task);
        sys::shutdown(client, how).unwrap();
        assert_eq!(join_thread(thread) & libc::POLLOUT, libc::POLLOUT);
    }
}

fn corner_02_shutdown_wakes_blocked_accept(family: Family) {
    let (listening, address) = listener(family);
    let (thread, task) = start_thread(move || sys::accept(listening));
    await_asleep(task);
    sys::shutdown(listening, libc::SHUT_RD).unwrap();
    assert_eq!(join_thread(thread), Err(Errno(libc::EINVAL)));
    // The socket no longer listens, and can listen again.
    assert_eq!(
        sys::connect(tcp(family), address),
        Err(Errno(libc::ECONNREFUSED))
    );
    assert_eq!(sys::accept(listening), Err(Errno(libc::EINVAL)));
    sys::listen(listening, 8).unwrap();
    let address = sys::getsockname(listening).unwrap();
    let client = connect_to(address);
    expect_alive(client, sys::accept(listening).unwrap());
}

/// Closes a listener while another thread waits in its accept: that keeps it for one more connection.
pub(crate) fn close_while_accepting(listening: Descriptor, address: SocketAddr) {
    let (thread, task) = start_thread(move || sys::accept(listening));
    await_asleep(task);
    sys::close(listening).unwrap();
    let client = connect_to(address);
    let accepted = join_thread(thread).expect("accept");
    expect_alive(client, accepted);
}

fn corner_02_close_listener_while_blocked_accept(family: Family) {
    let (listening, address) = listener(family);
    close_while_accepting(listening, address);
    eventually("the port refuses", || {
        let socket = tcp(family);
        let answer = sys::connect(socket, address);
        sys::close(socket).unwrap();
        answer == Err(Errno(libc::ECONNREFUSED))
    });
}

fn corner_02_close_listener_while_polled(family: Family) {
    let (listening, address) = listener(family);
    let set = sys::epoll_create().unwrap();
    let events = sys::IN;
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, events, 1).unwrap();
    sys::close(listening).unwrap();
    assert_eq!(
        sys::connect(tcp(family), address),
        Err(Errno(libc::ECONNREFUSED))
    );
    assert_eq!(sys::epoll_wait(set, 4, QUIET_MILLISECONDS), Ok(Vec::new()));
}

/// The poll keeps the connection until it returns, and then looks it up by number.
fn corner_02_close_while_blocked_poll(family: Family) {
    for wakes in [false, true] {
        let (client, server) = pair(family);
        let limit = if wakes { 10_000 } else { 400 };
        let (thread, task) = start_thread(move || poll_one(client, libc::POLLIN, limit));
        await_asleep(task);
        sys::close(client).unwrap();
        expect_quiet(server, libc::POLLIN | libc::POLLRDHUP);
        if wakes {
            send_all(server, b"wake up");
        }
        assert_eq!(join_thread(thread), libc::POLLNVAL);
        let events = await_events(server, libc::POLLIN | libc::POLLRDHUP);
        let reset = events & libc::POLLERR != 0;
        // Unread bytes turn the close into a reset.
        assert_eq!(reset, wakes, "{events:#x}");
    }
}

fn corner_02_close_while_blocked_select(family: Family) {
    let (client, server) = pair(family);
    let (thread, task) = start_thread(move || {
        let mut set = sys::Set::of(&[client]);
        sys::select(client, Some(&mut set), None, None, 10_000)
    });
    await_asleep(task);
    sys::close(client).unwrap();
    expect_quiet(server, libc::POLLIN | libc::POLLRDHUP);
    send_all(server, b"wake up");
    join_thread(thread).unwrap();
    await_events(server, libc::POLLERR);
}

/// The listener listens as long as it is polled.
fn corner_02_close_listener_while_blocked_poll(family: Family) {
    let (listening, address) = listener(family);
    // Before the number of the listener is free.
    let client = tcp(family);
    let (thread, task) = start_thread(move || poll_one(listening, libc::POLLIN, 10_000));
    await_asleep(task);
    sys::close(listening).unwrap();
    sys::connect(client, address).unwrap();
    assert_eq!(join_thread(thread), libc::POLLNVAL);
    await_events(client, libc::POLLERR);
    eventually("the port refuses", || {
        let socket = tcp(family);
        let answer = sys::connect(socket, address);
        sys::close(socket).unwrap();
        answer == Err(Errno(libc::ECONNREFUSED))
    });
}

static CLOSED: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(-1);

extern "C" fn close_it(_: libc::c_int) {
    let client = CLOSED.swap(-1, std::sync::atomic::Ordering::SeqCst);
    if client >= 0 {
        sys::close(client).unwrap();
    }
    // The poll has not gone on when its peer looks, as if it did not return.
    std::thread::sleep(std::time::Duration::from_millis(400));
}

/// The handler has interrupted the poll, which then keeps no socket any more.
fn corner_02_close_in_a_handler_while_polled(family: Family) {
    let (client, server) = pair(family);
    sys::handle_signal(libc::SIGUSR1, close_it, 0).unwrap();
    CLOSED.store(client, std::sync::atomic::Ordering::SeqCst);
    let (thread, task) = start_thread(move || {
        let mut entry = [libc::pollfd {
            fd: client,
            events: libc::POLLIN,
            revents: 0,
        }];
        sys::poll(&mut entry, 10_000)
    });
    await_asleep(task);
    sys::signal_thread(task, libc::SIGUSR1).unwrap();
    let start = std::time::Instant::now();
    expect_end(server);
    assert!(start.elapsed() < std::time::Duration::from_millis(300));
    assert_eq!(join_thread(thread), Err(Errno(libc::EINTR)));
}

fn corner_02_dup2_while_blocked_poll_keeps_it(family: Family) {
    let (client, server) = pair(family);
    let (other_client, other_server) = pair(family);
    let (thread, task) = start_thread(move || poll_one(client, libc::POLLIN, 600));
    await_asleep(task);
    assert_eq!(sys::dup2(other_client, client), Ok(client));
    expect_quiet(server, libc::POLLIN | libc::POLLRDHUP);
    assert_eq!(join_thread(thread), 0);
    expect_end(server);
    expect_alive(client, other_server);
}

/// A child does not inherit a closed socket that is only polled.
fn corner_02_close_while_polled_and_fork(family: Family) {
    let (client, server) = pair(family);
    let go = Baton::new();
    let (thread, task) = start_thread(move || poll_one(client, libc::POLLIN, 400));
    await_asleep(task);
    sys::close(client).unwrap();
    let child = fork_child(|| go.take());
    assert_eq!(join_thread(thread), libc::POLLNVAL);
    expect_end(server);
    go.pass();
    child.join();
}

fn corner_02_close_many_threads_race(family: Family) {
    // Threads read and close connections whose numbers the main thread uses again at once: each
    // must see its own stream only.
    let (listening, address) = listener(family);
    for round in 0..40_u8 {
        let client = connect_to(address);
        let server = sys::accept(listening).unwrap();
        let (thread, _) = start_thread(move || {
            let bytes = receive_to_end(server);
            sys::close(server).unwrap();
            bytes
        });
        send_all(client, &[round; 100]);
        sys::close(client).unwrap();
        assert_eq!(join_thread(thread), vec![round; 100]);
    }
}

fn corner_02_close_twice(family: Family) {
    let (client, server) = pair(family);
    sys::close(client).unwrap();
    assert_eq!(sys::close(client), Err(Errno(libc::EBADF)));
    assert_eq!(
        sys::send(client, b"x", libc::MSG_NOSIGNAL),
        Err(Errno(libc::EBADF))
    );
    assert_eq!(poll_one(client, libc::POLLIN, 0), libc::POLLNVAL);
    expect_end(server);
}

fn corner_02_close_while_in_epoll_wait(family: Family) {
    let (client, server) = pair(family);
    let [reader, writer] = sys::pipe(0).unwrap();
    let set = sys::epoll_create().unwrap();
    let events = sys::IN;
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, events, 1).unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, reader, events, 2).unwrap();
    let (thread, task) = start_thread(move || sys::epoll_wait(set, 4, 10_000));
    await_asleep(task);
    sys::close(client).unwrap();
    expect_end(server);
    sys::write(writer, b"x").unwrap();
    let reported = join_thread(thread).unwrap();
    assert_eq!(
        reported.iter().map(|event| event.data).collect::<Vec<_>>(),
        [2]
    );
}

/// The accept goes on with the listener, which still has another number.
fn corner_02_close_of_one_number_while_blocked_accept(family: Family) {
    interrupting();
    let (listening, address) = listener(family);
    for ends_by_signal in [true, false] {
        let copy = sys::dup(listening).unwrap();
        let (thread, task) = start_thread(move || sys::accept(copy));
        await_asleep(task);
        sys::close(copy).unwrap();
        if ends_by_signal {
            assert_eq!(interrupt(thread, task), Err(Errno(libc::EINTR)));
        } else {
            let client = connect_to(address);
            expect_alive(client, join_thread(thread).unwrap());
        }
    }
}

/// The number that a waiting accept will return is not open to calls on sockets and files. Such calls do not affect the
/// listener.
fn corner_02_number_of_a_blocked_accept(family: Family) {
    let (listening, address) = listener(family);
    let number = tcp(family);
    let is_free = Baton::new();
    let (thread, task) = start_thread(move || {
        is_free.take();
        sys::accept(listening)
    });
    let state = TaskState::of(task).unwrap();
    // From here on nothing else may take the number.
    sys::close(number).unwrap();
    is_free.pass();
    state.await_asleep();
    let bad = Errno(libc::EBADF);
    assert_eq!(sys::write(number, b"x"), Err(bad));
    assert_eq!(sys::recv(number, &mut [0], 0), Err(bad));
    assert_eq!(sys::shutdown(number, libc::SHUT_RDWR), Err(bad));
    assert_eq!(
        crate::corner_12_dissolve::connect_unspecified(number),
        Err(bad)
    );
    assert_eq!(sys::getsockname(number), Err(bad));
    let busy = Err(Errno(libc::EBUSY));
    assert_eq!(sys::dup2(listening, number), busy);
    let client = connect_to(address);
    let accepted = join_thread(thread).unwrap();
    assert_eq!(accepted, number);
    expect_alive(client, accepted);
}
