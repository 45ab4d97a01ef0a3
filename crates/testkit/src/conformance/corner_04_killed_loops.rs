//! Corner 4: an event loop is killed that stopped to look. Connections that it has not accepted belong to its relatives,
//! however their clients wait, and with all that these have sent.

use std::collections::HashMap;
use std::net::SocketAddr;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, ET, Errno, IN, PRI};

use crate::case::cases;

cases! {
    families: [
        corner_04_killed_loop_client_receives,
        corner_04_killed_loop_client_polls,
        corner_04_killed_loop_client_tries_to_receive,
        corner_04_killed_loop_client_waits_without_a_buffer,
        corner_04_killed_loop_client_in_a_level_set,
        corner_04_killed_loop_client_in_an_edge_set,
        corner_04_killed_loop_client_sends_later,
        corner_04_killed_loop_client_has_sent_much,
        corner_04_killed_loop_client_sends_more_than_fits,
        corner_04_killed_loop_client_has_shut,
        corner_04_killed_loop_client_had_two_numbers,
        corner_04_killed_loop_keeps_addresses_and_options,
    ];
}

const WORKERS: usize = 2;
/// Clients that come while the loop does not look.
const CLIENTS: usize = 4;
const ROUNDS: usize = 6;

/// What a worker answers: who it is, and how many bytes the request had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    process: i32,
    length: u32,
}

/// Answers each request, which ends with a line feed. After one that says `s` it does nothing more.
fn looping_worker(listening: Descriptor) -> ! {
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, IN, 0).unwrap();
    let mut requests: HashMap<Descriptor, Vec<u8>> = HashMap::new();
    loop {
        for event in sys::epoll_wait(set, 8, -1).unwrap() {
            if event.data == 0 {
                if let Ok(connection) = sys::accept(listening) {
                    set_nonblocking(connection);
                    let data = u64::try_from(connection).unwrap();
                    sys::epoll_control(set, libc::EPOLL_CTL_ADD, connection, IN, data).unwrap();
                    requests.insert(connection, Vec::new());
                }
                continue;
            }
            let connection = Descriptor::try_from(event.data).unwrap();
            let request = requests.get_mut(&connection).unwrap();
            let mut bytes = [0; 65536];
            match sys::recv(connection, &mut bytes, 0) {
                Ok(count @ 1..) => request.extend_from_slice(&bytes[..count]),
                Err(Errno(libc::EAGAIN)) => continue,
                _ => {
                    requests.remove(&connection);
                    sys::close(connection).unwrap();
                    continue;
                }
            }
            if request.last() == Some(&b'\n') {
                let mut answer = sys::getpid().to_ne_bytes().to_vec();
                answer.extend(u32::try_from(request.len()).unwrap().to_ne_bytes());
                send_all(connection, &answer);
                if request[0] == b's' {
                    loop {
                        std::hint::spin_loop();
                    }
                }
                request.clear();
            }
        }
    }
}

#[track_caller]
fn expect_answer(client: Descriptor) -> Answer {
    let bytes = receive_exact(client, 8);
    let word = |at: usize| bytes[at..at + 4].try_into().unwrap();
    Answer {
        process: i32::from_ne_bytes(word(0)),
        length: u32::from_ne_bytes(word(4)),
    }
}

fn ask(address: SocketAddr, request: &[u8]) -> Answer {
    let client = connect_to(address);
    send_all(client, request);
    let answer = expect_answer(client);
    sys::close(client).unwrap();
    answer
}

/// Clients whose connections may wait at a loop that looks no more; the loop is killed between `begin` and `end`.
fn lose_a_loop<State>(
    family: Family,
    begin: impl Fn(SocketAddr) -> State,
    end: impl Fn(State, i32),
) {
    let (listening, address) = listener(family);
    set_nonblocking(listening);
    let mut workers: Vec<_> = (0..WORKERS)
        .map(|_| fork_child(|| looping_worker(listening)))
        .collect();
    for _ in 0..ROUNDS {
        // Clients come to know both loops. In all they are fewer than the ports of a program: one that the kernel had
        // is not used again.
        (0..20).for_each(|_| assert_eq!(ask(address, b"?\n").length, 2));
        let stalled = ask(address, b"s\n").process;
        let waiting: Vec<_> = (0..CLIENTS).map(|_| begin(address)).collect();
        let place = workers.iter().position(|worker| worker.process == stalled);
        workers.swap_remove(place.unwrap()).kill();
        for state in waiting {
            end(state, stalled);
        }
        workers.push(fork_child(|| looping_worker(listening)));
    }
    workers.iter().for_each(Child::kill);
}

fn connect_and_ask(address: SocketAddr) -> Descriptor {
    let client = connect_to(address);
    send_all(client, b"?\n");
    client
}

#[track_caller]
fn expect_served(client: Descriptor, killed: i32, length: u32) {
    let answer = expect_answer(client);
    assert_ne!(answer.process, killed);
    assert_eq!(answer.length, length);
    // It goes on.
    send_all(client, b"??\n");
    assert_eq!(expect_answer(client).length, 3);
    sys::close(client).unwrap();
}

fn corner_04_killed_loop_client_receives(family: Family) {
    lose_a_loop(family, connect_and_ask, |client, killed| {
        expect_served(client, killed, 2);
    });
}

fn corner_04_killed_loop_client_polls(family: Family) {
    lose_a_loop(family, connect_and_ask, |client, killed| {
        set_nonblocking(client);
        assert_eq!(poll_one(client, libc::POLLIN, 10_000), libc::POLLIN);
        set_blocking(client);
        expect_served(client, killed, 2);
    });
}

/// It only tries to receive, and never waits.
fn corner_04_killed_loop_client_tries_to_receive(family: Family) {
    lose_a_loop(family, connect_and_ask, |client, killed| {
        let mut first = [0; 1];
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        eventually("the answer", || {
            match sys::recv(client, &mut first, flags) {
                Err(Errno(libc::EAGAIN)) => false,
                got => got == Ok(1),
            }
        });
        expect_served(client, killed, 2);
    });
}

fn corner_04_killed_loop_client_waits_without_a_buffer(family: Family) {
    let begin = |address| {
        let client = connect_and_ask(address);
        let (thread, _) = start_thread(move || sys::recv(client, &mut [], 0));
        std::thread::sleep(std::time::Duration::from_millis(2));
        (client, thread)
    };
    lose_a_loop(family, begin, |(client, thread), killed| {
        assert_eq!(join_thread(thread), Ok(0));
        expect_served(client, killed, 2);
    });
}

fn in_a_set(family: Family, events: u32) {
    let begin = |address| {
        let client = connect_and_ask(address);
        set_nonblocking(client);
        let set = sys::epoll_create().unwrap();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN | events, 7).unwrap();
        (client, set)
    };
    lose_a_loop(family, begin, |(client, set), killed| {
        let told = sys::epoll_wait(set, 8, 10_000).unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].events, told[0].data), (IN, 7));
        set_blocking(client);
        expect_served(client, killed, 2);
        sys::close(set).unwrap();
    });
}

fn corner_04_killed_loop_client_in_a_level_set(family: Family) {
    in_a_set(family, PRI);
}

fn corner_04_killed_loop_client_in_an_edge_set(family: Family) {
    in_a_set(family, ET);
}

fn corner_04_killed_loop_client_sends_later(family: Family) {
    lose_a_loop(family, connect_to, |client, killed| {
        send_all(client, b"?");
        send_all(client, b"\n");
        expect_served(client, killed, 2);
    });
}

fn corner_04_killed_loop_client_has_sent_much(family: Family) {
    const LENGTH: usize = 100_000;
    let begin = |address| {
        let client = connect_to(address);
        send_all(client, &vec![b'a'; LENGTH]);
        client
    };
    lose_a_loop(family, begin, |client, killed| {
        send_all(client, b"\n");
        expect_served(client, killed, u32::try_from(LENGTH).unwrap() + 1);
    });
}

/// It sleeps in its send when the loop is killed.
fn corner_04_killed_loop_client_sends_more_than_fits(family: Family) {
    const LENGTH: usize = 8_000_000;
    let begin = |address| {
        let client = connect_to(address);
        let (sender, _) = start_thread(move || {
            let mut request = vec![b'a'; LENGTH];
            request[LENGTH - 1] = b'\n';
            send_all(client, &request);
        });
        std::thread::sleep(std::time::Duration::from_millis(2));
        (client, sender)
    };
    lose_a_loop(family, begin, |(client, sender), killed| {
        join_thread(sender);
        expect_served(client, killed, u32::try_from(LENGTH).unwrap());
    });
}

fn corner_04_killed_loop_client_has_shut(family: Family) {
    let begin = |address| {
        let client = connect_and_ask(address);
        sys::shutdown(client, libc::SHUT_WR).unwrap();
        client
    };
    lose_a_loop(family, begin, |client, killed| {
        let answer = expect_answer(client);
        assert_ne!(answer.process, killed);
        expect_end(client);
        sys::close(client).unwrap();
    });
}

fn corner_04_killed_loop_client_had_two_numbers(family: Family) {
    let begin = |address| {
        let client = connect_and_ask(address);
        (client, sys::dup(client).unwrap())
    };
    lose_a_loop(family, begin, |(client, other), killed| {
        let answer = expect_answer(other);
        assert_ne!(answer.process, killed);
        sys::close(other).unwrap();
        send_all(client, b"??\n");
        assert_eq!(expect_answer(client).length, 3);
        sys::close(client).unwrap();
    });
}

fn corner_04_killed_loop_keeps_addresses_and_options(family: Family) {
    let begin = |address| {
        let client = connect_and_ask(address);
        set_int(client, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
        (client, sys::getsockname(client), sys::getpeername(client))
    };
    lose_a_loop(family, begin, |(client, own, peer), killed| {
        assert_ne!(expect_answer(client).process, killed);
        assert_eq!(
            (sys::getsockname(client), sys::getpeername(client)),
            (own, peer)
        );
        let nodelay = sys::option::<i32>(client, libc::IPPROTO_TCP, libc::TCP_NODELAY);
        assert_eq!(nodelay, Ok(1));
        sys::close(client).unwrap();
    });
}
