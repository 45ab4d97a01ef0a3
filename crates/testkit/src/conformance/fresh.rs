//! Sockets without any call yet: each is a separate socket, whatever numbers and processes have it, and needs no
//! further number to connect.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;

cases! {
    families: [
        fresh_connects_with_no_number_left,
        fresh_shutdown_acts_on_no_other,
        fresh_is_not_connected,
        fresh_dup_then_connect,
        fresh_dup_then_listen,
        fresh_bound_fork_then_parent_connects,
        fresh_fork_then_parent_connects,
        fresh_fork_then_child_connects,
        fresh_fork_then_child_listens,
        fresh_used_beyond_a_lower_limit,
        fresh_used_beyond_a_lower_hard_limit,
        fresh_shows_no_band,
    ];
}

/// Lowers both limits, and takes every number that is left.
fn take_all_numbers() -> Vec<Descriptor> {
    let limit = libc::rlimit {
        rlim_cur: 300,
        rlim_max: 300,
    };
    // SAFETY: a local of the right type.
    let lowered = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(lowered, 0);
    let mut fillers = Vec::new();
    while let Ok(filler) = sys::dup(2) {
        fillers.push(filler);
    }
    fillers
}

fn fresh_connects_with_no_number_left(family: Family) {
    const COUNT: u8 = 20;
    let (listening, address) = listener(family);
    let server = fork_child(|| {
        let accepted: Vec<_> = (0..COUNT)
            .map(|_| sys::accept(listening).unwrap())
            .collect();
        // Only when all are open: a single connection that carries for all would be noticed.
        for connection in &accepted {
            let byte = receive_exact(*connection, 1);
            send_all(*connection, &byte);
        }
        accepted.into_iter().for_each(expect_end);
    });
    let sockets: Vec<_> = (0..COUNT).map(|_| tcp(family)).collect();
    let never = tcp(family);
    let fillers = take_all_numbers();
    for (number, socket) in (0..).zip(&sockets) {
        sys::connect(*socket, address).unwrap();
        send_all(*socket, &[number]);
    }
    for (number, socket) in (0..).zip(&sockets) {
        expect_bytes(*socket, &[number]);
    }
    let sent = sys::send(never, b"x", libc::MSG_NOSIGNAL);
    assert_eq!(sent, Err(Errno(libc::EPIPE)), "it never connected");
    for socket in sockets {
        sys::close(socket).unwrap();
    }
    server.join();
    for filler in fillers {
        sys::close(filler).unwrap();
    }
}

/// The sockets keep their numbers where the limit lies below them.
fn fresh_used_beyond_a_lower_limit(family: Family) {
    let (_listening, address) = listener(family);
    let (never, connects) = (tcp(family), tcp(family));
    let before = sys::descriptor_limit().unwrap();
    sys::set_descriptor_limit(3).unwrap();
    let received = sys::recv(never, &mut [0; 1], 0);
    let connected = sys::connect(connects, address);
    sys::set_descriptor_limit(before.rlim_cur).unwrap();
    assert_eq!(received, Err(Errno(libc::ENOTCONN)));
    assert_eq!(connected, Ok(()));
}

fn fresh_used_beyond_a_lower_hard_limit(family: Family) {
    let (listening, address) = listener(family);
    let (never, connects) = (tcp(family), tcp(family));
    let limit = libc::rlimit {
        rlim_cur: 3,
        rlim_max: 3,
    };
    // SAFETY: a local of the right type.
    let lowered = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(lowered, 0);
    let received = sys::recv(never, &mut [0; 1], 0);
    assert_eq!(received, Err(Errno(libc::ENOTCONN)));
    assert_eq!(sys::connect(connects, address), Ok(()));
    assert_eq!(sys::accept(listening), Err(Errno(libc::EMFILE)));
}

fn fresh_shows_no_band(family: Family) {
    let asked = libc::POLLIN | libc::POLLWRBAND;
    assert_eq!(poll_one(tcp(family), asked, 0), libc::POLLHUP);
}

fn fresh_shutdown_acts_on_no_other(family: Family) {
    let (one, other) = (tcp(family), tcp(family));
    let answer = sys::shutdown(one, libc::SHUT_RDWR);
    assert_eq!(answer, Err(Errno(libc::ENOTCONN)));
    let hung_up = libc::POLLOUT | libc::POLLHUP;
    assert_eq!(poll_one(other, libc::POLLIN | libc::POLLOUT, 0), hung_up);
    let (listening, address) = listener(family);
    sys::connect(other, address).unwrap();
    let server = sys::accept(listening).unwrap();
    expect_alive(other, server);
    let later = tcp(family);
    assert_eq!(poll_one(later, libc::POLLIN | libc::POLLOUT, 0), hung_up);
}

fn fresh_is_not_connected(family: Family) {
    let mut buffer = [0; 4];
    let none = Err(Errno(libc::ENOTCONN));
    assert_eq!(sys::recv(tcp(family), &mut buffer, 0), none);
    assert_eq!(sys::read(tcp(family), &mut buffer), none);
    let broken = Err(Errno(libc::EPIPE));
    assert_eq!(sys::send(tcp(family), b"x", libc::MSG_NOSIGNAL), broken);
    assert_eq!(sys::getpeername(tcp(family)), Err(Errno(libc::ENOTCONN)));
    assert_eq!(sys::getsockname(tcp(family)), Ok(family.any(0)));
    let (listening, address) = listener(family);
    let client = tcp(family);
    assert_eq!(sys::recv(client, &mut buffer, libc::MSG_DONTWAIT), none);
    sys::connect(client, address).unwrap();
    let server = sys::accept(listening).unwrap();
    expect_alive(client, server);
}

fn fresh_dup_then_connect(family: Family) {
    let (listening, address) = listener(family);
    let client = tcp(family);
    let copy = sys::dup(client).unwrap();
    sys::connect(client, address).unwrap();
    let server = sys::accept(listening).unwrap();
    assert_eq!(sys::connect(copy, address), Err(Errno(libc::EISCONN)));
    assert_eq!(sys::getpeername(copy), Ok(address));
    send_all(copy, b"over the copy");
    expect_bytes(server, b"over the copy");
    send_all(server, b"back");
    expect_bytes(client, b"back");
    sys::close(client).unwrap();
    expect_alive(copy, server);
}

fn fresh_dup_then_listen(family: Family) {
    let listening = tcp(family);
    let copy = sys::dup(listening).unwrap();
    sys::bind(listening, family.loopback(0)).unwrap();
    sys::listen(copy, 16).unwrap();
    let address = sys::getsockname(copy).unwrap();
    for accepting in [listening, copy] {
        let client = connect_to(address);
        assert_eq!(await_events(accepting, libc::POLLIN), libc::POLLIN);
        let server = sys::accept(accepting).unwrap();
        expect_alive(client, server);
    }
}

fn fresh_bound_fork_then_parent_connects(family: Family) {
    let (listening, address) = listener(family);
    let client = tcp(family);
    sys::bind(client, family.loopback(0)).unwrap();
    let go = Baton::new();
    let child = fork_child(|| {
        go.take();
        assert_eq!(sys::connect(client, address), Err(Errno(libc::EISCONN)));
        send_all(client, b"child");
    });
    sys::connect(client, address).unwrap();
    let server = sys::accept(listening).unwrap();
    go.pass();
    expect_bytes(server, b"child");
    child.join();
    expect_alive(client, server);
}

fn fresh_fork_then_parent_connects(family: Family) {
    let (listening, address) = listener(family);
    let client = tcp(family);
    set_int(client, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    let go = Baton::new();
    let child = fork_child(|| {
        go.take();
        assert_eq!(sys::getpeername(client), Ok(address));
        assert_eq!(sys::connect(client, address), Err(Errno(libc::EISCONN)));
        send_all(client, b"child");
    });
    sys::connect(client, address).unwrap();
    let server = sys::accept(listening).unwrap();
    go.pass();
    expect_bytes(server, b"child");
    child.join();
    expect_alive(client, server);
}

fn fresh_fork_then_child_connects(family: Family) {
    let (listening, address) = listener(family);
    let client = tcp(family);
    let done = Baton::new();
    let child = fork_child(|| {
        sys::connect(client, address).unwrap();
        send_all(client, b"child");
        done.pass();
    });
    done.take();
    child.join();
    let server = sys::accept(listening).unwrap();
    expect_bytes(server, b"child");
    assert_eq!(sys::connect(client, address), Err(Errno(libc::EISCONN)));
    expect_alive(client, server);
    sys::close(client).unwrap();
    expect_end(server);
}

fn fresh_fork_then_child_listens(family: Family) {
    let socket = tcp(family);
    let done = Baton::new();
    let child = fork_child(|| {
        sys::bind(socket, family.loopback(0)).unwrap();
        sys::listen(socket, 8).unwrap();
        done.pass();
    });
    done.take();
    child.join();
    let client = connect_to(sys::getsockname(socket).unwrap());
    let server = sys::accept(socket).unwrap();
    expect_alive(client, server);
}
