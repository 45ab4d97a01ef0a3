//! Corner 17, sets that have a socket from before it is connected, bound or listens.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno, Event, IN};

use crate::case::cases;

cases! {
    families: [
        corner_17_fresh_is_shown_as_unconnected,
        corner_17_fresh_connects_before_a_wait,
        corner_17_fresh_connects_after_a_wait,
        corner_17_fresh_connect_is_refused,
        corner_17_fresh_is_changed_and_removed,
        corner_17_fresh_binds_and_listens,
        corner_17_fresh_has_several_numbers,
        corner_17_fresh_is_closed,
        corner_17_fresh_is_shown_by_poll_and_sets,
        corner_17_fresh_wakes_who_waits,
        corner_17_fresh_connects_while_another_waits,
        corner_17_fresh_and_a_fork,
        corner_17_fresh_is_passed,
        corner_17_fresh_is_exclusive,
        corner_17_fresh_to_who_defers,
        corner_17_fresh_in_two_sets,
    ];
}

const OUT: u32 = libc::EPOLLOUT.cast_unsigned();
const HUP: u32 = libc::EPOLLHUP.cast_unsigned();
const RDHUP: u32 = libc::EPOLLRDHUP.cast_unsigned();
const EDGE: u32 = libc::EPOLLET.cast_unsigned();
const ONCE: u32 = libc::EPOLLONESHOT.cast_unsigned();
const ALL: u32 = IN | OUT | RDHUP;

fn set_with(socket: Descriptor, events: u32) -> Descriptor {
    let set = sys::epoll_create().unwrap();
    add(set, socket, events);
    set
}

fn add(set: Descriptor, socket: Descriptor, events: u32) {
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, socket, events, 7).unwrap();
}

fn change(set: Descriptor, socket: Descriptor, events: u32) {
    sys::epoll_control(set, libc::EPOLL_CTL_MOD, socket, events, 7).unwrap();
}

/// The events of the one member, 0 for none.
#[track_caller]
fn shown(set: Descriptor, timeout: libc::c_int) -> u32 {
    match sys::epoll_wait(set, 4, timeout).unwrap()[..] {
        [] => 0,
        [Event { events, data: 7 }] => events,
        ref other => panic!("{other:?}"),
    }
}

fn corner_17_fresh_is_shown_as_unconnected(family: Family) {
    for (asked, expected) in [(ALL, OUT | HUP), (IN, HUP), (OUT, OUT | HUP), (0, HUP)] {
        let socket = tcp(family);
        let set = set_with(socket, asked);
        assert_eq!(shown(set, -1), expected);
        assert_eq!(shown(set, 0), expected, "it stays so");
        let edges = set_with(socket, asked | EDGE);
        assert_eq!(shown(edges, 0), expected);
        assert_eq!(shown(edges, 0), 0, "an edge is told once");
        let once = set_with(socket, asked | ONCE);
        assert_eq!(shown(once, 0), expected);
        assert_eq!(shown(once, 0), 0);
        change(once, socket, asked | ONCE);
        assert_eq!(shown(once, 0), expected);
        assert_eq!(shown(once, 0), 0);
    }
}

/// As nginx does for each connection to a server behind it.
fn corner_17_fresh_connects_before_a_wait(family: Family) {
    let (listening, address) = listener(family);
    for nonblocking in [true, false] {
        for way in [0, EDGE, ONCE] {
            let socket = tcp(family);
            if nonblocking {
                set_nonblocking(socket);
            }
            let set = set_with(socket, ALL | way);
            let connected = sys::connect(socket, address);
            assert_eq!(connected.is_ok(), !nonblocking);
            assert_eq!(shown(set, PATIENCE_MILLISECONDS), OUT);
            assert_eq!(shown(set, 0), if way == 0 { OUT } else { 0 });
            let server = sys::accept(listening).unwrap();
            expect_alive(socket, server);
            send_all(server, b"x");
            await_events(socket, libc::POLLIN);
            let news = if way == ONCE { 0 } else { IN | OUT };
            assert_eq!(shown(set, 0), news);
            expect_bytes(socket, b"x");
            sys::close(server).unwrap();
            await_events(socket, libc::POLLRDHUP);
            let end = if way == ONCE { 0 } else { ALL };
            assert_eq!(shown(set, 0), end);
        }
    }
}

fn corner_17_fresh_connects_after_a_wait(family: Family) {
    let (listening, address) = listener(family);
    for way in [0, EDGE, ONCE] {
        let socket = tcp_nonblocking(family);
        let set = set_with(socket, ALL | way);
        assert_eq!(shown(set, 0), OUT | HUP);
        assert_eq!(sys::connect(socket, address), Err(Errno(libc::EINPROGRESS)));
        let server = sys::accept(listening).unwrap();
        await_events(socket, libc::POLLOUT);
        assert_eq!(shown(set, 0), if way == ONCE { 0 } else { OUT });
        expect_alive(socket, server);
    }
}

fn corner_17_fresh_connect_is_refused(family: Family) {
    let socket = tcp_nonblocking(family);
    let set = set_with(socket, ALL | EDGE);
    let refused = sys::connect(socket, unused_address(family));
    assert_eq!(refused, Err(Errno(libc::EINPROGRESS)));
    await_events(socket, libc::POLLERR);
    let all = ALL | HUP | libc::EPOLLERR.cast_unsigned();
    assert_eq!(shown(set, 0), all);
    assert_eq!(shown(set, 0), 0);
    assert_eq!(socket_error(socket), Errno(libc::ECONNREFUSED));
    let (listening, address) = listener(family);
    for error in [libc::ECONNABORTED, libc::EINPROGRESS] {
        assert_eq!(sys::connect(socket, address), Err(Errno(error)));
    }
    let server = sys::accept(listening).unwrap();
    await_events(socket, libc::POLLOUT);
    assert_eq!(shown(set, 0), OUT);
    expect_alive(socket, server);
}

fn corner_17_fresh_is_changed_and_removed(family: Family) {
    let (listening, address) = listener(family);
    let socket = tcp(family);
    let set = set_with(socket, IN);
    let control = |operation, events| sys::epoll_control(set, operation, socket, events, 8);
    assert_eq!(control(libc::EPOLL_CTL_ADD, IN), Err(Errno(libc::EEXIST)));
    control(libc::EPOLL_CTL_DEL, 0).unwrap();
    assert_eq!(control(libc::EPOLL_CTL_DEL, 0), Err(Errno(libc::ENOENT)));
    assert_eq!(control(libc::EPOLL_CTL_MOD, IN), Err(Errno(libc::ENOENT)));
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap(), []);
    let another = tcp(family);
    add(set, another, IN);
    sys::epoll_control(set, libc::EPOLL_CTL_MOD, another, OUT, 9).unwrap();
    assert_eq!(
        sys::epoll_control(set, 77, another, OUT, 9),
        Err(Errno(libc::EINVAL))
    );
    sys::connect(another, address).unwrap();
    let expected = [Event {
        data: 9,
        events: OUT,
    }];
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap(), expected);
    sys::epoll_control(set, libc::EPOLL_CTL_DEL, another, 0, 0).unwrap();
    assert_eq!(sys::epoll_wait(set, 4, 0).unwrap(), []);
    let server = sys::accept(listening).unwrap();
    expect_alive(another, server);
}

fn corner_17_fresh_binds_and_listens(family: Family) {
    for looks in [false, true] {
        let socket = tcp(family);
        let set = set_with(socket, ALL | EDGE);
        let level = set_with(socket, ALL);
        if looks {
            assert_eq!(shown(set, 0), OUT | HUP);
        }
        sys::bind(socket, family.loopback(0)).unwrap();
        assert_eq!(shown(set, 0), if looks { 0 } else { OUT | HUP });
        assert_eq!(shown(level, 0), OUT | HUP);
        sys::listen(socket, 5).unwrap();
        assert_eq!(shown(level, 0), 0);
        let client = connect_to(sys::getsockname(socket).unwrap());
        assert_eq!(shown(set, PATIENCE_MILLISECONDS), IN);
        assert_eq!(shown(level, PATIENCE_MILLISECONDS), IN);
        let server = sys::accept(socket).unwrap();
        expect_alive(client, server);
    }
}

fn corner_17_fresh_has_several_numbers(family: Family) {
    let (listening, address) = listener(family);
    for way in 0..3 {
        let socket = tcp(family);
        let set = set_with(socket, ALL);
        let other = sys::dup(socket).unwrap();
        if way == 1 {
            sys::close(socket).unwrap();
        }
        assert_eq!(shown(set, 0), OUT | HUP);
        sys::connect(other, address).unwrap();
        assert_eq!(shown(set, 0), OUT);
        let server = sys::accept(listening).unwrap();
        expect_alive(other, server);
        if way == 2 {
            sys::close(socket).unwrap();
        }
        sys::close(server).unwrap();
        await_events(other, libc::POLLRDHUP);
        assert_eq!(shown(set, 0), ALL);
        sys::close(other).unwrap();
        if way == 0 {
            sys::close(socket).unwrap();
        }
        assert_eq!(shown(set, 0), 0, "nobody has it any more");
    }
}

fn corner_17_fresh_is_closed(family: Family) {
    for way in 0..3 {
        let socket = tcp(family);
        let set = set_with(socket, ALL);
        match way {
            0 => sys::close(socket).unwrap(),
            1 => assert_eq!(sys::dup2(set, socket), Ok(socket)),
            _ => {
                let number = socket.cast_unsigned();
                sys::close_range(number, number, 0).unwrap();
            }
        }
        assert_eq!(shown(set, 0), 0);
        if way != 1 {
            let next = tcp(family);
            assert_eq!(next, socket, "the number is free");
            add(set, next, IN);
            assert_eq!(shown(set, 0), HUP);
            sys::close(next).unwrap();
        }
        sys::close(set).unwrap();
    }
}

fn corner_17_fresh_is_shown_by_poll_and_sets(family: Family) {
    for look in 0..4 {
        let inner = sys::epoll_create().unwrap();
        let outer = set_with(inner, IN);
        let socket = tcp(family);
        if look < 2 {
            add(inner, socket, OUT | EDGE);
        }
        match look {
            0 => assert_eq!(poll_one(inner, libc::POLLIN, 0), libc::POLLIN),
            1 => assert_eq!(shown(outer, 0), IN),
            2 => {
                let alone = set_with(socket, OUT | EDGE);
                add(outer, alone, OUT);
                assert_eq!(shown(outer, 0), 0);
                change(outer, alone, IN);
                assert_eq!(shown(outer, 0), IN);
                assert_eq!(shown(alone, 0), OUT | HUP);
                add(inner, socket, OUT | EDGE);
            }
            _ => {
                let alone = set_with(socket, OUT | EDGE);
                let mut read = sys::Set::of(&[alone]);
                assert_eq!(sys::select(alone, Some(&mut read), None, None, 0), Ok(1));
                add(inner, socket, OUT | EDGE);
            }
        }
        assert_eq!(shown(inner, 0), OUT | HUP);
        assert_eq!(shown(inner, 0), 0);
        assert_eq!(shown(outer, 0), 0);
    }
}

fn corner_17_fresh_wakes_who_waits(family: Family) {
    for asked in [IN, ALL | EDGE] {
        let set = sys::epoll_create().unwrap();
        let (thread, task) = start_thread(move || shown(set, -1));
        await_asleep(task);
        let socket = tcp(family);
        add(set, socket, asked);
        assert_eq!(join_thread(thread), HUP | asked & OUT);
    }
}

/// Whether the waiting thread hears of it before it is connected is chance.
fn corner_17_fresh_connects_while_another_waits(family: Family) {
    let (listening, address) = listener(family);
    for _ in 0..50 {
        let set = sys::epoll_create().unwrap();
        let (thread, _) = start_thread(move || while shown(set, -1) != OUT {});
        let socket = tcp_nonblocking(family);
        add(set, socket, ALL | EDGE);
        let connected = sys::connect(socket, address);
        assert_eq!(connected, Err(Errno(libc::EINPROGRESS)));
        let server = sys::accept(listening).unwrap();
        join_thread(thread);
        expect_alive(socket, server);
        sys::close(socket).unwrap();
        sys::close(server).unwrap();
    }
}

fn corner_17_fresh_and_a_fork(family: Family) {
    let (listening, address) = listener(family);
    for child_connects in [false, true] {
        let socket = tcp(family);
        let set = set_with(socket, ALL);
        let (connects, looked, ends) = (Baton::new(), Baton::new(), Baton::new());
        let child = fork_child(|| {
            if child_connects {
                sys::connect(socket, address).unwrap();
            } else {
                connects.take();
            }
            assert_eq!(shown(set, PATIENCE_MILLISECONDS), OUT);
            looked.pass();
            ends.take();
        });
        if !child_connects {
            sys::connect(socket, address).unwrap();
            connects.pass();
        }
        let server = sys::accept(listening).unwrap();
        looked.take();
        assert_eq!(shown(set, PATIENCE_MILLISECONDS), OUT);
        expect_alive(socket, server);
        ends.pass();
        child.join();
    }
}

fn corner_17_fresh_is_passed(family: Family) {
    let (listening, address) = listener(family);
    let [one, other] = sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM).unwrap();
    let socket = tcp(family);
    let set = set_with(socket, ALL);
    sys::send_descriptor(one, socket).unwrap();
    let received = sys::recv_descriptor(other).unwrap();
    assert_eq!(shown(set, 0), OUT | HUP);
    sys::connect(received, address).unwrap();
    assert_eq!(shown(set, 0), OUT);
    let server = sys::accept(listening).unwrap();
    expect_alive(received, server);
    expect_alive(socket, server);
}

fn corner_17_fresh_is_exclusive(family: Family) {
    let (listening, address) = listener(family);
    let exclusive = libc::EPOLLEXCLUSIVE.cast_unsigned();
    let socket = tcp(family);
    let set = set_with(socket, IN | OUT | exclusive);
    let changed = sys::epoll_control(set, libc::EPOLL_CTL_MOD, socket, IN, 7);
    assert_eq!(changed, Err(Errno(libc::EINVAL)));
    let another = sys::epoll_control(set, libc::EPOLL_CTL_ADD, tcp(family), ALL | exclusive, 7);
    assert_eq!(another, Err(Errno(libc::EINVAL)));
    sys::connect(socket, address).unwrap();
    assert_eq!(shown(set, 0), OUT);
    let server = sys::accept(listening).unwrap();
    expect_alive(socket, server);
    let late = tcp(family);
    let set = set_with(late, IN);
    let changed = sys::epoll_control(set, libc::EPOLL_CTL_MOD, late, IN | exclusive, 7);
    assert_eq!(changed, Err(Errno(libc::EINVAL)));
}

/// Who connects says something only later.
fn corner_17_fresh_to_who_defers(family: Family) {
    let (listening, address) = listener(family);
    set_int(listening, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 60);
    for way in [0, EDGE, ONCE] {
        let socket = tcp_nonblocking(family);
        let set = set_with(socket, ALL | way);
        let connected = sys::connect(socket, address);
        assert_eq!(connected, Err(Errno(libc::EINPROGRESS)));
        assert_eq!(shown(set, PATIENCE_MILLISECONDS), OUT);
        assert_eq!(shown(set, 0), if way == 0 { OUT } else { 0 });
        send_all(socket, b"a");
        let server = sys::accept(listening).unwrap();
        expect_bytes(server, b"a");
        send_all(server, b"b");
        await_events(socket, libc::POLLIN);
        assert_eq!(shown(set, 0), if way == ONCE { 0 } else { IN | OUT });
        expect_bytes(socket, b"b");
    }
}

fn corner_17_fresh_in_two_sets(family: Family) {
    let (listening, address) = listener(family);
    for looks in [false, true] {
        let socket = tcp_nonblocking(family);
        let (one, other) = (set_with(socket, ALL | EDGE), set_with(socket, OUT | EDGE));
        if looks {
            assert_eq!(shown(other, 0), OUT | HUP);
        }
        let connected = sys::connect(socket, address);
        assert_eq!(connected, Err(Errno(libc::EINPROGRESS)));
        let server = sys::accept(listening).unwrap();
        await_events(socket, libc::POLLOUT);
        assert_eq!((shown(one, 0), shown(other, 0)), (OUT, OUT));
        assert_eq!((shown(one, 0), shown(other, 0)), (0, 0));
        expect_alive(socket, server);
    }
}
