//! Hosts in one process: their peers, and a data plane that only says what a channel must.

use crate::peers::{
    Announcement, Bounds, ChannelInstance, ChannelRef, Listings, Loss, OwnListener, PeerLimits,
    PeerSettings, Peers, PerClass, Settings, StartId, Times,
};
use crate::prefix::Prefix;
use netchannel_abi::address::Address;
use netchannel_driver::{Channel, Dequeued, Room, Run, Tcp};
use netchannel_wire::{Class, Frame, GoAwayReason, Key, Parser, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Nothing takes longer in a test.
const PATIENCE: Duration = Duration::from_secs(20);

/// A channel as this data plane has it.
pub struct Working {
    pub channel: ChannelRef,
    transport: Box<dyn Channel>,
    parser: Parser,
    unread: Vec<u8>,
    unsent: Vec<u8>,
    said: bool,
}

/// What came out of the peers, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Began(StartId),
    Up(ChannelRef),
    Retire(ChannelInstance, GoAwayReason),
    Cut(ChannelInstance),
    Unreachable(StartId),
    Ended(StartId),
    GoAway(ChannelInstance, GoAwayReason),
    Lost(ChannelInstance, Loss),
}

/// The directory.
#[derive(Default)]
pub struct Shown {
    pub rows: BTreeMap<u32, (StartId, u32, Address)>,
    last: u32,
    pub most: Option<usize>,
}

impl Listings for Shown {
    fn insert(&mut self, start: StartId, theirs: u32, address: &Address) -> Option<u32> {
        if self.most.is_some_and(|most| self.rows.len() >= most) {
            return None;
        }
        self.last += 1;
        self.rows.insert(self.last, (start, theirs, *address));
        Some(self.last)
    }

    fn remove(&mut self, number: u32) {
        assert!(self.rows.remove(&number).is_some(), "{number} is not there");
    }
}

/// One host.
pub struct Host {
    pub peers: Peers,
    pub settings: Settings,
    pub working: Vec<Working>,
    pub events: Vec<Event>,
    pub shown: Shown,
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn key(letter: char) -> Arc<Key> {
    let text: String = [letter, '-'].into_iter().cycle().take(40).collect();
    Arc::new(Key::from_contents(text.as_bytes()).unwrap())
}

pub fn quick() -> Times {
    Times {
        dial: Duration::from_secs(2),
        handshake: Duration::from_millis(500),
        silence: Duration::from_secs(5),
        retry_least: Duration::from_millis(5),
        retry_most: Duration::from_millis(100),
        unreachable: Duration::from_millis(300),
        ..Times::default()
    }
}

/// Announces addresses that begin with 10.`letter`.
pub fn peer(name: &str, addresses: Vec<SocketAddr>, prefix: &str, key: &Arc<Key>) -> PeerSettings {
    let bounds = Bounds { least: 2, most: 3 };
    PeerSettings {
        name: name.to_owned(),
        addresses,
        prefixes: vec![Prefix {
            address: ip(prefix),
            length: 16,
        }],
        key: Arc::clone(key),
        channels: PerClass {
            latency: Bounds { least: 1, most: 2 },
            throughput: bounds,
        },
    }
}

impl Host {
    /// A host at this address, without peers.
    pub fn new(address: &str) -> Self {
        let settings = Settings {
            listen: vec![SocketAddr::new(ip(address), 0)],
            times: quick(),
            limits: PeerLimits {
                half_open: 8,
                listeners: 20,
                ..PeerLimits::default()
            },
            ..Settings::default()
        };
        Self {
            peers: Peers::new(settings.clone(), Box::new(Tcp)).unwrap(),
            settings,
            working: Vec::new(),
            events: Vec::new(),
            shown: Shown::default(),
        }
    }

    /// Where it can be dialled.
    pub fn address(&self) -> SocketAddr {
        self.peers.view(Instant::now()).listens[0]
    }

    /// Takes the settings as they were changed.
    pub fn apply(&mut self) {
        let applied = self.peers.apply(self.settings.clone(), Instant::now());
        applied.unwrap();
    }

    pub fn add_peer(&mut self, peer: PeerSettings) {
        self.settings.peers.push(peer);
        self.apply();
    }

    /// Starts its daemon anew, at the same address.
    pub fn restart(&mut self) {
        self.working.clear();
        self.settings.listen = vec![self.address()];
        let settings = self.settings.clone();
        // The port must be free before.
        let empty = Peers::new(Settings::default(), Box::new(Tcp)).unwrap();
        drop(std::mem::replace(&mut self.peers, empty));
        self.peers = Peers::new(settings, Box::new(Tcp)).unwrap();
        self.shown = Shown::default();
    }

    /// Channels that its peer takes for up.
    pub fn channels(&self) -> BTreeSet<(u8, u16)> {
        let view = self.peers.view(Instant::now());
        let channels = view.peers.iter().flat_map(|peer| &peer.channels);
        channels
            .map(|channel| (channel.class.code(), channel.number))
            .collect()
    }

    pub fn counters(&self) -> crate::peers::Counters {
        self.peers.view(Instant::now()).peers[0].counters
    }

    /// A listener of this host.
    pub fn listen(&mut self, number: u32, address: Address) {
        let listener = OwnListener {
            address,
            v6_only: false,
            defers: 0,
        };
        self.peers.on_listener(number, listener);
    }

    /// What the directory shows: address and port, and the other's number.
    pub fn shown(&self) -> BTreeSet<(String, u32)> {
        let rows = self.shown.rows.values();
        rows.map(|(_, theirs, address)| (shown(address), *theirs))
            .collect()
    }

    /// Everything that can be done now.
    pub fn step(&mut self) {
        let now = Instant::now();
        self.peers.work(now);
        self.settle(now);
        for index in (0..self.working.len()).rev() {
            self.work(index, now);
        }
        self.settle(now);
    }

    fn settle(&mut self, now: Instant) {
        for output in self.peers.take_outputs() {
            self.obey(output, now);
        }
        self.peers.publish(&mut self.shown, now);
    }

    fn obey(&mut self, output: crate::peers::Output, now: Instant) {
        use crate::peers::Output;
        match output {
            Output::Started { start, .. } => self.events.push(Event::Began(start)),
            Output::Up {
                channel,
                transport,
                rest,
            } => {
                let mut parser = Parser::new(1 << 18);
                parser.open();
                self.working.push(Working {
                    channel,
                    transport,
                    parser,
                    unread: rest,
                    unsent: Vec::new(),
                    said: false,
                });
                self.events.push(Event::Up(channel));
            }
            Output::Retire(channel, reason) => {
                self.events.push(Event::Retire(channel.instance, reason));
                if let Some(working) = self.working_on(channel.instance) {
                    working.refuse_stranger(reason);
                }
            }
            Output::Close(channel) => {
                self.events.push(Event::Cut(channel.instance));
                self.cut(channel.instance, Loss::Broken("cut".to_owned()), now);
            }
            Output::Frames(channel, bytes) => {
                if let Some(working) = self.working_on(channel.instance) {
                    assert!(!working.said, "nothing follows GOAWAY");
                    working.unsent.extend(bytes);
                }
            }
            Output::Down(_) => {}
            Output::Unreachable(start) => self.events.push(Event::Unreachable(start)),
            Output::Ended(start) => {
                self.events.push(Event::Ended(start));
                self.working
                    .retain(|working| working.channel.start != start);
            }
        }
    }

    pub fn working_on(&mut self, id: ChannelInstance) -> Option<&mut Working> {
        self.working
            .iter_mut()
            .find(|one| one.channel.instance == id)
    }

    /// Ends a channel and says so.
    pub fn cut(&mut self, id: ChannelInstance, loss: Loss, now: Instant) {
        self.working
            .retain(|working| working.channel.instance != id);
        self.events.push(Event::Lost(id, loss.clone()));
        self.peers.on_lost(id, &loss, now);
    }

    fn work(&mut self, index: usize, now: Instant) {
        let working = &mut self.working[index];
        let id = working.channel.instance;
        if let Err(loss) = working.flush().and_then(|()| working.fill()) {
            return self.cut(id, loss, now);
        }
        loop {
            let working = &mut self.working[index];
            let step = match working.parser.next(&working.unread) {
                Ok(step) => step,
                Err(violation) => {
                    return self.cut(id, Loss::Violation(violation.to_string()), now);
                }
            };
            let consumed = step.consumed();
            let mut heard = None;
            match step {
                Step::NeedMore { .. } => return,
                Step::Data { .. } => {}
                Step::Frame { frame, .. } => match frame {
                    Frame::GoAway(reason) => {
                        working.refuse_stranger(GoAwayReason::Retired);
                        let _ = working.flush();
                        self.events.push(Event::GoAway(id, reason));
                        self.peers.on_goaway(id, reason, now);
                        return self.cut(id, Loss::Completed, now);
                    }
                    Frame::Ping(number) => working.say(&Frame::Pong(number)),
                    Frame::Addresses(it) => {
                        heard = Some(Announcement::Addresses(it.serial, it.list.iter().collect()));
                    }
                    Frame::Listen(it) => heard = Some(Announcement::Listen(it)),
                    Frame::Unlisten(it) => heard = Some(Announcement::Unlisten(it)),
                    Frame::ListenEnd(it) => heard = Some(Announcement::ListenEnd(it)),
                    other => panic!("{other:?}"),
                },
            }
            working.unread.drain(..consumed);
            if let Some(announcement) = heard {
                self.peers.on_announcement(id, announcement, now);
            }
        }
    }
}

impl Working {
    pub fn say(&mut self, frame: &Frame<'_>) {
        let mut bytes = [0; 6000];
        let length = frame.encode(&mut bytes).unwrap();
        self.unsent.extend(&bytes[..length]);
    }

    pub fn say_bytes(&mut self, bytes: &[u8]) {
        self.unsent.extend(bytes);
    }

    fn refuse_stranger(&mut self, reason: GoAwayReason) {
        if !std::mem::replace(&mut self.said, true) {
            self.say(&Frame::GoAway(reason));
        }
    }

    /// As a broken network does it.
    pub fn break_transport(&mut self) {
        self.transport.shut_down();
    }

    fn flush(&mut self) -> Result<(), Loss> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let sent = self.transport.enqueue(&[Run::from(&self.unsent[..])]);
        let sent = sent.map_err(|error| Loss::Broken(error.to_string()))?;
        self.unsent.drain(..sent);
        Ok(())
    }

    fn fill(&mut self) -> Result<(), Loss> {
        let mut buffer = [0; 8192];
        match self.transport.dequeue(&[Room::from(&mut buffer[..])]) {
            Ok(Dequeued::Bytes(count)) => self.unread.extend(&buffer[..count]),
            Ok(Dequeued::Waits) => {}
            Ok(Dequeued::End) => return Err(Loss::Broken("the end".to_owned())),
            Err(error) => return Err(Loss::Broken(error.to_string())),
        }
        Ok(())
    }
}

/// Goes round until something is so.
pub fn until(hosts: &mut [&mut Host], what: &str, mut is_so: impl FnMut(&mut [&mut Host]) -> bool) {
    let start = Instant::now();
    loop {
        for host in hosts.iter_mut() {
            host.step();
        }
        if is_so(hosts) {
            return;
        }
        if start.elapsed() > PATIENCE {
            for host in hosts.iter() {
                eprintln!("{:#?}\n{:#?}", host.peers.view(Instant::now()), host.events);
            }
            panic!("never: {what}");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Goes round for a while.
pub fn wait(hosts: &mut [&mut Host], time: Duration) {
    let start = Instant::now();
    until(hosts, "time passes", |_| start.elapsed() > time);
}

/// All channels that two hosts are to have.
pub fn all_channels() -> BTreeSet<(u8, u16)> {
    let (latency, throughput) = (Class::Latency.code(), Class::Throughput.code());
    BTreeSet::from([(latency, 0), (throughput, 0), (throughput, 1)])
}

/// Two hosts that know each other, at 127.`place`.0.1 and .2. They announce 10.1 and 10.2.
pub fn two(place: u8) -> (Host, Host) {
    let mut a = Host::new(&format!("127.{place}.0.1"));
    let mut b = Host::new(&format!("127.{place}.0.2"));
    let shared = key('k');
    a.add_peer(peer("b", vec![b.address()], "10.2.0.0", &shared));
    b.add_peer(peer("a", vec![a.address()], "10.1.0.0", &shared));
    (a, b)
}

/// Until both have all channels, and nothing moves any more.
pub fn come_up(a: &mut Host, b: &mut Host) {
    until(&mut [a, b], "all channels are up", |hosts| {
        let agree = hosts.iter().all(|host| {
            host.channels() == all_channels() && host.working.len() == all_channels().len()
        });
        agree && hosts[0].working_names() == hosts[1].working_names()
    });
}

impl Host {
    /// The two ports of each channel: equal at both ends only if both mean the same connection.
    pub fn working_names(&self) -> BTreeSet<(u8, u16, BTreeSet<SocketAddr>)> {
        let names = self.working.iter().map(|working| {
            let descriptor = working.transport.descriptor();
            let ends = [
                rustix::net::getsockname(descriptor).ok(),
                rustix::net::getpeername(descriptor).ok().flatten(),
            ];
            let ends = ends.into_iter().flatten();
            let ends = ends.filter_map(|end| SocketAddr::try_from(end).ok());
            let channel = working.channel;
            (channel.class.code(), channel.number, ends.collect())
        });
        names.collect()
    }
}

pub fn shown(address: &Address) -> String {
    netchannel_service::addresses::shown(address)
}
