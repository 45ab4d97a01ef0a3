//! The module's half on the daemon's thread: it joins the peers with the data plane, and passes the output of each to
//! the other.
//!
//! ```text
//!  Configuration --> Peers --Output--> Hosts (workers)
//!                      ^  <--Report--    |
//!     listeners, addresses              asks
//!                      |                 v
//!                  CoreEngine <----------+      entries of the directory <-- Peers
//! ```

use crate::class::{from_wire, to_wire};
use crate::data_plane::{Command, DataPlane, FailureScope, Listed, Lost, Peer, Report, Rules};
use crate::peers::{Listings, Loss, Output, Peers, PeersError, StartId};
use crate::published::Published;
use crate::scaling::{Scaled, Scaling};
use crate::settings::{Keys, agreed, prefixes, settings};
use crate::state::{ChannelsStack, KnownStart, all_channels};
use netchannel_abi::address::Address;
use netchannel_configuration::Configuration;
use netchannel_driver::{Tcp, Transport, transport};
use netchannel_scheduler::ChannelId;
use netchannel_service::core_engine::{self, Engine, ListenerChange, OwnListener, StackRequest};
use netchannel_service::published_ports::PublishedPorts;
use netchannel_service::stack::{Crossing, Cursor, RemoteConnection, Stack, StackHandle};
use netchannel_vns::Reason;
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Why the module can not start.
#[derive(Debug, thiserror::Error)]
pub enum ChannelsError {
    /// Its threads can not be started.
    #[error("cannot start the threads for other hosts ({0})")]
    Workers(#[from] Errno),
    /// The peers can not be started.
    #[error(transparent)]
    Peers(#[from] PeersError),
}

/// The transport that the configuration names. The configuration accepts only names of existing transports.
fn carrier(configuration: &Configuration) -> Box<dyn Transport> {
    transport(&configuration.carrier).unwrap_or_else(|| Box::new(Tcp))
}

impl ChannelsStack {
    /// Starts the module: its threads, and the sockets where peers connect.
    ///
    /// # Errors
    /// The first error.
    pub fn start(
        configuration: &Arc<Configuration>,
        owners: PublishedPorts,
    ) -> Result<Self, ChannelsError> {
        let workers = configuration.limits.workers();
        let plane = DataPlane::start(&configuration.scheduler, workers, owners)?;
        let mut keys = Keys::new();
        let settings = settings(configuration, &mut keys);
        let prefixes = prefixes(&settings);
        Ok(Self {
            peers: Peers::new(settings, carrier(configuration))?,
            made: Instant::now(),
            carrier: configuration.carrier.clone(),
            plane: Rc::new(plane),
            starts: HashMap::new(),
            past: HashMap::new(),
            scaling: Scaling::default(),
            configuration: Arc::clone(configuration),
            keys,
            prefixes,
            own: Vec::new(),
            published: Published::default(),
            has_news: true,
        })
    }

    /// Handles the reports of the data plane.
    fn on_reports(&mut self, engine: &mut dyn Engine, now: Instant) {
        for report in self.plane.take_reports() {
            match report {
                Report::Request(StackRequest::Link(number, to)) => {
                    match self.published.link(number, engine) {
                        Some(answer) => self.command(core_engine::Command::Link(number, answer)),
                        None => engine.request(StackRequest::Link(number, to)),
                    }
                    continue;
                }
                Report::Request(request) => {
                    engine.request(request);
                    continue;
                }
                Report::Published(ports) => {
                    let changes = self.published.set(&ports, || engine.next_remote());
                    for number in changes.removed {
                        self.peers.on_listener_removed(number);
                        self.command(core_engine::Command::ListenerClosed(number));
                    }
                    for (number, listener) in changes.added {
                        self.peers.on_listener(number, listener);
                    }
                }
                Report::ChannelLost { instance, reason } => {
                    self.peers.on_lost(instance, &loss(reason), now);
                }
                Report::GoAway { instance, reason } => self.peers.on_goaway(instance, reason, now),
                Report::Busy => {
                    self.start_sampling(now);
                    continue;
                }
                Report::Announced {
                    instance,
                    announcement,
                } => {
                    self.peers.on_announcement(instance, announcement, now);
                }
            }
            self.has_news = true;
        }
    }

    fn command(&self, command: core_engine::Command) {
        self.plane.send(Command::Links(command));
    }

    /// Does the work that is due and passes on the results. Costs nothing where nothing happened.
    fn work(&mut self, engine: &mut dyn Engine, now: Instant) {
        self.scale(now);
        let due = self.peers.deadline(now).is_some_and(|due| due <= now);
        if !std::mem::take(&mut self.has_news) && !due {
            return;
        }
        self.peers.work(now);
        for output in self.peers.take_outputs() {
            self.execute(output);
        }
        let mut directory = Shown {
            engine,
            plane: &self.plane,
            starts: &self.starts,
        };
        self.peers.publish(&mut directory, now);
        engine.set_networks(self.peers.networks());
    }

    /// Starts sampling the load of the workers.
    fn start_sampling(&mut self, now: Instant) {
        self.plane.set_sampled(true);
        self.scaling.begin(self.busy(), self.plane.clock(), now);
    }

    fn busy(&self) -> Vec<u64> {
        let gauges = self.plane.gauges().iter();
        gauges.map(|one| one.busy.load(Ordering::Relaxed)).collect()
    }

    /// Lets the policies decide the number of channels.
    fn scale(&mut self, now: Instant) {
        if self.scaling.deadline().is_none_or(|at| at > now) {
            return;
        }
        let view = self.peers.view(now);
        let scaled: Vec<Scaled<'_>> = view
            .peers
            .iter()
            .filter_map(|peer| {
                let known = self.starts.get(&peer.start?.0)?;
                let settings = &self.configuration.peers;
                let settings = settings.iter().find(|one| *one.name == *peer.name)?;
                let channels = settings.channels;
                Some(Scaled {
                    name: &peer.name,
                    setting: &settings.scale,
                    channels: all_channels(peer, known),
                    least: [channels.latency.least, channels.throughput.least],
                })
            })
            .collect();
        let (busy, clock) = (self.busy(), self.plane.clock());
        let (wanted, goes_on) = self.scaling.look(busy, clock, &scaled, now);
        if !goes_on {
            self.plane.set_sampled(false);
        }
        for wanted in wanted {
            let peer = view.peers.iter().find(|peer| *peer.name == *wanted.peer);
            if let Some((start, _)) = peer.and_then(|peer| peer.start) {
                let class = to_wire(wanted.class);
                self.peers
                    .set_channel_count(start, class, wanted.count, now);
                self.has_news = true;
            }
        }
    }

    fn execute(&mut self, output: Output) {
        let plane = &self.plane;
        match output {
            Output::Started { start, peer, terms } => {
                let rules = Rules {
                    peer: self.prefixes.get(&*peer).cloned().unwrap_or_default(),
                    own: self.own.clone(),
                    connect: self.connect_timeout(),
                    has_others: self.has_others(&peer),
                };
                let known = KnownStart {
                    name: peer,
                    peer: Peer::new(start.0, agreed(&terms), rules),
                };
                self.starts.insert(start, known);
            }
            Output::Up {
                channel,
                transport,
                rest,
            } => {
                if let Some(known) = self.starts.get(&channel.start) {
                    plane.send(Command::Channel {
                        peer: Arc::clone(&known.peer),
                        instance: channel.instance,
                        id: ChannelId {
                            class: from_wire(channel.class),
                            number: channel.number.into(),
                        },
                        channel: transport,
                        rest,
                    });
                }
            }
            Output::Retire(channel, reason) => plane.send(Command::Retire {
                instance: channel.instance,
                reason,
            }),
            Output::Close(channel) => plane.send(Command::Close {
                instance: channel.instance,
            }),
            Output::Frames(channel, bytes) => plane.send(Command::Frames {
                instance: channel.instance,
                bytes,
            }),
            Output::Down(start) => {
                if let Some(known) = self.starts.get(&start) {
                    plane.send(Command::Fail {
                        peer: Arc::clone(&known.peer),
                        reason: Reason::Ending,
                        what: FailureScope::Connects,
                    });
                }
            }
            Output::Unreachable(start) => {
                if let Some(known) = self.starts.get(&start) {
                    plane.send(Command::Fail {
                        peer: Arc::clone(&known.peer),
                        reason: Reason::Unreachable,
                        what: FailureScope::Sockets,
                    });
                }
            }
            Output::Ended(start) => {
                if let Some(known) = self.starts.remove(&start) {
                    let counters = &known.peer.counters;
                    let past = self.past.entry(Arc::clone(&known.name)).or_default();
                    past.traffic = past.traffic.plus(known.peer.traffic());
                    past.opened += counters.opened.load(Ordering::Relaxed);
                    past.refused += counters.refused.load(Ordering::Relaxed);
                    plane.send(Command::Fail {
                        peer: known.peer,
                        reason: Reason::Restarted,
                        what: FailureScope::Start,
                    });
                }
            }
        }
    }

    fn connect_timeout(&self) -> Option<u64> {
        u64::try_from(self.configuration.times.connect.as_nanos()).ok()
    }

    /// Applies another configuration.
    fn apply(&mut self, configuration: &Arc<Configuration>) -> Vec<String> {
        let settings = settings(configuration, &mut self.keys);
        self.prefixes = prefixes(&settings);
        let policies = Arc::new(configuration.scheduler.clone());
        self.plane.send(Command::Policies(policies));
        self.configuration = Arc::clone(configuration);
        // Another policy may want another number of channels at once.
        self.start_sampling(Instant::now());
        self.has_news = true;
        let applied = self.peers.apply(settings, Instant::now());
        self.refresh_rules();
        applied.err().iter().map(ToString::to_string).collect()
    }

    fn refresh_rules(&self) {
        for known in self.starts.values() {
            let prefixes = self.prefixes.get(&*known.name);
            *known.peer.rules() = Rules {
                peer: prefixes.cloned().unwrap_or_default(),
                own: self.own.clone(),
                connect: self.connect_timeout(),
                has_others: self.has_others(&known.name),
            };
        }
    }

    /// Whether a peer has more than one address.
    fn has_others(&self, name: &str) -> bool {
        let mut peers = self.configuration.peers.iter();
        peers.any(|peer| peer.name == name && peer.addresses.len() > 1)
    }
}

impl Stack for ChannelsStack {
    fn name(&self) -> &'static str {
        "channels"
    }

    fn handle(&self) -> Rc<dyn StackHandle> {
        Rc::clone(&self.plane) as Rc<dyn StackHandle>
    }

    fn crossing(&self) -> Option<Arc<dyn Crossing>> {
        Some(self.plane.crossing())
    }

    /// Readable when the peers have work, and when the data plane has reports.
    fn doorbells(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.peers.descriptor(), self.plane.doorbell()]
    }

    fn on_doorbell(&mut self, which: usize, engine: &mut dyn Engine, now: Instant) {
        match which {
            // A channel comes in, or a handshake can go on.
            0 => self.has_news = true,
            _ => self.on_reports(engine, now),
        }
    }

    fn on_loop_pass(&mut self, engine: &mut dyn Engine, now: Instant) {
        self.work(engine, now);
    }

    fn deadline(&self, now: Instant) -> Option<Instant> {
        let peers = self.peers.deadline(now);
        peers.into_iter().chain(self.scaling.deadline()).min()
    }

    fn on_listener(&mut self, news: ListenerChange) {
        match news {
            // The kernel defers connections from other hosts.
            ListenerChange::Added(number, OwnListener { defers: 1.., .. }) => {
                self.plane.set_deferring(number, true);
                self.peers.on_listener_removed(number);
            }
            ListenerChange::Added(number, listener) => {
                self.plane.set_deferring(number, false);
                self.peers.on_listener(number, listener);
            }
            ListenerChange::Removed(number) => {
                self.plane.set_deferring(number, false);
                self.peers.on_listener_removed(number);
            }
        }
        self.has_news = true;
    }

    fn on_addresses(&mut self, addresses: &[Address]) {
        self.own = addresses.to_vec();
        self.peers.on_addresses(addresses);
        self.refresh_rules();
        self.has_news = true;
    }

    fn show(&self, hosts: &mut netchannel_control::hosts::Hosts) {
        self.show_hosts(hosts);
    }

    fn remote_connections(
        &self,
        from: Cursor,
        most: usize,
    ) -> (Vec<RemoteConnection>, Option<Cursor>) {
        self.page_of_connections(from, most)
    }

    fn connections(&self) -> u64 {
        let starts = self.starts.values();
        starts.map(|known| known.peer.connections() as u64).sum()
    }

    fn configure(&mut self, configuration: &Arc<Configuration>) -> Vec<String> {
        self.apply(configuration)
    }
}

/// The directory, as the peers use it.
struct Shown<'a> {
    engine: &'a mut dyn Engine,
    plane: &'a DataPlane,
    starts: &'a HashMap<StartId, KnownStart>,
}

impl Listings for Shown<'_> {
    fn insert(&mut self, start: StartId, theirs: u32, address: &Address) -> Option<u32> {
        let known = self.starts.get(&start)?;
        let number = self.engine.next_remote();
        // The worker is told first: a program can connect as soon as it sees the entry.
        let listed = Listed {
            peer: Arc::clone(&known.peer),
            theirs,
            address: *address,
        };
        self.plane.send(Command::Listener { number, listed });
        if self.engine.add_remote(number, address).is_err() {
            self.plane.send(Command::Unlisten(number));
            return None;
        }
        Some(number)
    }

    fn remove(&mut self, number: u32) {
        self.engine.remove_remote(number);
        self.plane.send(Command::Unlisten(number));
    }
}

fn loss(lost: Lost) -> Loss {
    match lost {
        Lost::Completed => Loss::Completed,
        Lost::Ended => Loss::Broken("the other end closed it".to_owned()),
        Lost::Failed(error) => Loss::Broken(error.to_string()),
        Lost::Violation(violation) => Loss::Violation(violation.to_string()),
        Lost::Silent => Loss::Silent,
        Lost::Stalled => Loss::Stalled,
        Lost::Closed => Loss::Broken("this host ended it".to_owned()),
    }
}
