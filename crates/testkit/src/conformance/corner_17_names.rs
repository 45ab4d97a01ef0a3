//! Corner 17, `bind` and `listen` of sockets that can not be bound, or were shut before.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno};

use crate::case::cases;
use crate::deferred::{LONG, expect_none, nonblocking_deferring};

cases! {
    families: [
        corner_17_names_a_bind_announces_nobody,
        corner_17_names_of_a_listener_that_was_shut,
        corner_17_names_shut_before_listen,
        corner_17_names_connected_to_who_is_gone,
    ];
}

const IN_USE: Errno = Errno(libc::EADDRINUSE);
const INVALID: Errno = Errno(libc::EINVAL);

/// A client of which a listener has not heard yet stays silent when its `bind` fails.
fn corner_17_names_a_bind_announces_nobody(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let client = connect_to(address);
    assert_eq!(sys::bind(client, family.loopback(0)), Err(INVALID));
    assert_eq!(sys::bind(client, address), Err(INVALID));
    // Nothing has that address.
    let (strange, error) = match family {
        Family::V4 => ("192.0.2.1:0", libc::EADDRNOTAVAIL),
        Family::V6 => ("[2001:db8::1]:0", libc::EINVAL),
    };
    let bound = sys::bind(client, strange.parse().unwrap());
    assert_eq!(bound, Err(Errno(error)));
    expect_none(listening);
    send_all(client, b"word");
    await_events(listening, libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    set_blocking(server);
    expect_bytes(server, b"word");
}

/// A listener without a name gives its port back when it is shut, and can not have it where an accepted connection is.
fn corner_17_names_of_a_listener_that_was_shut(family: Family) {
    let listening = tcp(family);
    sys::listen(listening, 5).unwrap();
    let port = sys::getsockname(listening).unwrap().port();
    let client = connect_to(family.loopback(port));
    let server = sys::accept(listening).unwrap();
    sys::shutdown(listening, libc::SHUT_RDWR).unwrap();
    let any = family.any(port);
    assert_eq!(sys::bind(listening, any), Err(IN_USE));
    expect_alive(client, server);
    close_with_reset(server);
    eventually("the port is free", || sys::bind(listening, any) == Ok(()));
}

/// What is shut before it listens is shut for those that it accepts, too.
fn corner_17_names_shut_before_listen(family: Family) {
    for (how, refused) in [
        (libc::SHUT_WR, false),
        (libc::SHUT_RDWR, false),
        (libc::SHUT_WR, true),
    ] {
        let listening = tcp(family);
        if refused {
            let connected = sys::connect(listening, unused_address(family));
            assert_eq!(connected, Err(Errno(libc::ECONNREFUSED)));
        }
        let shut = sys::shutdown(listening, how);
        assert_eq!(shut, Err(Errno(libc::ENOTCONN)));
        sys::listen(listening, 5).unwrap();
        let port = sys::getsockname(listening).unwrap().port();
        let client = connect_to(family.loopback(port));
        expect_end(client);
        let server = sys::accept(listening).unwrap();
        let sent = sys::send(server, b"x", libc::MSG_NOSIGNAL);
        assert_eq!(sent, Err(Errno(libc::EPIPE)));
    }
}

/// A client whose listener was closed before it heard of it is connected, and was.
fn corner_17_names_connected_to_who_is_gone(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let client = connect_to(address);
    sys::close(listening).unwrap();
    assert_eq!(sys::send(client, b"word", libc::MSG_NOSIGNAL), Ok(4));
    eventually("the reset is told", || {
        sys::send(client, b"word", libc::MSG_NOSIGNAL) == Err(Errno(libc::ECONNRESET))
    });
    let again = sys::connect(client, address);
    assert_eq!(again, Err(Errno(libc::EISCONN)));
}
