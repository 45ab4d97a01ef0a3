//! Corner 17, bytes that are held back and what else happens to their connection: a killed sender, a reader who waits
//! while its own side sends.

use std::time::Duration;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::held::SOON;
use crate::helpers::send_and_wait;

cases! {
    families: [
        corner_17_held_is_dropped_by_who_is_killed_with_unread_bytes,
        corner_17_held_is_there_when_its_sender_ends,
        corner_17_held_until_the_readers_side_sends,
        corner_17_held_to_who_shuts_both_meets_a_reset,
    ];
}

/// A child that has corked its end and sent something, and waits to be killed.
fn corked_child(family: Family) -> (Child, Descriptor) {
    let ready = Baton::new();
    let (child, client, _) = forked_server(family, |server| {
        set_int(server, libc::IPPROTO_TCP, libc::TCP_CORK, 1);
        assert_eq!(sys::send(server, b"held", 0), Ok(4));
        ready.pass();
        std::thread::sleep(Duration::from_secs(30));
    });
    ready.take();
    (child, client)
}

/// TCP resets, and sends no more.
fn corner_17_held_is_dropped_by_who_is_killed_with_unread_bytes(family: Family) {
    for asleep in [false, true] {
        let (child, client) = corked_child(family);
        assert_eq!(sys::send(client, b"unread", 0), Ok(6));
        if asleep {
            let (reader, task) = start_thread(move || sys::recv(client, &mut [0; 8], 0));
            await_asleep(task);
            child.kill();
            assert_eq!(join_thread(reader), Err(Errno(libc::ECONNRESET)));
        } else {
            child.kill();
            await_events(client, libc::POLLERR);
            std::thread::sleep(Duration::from_millis(250));
            let received = sys::recv(client, &mut [0; 8], 0);
            assert_eq!(received, Err(Errno(libc::ECONNRESET)));
        }
        assert_eq!(sys::recv(client, &mut [0; 8], 0), Ok(0));
    }
}

/// One call receives what was there and what was held back.
fn corner_17_held_is_there_when_its_sender_ends(family: Family) {
    let ready = Baton::new();
    let (child, client, _) = forked_server(family, |server| {
        assert_eq!(sys::send(server, b"there, ", 0), Ok(7));
        assert_eq!(sys::send(server, b"held", libc::MSG_MORE), Ok(4));
        ready.pass();
        std::thread::sleep(Duration::from_secs(30));
    });
    ready.take();
    child.kill();
    std::thread::sleep(Duration::from_millis(5));
    let mut bytes = [0; 32];
    assert_eq!(sys::recv(client, &mut bytes, 0), Ok(11));
    assert_eq!(&bytes[..11], b"there, held");
    expect_end(client);
}

/// A reader that sleeps hears of bytes that its own side has let go. TCP does so for the first bytes of who accepted.
fn corner_17_held_until_the_readers_side_sends(family: Family) {
    for spliced in [false, true] {
        expect_within(SOON, || held_until_the_readers_side_sends(family, spliced));
    }
}

/// Returns how long the reader waits.
fn held_until_the_readers_side_sends(family: Family, spliced: bool) -> Duration {
    let (client, server) = pair(family);
    if spliced {
        let [out, into] = sys::pipe(0).unwrap();
        assert_eq!(sys::write(into, b"held"), Ok(4));
        let moved = sys::splice(out, client, 4, libc::SPLICE_F_MORE);
        assert_eq!(moved, Ok(4));
    } else {
        assert_eq!(sys::send(client, b"held", libc::MSG_MORE), Ok(4));
    }
    let begun = std::time::Instant::now();
    let (reader, task) = start_thread(move || sys::recv(server, &mut [0; 8], 0));
    // On a slow machine the bytes may be let go before.
    await_asleep_unless(task, || reader.is_finished());
    send_all(server, b"x");
    assert_eq!(join_thread(reader), Ok(4));
    let waited = begun.elapsed();
    send_and_wait(client, server, b"more");
    for end in [client, server] {
        sys::close(end).unwrap();
    }
    waited
}

/// Corked bytes for a peer that has ended both directions meet a reset as soon as they are let go.
fn corner_17_held_to_who_shuts_both_meets_a_reset(family: Family) {
    for before in [false, true] {
        for shuts in [false, true] {
            let (client, server) = pair(family);
            set_int(client, libc::IPPROTO_TCP, libc::TCP_CORK, 1);
            let send = || assert_eq!(sys::send(client, b"held", libc::MSG_NOSIGNAL), Ok(4));
            if before {
                send();
            }
            sys::shutdown(server, libc::SHUT_RDWR).unwrap();
            await_events(client, libc::POLLRDHUP);
            if !before {
                send();
            }
            assert_eq!(poll_one(client, libc::POLLOUT, 0), libc::POLLOUT);
            if shuts {
                sys::shutdown(client, libc::SHUT_RDWR).unwrap();
            } else {
                set_int(client, libc::IPPROTO_TCP, libc::TCP_CORK, 0);
            }
            eventually("it meets a reset", || socket_error(client) != Errno(0));
            eventually("its peer is told", || {
                sys::recv(server, &mut [0; 8], 0) == Err(Errno(libc::ECONNRESET))
            });
        }
    }
}
