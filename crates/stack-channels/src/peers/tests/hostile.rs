//! What strangers and broken peers can do.

use super::world::*;
use crate::peers::{Loss, Peers};
use netchannel_wire::{
    Class, Frame, GoAwayReason, HostId, Identity, Initiator, Key, Limits, Nonce, Parser, Step,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A connection to `to` from an address of this host, as any program can make it.
fn dial(from: &str, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let plain = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&plain, &SocketAddr::new(ip(from), 0)).unwrap();
    connect(&plain, &to).unwrap();
    let stream = TcpStream::from(plain);
    stream
        .set_read_timeout(Some(Duration::from_millis(1)))
        .unwrap();
    stream
}

fn encode(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 6000];
    let length = frame.encode(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// All bytes until the other end closes, while the host goes on.
fn read_to_end(host: &mut Host, mut stream: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    until(&mut [host], "the other end closes", |_| {
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer) {
            Ok(0) => true,
            Ok(count) => {
                all.extend(&buffer[..count]);
                false
            }
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    });
    all
}

/// The one frame that comes.
fn read_frame(host: &mut Host, mut stream: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    until(&mut [host], "a frame comes", |_| {
        let mut buffer = [0; 4096];
        if let Ok(count) = stream.read(&mut buffer) {
            all.extend(&buffer[..count]);
        }
        let step = Parser::new(1 << 18).next(&all).unwrap();
        matches!(step, Step::Frame { .. })
    });
    all
}

fn goaway(bytes: &[u8]) -> Option<GoAwayReason> {
    match Parser::new(1 << 18).next(bytes) {
        Ok(Step::Frame {
            frame: Frame::GoAway(reason),
            ..
        }) => Some(reason),
        _ => None,
    }
}

fn identity(letter: u8) -> Identity {
    Identity {
        host: HostId([letter; 16]),
        epoch: 1,
        limits: Limits::default(),
        nonce: Nonce([letter; 32]),
    }
}

/// Only `a` is real, and its peer at .2 is played by the test.
fn one(place: u8) -> Host {
    let (a, b) = two(place);
    drop(b);
    a
}

fn peer_address(place: u8) -> String {
    format!("127.{place}.0.2")
}

#[test]
fn a_stranger_is_told_and_closed() {
    let mut a = one(20);
    for _ in 0..50 {
        let stream = dial("127.20.0.9", a.address());
        let announced = read_frame(&mut a, &stream);
        assert_eq!(goaway(&announced), Some(GoAwayReason::UnknownPeer));
    }
    let stream = dial("127.20.0.9", a.address());
    read_to_end(&mut a, &stream);
    let view = a.peers.view(Instant::now());
    assert_eq!(view.strangers.refused, 51);
    assert_eq!(view.peers[0].counters.refused, 0);
    assert!(a.events.is_empty());
}

#[test]
fn strangers_take_bounded_memory() {
    let mut a = one(21);
    let most = 16 + 1;
    let mut streams = Vec::new();
    until(&mut [&mut a], "all are seen", |hosts| {
        if streams.len() < 200 {
            let burst = (0..10).map(|_| dial("127.21.0.9", hosts[0].address()));
            streams.extend(burst);
        }
        assert!(hosts[0].peers.waiting() <= most);
        hosts[0].peers.view(Instant::now()).strangers.refused == 200
    });
    // Those that stay are closed soon, too.
    until(&mut [&mut a], "all are gone", |hosts| {
        hosts[0].peers.waiting() <= 1
    });
    drop(streams);
}

#[test]
fn a_flood_from_a_peers_address_is_bounded_and_lets_the_peer_in() {
    let (mut a, mut b) = two(22);
    // `b` does not listen where `a` dials: the channels are those that `b` makes.
    a.settings.peers[0].addresses[0].set_port(1);
    a.apply();
    let mut flood = Vec::new();
    let most = a.settings.limits.half_open;
    until(&mut [&mut a, &mut b], "the peer is up", |hosts| {
        flood.push(dial(&peer_address(22), hosts[0].address()));
        assert!(hosts[0].peers.view(Instant::now()).half_open <= most);
        hosts[1].channels() == all_channels()
    });
    for _ in 0..10 {
        for _ in 0..10 {
            flood.push(dial(&peer_address(22), a.address()));
        }
        a.step();
    }
    until(&mut [&mut a, &mut b], "the oldest had to go", |hosts| {
        hosts[0].peers.view(Instant::now()).strangers.displaced >= 90
    });
    // Silent ones are given up in time.
    until(&mut [&mut a, &mut b], "none is left", |hosts| {
        hosts[0].peers.view(Instant::now()).half_open == 0
    });
    assert_eq!(a.channels(), all_channels());
}

#[test]
fn another_key_is_refused_on_both_sides() {
    let mut a = Host::new("127.23.0.1");
    let mut b = Host::new("127.23.0.2");
    a.add_peer(peer("b", vec![b.address()], "10.2.0.0", &key('k')));
    b.add_peer(peer("a", vec![], "127.23.0.0", &key('x')));
    until(&mut [&mut a, &mut b], "it was tried and refused", |hosts| {
        hosts[0].counters().failed > 2 && hosts[1].counters().refused > 2
    });
    assert!(a.events.is_empty() && b.events.is_empty());
    // The right key, and all is well: the pauses are not for ever.
    let shared = key('k');
    for host in [&mut a, &mut b] {
        host.settings.peers[0].key = shared.clone();
        host.apply();
    }
    come_up(&mut a, &mut b);
}

/// Somebody who has recorded a handshake says the same words again.
#[test]
fn a_recorded_handshake_is_worth_nothing() {
    let mut a = one(24);
    let key = a.settings.peers[0].key.clone();
    let from = peer_address(24);
    let initiator = Initiator::new(identity(9), Class::Latency, 1);
    let hello = encode(&initiator.hello());
    let mut stream = dial(&from, a.address());
    stream.write_all(&hello).unwrap();
    let answer = read_frame(&mut a, &stream);
    let mut parser = Parser::new(1 << 18);
    let Ok(Step::Frame { frame, .. }) = parser.next(&answer) else {
        panic!("{answer:?}");
    };
    let (proof, _) = initiator.handle_answer(&frame, &key).unwrap();
    let proof = encode(&proof);
    stream.write_all(&proof).unwrap();
    until(&mut [&mut a], "it is up", |hosts| {
        !hosts[0].channels().is_empty()
    });
    let before = a.events.len();

    let mut again = dial(&from, a.address());
    again.write_all(&hello).unwrap();
    again.write_all(&proof).unwrap();
    let announced = read_to_end(&mut a, &again);
    // An answer with another nonce, to which the old proof does not fit.
    let mut parser = Parser::new(1 << 18);
    let Ok(Step::Frame { consumed, .. }) = parser.next(&announced) else {
        panic!("{announced:?}");
    };
    assert_ne!(announced[..consumed], answer[..]);
    assert_eq!(
        goaway(&announced[consumed..]),
        Some(GoAwayReason::Authentication)
    );
    assert_eq!(a.events.len(), before, "{:?}", a.events);
    assert_eq!(a.counters().starts, 1);
}

#[test]
fn another_version_and_other_protocols_are_told_apart() {
    let mut a = one(25);
    let from = peer_address(25);
    let initiator = Initiator::new(identity(9), Class::Latency, 0);
    let mut newer = encode(&initiator.hello());
    newer[24 + 8] = 99;
    let mut out_of_turn = encode(&Frame::Ping(7));
    out_of_turn.extend(encode(&Frame::Ping(8)));
    let cases: [(&[u8], GoAwayReason); 4] = [
        (&newer, GoAwayReason::Version),
        (
            b"GET / HTTP/1.1\r\nHost: somebody\r\n\r\n",
            GoAwayReason::Violation,
        ),
        (&[0xff; 5000], GoAwayReason::Violation),
        (&out_of_turn, GoAwayReason::Violation),
    ];
    for (index, (bytes, reason)) in cases.into_iter().enumerate() {
        let mut stream = dial(&from, a.address());
        stream.write_all(bytes).unwrap();
        let announced = read_frame(&mut a, &stream);
        assert_eq!(goaway(&announced), Some(reason), "case {index}");
        drop(stream);
        assert_eq!(a.counters().refused, index as u64 + 1);
    }
    until(&mut [&mut a], "all are gone", |hosts| {
        hosts[0].peers.view(Instant::now()).half_open == 0
    });
}

#[test]
fn more_channels_than_configured_are_refused() {
    let mut a = one(26);
    let from = peer_address(26);
    for (class, number) in [
        (Class::Latency, 2),
        (Class::Throughput, 3),
        (Class::Latency, u32::MAX),
    ] {
        let initiator = Initiator::new(identity(9), class, number);
        let mut stream = dial(&from, a.address());
        stream.write_all(&encode(&initiator.hello())).unwrap();
        let announced = read_frame(&mut a, &stream);
        assert_eq!(goaway(&announced), Some(GoAwayReason::TooMany));
    }
}

#[test]
fn a_handshake_that_takes_too_long_is_given_up() {
    let mut a = one(27);
    let start = Instant::now();
    let silent = dial(&peer_address(27), a.address());
    let announced = read_frame(&mut a, &silent);
    assert_eq!(goaway(&announced), Some(GoAwayReason::TimedOut));
    assert!(start.elapsed() >= quick().handshake);
    assert_eq!(a.counters().refused, 1);
}

/// The other end accepts and says nothing, or what it should not.
#[test]
fn who_is_dialled_can_do_no_more() {
    let mut a = Host::new("127.28.0.1");
    let listener = std::net::TcpListener::bind("127.28.0.2:0").unwrap();
    let address = listener.local_addr().unwrap();
    a.add_peer(peer("b", vec![address], "10.2.0.0", &key('k')));
    let accept = |a: &mut Host| {
        listener.set_nonblocking(true).unwrap();
        let mut accepted = None;
        until(&mut [a], "it dials", |_| {
            accepted = listener.accept().ok();
            accepted.is_some()
        });
        let stream = accepted.unwrap().0;
        stream.set_nonblocking(false).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        stream
    };
    let mut reflecting = accept(&mut a);
    let hello = read_frame(&mut a, &reflecting);
    reflecting.write_all(&hello).unwrap();
    let announced = read_frame(&mut a, &reflecting);
    assert_eq!(goaway(&announced), Some(GoAwayReason::Authentication));

    let mut rude = accept(&mut a);
    rude.write_all(&[7; 100_000]).unwrap();
    let hello = read_frame(&mut a, &rude).len();
    assert!(hello > 100);
    let silent = accept(&mut a);
    let start = Instant::now();
    read_frame(&mut a, &silent);
    until(&mut [&mut a], "the silent one is given up", |hosts| {
        hosts[0].counters().failed == 3
    });
    assert!(start.elapsed() >= quick().handshake / 2);
    assert!(a.events.is_empty());
}

#[test]
fn a_host_that_dials_itself_finds_out() {
    let mut a = Host::new("127.29.0.1");
    let address = a.address();
    a.add_peer(peer("a itself", vec![address], "10.2.0.0", &key('k')));
    until(&mut [&mut a], "it was tried", |hosts| {
        hosts[0].counters().failed > 1
    });
    assert!(a.events.is_empty());
}

#[test]
fn a_peer_under_two_names_is_one_peer() {
    let mut a = Host::new("127.30.0.1");
    let mut b = Host::new("127.30.0.2");
    let shared = key('k');
    b.add_peer(peer("a", vec![], "127.30.0.0", &shared));
    a.add_peer(peer("b", vec![b.address()], "10.2.0.0", &shared));
    until(&mut [&mut a, &mut b], "it is up", |hosts| {
        hosts[0].channels() == all_channels()
    });
    a.add_peer(peer("b again", vec![b.address()], "10.3.0.0", &shared));
    until(&mut [&mut a, &mut b], "it was tried", |hosts| {
        hosts[0].peers.view(Instant::now()).peers[1].counters.failed > 2
    });
    let view = a.peers.view(Instant::now());
    assert!(view.peers[1].channels.is_empty() && view.peers[1].start.is_none());
}

#[test]
fn who_breaks_the_contract_is_kept_away_longer_each_time() {
    let (mut a, mut b) = two(31);
    let mut pauses = Vec::new();
    for round in 1..=4u64 {
        come_up(&mut a, &mut b);
        b.working[0].say_bytes(&[0xee; 24]);
        until(&mut [&mut b, &mut a], "it is seen", |hosts| {
            hosts[1].counters().violations == round
        });
        let start = Instant::now();
        until(&mut [&mut a, &mut b], "it is back", |hosts| {
            hosts[0].channels() == all_channels()
        });
        pauses.push(start.elapsed());
    }
    assert!(pauses[3] > quick().retry_least * 8, "{pauses:?}");
    let violation = |event: &&Event| matches!(event, Event::Lost(_, Loss::Violation(_)));
    assert_eq!(a.events.iter().filter(violation).count(), 4);
}

#[test]
fn other_limits_within_one_start_are_refused() {
    let mut a = one(32);
    let shared: std::sync::Arc<Key> = a.settings.peers[0].key.clone();
    let open = |a: &mut Host, number: u32, payload: u32, nonce: u8| {
        let mut said = identity(9);
        said.nonce = Nonce([nonce; 32]);
        said.limits.payload = payload;
        let initiator = Initiator::new(said, Class::Throughput, number);
        let mut stream = dial(&peer_address(32), a.address());
        stream.write_all(&encode(&initiator.hello())).unwrap();
        let answer = read_frame(a, &stream);
        let mut parser = Parser::new(1 << 18);
        let Ok(Step::Frame { frame, .. }) = parser.next(&answer) else {
            panic!("{answer:?}");
        };
        let (proof, _) = initiator.handle_answer(&frame, &shared).unwrap();
        stream.write_all(&encode(&proof)).unwrap();
        stream
    };
    let kept = open(&mut a, 0, 1 << 18, 1);
    until(&mut [&mut a], "it is up", |hosts| {
        hosts[0].channels().len() == 1
    });
    let other = open(&mut a, 1, 1 << 14, 2);
    assert!(read_to_end(&mut a, &other).is_empty());
    assert_eq!(a.channels().len(), 1);
    drop(kept);
}

impl Peers {
    /// Channels that are not open yet, of any kind.
    fn waiting(&self) -> usize {
        self.table.len()
    }
}
