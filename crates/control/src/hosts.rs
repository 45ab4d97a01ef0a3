//! The daemon's view of other hosts: peers, channels, workers, policies. Counters count from the start of the daemon,
//! or of the channel. Their rates follow from two answers, see [`crate::rates`].

use core::fmt;

use serde::{Deserialize, Serialize};

/// The answer of all commands where there is nothing to show.
pub const NO_PEERS: &str = "no peers are configured: see netchannel config --help";

/// The complete view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hosts {
    /// The configuration file; `None` where the daemon has none, and then the fields below are empty.
    pub configuration: Option<String>,
    /// This host's name.
    pub host: String,
    /// This host's identity, in hexadecimal digits; empty while it has none.
    pub host_id: String,
    /// Which start of the daemon this is, in hexadecimal digits; empty while it has none.
    pub epoch: String,
    /// The addresses at which other hosts may dial.
    pub listen: Vec<String>,
    /// Nanoseconds of the daemon's clock when this was taken.
    pub taken_nanoseconds: u64,
    /// In the order of the configuration.
    pub peers: Vec<Peer>,
    /// By peer, class and number.
    pub channels: Vec<ChannelView>,
    /// Threads of the daemon that move bytes.
    pub workers: Vec<WorkerView>,
    /// The state of the scheduler.
    pub scheduler: SchedulerView,
    /// Channels that others began and that were not taken, by reason.
    pub refused: Vec<Refused>,
}

/// Latency or throughput.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Short messages (L).
    Latency,
    /// Bulk data (T).
    #[default]
    Throughput,
}

impl Class {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Latency, Self::Throughput];

    /// The name shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
        }
    }

    /// The letter shown.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Latency => 'L',
            Self::Throughput => 'T',
        }
    }
}

/// The state of a peer or a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// There is no channel; the reason is in another field.
    #[default]
    Down,
    /// A channel is being made.
    Opening,
    /// It carries connections.
    Up,
    /// The channel finishes its connections and takes no new ones.
    Draining,
}

impl State {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Down, Self::Opening, Self::Up, Self::Draining];

    /// The name shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Opening => "opening",
            Self::Up => "up",
            Self::Draining => "draining",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The number of bytes and of pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Bytes of programs given to channels; what was given twice counts twice.
    pub sent_bytes: u64,
    /// Bytes of programs that came.
    pub received_bytes: u64,
    /// Segments given to channels.
    pub sent_segments: u64,
    /// Segments that came.
    pub received_segments: u64,
    /// Frames without bytes of programs given to channels.
    pub sent_control: u64,
    /// Frames without bytes of programs that came.
    pub received_control: u64,
    /// Of the bytes sent, those that were given again after a channel was lost.
    pub repeated_bytes: u64,
    /// Calls that gave something to the transport.
    pub writes: u64,
    /// Calls that took something from it.
    pub reads: u64,
}

impl Traffic {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes.saturating_add(other.sent_bytes),
            received_bytes: self.received_bytes.saturating_add(other.received_bytes),
            sent_segments: self.sent_segments.saturating_add(other.sent_segments),
            received_segments: self
                .received_segments
                .saturating_add(other.received_segments),
            sent_control: self.sent_control.saturating_add(other.sent_control),
            received_control: self.received_control.saturating_add(other.received_control),
            repeated_bytes: self.repeated_bytes.saturating_add(other.repeated_bytes),
            writes: self.writes.saturating_add(other.writes),
            reads: self.reads.saturating_add(other.reads),
        }
    }
}

/// Channels of one class to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChannelCount {
    /// Channels that are up.
    pub up: u64,
    /// The minimum.
    pub least: u64,
    /// The maximum.
    pub most: u64,
}

/// Another host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Peer {
    /// Its name in the configuration.
    pub name: String,
    /// Whether it can be reached.
    pub state: State,
    /// Why it is not up; empty where it is.
    pub reason: String,
    /// Seconds since it came up, or since it has not been up.
    pub since_seconds: u64,
    /// Seconds until it is dialled again, where it is not up and not being dialled.
    pub next_try_seconds: Option<u64>,
    /// Its identity, in hexadecimal digits; empty while it is unknown.
    pub host_id: String,
    /// The addresses at which it is dialled.
    pub addresses: Vec<String>,
    /// Addresses whose listeners it may announce.
    pub prefixes: Vec<String>,
    /// Channels of the latency class.
    pub latency: ChannelCount,
    /// Channels of the throughput class.
    pub throughput: ChannelCount,
    /// Round trip of its fastest channel in microseconds; 0 while not known.
    pub round_trip_microseconds: u64,
    /// Listeners of its programs in this host's directory.
    pub listeners: u64,
    /// Ports of these listeners: connections to them take channels.
    pub ports: Vec<u16>,
    /// Listeners of this host that were announced to it.
    pub announced: u64,
    /// Connections with it now.
    pub sockets: u64,
    /// Connections with it in all.
    pub opened: u64,
    /// Connections that it or this host refused, and that went over kernel TCP or failed.
    pub refused: u64,
    /// The traffic of all its channels.
    pub traffic: Traffic,
    /// Times it was dialled.
    pub dials: u64,
    /// Of these, those that came to nothing.
    pub failed_dials: u64,
    /// Channels that stood and were lost.
    pub lost_channels: u64,
    /// Times it broke the contract of the wire.
    pub violations: u64,
    /// Times it began anew, and all its connections were reset.
    pub restarts: u64,
}

/// One channel to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChannelView {
    /// Name of the peer.
    pub peer: String,
    /// The class of its traffic.
    pub class: Class,
    /// Its number within the class.
    pub number: u32,
    /// Its state.
    pub state: State,
    /// Seconds since it came up.
    pub since_seconds: u64,
    /// The name of its transport, such as `tcp`.
    pub transport: String,
    /// Own address.
    pub local: String,
    /// The peer's address.
    pub remote: String,
    /// Whether this host dialled it.
    pub dialled: bool,
    /// The worker that has it.
    pub worker: u32,
    /// Bytes that wait for the worker.
    pub queued_bytes: u64,
    /// Bytes that the transport took and has not sent.
    pub unsent_bytes: u64,
    /// Bytes that the transport sent and that are not acknowledged.
    pub unacknowledged_bytes: u64,
    /// Round trip of the transport in microseconds; 0 while not known.
    pub round_trip_microseconds: u64,
    /// The congestion window limits it.
    pub congestion_limited: bool,
    /// Congestion control; empty where the transport has none.
    pub congestion_control: String,
    /// Packets that the transport sent again.
    pub retransmissions: u64,
    /// Its traffic since it came up.
    pub traffic: Traffic,
}

/// A thread of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerView {
    /// Its number; the thread of commands and set-up has none.
    pub number: Option<u32>,
    /// Name of the thread.
    pub name: String,
    /// Thread identifier.
    pub thread: u32,
    /// Processor it is bound to, if any.
    pub core: Option<u32>,
    /// Processor time it took, in nanoseconds.
    pub processor_nanoseconds: u64,
    /// Channels that it has.
    pub channels: u64,
    /// Connections for which it sends.
    pub sockets: u64,
    /// Times it slept.
    pub sleeps: u64,
}

/// Policies, and what they decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchedulerView {
    /// One of each kind.
    pub policies: Vec<Policy>,
    /// Channels that the scale policy added.
    pub added: u64,
    /// Channels that it retired.
    pub retired: u64,
    /// The last decisions, the latest last.
    pub decisions: Vec<Decision>,
}

/// A policy with its parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Its kind: `channel`, `order`, `scale`, `placement` or `copy`.
    pub kind: String,
    /// The setting, as in the configuration.
    pub setting: String,
    /// Whether it was set at run time and differs from the configuration.
    pub set: bool,
}

/// One decision about the number of channels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Decision {
    /// Seconds ago.
    pub seconds_ago: u64,
    /// Name of the peer.
    pub peer: String,
    /// The decision and its reason.
    pub text: String,
}

/// Channels that were not taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refused {
    /// Why.
    pub reason: String,
    /// The number.
    pub count: u64,
}

impl Hosts {
    /// A peer by its name, added where it is missing.
    pub fn peer_mut(&mut self, name: &str) -> &mut Peer {
        let found = self.peers.iter().position(|peer| peer.name == name);
        let index = found.unwrap_or_else(|| {
            self.peers.push(Peer {
                name: name.to_owned(),
                ..Peer::default()
            });
            self.peers.len() - 1
        });
        &mut self.peers[index]
    }

    /// A channel by its name, added where it is missing.
    pub fn channel_mut(&mut self, peer: &str, class: Class, number: u32) -> &mut ChannelView {
        let is_it = |channel: &ChannelView| {
            channel.peer == peer && channel.class == class && channel.number == number
        };
        let found = self.channels.iter().position(is_it);
        let index = found.unwrap_or_else(|| {
            self.channels.push(ChannelView {
                peer: peer.to_owned(),
                class,
                number,
                ..ChannelView::default()
            });
            self.channels.len() - 1
        });
        &mut self.channels[index]
    }

    /// A thread by its name, added where it is missing.
    pub fn worker_mut(&mut self, name: &str) -> &mut WorkerView {
        let found = self.workers.iter().position(|worker| worker.name == name);
        let index = found.unwrap_or_else(|| {
            self.workers.push(WorkerView {
                name: name.to_owned(),
                ..WorkerView::default()
            });
            self.workers.len() - 1
        });
        &mut self.workers[index]
    }

    /// Channels in the order in which they are shown.
    pub fn sort(&mut self) {
        let order = |peer: &str| self.peers.iter().position(|one| one.name == peer);
        let mut channels = std::mem::take(&mut self.channels);
        channels.sort_by_key(|channel| (order(&channel.peer), channel.class, channel.number));
        self.channels = channels;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_to_the_same_entry() {
        let mut hosts = Hosts::default();
        hosts.peer_mut("b").state = State::Up;
        hosts.peer_mut("a").dials = 1;
        hosts.peer_mut("b").sockets = 3;
        assert_eq!(hosts.peers.len(), 2);
        assert_eq!(hosts.peers[0].sockets, 3);
        hosts.channel_mut("a", Class::Throughput, 0).worker = 1;
        hosts.channel_mut("b", Class::Throughput, 1).worker = 1;
        hosts.channel_mut("b", Class::Latency, 1).worker = 0;
        hosts.channel_mut("b", Class::Throughput, 1).queued_bytes = 7;
        hosts.sort();
        let names: Vec<_> = hosts
            .channels
            .iter()
            .map(|one| format!("{}{}{}", one.peer, one.class.letter(), one.number))
            .collect();
        assert_eq!(names, ["bL1", "bT1", "aT0"]);
        assert_eq!(hosts.channels[1].queued_bytes, 7);
    }

    #[test]
    fn answers_of_other_versions_are_read() {
        let text = r#"{"host":"alpha","peers":[{"name":"beta","state":"up","new":1}],"newer":{}}"#;
        let hosts: Hosts = serde_json::from_str(text).unwrap();
        assert_eq!(hosts.peers[0].state, State::Up);
        assert_eq!(hosts.configuration, None);
    }
}
