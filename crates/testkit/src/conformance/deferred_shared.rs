//! `TCP_DEFER_ACCEPT` where several processes have the listener, or the client.

use std::time::Duration;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::deferred::{
    LONG, accept_saying, deferring, expect_none, nonblocking_deferring, reported, set_with,
};

cases! {
    families: [
        deferred_over_a_fork,
        deferred_client_forks,
        deferred_time_is_over_elsewhere,
        deferred_client_exits,
        deferred_client_executes,
        deferred_client_is_passed_on,
        deferred_child_speaks,
        deferred_idle_worker_takes_it,
        deferred_idle_worker_waits_in_epoll,
        deferred_holder_ends,
        deferred_listener_over_exec,
    ];
}

fn deferred_over_a_fork(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let (ready, done) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        done.take();
        expect_none(listening);
        ready.pass();
        accept_saying(listening, b"1");
        ready.pass();
        done.take();
    });
    let client = connect_to(address);
    expect_quiet(listening, libc::POLLIN);
    let other = connect_to(address);
    done.pass();
    ready.take();
    send_all(client, b"1");
    ready.take();
    send_all(other, b"2");
    let server = accept_saying(listening, b"2");
    expect_alive(other, server);
    done.pass();
    child.join();
}

/// A silent client that forks stays silent.
fn deferred_client_forks(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let client = connect_to(address);
    let child = fork_child(|| sys::close(client).unwrap());
    child.join();
    expect_none(listening);
    send_all(client, b"still here");
    accept_saying(listening, b"still here");
}

/// The client is another process, which sleeps until the server sends first.
fn deferred_time_is_over_elsewhere(family: Family) {
    type Sleep = fn(Descriptor);
    let sleeps: [Sleep; 3] = [
        |_| {},
        |client| assert_ne!(await_events(client, libc::POLLIN), 0),
        |client| {
            assert_eq!(
                reported(set_with(client, sys::IN), PATIENCE_MILLISECONDS),
                1
            )
        },
    ];
    for sleep in sleeps {
        let (listening, address) = deferring(family, 1);
        let client = fork_child(|| {
            sys::close(listening).unwrap();
            let client = connect_to(address);
            sleep(client);
            expect_bytes(client, b"hello");
            send_all(client, b"thanks");
        });
        let server = sys::accept(listening).unwrap();
        send_all(server, b"hello");
        expect_bytes(server, b"thanks");
        client.join();
    }
}

/// The end of a silent client's program counts as sent data.
fn deferred_client_exits(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let client = fork_child(|| {
        sys::close(listening).unwrap();
        let _end = connect_to(address);
    });
    await_events(listening, libc::POLLIN);
    let server = sys::accept(listening).unwrap();
    set_blocking(server);
    expect_end(server);
    client.join();
}

/// A connection that goes on in another program, or is passed on, sends from there.
fn deferred_client_executes(family: Family) {
    let (listening, address) = deferring(family, LONG);
    let child = fork_child(|| {
        let client = connect_to(address);
        sys::fcntl(client, libc::F_SETFD, 0).unwrap();
        exec_helper(&["say", client.to_string().as_str(), "executed"], true);
    });
    let server = sys::accept(listening).unwrap();
    expect_bytes(server, b"executed");
    sys::close(server).unwrap();
    child.join();
}

fn deferred_client_is_passed_on(family: Family) {
    let (listening, address) = deferring(family, LONG);
    let client = connect_to(address);
    let [ours, theirs] = sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM).unwrap();
    sys::send_descriptor(ours, client).unwrap();
    sys::close(client).unwrap();
    let client = sys::recv_descriptor(theirs).unwrap();
    send_all(client, b"passed");
    let server = sys::accept(listening).unwrap();
    expect_bytes(server, b"passed");
    expect_alive(client, server);
}

fn deferred_child_speaks(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let client = connect_to(address);
    expect_quiet(listening, libc::POLLIN);
    let child = fork_child(|| {
        sys::close(listening).unwrap();
        send_all(client, b"child");
    });
    let server = accept_saying(listening, b"child");
    child.join();
    expect_alive(client, server);
}

/// Lets the clients send in this order. Each is accepted by a process that reports which client sent.
fn send_in_order(clients: &[(Descriptor, u8)], order: [usize; 2], accepted: &Baton) {
    for index in order {
        let (client, name) = clients[index];
        send_all(client, &[name]);
        assert_eq!(accepted.receive(), u64::from(name));
    }
}

/// Two workers wait in accept. The worker that takes the first connection is busy with it, and the other one takes
/// connections that arrived at the first worker before.
fn deferred_idle_worker_takes_it(family: Family) {
    let (listening, address) = deferring(family, LONG);
    let (accepted, end) = (Baton::new(), Baton::new());
    let work = || {
        let server = sys::accept(listening).unwrap();
        accepted.send(u64::from(receive_exact(server, 1)[0]));
        end.take();
    };
    let workers = [fork_child(work), fork_child(work)];
    workers
        .iter()
        .for_each(|worker| await_asleep(worker.process));
    let clients = [0_u8, 1, 2, 3].map(|name| (connect_to(address), name));
    std::thread::sleep(Duration::from_millis(50));
    send_in_order(&clients, [2, 0], &accepted);
    end.pass();
    end.pass();
    workers.iter().for_each(Child::join);
    // Connections for which no worker was ready go to the next worker that comes.
    for index in [3, 1] {
        let (client, name) = clients[index];
        send_all(client, &[name]);
        accept_saying(listening, &[name]);
    }
}

fn deferred_idle_worker_waits_in_epoll(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let (accepted, end) = (Baton::new(), Baton::new());
    let work = || {
        let set = set_with(listening, sys::IN);
        loop {
            assert_eq!(reported(set, PATIENCE_MILLISECONDS), 1);
            match sys::accept(listening) {
                Ok(server) => {
                    set_blocking(server);
                    accepted.send(u64::from(receive_exact(server, 1)[0]));
                    return end.take();
                }
                Err(error) => assert_eq!(error, Errno(libc::EAGAIN)),
            }
        }
    };
    let workers = [fork_child(work), fork_child(work)];
    workers
        .iter()
        .for_each(|worker| await_asleep(worker.process));
    let clients = [0_u8, 1, 2].map(|name| (connect_to(address), name));
    std::thread::sleep(Duration::from_millis(50));
    send_in_order(&clients, [1, 0], &accepted);
    end.pass();
    end.pass();
    workers.iter().for_each(Child::join);
    let (client, name) = clients[2];
    send_all(client, &[name]);
    accept_saying(listening, &[name]);
}

/// A worker that has waited for connections ends. Its connections go to the others.
fn deferred_holder_ends(family: Family) {
    let (listening, address) = nonblocking_deferring(family, LONG);
    let (waiting, end) = (Baton::new(), Baton::new());
    let worker = fork_child(|| {
        let set = set_with(listening, sys::IN);
        waiting.pass();
        assert_eq!(reported(set, 300), 0);
        end.take();
    });
    waiting.take();
    await_asleep(worker.process);
    let client = connect_to(address);
    std::thread::sleep(Duration::from_millis(400));
    end.pass();
    worker.join();
    send_all(client, b"left");
    let server = accept_saying(listening, b"left");
    expect_alive(client, server);
}

fn deferred_listener_over_exec(family: Family) {
    let (listening, address) = deferring(family, LONG);
    let number = listening.to_string();
    let child = fork_child(|| {
        sys::fcntl(listening, libc::F_SETFD, 0).unwrap();
        exec_helper(&["accept-echo", number.as_str(), "2"], true);
    });
    let silent = connect_to(address);
    let client = connect_to(address);
    for one in [client, silent] {
        send_all(one, b"echo");
        expect_bytes(one, b"echo");
        sys::shutdown(one, libc::SHUT_WR).unwrap();
        expect_end(one);
    }
    child.join();
}
