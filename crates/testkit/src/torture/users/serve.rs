//! An honest user's servers: one listener for the whole run, and others that come and go on ports that any user may
//! take.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use netchannel_testkit::support::{Family, Random, set_int, tcp};
use netchannel_testkit::sys::{self, Descriptor};

use super::board::{Board, Counter, FIRST_PORT, LASTING, PORTS};
use super::hello::{HELLO, Kind, Secret, canonical};
use crate::script::{Role, Script};
use crate::step::keep_urgent_bytes;
use crate::{Options, blocking};

/// Connections that are served at a time. More connections wait in the backlog.
const MOST: usize = 1500;
/// Short-lived listeners beside the lasting one.
const PASSING: usize = 2;
/// How long a client has to send its hello.
const HELLO_SECONDS: i64 = 10;

/// Within what time a hostile program notes a port that it was granted.
const NOTED_WITHIN: Duration = Duration::from_secs(2);

/// How an honest server listens. The client reads this from the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// 127.0.0.1
    V4,
    /// 0.0.0.0
    AnyV4,
    /// `::1`
    V6,
    /// `::`, which takes IPv4 too
    AnyV6,
}

pub const SHAPES: [Shape; 4] = [Shape::V4, Shape::AnyV4, Shape::V6, Shape::AnyV6];

impl Shape {
    fn address(self, port: u16) -> SocketAddr {
        match self {
            Shape::V4 => Family::V4.loopback(port),
            Shape::AnyV4 => Family::V4.any(port),
            Shape::V6 => Family::V6.loopback(port),
            Shape::AnyV6 => Family::V6.any(port),
        }
    }
}

/// State that all connections of a server share.
struct Server {
    board: Board,
    secret: Secret,
    seed: u64,
    nonces: Mutex<HashSet<u64>>,
    serving: AtomicUsize,
}

/// Serves until the run ends.
pub fn run(options: &Options) {
    let server = Arc::new(Server {
        board: Board::inherited(),
        secret: Secret::inherited(),
        seed: options.seed,
        nonces: Mutex::new(HashSet::new()),
        serving: AtomicUsize::new(0),
    });
    let user = options.index;
    let lasting = listen(user, Shape::AnyV4).expect("nobody else has the first ports");
    let done = Arc::new(AtomicBool::new(false));
    let mut threads = vec![accept_on(&server, lasting, &done)];
    for number in 0..PASSING {
        let server = Arc::clone(&server);
        let seed = options.seed ^ ((user * PASSING + number) as u64 + 1) << 32;
        threads.push(thread::spawn(move || {
            let mut random = Random::new(seed);
            while !server.board.is_ending() {
                run_listener(&server, &mut random);
            }
        }));
    }
    assert!(
        server
            .board
            .take_port(user, state(1, Shape::AnyV4, &mut Random::new(options.seed))),
        "the first ports are taken once"
    );
    while !server.board.is_ending() {
        thread::sleep(Duration::from_millis(20));
    }
    done.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("a panic ends the process");
    }
}

/// The board's word of a port. Two listeners never have the same word.
fn state(generation: u32, shape: Shape, random: &mut Random) -> u64 {
    let place = SHAPES.iter().position(|one| *one == shape).unwrap_or(0);
    let generation = u64::from(generation) | random.number() << 8 & 0xffff_ff00;
    generation << 32 | 1 << 8 | place as u64
}

fn port(index: usize) -> u16 {
    FIRST_PORT + u16::try_from(index).expect("few ports")
}

/// Listens at one of the ports, unless another socket has it.
fn listen(index: usize, shape: Shape) -> Option<Descriptor> {
    let address = shape.address(port(index));
    let family = Family::of(address);
    let socket = tcp(family);
    keep_urgent_bytes(socket);
    set_int(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    if sys::bind(socket, address).is_err() || sys::listen(socket, 512).is_err() {
        sys::close(socket).expect("close");
        return None;
    }
    let patience = libc::timeval {
        tv_sec: 0,
        tv_usec: 50_000,
    };
    sys::set_option(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, patience).expect("a time-out");
    Some(socket)
}

/// Runs a listener for a while.
fn run_listener(server: &Arc<Server>, random: &mut Random) {
    let index = random.between(LASTING, PORTS - 1);
    let shape = SHAPES[random.below(SHAPES.len())];
    if server.board.port(index) != 0 {
        return thread::sleep(Duration::from_millis(5));
    }
    let Some(listening) = listen(index, shape) else {
        return thread::sleep(Duration::from_millis(20));
    };
    let state = state(random.number().to_le_bytes()[0].into(), shape, random);
    if server.board.take_port(index, state) {
        let done = Arc::new(AtomicBool::new(false));
        let accepting = accept_on(server, listening, &done);
        for _ in 0..random.between(5, 40) {
            if !server.board.is_ending() {
                thread::sleep(Duration::from_millis(100));
            }
        }
        server.board.leave_port(index);
        // A client that has read the board before connects within this time, or accepts a refusal.
        thread::sleep(Duration::from_millis(100));
        done.store(true, Ordering::Relaxed);
        accepting.join().expect("a panic ends the process");
    } else {
        sys::close(listening).expect("close");
    }
}

/// Accepts until the server is stopped, and closes the listener.
fn accept_on(
    server: &Arc<Server>,
    listening: Descriptor,
    done: &Arc<AtomicBool>,
) -> thread::JoinHandle<()> {
    let (server, done) = (Arc::clone(server), Arc::clone(done));
    thread::spawn(move || {
        while !done.load(Ordering::Relaxed) {
            if server.serving.load(Ordering::Relaxed) >= MOST {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            let Ok(socket) = sys::accept(listening) else {
                continue;
            };
            server.serving.fetch_add(1, Ordering::Relaxed);
            let server = Arc::clone(&server);
            thread::spawn(move || {
                serve_connection(&server, socket);
                server.serving.fetch_sub(1, Ordering::Relaxed);
            });
        }
        sys::close(listening).expect("close");
    })
}

pub fn set_patience(socket: Descriptor, seconds: i64) {
    let patience = libc::timeval {
        tv_sec: seconds,
        tv_usec: 0,
    };
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        sys::set_option(socket, libc::SOL_SOCKET, name, patience).expect("a time-out");
    }
}

/// Serves one connection of any client.
fn serve_connection(server: &Server, socket: Descriptor) {
    let board = server.board;
    let peer = sys::getpeername(socket).map(canonical).ok();
    set_patience(socket, HELLO_SECONDS);
    let mut bytes = [0; HELLO];
    let got = sys::recv(socket, &mut bytes, libc::MSG_WAITALL);
    let hello = (got == Ok(HELLO)).then(|| server.secret.read(&bytes));
    let Some(hello) = hello.flatten() else {
        if !board.is_ending() {
            judge_intruder(&board, peer, got);
        }
        let _ = sys::close(socket);
        return;
    };
    assert_eq!(
        peer,
        Some(hello.address),
        "the client of an honest connection shows another address than it has: {hello:?}"
    );
    let fresh = server
        .nonces
        .lock()
        .map(|mut nonces| nonces.insert(hello.nonce));
    assert_eq!(fresh.ok(), Some(true), "{hello:?} came twice: a phantom");
    // A client that leaves before the answer has its own reason, which it reports itself.
    let answer = server.secret.answer(hello.nonce);
    if sys::send(socket, &answer, libc::MSG_NOSIGNAL) != Ok(answer.len()) {
        let _ = sys::close(socket);
        return;
    }
    set_patience(socket, 0);
    match hello.kind {
        Kind::Echo => echo(&board, socket),
        Kind::Script => {
            let script = Script::of(server.seed, hello.number);
            blocking::run(socket, script, Role::Server);
        }
    }
}

/// Checks a connection that no honest program made: it may show an address of this host only, and a port of the hostile
/// user.
fn judge_intruder(board: &Board, peer: Option<SocketAddr>, answer: sys::Outcome<usize>) {
    board.count(Counter::Intruders, 1);
    let Some(peer) = peer else { return };
    let own = match peer.ip() {
        IpAddr::V4(four) => four.is_loopback() || four.octets()[..2] == [10, 77],
        IpAddr::V6(six) => six.is_loopback() || six.segments()[0] == 0xfd77,
    };
    // A program notes a port that it was granted when it has read the answer.
    let until = Instant::now() + NOTED_WITHIN;
    while own && !board.is_granted(peer.port()) && Instant::now() < until {
        thread::sleep(Duration::from_millis(20));
    }
    assert!(
        own && board.is_granted(peer.port()),
        "a connection of the hostile user, which said {answer:?}, claims to come from {peer}, which is not its own"
    );
}

fn echo(board: &Board, socket: Descriptor) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match sys::recv(socket, &mut buffer, 0) {
            Ok(0) => break,
            Ok(size) => {
                let mut rest = &buffer[..size];
                while !rest.is_empty() {
                    match sys::send(socket, rest, libc::MSG_NOSIGNAL) {
                        Ok(sent) => rest = &rest[sent..],
                        Err(_) if board.is_ending() => return,
                        Err(errno) => panic!("a lasting connection broke: send: {errno:?}"),
                    }
                }
            }
            Err(_) if board.is_ending() => return,
            Err(errno) => panic!("a lasting connection broke: recv: {errno:?}"),
        }
    }
    sys::close(socket).expect("close");
}
