//! What a stranger and a peer with bad manners can do to a daemon, beside an honest peer that is a daemon too.

mod support;

use netchannel_abi::address::Address;
use netchannel_configuration::Configuration;
use netchannel_control::hosts::{Peer, State};
use netchannel_wire::{
    Class, DataHeader, Fin, Frame, GoAwayReason, HEADER, Handle, HelloProof, HostId, Identity,
    Initiator, Key, Limits, NcSyn, Nonce, Parser, Proof, Rst, Step, Window, encode_data_header,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Served, small};

const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const HONEST: [u8; 4] = [127, 79, 0, 2];
const ROGUE: [u8; 4] = [127, 79, 0, 3];
const STRANGER: [u8; 4] = [127, 79, 0, 9];
const PATIENCE: Duration = Duration::from_secs(20);

fn free(ip: [u8; 4]) -> SocketAddr {
    let listener = TcpListener::bind((IpAddr::from(ip), 0)).unwrap();
    listener.local_addr().unwrap()
}

fn configuration(folder: &Path, own: SocketAddr, peers: &[(&str, SocketAddr)]) -> Configuration {
    let key = folder.join("key");
    std::fs::write(&key, KEY).unwrap();
    std::fs::set_permissions(key, PermissionsExt::from_mode(0o600)).unwrap();
    let mut text = format!("[host]\nname = \"this\"\nlisten = [\"{own}\"]\n");
    for (index, (name, address)) in peers.iter().enumerate() {
        text += &format!(
            "\n[[peers]]\nname = \"{name}\"\naddresses = [\"{address}\"]\nprefixes = [\"10.{index}.0.0/16\"]\nkey-file = \"key\"\n"
        );
    }
    text += "\n[times]\nretry-least = \"10ms\"\n";
    let file = folder.join("netchannel.toml");
    std::fs::write(&file, text).unwrap();
    Configuration::load(&file).unwrap()
}

/// A daemon with an honest peer, and one that the test plays.
struct World {
    victim: Served,
    honest: Served,
    door: SocketAddr,
    /// Where the victim dials the rogue.
    rogue: SocketAddr,
}

impl World {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let (door, theirs) = (free([127, 79, 0, 1]), free(HONEST));
        // Nobody listens at the rogue's address, unless a test does: it dials.
        let rogue = free(ROGUE);
        let peers = [("honest", theirs), ("rogue", rogue)];
        let victim = configuration(place.path(), door, &peers);
        let honest = configuration(place.path(), theirs, &[("victim", door)]);
        let world = Self {
            victim: Served::with(small(), None, Some(victim)),
            honest: Served::with(small(), None, Some(honest)),
            door,
            rogue,
        };
        world.eventually("the honest one is up", |world| {
            world.peer("honest").state == State::Up
        });
        world
    }

    fn peer(&self, name: &str) -> Peer {
        let peers = self.victim.hosts().peers;
        peers.into_iter().find(|peer| peer.name == name).unwrap()
    }

    fn eventually(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < PATIENCE, "never: {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The honest peer has noticed nothing.
    fn is_unharmed(&self) {
        let peer = self.peer("honest");
        assert_eq!((peer.state, peer.lost_channels), (State::Up, 0));
        assert_eq!(self.honest.hosts().peers[0].lost_channels, 0);
    }

    fn dial(&self, from: [u8; 4]) -> TcpStream {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let plain = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&plain, &SocketAddr::new(IpAddr::from(from), 0)).unwrap();
        connect(&plain, &self.door).unwrap();
        let stream = TcpStream::from(plain);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The rogue says HELLO and hears the answer; both, and the proof that it has the key.
    fn greet(&self, nonce: u8) -> (TcpStream, [Vec<u8>; 3]) {
        let identity = Identity {
            host: HostId([0xee; 16]),
            epoch: 1,
            limits: Limits::default(),
            nonce: Nonce([nonce; 32]),
        };
        let initiator = Initiator::new(identity, Class::Latency, 0);
        let hello = encode(&initiator.hello());
        let mut stream = self.dial(ROGUE);
        stream.write_all(&hello).unwrap();
        let answer = read_frame(&mut stream);
        let key = Key::from_contents(KEY.as_bytes()).unwrap();
        let frame = parse(&answer);
        let (proof, _) = initiator.handle_answer(&frame, &key).unwrap();
        let proof = encode(&proof);
        (stream, [hello, answer, proof])
    }

    /// A channel of the rogue's.
    fn channel(&self, nonce: u8) -> TcpStream {
        let (mut stream, [_, _, proof]) = self.greet(nonce);
        stream.write_all(&proof).unwrap();
        self.eventually("the rogue is up", |world| {
            world.peer("rogue").state == State::Up
        });
        stream
    }
}

fn encode(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 6000];
    let length = frame.encode(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

fn parse(bytes: &[u8]) -> Frame<'_> {
    match Parser::new(1 << 18).next(bytes) {
        Ok(Step::Frame { frame, .. }) => frame,
        other => panic!("{other:?}"),
    }
}

fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).unwrap();
        all.extend(&buffer[..count]);
        if let Ok(Step::Frame { consumed, .. }) = Parser::new(1 << 18).next(&all) {
            all.truncate(consumed);
            return all;
        }
        assert!(count > 0, "an end after {all:?}");
    }
}

/// Until so many frames of a kind have come on an open channel.
fn read_until(stream: &mut TcpStream, many: u32, is_one: impl Fn(&Frame<'_>) -> bool) {
    let (mut bytes, mut found) = (Vec::new(), 0);
    let mut parser = Parser::new(1 << 18);
    parser.open();
    while found < many {
        let mut buffer = vec![0; 1 << 16];
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "an end after {found}");
        bytes.extend(&buffer[..count]);
        while let Ok(Step::Frame { frame, consumed }) = parser.next(&bytes) {
            found += u32::from(is_one(&frame));
            bytes.drain(..consumed);
        }
    }
}

/// Until the daemon closes.
fn read_to_end(stream: &mut TcpStream) -> usize {
    let mut total = 0;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return total,
            Ok(count) => total += count,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return total,
            Err(error) => panic!("{error}"),
        }
    }
}

fn data(handle: Handle, sequence: u64, length: u32) -> Vec<u8> {
    let mut header = [0; HEADER];
    let data = DataHeader {
        handle,
        sequence,
        length,
    };
    encode_data_header(&mut header, &data);
    header.to_vec()
}

#[test]
fn a_stranger_is_told_counted_and_closed() {
    let world = World::new();
    for _ in 0..20 {
        let mut stream = world.dial(STRANGER);
        let told = read_frame(&mut stream);
        assert!(matches!(
            parse(&told),
            Frame::GoAway(GoAwayReason::UnknownPeer)
        ));
    }
    let mut stream = world.dial(STRANGER);
    read_to_end(&mut stream);
    world.eventually("all are counted", |world| {
        let refused = world.victim.hosts().refused;
        refused.iter().map(|one| one.count).sum::<u64>() >= 20
    });
    world.is_unharmed();
}

#[test]
fn neither_a_wrong_key_nor_a_recorded_handshake_opens_a_channel() {
    let world = World::new();
    let (mut stream, [hello, answer, proof]) = world.greet(1);
    let Frame::HelloAnswer(said) = parse(&answer) else {
        panic!("{answer:?}");
    };
    let wrong = Frame::HelloProof(HelloProof {
        challenge: said.hello.nonce,
        proof: Proof([7; 32]),
    });
    stream.write_all(&encode(&wrong)).unwrap();
    read_to_end(&mut stream);
    assert_ne!(world.peer("rogue").state, State::Up);

    let mut again = world.dial(ROGUE);
    again.write_all(&hello).unwrap();
    again.write_all(&proof).unwrap();
    read_to_end(&mut again);
    assert_ne!(world.peer("rogue").state, State::Up);
    world.is_unharmed();
    // The right words open it all the same.
    world.channel(2);
}

#[test]
fn the_hosts_own_words_open_nothing() {
    let world = World::new();
    let listener = TcpListener::bind(world.rogue).unwrap();
    let (mut dialled, _) = listener.accept().unwrap();
    dialled.set_read_timeout(Some(PATIENCE)).unwrap();
    let hello = read_frame(&mut dialled);
    assert!(matches!(parse(&hello), Frame::Hello(_)));
    // As an answer, and as a HELLO of the rogue's own.
    dialled.write_all(&hello).unwrap();
    read_to_end(&mut dialled);
    let mut back = world.dial(ROGUE);
    back.write_all(&hello).unwrap();
    let told = read_frame(&mut back);
    assert!(matches!(parse(&told), Frame::GoAway(GoAwayReason::Itself)));
    read_to_end(&mut back);
    assert_ne!(world.peer("rogue").state, State::Up);
    world.is_unharmed();
}

#[test]
fn another_version_is_refused_and_not_bargained_with() {
    const VERSION: usize = HEADER + 8;
    let world = World::new();
    let (_, [hello, ..]) = world.greet(1);
    for version in [0_u8, 1, 2, 4, 255] {
        let mut other = hello.clone();
        assert_ne!(other[VERSION], version);
        other[VERSION] = version;
        let mut stream = world.dial(ROGUE);
        stream.write_all(&other).unwrap();
        let told = read_frame(&mut stream);
        assert!(matches!(parse(&told), Frame::GoAway(GoAwayReason::Version)));
        read_to_end(&mut stream);
    }
    assert_ne!(world.peer("rogue").state, State::Up);
    world.is_unharmed();
}

#[test]
fn recorded_words_do_not_take_an_open_channels_place() {
    let world = World::new();
    let (mut stream, [hello, _, proof]) = world.greet(1);
    stream.write_all(&proof).unwrap();
    world.eventually("the rogue is up", |world| {
        world.peer("rogue").state == State::Up
    });
    for _ in 0..3 {
        let mut again = world.dial(ROGUE);
        again.write_all(&hello).unwrap();
        again.write_all(&proof).unwrap();
        read_to_end(&mut again);
    }
    let peer = world.peer("rogue");
    assert_eq!((peer.state, peer.lost_channels), (State::Up, 0));
    world.is_unharmed();
}

#[test]
fn sockets_that_are_not_its_own_are_nobodys() {
    let world = World::new();
    let mut stream = world.channel(1);
    let before = world.peer("rogue");
    for index in 0..2000 {
        let handle = Handle {
            index: index * 7,
            generation: index % 3 + 1,
        };
        let mut bytes = data(handle, 5, 8);
        bytes.extend([0x55; 8]);
        let window = Frame::Window(Window {
            handle,
            filled: 1 << 40,
            limit: 1 << 41,
            fin: true,
            ask: true,
            again: true,
        });
        let reason = netchannel_wire::ResetReason::Aborted;
        bytes.extend(encode(&window));
        bytes.extend(encode(&Frame::Fin(Fin {
            handle,
            sequence: 9,
        })));
        bytes.extend(encode(&Frame::Rst(Rst { handle, reason })));
        stream.write_all(&bytes).unwrap();
    }
    // It is answered that there is none, and the channel goes on.
    read_until(&mut stream, 1, |frame| matches!(frame, Frame::NoSocket(_)));
    let after = world.peer("rogue");
    assert_eq!((after.state, after.sockets), (State::Up, 0));
    assert_eq!(after.violations, before.violations);
    world.is_unharmed();
}

#[test]
fn a_flood_of_connects_is_refused_one_by_one() {
    const MANY: u32 = 20_000;
    let world = World::new();
    let mut stream = world.channel(1);
    let mut answers = stream.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        read_until(&mut answers, MANY, |frame| matches!(frame, Frame::NcRst(_)));
    });
    for index in 0..MANY {
        let syn = Frame::NcSyn(NcSyn {
            handle: Handle {
                index,
                generation: 1,
            },
            client: Address::v4([10, 1, 0, 1], 4000),
            server: Address::v4([10, 9, 0, 1], 80),
            limit: 2048,
            listener: index,
            class: Some(Class::Latency),
        });
        stream.write_all(&encode(&syn)).unwrap();
    }
    reader.join().unwrap();
    let peer = world.peer("rogue");
    assert_eq!((peer.state, peer.sockets), (State::Up, 0));
    world.is_unharmed();
}

#[test]
fn a_length_beyond_what_was_agreed_ends_the_channel() {
    let world = World::new();
    let mut stream = world.channel(1);
    let handle = Handle {
        index: 1,
        generation: 1,
    };
    stream.write_all(&data(handle, 0, u32::MAX)).unwrap();
    read_to_end(&mut stream);
    world.eventually("it is counted", |world| world.peer("rogue").violations == 1);
    assert_ne!(world.peer("rogue").state, State::Up);
    world.is_unharmed();
}
