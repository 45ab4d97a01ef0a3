//! The attach protocol over a real socket, as the library speaks it.

mod support;

use netchannel_abi::address::Address;
use netchannel_abi::directory::{self, ENTRIES, ENTRIES_OFFSET};
use netchannel_abi::message::Operation;
use netchannel_abi::{LAYOUT_HASH, VERSION, link, program};
use netchannel_control::types::Status;
use netchannel_shm::{Access, Region};
use rustix::net::{AddressFamily, SocketType};
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use support::{
    Client, Served, address, inode, listen_words, listening, listening_at_own_port, packet_pair,
    port, receive, small,
};

fn raw(errno: rustix::io::Errno) -> u32 {
    errno.raw_os_error().unsigned_abs()
}

/// Whether the directory says that several programs hold a listener.
fn is_shared(directory: &OwnedFd, listener: u64) -> bool {
    let region = Region::map(directory.as_raw_fd(), directory::SIZE, Access::ReadOnly).unwrap();
    let entries: &[directory::Entry] = region.slice(ENTRIES_OFFSET, ENTRIES).unwrap();
    let mut same = entries
        .iter()
        .filter(|entry| u64::from(entry.listener.load(Relaxed)) == listener);
    let flags = same.next().unwrap().flags.load(Relaxed);
    flags & directory::entry_flags::SHARED != 0
}

/// Listeners of `port` as a program finds them in the directory.
fn listed(directory: &OwnedFd, port: u16) -> Vec<u32> {
    let region = Region::map(directory.as_raw_fd(), directory::SIZE, Access::ReadOnly).unwrap();
    let mut found = Vec::new();
    for step in 0..ENTRIES {
        let index = (directory::bucket(port) + step) & (ENTRIES - 1);
        let offset = ENTRIES_OFFSET + index * size_of::<directory::Entry>();
        let entry: &directory::Entry = region.at(offset).unwrap();
        match entry.listener.load(Relaxed) {
            0 => break,
            directory::LEFT => {}
            listener if entry.address.load().port == port => found.push(listener),
            _ => {}
        }
    }
    found
}

#[test]
fn attaching_gives_a_region_and_a_directory() {
    let served = Served::new(small(), None);
    let mut client = Client::connect(&served);
    let (answer, descriptors) = client.attach();
    assert_eq!(answer.status, 0);
    assert_eq!(answer.words[1], 64);
    let user = u64::from(rustix::process::geteuid().as_raw());
    assert_eq!(answer.words[2], user);
    let region = Region::map(
        descriptors[0].as_raw_fd(),
        program::size(64),
        Access::ReadWrite,
    )
    .unwrap();
    let header: &program::Header = region.at(0).unwrap();
    assert_eq!(header.magic.load(Relaxed), program::MAGIC);
    assert_eq!(header.layout_hash.load(Relaxed), LAYOUT_HASH);
    assert_eq!(header.entries.load(Relaxed), 64);
    let raw = descriptors[1].as_raw_fd();
    assert!(Region::map(raw, directory::SIZE, Access::ReadWrite).is_err());
    let directory = Region::map(raw, directory::SIZE, Access::ReadOnly).unwrap();
    let header: &directory::Header = directory.at(0).unwrap();
    assert_eq!(header.magic.load(Relaxed), directory::MAGIC);
    let status = served.status();
    assert_eq!(status.programs.len(), 1);
    assert_eq!(status.programs[0].name, "testprog");
    assert_eq!(status.programs[0].process, std::process::id());
}

#[test]
fn another_version_or_layout_is_told_so_and_may_try_again() {
    let served = Served::new(small(), None);
    let mut client = Client::connect(&served);
    let refused = raw(rustix::io::Errno::PROTONOSUPPORT);
    let wrong_layout = [u64::from(VERSION), LAYOUT_HASH ^ 1];
    assert_eq!(client.status_of(Operation::Attach, &wrong_layout), refused);
    let wrong_version = [u64::from(VERSION) + 1, LAYOUT_HASH];
    assert_eq!(client.status_of(Operation::Attach, &wrong_version), refused);
    assert_eq!(client.attach().0.status, 0);
}

#[test]
fn a_number_of_another_daemon_reaches_nobody_else() {
    let served = Served::new(small(), None);
    let mut server = Client::attached(&served);
    let mut client = Client::attached(&served);
    let (listener, _accepts) = server.listen();
    let there = port(&server.listening[0]);
    let to = |port| {
        let words = Address::v4([127, 0, 0, 1], port).to_words();
        [listener, words[0], words[1], words[2]]
    };
    let refused = raw(rustix::io::Errno::CONNREFUSED);
    assert_eq!(
        client.status_of(Operation::Connect, &to(there ^ 1)),
        refused
    );
    assert_eq!(client.status_of(Operation::Connect, &to(there)), 0);
}

#[test]
fn a_connection_is_offered_to_the_listener() {
    let served = Served::new(small(), None);
    let mut server = Client::attached(&served);
    let mut client = Client::attached(&served);
    let (listener, accepts) = server.listen();
    let (answer, given) = client.ask(Operation::Connect, &[listener], &[]).unwrap();
    assert_eq!(answer.status, 0);
    let (offer, taken) = receive(&accepts).unwrap();
    assert_eq!(offer.operation, Operation::Offer as u32);
    assert_eq!(offer.words[0], answer.words[0]);
    assert_eq!(offer.words[1], listener);
    assert_eq!(offer.words[2..5], [64, 4 << 20, 16]);
    assert_eq!(answer.words[1..4], [64, 4 << 20, 16]);
    assert_eq!(offer.words[6], 0);
    let user = u64::from(rustix::process::getuid().as_raw());
    assert_eq!(offer.words[8], user, "of the client");
    assert_eq!((given.len(), taken.len()), (18, 18));
    assert_eq!(inode(&given[0]), inode(&taken[0]));
    let layout = link::Layout {
        slots: 64,
        arena: 4 << 20,
    };
    let region = Region::map(taken[0].as_raw_fd(), layout.size(), Access::ReadWrite).unwrap();
    let header: &link::Header = region.at(0).unwrap();
    assert_eq!(header.magic.load(Relaxed), link::MAGIC);
    assert_eq!(header.link.load(Relaxed), answer.words[0]);
    // The link channel and every anchor join the two.
    for (one, other) in given.iter().zip(&taken).skip(1) {
        rustix::io::write(one, b"t").unwrap();
        let mut byte = [0];
        rustix::io::read(other, &mut byte).unwrap();
        assert_eq!(byte, *b"t");
    }
    // The daemon holds no end: when one side lets go, the other sees it.
    drop(given);
    assert_eq!(served.status().links, 1);
    // By now the daemon has also let go of what it had handed over.
    assert_eq!(rustix::io::read(&taken[2], &mut [0; 1]).unwrap(), 0);
    drop(client);
    served.await_status(|status| status.links == 0);
}

#[test]
fn the_same_cookie_is_the_same_listener() {
    let served = Served::new(small(), None);
    let mut one = Client::connect(&served);
    let directory = one.attach().1.pop().unwrap();
    let mut other = Client::attached(&served);
    let socket = listening();
    // At the same port as well.
    let address = rustix::net::getsockname(&socket).unwrap();
    let group = || {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::sockopt::set_socket_reuseport(&socket, true).unwrap();
        socket
    };
    drop(socket);
    let [socket, second] = [group(), group()].map(|socket| {
        rustix::net::bind(&socket, &address).unwrap();
        rustix::net::listen(&socket, 5).unwrap();
        TcpListener::from(socket)
    });
    let at = port(&socket);
    let (listener, first) = one.announce(&socket);
    assert!(!is_shared(&directory, listener));
    let (again, same) = other.announce(&socket);
    assert!(is_shared(&directory, listener));
    assert_eq!(listener, again);
    assert_eq!(inode(&first), inode(&same));
    assert_eq!(listed(&directory, at).len(), 1);
    let (another, _channel) = other.announce(&second);
    assert_ne!(another, listener);
    assert_eq!(listed(&directory, at).len(), 2);
    assert_eq!(one.status_of(Operation::Unlisten, &[listener]), 0);
    assert!(!is_shared(&directory, listener));
    assert_eq!(listed(&directory, at).len(), 2);
    assert_ne!(one.status_of(Operation::Unlisten, &[listener]), 0);
    assert_eq!(other.status_of(Operation::Unlisten, &[listener]), 0);
    assert_eq!(listed(&directory, at).len(), 1);
    assert_ne!(one.status_of(Operation::Connect, &[listener]), 0);
}

#[test]
fn an_adopted_child_holds_its_parents_listeners() {
    let served = Served::new(small(), None);
    let mut parent = Client::connect(&served);
    let directory = parent.attach().1.pop().unwrap();
    let (first, _a) = parent.listen();
    let (second, _b) = parent.listen();
    let (third, _c) = parent.listen();
    let [first_port, third_port] = [0, 2].map(|index| port(&parent.listening[index]));
    let words = [2, first | second << 32];
    let (answer, mut given) = parent.ask(Operation::Adopt, &words, &[]).unwrap();
    assert_eq!((answer.status, given.len()), (0, 1));
    drop(parent);
    served.await_status(|status| status.listeners == 2);
    assert_eq!(listed(&directory, first_port).len(), 1);
    assert!(listed(&directory, third_port).is_empty());
    let mut child = Client::over(given.remove(0));
    // Before it attaches it may let go, and nothing else.
    assert_eq!(child.status_of(Operation::Unlisten, &[first]), 0);
    assert_eq!(child.attach().0.status, 0);
    assert_ne!(child.status_of(Operation::Unlisten, &[first]), 0);
    assert_eq!(child.status_of(Operation::Unlisten, &[second]), 0);
    assert_ne!(child.status_of(Operation::Unlisten, &[third]), 0);
    drop(child);
    served.await_status(|status| status.listeners == 0 && status.programs.is_empty());
}

#[test]
fn a_connection_that_was_not_accepted_goes_to_another_holder() {
    let served = Served::new(small(), None);
    let mut server = Client::attached(&served);
    let mut client = Client::attached(&served);
    let (listener, accepts) = server.listen();
    let (answer, _given) = client.ask(Operation::Connect, &[listener], &[]).unwrap();
    let (_, taken) = receive(&accepts).unwrap();
    let words = [answer.words[0], listener, 3];
    let three = [taken[0].as_fd(), taken[1].as_fd(), taken[2].as_fd()];
    let (refused, _) = server.ask(Operation::Reoffer, &words, &three).unwrap();
    assert_eq!(refused.status, raw(rustix::io::Errno::NOENT));
    let mut other = Client::attached(&served);
    let (_, accepts) = other.announce(&server.listening[0]);
    let (done, _) = server.ask(Operation::Reoffer, &words, &three).unwrap();
    assert_eq!(done.status, 0);
    let (offer, again) = receive(&accepts).unwrap();
    assert_eq!(offer.words[0], answer.words[0]);
    assert_eq!((offer.words[4], offer.words[6]), (1, 3));
    assert_eq!(inode(&again[2]), inode(&taken[2]));
}

#[test]
fn a_full_backlog_is_told_and_nothing_hangs() {
    let served = Served::new(small(), None);
    let mut server = Client::attached(&served);
    let (listener, _accepts) = server.listen();
    let (mut full, mut made) = (0, 0);
    for _ in 0..40 {
        // Links nobody accepts: new clients each time, so that no quota is met first.
        let mut client = Client::attached(&served);
        for _ in 0..64 {
            full = client.status_of(Operation::Connect, &[listener]);
            if full != 0 {
                break;
            }
            made += 1;
        }
        if full != 0 {
            break;
        }
    }
    assert_eq!(full, raw(rustix::io::Errno::AGAIN));
    assert_eq!(made, 128);
    assert_eq!(server.status_of(Operation::Unlisten, &[listener]), 0);
}

#[test]
fn ports_are_exclusive_and_come_back() {
    let served = Served::new(small(), None);
    let mut one = Client::attached(&served);
    let mut other = Client::attached(&served);
    let (first, _) = one.ask(Operation::Ports, &[64], &[]).unwrap();
    let (second, _) = other.ask(Operation::Ports, &[64], &[]).unwrap();
    let [a, b] = [first.words[0], second.words[0]];
    assert_eq!((first.words[1], second.words[1]), (64, 64));
    assert!(a.abs_diff(b) >= 64);
    assert_ne!(one.status_of(Operation::Ports, &[0]), 0);
    drop(one);
    let used = |status: &Status| status.users.iter().map(|one| one.ports.used).sum::<u64>();
    served.await_status(|status| used(status) == 64);
    // What came back rests while there are others.
    let (third, _) = other.ask(Operation::Ports, &[64], &[]).unwrap();
    assert!([a, b].iter().all(|one| third.words[0].abs_diff(*one) >= 64));
    assert_eq!(used(&served.status()), 128);
}

/// The memory of a link from the client to a server, and that server.
fn memory_of_a_link(served: &Served, client: &mut Client) -> (OwnedFd, impl Sized + use<>) {
    let mut server = Client::attached(served);
    let (listener, accepts) = server.listen();
    let (_, mut given) = client.ask(Operation::Connect, &[listener], &[]).unwrap();
    (given.swap_remove(0), (server, accepts))
}

#[test]
fn what_is_deposited_is_found_once() {
    let served = Served::new(small(), None);
    let mut one = Client::connect(&served);
    let region = one.attach().0.words[3];
    let (memory, _server) = memory_of_a_link(&served, &mut one);
    let (anchor, _peer) = packet_pair();
    let mut words: Vec<u64> = (0..14).map(|word| word * 1000 + 41).collect();
    let cookie = rustix::net::sockopt::socket_cookie(&anchor).unwrap();
    words[0] = cookie;
    words[5] = u64::MAX;
    let (refused, _) = one
        .ask(Operation::Deposit, &words, &[memory.as_fd()])
        .unwrap();
    assert_ne!(refused.status, 0);
    words[5] = region;
    words[6] = 3;
    let (left, _) = one
        .ask(Operation::Deposit, &words, &[memory.as_fd()])
        .unwrap();
    assert_eq!(left.status, 0);
    drop(one);
    let mut other = Client::attached(&served);
    let (found, descriptors) = other.ask(Operation::Lookup, &[cookie], &[]).unwrap();
    assert_eq!(found.status, 0);
    assert_eq!(found.words[..7], words[..7]);
    assert_eq!(descriptors.len(), 2);
    assert_eq!(inode(&descriptors[0]), inode(&memory));
    let none = raw(rustix::io::Errno::NOENT);
    assert_eq!(other.status_of(Operation::Lookup, &[cookie]), none);
}

#[test]
fn what_nobody_can_fetch_any_more_goes() {
    let served = Served::new(small(), None);
    let mut one = Client::connect(&served);
    let region = one.attach().0.words[3];
    let (memory, _server) = memory_of_a_link(&served, &mut one);
    let (kept, lost) = packet_pair();
    let cookie = |socket: &OwnedFd| rustix::net::sockopt::socket_cookie(socket).unwrap();
    for socket in [&kept, &lost] {
        let words = [cookie(socket), 1, 1, 0, 0, region, 3];
        let left = one.ask(Operation::Deposit, &words, &[memory.as_fd()]);
        assert_eq!(left.unwrap().0.status, 0);
    }
    let (own, other) = (cookie(&kept), cookie(&lost));
    drop((one, lost));
    served.await_status(|status| status.deposits == 1);
    let mut finder = Client::attached(&served);
    let none = raw(rustix::io::Errno::NOENT);
    assert_eq!(finder.status_of(Operation::Lookup, &[other]), none);
    assert_eq!(finder.status_of(Operation::Lookup, &[own]), 0);
}

/// Attaches with a region of its own, of `entries`.
fn bring(client: &mut Client, region: &OwnedFd, entries: u64) -> Option<support::Answer> {
    let words = [u64::from(VERSION), LAYOUT_HASH, 1, 0, 0, entries];
    client.ask(Operation::Attach, &words, &[region.as_fd()])
}

#[test]
fn a_program_of_another_daemon_brings_its_region() {
    let former = Served::new(small(), None);
    let mut there = Client::connect(&former);
    let (_, mut given) = there.attach();
    let region = given.remove(0);
    let served = Served::new(small(), None);
    let mut one = Client::connect(&served);
    let (answer, descriptors) = bring(&mut one, &region, 64).unwrap();
    assert_eq!((answer.status, answer.words[1]), (0, 64));
    assert_eq!(descriptors.len(), 1, "the directory alone");
    let (listener, _accepts) = one.listen();
    assert_eq!(listed(&descriptors[0], port(&one.listening[0])).len(), 1);
    // A process that shares it has the same one.
    let mut other = Client::connect(&served);
    let (again, _) = bring(&mut other, &region, 64).unwrap();
    assert_eq!(again.words[3], answer.words[3]);
    assert_ne!(again.words[0], answer.words[0]);
    assert_eq!(
        other.announce(&one.listening[0]).0,
        listener,
        "by its cookie"
    );
}

#[test]
fn a_listening_socket_may_come_with_its_announcement() {
    let served = Served::new(small(), None);
    let mut one = Client::attached(&served);
    let socket = listening();
    let [a, b, c, cookie, backlog, flags] = listen_words(&socket);
    let words = [a, b, c, cookie, backlog, flags, 1];
    let shown = [socket.as_fd()];
    let (answer, descriptors) = one.ask(Operation::Listen, &words, &shown).unwrap();
    assert_eq!((answer.status, descriptors.len()), (0, 1));
    // It was promised and does not come.
    assert!(one.ask(Operation::Listen, &words, &[]).is_none());
    assert_eq!(Client::connect(&served).attach().0.status, 0);
}

#[test]
fn who_listens_where_another_has_closed_takes_its_place() {
    let served = Served::new(small(), None);
    let mut one = Client::attached(&served);
    let (first, second) = (listening_at_own_port(), listening());
    let place = first.local_addr().unwrap();
    let (former, offers) = one.announce(&first);
    let (other, _offers) = one.announce(&second);
    // The socket ends before the daemon is told.
    drop(first);
    let next = TcpListener::bind(place).unwrap();
    let (later, _offers) = one.announce(&next);
    let refused = one.status_of(Operation::Connect, &[former]);
    assert_eq!(refused, raw(rustix::io::Errno::CONNREFUSED));
    assert!(receive(&offers).is_none());
    for listens in [later, other] {
        assert_eq!(one.status_of(Operation::Connect, &[listens]), 0);
    }
}

#[test]
fn what_is_no_region_detaches_who_brings_it() {
    let served = Served::new(small(), None);
    let (_, mut given) = Client::connect(&served).attach();
    let (directory, region) = (given.remove(1), given.remove(0));
    for (what, entries) in [
        (&directory, 64),
        (&region, 65),
        (&region, u64::MAX),
        (&region, 1 << 30),
    ] {
        let mut client = Client::connect(&served);
        let answer = bring(&mut client, what, entries);
        assert!(
            answer.is_none_or(|(answer, _)| answer.status != 0),
            "{entries}"
        );
    }
    assert_eq!(Client::connect(&served).attach().0.status, 0);
}

#[test]
fn after_an_exec_only_what_is_announced_again_is_held() {
    let served = Served::new(small(), None);
    let mut one = Client::attached(&served);
    let (kept, _first) = one.listen();
    let (closed, _second) = one.listen();
    assert_eq!(one.attach().0.status, 0);
    let socket = one.listening.remove(0);
    let (again, _third) = one.announce(&socket);
    assert_eq!(again, kept);
    assert_eq!(one.status_of(Operation::Unlisten, &[0]), 0);
    let missing = raw(rustix::io::Errno::NOENT);
    assert_eq!(one.status_of(Operation::Unlisten, &[closed]), missing);
    assert_eq!(one.status_of(Operation::Unlisten, &[kept]), 0);
}

#[test]
fn an_idle_daemon_ends_and_removes_its_files() {
    let mut served = Served::new(small(), Some(Duration::from_millis(300)));
    let mut client = Client::connect(&served);
    let directory = client.attach().1.pop().unwrap();
    std::thread::sleep(Duration::from_millis(600));
    assert!(!served.has_ended());
    drop(client);
    served.join();
    assert!(!served.path().exists());
    let region = Region::map(directory.as_raw_fd(), directory::SIZE, Access::ReadOnly).unwrap();
    let header: &directory::Header = region.at(0).unwrap();
    assert_eq!(header.ended.load(Relaxed), 1);
}

#[test]
fn addresses_are_published_as_they_are() {
    let served = Served::new(small(), None);
    let mut client = Client::attached(&served);
    let socket = TcpListener::bind("[::]:0").unwrap();
    let mut words = listen_words(&socket);
    words[5] = netchannel_abi::message::listen_flags::V6_ONLY;
    assert_eq!(client.status_of(Operation::Listen, &words), 0);
    assert_eq!(address(&socket).family, netchannel_abi::address::INET6);
    let [a, b, c] = Address::v4([1, 2, 3, 4], 0).to_words();
    let no_port = [a, b, c, 13, 128, 0];
    assert_ne!(client.status_of(Operation::Listen, &no_port), 0);
    assert_ne!(client.status_of(Operation::Listen, &[0; 6]), 0);
}
