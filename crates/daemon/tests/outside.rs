//! Two daemons in one process, each the other's peer, over loopback addresses. They have the same addresses of their own, so
//! connections between programs are tested elsewhere, in namespaces.

mod support;

use netchannel_abi::address::Address;
use netchannel_abi::directory::{self, ENTRIES, ENTRIES_OFFSET, entry_flags};
use netchannel_abi::message::Operation;
use netchannel_configuration::Configuration;
use netchannel_control::hosts::{Hosts, State};
use netchannel_shm::{Access, Region};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use support::{Client, Served, address, small};

/// An address of this host at which nobody listens.
fn free(ip: [u8; 4]) -> SocketAddr {
    let listener = TcpListener::bind((IpAddr::from(ip), 0)).unwrap();
    listener.local_addr().unwrap()
}

fn configuration(folder: &Path, own: SocketAddr, peer: SocketAddr, prefix: &str) -> Configuration {
    let key = folder.join("key");
    std::fs::write(&key, "0123456789abcdef".repeat(4)).unwrap();
    std::fs::set_permissions(key, PermissionsExt::from_mode(0o600)).unwrap();
    let text = format!(
        "[host]\nname = \"this\"\nlisten = [\"{own}\"]\n\n[[peers]]\nname = \"other\"\naddresses = [\"{peer}\"]\n\
         prefixes = [\"{prefix}\"]\nkey-file = \"key\"\n\n[times]\nretry-least = \"10ms\"\n"
    );
    let file = folder.join("netchannel.toml");
    std::fs::write(&file, text).unwrap();
    Configuration::load(&file).unwrap()
}

/// Two of them. The second may announce 10.77.
fn two(last: [u8; 2]) -> (Served, Served) {
    let place = tempfile::tempdir().unwrap();
    let [one, other] = last.map(|last| free([127, 77, 0, last]));
    let first = configuration(place.path(), one, other, "10.77.0.0/16");
    let second = configuration(place.path(), other, one, "10.78.0.0/16");
    let served = |configuration| Served::with(small(), None, Some(configuration));
    (served(first), served(second))
}

/// Listens at an address that need not be this host's.
fn freely(ip: [u8; 4]) -> TcpListener {
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_ip_freebind(&socket, true).unwrap();
    bind(&socket, &SocketAddr::from((ip, 0))).unwrap();
    listen(&socket, 5).unwrap();
    TcpListener::from(socket)
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_up(hosts: &Hosts) -> bool {
    let peer = &hosts.peers[0];
    peer.state == State::Up
        && peer.latency.up >= peer.latency.least
        && peer.throughput.up >= peer.throughput.least
}

/// Listeners of other hosts in a directory: number and address.
fn remote(directory: &OwnedFd) -> Vec<(u32, Address)> {
    let region = Region::map(directory.as_raw_fd(), directory::SIZE, Access::ReadOnly).unwrap();
    let entries: &[directory::Entry] = region.slice(ENTRIES_OFFSET, ENTRIES).unwrap();
    let remote = entries.iter().filter(|entry| {
        let listener = entry.listener.load(Relaxed);
        let is_remote = entry.flags.load(Relaxed) & entry_flags::REMOTE != 0;
        listener != 0 && listener != directory::LEFT && is_remote
    });
    remote
        .map(|entry| (entry.listener.load(Relaxed), entry.address.load()))
        .collect()
}

#[test]
fn daemons_meet_and_show_each_other() {
    let (one, other) = two([1, 2]);
    eventually("both are up", || {
        is_up(&one.hosts()) && is_up(&other.hosts())
    });
    let hosts = one.hosts();
    assert_eq!(hosts.peers[0].host_id, other.hosts().host_id);
    assert_eq!(hosts.peers[0].reason, "");
    assert!(hosts.channels.len() >= 2);
    assert!(
        hosts
            .channels
            .iter()
            .all(|one| one.remote.starts_with("127.77.0.2:"))
    );
    drop(other);
    eventually("it is down", || one.hosts().peers[0].state != State::Up);
    assert_ne!(one.hosts().peers[0].reason, "");
}

#[test]
fn a_listener_there_is_in_the_directory_here() {
    let (one, other) = two([3, 4]);
    let mut client = Client::connect(&one);
    let (_, descriptors) = client.attach();
    let directory = &descriptors[1];
    let socket = freely([10, 77, 0, 1]);
    let listening = address(&socket);
    let mut program = Client::attached(&other);
    let (number, _accepts) = program.announce(&socket);
    // What this peer may not announce, and what is nobody else's business.
    let others = [freely([10, 79, 0, 1]), freely([127, 0, 0, 1])];
    let _announced = others.each_ref().map(|one| program.announce(one));
    eventually("it is shown", || !remote(directory).is_empty());
    let [(here, address)] = remote(directory)[..] else {
        panic!("{:?}", remote(directory));
    };
    assert_eq!(address, listening);
    eventually("both know how many", || {
        (
            one.hosts().peers[0].listeners,
            other.hosts().peers[0].announced,
        ) == (1, 2)
    });

    // A link to the data plane.
    let connect = |client: &mut Client, address: &Address| {
        let [a, b, c] = address.to_words();
        client
            .ask(Operation::Connect, &[here.into(), a, b, c], &[])
            .unwrap()
    };
    let (answer, descriptors) = connect(&mut client, &listening);
    assert_eq!(answer.status, 0);
    assert!(descriptors.len() > 2);
    let elsewhere = Address::v4([10, 77, 0, 9], listening.port);
    assert_ne!(connect(&mut client, &elsewhere).0.status, 0);

    assert_eq!(program.status_of(Operation::Unlisten, &[number]), 0);
    eventually("it is gone", || remote(directory).is_empty());
    assert_ne!(connect(&mut client, &listening).0.status, 0);
    assert_eq!(client.status_of(Operation::Ports, &[1]), 0);
}

#[test]
fn a_peer_that_is_gone_leaves_nothing_in_the_directory() {
    let (one, mut other) = two([5, 6]);
    let mut client = Client::connect(&one);
    let (_, descriptors) = client.attach();
    let mut program = Client::attached(&other);
    let socket = freely([10, 77, 0, 1]);
    let _held = program.announce(&socket);
    eventually("it is shown", || remote(&descriptors[1]).len() == 1);
    other.stop();
    eventually("it is gone", || remote(&descriptors[1]).is_empty());
}
