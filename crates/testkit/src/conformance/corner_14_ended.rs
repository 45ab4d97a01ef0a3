//! Corner 14, calls on a connection that has ended, in one direction or both.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::helpers::{leave_one_number, send_and_wait};

cases! {
    families: [
        corner_14_ended_recvmmsg,
        corner_14_ended_recvmmsg_tells_errors_first,
        corner_14_ended_recvmmsg_of_many,
        corner_14_ended_without_a_word,
        corner_14_ended_before_it_was_accepted,
        corner_14_ended_nothing_to_send,
        corner_14_ended_bad_buffers_to_send,
        corner_14_ended_bind,
        corner_14_ended_bind_before_the_end,
        corner_14_ended_bind_to_the_port_of_another_connection,
        corner_14_ended_bind_takes_no_number,
        corner_14_ended_bind_without_a_port,
        corner_14_ended_bind_keeps_what_the_first_packet_said,
        corner_14_ended_connect_again,
        corner_14_ended_bind_after_a_bind_to_any_port,
        corner_14_ended_shut_before_it_was_told,
        corner_14_ended_recvmmsg_leaves_an_error,
        corner_14_ended_recvmmsg_leaves_a_reset,
        corner_14_ended_recvmmsg_leaves_an_error_after_a_reset,
        corner_14_ended_reset_after_shutdown_of_reading,
        corner_14_ended_unacknowledged_bytes,
        corner_14_ended_unacknowledged_bytes_that_were_held,
    ];
}

const PIPE: Errno = Errno(libc::EPIPE);
const FAULT: Errno = Errno(libc::EFAULT);
const INVALID: Errno = Errno(libc::EINVAL);
const RESET: Errno = Errno(libc::ECONNRESET);
const QUIET: libc::c_int = libc::MSG_NOSIGNAL;

fn three(socket: Descriptor, flags: libc::c_int) -> sys::Outcome<Vec<u32>> {
    let (mut one, mut two, mut three) = ([0_u8; 1], [0_u8; 1], [0_u8; 1]);
    sys::recvmmsg(socket, &mut [&mut one, &mut two, &mut three], flags)
}

fn corner_14_ended_recvmmsg(family: Family) {
    let (client, server) = pair(family);
    send_all(server, b"ab");
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    await_events(client, libc::POLLRDHUP);
    assert_eq!(three(client, 0), Ok(vec![1, 1, 0]));
    assert_eq!(three(client, 0), Ok(vec![0, 0, 0]));
}

fn corner_14_ended_recvmmsg_tells_errors_first(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(server, client, b"ab");
    close_with_reset(server);
    await_events(client, libc::POLLERR);
    assert_eq!(three(client, 0), Err(RESET));
    assert_eq!(socket_error(client), Errno(0));
    let (client, server) = pair(family);
    sys::close(server).unwrap();
    await_events(client, libc::POLLRDHUP);
    send_all(client, b"late");
    await_events(client, libc::POLLERR);
    assert_eq!(three(client, 0), Err(PIPE));
    assert_eq!(three(client, 0), Ok(vec![0, 0, 0]));
}

fn corner_14_ended_recvmmsg_of_many(family: Family) {
    let (client, server) = pair(family);
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    await_events(client, libc::POLLRDHUP);
    let mut rooms = vec![[0_u8; 1]; 2000];
    let mut parts: Vec<_> = rooms.iter_mut().map(|room| &mut room[..]).collect();
    assert_eq!(sys::recvmmsg(client, &mut parts, 0), Ok(vec![0; 2000]));
}

/// A killed peer sends no message. A look that does not wait finds the end all the same, also one that has room to
/// report it.
fn corner_14_ended_without_a_word(family: Family) {
    let (child, client, _) = forked_server(family, |connection| {
        expect_bytes(connection, b"x");
        send_all(connection, b"y");
        std::thread::sleep(std::time::Duration::from_secs(30));
    });
    send_all(client, b"x");
    expect_bytes(client, b"y");
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, sys::IN | sys::OUT, 1).unwrap();
    assert_eq!(sys::epoll_wait(set, 1, 0).unwrap()[0].events, sys::OUT);
    child.kill();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let reported = sys::epoll_wait(set, 1, 0).unwrap();
    assert_eq!(reported[0].events, sys::IN | sys::OUT);
    assert!(sys::getpeername(client).is_ok());
}

/// The first look at a connection whose listener was killed, and its last one.
fn corner_14_ended_before_it_was_accepted(family: Family) {
    let ready = Baton::new();
    let child = fork_child(|| {
        let (_listening, address) = listener(family);
        ready.send(u64::from(address.port()));
        std::thread::sleep(std::time::Duration::from_secs(30));
    });
    let address = family.loopback(u16::try_from(ready.receive()).unwrap());
    let [named, bound, shut, asked, told, deaf, waiting] = [(); 7].map(|()| connect_to(address));
    sys::shutdown(deaf, libc::SHUT_RD).unwrap();
    child.kill();
    // Who sleeps is woken at once. A relay tells one connection after the other.
    await_events(waiting, libc::POLLHUP);
    std::thread::sleep(std::time::Duration::from_millis(50));
    let unconnected = Errno(libc::ENOTCONN);
    assert_eq!(sys::getpeername(named), Err(unconnected));
    assert_eq!(sys::bind(bound, family.loopback(0)), Ok(()));
    assert_eq!(sys::shutdown(shut, libc::SHUT_RDWR), Err(unconnected));
    assert_eq!(sys::recv(deaf, &mut [0_u8; 4], 0), Err(RESET));
    // TCP_CLOSE.
    let is_closed = || sys::option::<u8>(asked, libc::IPPROTO_TCP, libc::TCP_INFO) == Ok(7);
    eventually("its state says so", is_closed);
    eventually("its error says so", || socket_error(told) == RESET);
}

fn corner_14_ended_nothing_to_send(family: Family) {
    let (client, _server) = pair(family);
    sys::ignore_signal(libc::SIGPIPE).unwrap();
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    assert_eq!(sys::send(client, b"", QUIET), Err(PIPE));
    assert_eq!(sys::write(client, b""), Err(PIPE));
    assert_eq!(sys::send_vector(client, &[b""], QUIET), Err(PIPE));
    // The peer is not notified of these.
    assert_eq!(sys::writev(client, &[b"", b""]), Ok(0));
    assert_eq!(sys::pwritev2(client, &[b""], 0), Ok(0));
    assert_eq!(sys::sendfile(client, file_of(b""), None, 9), Ok(0));
}

fn corner_14_ended_bad_buffers_to_send(family: Family) {
    let (client, _server) = pair(family);
    let _near = sys::pwritev2(client, &[b""], 0);
    sys::ignore_signal(libc::SIGPIPE).unwrap();
    let bad = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(8),
        iov_len: 5,
    };
    let list = [bad, bad];
    let errno_of = |answer: isize| {
        assert_eq!(answer, -1);
        sys::last_errno()
    };
    let all = |expected| {
        let mut message = sys::empty_message();
        message.msg_iov = list.as_ptr().cast_mut();
        message.msg_iovlen = 2;
        // SAFETY: the kernel checks the pointers and refuses bad ones.
        unsafe {
            assert_eq!(errno_of(libc::send(client, bad.iov_base, 5, 0)), expected);
            assert_eq!(errno_of(libc::writev(client, list.as_ptr(), 1)), expected);
            assert_eq!(errno_of(libc::writev(client, list.as_ptr(), 2)), expected);
            assert_eq!(
                errno_of(libc::sendmsg(client, &raw const message, 0)),
                expected
            );
            let list: *const libc::iovec = bad.iov_base.cast();
            assert_eq!(errno_of(libc::writev(client, list, 2)), FAULT);
        }
    };
    all(FAULT);
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    all(PIPE);
    let mut byte = [0_u8; 1];
    // SAFETY: the kernel refuses the length before it looks at the buffer.
    unsafe {
        let place = byte.as_mut_ptr().cast();
        assert_eq!(errno_of(libc::read(client, place, usize::MAX)), FAULT);
        assert_eq!(errno_of(libc::write(client, place, usize::MAX)), FAULT);
    }
}

fn over(family: Family) -> (Descriptor, Descriptor) {
    let (client, server) = pair(family);
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    expect_end(server);
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    expect_end(client);
    for socket in [client, server] {
        eventually("over", || sys::getpeername(socket).is_err());
    }
    (client, server)
}

fn corner_14_ended_bind(family: Family) {
    let (client, server) = over(family);
    for socket in [client, server] {
        assert_eq!(sys::bind(socket, family.loopback(0)), Ok(()));
        let port = sys::getsockname(socket).unwrap().port();
        assert_ne!(port, 0);
        assert_eq!(sys::bind(socket, family.loopback(0)), Err(INVALID));
        assert_eq!(sys::listen(socket, 1), Err(INVALID));
        let other = tcp(family);
        let taken = sys::bind(other, family.loopback(port));
        assert_eq!(taken, Err(Errno(libc::EADDRINUSE)));
        sys::close(socket).unwrap();
        assert_eq!(sys::bind(other, family.loopback(port)), Ok(()));
    }
}

/// A client whose connection the server has reset.
fn reset_client(listening: Descriptor, address: std::net::SocketAddr) -> Descriptor {
    let client = connect_to(address);
    close_with_reset(sys::accept(listening).unwrap());
    eventually("over", || sys::getpeername(client).is_err());
    client
}

fn corner_14_ended_bind_to_the_port_of_another_connection(family: Family) {
    let (listening, address) = listener(family);
    let other = connect_to(address);
    let server = sys::accept(listening).unwrap();
    let taken = sys::getsockname(other).unwrap();
    let client = reset_client(listening, address);
    assert_eq!(sys::bind(client, taken), Err(Errno(libc::EADDRINUSE)));
    expect_alive(other, server);
}

/// Also where the hard limit leaves the library none.
fn corner_14_ended_bind_takes_no_number(family: Family) {
    let (listening, address) = listener(family);
    let client = reset_client(listening, address);
    fork_child(|| {
        let free = leave_one_number(client);
        assert_eq!(sys::bind(client, family.loopback(0)), Ok(()));
        assert_eq!(sys::bind(client, family.loopback(0)), Err(INVALID));
        assert_eq!(sys::dup(client), Ok(free));
    })
    .join();
}

fn corner_14_ended_bind_without_a_port(family: Family) {
    let (client, server) = over(family);
    for socket in [client, server] {
        set_int(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
        for _ in 0..2 {
            assert_eq!(sys::bind(socket, family.loopback(0)), Ok(()));
            assert_eq!(sys::getsockname(socket).unwrap().port(), 0);
        }
        set_int(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 0);
        assert_eq!(sys::bind(socket, family.loopback(0)), Ok(()));
        assert_ne!(sys::getsockname(socket).unwrap().port(), 0);
        assert_eq!(sys::bind(socket, family.loopback(0)), Err(INVALID));
    }
}

/// The multicast hops of an accepted socket are those of the packet that opened it.
fn corner_14_ended_bind_keeps_what_the_first_packet_said(family: Family) {
    let (_client, server) = over(family);
    let hops = || sys::option_int(server, libc::IPPROTO_IP, libc::IP_MULTICAST_TTL);
    let before = hops();
    assert_eq!(sys::bind(server, family.loopback(0)), Ok(()));
    assert_eq!(hops(), before);
}

fn free_port(family: Family) -> u16 {
    let other = tcp(family);
    sys::bind(other, family.loopback(0)).unwrap();
    let port = sys::getsockname(other).unwrap().port();
    sys::close(other).unwrap();
    port
}

fn corner_14_ended_bind_after_a_bind_to_any_port(family: Family) {
    let (listening, address) = listener(family);
    for named in [false, true] {
        let client = tcp(family);
        let port = if named { free_port(family) } else { 0 };
        sys::bind(client, family.loopback(port)).unwrap();
        sys::connect(client, address).unwrap();
        close_with_reset(sys::accept(listening).unwrap());
        eventually("over", || sys::getpeername(client).is_err());
        let bound = sys::bind(client, family.loopback(0));
        // A port that was named is kept.
        assert_eq!(bound, if named { Err(INVALID) } else { Ok(()) });
        assert_eq!(sys::bind(client, family.loopback(0)), Err(INVALID));
    }
}

/// A connect that failed before the program asked for its outcome, and a shutdown: TCP does nothing with such a socket.
fn corner_14_ended_shut_before_it_was_told(family: Family) {
    let (listening, address) = listener(family);
    let client = tcp_nonblocking(family);
    let begun = sys::connect(client, address);
    assert_eq!(begun, Err(Errno(libc::EINPROGRESS)));
    await_events(client, libc::POLLOUT);
    close_with_reset(sys::accept(listening).unwrap());
    await_events(client, libc::POLLERR);
    assert_eq!(sys::send(client, b"x", QUIET), Err(RESET));
    let shut = sys::shutdown(client, libc::SHUT_RDWR);
    assert_eq!(shut, Err(Errno(libc::ENOTCONN)));
    let fast = QUIET | libc::MSG_FASTOPEN;
    assert_eq!(sys::send(client, b"x", fast), Err(INVALID));
    assert_eq!(sys::connect(client, address), Err(INVALID));
    // A socket whose connect was reported is connected, whatever came of the connection.
    let client = connect_to(address);
    close_with_reset(sys::accept(listening).unwrap());
    await_events(client, libc::POLLERR);
    assert_eq!(sys::send(client, b"x", QUIET), Err(RESET));
    let answer = sys::send(client, b"x", fast);
    assert_eq!(answer, Err(Errno(libc::EISCONN)));
}

/// Receives a byte, or the end of the stream, and leaves `EMSGSIZE` for the next call.
pub fn leave_wrong_size(socket: Descriptor) {
    let mut byte = [0_u8; 1];
    let mut good = sys::entry_mut(&mut byte);
    let (mut first, mut second) = (sys::empty_message(), sys::empty_message());
    (first.msg_iov, first.msg_iovlen) = (&raw mut good, 1);
    (second.msg_iov, second.msg_iovlen) = (&raw mut good, 5000);
    let mut messages = [first, second].map(|msg_hdr| libc::mmsghdr {
        msg_hdr,
        msg_len: 0,
    });
    // SAFETY: two messages, of which the second has more parts than the kernel reads.
    let got = unsafe { libc::recvmmsg(socket, messages.as_mut_ptr(), 2, 0, std::ptr::null_mut()) };
    assert_eq!(got, 1);
}

fn corner_14_ended_recvmmsg_leaves_an_error(family: Family) {
    for reads in [false, true] {
        let (client, server) = pair(family);
        send_and_wait(server, client, b"x");
        leave_wrong_size(client);
        assert_eq!(poll_one(client, 0, 0), libc::POLLERR);
        let answer = if reads {
            sys::recv(client, &mut [0], libc::MSG_DONTWAIT)
        } else {
            sys::send(client, b"x", 0)
        };
        assert_eq!(answer, Err(Errno(libc::EMSGSIZE)));
        expect_alive(client, server);
    }
}

/// A reset ends the wait for the second message, and is told by the next call.
fn corner_14_ended_recvmmsg_leaves_a_reset(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(server, client, b"x");
    let (receiver, thread) = start_thread(move || {
        assert_eq!(three(client, 0), Ok(vec![1]));
    });
    await_asleep(thread);
    close_with_reset(server);
    join_thread(receiver);
    assert_eq!(sys::recv(client, &mut [0], 0), Err(RESET));
    assert_eq!(sys::recv(client, &mut [0], 0), Ok(0));
}

/// What is left after the reset was told is told, too; what was left before it is not.
fn corner_14_ended_recvmmsg_leaves_an_error_after_a_reset(family: Family) {
    let (listening, address) = listener(family);
    let client = reset_client(listening, address);
    assert_eq!(sys::send(client, b"x", QUIET), Err(RESET));
    leave_wrong_size(client);
    assert_eq!(sys::send(client, b"x", QUIET), Err(Errno(libc::EMSGSIZE)));
    assert_eq!(sys::send(client, b"x", QUIET), Err(PIPE));
    leave_wrong_size(client);
    let received = || sys::recv(client, &mut [0], 0);
    assert_eq!(received(), Err(Errno(libc::EMSGSIZE)));
    assert_eq!(received(), Ok(0));
    for reads in [false, true] {
        let client = connect_to(address);
        let server = sys::accept(listening).unwrap();
        send_and_wait(server, client, b"x");
        leave_wrong_size(client);
        close_with_reset(server);
        // The left error is an event, too.
        eventually("over", || sys::getpeername(client).is_err());
        let told = if reads {
            sys::recv(client, &mut [0], 0)
        } else {
            sys::send(client, b"x", QUIET)
        };
        assert_eq!(told, Err(RESET));
        assert_eq!(sys::send(client, b"x", QUIET), Err(PIPE));
    }
}

fn corner_14_ended_reset_after_shutdown_of_reading(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    sys::shutdown(client, libc::SHUT_RD).unwrap();
    assert_eq!(sys::recv(client, &mut [0], 0), Ok(0));
    // The connection waits in the queue of a closed listener.
    sys::close(listening).unwrap();
    await_events(client, libc::POLLERR);
    assert_eq!(sys::recv(client, &mut [0], 0), Err(RESET));
    assert_eq!(sys::recv(client, &mut [0], 0), Ok(0));
}

fn corner_14_ended_bind_before_the_end(family: Family) {
    let (client, server) = pair(family);
    set_int(client, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
    assert_eq!(sys::bind(client, family.loopback(0)), Err(INVALID));
    assert_eq!(sys::bind(server, family.any(0)), Err(INVALID));
    let refused = match family {
        Family::V4 => libc::EAFNOSUPPORT,
        // The length is too short for an address.
        Family::V6 => libc::EINVAL,
    };
    let bound = sys::bind(client, family.other().loopback(0));
    assert_eq!(bound, Err(Errno(refused)));
    if family == Family::V4 {
        let elsewhere = ([192, 0, 2, 1], 0).into();
        let bound = sys::bind(client, elsewhere);
        assert_eq!(bound, Err(Errno(libc::EADDRNOTAVAIL)));
    }
    expect_alive(client, server);
}

fn corner_14_ended_connect_again(family: Family) {
    let (listening, address) = listener(family);
    let under_way = || {
        let client = tcp_nonblocking(family);
        let begun = sys::connect(client, address);
        assert_eq!(begun, Err(Errno(libc::EINPROGRESS)));
        await_events(client, libc::POLLOUT);
        (client, sys::accept(listening).unwrap())
    };
    let (client, server) = under_way();
    close_with_reset(server);
    await_events(client, libc::POLLERR);
    assert_eq!(sys::connect(client, address), Err(RESET));
    set_blocking(client);
    assert_eq!(sys::connect(client, address), Ok(()));
    expect_alive(client, sys::accept(listening).unwrap());
    let (client, server) = under_way();
    close_with_reset(server);
    await_events(client, libc::POLLERR);
    assert_eq!(socket_error(client), RESET);
    let aborted = Errno(libc::ECONNABORTED);
    assert_eq!(sys::connect(client, address), Err(aborted));
    let (brief, brief_address) = listener(family);
    let client = tcp_nonblocking(family);
    let begun = sys::connect(client, brief_address);
    assert_eq!(begun, Err(Errno(libc::EINPROGRESS)));
    await_events(client, libc::POLLOUT);
    sys::close(brief).unwrap();
    await_events(client, libc::POLLERR);
    assert_eq!(sys::connect(client, brief_address), Err(RESET));
    let (client, _server) = over(family);
    let connected = sys::connect(client, address);
    assert_eq!(connected, Err(Errno(libc::EISCONN)));
}

fn corner_14_ended_unacknowledged_bytes(family: Family) {
    let (client, server) = pair(family);
    sys::close(server).unwrap();
    await_events(client, libc::POLLRDHUP);
    send_all(client, b"late");
    await_events(client, libc::POLLERR);
    let count = sys::ioctl_int(client, libc::TIOCOUTQ, 0);
    assert_eq!(count, Ok(4));
    let (client, server) = pair(family);
    send_and_wait(client, server, b"never read");
    sys::close(server).unwrap();
    await_events(client, libc::POLLERR);
    let count = sys::ioctl_int(client, libc::TIOCOUTQ, 0);
    assert_eq!(count, Ok(0));
}

/// Bytes that `MSG_MORE` holds back behind the end go with the next ones, and meet the same reset.
fn corner_14_ended_unacknowledged_bytes_that_were_held(family: Family) {
    let (client, server) = pair(family);
    sys::close(server).unwrap();
    await_events(client, libc::POLLRDHUP);
    assert_eq!(sys::send(client, b"h", libc::MSG_MORE), Ok(1));
    send_all(client, &[1; 8000]);
    await_events(client, libc::POLLERR);
    let count = sys::ioctl_int(client, libc::TIOCOUTQ, 0);
    assert_eq!(count, Ok(8001));
}
