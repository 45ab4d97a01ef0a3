//! Metrics of other hosts.

use super::snapshot::MetricsSnapshot;
use super::text::{Kind, Text, Value};
use netchannel_control::hosts::{ChannelCount, ChannelView, Class, Peer, State};

use Kind::{Counter, Gauge};

/// A counter of a peer: its name, its help and its value.
type Counted = (&'static str, &'static str, fn(&Peer) -> Value);

/// Writes the state of the configuration.
pub fn configuration(text: &mut Text, snapshot: &MetricsSnapshot) {
    text.family(
        (
            "netchannel_reloads_total",
            Counter,
            "Times the configuration was read again.",
        ),
        [
            (vec![("result", "taken")], snapshot.reloads),
            (vec![("result", "refused")], snapshot.refused_reloads),
        ],
    );
    let scheduler = &snapshot.hosts.scheduler;
    let policies = scheduler.policies.iter();
    text.family(
        (
            "netchannel_policy_info",
            Gauge,
            "Policies in use, as labels.",
        ),
        policies.map(|policy| {
            let labels = vec![
                ("kind", policy.kind.as_str()),
                ("policy", policy.setting.as_str()),
            ];
            (labels, 1)
        }),
    );
    text.family(
        (
            "netchannel_scale_decisions_total",
            Counter,
            "Channels that the scale policy added and retired.",
        ),
        [
            (vec![("decision", "add")], scheduler.added),
            (vec![("decision", "retire")], scheduler.retired),
        ],
    );
    let refused = snapshot.hosts.refused.iter();
    text.family(
        (
            "netchannel_refused_channels_total",
            Counter,
            "Channels that others began and that were not taken.",
        ),
        refused.map(|one| (vec![("reason", one.reason.as_str())], one.count)),
    );
}

/// Writes the metrics of each peer.
pub fn peers(text: &mut Text, peers: &[Peer]) {
    let mut by_class = |name: &str, help: &str, value: fn(&ChannelCount) -> u64| {
        let samples = peers.iter().flat_map(|peer| {
            let counts = [
                (Class::Latency, &peer.latency),
                (Class::Throughput, &peer.throughput),
            ];
            counts.map(|(class, count)| {
                let labels = vec![("peer", peer.name.as_str()), ("class", class.name())];
                (labels, value(count))
            })
        });
        text.family((name, Gauge, help), samples);
    };
    by_class(
        "netchannel_peer_channels",
        "Channels that are up.",
        |count| count.up,
    );
    by_class(
        "netchannel_peer_channels_least",
        "Channels that there should be at least.",
        |count| count.least,
    );
    let mut each = |name: &str, kind: Kind, help: &str, value: fn(&Peer) -> Value| {
        let samples = peers.iter();
        let samples = samples.map(|peer| (vec![("peer", peer.name.as_str())], value(peer)));
        text.family((name, kind, help), samples);
    };
    each(
        "netchannel_peer_up",
        Gauge,
        "1 if the peer can be reached.",
        |peer| u64::from(peer.state == State::Up).into(),
    );
    each(
        "netchannel_peer_round_trip_seconds",
        Gauge,
        "Round trip of the peer's fastest channel; 0 while not known.",
        |peer| Value::Microseconds(peer.round_trip_microseconds),
    );
    each(
        "netchannel_peer_sockets",
        Gauge,
        "Connections with the peer.",
        |peer| peer.sockets.into(),
    );
    each(
        "netchannel_peer_listeners",
        Gauge,
        "Listeners that the peer announced.",
        |peer| peer.listeners.into(),
    );
    let counters: [Counted; 13] = [
        ("opened", "Connections made with the peer.", |peer| {
            peer.opened.into()
        }),
        ("refused", "Connections that either host refused.", |peer| {
            peer.refused.into()
        }),
        (
            "sent_bytes",
            "Bytes of programs given to channels.",
            |peer| peer.traffic.sent_bytes.into(),
        ),
        ("received_bytes", "Bytes of programs that came.", |peer| {
            peer.traffic.received_bytes.into()
        }),
        (
            "repeated_bytes",
            "Bytes given to channels again after one was lost.",
            |peer| peer.traffic.repeated_bytes.into(),
        ),
        ("sent_segments", "Segments given to channels.", |peer| {
            peer.traffic.sent_segments.into()
        }),
        ("received_segments", "Segments that came.", |peer| {
            peer.traffic.received_segments.into()
        }),
        (
            "writes",
            "Calls that gave something to the transport.",
            |peer| peer.traffic.writes.into(),
        ),
        (
            "reads",
            "Calls that took something from the transport.",
            |peer| peer.traffic.reads.into(),
        ),
        ("dials", "Times the peer was dialled.", |peer| {
            peer.dials.into()
        }),
        ("failed_dials", "Times that came to nothing.", |peer| {
            peer.failed_dials.into()
        }),
        (
            "lost_channels",
            "Channels that stood and were lost.",
            |peer| peer.lost_channels.into(),
        ),
        (
            "violations",
            "Times the peer broke the contract of the wire.",
            |peer| peer.violations.into(),
        ),
    ];
    for (name, help, value) in counters {
        each(
            &format!("netchannel_peer_{name}_total"),
            Counter,
            help,
            value,
        );
    }
}

/// Writes the metrics of each channel.
pub fn channels(text: &mut Text, channels: &[ChannelView]) {
    let numbers: Vec<String> = channels.iter().map(|one| one.number.to_string()).collect();
    let mut each = |name: &str, kind: Kind, help: &str, value: fn(&ChannelView) -> Value| {
        let samples = channels.iter().zip(&numbers).map(|(channel, number)| {
            let labels = vec![
                ("peer", channel.peer.as_str()),
                ("class", channel.class.name()),
                ("channel", number.as_str()),
            ];
            (labels, value(channel))
        });
        text.family((name, kind, help), samples);
    };
    each(
        "netchannel_channel_queued_bytes",
        Gauge,
        "Bytes that wait for the worker.",
        |channel| channel.queued_bytes.into(),
    );
    each(
        "netchannel_channel_unsent_bytes",
        Gauge,
        "Bytes that the transport took and has not sent.",
        |channel| channel.unsent_bytes.into(),
    );
    each(
        "netchannel_channel_round_trip_seconds",
        Gauge,
        "Round trip of the transport; 0 while not known.",
        |channel| Value::Microseconds(channel.round_trip_microseconds),
    );
    each(
        "netchannel_channel_congestion_limited",
        Gauge,
        "1 if the channel is held back by its congestion window.",
        |channel| u64::from(channel.congestion_limited).into(),
    );
    each(
        "netchannel_channel_sent_bytes_total",
        Counter,
        "Bytes of programs given to the channel since it came up.",
        |channel| channel.traffic.sent_bytes.into(),
    );
    each(
        "netchannel_channel_received_bytes_total",
        Counter,
        "Bytes of programs that came on the channel since it came up.",
        |channel| channel.traffic.received_bytes.into(),
    );
    each(
        "netchannel_channel_retransmissions_total",
        Counter,
        "Packets that the transport sent again.",
        |channel| channel.retransmissions.into(),
    );
}
