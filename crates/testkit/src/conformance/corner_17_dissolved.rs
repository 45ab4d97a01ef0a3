//! Corner 17, what is left of a connection that one of several processes has dissolved.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::corner_12_dissolve::connect_unspecified;

cases! {
    families: [
        corner_17_dissolved_after_its_end,
        corner_17_dissolved_tells_of_its_error_before_a_later_end,
        corner_17_dissolved_leaves_a_broken_pipe,
        corner_17_dissolved_tells_of_a_reset_before_all,
        corner_17_dissolved_connects_with_no_name,
        corner_17_dissolved_connects_to_another_family,
        corner_17_dissolved_leaves_its_error_beside_a_reader,
        corner_17_dissolved_has_no_peer,
        corner_17_dissolved_has_no_urgent_byte,
        corner_17_dissolved_listens_with_its_error,
    ];
}

const QUIET: libc::c_int = libc::MSG_NOSIGNAL;

/// Runs `look` in both processes, one after the other, after one of them has dissolved the connection.
fn dissolved(family: Family, before: impl Fn(Descriptor), look: impl Fn(Descriptor)) {
    dissolved_with_peer(family, |client, _| before(client), look);
}

/// As [`dissolved`], where the peer does something before, too.
fn dissolved_with_peer(
    family: Family,
    before: impl Fn(Descriptor, Descriptor),
    look: impl Fn(Descriptor),
) {
    for by_child in [false, true] {
        let (client, server) = pair(family);
        before(client, server);
        let (go, done) = (Baton::new(), Baton::new());
        let child = fork_child(|| {
            if by_child {
                assert_eq!(connect_unspecified(client), Ok(()));
            }
            go.take();
            look(client);
            done.pass();
        });
        if !by_child {
            assert_eq!(connect_unspecified(client), Ok(()));
        }
        go.pass();
        done.take();
        child.join();
        look_again(client);
    }
}

fn look_again(client: Descriptor) {
    assert_eq!(socket_error(client), Errno(0));
    let sent = sys::send(client, b"x", QUIET);
    assert_eq!(sent, Err(Errno(libc::EPIPE)));
}

/// An end of sending goes with the connection: what a send says is the reset.
fn corner_17_dissolved_after_its_end(family: Family) {
    let ends = |client| sys::shutdown(client, libc::SHUT_WR).unwrap();
    dissolved(family, ends, |client| {
        let sent = sys::send(client, b"x", QUIET);
        assert_eq!(sent, Err(Errno(libc::ECONNRESET)));
        let received = sys::recv(client, &mut [0; 8], libc::MSG_DONTWAIT);
        assert_eq!(received, Err(Errno(libc::ENOTCONN)));
    });
    let ends = |client| sys::shutdown(client, libc::SHUT_RD).unwrap();
    dissolved(family, ends, |client| {
        let received = sys::recv(client, &mut [0; 8], libc::MSG_DONTWAIT);
        assert_eq!(received, Err(Errno(libc::ECONNRESET)));
        let received = sys::recv(client, &mut [0; 8], libc::MSG_DONTWAIT);
        assert_eq!(received, Err(Errno(libc::ENOTCONN)));
    });
}

/// A shutdown that finds no connection ends sending all the same. The error that was left is told before.
fn corner_17_dissolved_tells_of_its_error_before_a_later_end(family: Family) {
    for how in [libc::SHUT_WR, libc::SHUT_RDWR] {
        dissolved(
            family,
            |_| (),
            |client| {
                let shut = sys::shutdown(client, how);
                assert_eq!(shut, Err(Errno(libc::ENOTCONN)));
                let sent = sys::send(client, b"x", QUIET);
                assert_eq!(sent, Err(Errno(libc::ECONNRESET)));
            },
        );
    }
}

/// The error of a connection that was over before stays.
fn corner_17_dissolved_leaves_a_broken_pipe(family: Family) {
    let (client, server) = pair(family);
    let go = Baton::new();
    let child = fork_child(|| {
        go.take();
        let received = sys::recv(client, &mut [0; 8], libc::MSG_DONTWAIT);
        assert_eq!(received, Err(Errno(libc::EPIPE)));
        let received = sys::recv(client, &mut [0; 8], libc::MSG_DONTWAIT);
        assert_eq!(received, Err(Errno(libc::ENOTCONN)));
    });
    sys::shutdown(server, libc::SHUT_RDWR).unwrap();
    await_events(client, libc::POLLRDHUP);
    assert_eq!(sys::send(client, b"x", QUIET), Ok(1));
    await_events(client, libc::POLLERR);
    assert_eq!(connect_unspecified(client), Ok(()));
    go.pass();
    child.join();
}

fn corner_17_dissolved_tells_of_a_reset_before_all(family: Family) {
    dissolved(
        family,
        |_| (),
        |client| {
            let sent = sys::send(client, b"", QUIET);
            assert_eq!(sent, Err(Errno(libc::ECONNRESET)));
            let sent = sys::send(client, b"", QUIET);
            assert_eq!(sent, Err(Errno(libc::EPIPE)));
        },
    );
}

/// `MSG_FASTOPEN` connects, and no address was given.
fn corner_17_dissolved_connects_with_no_name(family: Family) {
    dissolved(
        family,
        |_| (),
        |client| {
            let sent = sys::send(client, b"x", libc::MSG_FASTOPEN | QUIET);
            assert_eq!(sent, Err(Errno(libc::EINVAL)));
            assert_eq!(socket_error(client), Errno(libc::ECONNRESET));
            let sent = sys::send(client, b"x", libc::MSG_FASTOPEN | QUIET);
            assert_eq!(sent, Err(Errno(libc::EINVAL)));
        },
    );
}

fn of_family(family: libc::c_int, length: libc::socklen_t) -> sys::RawAddress {
    let mut address = sys::RawAddress::empty();
    address.storage.ss_family = family.try_into().unwrap();
    address.length = length;
    address
}

fn corner_17_dissolved_connects_to_another_family(family: Family) {
    dissolved(
        family,
        |_| (),
        |client| {
            let local = of_family(libc::AF_UNIX, 30);
            let wrong = sys::connect_raw(client, &local);
            assert_eq!(wrong, Err(Errno(libc::EAFNOSUPPORT)));
            let short = of_family(family.domain(), 8);
            let wrong = sys::connect_raw(client, &short);
            assert_eq!(wrong, Err(Errno(libc::EINVAL)));
            assert_eq!(socket_error(client), Errno(libc::ECONNRESET));
        },
    );
}

/// A reader that sleeps meanwhile is told that the connection is over, and the reset is left for the next call.
fn corner_17_dissolved_leaves_its_error_beside_a_reader(family: Family) {
    for received_some in [false, true] {
        let (client, server) = pair(family);
        let child = fork_child(|| {
            let received = sys::recv(client, &mut [0; 8], libc::MSG_WAITALL);
            let expected = if received_some {
                Ok(4)
            } else {
                Err(Errno(libc::EPIPE))
            };
            assert_eq!(received, expected);
        });
        await_asleep(child.process);
        if received_some {
            send_all(server, b"some");
            await_asleep(child.process);
        }
        assert_eq!(connect_unspecified(client), Ok(()));
        child.join();
        let received = sys::recv(client, &mut [0; 8], 0);
        assert_eq!(received, Err(Errno(libc::ECONNRESET)));
        let received = sys::recv(client, &mut [0; 8], 0);
        assert_eq!(received, Err(Errno(libc::ENOTCONN)));
    }
}

fn corner_17_dissolved_has_no_peer(family: Family) {
    const SO_PEERNAME: libc::c_int = 28;
    dissolved(
        family,
        |_| (),
        |client| {
            let name = sys::option_bytes(client, libc::SOL_SOCKET, SO_PEERNAME, 256);
            assert_eq!(name, Err(Errno(libc::ENOTCONN)));
            let peer = sys::getpeername(client);
            assert_eq!(peer, Err(Errno(libc::ENOTCONN)));
            assert_eq!(socket_error(client), Errno(libc::ECONNRESET));
        },
    );
}

fn corner_17_dissolved_has_no_urgent_byte(family: Family) {
    let urgent = |client, server| {
        assert_eq!(sys::send(server, b"!", libc::MSG_OOB), Ok(1));
        await_events(client, libc::POLLPRI);
    };
    dissolved_with_peer(family, urgent, |client| {
        assert_eq!(socket_error(client), Errno(libc::ECONNRESET));
        assert_eq!(
            poll_one(client, libc::POLLPRI | libc::POLLIN, 0) & libc::POLLPRI,
            0
        );
        assert_eq!(sys::at_mark(client), Ok(false));
        let received = sys::recv(client, &mut [0; 8], libc::MSG_OOB);
        assert_eq!(received, Err(Errno(libc::EINVAL)));
        let [_reader, writer] = sys::pipe(0).unwrap();
        let spliced = sys::splice(client, writer, 8, 0);
        assert_eq!(spliced, Err(Errno(libc::ENOTCONN)));
    });
}

/// The error of the connection is told by the first call that comes to the socket.
fn corner_17_dissolved_listens_with_its_error(family: Family) {
    let (client, _server) = pair(family);
    let other = sys::dup(client).unwrap();
    assert_eq!(connect_unspecified(client), Ok(()));
    sys::listen(other, 4).unwrap();
    let [reader, writer] = sys::pipe(0).unwrap();
    for from in [writer, -1] {
        let sent = sys::sendfile(client, from, None, 10);
        assert_eq!(sent, Err(Errno(libc::EBADF)));
        let spliced = sys::splice(from, client, 10, 0);
        assert_eq!(spliced, Err(Errno(libc::EBADF)));
    }
    assert_eq!(sys::write(writer, b"abc"), Ok(3));
    let spliced = sys::splice(reader, client, 10, 0);
    assert_eq!(spliced, Err(Errno(libc::ECONNRESET)));
    let sent = sys::send(client, b"x", QUIET);
    assert_eq!(sent, Err(Errno(libc::EPIPE)));
}
