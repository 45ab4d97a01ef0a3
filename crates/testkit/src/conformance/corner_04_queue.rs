//! Corner 4: a listener has one queue of connections, for every process that polls it, and however a process got it.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::deferred::reported;

cases! {
    families: [
        corner_04_queue_epoll_looks_without_waiting,
        corner_04_queue_epoll_edge_without_waiting,
        corner_04_queue_set_made_after_the_connection,
        corner_04_queue_waits_over_a_fork_for_the_child,
        corner_04_queue_waits_over_a_fork_for_both,
        corner_04_queue_child_looks_parent_accepts,
        corner_04_queue_child_polls_parent_accepts,
        corner_04_queue_inherited_set_looks_parent_accepts,
        corner_04_queue_parent_looks_child_accepts,
        corner_04_queue_looker_dies,
        corner_04_queue_keeps_its_order,
        corner_04_queue_edge_is_told_to_all_and_once,
        corner_04_queue_one_shot_of_a_shared_listener_sleeps,
        corner_04_queue_spent_one_shot_of_a_listener_that_is_shut,
        corner_04_queue_last_holder_goes,
        corner_04_queue_child_answers_much,
    ];
}

/// A child that connects and stays until it is released.
struct Client {
    connected: Baton,
    end: Baton,
    child: Child,
}

impl Client {
    fn new(listening: Descriptor, address: std::net::SocketAddr, says: &[u8]) -> Self {
        let (connected, end) = (Baton::new(), Baton::new());
        let child = fork_child(|| {
            sys::close(listening).unwrap();
            let socket = connect_to(address);
            send_all(socket, says);
            connected.pass();
            end.take();
        });
        connected.take();
        Self {
            connected,
            end,
            child,
        }
    }

    fn end(self) {
        self.end.pass();
        self.child.join();
        self.connected.close();
        self.end.close();
    }
}

/// A non-blocking listener and its address.
fn nonblocking_listener(family: Family) -> (Descriptor, std::net::SocketAddr) {
    let (listening, address) = listener(family);
    set_nonblocking(listening);
    (listening, address)
}

fn set_with(listening: Descriptor, events: u32) -> Descriptor {
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, events, 7).unwrap();
    set
}

fn accept_saying(listening: Descriptor, bytes: &[u8]) -> Descriptor {
    let server = sys::accept(listening).expect("a connection waits");
    expect_bytes(server, bytes);
    server
}

fn expect_none(listening: Descriptor) {
    assert_eq!(sys::accept(listening), Err(Errno(libc::EAGAIN)));
}

fn corner_04_queue_epoll_looks_without_waiting(family: Family) {
    let (listening, address) = nonblocking_listener(family);
    let set = set_with(listening, sys::IN);
    assert_eq!(reported(set, 0), 0);
    let client = Client::new(listening, address, b"1");
    assert_eq!(reported(set, 0), 1);
    assert_eq!(reported(set, 0), 1);
    accept_saying(listening, b"1");
    assert_eq!(reported(set, 0), 0);
    client.end();
}

fn corner_04_queue_epoll_edge_without_waiting(family: Family) {
    let (listening, address) = nonblocking_listener(family);
    let set = set_with(listening, sys::IN | libc::EPOLLET.cast_unsigned());
    assert_eq!(reported(set, 0), 0);
    let first = Client::new(listening, address, b"1");
    assert_eq!(reported(set, 0), 1);
    assert_eq!(reported(set, 0), 0);
    let second = Client::new(listening, address, b"2");
    assert_eq!(reported(set, 0), 1);
    assert_eq!(reported(set, 0), 0);
    accept_saying(listening, b"1");
    accept_saying(listening, b"2");
    assert_eq!(reported(set, 0), 0);
    first.end();
    second.end();
}

fn corner_04_queue_set_made_after_the_connection(family: Family) {
    let (listening, address) = nonblocking_listener(family);
    let client = Client::new(listening, address, b"1");
    let level = set_with(listening, sys::IN);
    let edge = set_with(listening, sys::IN | libc::EPOLLET.cast_unsigned());
    assert_eq!(reported(edge, 0), 1);
    assert_eq!(reported(edge, 0), 0);
    assert_eq!(reported(level, 0), 1);
    accept_saying(listening, b"1");
    assert_eq!(reported(level, 0), 0);
    client.end();
}

fn corner_04_queue_waits_over_a_fork_for_the_child(family: Family) {
    let (listening, address) = nonblocking_listener(family);
    let client = Client::new(listening, address, b"1");
    // The parent's poll reports the connection, and then does not.
    assert_eq!(poll_one(listening, libc::POLLIN, 0), libc::POLLIN);
    let other = Client::new(listening, address, b"2");
    fork_child(|| {
        accept_saying(listening, b"1");
        accept_saying(listening, b"2");
        expect_none(listening);
    })
    .join();
    expect_none(listening);
    client.end();
    other.end();
}

fn corner_04_queue_waits_over_a_fork_for_both(family: Family) {
    let (listening, address) = nonblocking_listener(family);
    let first = Client::new(listening, address, b"1");
    let second = Client::new(listening, address, b"2");
    let third = Client::new(listening, address, b"3");
    let (parent_baton, child_baton) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        child_baton.take();
        accept_saying(listening, b"2");
        parent_baton.pass();
        child_baton.take();
        expect_none(listening);
    });
    accept_saying(listening, b"1");
    child_baton.pass();
    parent_baton.take();
    accept_saying(listening, b"3");
    expect_none(listening);
    child_baton.pass();
    child.join();
    [first, second, third].into_iter().for_each(Client::end);
}

/// A child runs `look` when it is released, before the parent accepts.
fn looks_and_leaves(family: Family, look: impl FnOnce(Descriptor) + Copy) {
    let (listening, address) = nonblocking_listener(family);
    let (parent_baton, child_baton) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        child_baton.take();
        look(listening);
        parent_baton.pass();
        child_baton.take();
        look(listening);
        expect_none(listening);
    });
    let client = Client::new(listening, address, b"1");
    child_baton.pass();
    parent_baton.take();
    accept_saying(listening, b"1");
    expect_none(listening);
    sys::close(listening).unwrap();
    child_baton.pass();
    client.end();
    child.join();
}

fn corner_04_queue_child_looks_parent_accepts(family: Family) {
    looks_and_leaves(family, |listening| {
        let set = set_with(listening, sys::IN);
        let _ = reported(set, 0);
        let _ = reported(set, 0);
    });
}

fn corner_04_queue_child_polls_parent_accepts(family: Family) {
    looks_and_leaves(family, |listening| {
        let _ = poll_one(listening, libc::POLLIN, 0);
        let _ = poll_one(listening, libc::POLLIN, 10);
    });
}

fn corner_04_queue_inherited_set_looks_parent_accepts(family: Family) {
    let (listening, address) = nonblocking_listener(family);
    let set = set_with(listening, sys::IN);
    let (parent_baton, child_baton) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        assert_eq!(reported(set, 0), 0);
        parent_baton.pass();
        child_baton.take();
        assert_eq!(reported(set, 0), 1);
        assert_eq!(reported(set, 1000), 1);
        parent_baton.pass();
        child_baton.take();
        assert_eq!(reported(set, 0), 0);
        expect_none(listening);
    });
    parent_baton.take();
    let client = Client::new(listening, address, b"1");
    child_baton.pass();
    parent_baton.take();
    accept_saying(listening, b"1");
    child_baton.pass();
    child.join();
    client.end();
}

fn corner_04_queue_parent_looks_child_accepts(family: Family) {
    let (listening, address) = nonblocking_listener(family);
    let child_baton = Baton::new();
    let child = fork_child(|| {
        child_baton.take();
        accept_saying(listening, b"1");
        expect_none(listening);
    });
    let set = set_with(listening, sys::IN);
    assert_eq!(reported(set, 0), 0);
    let client = Client::new(listening, address, b"1");
    assert_eq!(reported(set, 1000), 1);
    assert_eq!(poll_one(listening, libc::POLLIN, 0), libc::POLLIN);
    child_baton.pass();
    child.join();
    assert_eq!(reported(set, 0), 0);
    client.end();
}

fn corner_04_queue_looker_dies(family: Family) {
    let (listening, address) = nonblocking_listener(family);
    let ready = Baton::new();
    let child = fork_child(|| {
        let set = set_with(listening, sys::IN);
        ready.pass();
        assert_eq!(reported(set, PATIENCE_MILLISECONDS), 1);
        ready.pass();
        let _ = sys::recv(connect_to(address), &mut [0], 0);
    });
    ready.take();
    let client = Client::new(listening, address, b"1");
    ready.take();
    child.kill();
    await_events(listening, libc::POLLIN);
    let server = accept_saying(listening, b"1");
    send_all(server, b"answer");
    client.end();
}

fn corner_04_queue_keeps_its_order(family: Family) {
    let (listening, address) = nonblocking_listener(family);
    let (parent_baton, child_baton) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        child_baton.take();
        assert_eq!(poll_one(listening, libc::POLLIN, 0), libc::POLLIN);
        parent_baton.pass();
        child_baton.take();
    });
    let first = Client::new(listening, address, b"1");
    child_baton.pass();
    parent_baton.take();
    let second = Client::new(listening, address, b"2");
    accept_saying(listening, b"1");
    accept_saying(listening, b"2");
    child_baton.pass();
    child.join();
    first.end();
    second.end();
}

fn corner_04_queue_edge_is_told_to_all_and_once(family: Family) {
    let (listening, address) = nonblocking_listener(family);
    let edge = sys::IN | libc::EPOLLET.cast_unsigned();
    let (parent_baton, child_baton) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        let set = set_with(listening, edge);
        parent_baton.pass();
        child_baton.take();
        assert_eq!(reported(set, 0), 1);
        assert_eq!(reported(set, 0), 0);
        parent_baton.pass();
        child_baton.take();
        assert_eq!(reported(set, 0), 1);
        parent_baton.pass();
        child_baton.take();
    });
    parent_baton.take();
    let set = set_with(listening, edge);
    let first = Client::new(listening, address, b"1");
    child_baton.pass();
    parent_baton.take();
    assert_eq!(reported(set, 0), 1);
    assert_eq!(reported(set, 0), 0);
    let second = Client::new(listening, address, b"2");
    child_baton.pass();
    parent_baton.take();
    assert_eq!(reported(set, 0), 1);
    accept_saying(listening, b"1");
    accept_saying(listening, b"2");
    assert_eq!(reported(set, 0), 0);
    child_baton.pass();
    child.join();
    first.end();
    second.end();
}

/// Nanoseconds of processor time.
fn spent() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a local.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn corner_04_queue_one_shot_of_a_shared_listener_sleeps(family: Family) {
    let (listening, address) = nonblocking_listener(family);
    let child_baton = Baton::new();
    let child = fork_child(|| child_baton.take());
    let set = set_with(listening, sys::IN | libc::EPOLLONESHOT.cast_unsigned());
    let client = Client::new(listening, address, b"1");
    assert_eq!(reported(set, 1000), 1);
    let before = spent();
    assert_eq!(reported(set, 100), 0);
    let spent = spent() - before;
    assert!(spent < 50_000_000, "it sleeps: {spent}");
    let events = sys::IN | libc::EPOLLONESHOT.cast_unsigned();
    sys::epoll_control(set, libc::EPOLL_CTL_MOD, listening, events, 8).unwrap();
    assert_eq!(reported(set, 0), 1);
    accept_saying(listening, b"1");
    child_baton.pass();
    child.join();
    client.end();
}

fn corner_04_queue_spent_one_shot_of_a_listener_that_is_shut(family: Family) {
    let (listening, address) = listener(family);
    let set = set_with(listening, sys::IN | libc::EPOLLONESHOT.cast_unsigned());
    let client = connect_to(address);
    assert_eq!(reported(set, 1000), 1);
    sys::shutdown(listening, libc::SHUT_RDWR).unwrap();
    await_events(client, libc::POLLERR);
    assert_eq!(reported(set, 20), 0);
    sys::epoll_control(set, libc::EPOLL_CTL_MOD, listening, sys::IN, 8).unwrap();
    assert_eq!(reported(set, 1000), 1);
}

fn corner_04_queue_last_holder_goes(family: Family) {
    let (listening, address) = nonblocking_listener(family);
    let ready = Baton::new();
    let child = fork_child(|| {
        ready.take();
        assert_eq!(poll_one(listening, libc::POLLIN, 0), libc::POLLIN);
    });
    let socket = connect_to(address);
    ready.pass();
    child.join();
    sys::close(listening).unwrap();
    assert_eq!(sys::recv(socket, &mut [0], 0), Err(Errno(libc::ECONNRESET)));
}

/// The least number of bytes that TCP takes without a reader.
const MUCH: usize = 100_000;

fn corner_04_queue_child_answers_much(family: Family) {
    let (listening, address) = nonblocking_listener(family);
    let client = connect_to(address);
    let (parent_baton, child_baton) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        let server = sys::accept(listening).expect("it waited over the fork");
        let taken = fill(server);
        assert!(taken > MUCH, "{taken}");
        parent_baton.send(taken as u64);
        child_baton.take();
    });
    let taken = usize::try_from(parent_baton.receive()).unwrap();
    expect_pattern(client, 0, taken);
    child_baton.pass();
    child.join();
    expect_end(client);
}
