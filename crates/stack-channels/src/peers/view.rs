//! Peers in the form that commands and metrics show.

use super::learned::LeftOut;
use super::peer::{CLASSES, Counters};
use super::service::{Peers, StrangerCounters};
use super::settings::PerClass;
use super::{ChannelInstance, StartId};
use crate::class::from_wire;
use netchannel_abi::address::Address;
use netchannel_wire::{Class, HostId};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The state of all peers.
#[derive(Clone, Debug)]
pub struct PeersView {
    /// This host.
    pub host: HostId,
    /// The addresses at which other hosts may dial.
    pub listens: Vec<SocketAddr>,
    /// Channels that are not open yet.
    pub half_open: usize,
    /// The counters of strangers.
    pub strangers: StrangerCounters,
    /// Incoming channels that were refused, by the reason that was sent.
    pub refused: Vec<(&'static str, u64)>,
    /// The peers.
    pub peers: Vec<PeerView>,
}

/// The state of one peer.
#[derive(Clone, Debug)]
pub struct PeerView {
    /// Its name.
    pub name: Arc<str>,
    /// The known start of its daemon.
    pub start: Option<(StartId, HostId)>,
    /// The addresses at which it is dialled.
    pub addresses: Vec<SocketAddr>,
    /// A channel to it is being made.
    pub opening: bool,
    /// The reason why it is not up; empty where it is.
    pub down_reason: String,
    /// How long it has been up, or down; `None` if it never was up.
    pub since: Option<Duration>,
    /// The number of this host's listeners that were announced to it.
    pub announced: usize,
    /// The number of channels that are kept up.
    pub wanted: PerClass<u16>,
    /// Channels that are up.
    pub channels: Vec<OpenChannelView>,
    /// The time until it is dialled again, where it is.
    pub next_dial: Option<Duration>,
    /// The number of known listeners of the peer.
    pub listeners: usize,
    /// Its entries in the directory.
    pub entries: usize,
    /// The ports of these entries.
    pub ports: Vec<u16>,
    /// Announcements that were left out.
    pub left_out: LeftOut,
    /// Counters.
    pub counters: Counters,
}

/// The state of one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenChannelView {
    /// Its name on this host.
    pub instance: ChannelInstance,
    /// Its class.
    pub class: Class,
    /// Its number.
    pub number: u16,
    /// This host has dialled it.
    pub dialled: bool,
    /// How long it has been up.
    pub age: Duration,
    /// The addresses of this host and of the peer.
    pub ends: Option<(SocketAddr, SocketAddr)>,
}

impl Peers {
    /// The networks of peers' programs, their prefix length in bits, and whether the peer is up.
    #[must_use]
    pub fn networks(&self) -> Vec<(Address, u32, bool)> {
        let of_peer = |peer: &super::peer::Peer| {
            let up = peer.is_up();
            let prefixes = peer.settings.prefixes.iter();
            let announced = prefixes.map(move |prefix| {
                let address = match prefix.address {
                    IpAddr::V4(ip) => Address::v4(ip.octets(), 0),
                    IpAddr::V6(ip) => Address::v6(ip.octets(), 0, 0),
                };
                (address, u32::from(prefix.length), up)
            });
            announced.collect::<Vec<_>>()
        };
        self.peers.values().flat_map(of_peer).collect()
    }

    /// The state at this time.
    #[must_use]
    pub fn view(&self, now: Instant) -> PeersView {
        let peers = self.peers.values().map(|peer| {
            let channels = CLASSES
                .into_iter()
                .flat_map(|class| peer.slots.get(from_wire(class)));
            let channels = channels
                .filter_map(|slot| slot.up)
                .map(|up| OpenChannelView {
                    instance: up.channel.instance,
                    class: up.channel.class,
                    number: up.channel.number,
                    dialled: up.dialler == self.host,
                    age: now.saturating_duration_since(up.since),
                    ends: up.ends,
                });
            let start = peer.start.as_ref();
            let learned = start.map(|start| &start.learned);
            PeerView {
                name: Arc::clone(&peer.name),
                start: start.map(|start| (start.id, start.host)),
                addresses: peer.settings.addresses.clone(),
                opening: peer.all_slots().any(|slot| slot.dial.is_some()),
                down_reason: peer.down_reason.clone(),
                since: peer.since.map(|since| now.saturating_duration_since(since)),
                announced: start.map_or(0, |start| start.advertised.count()),
                wanted: peer.wanted,
                channels: channels.collect(),
                next_dial: peer
                    .next_dial(now)
                    .map(|next| next.saturating_duration_since(now)),
                listeners: learned.map_or(0, |learned| learned.listeners()),
                entries: learned.map_or(0, |learned| learned.entries()),
                ports: learned.map_or_else(Vec::new, |learned| learned.ports()),
                left_out: learned.map_or(LeftOut::default(), |learned| learned.left_out),
                counters: peer.counters,
            }
        });
        PeersView {
            host: self.host,
            listens: self.acceptors.addresses(),
            half_open: self.table.accepted(),
            strangers: self.strangers,
            refused: self
                .refused
                .iter()
                .map(|(reason, count)| (*reason, *count))
                .collect(),
            peers: peers.collect(),
        }
    }
}
