//! Corner 12, while a connect is in progress: a full backlog keeps it waiting, as a far host would.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::helpers::{interrupt, interrupting, restarting};

cases! {
    families: [
        corner_12_connecting_nonblocking,
        corner_12_connecting_poll_and_select,
        corner_12_connecting_epoll,
        corner_12_connecting_blocking_waits,
        corner_12_connecting_transfers_wait,
        corner_12_connecting_timeout_then_again,
        corner_12_connecting_eintr,
        corner_12_connecting_restarts,
        corner_12_connecting_refused_late,
        corner_12_connecting_refused_late_told_by_calls,
        corner_12_connecting_refused_late_blocking,
        corner_12_connecting_closed,
        corner_12_connecting_shut,
        corner_12_connecting_inherited,
    ];
}

/// A listener whose backlog is full: connects wait until [`Full::drain`].
struct Full {
    listening: Descriptor,
    address: SocketAddr,
    filler: Descriptor,
}

impl Full {
    fn new(family: Family) -> Self {
        let (listening, address) = listener_with(family, 0);
        let filler = connect_to(address);
        Self {
            listening,
            address,
            filler,
        }
    }

    /// Makes room. TCP sends its SYN again within a second or two.
    fn drain(&self) {
        sys::close(sys::accept(self.listening).unwrap()).unwrap();
        sys::close(self.filler).unwrap();
    }

    fn start(&self, family: Family) -> Descriptor {
        let client = tcp_nonblocking(family);
        let began = sys::connect(client, self.address);
        assert_eq!(began, Err(Errno(libc::EINPROGRESS)));
        client
    }

    fn accept(&self) -> Descriptor {
        await_events(self.listening, libc::POLLIN);
        sys::accept(self.listening).unwrap()
    }
}

fn corner_12_connecting_nonblocking(family: Family) {
    let full = Full::new(family);
    let client = full.start(family);
    let again = sys::connect(client, full.address);
    assert_eq!(again, Err(Errno(libc::EALREADY)));
    assert_eq!(sys::getpeername(client), Err(Errno(libc::ENOTCONN)));
    let name = sys::getsockname(client).unwrap();
    assert_eq!(name.ip(), full.address.ip());
    assert_ne!(name.port(), 0);
    assert_eq!(socket_error(client), Errno(0));
    let none = sys::recv(client, &mut [0_u8; 4], 0);
    assert_eq!(none, Err(Errno(libc::EAGAIN)));
    let none = sys::send(client, b"x", libc::MSG_NOSIGNAL);
    assert_eq!(none, Err(Errno(libc::EAGAIN)));
    let again = sys::connect(client, full.address);
    assert_eq!(again, Err(Errno(libc::EALREADY)), "it waits still");
    full.drain();
    await_events(client, libc::POLLOUT);
    assert_eq!(sys::connect(client, full.address), Ok(()));
    let again = sys::connect(client, full.address);
    assert_eq!(again, Err(Errno(libc::EISCONN)));
    assert_eq!(sys::getsockname(client), Ok(name));
    assert_eq!(sys::getpeername(client), Ok(full.address));
    expect_alive(client, full.accept());
}

fn corner_12_connecting_poll_and_select(family: Family) {
    let full = Full::new(family);
    let client = full.start(family);
    expect_quiet(client, libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP);
    let mut read = sys::Set::of(&[client]);
    let mut write = sys::Set::of(&[client]);
    let none = sys::select(client, Some(&mut read), Some(&mut write), None, 50);
    assert_eq!(none, Ok(0));
    let (thread, task) = start_thread(move || await_events(client, libc::POLLIN | libc::POLLOUT));
    await_asleep(task);
    full.drain();
    assert_eq!(join_thread(thread), libc::POLLOUT);
    assert_eq!(socket_error(client), Errno(0));
    expect_alive(client, full.accept());
}

fn corner_12_connecting_epoll(family: Family) {
    let full = Full::new(family);
    for edge in [0, sys::ET] {
        let client = full.start(family);
        let set = sys::epoll_create().unwrap();
        let events = sys::IN | sys::OUT | sys::RDHUP | edge;
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, events, 7).unwrap();
        assert_eq!(sys::epoll_wait(set, 4, QUIET_MILLISECONDS), Ok(Vec::new()));
        if edge == 0 {
            sys::close(client).unwrap();
            continue;
        }
        full.drain();
        let reported = sys::epoll_wait(set, 4, 10_000).unwrap();
        let out = sys::Event {
            data: 7,
            events: sys::OUT,
        };
        assert_eq!(reported, [out]);
        assert_eq!(sys::epoll_wait(set, 4, QUIET_MILLISECONDS), Ok(Vec::new()));
        // The connection of the closed socket may have been established first.
        let server = full.accept();
        send_all(client, b"me");
        let mut bytes = [0; 2];
        if sys::recv(server, &mut bytes, libc::MSG_WAITALL) == Ok(2) {
            expect_alive(client, server);
        }
    }
}

fn corner_12_connecting_blocking_waits(family: Family) {
    let full = Full::new(family);
    let client = tcp(family);
    let address = full.address;
    let (thread, task) = start_thread(move || sys::connect(client, address));
    await_asleep(task);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!thread.is_finished());
    full.drain();
    assert_eq!(join_thread(thread), Ok(()));
    let again = sys::connect(client, full.address);
    assert_eq!(again, Err(Errno(libc::EISCONN)));
    expect_alive(client, full.accept());
}

fn corner_12_connecting_transfers_wait(family: Family) {
    let full = Full::new(family);
    let client = full.start(family);
    set_blocking(client);
    let (writer, writing) = start_thread(move || sys::send(client, b"early", 0));
    let (reader, reading) = start_thread(move || {
        let mut bytes = [0; 4];
        (sys::recv(client, &mut bytes, libc::MSG_WAITALL), bytes)
    });
    await_asleep(writing);
    await_asleep(reading);
    assert!(!writer.is_finished() && !reader.is_finished());
    full.drain();
    assert_eq!(join_thread(writer), Ok(5));
    let server = full.accept();
    expect_bytes(server, b"early");
    send_all(server, b"late");
    assert_eq!(join_thread(reader), (Ok(4), *b"late"));
    expect_alive(client, server);
}

fn corner_12_connecting_timeout_then_again(family: Family) {
    let full = Full::new(family);
    let client = tcp(family);
    let timeout = libc::timeval {
        tv_sec: 0,
        tv_usec: 60_000,
    };
    sys::set_option(client, libc::SOL_SOCKET, libc::SO_SNDTIMEO, timeout).unwrap();
    let began = sys::connect(client, full.address);
    assert_eq!(began, Err(Errno(libc::EINPROGRESS)));
    let start = Instant::now();
    let again = sys::connect(client, full.address);
    assert_eq!(again, Err(Errno(libc::EALREADY)));
    assert!(
        start.elapsed() >= Duration::from_millis(50),
        "it waits again"
    );
    full.drain();
    await_events(client, libc::POLLOUT);
    assert_eq!(sys::connect(client, full.address), Ok(()));
    expect_alive(client, full.accept());
}

fn corner_12_connecting_eintr(family: Family) {
    interrupting();
    let full = Full::new(family);
    let client = tcp(family);
    let address = full.address;
    let (thread, task) = start_thread(move || sys::connect(client, address));
    assert_eq!(interrupt(thread, task), Err(Errno(libc::EINTR)));
    // The connect goes on without the call, and can be waited for.
    let (thread, task) = start_thread(move || sys::connect(client, address));
    await_asleep(task);
    assert!(!thread.is_finished());
    full.drain();
    assert_eq!(join_thread(thread), Ok(()));
    let again = sys::connect(client, full.address);
    assert_eq!(again, Err(Errno(libc::EISCONN)));
    expect_alive(client, full.accept());
}

fn corner_12_connecting_restarts(family: Family) {
    restarting();
    let full = Full::new(family);
    let client = tcp(family);
    let address = full.address;
    let (thread, task) = start_thread(move || sys::connect(client, address));
    await_asleep(task);
    for _ in 0..10 {
        sys::signal_thread(task, libc::SIGUSR1).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(!thread.is_finished());
    full.drain();
    assert_eq!(join_thread(thread), Ok(()));
    expect_alive(client, full.accept());
}

fn corner_12_connecting_refused_late(family: Family) {
    let full = Full::new(family);
    let client = full.start(family);
    let set = sys::epoll_create().unwrap();
    let events = sys::IN | sys::OUT | sys::RDHUP | sys::ET;
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, events, 1).unwrap();
    sys::close(full.listening).unwrap();
    let reported = sys::epoll_wait(set, 4, 10_000).unwrap();
    let expected = sys::Event {
        data: 1,
        events: sys::IN | sys::OUT | sys::RDHUP | sys::ERR | sys::HUP,
    };
    assert_eq!(reported, [expected]);
    let all = libc::POLLIN | libc::POLLOUT | libc::POLLERR | libc::POLLHUP;
    assert_eq!(await_events(client, libc::POLLIN | libc::POLLOUT), all);
    assert_eq!(sys::getpeername(client), Err(Errno(libc::ENOTCONN)));
    assert_eq!(socket_error(client), Errno(libc::ECONNREFUSED));
    assert_eq!(socket_error(client), Errno(0), "cleared by reading it");
    let rest = await_events(client, libc::POLLIN | libc::POLLOUT);
    assert_eq!(rest, all & !libc::POLLERR);
    assert_eq!(sys::recv(client, &mut [0_u8; 4], 0), Ok(0));
    let sent = sys::send(client, b"x", libc::MSG_NOSIGNAL);
    assert_eq!(sent, Err(Errno(libc::EPIPE)));
}

fn corner_12_connecting_refused_late_told_by_calls(family: Family) {
    let full = Full::new(family);
    let clients: Vec<_> = (0..3).map(|_| full.start(family)).collect();
    sys::close(full.listening).unwrap();
    for client in &clients {
        await_events(*client, libc::POLLERR);
    }
    let refused = Err(Errno(libc::ECONNREFUSED));
    assert_eq!(sys::recv(clients[0], &mut [0_u8; 4], 0), refused);
    assert_eq!(sys::recv(clients[0], &mut [0_u8; 4], 0), Ok(0));
    assert_eq!(sys::send(clients[1], b"x", libc::MSG_NOSIGNAL), refused);
    let sent = sys::send(clients[1], b"x", libc::MSG_NOSIGNAL);
    assert_eq!(sent, Err(Errno(libc::EPIPE)));
    // After connect has returned the error, the socket can be connected anew.
    let answer = sys::connect(clients[2], full.address);
    assert_eq!(answer, Err(Errno(libc::ECONNREFUSED)));
    let (listening, address) = listener(family);
    set_blocking(clients[2]);
    assert_eq!(sys::connect(clients[2], address), Ok(()));
    expect_alive(clients[2], sys::accept(listening).unwrap());
    // Without a pending error, the connect was aborted.
    let result = sys::connect(clients[0], full.address);
    assert_eq!(result, Err(Errno(libc::ECONNABORTED)));
}

fn corner_12_connecting_refused_late_blocking(family: Family) {
    let full = Full::new(family);
    let client = tcp(family);
    let address = full.address;
    let (thread, task) = start_thread(move || sys::connect(client, address));
    await_asleep(task);
    sys::close(full.listening).unwrap();
    assert_eq!(join_thread(thread), Err(Errno(libc::ECONNREFUSED)));
    assert_eq!(socket_error(client), Errno(0), "connect told it already");
    let (listening, address) = listener(family);
    assert_eq!(sys::connect(client, address), Ok(()));
    expect_alive(client, sys::accept(listening).unwrap());
}

fn corner_12_connecting_closed(family: Family) {
    let full = Full::new(family);
    let before = count_descriptors();
    for _ in 0..10 {
        sys::close(full.start(family)).unwrap();
    }
    let client = full.start(family);
    full.drain();
    await_events(client, libc::POLLOUT);
    // Connections of closed sockets are not returned, or have ended.
    let server = loop {
        let server = full.accept();
        if sys::getpeername(server) == sys::getsockname(client) {
            break server;
        }
        sys::close(server).unwrap();
    };
    expect_alive(client, server);
    sys::close(server).unwrap();
    sys::close(client).unwrap();
    assert!(count_descriptors() <= before + 24);
}

fn corner_12_connecting_shut(family: Family) {
    let full = Full::new(family);
    let client = full.start(family);
    assert_eq!(sys::shutdown(client, libc::SHUT_RDWR), Ok(()));
    let answer = sys::recv(client, &mut [0_u8; 4], 0);
    assert_eq!(answer, Err(Errno(libc::ECONNRESET)), "it was taken back");
    let sent = sys::send(client, b"x", libc::MSG_NOSIGNAL);
    assert_eq!(sent, Err(Errno(libc::EPIPE)));
    sys::close(client).unwrap();
}

fn corner_12_connecting_inherited(family: Family) {
    let full = Full::new(family);
    let client = full.start(family);
    let child = fork_child(|| {
        await_events(client, libc::POLLOUT);
        assert_eq!(socket_error(client), Errno(0));
        send_all(client, b"from the child");
    });
    sys::close(client).unwrap();
    full.drain();
    let server = full.accept();
    assert_eq!(receive_to_end(server), b"from the child");
    child.join();
}
