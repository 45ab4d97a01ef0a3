//! The programs that a case executes with this file, with descriptors inherited over `exec`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::helpers::nothing;

/// Runs `helper NAME ARGUMENTS`.
pub fn run(arguments: &[String]) {
    prepare_process();
    let number = |index: usize| -> Descriptor {
        let text = arguments.get(index).expect("an argument");
        text.parse().expect("a number")
    };
    match arguments[0].as_str() {
        // Sends back all bytes until the end of the stream.
        "echo" => echo(number(1)),
        // Accepts a number of connections, one after the other, and echoes each.
        "accept-echo" => {
            for _ in 0..number(2) {
                let connection = sys::accept(number(1)).expect("accept");
                echo(connection);
                sys::close(connection).expect("close");
            }
        }
        // The same with one connection, after it has reported its start and received a word.
        "accept-when-told" => {
            let control = number(2);
            assert_eq!(sys::write(control, b"here"), Ok(4));
            assert_eq!(sys::read(control, &mut [0; 4]), Ok(2));
            let connection = sys::accept(number(1)).expect("accept");
            echo(connection);
        }
        // The same, where the connection is there and the accept does not wait.
        "accept-at-once-when-told" => {
            let control = number(2);
            assert_eq!(sys::write(control, b"here"), Ok(4));
            assert_eq!(sys::read(control, &mut [0; 4]), Ok(2));
            let connection = sys::accept4(number(1), 0).expect("accept4");
            echo(connection);
        }
        // Waits for a connection, reports it, and does not accept it until it is released.
        "look-when-told" => {
            let control = number(2);
            await_events(number(1), libc::POLLIN);
            assert_eq!(sys::write(control, b"here"), Ok(4));
            assert_eq!(sys::read(control, &mut [0; 4]), Ok(2));
        }
        // The limits of address space, as the kernel reports them.
        "expect-addresses" => {
            let text = std::fs::read_to_string("/proc/self/limits").expect("limits");
            let line = text
                .lines()
                .find(|line| line.starts_with("Max address space"));
            let words: Vec<&str> = line.expect("a line").split_whitespace().collect();
            assert_eq!(words[3..5], arguments[1..3]);
        }
        // Several threads begin to watch a listener at once. Then each set by itself reports a connection.
        "watch-in-threads" => watch_in_threads(number(1), number(2)),
        // Echoes two bytes on each connection. The first one is answered when there is no number for another.
        "answer-at-limit" => {
            let count = arguments[2].parse().expect("a number");
            crate::room::answer_at_limit(number(1), count);
        }
        // Connects, sends bytes, and waits for the end.
        "connect-say" => {
            let address: SocketAddr = arguments[1].parse().expect("an address");
            let socket = connect_to(address);
            send_all(socket, arguments[2].as_bytes());
            expect_end(socket);
        }
        // Sends bytes, and waits for the end.
        "say" => {
            send_all(number(1), arguments[2].as_bytes());
            expect_end(number(1));
        }
        // Sends bytes on its standard input, and tells by its exit code whether it could.
        "send-or-say-so" => {
            if sys::send(0, &[b'x'; 5000], libc::MSG_NOSIGNAL) != Ok(5000) {
                sys::exit_now(7);
            }
        }
        // Receives a descriptor over an AF_UNIX socket, which is one of TCP or may be any, and echoes on it.
        "receive-echo" => {
            let passed = sys::recv_descriptor(number(1)).expect("recvmsg");
            if arguments[2] == "tcp" {
                set_int(passed, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
            }
            echo(passed);
        }
        // Uses only read and write, like a program that does not know sockets.
        "read-write" => read_write(number(1)),
        // The descriptor must be closed.
        "expect-closed" => {
            let answer = sys::fcntl(number(1), libc::F_GETFD, 0);
            assert_eq!(answer, Err(Errno(libc::EBADF)), "closed by exec");
        }
        // Options that were set on a connection before the exec are returned.
        "expect-options" => {
            let result = sys::option::<[i64; 2]>(number(1), libc::SOL_SOCKET, libc::SO_RCVTIMEO);
            assert_eq!(result, Ok([9, 0]));
            let result = sys::option::<[i32; 2]>(number(1), libc::SOL_SOCKET, libc::SO_LINGER);
            assert_eq!(result, Ok([1, 7]));
            let result = sys::option_int(number(1), libc::SOL_SOCKET, libc::SO_RCVLOWAT);
            assert_eq!(result, Ok(5));
            for (name, value) in [(libc::TCP_KEEPIDLE, 77), (libc::TCP_USER_TIMEOUT, 5000)] {
                let result = sys::option_int(number(1), libc::IPPROTO_TCP, name);
                assert_eq!(result, Ok(value));
            }
        }
        // Only another number of an inherited set's member is left.
        "set-knows-a-copy" => {
            send_all(number(2), b"begun");
            let reported = sys::epoll_wait(number(1), 8, 10_000).expect("epoll_wait");
            assert_eq!((reported.len(), reported[0].data), (1, 8));
            expect_bytes(number(2), b"news");
            assert!(
                sys::epoll_wait(number(1), 8, 0)
                    .expect("epoll_wait")
                    .is_empty()
            );
        }
        // Options that were set on a listener before the exec are inherited by the accepted socket.
        "accept-keeps-idle" => {
            let made = sys::accept(number(1)).expect("accept");
            for (name, value) in [(libc::TCP_KEEPIDLE, 77), (libc::TCP_KEEPCNT, 3)] {
                assert_eq!(sys::option_int(made, libc::IPPROTO_TCP, name), Ok(value));
            }
        }
        // All inherited options.
        "accept-has-options" => crate::corner_05_exec::expect_handed_on(number(1)),
        // Members of an inherited set are there: a listener as 7 and a connection as 8.
        "set-goes-on" => set_goes_on(number(1), number(2), number(3)),
        // The same for a set that another process has, too.
        "set-is-shared" => set_is_shared(number(1), number(2), number(3)),
        // Edges and one-shot events that were reported before are not reported again, here and after a number of
        // further execs.
        "set-has-told" => {
            let reported = || reported(number(1), 0);
            assert!(reported().is_empty());
            send_all(number(2), b"more");
            await_events(number(2), libc::POLLIN);
            assert_eq!(reported(), [1], "a new edge");
            assert!(reported().is_empty());
            expect_bytes(number(2), b"news");
            if number(3) > 0 {
                let left = (number(3) - 1).to_string();
                let words = ["set-has-told", &arguments[1], &arguments[2], &left];
                exec_helper(&words, true);
            }
        }
        // The end of a member that the exec made is told, though it has been received.
        "set-tells-of-the-end" => {
            expect_end(number(2));
            assert_eq!(reported(number(1), 0), [1]);
            assert!(reported(number(1), 0).is_empty());
        }
        // Fills a connection. Its set tells of room, which comes before the set is asked.
        "set-tells-of-room" => {
            let filled = fill(number(2)) as u64;
            send_all(number(3), &filled.to_ne_bytes());
            expect_bytes(number(3), b"read");
            assert_eq!(sys::epoll_wait(number(1), 4, 3_000).unwrap().len(), 1);
        }
        // Waits in a set for room, which comes later.
        "set-waits-for-room" => {
            send_all(number(2), b"begun");
            assert_eq!(sys::epoll_wait(number(1), 4, 10_000).unwrap().len(), 1);
        }
        // Polls a set with a member that is ready, but asks for no event of it. A signal ends that.
        "poll-for-nothing" => {
            let set = sys::epoll_create().unwrap();
            sys::epoll_control(set, libc::EPOLL_CTL_ADD, number(1), sys::OUT, 1).unwrap();
            sys::handle_signal(libc::SIGALRM, nothing, 0).unwrap();
            sys::alarm(1);
            let mut entries = [libc::pollfd {
                fd: set,
                events: 0,
                revents: 0,
            }];
            assert_eq!(sys::poll(&mut entries, 10_000), Err(Errno(libc::EINTR)));
        }
        // Waits in epoll for data and echoes.
        "epoll-echo" => epoll_echo(number(1)),
        // Executes itself again a number of times, and then echoes.
        "again" if number(2) > 0 => {
            let left = (number(2) - 1).to_string();
            exec_helper(&["again", arguments[1].as_str(), left.as_str()], true);
        }
        "again" => echo(number(1)),
        other => panic!("no helper is named {other}"),
    }
}

fn echo(socket: Descriptor) {
    let mut buffer = vec![0_u8; 16 * 1024];
    loop {
        match sys::recv(socket, &mut buffer, 0).expect("recv") {
            0 => return,
            size => send_all(socket, &buffer[..size]),
        }
    }
}

fn read_write(descriptor: Descriptor) {
    let mut buffer = vec![0_u8; 16 * 1024];
    loop {
        let size = sys::read(descriptor, &mut buffer).expect("read");
        if size == 0 {
            return;
        }
        let mut rest = &buffer[..size];
        while !rest.is_empty() {
            let written = sys::write(descriptor, rest).expect("write");
            rest = &rest[written..];
        }
    }
}

/// The data of the members that a set reports.
fn reported(set: Descriptor, timeout: i32) -> Vec<u64> {
    let reported = sys::epoll_wait(set, 8, timeout).expect("epoll_wait");
    let mut reported: Vec<_> = reported.iter().map(|event| event.data).collect();
    reported.sort_unstable();
    reported
}

fn set_goes_on(set: Descriptor, listening: Descriptor, connection: Descriptor) {
    let reported = |timeout| reported(set, timeout);
    assert!(reported(0).is_empty());
    send_all(connection, b"begun");
    eventually("both are told", || reported(100) == [7, 8]);
    sys::close(sys::accept(listening).expect("accept")).expect("close");
    assert_eq!(reported(0), [8]);
    let add = sys::epoll_control(set, libc::EPOLL_CTL_ADD, connection, sys::IN, 9);
    assert_eq!(add, Err(Errno(libc::EEXIST)));
    sys::epoll_control(set, libc::EPOLL_CTL_MOD, connection, sys::IN, 10).expect("MOD");
    assert_eq!(reported(0), [10]);
    expect_bytes(connection, b"news");
    assert!(reported(0).is_empty());
    sys::epoll_control(set, libc::EPOLL_CTL_DEL, connection, 0, 0).expect("DEL");
    sys::epoll_control(set, libc::EPOLL_CTL_DEL, listening, 0, 0).expect("DEL");
    send_all(connection, b"done");
    expect_end(connection);
    assert!(reported(0).is_empty());
}

fn set_is_shared(set: Descriptor, listening: Descriptor, connection: Descriptor) {
    let reported = |timeout| {
        let reported = sys::epoll_wait(set, 8, timeout).expect("epoll_wait");
        let mut reported: Vec<_> = reported.iter().map(|event| event.data).collect();
        // Two processes wait at once: the kernel may put a member into its ready list again meanwhile.
        reported.dedup();
        reported
    };
    let control =
        |operation, member, data| sys::epoll_control(set, operation, member, sys::IN, data);
    let (add, change, delete) = (
        libc::EPOLL_CTL_ADD,
        libc::EPOLL_CTL_MOD,
        libc::EPOLL_CTL_DEL,
    );
    for member in [listening, connection] {
        assert_eq!(control(add, member, 9), Err(Errno(libc::EEXIST)));
    }
    assert!(reported(0).is_empty());
    control(change, connection, 10).expect("MOD");
    send_all(connection, b"changed");
    // The other process changes the member, too.
    eventually("the other process changes it", || reported(10) == [11]);
    expect_bytes(connection, b"one");
    assert!(reported(0).is_empty());
    send_all(connection, b"read");
    assert_eq!(reported(10_000), [7], "the listener");
    sys::close(sys::accept(listening).expect("accept")).expect("close");
    assert!(reported(0).is_empty());
    control(delete, listening, 0).expect("DEL");
    control(delete, connection, 0).expect("DEL");
    assert_eq!(control(delete, connection, 0), Err(Errno(libc::ENOENT)));
    send_all(connection, b"gone");
    // The other process has added the member again.
    assert_eq!(reported(10_000), [12]);
    assert_eq!(control(add, connection, 9), Err(Errno(libc::EEXIST)));
    expect_bytes(connection, b"two");
}

fn epoll_echo(socket: Descriptor) {
    let set = sys::epoll_create().expect("epoll_create");
    let events = sys::IN;
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, socket, events, 9).expect("epoll_ctl");
    let mut buffer = vec![0_u8; 16 * 1024];
    loop {
        let reported = sys::epoll_wait(set, 4, PATIENCE_MILLISECONDS).expect("epoll_wait");
        assert_eq!(
            reported.first().map(|event| event.data),
            Some(9),
            "told in time"
        );
        match sys::recv(socket, &mut buffer, libc::MSG_DONTWAIT).expect("recv") {
            0 => return,
            size => send_all(socket, &buffer[..size]),
        }
    }
}

fn watch_in_threads(listening: Descriptor, control: Descriptor) {
    // Until now only the kernel had the listener.
    sys::set_option(listening, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 0).expect("setsockopt");
    for set in watched_at_once(listening) {
        assert_eq!(sys::write(control, b"next"), Ok(4));
        let events = sys::epoll_wait(set, 8, 10_000).expect("epoll_wait");
        assert_eq!(events.len(), 1, "each set is told");
        let connection = sys::accept(listening).expect("accept");
        echo(connection);
        sys::close(connection).expect("close");
    }
}

/// The sets of several threads that have begun to watch a listener at the same time.
fn watched_at_once(listening: Descriptor) -> Vec<Descriptor> {
    const THREADS: usize = 4;
    let ready = AtomicUsize::new(0);
    let watch = || {
        let set = sys::epoll_create().expect("epoll_create");
        ready.fetch_add(1, Ordering::AcqRel);
        while ready.load(Ordering::Acquire) < THREADS {
            std::hint::spin_loop();
        }
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, sys::IN, 0).expect("epoll_ctl");
        set
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(watch)).collect();
        let sets = threads.into_iter();
        sets.map(|one| one.join().expect("a set")).collect()
    })
}
