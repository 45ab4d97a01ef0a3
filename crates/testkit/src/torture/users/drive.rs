//! An honest user's clients: connections by script to any listening honest server, and lasting connections whose round
//! trips are timed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use netchannel_testkit::daemon::daemon_status;
use netchannel_testkit::support::{Family, Random, pattern, pattern_mismatch, tcp};
use netchannel_testkit::sys::{self, Descriptor, Errno};

use netchannel_control::types::Program;

use super::board::{Board, Counter, FIRST_PORT, LASTING, Measure, PORTS, WORKERS};
use super::hello::{ANSWER, Hello, Kind, Secret, canonical};
use super::serve::{SHAPES, Shape, set_patience};
use super::usage;
use crate::script::{Role, Script};
use crate::step::keep_urgent_bytes;
use crate::{Options, blocking};

/// Workers that connect again and again.
const BY_SCRIPT: usize = 2;
/// Workers with a lasting connection.
const LASTING_WORKERS: usize = 2;
/// Workers of one user.
const OF_A_USER: usize = 16;
/// How long an honest server may take to answer.
const ANSWER_SECONDS: i64 = 45;

/// A client of one worker.
struct Client {
    board: Board,
    secret: Secret,
    user: u32,
    seed: u64,
    random: Random,
    measure: Measure,
}

impl Client {
    fn new(options: &Options, salt: usize, measure: Measure) -> Self {
        // SAFETY: no argument, cannot fail.
        let (user, process) = unsafe { (libc::getuid(), libc::getpid()) };
        let salt = u64::from(process.unsigned_abs()) << 32 | salt as u64;
        // A later process with the same process id must not repeat a nonce.
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let time = time.map_or(0, |time| {
            u64::from(time.subsec_nanos()) ^ time.as_secs() << 30
        });
        Self {
            board: Board::inherited(),
            secret: Secret::inherited(),
            user,
            seed: options.seed,
            random: Random::new(options.seed ^ time ^ salt.wrapping_mul(0x9e37_79b9)),
            measure,
        }
    }

    /// Connects to the honest server that has a port, if there is one. `None` if the server left meanwhile.
    fn open(&mut self, index: usize, kind: Kind, number: u64) -> Option<Descriptor> {
        let state = self.board.port(index);
        if state == 0 {
            return None;
        }
        let shape = SHAPES[usize::from(state.to_le_bytes()[0]) % SHAPES.len()];
        let address = self.destination(shape, index);
        let family = Family::of(address);
        let socket = tcp(family);
        keep_urgent_bytes(socket);
        let start = Instant::now();
        let connected = sys::connect(socket, address);
        let time = start.elapsed();
        let opened = connected.and_then(|()| {
            self.board.measure(self.measure, time);
            self.authenticate(socket, address, kind, number)
        });
        match opened {
            Ok(()) => {
                set_patience(socket, 0);
                Some(socket)
            }
            Err(errno) => {
                sys::close(socket).expect("close");
                let left = self.board.port(index) != state || self.board.is_ending();
                assert!(
                    left,
                    "{address}, where an honest server listens all the time: {errno:?} (led elsewhere, or refused)"
                );
                None
            }
        }
    }

    fn destination(&mut self, shape: Shape, index: usize) -> SocketAddr {
        let port = FIRST_PORT + u16::try_from(index).expect("few ports");
        let host = IpAddr::V4(Ipv4Addr::new(10, 77, 1, 1));
        match (shape, self.random.below(3)) {
            (Shape::V4, _) => Family::V4.loopback(port),
            (Shape::V6, _) | (Shape::AnyV6, 0) => Family::V6.loopback(port),
            (Shape::AnyV4 | Shape::AnyV6, 1) => SocketAddr::new(host, port),
            (Shape::AnyV4 | Shape::AnyV6, _) => Family::V4.loopback(port),
        }
    }

    /// Sends the signed hello and checks the signed answer. `EPROTO` stands for an answer that no honest server gives.
    fn authenticate(
        &mut self,
        socket: Descriptor,
        address: SocketAddr,
        kind: Kind,
        number: u64,
    ) -> Result<(), Errno> {
        let peer = sys::getpeername(socket)?;
        assert_eq!(peer, address, "getpeername shows where we connected to");
        set_patience(socket, ANSWER_SECONDS);
        let hello = Hello {
            nonce: self.random.number(),
            number,
            user: self.user,
            kind,
            address: canonical(sys::getsockname(socket)?),
        };
        sys::send(socket, &self.secret.hello(&hello), libc::MSG_NOSIGNAL)?;
        let mut answer = [0; ANSWER];
        let got = sys::recv(socket, &mut answer, libc::MSG_WAITALL)?;
        if got == ANSWER && answer == self.secret.answer(hello.nonce) {
            Ok(())
        } else if got == 0 {
            Err(Errno(libc::ECONNRESET))
        } else {
            Err(Errno(libc::EPROTO))
        }
    }

    /// Makes one connection by script. Returns whether there was one.
    fn script(&mut self, index: usize) -> bool {
        let number = self.random.number() >> 16;
        let Some(socket) = self.open(index, Kind::Script, number) else {
            return false;
        };
        blocking::run(socket, Script::of(self.seed, number), Role::Client);
        self.board.count(Counter::Connections, 1);
        true
    }

    /// Makes round trips on a connection, `most` of them or until the run ends.
    fn trips(&mut self, socket: Descriptor, worker: usize, most: u64) {
        let mut offset = 0;
        for _ in 0..most {
            if self.board.is_ending() {
                break;
            }
            let length = self.random.between(1, 4096);
            let bytes = pattern(offset, length);
            let start = Instant::now();
            let sent = sys::send(socket, &bytes, libc::MSG_NOSIGNAL);
            assert_eq!(sent, Ok(length), "a lasting connection broke");
            let mut back = vec![0; length];
            let got = sys::recv(socket, &mut back, libc::MSG_WAITALL);
            assert_eq!(got, Ok(length), "a lasting connection broke");
            let wrong = pattern_mismatch(offset, &back);
            assert_eq!(wrong, None, "a wrong byte came back");
            self.board.measure(Measure::RoundTrip, start.elapsed());
            self.board.count(Counter::RoundTrips, 1);
            self.board.beat(worker);
            offset += length;
            thread::sleep(Duration::from_millis(2));
        }
        sys::close(socket).expect("close");
    }
}

/// Connects until the run ends.
pub fn run(options: &Options) {
    let first = options.index * OF_A_USER;
    let mut threads = Vec::new();
    for number in 0..BY_SCRIPT + LASTING_WORKERS {
        let worker = first + number;
        let mut client = Client::new(options, worker, Measure::Connect);
        threads.push(thread::spawn(move || {
            client.board.beat(worker);
            while !client.board.is_ending() {
                if number < BY_SCRIPT {
                    work(&mut client, worker);
                } else {
                    let index = number % LASTING;
                    let most = if number == BY_SCRIPT { u64::MAX } else { 300 };
                    if let Some(socket) = client.open(index, Kind::Echo, 0) {
                        client.trips(socket, worker, most);
                    } else {
                        thread::sleep(Duration::from_millis(5));
                    }
                }
            }
            client.board.rest(worker);
        }));
    }
    for thread in threads {
        thread.join().expect("a panic ends the process");
    }
}

fn work(client: &mut Client, worker: usize) {
    let index = client.random.below(PORTS);
    if client.script(index) {
        client.board.beat(worker);
    } else {
        // Most ports have no server for most of the time.
        thread::sleep(Duration::from_millis(1));
    }
}

/// A program that connects to every honest server once, and ends.
pub fn visit(options: &Options) {
    let mut client = Client::new(options, 0, Measure::First);
    for index in 0..PORTS {
        client.measure = if index == 0 {
            Measure::First
        } else {
            Measure::Connect
        };
        client.script(index);
    }
    if client.random.once_in(2) {
        pass_on(&mut client);
        note_refusals(&client.board);
    }
}

/// Sends a connection to a process that reads a local socket. The connection stays in the message for a while, and then
/// goes on.
fn pass_on(client: &mut Client) {
    let index = client.random.below(LASTING);
    let Some(socket) = client.open(index, Kind::Echo, 0) else {
        return;
    };
    let ends = client.board.counted(Counter::Ends);
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let [near, far] = sys::socketpair(libc::AF_UNIX, kind).expect("socketpair");
    sys::send_descriptor(near, socket).expect("a descriptor is sent");
    sys::close(socket).expect("close");
    thread::sleep(Duration::from_millis(client.random.below(3000) as u64));
    let start = Instant::now();
    let again = sys::recv_descriptor(far).expect("a descriptor comes");
    let time = start.elapsed();
    // A connection that is in a message while its daemon is replaced is lost. An odd count means that a daemon is being
    // replaced now.
    if ends.is_multiple_of(2) && client.board.counted(Counter::Ends) == ends {
        // Through a pump the connection is a local socket, and works. A local socket that no pump serves must not be
        // waited for without a message.
        let domain = sys::option_int(again, libc::SOL_SOCKET, libc::SO_DOMAIN);
        if domain == Ok(libc::AF_UNIX) {
            eprintln!("a connection came in a message as a local socket, after {time:?}");
        }
        set_patience(again, ANSWER_SECONDS);
        client.trips(again, WORKERS, 3);
        client.board.count(Counter::Passed, 1);
    }
    for end in [near, far] {
        sys::close(end).expect("close");
    }
}

/// Records the refusals that the daemon has counted for this program.
fn note_refusals(board: &Board) {
    if let Some(socket) = std::env::var_os("NETCHANNEL_SOCKET")
        && let Ok(status) = daemon_status(Path::new(&socket))
    {
        let own = |program: &Program| program.process == std::process::id();
        let refused = usage::refused(&status, own);
        if !refused.is_empty() {
            eprintln!("{}", refused.shown());
            board.count(Counter::Refused, refused.count());
        }
    }
}
