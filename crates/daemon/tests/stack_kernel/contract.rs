//! The stack module for tenants as CoreEngine, the daemon's loop and programs meet it, wherever it runs.
//!
//! Programs are played over the attach protocol and the links that they get.

use crate::support;
use crate::support::{Client, Served, address, options, receive};
use netchannel_abi::address::Address;
use netchannel_abi::class;
use netchannel_abi::directory;
use netchannel_abi::link::{Layout, Role, side_flags};
use netchannel_abi::message::Operation;
use netchannel_configuration::{Publish, Tenant};
use netchannel_daemon::{Daemon, Options};
use netchannel_scheduler::Rate;
use netchannel_service::anchor::Count;
use netchannel_service::lane::Lane;
use netchannel_service::link::{LinkEnd, Parts};
use netchannel_service::played::{pattern, read, take, write};
use netchannel_shm::{Access, Region};
use netchannel_stack_process::control::NewSession;
use netchannel_stack_process::message::SessionLimits;
use netchannel_stack_process::session::SessionStack;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(20);
/// The address of the tenant.
const OWN: [u8; 4] = [10, 88, 0, 2];

pub fn wait<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "nothing came");
        std::thread::yield_now();
    }
}

/// A tenant that reaches loopback.
pub fn tenant(publish: Option<(SocketAddr, u16)>) -> Tenant {
    let publish = publish.map(|(host, port)| Publish { host, port });
    Tenant {
        reach: vec!["127.0.0.0/8".parse().unwrap()],
        publish: publish.into_iter().collect(),
        connections: 100,
        ..Tenant::new("web", vec![OWN.into()])
    }
}

/// A daemon with the module for such a tenant.
pub fn served(tenant: Tenant, relay_local: bool) -> Served {
    Served::bound(move |socket| {
        let options = Options {
            relay_local,
            ..options(socket)
        };
        let tenant = Arc::new(tenant);
        let stack = SessionStack::new(Arc::clone(&tenant)).unwrap();
        let problems = stack
            .control()
            .configure(&tenant, Some(netchannel_stack_kernel::BIND));
        assert_eq!(problems, Vec::new());
        let session = session("one", super::PLACE.session());
        stack.control().use_session(session).unwrap();
        Daemon::bind_with(options, |_| vec![Box::new(stack)])
    })
}

/// A session with a stack of that name.
pub fn session(stack: &str, socket: OwnedFd) -> NewSession {
    NewSession {
        stack: stack.to_owned(),
        socket,
        limits: SessionLimits {
            anchors: 500,
            sockets: 250,
        },
        binds_ports: false,
    }
}

/// A program that is attached, and the directory that it sees.
pub struct Program {
    pub client: Client,
    directory: Region,
}

impl Program {
    pub fn new(served: &Served) -> Self {
        let mut client = Client::connect(served);
        let memory = client.attach().1.pop().unwrap();
        let directory = Region::map(memory.as_raw_fd(), directory::SIZE, Access::ReadOnly);
        Self {
            client,
            directory: directory.unwrap(),
        }
    }

    /// The listener that the directory names for all the world.
    pub fn gateway(&self) -> u32 {
        let header: &directory::Header = self.directory.at(0).unwrap();
        wait(|| match header.gateway.load(Relaxed) {
            0 => None,
            gateway => Some(gateway),
        })
    }

    /// A link to whoever leads to a listener.
    pub fn link(&mut self, listener: u32, to: Address) -> Arc<LinkEnd> {
        let [a, b, c] = to.to_words();
        let words = [u64::from(listener), a, b, c];
        let answer = self.client.ask(Operation::Connect, &words, &[]).unwrap();
        assert_eq!(answer.0.status, 0);
        let [number, slots, arena, ..] = answer.0.words;
        link_end((number, slots, arena), Role::Client, answer.1)
    }

    /// Connects, and does not wait.
    pub fn dial(&mut self, to: Address, hints: class::Hints) -> Lane {
        let listener = self.gateway();
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
    let served = served(tenant(None), false);
    let mut program = Program::new(&served);
    let lane = program.connect(at);
    let (stream, _) = server.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    (served, program, lane, stream)
}

/// Bytes that one lane sends are what the other gets.
pub fn carry(from: &mut Lane, to: &mut Lane, bytes: &[u8]) {
    let mut sent = 0;
    let mut got = Vec::new();
    wait(|| {
        sent += write(from, &bytes[sent..]);
        got.extend(read(to));
        (got.len() == bytes.len()).then_some(())
    });
    assert!(got == bytes);
}

pub fn has(lane: &Lane, flags: u32) {
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
fn a_reset_behind_the_end_of_a_stream_is_told() {
    let (_served, _program, mut lane, stream) = pair();
    stream.shutdown(Shutdown::Write).unwrap();
    has(&lane, side_flags::FIN);
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
    has(&lane, side_flags::RESET);
    let (_, daemon) = lane.sides().unwrap();
    let broken = Errno::PIPE.raw_os_error().unsigned_abs();
    assert_eq!(daemon.error.load(Relaxed), broken);
    assert_eq!(read(&mut lane), b"");
}

#[test]
fn an_urgent_byte_goes_both_ways() {
    let (_served, _program, mut lane, mut stream) = pair();
    // From the network: it is in its place, and marked.
    stream.write_all(b"before").unwrap();
    let urgent = rustix::net::SendFlags::OOB;
    rustix::net::send(&stream, b"!", urgent).unwrap();
    stream.write_all(b"behind").unwrap();
    let mut got = Vec::new();
    wait(|| {
        got.extend(read(&mut lane));
        (got.len() == 13).then_some(())
    });
    assert_eq!(got, b"before!behind");
    assert_eq!(lane.urgent().end, 7);
    // To the network.
    let at = lane.published();
    assert_eq!(netchannel_service::played::place(&mut lane, at, b"ab!"), 3);
    let (own, _) = lane.sides().unwrap();
    own.row.store(2, Relaxed);
    own.urgent.store(3, Relaxed);
    let row = netchannel_service::urgent::Row::default();
    lane.publish_with_mark(at + 3, row).unwrap();
    let mut apart = [0; 4];
    wait(|| rustix::net::recv(&stream, &mut apart[..], rustix::net::RecvFlags::OOB).ok());
    assert_eq!(apart[0], b'!');
    let mut line = [0; 2];
    stream.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"ab");
}

#[test]
fn bytes_for_who_has_shut_both_directions_meet_a_reset() {
    let (_served, _program, lane, mut stream) = pair();
    lane.set_flags(side_flags::BOTH_SHUT);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    stream.write_all(b"too late").unwrap();
    has(&lane, side_flags::RESET);
    wait(|| stream.write_all(b"x").err());
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
    let served = served(tenant(None), false);
    let mut program = Program::new(&served);
    let lane = program.dial(at, class::Hints::default());
    has(&lane, side_flags::RESET);
    let (_, daemon) = lane.sides().unwrap();
    let refused = Errno::CONNREFUSED.raw_os_error().unsigned_abs();
    assert_eq!(daemon.error.load(Relaxed), refused);
}

/// The error with which a connect fails.
fn refusal(tenant: Tenant, to: Address) -> Errno {
    let served = served(tenant, false);
    let mut program = Program::new(&served);
    let lane = program.dial(to, class::Hints::default());
    has(&lane, side_flags::RESET);
    let (_, daemon) = lane.sides().unwrap();
    Errno::from_raw_os_error(daemon.error.load(Relaxed).cast_signed())
}

#[test]
fn nothing_is_reached_that_is_not_named() {
    let (server, at) = server();
    let mut elsewhere = tenant(None);
    elsewhere.reach = vec!["0.0.0.0/0".parse().unwrap(), "[::]/0".parse().unwrap()];
    let loopback = Address::v4([127, 0, 0, 1], at.port);
    let any = Address::v4([0; 4], at.port);
    for to in [loopback, any, loopback.mapped(), any.mapped()] {
        assert_eq!(refusal(elsewhere.clone(), to), Errno::ACCESS, "{to:?}");
    }
    let mut other_port = tenant(None);
    let port = if at.port == 1 { 2 } else { at.port - 1 };
    other_port.reach = vec![format!("127.0.0.1/32:{port}").parse().unwrap()];
    assert_eq!(refusal(other_port, loopback), Errno::ACCESS);
    // Its own address, and a family of which it has none.
    let own = Address::v4(OWN, at.port);
    assert_eq!(refusal(elsewhere.clone(), own), Errno::CONNREFUSED);
    let v6 = Address::v6(1_u128.to_be_bytes(), at.port, 0);
    assert_eq!(refusal(elsewhere.clone(), v6), Errno::NETUNREACH);
    elsewhere.connections = 0;
    elsewhere.reach = tenant(None).reach;
    assert_eq!(refusal(elsewhere, loopback), Errno::ADDRNOTAVAIL);
    server.set_nonblocking(true).unwrap();
    assert!(server.accept().is_err(), "a connection was made");
}

#[test]
fn the_operators_resolver_is_at_port_53_of_the_own_address() {
    const OWN_V6: u128 = 0xfd00_0088 << 96 | 2;
    let (server, at) = server();
    let mut resolved = tenant(None);
    resolved
        .addresses
        .push(std::net::Ipv6Addr::from(OWN_V6).into());
    resolved.reach = Vec::new();
    // Without one, nobody is there.
    let own = Address::v4(OWN, 53);
    assert_eq!(refusal(resolved.clone(), own), Errno::CONNREFUSED);
    resolved.resolver = Some(([127, 0, 0, 1], at.port).into());
    for to in [own, own.mapped(), Address::v6(OWN_V6.to_be_bytes(), 53, 0)] {
        let served = served(resolved.clone(), false);
        let mut program = Program::new(&served);
        let mut lane = program.connect(to);
        let (mut stream, _) = server.accept().unwrap();
        send(&mut lane, &mut stream, b"a question");
        receive_all(&mut lane, &mut stream, b"an answer");
    }
    // At another port there is nobody, and the resolver itself is reached by its own address only where `reach` names it.
    assert_eq!(
        refusal(resolved.clone(), Address::v4(OWN, 54)),
        Errno::CONNREFUSED
    );
    assert_eq!(refusal(resolved.clone(), at), Errno::ACCESS);
    resolved.connections = 0;
    assert_eq!(refusal(resolved, own), Errno::ADDRNOTAVAIL);
}

#[test]
fn caps_hold_both_ways() {
    const BYTES: usize = 1 << 20;
    let mut capped = tenant(None);
    let rate = Rate::new(4 << 20, 64 << 10);
    (capped.rate_in, capped.rate_out) = (Some(rate), Some(rate));
    let (server, at) = server();
    let served = served(capped, false);
    let mut program = Program::new(&served);
    let mut lane = program.connect(at);
    let (mut stream, _) = server.accept().unwrap();
    // What the burst does not hold takes a quarter of a second for each MiB.
    let least = Duration::from_millis(200);
    let start = Instant::now();
    send(&mut lane, &mut stream, &pattern(BYTES, 1));
    assert!(start.elapsed() > least, "{:?}", start.elapsed());
    let start = Instant::now();
    receive_all(&mut lane, &mut stream, &pattern(BYTES, 2));
    assert!(start.elapsed() > least, "{:?}", start.elapsed());
}

/// The type of service in the first packet of a connection, as the kernel has kept it for the server.
fn type_of_service(stream: &TcpStream) -> u8 {
    let mut packet = [0_u8; 256];
    let mut length = 256;
    // SAFETY: the buffer has the length that is told, and both live as long as the call.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_SAVED_SYN,
            packet.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert_eq!(got, 0);
    packet[1]
}

#[test]
fn a_class_of_service_goes_on_to_the_network() {
    let (server, at) = server();
    let keep = 1;
    // SAFETY: the option is an int, which lives as long as the call.
    let set = unsafe {
        libc::setsockopt(
            server.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_SAVE_SYN,
            (&raw const keep).cast(),
            4,
        )
    };
    assert_eq!(set, 0);
    let served = served(tenant(None), false);
    let mut program = Program::new(&served);
    let hints = class::Hints {
        dscp: 46,
        ..class::Hints::default()
    };
    let lane = program.dial(at, hints);
    has(&lane, side_flags::ESTABLISHED);
    let (stream, _) = server.accept().unwrap();
    assert_eq!(type_of_service(&stream), 46 << 2);
}

/// A program that listens, and what it was offered.
pub fn accept(accepts: &OwnedFd) -> Arc<LinkEnd> {
    let (offer, descriptors) = receive(accepts).unwrap();
    assert_eq!(offer.operation, Operation::Offer as u32);
    let [number, _, slots, arena, ..] = offer.words;
    link_end((number, slots, arena), Role::Server, descriptors)
}

/// A port of the host that is free now.
fn free_port() -> SocketAddr {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    port.local_addr().unwrap()
}

fn comes_in(relay_local: bool) {
    let listening = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listening.local_addr().unwrap().port();
    let at = free_port();
    let served = served(tenant(Some((at, port))), relay_local);
    let mut program = Program::new(&served);
    assert!(TcpStream::connect(at).is_err(), "nobody listens yet");
    let (_, accepts) = program.client.announce(&listening);
    let mut stream = wait(|| TcpStream::connect(at).ok());
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let here = Address::v4(OWN, port);
    poll(&mut [PollFd::new(&accepts, PollFlags::IN)], None).unwrap();
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
fn more_ports_are_published_than_a_message_has_descriptors() {
    let listening = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listening.local_addr().unwrap().port();
    // Held together, so that they differ.
    let taken: Vec<_> = (0..100).map(|_| support::listening()).collect();
    let hosts: Vec<_> = taken.iter().map(|one| one.local_addr().unwrap()).collect();
    drop(taken);
    let mut many = tenant(None);
    many.publish = hosts.iter().map(|&host| Publish { host, port }).collect();
    let served = served(many, false);
    let mut program = Program::new(&served);
    let (_, _accepts) = program.client.announce(&listening);
    for host in &hosts {
        wait(|| TcpStream::connect(host).ok());
    }
}

#[test]
fn a_port_is_shut_when_its_listener_is_gone() {
    let listening = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listening.local_addr().unwrap().port();
    let at = free_port();
    let served = served(tenant(Some((at, port))), false);
    for _ in 0..2 {
        let mut program = Program::new(&served);
        let (_, accepts) = program.client.announce(&listening);
        drop(wait(|| TcpStream::connect(at).ok()));
        drop((program, accepts));
        wait(|| TcpStream::connect(at).is_err().then_some(()));
    }
}
