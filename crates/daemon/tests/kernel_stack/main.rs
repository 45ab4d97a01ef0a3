//! A third stack module, written for this test alone: kernel TCP on behalf of programs. It proves the trait: nothing else had to change.
//!
//! Programs are played over the attach protocol and the links that they get.

mod connection;
mod module;
#[path = "../support/mod.rs"]
mod support;
mod worker;

use module::KernelStack;
use netchannel_abi::address::Address;
use netchannel_abi::class;
use netchannel_abi::directory::{self, ENTRIES, ENTRIES_OFFSET, entry_flags};
use netchannel_abi::link::{Layout, Role, side_flags};
use netchannel_abi::message::Operation;
use netchannel_daemon::{Daemon, Options};
use netchannel_service::anchor::Count;
use netchannel_service::lane::Lane;
use netchannel_service::link::{LinkEnd, Parts};
use netchannel_service::played::{pattern, read, take, write};
use netchannel_shm::{Access, Region};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};
use support::{Client, Served, address, receive, small};

const PATIENCE: Duration = Duration::from_secs(20);

fn wait<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "nothing came");
        std::thread::yield_now();
    }
}

/// A daemon with the module, which leads to `remotes`, and from `door` to where a program listens.
fn served(
    remotes: Vec<Address>,
    door: Option<(TcpListener, Address)>,
    relay_local: bool,
) -> Served {
    Served::bound(move |socket| {
        let options = Options {
            socket,
            idle_exit: None,
            limits: small(),
            version: "test".to_owned(),
            configuration: None,
            relay_local,
        };
        Daemon::bind_with(options, |_| {
            vec![Box::new(KernelStack::start(remotes, door).unwrap())]
        })
    })
}

/// A program that is attached, and the directory that it sees.
struct Program {
    client: Client,
    directory: Region,
}

impl Program {
    fn new(served: &Served) -> Self {
        let mut client = Client::connect(served);
        let memory = client.attach().1.pop().unwrap();
        let directory = Region::map(memory.as_raw_fd(), directory::SIZE, Access::ReadOnly);
        Self {
            client,
            directory: directory.unwrap(),
        }
    }

    /// The listener that the directory names for an address, once it does.
    fn look_up(&self, to: Address) -> u32 {
        let entries: &[directory::Entry] = self.directory.slice(ENTRIES_OFFSET, ENTRIES).unwrap();
        wait(|| {
            let mut there = entries.iter().filter(|entry| {
                let is_remote = entry.flags.load(Relaxed) & entry_flags::REMOTE != 0;
                is_remote && entry.address.load() == to
            });
            there.next().map(|entry| entry.listener.load(Acquire))
        })
    }

    /// A link to whoever leads to a listener.
    fn link(&mut self, listener: u32, to: Address) -> Arc<LinkEnd> {
        let [a, b, c] = to.to_words();
        let words = [u64::from(listener), a, b, c];
        let answer = self.client.ask(Operation::Connect, &words, &[]).unwrap();
        assert_eq!(answer.0.status, 0);
        let [number, slots, arena, ..] = answer.0.words;
        link_end((number, slots, arena), Role::Client, answer.1)
    }

    /// Connects, and does not wait.
    fn dial(&mut self, to: Address, hints: class::Hints) -> Lane {
        let listener = self.look_up(to);
        let link = self.link(listener, to);
        let lane = Lane::lent(&link, link.lend().unwrap()).unwrap();
        let (own, _) = lane.sides().unwrap();
        own.hints.store(hints.to_word(), Relaxed);
        let from = Address::v4([127, 0, 0, 1], 40_000);
        assert!(link.announce(lane.handle(), listener, (&from, &to), false));
        lane
    }

    /// Connects.
    fn connect(&mut self, to: Address) -> Lane {
        let lane = self.dial(to, class::Hints::default());
        wait(|| (lane.peer_flags() & side_flags::ESTABLISHED != 0).then_some(()));
        lane
    }
}

/// One end of a link that the daemon has made.
fn link_end(
    (number, slots, arena): (u64, u64, u64),
    role: Role,
    descriptors: Vec<OwnedFd>,
) -> Arc<LinkEnd> {
    let mut descriptors = descriptors.into_iter();
    let parts = Parts {
        number,
        role,
        layout: Layout {
            slots: usize::try_from(slots).unwrap(),
            arena: usize::try_from(arena).unwrap(),
        },
        memory: descriptors.next().unwrap(),
        channel: descriptors.next().unwrap(),
        anchors: descriptors.collect(),
        user: None,
    };
    Arc::new(LinkEnd::new(parts, &Arc::new(Count::new(1000))).unwrap())
}

/// A server of the kernel's, which knows nothing of NetChannel.
fn server() -> (TcpListener, Address) {
    let server = support::listening();
    let at = address(&server);
    (server, at)
}

/// Both ends of a connection that a program makes.
fn pair() -> (Served, Program, Lane, TcpStream) {
    let (server, at) = server();
    let served = served(vec![at], None, false);
    let mut program = Program::new(&served);
    let lane = program.connect(at);
    let (stream, _) = server.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    (served, program, lane, stream)
}

fn has(lane: &Lane, flags: u32) {
    wait(|| (lane.peer_flags() & flags != 0).then_some(()));
}

/// Sends all from a program, and reads all at the kernel's end.
fn send(lane: &mut Lane, stream: &mut TcpStream, bytes: &[u8]) {
    let mut sent = 0;
    let mut got = Vec::new();
    stream.set_nonblocking(true).unwrap();
    let mut buffer = vec![0; 1 << 16];
    wait(|| {
        sent += write(lane, &bytes[sent..]);
        if let Ok(count) = stream.read(&mut buffer) {
            got.extend_from_slice(&buffer[..count]);
        }
        (got.len() == bytes.len()).then_some(())
    });
    stream.set_nonblocking(false).unwrap();
    assert!(got == bytes);
}

/// The other way.
fn receive_all(lane: &mut Lane, stream: &mut TcpStream, bytes: &[u8]) {
    let mut other = stream.try_clone().unwrap();
    let all = bytes.to_vec();
    let writer = std::thread::spawn(move || other.write_all(&all).unwrap());
    let mut got = Vec::new();
    wait(|| {
        got.extend(read(lane));
        (got.len() >= bytes.len()).then_some(())
    });
    writer.join().unwrap();
    assert!(got == bytes);
}

#[test]
fn bytes_go_both_ways_by_kernel_tcp() {
    let (_served, _program, mut lane, mut stream) = pair();
    send(&mut lane, &mut stream, &pattern(2_000_000, 1));
    receive_all(&mut lane, &mut stream, &pattern(2_000_000, 2));
}

#[test]
fn half_of_a_connection_goes_on() {
    let (_served, _program, mut lane, mut stream) = pair();
    assert_eq!(write(&mut lane, b"last words"), 10);
    lane.set_flags(side_flags::FIN);
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"last words");
    receive_all(&mut lane, &mut stream, &pattern(100_000, 3));
    stream.shutdown(Shutdown::Write).unwrap();
    has(&lane, side_flags::FIN);
    lane.close(false);
}

#[test]
fn a_reset_goes_on_either_way() {
    let (_served, _program, lane, stream) = pair();
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
    has(&lane, side_flags::RESET);
    lane.close(false);
    let (_served, _program, lane, mut stream) = pair();
    lane.close(true);
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_program_that_ends_without_a_word_ends_its_connection() {
    let (_served, program, lane, mut stream) = pair();
    drop((program, lane));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_connect_that_fails_has_the_kernels_error() {
    let (server, at) = server();
    drop(server);
    let served = served(vec![at], None, false);
    let mut program = Program::new(&served);
    let lane = program.dial(at, class::Hints::default());
    has(&lane, side_flags::RESET);
    let (_, daemon) = lane.sides().unwrap();
    let refused = Errno::CONNREFUSED.raw_os_error().unsigned_abs();
    assert_eq!(daemon.error.load(Relaxed), refused);
}

#[test]
fn what_a_program_asks_of_its_socket_is_asked_of_the_kernels() {
    let (server, at) = server();
    let served = served(vec![at], None, false);
    let mut program = Program::new(&served);
    let hints = class::Hints {
        dscp: 46,
        priority: 5,
        ..class::Hints::default()
    };
    let lane = program.dial(at, hints);
    has(&lane, side_flags::ESTABLISHED);
    let (stream, from) = server.accept().unwrap();
    let said = wait(|| module::options_of(from));
    assert_eq!(said, (46 << 2, 5));
    drop(stream);
}

/// A program that listens, and what it was offered.
fn accept(accepts: &OwnedFd) -> Arc<LinkEnd> {
    let (offer, descriptors) = receive(accepts).unwrap();
    assert_eq!(offer.operation, Operation::Offer as u32);
    let [number, _, slots, arena, ..] = offer.words;
    link_end((number, slots, arena), Role::Server, descriptors)
}

fn comes_in(relay_local: bool) {
    let (listening, here) = server();
    let (door, at) = server();
    let at = SocketAddr::from(([127, 0, 0, 1], at.port));
    let served = served(Vec::new(), Some((door, here)), relay_local);
    let mut program = Program::new(&served);
    let (_, accepts) = program.client.announce(&listening);
    // Whoever comes before the module has heard of the listener is reset.
    let mut stream = wait(|| {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut both = [
            PollFd::new(&accepts, PollFlags::IN),
            PollFd::new(&stream, PollFlags::IN),
        ];
        poll(&mut both, None).unwrap();
        let is_offered = both[0].revents().contains(PollFlags::IN);
        is_offered.then_some(stream)
    });
    let link = accept(&accepts);
    let mut lane = wait(|| {
        link.read_channel();
        let opened = take(&link).pop()?;
        assert_eq!(opened.server, here);
        assert_eq!(opened.client.port, stream.local_addr().unwrap().port());
        Some(Lane::accepted(&link, opened.loan))
    });
    lane.set_flags(side_flags::ACCEPTED);
    send(&mut lane, &mut stream, &pattern(300_000, 4));
    receive_all(&mut lane, &mut stream, &pattern(300_000, 5));
    stream.shutdown(Shutdown::Write).unwrap();
    has(&lane, side_flags::FIN);
    lane.close(false);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_client_of_the_kernels_is_accepted_by_a_program() {
    comes_in(false);
}

#[test]
fn it_stands_beside_another_module() {
    comes_in(true);
}

#[test]
fn who_comes_before_anybody_listens_is_reset() {
    let (listening, here) = server();
    drop(listening);
    let (door, at) = server();
    let _served = served(Vec::new(), Some((door, here)), false);
    let mut stream = TcpStream::connect(("127.0.0.1", at.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}
