//! What programs of one tenant can do to the host and to another tenant, whatever they send. The daemon serves two tenants; programs are
//! played over the attach protocol and the links that they get.

#[path = "../support/mod.rs"]
mod support;
mod trust;
#[path = "../support/user.rs"]
mod user;

use netchannel_abi::address::Address;
use netchannel_abi::directory;
use netchannel_abi::link::{Layout, Role, Slot, side_flags};
use netchannel_abi::message::Operation;
use netchannel_configuration::Configuration;
use netchannel_service::anchor::Count;
use netchannel_service::lane::Lane;
use netchannel_service::link::{LinkEnd, Parts};
use netchannel_shm::{Access, Region};
use rustix::io::Errno;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::{Client, Served, address, listening, packet_pair, small};
use user::{HONEST, HOSTILE, User, has_users};

const PATIENCE: Duration = Duration::from_secs(20);
/// Connections that the hostile tenant may have.
const MOST: usize = 20;

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

/// The daemon and all programs are one process here.
fn raise_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
}

/// A daemon with the tenants `hostile` and `honest`, each with more lines of its table.
fn served(hostile: &str, honest: &str) -> Served {
    let text = format!(
        "[host]\nname = \"host\"\n\
         [[tenants]]\nname = \"hostile\"\naddresses = [\"10.88.0.2\", \"fd00:88::2\"]\nconnections = {MOST}\n{hostile}\n\
         [[tenants]]\nname = \"honest\"\naddresses = [\"10.88.0.3\", \"fd00:88::3\"]\n{honest}\n"
    );
    raise_limit();
    let configuration = Configuration::parse(&text, Path::new("/nowhere/netchannel.toml"));
    Served::with(small(), None, Some(configuration.unwrap()))
}

/// A program that is attached, and the directory that it sees.
struct Program {
    client: Client,
    directory: Region,
}

impl Program {
    fn of(served: &Served, tenant: &str) -> Self {
        let socket = served.path().with_file_name("tenants").join(tenant);
        let mut client = Client::dial(&socket.join("nc.sock"));
        let (answer, mut descriptors) = client.attach();
        assert_eq!(answer.status, 0, "{tenant} attaches");
        let memory = descriptors.pop().unwrap();
        let directory = Region::map(memory.as_raw_fd(), directory::SIZE, Access::ReadOnly);
        Self {
            client,
            directory: directory.unwrap(),
        }
    }

    /// The listener that the directory names for all the world.
    fn gateway(&self) -> u32 {
        let header: &directory::Header = self.directory.at(0).unwrap();
        wait(|| Some(header.gateway.load(Relaxed)).filter(|gateway| *gateway != 0))
    }

    /// A link to a listener, and its memory.
    fn link(&mut self, listener: u32, to: Address) -> Result<(Arc<LinkEnd>, Region), u32> {
        let [a, b, c] = to.to_words();
        let words = [u64::from(listener), a, b, c];
        let (answer, descriptors) = self.client.ask(Operation::Connect, &words, &[]).unwrap();
        if answer.status != 0 {
            return Err(answer.status);
        }
        let [number, slots, arena, ..] = answer.words;
        let layout = Layout {
            slots: usize::try_from(slots).unwrap(),
            arena: usize::try_from(arena).unwrap(),
        };
        let mut descriptors = descriptors.into_iter();
        let memory = descriptors.next().unwrap();
        let region = Region::map(memory.as_raw_fd(), layout.size(), Access::ReadWrite);
        let parts = Parts {
            number,
            role: Role::Client,
            layout,
            memory,
            channel: descriptors.next().unwrap(),
            anchors: descriptors.collect(),
            user: None,
        };
        let end = LinkEnd::new(parts, &Arc::new(Count::new(1000))).unwrap();
        Ok((Arc::new(end), region.unwrap()))
    }

    /// Announces a listener. Returns its number and the accept channel.
    fn listen(&mut self, socket: &TcpListener) -> (u32, OwnedFd) {
        let mut words = support::listen_words(socket).to_vec();
        words.push(1);
        let asked = self
            .client
            .ask(Operation::Listen, &words, &[socket.as_fd()]);
        let (answer, mut descriptors) = asked.unwrap();
        assert_eq!(answer.status, 0);
        let listener = u32::try_from(answer.words[0]).unwrap();
        (listener, descriptors.pop().unwrap())
    }

    /// Connects over a link of its own, and does not wait.
    fn dial(&mut self, to: Address) -> Lane {
        let listener = self.gateway();
        let (link, _) = self.link(listener, to).unwrap();
        dial(&link, listener, to)
    }
}

/// Announces a connection over a link.
fn dial(link: &Arc<LinkEnd>, listener: u32, to: Address) -> Lane {
    let lane = Lane::lent(link, link.lend().unwrap()).unwrap();
    let from = Address::v4([10, 88, 0, 2], 40_000);
    assert!(link.announce(lane.handle(), listener, (&from, &to), false));
    lane
}

/// How a connect ends: with nothing, or an error.
fn outcome(lane: &Lane) -> Result<(), Errno> {
    let flags = wait(|| {
        let flags = lane.peer_flags() & (side_flags::RESET | side_flags::ESTABLISHED);
        Some(flags).filter(|flags| *flags != 0)
    });
    if flags & side_flags::ESTABLISHED != 0 {
        return Ok(());
    }
    let (_, daemon) = lane.sides().unwrap();
    Err(Errno::from_raw_os_error(
        daemon.error.load(Relaxed).cast_signed(),
    ))
}

fn expect_nobody(at: &TcpListener) {
    at.set_nonblocking(true).unwrap();
    assert!(at.accept().is_err(), "a connection was made");
}

fn socket_address(address: &str, port: u16, scope: u32) -> Address {
    match address.parse().unwrap() {
        IpAddr::V4(v4) => Address::v4(v4.octets(), port),
        IpAddr::V6(v6) => Address::v6(v6.octets(), port, scope),
    }
}

/// Whether another program of that tenant is still served.
fn expect_served(served: &Served, tenant: &str, at: &TcpListener) {
    let mut program = Program::of(served, tenant);
    let lane = program.dial(Address::v4([127, 0, 0, 1], support::port(at)));
    at.set_nonblocking(false).unwrap();
    assert_eq!(outcome(&lane), Ok(()));
    drop(at.accept().unwrap());
}

#[test]
fn no_form_of_an_address_leads_to_the_host_itself() {
    let served = served(
        "reach = [\"0.0.0.0/0\", \"[::]/0\"]",
        "reach = [\"127.0.0.0/8\"]",
    );
    let v4 = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = v4.local_addr().unwrap().port();
    let v6 = TcpListener::bind(("::", port)).ok();
    let mut program = Program::of(&served, "hostile");
    let forms = [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:0.0.0.0",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fe80::1",
    ];
    for form in forms {
        for scope in [0, 1, 2, u32::MAX] {
            let to = socket_address(form, port, scope);
            let lane = program.dial(to);
            assert_eq!(outcome(&lane), Err(Errno::ACCESS), "{form}%{scope}");
        }
    }
    // What the kernel's TCP knows no way to.
    for form in ["224.0.0.1", "255.255.255.255", "ff02::1"] {
        let lane = program.dial(socket_address(form, port, 1));
        assert!(outcome(&lane).is_err(), "{form}");
    }
    // Words that are no address.
    for family in [0, 1, 7, u16::MAX] {
        let mut to = socket_address("10.0.0.1", port, 0);
        to.family = family;
        assert!(outcome(&program.dial(to)).is_err(), "family {family}");
    }
    expect_nobody(&v4);
    v6.iter().for_each(expect_nobody);
    expect_served(&served, "honest", &v4);
}

#[test]
fn an_address_that_changes_meanwhile_leads_nowhere_else() {
    let (permitted, forbidden) = (listening(), listening());
    let reach = format!("reach = [\"127.0.0.1/32:{}\"]", support::port(&permitted));
    let served = served(&reach, "reach = [\"127.0.0.0/8\"]");
    let mut program = Program::of(&served, "hostile");
    let (good, bad) = (address(&permitted), address(&forbidden));
    let gateway = program.gateway();
    let (link, memory) = program.link(gateway, good).unwrap();
    let layout = link_layout(&served);
    let ends = Arc::new(AtomicBool::new(false));
    let flips = Arc::clone(&ends);
    let flipper = std::thread::spawn(move || {
        while !flips.load(Relaxed) {
            for slot in 0..layout.slots {
                let slot: &Slot = memory.at(layout.slot(slot)).unwrap();
                slot.meta.server.store(&bad);
                slot.meta.server.store(&good);
                slot.meta.listener.store(0, Relaxed);
                slot.meta.listener.store(gateway, Relaxed);
            }
        }
    });
    permitted.set_nonblocking(true).unwrap();
    let mut made = 0;
    for _ in 0..400 {
        let lane = dial(&link, gateway, good);
        if outcome(&lane).is_ok() {
            made += 1;
        }
        lane.close(true);
        while permitted.accept().is_ok() {}
    }
    ends.store(true, Relaxed);
    flipper.join().unwrap();
    assert!(made > 0, "the permitted one was reached");
    expect_nobody(&forbidden);
    expect_served(&served, "honest", &forbidden);
}

fn link_layout(_: &Served) -> Layout {
    small().layout()
}

#[test]
fn no_number_leads_to_another_tenants_listener() {
    let served = served("", "");
    let socket = listening();
    let mut honest = Program::of(&served, "honest");
    let (listener, accepts) = honest.listen(&socket);
    let mut hostile = Program::of(&served, "hostile");
    let gateway = hostile.gateway();
    let others = [listener, honest.gateway(), 0, 1, u32::MAX];
    let others = others.into_iter().filter(|number| *number != gateway);
    // Over a link of its own, to any number; and links to them.
    let (link, _) = hostile.link(gateway, address(&socket)).unwrap();
    for number in others {
        let lane = dial(&link, number, address(&socket));
        assert!(outcome(&lane).is_err(), "listener {number}");
        let linked = hostile.link(number, address(&socket));
        assert!(linked.is_err(), "a link to {number}");
        for operation in [Operation::Reoffer, Operation::Queue, Operation::Join] {
            let words = [u64::from(number), u64::from(number), 3];
            let answer = hostile.client.ask(operation, &words, &[]);
            assert!(answer.is_none_or(|(message, _)| message.status != 0));
            hostile = Program::of(&served, "hostile");
        }
        // Nor does a connection of a link of its own come to them.
        let (anchor, _other) = UnixStream::pair().unwrap();
        for own in [u64::from(number), link.number()] {
            let words = [u64::from(number), own, 3];
            let answer = hostile
                .client
                .ask(Operation::Enter, &words, &[anchor.as_fd()]);
            assert!(answer.is_some_and(|(message, _)| message.status != 0));
        }
    }
    rustix::io::ioctl_fionbio(&accepts, true).unwrap();
    let heard = rustix::io::read(&accepts, &mut [0_u8; 8]);
    assert_eq!(heard, Err(Errno::AGAIN), "something was offered");
    // What the hostile one sees is its own.
    let header: &directory::Header = hostile.directory.at(0).unwrap();
    let entries = 0..directory::ENTRIES;
    let entries = entries.filter_map(|index| {
        let at = directory::ENTRIES_OFFSET + index * size_of::<directory::Entry>();
        hostile.directory.at::<directory::Entry>(at)
    });
    let own = |entry: &directory::Entry| entry.listener.load(Relaxed) == listener;
    assert!(header.gateway.load(Relaxed) != 0);
    assert_eq!(entries.filter(|entry| own(entry)).count(), 0);
}

#[test]
fn what_one_tenant_deposits_another_does_not_find() {
    let served = served("", "");
    let (anchor, _other) = packet_pair();
    let cookie = rustix::net::sockopt::socket_cookie(&anchor).unwrap();
    let mut honest = Program::of(&served, "honest");
    let gateway = honest.gateway();
    let (link, _) = honest
        .link(gateway, Address::v4([10, 0, 0, 1], 80))
        .unwrap();
    let words = [cookie, link.number(), 1, 0, 1, 0, 0];
    // Whether the deposit is taken or not: nobody else learns anything by the cookie of an anchor that he was given.
    let _ = honest
        .client
        .ask(Operation::Deposit, &words, &[anchor.as_fd()]);
    for path in ["tenants/hostile/nc.sock", "d.sock"] {
        let mut other = Client::dial(&served.path().with_file_name(path));
        assert_eq!(other.attach().0.status, 0);
        let (answer, descriptors) = other.ask(Operation::Lookup, &[cookie], &[]).unwrap();
        assert_ne!(answer.status, 0);
        assert_eq!(descriptors.len(), 0);
    }
}

#[test]
fn a_flood_of_connects_harms_its_own_tenant_only() {
    let (deaf, at) = (listening(), listening());
    let reach = "reach = [\"127.0.0.0/8\"]";
    let served = served(reach, reach);
    let mut hostile = Program::of(&served, "hostile");
    let mut kept = Vec::new();
    let mut refused = 0;
    let gateway = hostile.gateway();
    for _ in 0..6 {
        let Ok((link, _)) = hostile.link(gateway, address(&deaf)) else {
            break;
        };
        for _ in 0..30 {
            let lane = dial(&link, gateway, address(&deaf));
            match outcome(&lane) {
                Ok(()) => kept.push(lane),
                Err(errno) => {
                    assert_eq!(errno, Errno::ADDRNOTAVAIL);
                    refused += 1;
                }
            }
        }
        expect_served(&served, "honest", &at);
    }
    assert_eq!(kept.len(), MOST);
    assert!(refused >= MOST);
    // Links, as many as it is given, and their memory.
    let links = (0..50).map_while(|_| hostile.link(gateway, address(&deaf)).ok());
    let links: Vec<_> = links.collect();
    // Programs, as many as it is given.
    let path = served.path().with_file_name("tenants/hostile/nc.sock");
    let mut programs = Vec::new();
    for _ in 0..50 {
        let mut one = Client::dial(&path);
        let words = [
            u64::from(netchannel_abi::VERSION),
            netchannel_abi::LAYOUT_HASH,
            1,
            0,
        ];
        match one.ask(Operation::Attach, &words, &[]) {
            Some((answer, _)) if answer.status == 0 => programs.push(one),
            _ => break,
        }
    }
    for _ in 0..3 {
        expect_served(&served, "honest", &at);
    }
    drop((programs, links, kept, hostile));
    // It has room again once it has let go.
    let mut again = Program::of(&served, "hostile");
    wait(|| outcome(&again.dial(address(&deaf))).ok());
}

#[test]
fn a_published_port_leads_to_its_own_tenant_only() {
    let free = || {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        port.local_addr().unwrap()
    };
    let listening = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listening.local_addr().unwrap().port();
    let (of_hostile, of_honest): (SocketAddr, SocketAddr) = (free(), free());
    let publish = |at| format!("publish = [\"{at}:{port}\"]");
    let served = served(&publish(of_hostile), &publish(of_honest));
    // The hostile one listens at the tenant's port of the honest one's publication.
    let mut hostile = Program::of(&served, "hostile");
    let (_, accepts) = hostile.listen(&listening);
    wait(|| TcpStream::connect(of_hostile).ok());
    assert!(
        TcpStream::connect(of_honest).is_err(),
        "nobody listens there"
    );
    let mut honest = Program::of(&served, "honest");
    drop((hostile, accepts));
    let (_, accepts) = honest.listen(&listening);
    let mut stream = wait(|| TcpStream::connect(of_honest).ok());
    stream.write_all(b"for the honest one").unwrap();
    rustix::io::ioctl_fionbio(&accepts, false).unwrap();
    assert!(support::receive(&accepts).is_some(), "it is offered");
    wait(|| TcpStream::connect(of_hostile).is_err().then_some(()));
}

#[test]
fn another_users_socket_is_not_opened() {
    if !has_users("sockets of tenants") {
        return;
    }
    let served = served(&format!("user = {HOSTILE}"), &format!("user = {HONEST}"));
    let folder = served.path();
    let folder = folder.parent().unwrap();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let place = |tenant| folder.join("tenants").join(tenant).join("nc.sock");
    for (tenant, user) in [("hostile", HOSTILE), ("honest", HONEST)] {
        let found = std::fs::metadata(place(tenant)).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (user, 0o600));
    }
    let hostile = User::new(HOSTILE);
    let (own, others) = (place("hostile"), place("honest"));
    let opened = hostile.run(move || {
        let open = |path| std::os::unix::net::UnixStream::connect(path).map(drop);
        // A socket of packets refuses a stream with another error than one that is not permitted.
        [own, others].map(|path| open(path).unwrap_err().kind())
    });
    assert_ne!(opened[0], std::io::ErrorKind::PermissionDenied);
    assert_eq!(opened[1], std::io::ErrorKind::PermissionDenied);
    // Nor is it taken away.
    let others = place("honest");
    let gone = hostile.run(move || std::fs::remove_file(others).is_ok());
    assert!(!gone);
    let _: OwnedFd = Program::of(&served, "honest").client.socket;
}
