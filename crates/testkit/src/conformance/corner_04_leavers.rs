//! Corner 4: a process that has a listener ends while a connection waits. The connection belongs to the listener, not
//! to the process.

use netchannel_testkit::support::*;
use netchannel_testkit::sys;

use crate::case::cases;

cases! {
    families: [
        corner_04_leaves_by_exit,
        corner_04_leaves_by_exit_at_once,
        corner_04_leaves_by_exit_by_number,
        corner_04_leaves_with_the_set_of_its_parent,
        corner_04_leaves_in_turn,
    ];
}

/// A worker polls, a connection arrives, and the worker ends: its parent accepts. A worker that has just polled, and
/// has accepted from this client, is the one that is asked.
fn leaves_while_one_waits(family: Family, inherited_set: bool, leave: fn()) {
    let (listening, address) = listener(family);
    set_nonblocking(listening);
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, sys::IN, 7).unwrap();
    for _ in 0..5 {
        let (looked, connected, end) = (Baton::new(), Baton::new(), Baton::new());
        let worker = fork_child(|| {
            let set = if inherited_set {
                set
            } else {
                let own = sys::epoll_create().unwrap();
                sys::epoll_control(own, libc::EPOLL_CTL_ADD, listening, sys::IN, 7).unwrap();
                own
            };
            assert_eq!(sys::epoll_wait(set, 8, -1).unwrap().len(), 1);
            let first = sys::accept(listening).expect("one waits");
            send_all(first, b"1");
            assert_eq!(sys::epoll_wait(set, 8, 0).unwrap().len(), 0);
            looked.pass();
            connected.take();
            leave();
        });
        let client = fork_child(|| {
            sys::close(set).unwrap();
            sys::close(listening).unwrap();
            let first = connect_to(address);
            expect_bytes(first, b"1");
            looked.take();
            let second = connect_to(address);
            send_all(second, b"2");
            connected.pass();
            expect_bytes(second, b"3");
            end.take();
        });
        worker.join();
        await_events(listening, libc::POLLIN);
        let second = sys::accept(listening).expect("it waits for whoever is left");
        expect_bytes(second, b"2");
        send_all(second, b"3");
        end.pass();
        client.join();
        sys::close(second).unwrap();
        for baton in [looked, connected, end] {
            baton.close();
        }
    }
}

fn corner_04_leaves_by_exit(family: Family) {
    // SAFETY: a forked child with one thread, which registered nothing.
    leaves_while_one_waits(family, false, || unsafe { libc::exit(0) });
}

fn corner_04_leaves_by_exit_at_once(family: Family) {
    leaves_while_one_waits(family, false, || sys::exit_now(0));
}

fn corner_04_leaves_by_exit_by_number(family: Family) {
    leaves_while_one_waits(family, false, || {
        // SAFETY: takes an integer and does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, 0) };
    });
}

fn corner_04_leaves_with_the_set_of_its_parent(family: Family) {
    leaves_while_one_waits(family, true, || sys::exit_now(0));
}

/// Workers that accept some connections each and end, as servers do against leaks. No client is refused.
fn corner_04_leaves_in_turn(family: Family) {
    const EACH: usize = 5;
    const WORKERS: usize = 3;
    const CLIENTS: usize = 4;
    const CONNECTIONS: usize = 75;
    let (listening, address) = listener(family);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            fork_child(|| {
                sys::close(listening).unwrap();
                for _ in 0..CONNECTIONS {
                    let socket = connect_to(address);
                    send_all(socket, b"?");
                    expect_bytes(socket, b"!");
                    sys::close(socket).unwrap();
                }
            })
        })
        .collect();
    let worker = || {
        fork_child(|| {
            for _ in 0..EACH {
                let socket = sys::accept(listening).unwrap();
                expect_bytes(socket, b"?");
                send_all(socket, b"!");
                expect_end(socket);
                sys::close(socket).unwrap();
            }
        })
    };
    let mut workers: Vec<_> = (0..WORKERS).map(|_| worker()).collect();
    for begun in WORKERS..CLIENTS * CONNECTIONS / EACH {
        let oldest = begun % WORKERS;
        workers[oldest].join();
        workers[oldest] = worker();
    }
    workers.iter().for_each(Child::join);
    clients.iter().for_each(Child::join);
}
