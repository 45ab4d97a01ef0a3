//! Corner 4: a child alone accepts, one connection after the other and quickly, beside a parent that has the listener, too.
//! When it works on one connection for long, ends or is killed, or a second process begins to accept, what waits belongs
//! to whoever accepts.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor};

use crate::case::cases;

cases! {
    families: [
        corner_04_sole_acceptor_has_a_long_session_parent_accepts,
        corner_04_sole_acceptor_has_a_long_session_parent_polls,
        corner_04_sole_acceptor_has_a_long_session_new_child_accepts,
        corner_04_sole_acceptor_ends,
        corner_04_sole_acceptor_is_killed,
        corner_04_sole_acceptor_computes_parent_accepts,
        corner_04_sole_acceptor_is_killed_clients_have_closed,
        corner_04_sole_acceptor_is_killed_clients_have_ended,
        corner_04_sole_acceptor_is_killed_clients_have_sent_urgent_bytes,
        corner_04_sole_acceptor_closes,
        corner_04_sole_acceptor_forks,
        corner_04_sole_acceptor_goes_on_beside_a_second,
    ];
}

/// So many requests in a row, that a link is made to the child.
const QUICK: usize = 100;
/// Connections that come while the child does not accept.
const WAITING: usize = 3;
/// How often a case is tried whose connections must come within a millisecond.
const ROUNDS: usize = 8;

/// Answers the request of each connection with the same byte, one connection after the other. After some it does more:
/// `s` serves that connection until its end, `x` computes for ever, `e` ends soon, `c` closes the listener, and `f` has a
/// child that goes on while it serves that connection.
fn serve(listening: Descriptor) {
    loop {
        let connection = sys::accept(listening).unwrap();
        let mut request = [0];
        assert_eq!(sys::recv(connection, &mut request, 0), Ok(1));
        let mut grandchild = None;
        if request == *b"f" {
            grandchild = Some(fork_child(|| serve(listening)));
        }
        send_all(connection, &request);
        match &request {
            b"s" | b"f" => assert_eq!(sys::recv(connection, &mut request, 0), Ok(0)),
            b"x" => loop {
                std::hint::spin_loop();
            },
            b"e" => {
                thread::sleep(Duration::from_millis(5));
                return;
            }
            b"c" => {
                thread::sleep(Duration::from_millis(5));
                sys::close(listening).unwrap();
                assert_eq!(sys::recv(connection, &mut request, 0), Ok(0));
                return;
            }
            _ => {}
        }
        sys::close(connection).unwrap();
        if let Some(grandchild) = grandchild {
            grandchild.kill();
            return;
        }
    }
}

/// Serves one connection in the parent.
fn serve_one(listening: Descriptor) {
    let connection = sys::accept(listening).unwrap();
    expect_bytes(connection, b"q");
    send_all(connection, b"p");
    sys::close(connection).unwrap();
}

fn begin(address: SocketAddr, request: &[u8; 1]) -> Descriptor {
    let client = connect_to(address);
    send_all(client, request);
    client
}

fn ask(address: SocketAddr, request: &[u8; 1]) -> Descriptor {
    let client = begin(address, request);
    expect_bytes(client, request);
    client
}

fn ask_quickly(address: SocketAddr) {
    for _ in 0..QUICK {
        sys::close(ask(address, b"q")).unwrap();
    }
}

/// What a client process does that knows the child, and is told to connect once more.
type Act = fn(SocketAddr, &Baton);

/// It gets its answer from the parent.
fn is_served_by_parent(address: SocketAddr, connected: &Baton) {
    let client = begin(address, b"q");
    connected.pass();
    expect_bytes(client, b"p");
    expect_end(client);
}

/// It gets its answer from the child or its child.
fn is_served(address: SocketAddr, connected: &Baton) {
    let client = begin(address, b"q");
    connected.pass();
    expect_bytes(client, b"q");
    expect_end(client);
}

fn closes(address: SocketAddr, connected: &Baton) {
    sys::close(begin(address, b"q")).unwrap();
    connected.pass();
}

fn ends(address: SocketAddr, connected: &Baton) {
    // It closes nothing.
    begin(address, b"q");
    connected.pass();
}

fn sends_urgent_bytes(address: SocketAddr, connected: &Baton) {
    let client = connect_to(address);
    send_all(client, b"1");
    assert_eq!(sys::send(client, b"uv", libc::MSG_OOB), Ok(2));
    send_all(client, b"2");
    connected.pass();
    expect_end(client);
}

/// A client process that knows the child, and connects once more when it is told to.
struct Client {
    told: Baton,
    connected: Baton,
    child: Child,
}

impl Client {
    fn new(listening: Descriptor, address: SocketAddr, act: Act) -> Self {
        let (told, connected, ready) = (Baton::new(), Baton::new(), Baton::new());
        let child = fork_child(|| {
            sys::close(listening).unwrap();
            ask_quickly(address);
            ready.pass();
            told.take();
            act(address, &connected);
        });
        ready.take();
        ready.close();
        Self {
            told,
            connected,
            child,
        }
    }

    fn connect(&self) {
        self.told.pass();
        self.connected.take();
    }

    fn end(self) {
        self.child.join();
        self.told.close();
        self.connected.close();
    }
}

/// Connections come while the child does what it does after this request, and `then` serves them, which is given the
/// listener and the child. Returns the child.
fn leave_waiting(
    family: Family,
    request: &[u8; 1],
    act: Act,
    then: impl Fn(Descriptor, &Child),
) -> Child {
    let (listening, address) = listener(family);
    let child = fork_child(|| serve(listening));
    let clients: Vec<_> = (0..WAITING)
        .map(|_| Client::new(listening, address, act))
        .collect();
    ask_quickly(address);
    let session = ask(address, request);
    clients.iter().for_each(Client::connect);
    then(listening, &child);
    clients.into_iter().for_each(Client::end);
    sys::close(session).unwrap();
    sys::close(listening).unwrap();
    child
}

fn serve_waiting(listening: Descriptor) {
    (0..WAITING).for_each(|_| serve_one(listening));
}

fn corner_04_sole_acceptor_has_a_long_session_parent_accepts(family: Family) {
    leave_waiting(family, b"s", is_served_by_parent, |listening, _| {
        serve_waiting(listening)
    })
    .kill();
}

fn corner_04_sole_acceptor_has_a_long_session_parent_polls(family: Family) {
    leave_waiting(family, b"s", is_served_by_parent, |listening, _| {
        for _ in 0..WAITING {
            await_events(listening, libc::POLLIN);
            serve_one(listening);
        }
    })
    .kill();
}

fn corner_04_sole_acceptor_has_a_long_session_new_child_accepts(family: Family) {
    leave_waiting(family, b"s", is_served_by_parent, |listening, _| {
        fork_child(|| serve_waiting(listening)).join();
    })
    .kill();
}

fn corner_04_sole_acceptor_ends(family: Family) {
    leave_waiting(family, b"e", is_served_by_parent, |listening, _| {
        serve_waiting(listening)
    })
    .join();
}

fn corner_04_sole_acceptor_is_killed(family: Family) {
    leave_waiting(family, b"x", is_served_by_parent, |listening, child| {
        child.kill();
        serve_waiting(listening);
    });
}

fn corner_04_sole_acceptor_computes_parent_accepts(family: Family) {
    for _ in 0..ROUNDS {
        leave_waiting(family, b"x", is_served_by_parent, |listening, _| {
            serve_waiting(listening);
        })
        .kill();
    }
}

fn kill_when_all_have_gone(family: Family, act: Act) {
    for _ in 0..ROUNDS {
        leave_waiting(family, b"x", act, |listening, child| {
            thread::sleep(Duration::from_millis(5));
            child.kill();
            for _ in 0..WAITING {
                let connection = sys::accept(listening).unwrap();
                expect_bytes(connection, b"q");
                expect_end(connection);
                sys::close(connection).unwrap();
            }
        });
    }
}

fn corner_04_sole_acceptor_is_killed_clients_have_closed(family: Family) {
    kill_when_all_have_gone(family, closes);
}

fn corner_04_sole_acceptor_is_killed_clients_have_ended(family: Family) {
    kill_when_all_have_gone(family, ends);
}

fn corner_04_sole_acceptor_is_killed_clients_have_sent_urgent_bytes(family: Family) {
    for _ in 0..ROUNDS {
        leave_waiting(family, b"x", sends_urgent_bytes, |listening, child| {
            child.kill();
            for _ in 0..WAITING {
                let connection = sys::accept(listening).unwrap();
                await_events(connection, libc::POLLPRI);
                let mut urgent = [0];
                assert_eq!(sys::recv(connection, &mut urgent, libc::MSG_OOB), Ok(1));
                assert_eq!(urgent, *b"v");
                // A read ends at the mark.
                expect_bytes(connection, b"1u");
                expect_bytes(connection, b"2");
                sys::close(connection).unwrap();
            }
        });
    }
}

fn corner_04_sole_acceptor_closes(family: Family) {
    leave_waiting(family, b"c", is_served_by_parent, |listening, _| {
        serve_waiting(listening)
    })
    .join();
}

fn corner_04_sole_acceptor_forks(family: Family) {
    leave_waiting(family, b"f", is_served, |_, _| {}).join();
}

/// Both get connections that come while both wait in accept.
fn corner_04_sole_acceptor_goes_on_beside_a_second(family: Family) {
    let (listening, address) = listener(family);
    let first = fork_child(|| serve(listening));
    ask_quickly(address);
    let second = fork_child(|| serve(listening));
    ask_quickly(address);
    let sessions = [0, 1].map(|_| ask(address, b"s"));
    for session in sessions {
        sys::close(session).unwrap();
    }
    ask_quickly(address);
    first.kill();
    second.kill();
    ask_none_is_lost(listening, address);
}

/// The parent is the last that has the listener.
fn ask_none_is_lost(listening: Descriptor, address: SocketAddr) {
    let client = begin(address, b"q");
    serve_one(listening);
    expect_bytes(client, b"p");
    expect_end(client);
}
