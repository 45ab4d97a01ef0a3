//! Corner 12, a socket that connects again: after it was refused, as programs do until their server is there, or after an
//! address that was none.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno, RawAddress};

use crate::case::cases;
use crate::helpers::wait_to_be_killed;

cases! {
    families: [
        corner_12_again_is_accepted_in_its_turn,
        corner_12_again_until_somebody_listens,
        corner_12_again_keeps_what_was_set,
        corner_12_again_in_an_event_loop,
        corner_12_again_by_a_child,
        corner_12_again_after_what_is_no_address,
        corner_12_again_when_the_listener_was_killed,
        corner_12_shut_when_the_listener_was_killed,
    ];
}

const REFUSED: Errno = Errno(libc::ECONNREFUSED);

/// A socket that was refused.
fn refused(family: Family) -> Descriptor {
    let socket = tcp(family);
    let closed = unused_address(family);
    for _ in 0..2 {
        assert_eq!(sys::connect(socket, closed), Err(REFUSED));
    }
    assert_eq!(sys::getpeername(socket), Err(Errno(libc::ENOTCONN)));
    assert_eq!(socket_error(socket), Errno(0));
    socket
}

fn corner_12_again_is_accepted_in_its_turn(family: Family) {
    let (listening, address) = listener(family);
    let clients = [tcp(family), refused(family), refused(family), tcp(family)];
    for client in clients {
        assert_eq!(sys::connect(client, address), Ok(()));
        assert_eq!(sys::getpeername(client), Ok(address));
    }
    for client in clients {
        let server = sys::accept(listening).unwrap();
        assert_eq!(sys::getpeername(server), sys::getsockname(client));
        expect_alive(client, server);
        sys::close(client).unwrap();
        expect_end(server);
    }
}

fn corner_12_again_until_somebody_listens(family: Family) {
    let bound = tcp(family);
    sys::bind(bound, family.loopback(0)).unwrap();
    let address = sys::getsockname(bound).unwrap();
    let client = tcp(family);
    let mut refusals = 0;
    while let Err(error) = sys::connect(client, address) {
        assert_eq!(error, REFUSED);
        refusals += 1;
        if refusals == 3 {
            sys::listen(bound, 8).unwrap();
        }
    }
    assert_eq!(refusals, 3);
    let server = sys::accept(bound).unwrap();
    expect_alive(client, server);
}

fn corner_12_again_keeps_what_was_set(family: Family) {
    let (listening, address) = listener(family);
    let client = refused(family);
    set_int(client, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    set_nonblocking(client);
    let connected = sys::connect(client, address);
    assert!(matches!(connected, Ok(()) | Err(Errno(libc::EINPROGRESS))));
    let server = sys::accept(listening).unwrap();
    await_events(client, libc::POLLOUT);
    let received = sys::recv(client, &mut [0_u8; 8], 0);
    assert_eq!(received, Err(Errno(libc::EAGAIN)));
    let on = sys::option_int(client, libc::IPPROTO_TCP, libc::TCP_NODELAY);
    assert_eq!(on, Ok(1));
    set_blocking(client);
    expect_alive(client, server);
}

fn corner_12_again_in_an_event_loop(family: Family) {
    let (listening, address) = listener(family);
    let set = sys::epoll_create().unwrap();
    // One is in the set when it is refused, the other one since.
    let before = tcp(family);
    let closed = unused_address(family);
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, before, sys::IN, 1).unwrap();
    assert_eq!(sys::connect(before, closed), Err(REFUSED));
    let after = refused(family);
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, after, sys::IN, 2).unwrap();
    sys::epoll_wait(set, 4, 0).unwrap();
    for (client, data) in [(before, 1), (after, 2)] {
        assert_eq!(sys::connect(client, address), Ok(()));
        let server = sys::accept(listening).unwrap();
        send_all(server, b"told");
        let is_told = |one: &sys::Event| one.data == data && one.events & sys::IN != 0;
        // The one without a connection is told of by each call, also before the bytes have crossed a cable.
        eventually("the set tells of the bytes", || {
            let told = sys::epoll_wait(set, 4, 10_000).unwrap();
            told.iter().any(is_told)
        });
        expect_bytes(client, b"told");
    }
}

fn corner_12_again_by_a_child(family: Family) {
    let (listening, address) = listener(family);
    let client = refused(family);
    let child = fork_child(|| {
        assert_eq!(sys::connect(client, address), Ok(()));
        send_all(client, b"from the child");
    });
    let server = sys::accept(listening).unwrap();
    expect_bytes(server, b"from the child");
    child.join();
    expect_alive(client, server);
}

fn corner_12_again_after_what_is_no_address(family: Family) {
    let (listening, address) = listener(family);
    let (refused, least) = match family {
        Family::V4 => ([Errno(libc::EAFNOSUPPORT), Errno(libc::EINVAL)], 16),
        Family::V6 => ([Errno(libc::EINVAL); 2], 24),
    };
    let mut raw = RawAddress::from(address);
    let clients = [tcp(family), tcp(family)];
    for client in clients {
        let wrong = RawAddress::from(family.other().loopback(address.port()));
        assert_eq!(sys::connect_raw(client, &wrong), Err(refused[0]));
        raw.length = least - 1;
        assert_eq!(sys::connect_raw(client, &raw), Err(refused[1]));
        raw.length = least;
        assert_eq!(sys::connect_raw(client, &raw), Ok(()));
    }
    for client in clients {
        let server = sys::accept(listening).unwrap();
        assert_eq!(sys::getpeername(server), sys::getsockname(client));
        expect_alive(client, server);
    }
}

/// The success of a connect was not asked for before its listener was killed with the connection. Through the relay
/// one connection may be known to be over before another.
fn corner_12_again_when_the_listener_was_killed(family: Family) {
    eventually("the connect tells of the end", || {
        let port = Baton::new();
        let child = fork_child(|| {
            let (_listening, address) = listener(family);
            port.send(u64::from(address.port()));
            wait_to_be_killed();
        });
        let address = family.loopback(u16::try_from(port.receive()).unwrap());
        let socket = tcp_nonblocking(family);
        let begun = sys::connect(socket, address);
        assert_eq!(begun, Err(Errno(libc::EINPROGRESS)));
        await_events(socket, libc::POLLOUT);
        let [with_option, receiving, later] = [(); 3].map(|()| connect_to(address));
        child.kill();
        // No call looks at the others before.
        await_events(later, libc::POLLHUP);
        let again = sys::connect(socket, address);
        set_blocking(socket);
        let refused = sys::connect(socket, address);
        // Only who is not connected may set it.
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_FASTOPEN);
        let set = sys::set_option(with_option, level, name, 0);
        // Not even for no byte.
        let nothing = sys::recv(receiving, &mut [], 0);
        let reset = Errno(libc::ECONNRESET);
        [again, refused, set] == [Err(reset), Err(REFUSED), Ok(())] && nothing == Err(reset)
    });
}

/// The reset is told first, also to who has shut its side.
fn corner_12_shut_when_the_listener_was_killed(family: Family) {
    let port = Baton::new();
    let child = fork_child(|| {
        let (_listening, address) = listener(family);
        port.send(u64::from(address.port()));
        wait_to_be_killed();
    });
    let address = family.loopback(u16::try_from(port.receive()).unwrap());
    let [socket, other] = [(); 2].map(|()| connect_to(address));
    sys::shutdown(socket, libc::SHUT_WR).unwrap();
    child.kill();
    await_events(other, libc::POLLHUP);
    let errors = [libc::ECONNRESET, libc::EPIPE, libc::EPIPE];
    for error in errors {
        let sent = sys::send(socket, b"a", libc::MSG_NOSIGNAL);
        assert_eq!(sent, Err(Errno(error)));
    }
}
