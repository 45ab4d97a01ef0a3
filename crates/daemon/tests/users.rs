//! What one user can do to another over root's daemon: each is a finding of the list that the project keeps, by its number.
//!
//! Users are threads with credentials of their own. Findings 4, 6 and 9 are about commands and the library; their tests are there.

mod support;
#[path = "support/user.rs"]
mod user;

use netchannel_abi::address::Address;
use netchannel_abi::directory::{self, owner_word};
use netchannel_abi::message::{Message, Operation};
use netchannel_abi::program;
use netchannel_abi::{LAYOUT_HASH, VERSION};
use netchannel_control::types::{Request, Response};
use netchannel_daemon::Limits;
use netchannel_shm::{Access, Region};
use rustix::io::Errno;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::{
    Answer, Client, Served, inode, listening_at_own_port, packet_pair, receive, send, small,
};
use user::{HONEST, HOSTILE, THIRD, User, has_users, served_to_all};

/// A client and what it got when it attached.
struct Program {
    client: Client,
    region: OwnedFd,
    directory: OwnedFd,
    number: u64,
}

fn attached(path: &PathBuf) -> Program {
    let mut client = Client::dial(path);
    let (answer, mut descriptors) = client.attach();
    assert_eq!(answer.status, 0);
    let directory = descriptors.pop().unwrap();
    Program {
        client,
        region: descriptors.pop().unwrap(),
        directory,
        number: answer.words[3],
    }
}

fn program_of(user: &User, served: &Served) -> Program {
    let path = served.path();
    user.run(move || attached(&path))
}

/// A TCP listener of a user, at an address.
fn listener_of(user: &User, address: &'static str) -> TcpListener {
    user.run(move || TcpListener::bind(address).unwrap())
}

fn cookie(socket: &TcpListener) -> u64 {
    rustix::net::sockopt::socket_cookie(socket).unwrap()
}

fn port(socket: &TcpListener) -> u16 {
    socket.local_addr().unwrap().port()
}

/// Asks as a user, and gives the program back.
fn ask_as(
    user: &User,
    mut program: Program,
    operation: Operation,
    words: Vec<u64>,
    descriptors: Vec<OwnedFd>,
) -> (Program, Option<Answer>) {
    user.run(move || {
        let beside: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let answer = program.client.ask(operation, &words, &beside);
        (program, answer)
    })
}

/// The status of an answer; one that does not come is a refusal too.
fn status(answer: &Option<Answer>) -> u32 {
    answer
        .as_ref()
        .map_or(u32::MAX, |(message, _)| message.status)
}

fn announcement(address: Address, cookie: u64) -> Vec<u64> {
    let [a, b, c] = address.to_words();
    vec![a, b, c, cookie, 128, 0]
}

/// Announces a listener that is there. Returns its number and the accept channel.
fn announced(
    user: &User,
    program: Program,
    address: Address,
    socket: &TcpListener,
) -> (Program, u64, OwnedFd) {
    let words = announcement(address, cookie(socket));
    let (program, answer) = ask_as(user, program, Operation::Listen, words, Vec::new());
    let (message, mut descriptors) = answer.unwrap();
    assert_eq!(message.status, 0, "an honest listener is announced");
    (program, message.words[0], descriptors.pop().unwrap())
}

/// Whether something comes on a channel soon, and not its end.
fn is_offered(channel: &OwnedFd) -> bool {
    let mut looked = [rustix::event::PollFd::new(
        channel,
        rustix::event::PollFlags::IN,
    )];
    let soon = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    rustix::event::poll(&mut looked, Some(&soon)).unwrap() > 0 && receive(channel).is_some()
}

/// A memfd of a size that can not change.
fn sealed(size: usize) -> OwnedFd {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = memfd_create(c"test", flags).unwrap();
    ftruncate(&memory, size as u64).unwrap();
    fcntl_add_seals(
        &memory,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )
    .unwrap();
    memory
}

fn v4(port: u16) -> Address {
    Address::v4([127, 0, 0, 1], port)
}

#[test]
fn finding_01_memory_of_huge_pages_ends_nobody() {
    if !has_users("finding 1") {
        return;
    }
    let served = served_to_all(Limits::default());
    let hostile = User::new(HOSTILE);
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING | rustix::fs::MemfdFlags::HUGETLB;
    let Ok(memory) = rustix::fs::memfd_create(c"huge", flags) else {
        return println!("skipped: this kernel has no huge pages");
    };
    let entries = (1..65_536)
        .find(|entries| program::size(*entries).is_multiple_of(2 << 20))
        .unwrap();
    rustix::fs::ftruncate(&memory, program::size(entries) as u64).unwrap();
    let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW;
    rustix::fs::fcntl_add_seals(&memory, seals | rustix::fs::SealFlags::SEAL).unwrap();
    let path = served.path();
    let refused = hostile.run(move || {
        let words = [u64::from(VERSION), LAYOUT_HASH, 1, 0, 0, entries as u64];
        let answer = Client::dial(&path).ask(Operation::Attach, &words, &[memory.as_fd()]);
        answer.is_none_or(|(message, _)| message.status != 0)
    });
    assert!(refused);
    served.status();
}

#[test]
fn finding_02_only_holders_hand_connections_on() {
    if !has_users("finding 2") {
        return;
    }
    let served = served_to_all(small());
    let (honest, hostile, third) = (User::new(HONEST), User::new(HOSTILE), User::new(THIRD));
    let socket = listener_of(&honest, "127.0.0.1:0");
    let victim = program_of(&honest, &served);
    let (victim, listener, accepts) = announced(&honest, victim, v4(port(&socket)), &socket);
    let attacker = program_of(&hostile, &served);
    // Memory that the daemon never made, under a number that it never gave.
    let forged = || {
        let memory = sealed(small().layout().size());
        let (channel, _) = packet_pair();
        let kind = rustix::net::SocketType::STREAM;
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let unix = rustix::net::AddressFamily::UNIX;
        let (anchor, _) = rustix::net::socketpair(unix, kind, flags, None).unwrap();
        vec![memory, channel, anchor]
    };
    let words = vec![1 << 50, listener, 3];
    let (_, answer) = ask_as(&hostile, attacker, Operation::Reoffer, words, forged());
    assert_ne!(status(&answer), 0, "a link that nobody made");
    assert!(!is_offered(&accepts));
    // A link of its own, with the listener: but it does not hold the listener.
    let attacker = program_of(&hostile, &served);
    let (attacker, answer) = ask_as(
        &hostile,
        attacker,
        Operation::Connect,
        vec![listener],
        Vec::new(),
    );
    let (given, mut descriptors) = answer.unwrap();
    assert_eq!(given.status, 0);
    receive(&accepts).unwrap();
    descriptors.truncate(3);
    let words = vec![given.words[0], listener, 3];
    let (_, answer) = ask_as(&hostile, attacker, Operation::Reoffer, words, descriptors);
    assert_ne!(status(&answer), 0, "a listener that it does not hold");
    assert!(!is_offered(&accepts));
    // Not even who holds the listener hands on to another user what nobody made: it would map it.
    let shown = socket.as_fd().try_clone_to_owned().unwrap();
    let other = program_of(&third, &served);
    let mut words = announcement(v4(port(&socket)), cookie(&socket));
    words.push(1);
    let (_other, answer) = ask_as(&third, other, Operation::Listen, words, vec![shown]);
    assert_eq!(status(&answer), 0, "who has the socket may hold it");
    let words = vec![1 << 50, listener, 3];
    let (_, answer) = ask_as(&honest, victim, Operation::Reoffer, words, forged());
    assert_ne!(status(&answer), 0, "a link that nobody made");
    assert!(!is_offered(&accepts));
}

/// The hostile user closes its listener behind the daemon's back; an honest one then listens there.
fn takes_nobodys_clients(honest_at: &'static str) {
    let served = served_to_all(small());
    let (honest, hostile, third) = (User::new(HONEST), User::new(HOSTILE), User::new(THIRD));
    let former = hostile.run(listening_at_own_port);
    let port = port(&former);
    let attacker = program_of(&hostile, &served);
    let (_attacker, stale, catches) = announced(&hostile, attacker, v4(port), &former);
    drop(former);
    let place = honest_at.replace(":0", &format!(":{port}"));
    let socket = honest.run(move || TcpListener::bind(place).unwrap());
    let address = match socket.local_addr().unwrap() {
        std::net::SocketAddr::V4(address) => Address::v4(address.ip().octets(), port),
        std::net::SocketAddr::V6(address) => Address::v6(address.ip().octets(), port, 0),
    };
    let victim = program_of(&honest, &served);
    let (_victim, listener, accepts) = announced(&honest, victim, address, &socket);
    let client = program_of(&third, &served);
    let [a, b, c] = v4(port).to_words();
    let to = |listener| vec![listener, a, b, c];
    let (client, answer) = ask_as(&third, client, Operation::Connect, to(stale), Vec::new());
    assert_ne!(status(&answer), 0, "nobody listens there any more");
    assert!(!is_offered(&catches));
    let (_client, answer) = ask_as(&third, client, Operation::Connect, to(listener), Vec::new());
    assert_eq!(status(&answer), 0);
    assert!(is_offered(&accepts));
}

#[test]
fn finding_03_a_closed_listener_takes_nobodys_clients() {
    if has_users("finding 3") {
        takes_nobodys_clients("127.0.0.1:0");
    }
}

#[test]
fn finding_03_a_closed_listener_at_an_address_does_not_go_before_anothers_at_all() {
    if has_users("finding 3") {
        takes_nobodys_clients("0.0.0.0:0");
        takes_nobodys_clients("[::]:0");
    }
}

#[test]
fn finding_05_rights_go_with_the_user_who_had_them() {
    if !has_users("finding 5") {
        return;
    }
    let served = served_to_all(small());
    let (honest, worker) = (User::new(HONEST), User::root());
    let socket = listener_of(&honest, "127.0.0.1:0");
    let victim = program_of(&honest, &served);
    let (_victim, _, accepts) = announced(&honest, victim, v4(port(&socket)), &socket);
    let attached = program_of(&worker, &served);
    let also = program_of(&worker, &served);
    worker.become_user(HOSTILE);
    // A socket that is not there, at another's address; and the other's own.
    let made_up = announcement(v4(port(&socket)), 1 << 50);
    let (_, answer) = ask_as(&worker, attached, Operation::Listen, made_up, Vec::new());
    assert_ne!(status(&answer), 0, "no socket has this cookie");
    let anothers = announcement(v4(port(&socket)), cookie(&socket));
    let (_, answer) = ask_as(&worker, also, Operation::Listen, anothers, Vec::new());
    assert_ne!(status(&answer), 0, "another's listener");
    assert!(!is_offered(&accepts));
}

#[test]
fn finding_05_root_proves_its_listeners_too() {
    if !has_users("finding 5") {
        return;
    }
    let served = served_to_all(small());
    let root = User::root();
    let program = program_of(&root, &served);
    let made_up = announcement(v4(4100), 1 << 50);
    let (_, answer) = ask_as(&root, program, Operation::Listen, made_up, Vec::new());
    assert_ne!(status(&answer), 0, "no socket has this cookie");
}

#[test]
fn finding_05_a_deposit_of_a_former_self_is_not_given() {
    if !has_users("finding 5") {
        return;
    }
    let served = served_to_all(small());
    let (honest, worker) = (User::new(HONEST), User::root());
    let former = program_of(&worker, &served);
    worker.become_user(HOSTILE);
    let anchor = leave(&served, &honest).1;
    let (_, answer) = ask_as(&worker, former, Operation::Lookup, vec![anchor], Vec::new());
    assert_ne!(status(&answer), 0, "root's right to look at all");
}

#[test]
fn finding_07_no_program_makes_the_daemon_ask_itself() {
    if !has_users("finding 7") {
        return;
    }
    let served = served_to_all(small());
    let hostile = User::new(HOSTILE);
    // A socket that it brings is no child: the daemon makes the pair.
    let program = program_of(&hostile, &served);
    let (one, other) = packet_pair();
    let refused = Message::new(Operation::Attach, 1, [0; 14]);
    hostile.run({
        let one = one.try_clone().unwrap();
        move || send(&one, &refused.to_bytes(), &[])
    });
    let (_, answer) = ask_as(&hostile, program, Operation::Adopt, vec![0], vec![other]);
    assert_ne!(status(&answer), 0, "a socket of its own");
    // What is an answer is no request.
    let program = program_of(&hostile, &served);
    let mut answer = Message::new(Operation::Ports, 7, [1; 14]);
    answer.status = 22;
    let is_detached = hostile.run(move || {
        send(&program.client.socket, &answer.to_bytes(), &[]);
        program.client.is_detached()
    });
    assert!(is_detached, "an answer is taken for a request");
    drop(one);
    served.await_status(|status| status.programs.is_empty());
}

#[test]
fn finding_08_nobody_reads_holes() {
    if !has_users("finding 8") {
        return;
    }
    let served = served_to_all(Limits::default());
    let hostile = User::new(HOSTILE);
    let programs: Vec<Program> = (0..16).map(|_| program_of(&hostile, &served)).collect();
    let size = program::size(65_536);
    for one in &programs {
        let region = Region::map(one.region.as_raw_fd(), size, Access::ReadWrite).unwrap();
        let header: &program::Header = region.at(0).unwrap();
        header.high_water.store(65_536, Relaxed);
    }
    let blocks = |one: &Program| rustix::fs::fstat(&one.region).unwrap().st_blocks;
    let before: i64 = programs.iter().map(blocks).sum();
    let start = Instant::now();
    for request in [Request::Sockets, Request::Status] {
        let answer = netchannel_control::request(&served.path(), request, Duration::from_secs(60));
        assert!(matches!(
            answer.unwrap(),
            Response::Sockets(_) | Response::Status(_)
        ));
    }
    let after: i64 = programs.iter().map(blocks).sum();
    // In blocks of 512 bytes.
    assert!(after - before < 16 * 64, "{before} blocks became {after}");
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn finding_10_who_accepts_is_told_whose_the_client_is_and_its_ports() {
    if !has_users("finding 10") {
        return;
    }
    let served = served_to_all(small());
    let (honest, hostile) = (User::new(HONEST), User::new(HOSTILE));
    let socket = listener_of(&honest, "127.0.0.1:0");
    let victim = program_of(&honest, &served);
    let (_victim, listener, accepts) = announced(&honest, victim, v4(port(&socket)), &socket);
    let client = program_of(&hostile, &served);
    let words = vec![listener];
    let (client, answer) = ask_as(&hostile, client, Operation::Connect, words, Vec::new());
    assert_eq!(status(&answer), 0);
    let (offer, _) = receive(&accepts).unwrap();
    assert_eq!(offer.words[8], u64::from(HOSTILE));
    let (client, answer) = ask_as(&hostile, client, Operation::Ports, vec![16], Vec::new());
    let given = answer.unwrap().0;
    assert_eq!((given.status, given.words[1]), (0, 16));
    let raw = client.directory.as_raw_fd();
    let shown = Region::map(raw, directory::SIZE, Access::ReadOnly).unwrap();
    let owner = |port: u64| {
        let at = directory::PORTS_OFFSET + usize::try_from(port).unwrap() * size_of::<AtomicU64>();
        let word: &AtomicU64 = shown.at(at).unwrap();
        (word.load(Relaxed) & 0xffff_ffff) as u32
    };
    let first = given.words[0];
    assert!((first..first + 16).all(|port| owner(port) == owner_word(HOSTILE)));
    assert_eq!([owner(22), owner(443)], [0, 0]);
    drop(client.client);
    served.await_status(|status| status.programs.len() == 1);
    // What he connected to may still wait to be accepted, and is his.
    assert!((first..first + 16).all(|port| owner(port) == owner_word(HOSTILE)));
}

#[test]
fn finding_10_a_port_is_claimed_only_by_who_has_bound_it() {
    if !has_users("finding 10") {
        return;
    }
    let served = served_to_all(small());
    let (honest, hostile) = (User::new(HONEST), User::new(HOSTILE));
    let client = program_of(&hostile, &served);
    // What is no TCP socket shows no port.
    let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let (_, answer) = ask_as(&hostile, client, Operation::Ports, vec![0], vec![file]);
    assert_ne!(status(&answer), 0);
    let client = program_of(&honest, &served);
    let bound = OwnedFd::from(listener_of(&honest, "127.0.0.1:0"));
    let number = rustix::net::getsockname(&bound).unwrap();
    let number = std::net::SocketAddr::try_from(number).unwrap().port();
    let (client, answer) = ask_as(&honest, client, Operation::Ports, vec![0], vec![bound]);
    assert_eq!(status(&answer), 0);
    let raw = client.directory.as_raw_fd();
    let shown = Region::map(raw, directory::SIZE, Access::ReadOnly).unwrap();
    let at = directory::PORTS_OFFSET + usize::from(number) * size_of::<AtomicU64>();
    let word: &AtomicU64 = shown.at(at).unwrap();
    assert_eq!(
        word.load(Relaxed) & 0xffff_ffff,
        u64::from(owner_word(HONEST))
    );
    let here = Address::v4([127, 0, 0, 1], number);
    let there = Address::v4([127, 0, 0, 2], number);
    let owned = |from| directory::is_owned(word.load(Relaxed), owner_word(HONEST), &from);
    assert!(owned(here) && !owned(there));
}

/// A link with a listener of its own, and a connection of it left for another process. Returns the program and the cookie.
fn leave(served: &Served, user: &User) -> (Program, u64) {
    let socket = listener_of(user, "127.0.0.1:0");
    let server = program_of(user, served);
    let (_server, listener, _accepts) = announced(user, server, v4(port(&socket)), &socket);
    let client = program_of(user, served);
    let words = vec![listener];
    let (client, answer) = ask_as(user, client, Operation::Connect, words, Vec::new());
    let (given, mut descriptors) = answer.unwrap();
    assert_eq!(given.status, 0);
    let memory = descriptors.swap_remove(0);
    let words = vec![41, given.words[0], 2, 0, 1, client.number, 3];
    let (client, answer) = ask_as(user, client, Operation::Deposit, words, vec![memory]);
    assert_eq!(status(&answer), 0, "a deposit of one's own connection");
    (client, 41)
}

#[test]
fn finding_11_whoever_leaves_much_throws_out_his_own() {
    if !has_users("finding 11") {
        return;
    }
    let served = served_to_all(Limits::default());
    let (honest, hostile) = (User::new(HONEST), User::new(HOSTILE));
    let (victim, anchor) = leave(&served, &honest);
    let socket = listener_of(&hostile, "127.0.0.1:0");
    let server = program_of(&hostile, &served);
    let (_server, listener, _accepts) = announced(&hostile, server, v4(port(&socket)), &socket);
    let mut greedy = program_of(&hostile, &served);
    let _greedy = hostile.run(move || {
        let (given, descriptors) = greedy
            .client
            .ask(Operation::Connect, &[listener], &[])
            .unwrap();
        assert_eq!(given.status, 0);
        for cookie in 0..17_000 {
            let words = [1000 + cookie, given.words[0], 2, 0, 1, greedy.number, 3];
            let memory = [descriptors[0].as_fd()];
            if greedy
                .client
                .ask(Operation::Deposit, &words, &memory)
                .is_none()
            {
                break;
            }
        }
        greedy
    });
    let (_, answer) = ask_as(&honest, victim, Operation::Lookup, vec![anchor], Vec::new());
    assert_eq!(status(&answer), 0, "what was left is still there");
}

#[test]
fn finding_11_one_user_does_not_get_all_ports() {
    if !has_users("finding 11") {
        return;
    }
    let served = served_to_all(small());
    let (honest, hostile) = (User::new(HONEST), User::new(HOSTILE));
    let mut held = Vec::new();
    for _ in 0..6 {
        let mut greedy = program_of(&hostile, &served);
        held.push(hostile.run(move || {
            for count in [16_384, 4096, 256, 16, 1] {
                while greedy.client.status_of(Operation::Ports, &[count]) == 0 {}
            }
            greedy
        }));
    }
    let one = program_of(&honest, &served);
    let (_one, answer) = ask_as(&honest, one, Operation::Ports, vec![256], Vec::new());
    let given = answer.unwrap().0;
    assert_eq!((given.status, given.words[1]), (0, 256));
}

#[test]
fn finding_14_who_never_attaches_makes_room_for_others() {
    if !has_users("finding 14") {
        return;
    }
    let served = served_to_all(small());
    let (honest, hostile) = (User::new(HONEST), User::new(HOSTILE));
    let path = served.path();
    let (waiting, path) = honest.run(move || (Client::dial(&path), path));
    let (_half_open, path) = hostile.run(move || {
        let many: Vec<Client> = (0..400).map(|_| Client::dial(&path)).collect();
        (many, path)
    });
    // It was there before, and says something only now.
    let answer = honest.run(move || {
        let mut waiting = waiting;
        let words = [u64::from(VERSION), LAYOUT_HASH, 1];
        waiting
            .ask(Operation::Attach, &words, &[])
            .map(|(message, _)| message.status)
    });
    assert_eq!(answer, Some(0), "an honest program was thrown out");
    honest.run(move || drop(attached(&path)));
}

#[test]
fn finding_14_a_program_beyond_the_bound_is_told_so() {
    if !has_users("finding 14") {
        return;
    }
    let limits = Limits {
        programs_per_user: 2,
        ..small()
    };
    let served = served_to_all(limits);
    let (honest, hostile) = (User::new(HONEST), User::new(HOSTILE));
    let _two = [program_of(&hostile, &served), program_of(&hostile, &served)];
    let path = served.path();
    let answer = hostile.run(move || {
        let words = [u64::from(VERSION), LAYOUT_HASH, 1];
        let answer = Client::dial(&path).ask(Operation::Attach, &words, &[]);
        answer.map(|(message, _)| message.status)
    });
    let full = Errno::NOBUFS.raw_os_error().unsigned_abs();
    assert_eq!(answer, Some(full));
    let one = program_of(&honest, &served);
    assert_ne!(inode(&one.region), 0);
}

/// Asks for links and reads no answer.
fn ask_without_reading(program: &mut Program, listener: u64, most: u32) {
    for sequence in 0..most {
        let mut words = [0; 14];
        words[0] = listener;
        let message = Message::new(Operation::Connect, 1000 + sequence, words);
        send(&program.client.socket, &message.to_bytes(), &[]);
    }
}

#[test]
fn who_does_not_read_his_answers_uses_up_nobodys_descriptors_in_flight() {
    if !has_users("descriptors in flight") {
        return;
    }
    let limits = Limits {
        in_flight_per_user: 100,
        ..Limits::default()
    };
    let served = served_to_all(limits);
    let (honest, hostile) = (User::new(HONEST), User::new(HOSTILE));
    let socket = listener_of(&hostile, "127.0.0.1:0");
    let server = program_of(&hostile, &served);
    let (_server, listener, accepts) = announced(&hostile, server, v4(port(&socket)), &socket);
    let greedy = program_of(&hostile, &served);
    let greedy = hostile.run(move || {
        let mut greedy = greedy;
        ask_without_reading(&mut greedy, listener, 20);
        greedy
    });
    let shown = served.await_status(|status| {
        let user = |one: &&netchannel_control::types::User| one.user == HOSTILE;
        status
            .users
            .iter()
            .find(user)
            .is_some_and(|one| one.links.used >= 1)
    });
    let in_flight = |status: &netchannel_control::types::Status, user: u32| {
        let one = status.users.iter().find(|one| one.user == user);
        one.map_or((0, 0), |one| (one.in_flight.used, one.in_flight.bound))
    };
    let (used, bound) = in_flight(&shown, HOSTILE);
    assert!((18..=100).contains(&used) && bound == 100, "{used}/{bound}");
    // A second program of his has no more: what counts is the user.
    let (_victim, anchor) = leave(&served, &honest);
    let victim = program_of(&honest, &served);
    let (_victim, answer) = ask_as(&honest, victim, Operation::Lookup, vec![anchor], Vec::new());
    assert_eq!(status(&answer), 0, "another user is answered");
    let path = served.path();
    let refused = hostile.run(move || {
        let words = [u64::from(VERSION), LAYOUT_HASH, 1];
        let answer = Client::dial(&path).ask(Operation::Attach, &words, &[]);
        answer.map(|(message, _)| message.status)
    });
    let full = Errno::NOBUFS.raw_os_error().unsigned_abs();
    assert_eq!(refused, Some(full), "his next program");
    // Whoever reads what he was sent is served again.
    while is_offered(&accepts) {}
    let answers = hostile.run(move || {
        let statuses: Vec<u32> = (0..20)
            .map(|_| receive(&greedy.client.socket).unwrap().0.status)
            .collect();
        (greedy, statuses)
    });
    let (greedy, statuses) = answers;
    assert_eq!(statuses[0], 0);
    assert!(statuses.contains(&full), "{statuses:?}");
    let (_greedy, answer) = ask_as(
        &hostile,
        greedy,
        Operation::Connect,
        vec![listener],
        Vec::new(),
    );
    assert_eq!(answer.unwrap().0.status, 0, "he has read all");
}

#[test]
fn what_can_not_be_sent_now_is_looked_up_again() {
    if !has_users("descriptors in flight") {
        return;
    }
    let limits = Limits {
        in_flight_per_user: 60,
        ..Limits::default()
    };
    let served = served_to_all(limits);
    let user = User::new(HONEST);
    let (victim, anchor) = leave(&served, &user);
    let socket = listener_of(&user, "127.0.0.1:0");
    let server = program_of(&user, &served);
    let (_server, listener, accepts) = announced(&user, server, v4(port(&socket)), &socket);
    let greedy = program_of(&user, &served);
    let greedy = user.run(move || {
        let mut greedy = greedy;
        ask_without_reading(&mut greedy, listener, 20);
        greedy
    });
    let full = Errno::NOBUFS.raw_os_error().unsigned_abs();
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut victim = victim;
    loop {
        let (back, answer) = ask_as(
            &user,
            victim,
            Operation::Lookup,
            vec![anchor, 1],
            Vec::new(),
        );
        victim = back;
        if status(&answer) == full {
            break;
        }
        assert!(Instant::now() < deadline, "the bound is never met");
    }
    let (victim, answer) = ask_as(
        &user,
        victim,
        Operation::Lookup,
        vec![anchor + 1],
        Vec::new(),
    );
    let none = Errno::NOENT.raw_os_error().unsigned_abs();
    assert_eq!(status(&answer), none, "who finds nothing is told so");
    drop(greedy);
    while is_offered(&accepts) {}
    let (_victim, answer) = ask_as(&user, victim, Operation::Lookup, vec![anchor], Vec::new());
    assert_eq!(status(&answer), 0, "it is still there");
}
