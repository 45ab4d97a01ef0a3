//! Corner 17, sets that had a socket before it changed its nature, edges that only an option makes, and which member an
//! event is of.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno, IN};

use crate::case::cases;
use crate::helpers::send_and_wait;

cases! {
    families: [
        corner_17_sets_hear_of_who_listens_after_a_refusal,
        corner_17_sets_get_an_edge_of_room_by_an_option,
        corner_17_sets_get_an_edge_of_a_listener_by_an_option,
        corner_17_sets_hear_of_a_listener_of_a_relative,
        corner_17_sets_know_a_member_by_a_number_that_it_has_again,
        corner_17_sets_know_a_member_by_its_own_number_only,
        corner_17_sets_tell_of_a_member_under_each_number,
        corner_17_sets_tell_of_members_with_the_same_data,
    ];
}

/// A member whose connect was refused becomes a listener.
fn corner_17_sets_hear_of_who_listens_after_a_refusal(family: Family) {
    for (before, nonblocking) in [(false, false), (true, false), (false, true)] {
        let nowhere = unused_address(family);
        let socket = if nonblocking {
            tcp_nonblocking(family)
        } else {
            tcp(family)
        };
        let set = sys::epoll_create().unwrap();
        let add = || sys::epoll_control(set, libc::EPOLL_CTL_ADD, socket, IN, 7).unwrap();
        if before {
            add();
        }
        let refused = sys::connect(socket, nowhere);
        if nonblocking {
            assert_eq!(refused, Err(Errno(libc::EINPROGRESS)));
            add();
            await_events(socket, libc::POLLERR);
            assert_eq!(
                sys::connect(socket, nowhere),
                Err(Errno(libc::ECONNREFUSED))
            );
        } else {
            assert_eq!(refused, Err(Errno(libc::ECONNREFUSED)));
            if !before {
                add();
            }
        }
        sys::listen(socket, 5).unwrap();
        let port = sys::getsockname(socket).unwrap().port();
        assert_eq!(sys::epoll_wait(set, 4, 0).unwrap(), []);
        let client = connect_to(family.loopback(port));
        let heard = sys::epoll_wait(set, 4, PATIENCE_MILLISECONDS).unwrap();
        assert_eq!(
            heard,
            [sys::Event {
                data: 7,
                events: IN
            }]
        );
        let server = sys::accept(socket).unwrap();
        expect_alive(client, server);
        assert_eq!(sys::epoll_wait(set, 4, 0).unwrap(), []);
    }
}

/// What may let a writer go on is told once more where the socket is writable.
fn corner_17_sets_get_an_edge_of_room_by_an_option(family: Family) {
    let (client, _server) = pair(family);
    let set = sys::epoll_create().unwrap();
    let out = (libc::EPOLLOUT | libc::EPOLLET).cast_unsigned();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, out, 7).unwrap();
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap().len(), 1);
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap(), []);
    for (level, name) in [
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
        (libc::SOL_SOCKET, libc::SO_SNDBUF),
    ] {
        set_int(client, level, name, 100_000);
        assert_eq!(sys::epoll_wait(set, 4, 0).unwrap().len(), 1, "{name}");
        assert_eq!(sys::epoll_wait(set, 4, 0).unwrap(), []);
    }
}

/// Who asks for room of a listener is told once more of the connections that wait.
fn corner_17_sets_get_an_edge_of_a_listener_by_an_option(family: Family) {
    let (listener, address) = listener(family);
    let sets = [libc::EPOLLIN, libc::EPOLLIN | libc::EPOLLOUT].map(|events| {
        let set = sys::epoll_create().unwrap();
        let events = (events | libc::EPOLLET).cast_unsigned();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, listener, events, 7).unwrap();
        set
    });
    let _client = connect_to(address);
    let told = |timeout| sets.map(|set| sys::epoll_wait(set, 4, timeout).unwrap().len());
    assert_eq!(told(PATIENCE_MILLISECONDS), [1, 1]);
    assert_eq!(told(0), [0, 0]);
    for (level, name) in [
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
        (libc::SOL_SOCKET, libc::SO_SNDBUF),
    ] {
        set_int(listener, level, name, 100_000);
        assert_eq!(told(0), [0, 1], "{name}");
        assert_eq!(told(0), [0, 0]);
    }
}

/// A child listens on a socket that both processes have, and the parent hears of connections.
fn corner_17_sets_hear_of_a_listener_of_a_relative(family: Family) {
    for bound in [false, true] {
        for way in 0..3 {
            let socket = tcp(family);
            if bound {
                sys::bind(socket, family.loopback(0)).unwrap();
            }
            let (listens, ends) = (Baton::new(), Baton::new());
            let child = fork_child(|| {
                sys::listen(socket, 5).unwrap();
                listens.pass();
                ends.take();
            });
            listens.take();
            let port = sys::getsockname(socket).unwrap().port();
            let set = sys::epoll_create().unwrap();
            if way == 2 {
                sys::epoll_control(set, libc::EPOLL_CTL_ADD, socket, IN, 7).unwrap();
            }
            let client = connect_to(family.loopback(port));
            match way {
                0 => assert_eq!(poll_one(socket, libc::POLLIN, 5000), libc::POLLIN),
                1 => {
                    let mut read = sys::Set::of(&[socket]);
                    let count = sys::select(socket, Some(&mut read), None, None, 5000);
                    assert_eq!(count, Ok(1));
                }
                _ => assert_eq!(sys::epoll_wait(set, 4, 5000).unwrap().len(), 1),
            }
            let server = sys::accept(socket).unwrap();
            expect_alive(client, server);
            ends.pass();
            child.join();
        }
    }
}

/// Every number of a member was closed in turn, and the one under which it was added was given to it again.
fn corner_17_sets_know_a_member_by_a_number_that_it_has_again(family: Family) {
    for listens in [false, true] {
        let (socket, _server) = if listens {
            (listener(family).0, None)
        } else {
            let (client, server) = pair(family);
            (client, Some(server))
        };
        let set = sys::epoll_create().unwrap();
        let control = |operation, data| sys::epoll_control(set, operation, socket, sys::OUT, data);
        let wait = || sys::epoll_wait(set, 4, 0).unwrap();
        control(libc::EPOLL_CTL_ADD, 1).unwrap();
        let told = wait();
        let other = sys::dup(socket).unwrap();
        sys::close(socket).unwrap();
        sys::dup2(other, socket).unwrap();
        sys::close(other).unwrap();
        assert_eq!(control(libc::EPOLL_CTL_ADD, 2), Err(Errno(libc::EEXIST)));
        assert_eq!(control(libc::EPOLL_CTL_MOD, 3), Ok(()));
        let data: Vec<_> = wait().iter().map(|event| event.data).collect();
        assert_eq!(data, vec![3; told.len()]);
        assert_eq!(control(libc::EPOLL_CTL_DEL, 0), Ok(()));
        assert_eq!(wait(), []);
        let gone = control(libc::EPOLL_CTL_DEL, 0);
        assert_eq!(gone, Err(Errno(libc::ENOENT)));
        assert_eq!(control(libc::EPOLL_CTL_ADD, 4), Ok(()));
        assert_eq!(wait().len(), told.len());
    }
}

/// The number under which a member was added is another socket's, which is a member, too.
fn corner_17_sets_know_a_member_by_its_own_number_only(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    let control = |operation, data| sys::epoll_control(set, operation, client, IN, data);
    control(libc::EPOLL_CTL_ADD, 1).unwrap();
    let former = sys::dup(client).unwrap();
    let (second, peer) = pair(family);
    sys::dup2(second, client).unwrap();
    assert_eq!(
        control(libc::EPOLL_CTL_MOD, 2),
        Err(Errno(libc::ENOENT)),
        "another socket's"
    );
    control(libc::EPOLL_CTL_ADD, 3).unwrap();
    send_and_wait(server, former, b"a");
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap()[0].data, 1);
    expect_bytes(former, b"a");
    send_and_wait(peer, second, b"b");
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap()[0].data, 3);
    control(libc::EPOLL_CTL_DEL, 0).unwrap();
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap(), []);
    send_and_wait(server, former, b"c");
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap()[0].data, 1);
}

/// One file is a member under two numbers: both are told at once, also after a sleep.
fn corner_17_sets_tell_of_a_member_under_each_number(family: Family) {
    let (client, server) = pair(family);
    let set = sys::epoll_create().unwrap();
    for (member, data) in [(server, 1), (sys::dup(server).unwrap(), 2)] {
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, member, IN, data).unwrap();
    }
    assert_eq!(sys::epoll_wait(set, 4, 10).unwrap(), []);
    for text in [b"one", b"two"] {
        send_and_wait(client, server, text);
        let mut told: Vec<_> = sys::epoll_wait(set, 4, 0).unwrap();
        told.sort_by_key(|event| event.data);
        assert_eq!(
            told.iter().map(|event| event.data).collect::<Vec<_>>(),
            [1, 2]
        );
        expect_bytes(server, text);
    }
}

fn corner_17_sets_tell_of_members_with_the_same_data(family: Family) {
    let (listening, address) = listener(family);
    let [read, write] = sys::pipe(0).unwrap();
    sys::write(write, b"told").unwrap();
    let set = sys::epoll_create().unwrap();
    for member in [read, listening] {
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, member, IN, 5).unwrap();
    }
    let told = || sys::epoll_wait(set, 4, 0).unwrap().len();
    assert_eq!(told(), 1);
    let client = connect_to(address);
    assert_eq!(told(), 2);
    expect_alive(client, sys::accept(listening).unwrap());
    assert_eq!(told(), 1);
}
