//! Corner 4: several processes accept from one listener; each connection goes to one of them.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::helpers::{interrupt, interrupting};

cases! {
    families: [
        corner_04_prefork_blocking_accept,
        corner_04_prefork_epoll_accept,
        corner_04_prefork_epoll_exclusive,
        corner_04_prefork_nonblocking_accept_and_poll,
        corner_04_prefork_one_wakes_for_one_connection,
        corner_04_prefork_one_of_those_with_handlers_wakes,
        corner_04_prefork_worker_killed,
        corner_04_prefork_worker_killed_while_accepting,
        corner_04_prefork_parent_closes_listener,
        corner_04_prefork_parent_has_waited,
        corner_04_threads_accept_from_one_listener,
        corner_04_reuseport_group_of_two_processes,
        corner_04_reuseport_member_leaves,
        corner_04_reuseport_members_leave_in_turn,
        corner_04_reuseport_same_client_same_member,
        corner_04_reuseport_each_member_of_many,
    ];
}

const WORKERS: usize = 4;
const CONNECTIONS: usize = 200;

/// Answers a connection: four bytes of this process's id, after a byte from the client.
fn answer(connection: Descriptor) {
    set_blocking(connection);
    expect_bytes(connection, b"?");
    send_all(connection, &sys::getpid().to_ne_bytes());
    sys::close(connection).unwrap();
}

/// Asks many times, with some connections open at once. Returns how often each process answered.
fn ask(address: std::net::SocketAddr, times: usize) -> Vec<(libc::pid_t, usize)> {
    let mut answers: Vec<(libc::pid_t, usize)> = Vec::new();
    for start in (0..times).step_by(20) {
        let sockets: Vec<_> = (start..times.min(start + 20))
            .map(|_| connect_to(address))
            .collect();
        sockets.iter().for_each(|socket| send_all(*socket, b"?"));
        for socket in sockets {
            let bytes = receive_exact(socket, 4);
            let process = libc::pid_t::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            expect_end(socket);
            sys::close(socket).unwrap();
            match answers.iter_mut().find(|(worker, _)| *worker == process) {
                Some((_, count)) => *count += 1,
                None => answers.push((process, 1)),
            }
        }
    }
    answers
}

fn total(answers: &[(libc::pid_t, usize)]) -> usize {
    answers.iter().map(|(_, count)| count).sum()
}

fn blocking_worker(listening: Descriptor) -> ! {
    loop {
        answer(sys::accept(listening).expect("accept"));
    }
}

fn epoll_worker(listening: Descriptor, events: u32) -> ! {
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, events, 0).unwrap();
    loop {
        if sys::epoll_wait(set, 1, 1000)
            .expect("epoll_wait")
            .is_empty()
        {
            continue;
        }
        match sys::accept4(listening, libc::SOCK_CLOEXEC) {
            Ok(connection) => answer(connection),
            Err(errno) => assert_eq!(errno, Errno(libc::EAGAIN), "somebody else was faster"),
        }
    }
}

fn kill_all(workers: &[Child]) {
    workers.iter().for_each(Child::kill);
}

fn corner_04_prefork_blocking_accept(family: Family) {
    let (listening, address) = listener(family);
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| fork_child(|| blocking_worker(listening)))
        .collect();
    assert_eq!(total(&ask(address, CONNECTIONS)), CONNECTIONS);
    kill_all(&workers);
}

fn corner_04_prefork_epoll_accept(family: Family) {
    let (listening, address) = listener(family);
    set_nonblocking(listening);
    let events = sys::IN;
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| fork_child(|| epoll_worker(listening, events)))
        .collect();
    assert_eq!(total(&ask(address, CONNECTIONS)), CONNECTIONS);
    kill_all(&workers);
}

fn corner_04_prefork_epoll_exclusive(family: Family) {
    let (listening, address) = listener(family);
    set_nonblocking(listening);
    let events = sys::IN | sys::EXCLUSIVE;
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| fork_child(|| epoll_worker(listening, events)))
        .collect();
    assert_eq!(total(&ask(address, CONNECTIONS)), CONNECTIONS);
    kill_all(&workers);
}

fn corner_04_prefork_nonblocking_accept_and_poll(family: Family) {
    let (listening, address) = listener(family);
    set_nonblocking(listening);
    let work = || {
        loop {
            match sys::accept(listening) {
                Ok(connection) => answer(connection),
                Err(Errno(libc::EAGAIN)) => {
                    let _ = poll_one(listening, libc::POLLIN, 1000);
                }
                Err(errno) => panic!("accept: {errno:?}"),
            }
        }
    };
    let workers: Vec<_> = (0..WORKERS).map(|_| fork_child(work)).collect();
    assert_eq!(total(&ask(address, CONNECTIONS)), CONNECTIONS);
    kill_all(&workers);
}

fn corner_04_prefork_one_wakes_for_one_connection(family: Family) {
    let (listening, address) = listener(family);
    let accepted = Baton::new();
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            fork_child(|| {
                let connection = sys::accept(listening).expect("accept");
                accepted.pass();
                expect_end(connection);
            })
        })
        .collect();
    workers
        .iter()
        .for_each(|worker| await_asleep(worker.process));
    for _ in 0..WORKERS {
        let socket = connect_to(address);
        accepted.take();
        sys::close(socket).unwrap();
    }
    workers.iter().for_each(Child::join);
}

/// How often a process has gone to sleep.
fn sleeps(process: libc::pid_t) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// A signal ends the accept of each worker, as in most servers of several processes. A connection wakes one of them all the same.
fn corner_04_prefork_one_of_those_with_handlers_wakes(family: Family) {
    const ROUNDS: usize = 12;
    let (listening, address) = listener(family);
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            fork_child(|| {
                interrupting();
                blocking_worker(listening)
            })
        })
        .collect();
    let count = || -> Vec<u64> {
        workers
            .iter()
            .map(|worker| {
                await_asleep(worker.process);
                sleeps(worker.process)
            })
            .collect()
    };
    // Those who come again may have another way than who comes first.
    let mut woken = 0;
    let mut before = count();
    for _ in 0..ROUNDS {
        assert_eq!(total(&ask(address, 1)), 1);
        let after = count();
        woken += before
            .iter()
            .zip(&after)
            .filter(|(one, other)| one != other)
            .count();
        before = after;
    }
    // One may be woken for another reason now and then.
    assert!(
        woken < 2 * ROUNDS,
        "{woken} were woken for {ROUNDS} connections"
    );
    kill_all(&workers);
}

fn corner_04_prefork_worker_killed(family: Family) {
    let (listening, address) = listener(family);
    let mut workers: Vec<_> = (0..WORKERS)
        .map(|_| fork_child(|| blocking_worker(listening)))
        .collect();
    assert_eq!(total(&ask(address, 40)), 40);
    // An idle worker dies. The others take over, and a new worker joins.
    for _ in 0..3 {
        workers.remove(0).kill();
        assert_eq!(total(&ask(address, 40)), 40);
        workers.push(fork_child(|| blocking_worker(listening)));
        assert_eq!(total(&ask(address, 40)), 40);
    }
    kill_all(&workers);
}

fn corner_04_prefork_worker_killed_while_accepting(family: Family) {
    // Workers are killed at any moment, also while they serve a connection. That connection may be reset or end, all
    // others are served.
    let (listening, address) = listener(family);
    let mut workers: Vec<_> = (0..WORKERS)
        .map(|_| fork_child(|| blocking_worker(listening)))
        .collect();
    for _ in 0..10 {
        let sockets: Vec<_> = (0..10).map(|_| connect_to(address)).collect();
        sockets.iter().for_each(|socket| {
            let _ = sys::send(*socket, b"?", libc::MSG_NOSIGNAL);
        });
        workers.remove(0).kill();
        workers.push(fork_child(|| blocking_worker(listening)));
        let mut lost = 0;
        for socket in sockets {
            await_events(socket, libc::POLLIN);
            match sys::recv(socket, &mut [0_u8; 4], libc::MSG_WAITALL) {
                Ok(4) => {}
                Ok(0) | Err(Errno(libc::ECONNRESET)) => lost += 1,
                other => panic!("recv: {other:?}"),
            }
            sys::close(socket).unwrap();
        }
        assert!(
            lost <= 1,
            "{lost} connections lost, the killed worker held one at most"
        );
    }
    kill_all(&workers);
}

fn corner_04_prefork_parent_closes_listener(family: Family) {
    let (listening, address) = listener(family);
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| fork_child(|| blocking_worker(listening)))
        .collect();
    sys::close(listening).unwrap();
    assert_eq!(total(&ask(address, 100)), 100);
    kill_all(&workers);
    assert_eq!(
        sys::connect(tcp(family), address),
        Err(Errno(libc::ECONNREFUSED))
    );
}

fn corner_04_threads_accept_from_one_listener(family: Family) {
    let (listening, address) = listener(family);
    let threads: Vec<_> = (0..WORKERS)
        .map(|_| {
            start_thread(move || {
                let mut served = 0;
                while let Ok(connection) = sys::accept(listening) {
                    answer(connection);
                    served += 1;
                }
                served
            })
        })
        .collect();
    assert_eq!(total(&ask(address, CONNECTIONS)), CONNECTIONS);
    sys::shutdown(listening, libc::SHUT_RD).unwrap();
    let served: usize = threads
        .into_iter()
        .map(|(thread, _)| join_thread(thread))
        .sum();
    assert_eq!(served, CONNECTIONS);
}

fn reuseport_listener(family: Family, port: u16) -> Descriptor {
    let socket = tcp(family);
    set_int(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1);
    sys::bind(socket, family.loopback(port)).expect("bind of a group");
    socket
}

fn reuseport_worker(family: Family, port: u16, ready: Baton) -> Child {
    fork_child(|| {
        let listening = reuseport_listener(family, port);
        sys::listen(listening, 128).unwrap();
        ready.pass();
        blocking_worker(listening)
    })
}

fn corner_04_reuseport_group_of_two_processes(family: Family) {
    // Bound and not listening: keeps the port for the group.
    let holder = reuseport_listener(family, 0);
    let address = sys::getsockname(holder).unwrap();
    let ready = Baton::new();
    let workers: Vec<_> = (0..2)
        .map(|_| reuseport_worker(family, address.port(), ready))
        .collect();
    ready.take();
    ready.take();
    let answers = ask(address, CONNECTIONS);
    assert_eq!(total(&answers), CONNECTIONS);
    assert_eq!(
        answers.len(),
        2,
        "both members get connections: {answers:?}"
    );
    let stranger = tcp(family);
    assert_eq!(sys::bind(stranger, address), Err(Errno(libc::EADDRINUSE)));
    kill_all(&workers);
}

fn corner_04_reuseport_member_leaves(family: Family) {
    let holder = reuseport_listener(family, 0);
    let address = sys::getsockname(holder).unwrap();
    let ready = Baton::new();
    let first = reuseport_worker(family, address.port(), ready);
    let second = reuseport_worker(family, address.port(), ready);
    ready.take();
    ready.take();
    assert_eq!(total(&ask(address, 60)), 60);
    first.kill();
    let answers = ask(address, 60);
    assert_eq!(answers, [(second.process, 60)]);
    second.kill();
    assert_eq!(
        sys::connect(tcp(family), address),
        Err(Errno(libc::ECONNREFUSED))
    );
}

/// A member that has ended gets no connection that comes after its end, however soon.
fn corner_04_reuseport_members_leave_in_turn(family: Family) {
    let holder = reuseport_listener(family, 0);
    let address = sys::getsockname(holder).unwrap();
    let ready = Baton::new();
    let stays = reuseport_worker(family, address.port(), ready);
    ready.take();
    for _ in 0..30 {
        let leaves = reuseport_worker(family, address.port(), ready);
        ready.take();
        assert_eq!(total(&ask(address, 8)), 8);
        leaves.kill();
        assert_eq!(ask(address, 8), [(stays.process, 8)]);
    }
    stays.kill();
}

/// The parent was interrupted in accept or poll and no longer sleeps. Connections after its fork go to its child, which
/// does sleep.
fn corner_04_prefork_parent_has_waited(family: Family) {
    interrupting();
    let (listening, address) = listener(family);
    let client = connect_to(address);
    let served = sys::accept(listening).unwrap();
    for polls in [false, true] {
        let (thread, task) = start_thread(move || {
            let mut entry = [libc::pollfd {
                fd: listening,
                events: libc::POLLIN,
                revents: 0,
            }];
            if polls {
                sys::poll(&mut entry, -1).map(drop)
            } else {
                sys::accept(listening).map(drop)
            }
        });
        assert_eq!(interrupt(thread, task), Err(Errno(libc::EINTR)));
        let worker = fork_child(|| answer(sys::accept(listening).unwrap()));
        assert_eq!(total(&ask(address, 1)), 1);
        worker.join();
    }
    for socket in [client, served, listening] {
        sys::close(socket).unwrap();
    }
}

/// Members of one group, all in this process.
fn reuseport_members(family: Family, count: usize) -> (Vec<Descriptor>, std::net::SocketAddr) {
    let first = reuseport_listener(family, 0);
    let address = sys::getsockname(first).unwrap();
    let others = (1..count).map(|_| reuseport_listener(family, address.port()));
    let members: Vec<_> = std::iter::once(first).chain(others).collect();
    members
        .iter()
        .for_each(|member| sys::listen(*member, 128).unwrap());
    (members, address)
}

/// The member that gets the waiting connection.
fn member_with_news(members: &[Descriptor]) -> usize {
    let mut entries: Vec<_> = members
        .iter()
        .map(|fd| libc::pollfd {
            fd: *fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    assert_eq!(sys::poll(&mut entries, 10_000), Ok(1));
    entries.iter().position(|entry| entry.revents != 0).unwrap()
}

/// The member is chosen by the addresses of the connection, whichever socket has them.
fn corner_04_reuseport_same_client_same_member(family: Family) {
    const TIMES: usize = 12;
    let (members, address) = reuseport_members(family, 4);
    let mut seen = std::collections::BTreeSet::new();
    // Enough ports that one member alone would be a wonder.
    for _ in 0..16 {
        let mut own = family.loopback(0);
        let mut before = None;
        for _ in 0..TIMES {
            let client = tcp(family);
            set_int(client, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
            sys::bind(client, own).unwrap();
            own = sys::getsockname(client).unwrap();
            sys::connect(client, address).unwrap();
            let member = member_with_news(&members);
            let server = sys::accept(members[member]).unwrap();
            assert_eq!(sys::getpeername(server), Ok(own));
            assert_eq!(*before.get_or_insert(member), member);
            // So that no state of the connection is left.
            close_with_reset(client);
            sys::close(server).unwrap();
        }
        seen.extend(before);
    }
    assert!(seen.len() > 1, "{seen:?}");
}

/// Each of many members gets some connections.
fn corner_04_reuseport_each_member_of_many(family: Family) {
    let (members, address) = reuseport_members(family, 20);
    let mut left: std::collections::BTreeSet<usize> = (0..members.len()).collect();
    for _ in 0..1000 {
        let client = connect_to(address);
        let member = member_with_news(&members);
        let server = sys::accept(members[member]).unwrap();
        close_with_reset(client);
        sys::close(server).unwrap();
        left.remove(&member);
        if left.is_empty() {
            return;
        }
    }
    panic!("nothing for {left:?}");
}
