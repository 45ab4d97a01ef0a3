//! Two tenants that trust each other, in what they are shown and given: the listeners that one program holds, links for programs of one user.

use super::user::{HOSTILE, User, has_users};
use super::{Program, Served, raise_limit, small, support, wait};
use netchannel_abi::address::Address;
use netchannel_abi::directory::{self, entry_flags};
use netchannel_abi::message::Operation;
use netchannel_abi::tenant::TenantAddresses;
use netchannel_configuration::Configuration;
use rustix::io::Errno;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

const WEB: [u8; 4] = [10, 88, 0, 2];
const DB: [u8; 4] = [10, 88, 0, 3];
const DB6: &str = "fd00:88::3";

/// A daemon with `web` and `db`, who trust each other, and `third`, whom both meet; each with more lines of its table.
fn served(more: &str) -> Served {
    let text = format!(
        "[host]\nname = \"host\"\n\
         [[tenants]]\nname = \"web\"\naddresses = [\"10.88.0.2\"]\nmeets = [\"db\", \"third\"]\ntrusts = [\"db\"]\n{more}\n\
         [[tenants]]\nname = \"db\"\naddresses = [\"10.88.0.3\", \"{DB6}\"]\nmeets = [\"web\", \"third\"]\ntrusts = [\"web\"]\n{more}\n\
         [[tenants]]\nname = \"third\"\naddresses = [\"10.88.0.4\"]\nmeets = [\"web\", \"db\"]\n{more}\n"
    );
    raise_limit();
    let configuration = Configuration::parse(&text, Path::new("/nowhere/netchannel.toml"));
    Served::with(small(), None, Some(configuration.unwrap()))
}

/// A listener as a directory shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown {
    number: u32,
    flags: u32,
    address: Address,
}

impl Program {
    fn shown(&self) -> Vec<Shown> {
        let entries = (0..directory::ENTRIES).filter_map(|index| {
            let at = directory::ENTRIES_OFFSET + index * size_of::<directory::Entry>();
            self.directory.at::<directory::Entry>(at)
        });
        let shown = entries.map(|entry| Shown {
            number: entry.listener.load(Relaxed),
            flags: entry.flags.load(Relaxed),
            address: entry.address.load(),
        });
        shown
            .filter(|one| !matches!(one.number, 0 | directory::LEFT))
            .collect()
    }

    fn shown_at(&self, address: Address) -> Option<Shown> {
        self.shown().into_iter().find(|one| one.address == address)
    }
}

fn bound(address: &str) -> (TcpListener, u16) {
    let socket = TcpListener::bind(address).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

#[test]
fn a_listener_is_shown_to_who_is_trusted_and_a_link_leads_there() {
    let served = served("");
    let [mut web, mut db, third] = ["web", "db", "third"].map(|name| Program::of(&served, name));
    let ((socket, port), (inner, _)) = (bound("0.0.0.0:0"), bound("127.0.0.1:0"));
    db.listen(&inner);
    let (listener, accepts) = db.listen(&socket);
    let shown = wait(|| web.shown_at(Address::v4(DB, port)));
    assert_eq!(shown.flags, entry_flags::NEIGHBOUR);
    assert_eq!(
        web.shown(),
        [shown],
        "neither of the loopback, nor of a family that it is not of"
    );
    assert_eq!(third.shown(), [], "they meet, and no more");
    assert!(
        db.shown()
            .iter()
            .all(|one| one.flags & entry_flags::NEIGHBOUR == 0)
    );
    // The link, with the addresses of whoever is at the other end.
    let [a, b, c] = shown.address.to_words();
    let words = [u64::from(shown.number), a, b, c];
    let (answer, _ends) = web.client.ask(Operation::Connect, &words, &[]).unwrap();
    assert_eq!(answer.status, 0);
    let tenant = TenantAddresses::from_words([answer.words[5], answer.words[6], answer.words[7]]);
    assert!(tenant.has(&Address::v4(DB, 1)) && !tenant.has(&Address::v4(WEB, 1)));
    let (offer, ends) = support::receive(&accepts).unwrap();
    assert_eq!(offer.operation, Operation::Offer as u32);
    assert_eq!(
        (offer.words[0], offer.words[1]),
        (answer.words[0], u64::from(listener))
    );
    let tenant = TenantAddresses::from_words([offer.words[9], offer.words[10], offer.words[11]]);
    assert!(tenant.has(&Address::v4(WEB, 1)) && !tenant.has(&Address::v4(DB, 1)));
    // Another destination than the listener's, a queue, and the number that the other daemon's thread gave it.
    let [a, b, c] = Address::v4(DB, port.wrapping_add(1)).to_words();
    for (words, errno) in [
        ([u64::from(shown.number), a, b, c, 0], Errno::CONNREFUSED),
        ([u64::from(shown.number), 0, 0, 0, 1], Errno::PERM),
        ([u64::from(listener), 0, 0, 0, 0], Errno::CONNREFUSED),
    ] {
        let (answer, _) = web.client.ask(Operation::Connect, &words, &[]).unwrap();
        assert_eq!(answer.status, errno.raw_os_error().unsigned_abs());
    }
    // Who holds the listener hands on a connection that came over it, and not over another link.
    let (anchor, _other) = UnixStream::pair().unwrap();
    let mut hand_on = |link| {
        let words = [link, u64::from(listener), 3, 1];
        let with = [ends[0].as_fd(), ends[1].as_fd(), anchor.as_fd()];
        db.client
            .ask(Operation::Reoffer, &words, &with)
            .unwrap()
            .0
            .status
    };
    assert_eq!(hand_on(offer.words[0]), 0);
    let (handed, _) = support::receive(&accepts).unwrap();
    assert_eq!(handed.words[9..12], offer.words[9..12]);
    assert_eq!(handed.words[7], 1);
    // It ends with its listener, and that with its program.
    drop((db, socket));
    wait(|| web.shown().is_empty().then_some(()));
    let (answer, _) = web
        .client
        .ask(Operation::Connect, &words_of(shown), &[])
        .unwrap();
    assert_ne!(answer.status, 0);
}

fn words_of(shown: Shown) -> [u64; 4] {
    let [a, b, c] = shown.address.to_words();
    [u64::from(shown.number), a, b, c]
}

#[test]
fn a_listener_of_both_families_is_at_each_address() {
    let served = served("");
    let [web, mut db] = ["web", "db"].map(|name| Program::of(&served, name));
    let (socket, port) = bound("[::]:0");
    db.listen(&socket);
    let six = DB6.parse::<std::net::Ipv6Addr>().unwrap().octets();
    for address in [Address::v4(DB, port), Address::v6(six, port, 0)] {
        wait(|| web.shown_at(address));
    }
    assert_eq!(web.shown().len(), 2);
}

#[test]
fn what_several_programs_hold_is_shown_no_more() {
    let served = served("");
    let [web, mut db, mut child] = ["web", "db", "db"].map(|name| Program::of(&served, name));
    let (socket, port) = bound("0.0.0.0:0");
    db.listen(&socket);
    wait(|| web.shown_at(Address::v4(DB, port)));
    let (listener, _accepts) = child.listen(&socket);
    wait(|| web.shown().is_empty().then_some(()));
    let (answer, _) = child
        .client
        .ask(Operation::Unlisten, &[u64::from(listener)], &[])
        .unwrap();
    assert_eq!(answer.status, 0);
    wait(|| web.shown_at(Address::v4(DB, port)));
}

#[test]
fn programs_of_two_users_share_no_memory() {
    if !has_users("programs of tenants") {
        return;
    }
    let served = served("mode = \"0666\"");
    let folder = served.path();
    let folder = folder.parent().unwrap();
    for path in [
        folder.to_owned(),
        folder.join("tenants"),
        folder.join("tenants/web"),
    ] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
    }
    let mut db = Program::of(&served, "db");
    let (socket, port) = bound("0.0.0.0:0");
    let (_, accepts) = db.listen(&socket);
    let root = Program::of(&served, "web");
    let shown = wait(|| root.shown_at(Address::v4(DB, port)));
    let socket = folder.join("tenants/web/nc.sock");
    let other = User::new(HOSTILE);
    let status = other.run(move || {
        let mut client = support::Client::dial(&socket);
        assert_eq!(client.attach().0.status, 0);
        client
            .ask(Operation::Connect, &words_of(shown), &[])
            .unwrap()
            .0
            .status
    });
    assert_eq!(status, Errno::PERM.raw_os_error().unsigned_abs());
    rustix::io::ioctl_fionbio(&accepts, true).unwrap();
    let heard = rustix::io::read(&accepts, &mut [0_u8; 8]);
    assert_eq!(heard, Err(Errno::AGAIN), "something was offered");
}
