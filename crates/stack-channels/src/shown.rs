//! The state of other hosts for commands and metrics.

use crate::data_plane::{ConnectionSnapshot, Route, worker_name};
use crate::peers::PeerView;
use crate::state::{ChannelsStack, KnownStart, Past};
use netchannel_configuration::Configuration;
use netchannel_control::hosts as shown;
use netchannel_driver::default_congestion_control;
use netchannel_scheduler::Class;
use netchannel_service::stack::{Cursor, RemoteConnection};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

impl ChannelsStack {
    /// Adds the state of other hosts.
    pub(super) fn show_hosts(&self, hosts: &mut shown::Hosts) {
        let now = Instant::now();
        let view = self.peers.view(now);
        self.scaling.show(&mut hosts.scheduler, now);
        for (index, gauges) in self.plane.gauges().iter().enumerate() {
            let worker = hosts.worker_mut(&worker_name(index));
            let read = |gauge: &AtomicU64| gauge.load(Ordering::Relaxed);
            worker.number = u32::try_from(index).ok();
            worker.core = u32::try_from(read(&gauges.core))
                .unwrap_or(0)
                .checked_sub(1);
            worker.channels = read(&gauges.channels);
            worker.sockets = read(&gauges.sockets);
            worker.sleeps = read(&gauges.sleeps);
        }
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
            let known = peer.start.and_then(|(start, _)| self.starts.get(&start));
            show_channels(&peer, known, (&self.configuration, &self.carrier), hosts);
            let past = self.past.get(&peer.name).copied().unwrap_or_default();
            let to = hosts.peer_mut(&peer.name);
            show_peer(&peer, known, past, to);
            // A peer that was never up has been down since the module started.
            let since = peer.since.unwrap_or_else(|| now.duration_since(self.made));
            to.since_seconds = since.as_secs();
        }
    }

    /// A page of the connections with programs of other hosts.
    pub(super) fn page_of_connections(
        &self,
        from: Cursor,
        most: usize,
    ) -> (Vec<RemoteConnection>, Option<Cursor>) {
        let starts = self.starts.iter();
        let left = starts.filter(|(start, _)| start.0 >= from.start);
        let Some((start, known)) = left.min_by_key(|(start, _)| **start) else {
            return (Vec::new(), None);
        };
        let first = if start.0 == from.start { from.place } else { 0 };
        let (snapshots, next) = known.peer.snapshots(first, most);
        let shown = snapshots
            .iter()
            .map(|snapshot| show_snapshot(snapshot, &known.name));
        let next = match (next, start.0.checked_add(1)) {
            (Some(place), _) => Some(Cursor {
                start: start.0,
                place,
            }),
            (None, after) => after.map(|start| Cursor { start, place: 0 }),
        };
        (shown.collect(), next)
    }
}

/// Adds the channels of a peer: the part of the peers, and the part of the data plane.
fn show_channels(
    peer: &PeerView,
    known: Option<&KnownStart>,
    settings: (&Configuration, &str),
    hosts: &mut shown::Hosts,
) {
    let (up, leaving) = known.map_or_else(Default::default, |known| known.peer.all_routes());
    for route in &leaving {
        let class = shown_class(route.id.class);
        let channel = hosts.channel_mut(&peer.name, class, route.id.number);
        channel.state = shown::State::Draining;
        show_route(route, settings, channel);
    }
    for open in &peer.channels {
        let class = match open.class {
            netchannel_wire::Class::Latency => shown::Class::Latency,
            netchannel_wire::Class::Throughput => shown::Class::Throughput,
        };
        let channel = hosts.channel_mut(&peer.name, class, open.number.into());
        channel.state = shown::State::Up;
        channel.since_seconds = open.age.as_secs();
        channel.dialled = open.dialled;
        if let Some((local, remote)) = open.ends {
            channel.local = local.to_string();
            channel.remote = remote.to_string();
        }
        if let Some(route) = up.iter().find(|route| route.instance == open.instance) {
            show_route(route, settings, channel);
        }
    }
}

fn show_route(
    route: &Route,
    (configuration, carrier): (&Configuration, &str),
    to: &mut shown::ChannelView,
) {
    let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
    carrier.clone_into(&mut to.transport);
    if carrier == "tcp" {
        let options = configuration.transport.get(route.id.class);
        let name = options.congestion_control.clone();
        to.congestion_control = name.unwrap_or_else(|| default_congestion_control().to_owned());
    }
    to.worker = u32::try_from(route.worker).unwrap_or(0);
    to.queued_bytes = route.waiting();
    to.unsent_bytes = read(&route.seen.unsent);
    to.unacknowledged_bytes = read(&route.seen.unacknowledged);
    to.round_trip_microseconds = read(&route.seen.round_trip).div_ceil(1000);
    to.congestion_limited = route.seen.congestion_limited.load(Ordering::Relaxed);
    to.retransmissions = read(&route.seen.retransmissions);
    to.traffic = route.traffic.shown();
}

const fn shown_class(class: Class) -> shown::Class {
    match class {
        Class::Latency => shown::Class::Latency,
        Class::Throughput => shown::Class::Throughput,
    }
}

fn show_peer(peer: &PeerView, known: Option<&KnownStart>, past: Past, to: &mut shown::Peer) {
    let up = |class| {
        let channels = peer
            .channels
            .iter()
            .filter(|channel| channel.class == class);
        channels.count() as u64
    };
    to.state = match (peer.channels.is_empty(), peer.opening) {
        (false, _) => shown::State::Up,
        (true, true) => shown::State::Opening,
        (true, false) => shown::State::Down,
    };
    to.reason.clone_from(&peer.down_reason);
    to.next_try_seconds = peer
        .next_dial
        .filter(|_| peer.channels.is_empty() && !peer.opening)
        .map(|next| next.as_secs());
    to.host_id = peer
        .start
        .map_or_else(String::new, |(_, host)| host.to_string());
    to.latency.up = up(netchannel_wire::Class::Latency);
    to.throughput.up = up(netchannel_wire::Class::Throughput);
    to.listeners = peer.entries as u64;
    to.ports.clone_from(&peer.ports);
    to.announced = peer.announced as u64;
    to.dials = peer.counters.dialled;
    to.failed_dials = peer.counters.failed;
    to.lost_channels = peer.counters.lost;
    to.violations = peer.counters.violations;
    to.restarts = peer.counters.starts.saturating_sub(1);
    (to.opened, to.refused, to.traffic) = (past.opened, past.refused, past.traffic);
    if let Some(known) = known {
        let counters = &known.peer.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        to.sockets = known.peer.connections() as u64;
        to.opened += read(&counters.opened);
        to.refused += read(&counters.refused);
        to.traffic = past.traffic.plus(known.peer.traffic());
        let (routes, _) = known.peer.all_routes();
        let times = routes.iter().map(|route| read(&route.seen.round_trip));
        let fastest = times.filter(|time| *time > 0).min();
        to.round_trip_microseconds = fastest.map_or(0, |time| time.div_ceil(1000));
    }
}

fn show_snapshot(snapshot: &ConnectionSnapshot, host: &Arc<str>) -> RemoteConnection {
    let channels: Vec<String> = snapshot.channels.iter().map(ToString::to_string).collect();
    RemoteConnection {
        link: snapshot.link,
        slot: snapshot.slot,
        host: Arc::clone(host),
        class: shown_class(snapshot.class).name(),
        source: snapshot.source,
        channels: channels.join(","),
    }
}
