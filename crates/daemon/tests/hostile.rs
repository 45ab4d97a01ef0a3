//! Programs and commands that break the rules: they are detached, and nobody else notices.

mod support;

use netchannel_abi::message::{MESSAGE_BYTES, Message, Operation};
use netchannel_control::types::{Request, Response};
use netchannel_daemon::Limits;
use netchannel_shm::{Access, Region};
use proptest::prelude::*;
use rustix::io::Errno;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use support::{Client, Served, listen_words, listening, packet_pair, receive, send, small};

#[test]
fn garbage_detaches_only_whoever_sent_it() {
    let served = Served::new(small(), None);
    let mut good = Client::attached(&served);
    for bytes in [&[0_u8; 128][..], &[1; 5], &[0xff; 4096], b"GET / HTTP/1.1"] {
        let bad = Client::attached(&served);
        send(&bad.socket, bytes, &[]);
        assert!(bad.is_detached());
    }
    assert_eq!(served.status().faults, 4);
    assert_eq!(good.ask(Operation::Ports, &[1], &[]).unwrap().0.status, 0);
}

#[test]
fn rules_of_the_protocol_are_kept() {
    let served = Served::new(small(), None);
    let stranger = Client::connect(&served);
    let early = Message::new(Operation::Ports, 1, [1; 14]);
    send(&stranger.socket, &early.to_bytes(), &[]);
    assert!(stranger.is_detached());
    for operation in [Operation::Offer, Operation::Anchors, Operation::Look] {
        let mut client = Client::attached(&served);
        assert!(client.ask(operation, &[1], &[]).is_none(), "{operation:?}");
    }
    let mut client = Client::attached(&served);
    let (one, _other) = packet_pair();
    let unasked = client.ask(Operation::Ports, &[1], &[one.as_fd()]);
    assert!(unasked.is_none());
    // The daemon makes the pair of an Adopt itself.
    let mut client = Client::attached(&served);
    let asked = client.ask(Operation::Adopt, &[0], &[one.as_fd()]);
    assert!(asked.is_none());
    // What carries a status is an answer: two ends of the daemon must not talk with each other.
    let mut client = Client::attached(&served);
    let mut answer = Message::new(Operation::Ports, 1, [1; 14]);
    answer.status = 1;
    send(&client.socket, &answer.to_bytes(), &[]);
    assert!(client.is_detached());
    client = Client::attached(&served);
    drop(client);
}

#[test]
fn descriptors_that_are_not_wanted_are_closed() {
    let served = Served::new(small(), None);
    let (one, other) = packet_pair();
    for _ in 0..3 {
        let client = Client::attached(&served);
        let many = [one.as_fd(); 60];
        let message = Message::new(Operation::Ports, 1, [1; 14]);
        send(&client.socket, &message.to_bytes(), &many);
        send(&client.socket, &[7; 3], &many);
        while receive(&client.socket).is_some() {}
    }
    served.await_status(|status| status.programs.is_empty());
    drop(one);
    // Only where every duplicate was closed does the other end see the end.
    let mut byte = [0];
    assert_eq!(rustix::io::read(&other, &mut byte), Ok(0));
}

#[test]
fn quotas_are_an_errno() {
    let limits = Limits {
        links_per_program: 4,
        listeners_per_program: 2,
        ports_per_program: 100,
        ..small()
    };
    let served = Served::new(limits, None);
    let mut server = Client::attached(&served);
    let mut client = Client::attached(&served);
    let full = Errno::NOBUFS.raw_os_error().unsigned_abs();
    let (listener, _accepts) = server.listen();
    let (_second, _channel) = server.listen();
    let socket = listening();
    let third = server.status_of(Operation::Listen, &listen_words(&socket));
    assert_eq!(third, full);
    let statuses: Vec<u32> = (0..12)
        .map(|_| client.status_of(Operation::Connect, &[listener]))
        .collect();
    assert_eq!(statuses[..4], [0; 4]);
    assert!(statuses.contains(&full) || statuses[4..].iter().all(|status| *status == 0));
    assert!(served.status().links <= 4);
    assert_eq!(client.status_of(Operation::Ports, &[90]), 0);
    assert_eq!(client.status_of(Operation::Ports, &[90]), full);
    assert_eq!(client.status_of(Operation::Ports, &[10]), 0);
}

#[test]
fn connections_that_never_attach_are_bounded() {
    let limits = Limits {
        half_open_per_user: 3,
        ..small()
    };
    let served = Served::new(limits, None);
    let strangers: Vec<Client> = (0..4).map(|_| Client::connect(&served)).collect();
    assert!(strangers[0].is_detached());
    // They lock nobody out.
    Client::attached(&served);
}

#[test]
fn whoever_does_not_read_its_answers_is_detached() {
    let served = Served::new(small(), None);
    let client = Client::attached(&served);
    rustix::io::ioctl_fionbio(&client.socket, true).unwrap();
    let message = Message::new(Operation::Ports, 1, [0; 14]).to_bytes();
    let flags = rustix::net::SendFlags::NOSIGNAL;
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        match rustix::net::send(&client.socket, &message, flags) {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => break,
            Err(error) => panic!("{error}"),
        }
        assert!(std::time::Instant::now() < deadline, "never detached");
    }
    served.await_status(|status| status.programs.is_empty() && status.faults == 1);
}

#[test]
fn a_region_full_of_lies_is_shown_without_harm() {
    let served = Served::new(small(), None);
    let mut client = Client::connect(&served);
    let (_, descriptors) = client.attach();
    let size = netchannel_abi::program::size(64);
    let raw = descriptors[0].as_raw_fd();
    let region = Region::map(raw, size, Access::ReadWrite).unwrap();
    for value in [
        u64::MAX,
        0x0202_0202_0202_0202,
        0x0000_0002_0000_0002,
        1 << 63,
    ] {
        let words = region
            .slice::<std::sync::atomic::AtomicU64>(0, size / 8)
            .unwrap();
        for word in words {
            word.store(value, std::sync::atomic::Ordering::Relaxed);
        }
        let answer =
            netchannel_control::request(&served.path(), Request::Sockets, Duration::from_secs(5));
        let Response::Sockets(sockets) = answer.unwrap() else {
            panic!("another answer");
        };
        assert!(sockets.list.len() <= 64 && !sockets.cut);
        assert!(
            sockets
                .list
                .iter()
                .all(|socket| socket.send_queue < 16 << 20)
        );
        served.status();
    }
}

fn ask_raw(served: &Served, bytes: &[u8]) -> String {
    let path = netchannel_control::path::control_socket(&served.path());
    let mut stream = UnixStream::connect(path).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let _ = stream.write_all(bytes);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn garbage_to_the_control_socket_is_answered_or_dropped() {
    let served = Served::new(small(), None);
    let path = netchannel_control::path::control_socket(&served.path());
    let half_open: Vec<UnixStream> = (0..100)
        .filter_map(|_| UnixStream::connect(&path).ok())
        .collect();
    assert!(ask_raw(&served, b"\"reboot\"\n").contains("error"));
    drop(half_open);
    assert!(ask_raw(&served, b"{}\n").contains("error"));
    assert!(ask_raw(&served, &[0xff, 0xfe, b'\n']).contains("error"));
    let endless = vec![b'['; 1 << 20];
    assert!(!ask_raw(&served, &endless).contains("status"));
    let deep = [vec![b'['; 4000], vec![b'\n']].concat();
    assert!(ask_raw(&served, &deep).contains("error"));
    served.status();
}

#[test]
fn a_killed_program_frees_what_it_held() {
    let served = Served::new(small(), None);
    let mut client = Client::attached(&served);
    let (listener, _accepts) = client.listen();
    // The socket now lives in another process only, as a program's own does.
    let mut holder = std::process::Command::new("sleep")
        .arg("100")
        .stdin(client.socket)
        .spawn()
        .unwrap();
    let mut other = Client::attached(&served);
    assert_eq!(other.status_of(Operation::Connect, &[listener]), 0);
    assert_eq!(served.status().listeners, 1);
    holder.kill().unwrap();
    holder.wait().unwrap();
    served.await_status(|status| status.listeners == 0 && status.programs.len() == 1);
    let refused = Errno::CONNREFUSED.raw_os_error().unsigned_abs();
    assert_eq!(other.status_of(Operation::Connect, &[listener]), refused);
    assert_eq!(served.status().faults, 0);
}

#[test]
fn nothing_is_left_of_programs_that_came_and_went() {
    let served = Served::new(small(), None);
    let round = || {
        let mut server = Client::attached(&served);
        let mut client = Client::attached(&served);
        let (listener, _accepts) = server.listen();
        for _ in 0..3 {
            assert_eq!(client.status_of(Operation::Connect, &[listener]), 0);
        }
        let _child = client.ask(Operation::Adopt, &[0], &[]).unwrap();
        client.ask(Operation::Ports, &[100], &[]).unwrap();
    };
    let settle = || {
        served.await_status(|status| {
            status.programs.is_empty() && status.listeners == 0 && status.links == 0
        })
    };
    round();
    let memory = settle().memory_bytes;
    assert_eq!(memory, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 4, ..ProptestConfig::default() })]
    #[test]
    fn any_requests_leave_the_daemon_serving(
        // Shrinking a failure that shows by waiting would take for ever.
        requests in proptest::collection::vec(
            (0_u32..13, proptest::array::uniform14(0_u64..6), 0_usize..4, any::<bool>()),
            1..24,
        ),
        garbage in proptest::collection::vec(any::<u8>(), 0..MESSAGE_BYTES * 2),
    ) {
        let served = Served::new(small(), None);
        let mut client = Client::attached(&served);
        let (_listener, _accepts) = client.listen();
        let (one, other) = packet_pair();
        for (operation, words, beside, wild) in requests {
            let words = if wild { words.map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15)) } else { words };
            let message = Message { operation, status: 0, sequence: 0, words };
            let all = [one.as_fd(), other.as_fd(), one.as_fd()];
            send(&client.socket, &message.to_bytes(), &all[..beside]);
            if receive(&client.socket).is_none() {
                client = Client::attached(&served);
            }
        }
        send(&client.socket, &garbage, &[]);
        drop(client);
        drop((one, other));
        served.await_status(|status| status.links == 0 && status.listeners == 0);
        prop_assert_eq!(Client::attached(&served).attach_is_alive(), true);
    }
}

impl Client {
    /// Whether the daemon still answers an attached program.
    fn attach_is_alive(mut self) -> bool {
        self.status_of(Operation::Ports, &[1]) == 0
    }
}
