//! Peers as commands and metrics show them.

use super::learned::LeftOut;
use super::peer::{CLASSES, Counters};
use super::service::{Peers, StrangerCounters};
use super::settings::PerClass;
use super::{LineId, StartId};
use crate::class::from_wire;
use netchannel_abi::address::Address;
use netchannel_wire::{Class, HostId};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Everything.
#[derive(Clone, Debug)]
pub struct PeersView {
    /// This host.
    pub host: HostId,
    /// Where other hosts may dial.
    pub listens: Vec<SocketAddr>,
    /// Channels that are not open yet.
    pub half_open: usize,
    /// What strangers did.
    pub strangers: StrangerCounters,
    /// Channels that came in and were refused, by what they were told.
    pub refused: Vec<(&'static str, u64)>,
    /// The peers.
    pub peers: Vec<PeerView>,
}

/// One peer.
#[derive(Clone, Debug)]
pub struct PeerView {
    /// Its name.
    pub name: Arc<str>,
    /// Its daemon, once it was met.
    pub start: Option<(StartId, HostId)>,
    /// Where it is dialled.
    pub addresses: Vec<SocketAddr>,
    /// A channel to it is being made.
    pub opening: bool,
    /// Why it is not up; empty where it is.
    pub trouble: String,
    /// For how long it is up, or is not; none if it never was.
    pub since: Option<Duration>,
    /// Listeners of this host that it was told of.
    pub told: usize,
    /// Channels that are kept up.
    pub wanted: PerClass<u16>,
    /// Channels that are up.
    pub lines: Vec<LineView>,
    /// How long until it is dialled again, where it is.
    pub next_dial: Option<Duration>,
    /// Listeners that it has announced and that are known.
    pub listeners: usize,
    /// Its entries in the directory.
    pub entries: usize,
    /// Ports of these.
    pub ports: Vec<u16>,
    /// What it announced and was left out.
    pub left_out: LeftOut,
    /// Counters.
    pub counters: Counters,
}

/// One channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineView {
    /// Its name on this host.
    pub id: LineId,
    /// Its class.
    pub class: Class,
    /// Its number.
    pub number: u16,
    /// This host has dialled it.
    pub dialled: bool,
    /// For how long it is up.
    pub age: Duration,
    /// Own address, and the peer's.
    pub ends: Option<(SocketAddr, SocketAddr)>,
}

impl Peers {
    /// Where programs of peers may be, in how many bits, and whether the peer is up.
    #[must_use]
    pub fn networks(&self) -> Vec<(Address, u32, bool)> {
        let of_peer = |peer: &super::peer::Peer| {
            let up = peer.is_up();
            let prefixes = peer.settings.prefixes.iter();
            let told = prefixes.map(move |prefix| {
                let address = match prefix.address {
                    IpAddr::V4(ip) => Address::v4(ip.octets(), 0),
                    IpAddr::V6(ip) => Address::v6(ip.octets(), 0, 0),
                };
                (address, u32::from(prefix.length), up)
            });
            told.collect::<Vec<_>>()
        };
        self.peers.values().flat_map(of_peer).collect()
    }

    /// Everything as it is now.
    #[must_use]
    pub fn view(&self, now: Instant) -> PeersView {
        let peers = self.peers.values().map(|peer| {
            let lines = CLASSES
                .into_iter()
                .flat_map(|class| peer.slots.get(from_wire(class)));
            let lines = lines.filter_map(|slot| slot.up).map(|up| LineView {
                id: up.line.id,
                class: up.line.class,
                number: up.line.number,
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
                trouble: peer.trouble.clone(),
                since: peer.since.map(|since| now.saturating_duration_since(since)),
                told: start.map_or(0, |start| start.advertised.count()),
                wanted: peer.wanted,
                lines: lines.collect(),
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
