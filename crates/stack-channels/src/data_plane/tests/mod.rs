//! Two hosts in one process: their workers, joined by TCP over loopback, and programs played by the test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that can not go on fails"
)]

mod acceptors;
mod churn;
mod connections;
mod losses;
mod policies;
mod speed;
mod streams;
mod tenants;
mod waiting;

use super::{Command, DataPlane, FailureScope, Listed, Peer, Report, Rules, Terms};
use crate::channel_instance::ChannelInstance;
use crate::prefix::{Prefix, ip};
use netchannel_abi::class;
use netchannel_abi::directory;
use netchannel_abi::link::{Role, side_flags};
use netchannel_driver::Channel;
use netchannel_scheduler::{ChannelId, Class};
use netchannel_service::anchor::Count;
use netchannel_service::core_engine::{self as relay, StackRequest};
use netchannel_service::lane::Lane;
use netchannel_service::link::{LinkEnd, Parts};
use netchannel_service::played::{LAYOUT, read, take, write};
use netchannel_service::published_ports::PublishedPorts;
use netchannel_service::{memory, packet};
use netchannel_wire::Address;
use rustix::io::Errno;
use rustix::net::SocketType;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CLIENT: Address = Address::v4([10, 9, 0, 1], 40000);
const SERVER: Address = Address::v4([10, 9, 0, 2], 80);
/// User of the connecting programs, and a port of another one's.
const USER: u32 = 1001;
const OTHERS: u16 = 40001;
/// Number of the listener at its host, and at the other.
const LISTENER: u32 = 3;
const THERE: u32 = 9;
const PATIENCE: Duration = Duration::from_secs(20);

const MODE: relay::AcceptMode = relay::AcceptMode {
    shared: false,
    backlog: 4096,
    address: Some(SERVER),
};

const TERMS: Terms = Terms {
    payload: 1 << 20,
    own_payload: 1 << 20,
    sockets: 1000,
    peer_sockets: 1000,
    silence: 60_000_000_000,
    peer_silence: 60_000_000_000,
};

/// Two hosts: the first has clients, the second a listener.
struct World {
    hosts: [DataPlane; 2],
    peers: [Arc<Peer>; 2],
    /// The connecting program's end of its link.
    client: Arc<LinkEnd>,
    /// The listening program's ends.
    servers: Vec<Arc<LinkEnd>>,
    accepted: VecDeque<Lane>,
    /// Whether the listener takes connections.
    listens: bool,
    lost: usize,
    channels: u64,
    _keep: OwnedFd,
}

fn parts(number: u64, role: Role, memory: &OwnedFd, channel: OwnedFd) -> Parts {
    Parts {
        number,
        role,
        layout: LAYOUT,
        memory: memory.try_clone().unwrap(),
        channel,
        anchors: Vec::new(),
        user: Some(USER),
    }
}

/// The peer has one address, and this host the other.
fn rules(peer: Address, own: Address) -> Rules {
    let address = ip(&peer).unwrap();
    let prefix = Prefix {
        address,
        length: 128,
    };
    Rules {
        peer: vec![prefix],
        own: vec![own],
        connect: None,
        has_others: false,
    }
}

/// The clients' port is their user's.
fn owners() -> PublishedPorts {
    let (_, region) = memory::published(c"directory", directory::SIZE).unwrap();
    let owners = PublishedPorts::new(Arc::new(region));
    owners.set(CLIENT.port, u64::from(directory::owner_word(USER)));
    owners.set(OTHERS, u64::from(directory::owner_word(USER + 1)));
    owners
}

fn start(workers: Option<usize>) -> DataPlane {
    let settings = netchannel_scheduler::Settings::default();
    DataPlane::start(&settings, workers, owners()).unwrap()
}

/// Both ends of a new link.
fn link(number: u64) -> (Parts, Parts) {
    let memory = memory::link(LAYOUT, number).unwrap();
    let (one, other) = packet::owned_pair(SocketType::SEQPACKET).unwrap();
    let client = parts(number, Role::Client, &memory, one);
    (client, parts(number, Role::Server, &memory, other))
}

fn program(parts: Parts) -> Arc<LinkEnd> {
    let count = Arc::new(Count::new(10_000));
    Arc::new(LinkEnd::new(parts, &count).unwrap())
}

const fn id(class: Class, number: u32) -> ChannelId {
    ChannelId { class, number }
}

/// The program of a lane says something of its class.
fn say(lane: &Lane, hints: class::Hints) {
    let (own, _) = lane.sides().unwrap();
    own.hints
        .store(hints.to_word(), std::sync::atomic::Ordering::Relaxed);
}

impl World {
    /// Two hosts with these channels between them.
    fn new(channels: &[ChannelId]) -> Self {
        Self::with_workers(channels, None)
    }

    /// The same, each with so many workers.
    fn with_workers(channels: &[ChannelId], workers: Option<usize>) -> Self {
        let hosts = [start(workers), start(workers)];
        let peers = [
            Peer::new(0, TERMS, rules(SERVER, CLIENT)),
            Peer::new(0, TERMS, rules(CLIENT, SERVER)),
        ];
        let (client, server) = link(1);
        hosts[0].serve(server);
        let (keep, _) = packet::owned_pair(SocketType::SEQPACKET).unwrap();
        hosts[0].send(Command::Listener {
            number: THERE,
            listed: Listed {
                peer: Arc::clone(&peers[0]),
                theirs: LISTENER,
                address: SERVER,
            },
        });
        let mut world = Self {
            hosts,
            peers,
            client: program(client),
            servers: Vec::new(),
            accepted: VecDeque::new(),
            listens: true,
            lost: 0,
            channels: 0,
            _keep: keep,
        };
        for id in channels {
            world.join(*id);
        }
        world
    }

    /// Makes a channel between them.
    fn join(&mut self, id: ChannelId) -> (ChannelInstance, Class) {
        self.join_as(id, |channel| channel)
    }

    /// The same, with something before the channel at either end.
    fn join_as(
        &mut self,
        id: ChannelId,
        before: impl Fn(Box<dyn Channel>) -> Box<dyn Channel>,
    ) -> (ChannelInstance, Class) {
        let at = ([127, 0, 0, 1], 0).into();
        let (one, other) = netchannel_driver::contract::pair(&netchannel_driver::Tcp, at);
        self.channels += 1;
        let instance = ChannelInstance(self.channels);
        for (which, channel) in [one, other].into_iter().enumerate() {
            self.hosts[which].send(Command::Channel {
                peer: Arc::clone(&self.peers[which]),
                instance,
                id,
                channel: before(channel),
                rest: Vec::new(),
            });
        }
        (instance, id.class)
    }

    /// The network loses a channel.
    fn cut(&self, (instance, _): (ChannelInstance, Class)) {
        self.hosts[0].send(Command::Close { instance });
    }

    /// Plays CoreEngine.
    fn serve(&mut self) {
        for which in 0..2 {
            for report in self.hosts[which].take_reports() {
                match report {
                    Report::Request(StackRequest::Link(LISTENER, _)) if self.listens => {
                        let (client, server) = link(2 + self.servers.len() as u64);
                        self.servers.push(program(server));
                        let link = relay::Command::Link(LISTENER, Ok((client, MODE)));
                        self.hosts[which].send(Command::Links(link));
                    }
                    Report::Request(StackRequest::Link(listener, _)) => {
                        let refused = relay::Command::Link(listener, Err(Errno::CONNREFUSED));
                        self.hosts[which].send(Command::Links(refused));
                    }
                    Report::ChannelLost { .. } => self.lost += 1,
                    _ => {}
                }
            }
        }
    }

    /// Waits until something comes.
    fn wait<T>(&mut self, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            self.serve();
            if let Some(found) = look(self) {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "nothing came");
            std::thread::yield_now();
        }
    }

    /// A program connects, and does not wait.
    fn dial(&self) -> Lane {
        self.dial_as(class::Hints::default())
    }

    /// The same, by a program that says something of the class.
    fn dial_as(&self, hints: class::Hints) -> Lane {
        let loan = self.client.lend().unwrap();
        let lane = Lane::lent(&self.client, loan).unwrap();
        say(&lane, hints);
        let addresses = (&CLIENT, &SERVER);
        assert!(self.client.announce(lane.handle(), THERE, addresses, false));
        lane
    }

    /// A program connects, the other one accepts.
    fn connect(&mut self) -> (Lane, Lane) {
        self.connect_as(class::Hints::default())
    }

    /// The same, by a program that says something of the class.
    fn connect_as(&mut self, hints: class::Hints) -> (Lane, Lane) {
        let lane = self.dial_as(hints);
        let other = self.wait(Self::accept);
        self.wait(|_| (lane.peer_flags() & side_flags::ESTABLISHED != 0).then_some(()));
        (lane, other)
    }

    fn accept(&mut self) -> Option<Lane> {
        for link in &self.servers {
            assert!(link.read_channel());
            for opened in take(link) {
                assert_eq!((opened.client, opened.server), (CLIENT, SERVER));
                let lane = Lane::accepted(link, opened.loan);
                lane.set_flags(side_flags::ACCEPTED);
                self.accepted.push_back(lane);
            }
        }
        self.accepted.pop_front()
    }

    /// Sends bytes from one lane to the other, and waits until all have come.
    fn carry(&mut self, from: &mut Lane, to: &mut Lane, bytes: &[u8]) {
        let (mut sent, mut got) = (0, Vec::with_capacity(bytes.len()));
        self.wait(|_| {
            sent += write(from, &bytes[sent..]);
            got.extend(read(to));
            (got.len() >= bytes.len()).then_some(())
        });
        assert!(got == bytes, "other bytes came");
    }

    /// Sockets that both hosts still have.
    fn connections(&self) -> usize {
        self.peers[0].connections() + self.peers[1].connections()
    }
}
