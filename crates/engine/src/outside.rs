//! Other hosts: their peers and the data plane to them, joined. What each tells is told to the other.
//!
//! ```text
//!  Configuration --> Peers --Output--> Hosts (workers)
//!                      ^  <--Report--    |
//!     listeners, addresses              asks
//!                      |                 v
//!                  CoreEngine <----------+      entries of the directory <-- Peers
//! ```

use crate::core::{Asker, CoreEngine, ListenerNews};
use crate::hosts::{Command, Hosts, Lost, Peer, Report, Rules, Terms};
use crate::part::Part;
use crate::peers::{
    Bounds, Listings, Loss, Output, PeerLimits, PeerSettings, Peers, PeersError, PerClass, Prefix,
    Settings, StartId, Times,
};
use netchannel_abi::address::Address;
use netchannel_configuration::{ChannelOptions, Configuration, SharedKey};
use netchannel_control::hosts as shown;
use netchannel_driver::{Options, Tcp};
use netchannel_scheduler::{ChannelId, Class};
use netchannel_vns::Reason;
use netchannel_wire::Key;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// One start of a peer's daemon, as the data plane has it.
struct Known {
    name: Arc<str>,
    peer: Arc<Peer>,
}

/// Everything that has to do with other hosts.
pub struct Outside {
    peers: Peers,
    hosts: Rc<Hosts>,
    starts: HashMap<StartId, Known>,
    keys: Keys,
    prefixes: HashMap<String, Vec<Prefix>>,
    own: Vec<Address>,
    /// Something was told to the peers, and what comes of it was not looked at.
    touched: bool,
}

impl std::fmt::Debug for Outside {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Outside").finish_non_exhaustive()
    }
}

/// Keys by peer: the same contents stay the same key.
type Keys = HashMap<String, (SharedKey, Arc<Key>)>;

impl Outside {
    /// Opens the doors.
    ///
    /// # Errors
    /// What is in the way.
    pub fn new(configuration: &Configuration, hosts: Rc<Hosts>) -> Result<Self, PeersError> {
        let mut keys = Keys::new();
        let settings = settings(configuration, &mut keys);
        let prefixes = prefixes(&settings);
        Ok(Self {
            peers: Peers::new(settings, Box::new(Tcp))?,
            hosts,
            starts: HashMap::new(),
            keys,
            prefixes,
            own: Vec::new(),
            touched: true,
        })
    }

    /// Readable when peers have something to do.
    pub fn peers_descriptor(&self) -> BorrowedFd<'_> {
        self.peers.descriptor()
    }

    /// Readable when the data plane tells something.
    pub fn hosts_descriptor(&self) -> BorrowedFd<'_> {
        self.hosts.bell()
    }

    /// When there is something to do at the latest.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        self.peers.deadline(now)
    }

    /// A channel comes in or can go on.
    pub const fn on_peers(&mut self) {
        self.touched = true;
    }

    /// The addresses of this host besides loopback.
    pub fn on_addresses(&mut self, addresses: &[Address]) {
        self.own = addresses.to_vec();
        self.peers.on_addresses(addresses);
        self.refresh_rules();
        self.touched = true;
    }

    /// What the data plane has told.
    pub fn on_hosts(&mut self, core: &mut CoreEngine, now: Instant) {
        for report in self.hosts.take_reports() {
            match report {
                Report::Ask(ask) => {
                    core.answer(ask, Asker::Hosts);
                    continue;
                }
                Report::ChannelLost { line, reason } => {
                    self.peers.on_lost(line, &loss(reason), now);
                }
                Report::GoAway { line, reason } => self.peers.on_goaway(line, reason, now),
                Report::Heard { line, announcement } => {
                    self.peers.on_announcement(line, announcement, now);
                }
            }
            self.touched = true;
        }
    }

    /// Does what is due, and tells everybody what came of it. Costs nothing where nothing happened.
    pub fn tend(&mut self, core: &mut CoreEngine, now: Instant) {
        for news in core.take_news() {
            match news {
                ListenerNews::Listens(number, listener) => self.peers.on_listener(number, listener),
                ListenerNews::Gone(number) => self.peers.on_listener_gone(number),
            }
            self.touched = true;
        }
        let due = self.peers.deadline(now).is_some_and(|due| due <= now);
        if !std::mem::take(&mut self.touched) && !due {
            return;
        }
        self.peers.work(now);
        for output in self.peers.take_outputs() {
            self.obey(output);
        }
        let mut directory = Shown {
            core,
            hosts: &self.hosts,
            starts: &self.starts,
        };
        self.peers.publish(&mut directory, now);
    }

    fn obey(&mut self, output: Output) {
        let hosts = &self.hosts;
        match output {
            Output::Began { start, peer, terms } => {
                let rules = Rules {
                    peer: self.prefixes.get(&*peer).cloned().unwrap_or_default(),
                    own: self.own.clone(),
                };
                let known = Known {
                    name: peer,
                    peer: Peer::new(start.0, agreed(&terms), rules),
                };
                self.starts.insert(start, known);
            }
            Output::Up {
                line,
                channel,
                rest,
            } => {
                if let Some(known) = self.starts.get(&line.start) {
                    hosts.tell(Command::Channel {
                        peer: Arc::clone(&known.peer),
                        line: line.id,
                        id: ChannelId {
                            class: class(line.class),
                            number: line.number.into(),
                        },
                        channel,
                        rest,
                    });
                }
            }
            Output::Retire(line, reason) => hosts.tell(Command::Retire {
                line: line.id,
                class: class(line.class),
                reason,
            }),
            Output::Cut(line) => hosts.tell(Command::Cut {
                line: line.id,
                class: class(line.class),
            }),
            Output::Frames(line, bytes) => hosts.tell(Command::Frames {
                line: line.id,
                class: class(line.class),
                bytes,
            }),
            Output::Unreachable(start) => {
                if let Some(known) = self.starts.get(&start) {
                    hosts.tell(Command::Fail {
                        peer: Arc::clone(&known.peer),
                        reason: Reason::Unreachable,
                        ends: false,
                    });
                }
            }
            Output::Ended(start) => {
                if let Some(known) = self.starts.remove(&start) {
                    hosts.tell(Command::Fail {
                        peer: known.peer,
                        reason: Reason::Restarted,
                        ends: true,
                    });
                }
            }
        }
    }

    fn refresh_rules(&self) {
        for known in self.starts.values() {
            let prefixes = self.prefixes.get(&*known.name);
            *known.peer.rules() = Rules {
                peer: prefixes.cloned().unwrap_or_default(),
                own: self.own.clone(),
            };
        }
    }
}

/// The directory, for peers.
struct Shown<'a> {
    core: &'a mut CoreEngine,
    hosts: &'a Hosts,
    starts: &'a HashMap<StartId, Known>,
}

impl Listings for Shown<'_> {
    fn insert(&mut self, start: StartId, theirs: u32, address: &Address) -> Option<u32> {
        let known = self.starts.get(&start)?;
        let number = self.core.next_remote();
        // First: a program can connect as soon as it sees the entry.
        self.hosts.tell(Command::Listener {
            number,
            peer: Arc::clone(&known.peer),
            theirs,
        });
        if self.core.add_remote(number, address).is_err() {
            self.hosts.tell(Command::Unlisten(number));
            return None;
        }
        Some(number)
    }

    fn remove(&mut self, number: u32) {
        self.core.remove_remote(number);
        self.hosts.tell(Command::Unlisten(number));
    }
}

impl Part for Outside {
    fn show(&self, hosts: &mut shown::Hosts) {
        let view = self.peers.view(Instant::now());
        hosts.host_id = view.host.to_string();
        hosts.epoch = format!("{:016x}", self.peers.epoch());
        hosts.listen = view.listens.iter().map(ToString::to_string).collect();
        let refused = view.refused.into_iter();
        hosts
            .refused
            .extend(refused.map(|(reason, count)| shown::Refused {
                reason: reason.to_owned(),
                count,
            }));
        for peer in view.peers {
            for line in &peer.lines {
                let class = match line.class {
                    netchannel_wire::Class::Latency => shown::Class::Latency,
                    netchannel_wire::Class::Throughput => shown::Class::Throughput,
                };
                let channel = hosts.channel_mut(&peer.name, class, line.number.into());
                channel.state = shown::State::Up;
                channel.since_seconds = line.age.as_secs();
                "tcp".clone_into(&mut channel.transport);
                channel.dialled = line.dialled;
                if let Some((local, remote)) = line.ends {
                    channel.local = local.to_string();
                    channel.remote = remote.to_string();
                }
            }
            let known = peer.start.and_then(|(start, _)| self.starts.get(&start));
            show_peer(&peer, known, hosts.peer_mut(&peer.name));
        }
    }

    fn configure(&mut self, configuration: &Arc<Configuration>) -> Vec<String> {
        let settings = settings(configuration, &mut self.keys);
        self.prefixes = prefixes(&settings);
        self.touched = true;
        let applied = self.peers.apply(settings, Instant::now());
        self.refresh_rules();
        applied.err().iter().map(ToString::to_string).collect()
    }
}

fn show_peer(peer: &crate::peers::PeerView, known: Option<&Known>, to: &mut shown::Peer) {
    let up = |class| {
        let lines = peer.lines.iter().filter(|line| line.class == class);
        lines.count() as u64
    };
    to.state = match (peer.lines.is_empty(), peer.opening) {
        (false, _) => shown::State::Up,
        (true, true) => shown::State::Opening,
        (true, false) => shown::State::Down,
    };
    to.reason.clone_from(&peer.trouble);
    to.since_seconds = peer.since.map_or(0, |since| since.as_secs());
    to.host_id = peer
        .start
        .map_or_else(String::new, |(_, host)| host.to_string());
    to.latency.up = up(netchannel_wire::Class::Latency);
    to.throughput.up = up(netchannel_wire::Class::Throughput);
    to.listeners = peer.entries as u64;
    to.announced = peer.told as u64;
    to.dials = peer.counters.dialled;
    to.failed_dials = peer.counters.failed;
    to.lost_channels = peer.counters.lost;
    to.violations = peer.counters.violations;
    to.restarts = peer.counters.starts.saturating_sub(1);
    if let Some(known) = known {
        let counters = &known.peer.counters;
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        to.sockets = known.peer.connections() as u64;
        to.opened = read(&counters.opened);
        to.traffic = shown::Traffic {
            sent_bytes: read(&counters.bytes_sent),
            received_bytes: read(&counters.bytes_received),
            sent_segments: read(&counters.segments_sent),
            received_segments: read(&counters.segments_received),
            sent_control: read(&counters.control_sent),
            received_control: 0,
            repeated_bytes: read(&counters.bytes_repeated),
            writes: read(&counters.writes),
            reads: read(&counters.reads),
        };
    }
}

fn loss(lost: Lost) -> Loss {
    match lost {
        Lost::Parted => Loss::Parted,
        Lost::Ended => Loss::Broken("the other end closed it".to_owned()),
        Lost::Failed(error) => Loss::Broken(error.to_string()),
        Lost::Violation(violation) => Loss::Violation(violation.to_string()),
        Lost::Silent => Loss::Silent,
        Lost::Cut => Loss::Broken("this host ended it".to_owned()),
    }
}

const fn class(class: netchannel_wire::Class) -> Class {
    match class {
        netchannel_wire::Class::Latency => Class::Latency,
        netchannel_wire::Class::Throughput => Class::Throughput,
    }
}

const fn agreed(terms: &crate::peers::Terms) -> Terms {
    let crate::peers::Terms { ours, theirs } = terms;
    Terms {
        payload: theirs.payload,
        own_payload: ours.payload,
        sockets: ours.sockets,
        peer_sockets: theirs.sockets,
        silence: ours.silence as u64 * 1_000_000,
        peer_silence: theirs.silence as u64 * 1_000_000,
    }
}

fn prefixes(settings: &Settings) -> HashMap<String, Vec<Prefix>> {
    let peers = settings.peers.iter();
    peers
        .map(|peer| (peer.name.clone(), peer.prefixes.clone()))
        .collect()
}

/// What the configuration says, as the peers take it.
fn settings(configuration: &Configuration, keys: &mut Keys) -> Settings {
    let former = std::mem::take(keys);
    let peers = configuration.peers.iter().map(|peer| {
        let same = former
            .get(&peer.name)
            .filter(|(key, _)| key.is_same(&peer.key));
        let key = match same {
            Some((_, key)) => Arc::clone(key),
            None => Arc::new(peer.key.key().clone()),
        };
        keys.insert(peer.name.clone(), (peer.key.clone(), Arc::clone(&key)));
        let prefixes = peer.prefixes.iter().map(|prefix| Prefix {
            address: prefix.address(),
            length: prefix.length(),
        });
        let bounds = |bounds: netchannel_configuration::Bounds| Bounds {
            least: bounds.least,
            most: bounds.most,
        };
        PeerSettings {
            name: peer.name.clone(),
            addresses: peer.addresses.clone(),
            prefixes: prefixes.collect(),
            key,
            channels: PerClass {
                latency: bounds(peer.channels.latency),
                throughput: bounds(peer.channels.throughput),
            },
        }
    });
    let options = |said: &ChannelOptions| Options {
        congestion_control: said.congestion_control.clone(),
        send_buffer: said.send_buffer,
        receive_buffer: said.receive_buffer,
        priority: said.priority,
        dscp: said.dscp,
        ..Options::default()
    };
    let (times, limits) = (&configuration.times, &configuration.limits);
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    Settings {
        listen: configuration.host.listen.clone(),
        peers: peers.collect(),
        options: PerClass {
            latency: options(&configuration.transport.latency),
            throughput: options(&configuration.transport.throughput),
        },
        times: Times {
            dial: times.dial,
            handshake: times.handshake,
            silence: times.silence,
            retry_least: times.retry_least,
            retry_most: times.retry_most,
            unreachable: times.unreachable,
        },
        limits: PeerLimits {
            payload: limits.segment,
            sockets: limits.sockets_per_peer,
            listeners: count(limits.listeners_per_peer),
            half_open: count(limits.half_open),
        },
    }
}
