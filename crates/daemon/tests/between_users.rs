//! Several users of one daemon: nobody gets what is another's. Each user is a thread that has become him, so this needs root.

mod support;

use netchannel_abi::directory::{self, ENTRIES, ENTRIES_OFFSET, PORTS_OFFSET, owner_word};
use netchannel_abi::link::QueueIndices;
use netchannel_abi::message::Operation;
use netchannel_abi::{LAYOUT_HASH, VERSION, program};
use netchannel_daemon::Limits;
use netchannel_ring::departure;
use netchannel_shm::{Access, Region};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::{
    Client, Served, listen_words, listening, listening_at_own_port, packet_pair, port, receive,
    small,
};

const A: u32 = 61001;
const B: u32 = 61002;
const C: u32 = 61003;

fn raw(errno: Errno) -> u32 {
    errno.raw_os_error().unsigned_abs()
}

/// Runs as another user: to the kernel a thread has a user of its own.
fn as_user<R: Send>(user: u32, work: impl FnOnce() -> R + Send) -> R {
    let become_him = move || {
        // SAFETY: plain system call, which changes this thread alone.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
        assert_eq!(changed, 0);
        work()
    };
    std::thread::scope(|scope| scope.spawn(become_him).join().unwrap())
}

/// A daemon that all users reach; `None` where this is not root.
fn served(limits: Limits) -> Option<Served> {
    if !rustix::process::geteuid().is_root() {
        println!("left out: this is not root");
        return None;
    }
    let served = Served::new(limits, None);
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    open(served.path().parent().unwrap(), 0o755);
    open(&served.path(), 0o666);
    Some(served)
}

/// A program of a user, and the directory as it sees it.
fn program_of(user: u32, served: &Served) -> (Client, OwnedFd) {
    as_user(user, || {
        let mut client = Client::connect(served);
        let (answer, mut given) = client.attach();
        assert_eq!((answer.status, answer.words[2]), (0, u64::from(user)));
        (client, given.remove(1))
    })
}

fn status_as(user: u32, client: &mut Client, operation: Operation, words: &[u64]) -> u32 {
    as_user(user, || client.status_of(operation, words))
}

/// Numbers of the listeners in the directory.
fn listed(directory: &OwnedFd) -> Vec<u64> {
    let region = Region::map(directory.as_raw_fd(), directory::SIZE, Access::ReadOnly).unwrap();
    let entries: &[directory::Entry] = region.slice(ENTRIES_OFFSET, ENTRIES).unwrap();
    let numbers = entries.iter().map(|entry| entry.listener.load(Relaxed));
    let taken = numbers.filter(|number| *number != 0 && *number != directory::LEFT);
    taken.map(u64::from).collect()
}

fn owner_of(directory: &OwnedFd, port: u64) -> u32 {
    let region = Region::map(directory.as_raw_fd(), directory::SIZE, Access::ReadOnly).unwrap();
    let words: &[AtomicU64] = region.slice(PORTS_OFFSET, directory::PORTS).unwrap();
    (words[usize::try_from(port).unwrap()].load(Relaxed) & 0xffff_ffff) as u32
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_a_user_was_given_is_not_used_by_who_it_becomes() {
    let Some(served) = served(small()) else {
        return;
    };
    let (mut program, directory) = program_of(0, &served);
    let (listener, _accepts) = program.listen();
    assert_eq!(program.status_of(Operation::Ports, &[16]), 0);
    let refused = raw(Errno::PERM);
    assert_eq!(status_as(A, &mut program, Operation::Ports, &[1]), refused);
    let unlisten = [listener];
    assert_eq!(
        status_as(A, &mut program, Operation::Unlisten, &unlisten),
        refused
    );
    assert_eq!(listed(&directory), [listener]);
    assert_eq!(program.status_of(Operation::Ports, &[1]), 0, "still root's");
    // Attach begins anew, with nothing of what was root's.
    let (answer, given) = as_user(A, || program.attach());
    assert_eq!((answer.status, answer.words[2]), (0, u64::from(A)));
    assert_eq!(given.len(), 2, "a region of his own");
    assert!(listed(&directory).is_empty());
    assert_eq!(
        program.status_of(Operation::Ports, &[1]),
        refused,
        "his now"
    );
    assert_eq!(status_as(A, &mut program, Operation::Ports, &[1]), 0);
    let users = served.status().users;
    let having = users.iter().filter(|one| one.ports.used > 0);
    let ports: Vec<_> = having.map(|one| (one.user, one.ports.used)).collect();
    assert_eq!(ports, [(A, 1)]);
}

#[test]
fn a_child_that_has_changed_its_user_has_nothing_of_its_parents() {
    let Some(served) = served(small()) else {
        return;
    };
    let (mut parent, directory) = program_of(0, &served);
    let (listener, _accepts) = parent.listen();
    let (_, mut given) = parent.ask(Operation::Adopt, &[1, listener], &[]).unwrap();
    let mut child = Client::over(given.remove(0));
    let refused = raw(Errno::PERM);
    assert_eq!(
        status_as(A, &mut child, Operation::Unlisten, &[listener]),
        refused
    );
    assert_eq!(as_user(A, || child.attach()).0.words[2], u64::from(A));
    // Its parent's socket is its proof, which it has inherited.
    let mut words = listen_words(&parent.listening[0]).to_vec();
    assert_eq!(status_as(A, &mut child, Operation::Listen, &words), refused);
    words.push(1);
    let socket = &parent.listening[0];
    let shown = as_user(A, || {
        child.ask(Operation::Listen, &words, &[socket.as_fd()])
    });
    let (answer, _channel) = shown.unwrap();
    assert_eq!((answer.status, answer.words[0]), (0, listener));
    drop(parent.socket);
    served.await_status(|status| status.programs.len() == 1);
    assert_eq!(listed(&directory), [listener]);
}

#[test]
fn a_listener_is_proved_by_everybody() {
    let Some(served) = served(small()) else {
        return;
    };
    let (mut root, _) = program_of(0, &served);
    let (mut other, _) = program_of(B, &served);
    let socket = listening();
    let refused = raw(Errno::PERM);
    let mut guessed = listen_words(&socket);
    guessed[3] += 1;
    assert_eq!(root.status_of(Operation::Listen, &guessed), refused);
    // Somebody else's: it exists, and is not his to announce.
    let words = listen_words(&socket);
    assert_eq!(status_as(B, &mut other, Operation::Listen, &words), refused);
    assert_eq!(root.status_of(Operation::Listen, &words), 0);
    assert_eq!(status_as(B, &mut other, Operation::Listen, &words), refused);
    // Another socket, or one that does not listen there, proves nothing.
    let mut shown = words.to_vec();
    shown.push(1);
    let wrong = listening();
    let answer = as_user(B, || other.ask(Operation::Listen, &shown, &[wrong.as_fd()]));
    assert_eq!(answer.unwrap().0.status, refused);
    let theirs = as_user(B, listening);
    assert_eq!(
        root.status_of(Operation::Listen, &listen_words(&theirs)),
        refused
    );
}

#[test]
fn who_has_stopped_to_listen_is_not_in_the_way_of_who_does() {
    let Some(served) = served(small()) else {
        return;
    };
    let (mut thief, directory) = program_of(B, &served);
    let (mut client, _) = program_of(C, &served);
    let socket = as_user(B, listening_at_own_port);
    let at = socket.local_addr().unwrap();
    let (first, _accepts) = as_user(B, || thief.announce(&socket));
    let refused = raw(Errno::CONNREFUSED);
    drop(socket);
    // A client of another user asks for a link.
    assert_eq!(
        status_as(C, &mut client, Operation::Connect, &[first]),
        refused
    );
    assert!(listed(&directory).is_empty());

    // Somebody announces his own, at any address of the port.
    let bound = || TcpListener::bind(at).unwrap();
    let socket = as_user(B, bound);
    let (second, _channel) = as_user(B, || thief.announce(&socket));
    assert_eq!(listed(&directory), [second]);
    drop(socket);
    let (mut owner, _) = program_of(A, &served);
    let anywhere = (std::net::Ipv4Addr::UNSPECIFIED, at.port());
    let own = as_user(A, || TcpListener::bind(anywhere).unwrap());
    let (third, _offers) = as_user(A, || owner.announce(&own));
    assert_eq!(listed(&directory), [third]);
}

#[test]
fn a_listener_with_links_from_others_is_watched() {
    let Some(served) = served(small()) else {
        return;
    };
    let (mut server, directory) = program_of(B, &served);
    let (mut client, _) = program_of(C, &served);
    let socket = as_user(B, listening);
    let (listener, accepts) = as_user(B, || server.announce(&socket));
    assert_eq!(
        status_as(C, &mut client, Operation::Connect, &[listener]),
        0
    );
    let (offer, _taken) = receive(&accepts).unwrap();
    assert_eq!(offer.words[8], u64::from(C));
    std::thread::sleep(Duration::from_millis(1300));
    assert_eq!(listed(&directory), [listener], "it listens");
    drop(socket);
    eventually("it is dropped", || listed(&directory).is_empty());
    served.await_status(|status| status.links == 0);
}

#[test]
fn only_holders_pass_on_and_only_what_came_to_them() {
    let Some(served) = served(small()) else {
        return;
    };
    let (mut server, _) = program_of(A, &served);
    let (mut client, _) = program_of(C, &served);
    let (mut thief, _) = program_of(B, &served);
    let socket = as_user(A, listening);
    let (listener, accepts) = as_user(A, || server.announce(&socket));
    let (link, given) = as_user(C, || client.ask(Operation::Connect, &[listener], &[])).unwrap();
    let (_, taken) = receive(&accepts).unwrap();
    let own = as_user(B, listening);
    let (theirs, _channel) = as_user(B, || thief.announce(&own));
    let (channel, anchor) = (packet_pair(), pair(SocketType::STREAM));
    // He is no holder; to his own listener he passes neither what he does not know nor what came to another's.
    let status = |user, who: &mut Client, words: [u64; 4], memory: &OwnedFd| {
        let three = [memory.as_fd(), channel.0.as_fd(), anchor.0.as_fd()];
        let answer = as_user(user, || who.ask(Operation::Reoffer, &words, &three));
        answer.unwrap().0.status
    };
    let link = link.words[0];
    let refused = raw(Errno::PERM);
    let memory = &given[0];
    assert_eq!(
        status(B, &mut thief, [link, listener, 1, 1], memory),
        raw(Errno::NOENT)
    );
    assert_eq!(status(B, &mut thief, [link, theirs, 1, 1], memory), refused);
    // Among one's own programs an unknown one goes on.
    assert_eq!(status(B, &mut thief, [5, theirs, 1, 1], memory), 0);
    // With a holder of another user it does not.
    let mut words = listen_words(&own).to_vec();
    words.push(1);
    let shown = as_user(A, || server.ask(Operation::Listen, &words, &[own.as_fd()]));
    assert_eq!(shown.unwrap().0.status, 0);
    assert_eq!(status(B, &mut thief, [5, theirs, 1, 0], memory), refused);
    // Other memory under the number of a link that is known.
    let (_, others) = as_user(C, || client.ask(Operation::Connect, &[listener], &[])).unwrap();
    assert_eq!(
        status(A, &mut server, [link, listener, 1, 1], &others[0]),
        refused
    );
    assert_eq!(status(A, &mut server, [link, listener, 1, 1], &taken[0]), 0);
    // A socket that listens is no connection.
    let door = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let three = [taken[0].as_fd(), door.as_fd(), anchor.0.as_fd()];
    let words = [link, listener, 1, 1];
    assert!(as_user(A, || server.ask(Operation::Reoffer, &words, &three)).is_none());
}

#[test]
fn what_came_over_a_link_goes_on_however_many_were_made_since() {
    let Some(served) = served(small()) else {
        return;
    };
    let (mut server, _) = program_of(A, &served);
    let (mut other, _) = program_of(B, &served);
    let (mut client, _) = program_of(C, &served);
    let socket = as_user(A, listening);
    let (listener, accepts) = as_user(A, || server.announce(&socket));
    let mut words = listen_words(&socket).to_vec();
    words.push(1);
    let shown = as_user(B, || {
        other.ask(Operation::Listen, &words, &[socket.as_fd()])
    });
    assert_eq!(shown.unwrap().0.status, 0);
    let (channel, anchor) = (packet_pair(), pair(SocketType::STREAM));
    let mut links = Vec::new();
    for _ in 0..24 {
        let made = as_user(C, || client.ask(Operation::Connect, &[listener], &[])).unwrap();
        assert_eq!(made.0.status, 0);
        links.push((made.0.words[0], receive(&accepts).unwrap().1));
    }
    let mut passed = |(link, taken): &(u64, Vec<OwnedFd>)| {
        let three = [taken[0].as_fd(), channel.0.as_fd(), anchor.0.as_fd()];
        let words = [*link, listener, 1, 0];
        let answer = as_user(A, || server.ask(Operation::Reoffer, &words, &three));
        let status = answer.unwrap().0.status;
        if status == 0 {
            receive(&accepts);
        }
        status
    };
    // None of its clients has a socket that names it yet.
    assert_eq!(passed(&links[0]), 0);
    assert_eq!(passed(&links[23]), 0);
    // Those whose servers have left are of no use to anybody.
    for (_, taken) in &links[..20] {
        let layout = small().layout();
        let memory = Region::map(taken[0].as_raw_fd(), layout.size(), Access::ReadWrite).unwrap();
        let indices: &QueueIndices = memory.at(layout.job_queue()).unwrap();
        indices.departure.store(departure::LEFT, Relaxed);
    }
    for _ in 0..8 {
        let made = as_user(C, || client.ask(Operation::Connect, &[listener], &[])).unwrap();
        assert_eq!(made.0.status, 0);
        receive(&accepts);
    }
    assert_eq!(passed(&links[0]), raw(Errno::PERM));
    assert_eq!(passed(&links[20]), 0);
}

fn pair(kind: SocketType) -> (OwnedFd, OwnedFd) {
    use rustix::net::{SocketFlags, socketpair};
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
}

#[test]
fn nobody_brings_a_region_that_is_anothers() {
    let Some(served) = served(small()) else {
        return;
    };
    let region_of = |user| {
        as_user(user, || {
            let mut client = Client::connect(&served);
            let mut given = client.attach().1;
            (client, given.remove(0))
        })
    };
    let (_one, region) = region_of(A);
    let refused = raw(Errno::PERM);
    let bring = |user, region: &OwnedFd, entries: u64| {
        as_user(user, || {
            let words = [u64::from(VERSION), LAYOUT_HASH, 1, 0, 0, entries];
            let mut client = Client::connect(&served);
            let answer = client.ask(Operation::Attach, &words, &[region.as_fd()]);
            answer.map(|(answer, _)| answer.status)
        })
    };
    assert_eq!(bring(B, &region, 64), Some(refused));
    assert_eq!(bring(0, &region, 64), Some(refused), "not even root");
    assert_eq!(bring(A, &region, 64), Some(0));
    // Of the right size, but made by another user, or without a header.
    let size = program::size(64);
    let theirs = as_user(B, || {
        let (raw, _mapped) = Region::create(c"test", size).unwrap();
        // SAFETY: just made, and nobody else's.
        unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(raw) }
    });
    assert_eq!(bring(A, &theirs, 64), Some(refused));
    assert_eq!(bring(B, &theirs, 64), None);
}

#[test]
fn root_does_not_take_what_another_left() {
    let Some(served) = served(small()) else {
        return;
    };
    let (mut root, _) = program_of(0, &served);
    let (answer, mut client) = as_user(A, || {
        let mut client = Client::connect(&served);
        (client.attach().0, client)
    });
    let (listener, _accepts) = root.listen();
    let (_, given) = as_user(A, || client.ask(Operation::Connect, &[listener], &[])).unwrap();
    let words = [4711, 1, 1, 0, 0, answer.words[3], 3];
    let left = as_user(A, || {
        client.ask(Operation::Deposit, &words, &[given[0].as_fd()])
    });
    assert_eq!(left.unwrap().0.status, 0);
    let none = raw(Errno::NOENT);
    assert_eq!(root.status_of(Operation::Lookup, &[4711, 1]), none);
    assert_eq!(status_as(A, &mut client, Operation::Lookup, &[4711]), 0);
}

#[test]
fn who_has_too_much_is_told_and_others_notice_nothing() {
    let limits = Limits {
        programs_per_user: 3,
        ports_per_user: 300,
        half_open_per_user: 4,
        ..small()
    };
    let Some(served) = served(limits) else { return };
    let mut held: Vec<_> = (0..3).map(|_| program_of(B, &served)).collect();
    let full = raw(Errno::NOBUFS);
    let mut more = as_user(B, || Client::connect(&served));
    // It is answered, and may try again.
    assert_eq!(as_user(B, || more.attach()).0.status, full);
    let (mut honest, _) = program_of(A, &served);
    let adopted = status_as(B, &mut held[0].0, Operation::Adopt, &[0]);
    assert_eq!(adopted, full);
    let mut taken = 0;
    let refused = loop {
        let words = [300];
        let (answer, _) = as_user(B, || held[0].0.ask(Operation::Ports, &words, &[])).unwrap();
        if answer.status != 0 {
            break answer.status;
        }
        taken += answer.words[1];
    };
    assert_eq!((taken, refused), (300, full));
    assert_eq!(status_as(A, &mut honest, Operation::Ports, &[300]), 0);
    // Half-open connections push out one's own alone.
    let waits = as_user(A, || Client::connect(&served));
    let idle: Vec<Client> = as_user(B, || (0..20).map(|_| Client::connect(&served)).collect());
    assert!(idle[0].is_detached() && more.is_detached());
    let mut waits = waits;
    assert_eq!(as_user(A, || waits.attach()).0.status, 0);
    let users = served.status().users;
    let greedy = users.iter().find(|one| one.user == B).unwrap();
    assert_eq!((greedy.programs.used, greedy.programs.bound), (3, 3));
    assert_eq!((greedy.ports.used, greedy.ports.bound), (300, 300));
    assert_eq!(greedy.half_open.used, 4);
    assert!(greedy.memory.used > 0 && greedy.memory.bound > greedy.memory.used);
    drop((held, idle, more));
    served.await_status(|status| status.users.iter().all(|one| one.user != B));
}

#[test]
fn the_directory_says_whose_a_port_is() {
    let Some(served) = served(small()) else {
        return;
    };
    let (mut one, directory) = program_of(A, &served);
    let (mut other, _) = program_of(B, &served);
    let (block, _) = as_user(A, || one.ask(Operation::Ports, &[16], &[])).unwrap();
    let first = block.words[0];
    for (port, wanted) in [
        (first, owner_word(A)),
        (first + 15, owner_word(A)),
        (first + 16, 0),
    ] {
        assert_eq!(owner_of(&directory, port), wanted, "{port}");
    }
    let claim = |user, client: &mut Client, socket: &OwnedFd| {
        let (answer, _) = as_user(user, || {
            client.ask(Operation::Ports, &[0], &[socket.as_fd()])
        })
        .unwrap();
        (answer.status, answer.words[0], answer.words[1])
    };
    let socket = listening();
    let shown = u64::from(port(&socket));
    let socket = OwnedFd::from(socket);
    assert_eq!(claim(B, &mut other, &socket), (0, shown, 1));
    assert_eq!(owner_of(&directory, shown), owner_word(B));
    // Who was first has it.
    assert_eq!(claim(A, &mut one, &socket).0, raw(Errno::ADDRINUSE));
    assert_eq!(owner_of(&directory, shown), owner_word(B));
    // One of the daemon's own blocks, and what is no bound TCP socket.
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], u16::try_from(first).unwrap()));
    let blocked = OwnedFd::from(TcpListener::bind(address).unwrap());
    assert_eq!(claim(B, &mut other, &blocked).0, raw(Errno::ADDRINUSE));
    let plain = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    assert_ne!(claim(B, &mut other, &plain).0, 0);
    assert_ne!(claim(B, &mut other, &pair(SocketType::STREAM).0).0, 0);
    drop(one);
    eventually("what went back is another's who shows it", || {
        claim(B, &mut other, &blocked).0 == 0
    });
    assert_eq!(owner_of(&directory, first), owner_word(B));
    // What nobody has taken says who had it: his connections may still wait to be accepted.
    assert_eq!(owner_of(&directory, first + 15), owner_word(A));
}

#[test]
fn who_connects_from_another_network_namespace_is_refused() {
    let Some(served) = served(small()) else {
        return;
    };
    let alone = || {
        // SAFETY: plain system call, which changes this thread alone.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        let mut client = Client::connect(&served);
        let listener = OwnedFd::from(listening_without_loopback());
        (client.attach().0.status, listener)
    };
    let (status, elsewhere) = std::thread::scope(|scope| scope.spawn(alone).join().unwrap());
    assert_eq!(status, raw(Errno::NONET));
    // Nor does a socket of there prove anything here.
    let (mut client, _) = program_of(0, &served);
    let asked = client.ask(Operation::Ports, &[0], &[elsewhere.as_fd()]);
    assert_eq!(asked.unwrap().0.status, raw(Errno::NONET));
    let elsewhere = TcpListener::from(elsewhere);
    let mut words = listen_words(&elsewhere).to_vec();
    words.push(1);
    let asked = client.ask(Operation::Listen, &words, &[elsewhere.as_fd()]);
    assert_eq!(asked.unwrap().0.status, raw(Errno::PERM));
}

fn listening_without_loopback() -> TcpListener {
    TcpListener::bind("0.0.0.0:0").unwrap()
}
