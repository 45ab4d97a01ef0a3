//! `netchannel peers`, `channels` and `set scheduler`: other hosts, as the daemon shows them.

use crate::arguments::{Hosts as Arguments, Scheduler, Set, SetCommand};
use crate::ask::{ask, finish, json, unexpected};
use crate::show::{bytes, complain, duration, or_hyphen, table};
use netchannel_control::hosts::{ChannelCount, ChannelView, Hosts, NO_PEERS, Peer, SchedulerView};
use netchannel_control::types::{Request, Response};
use netchannel_scheduler::Registry;
use netchannel_scheduler::registry::Kind;
use std::ffi::c_int;

/// The exit code for a command line that is wrong.
const WRONG_LINE: c_int = 2;

/// Asks for everything about other hosts.
///
/// # Errors
/// A sentence: there was no answer, or the daemon refused.
pub fn fetch(asking: &crate::arguments::Asking) -> Result<Hosts, String> {
    match ask(asking, Request::Hosts)? {
        Response::Hosts(hosts) => Ok(*hosts),
        _ => Err(unexpected()),
    }
}

/// `netchannel peers`.
pub fn peers(arguments: &Arguments) -> c_int {
    finish(fetch(&arguments.asking).and_then(|mut hosts| {
        if let Some(name) = &arguments.peer {
            only(&mut hosts, name)?;
        }
        match (arguments.asking.json, hosts.peers.is_empty()) {
            (true, _) => json(&hosts.peers),
            (false, true) => Ok(format!("{NO_PEERS}\n")),
            (false, false) => Ok(shown_peers(&hosts.peers)),
        }
    }))
}

/// `netchannel channels`.
pub fn channels(arguments: &Arguments) -> c_int {
    finish(fetch(&arguments.asking).and_then(|mut hosts| {
        if let Some(name) = &arguments.peer {
            only(&mut hosts, name)?;
        }
        match (arguments.asking.json, hosts.peers.is_empty()) {
            (true, _) => json(&hosts.channels),
            (false, true) => Ok(format!("{NO_PEERS}\n")),
            (false, false) if hosts.channels.is_empty() => {
                Ok("no channel is up: netchannel peers says why\n".to_owned())
            }
            (false, false) => Ok(shown_channels(&hosts.channels)),
        }
    }))
}

/// Leaves one peer.
fn only(hosts: &mut Hosts, name: &str) -> Result<(), String> {
    if !hosts.peers.iter().any(|peer| peer.name == name) {
        let names: Vec<&str> = hosts.peers.iter().map(|peer| peer.name.as_str()).collect();
        return Err(match names[..] {
            [] => NO_PEERS.to_owned(),
            _ => format!("there is no peer {name:?}; there are {}", names.join(", ")),
        });
    }
    hosts.peers.retain(|peer| peer.name == name);
    hosts.channels.retain(|channel| channel.peer == name);
    Ok(())
}

/// Microseconds in the unit that suits them.
pub fn microseconds(count: u64) -> String {
    match count {
        0 => "-".to_owned(),
        1..10_000 => format!("{count} us"),
        _ => format!("{} ms", count / 1000),
    }
}

/// The number of channels, and the maximum.
pub fn counted(count: ChannelCount) -> String {
    let ChannelCount { up, least, most } = count;
    if least == most {
        format!("{up} ({least})")
    } else {
        format!("{up} ({least}-{most})")
    }
}

fn shown_peers(peers: &[Peer]) -> String {
    let head = [
        "PEER",
        "STATE",
        "SINCE",
        "L",
        "T",
        "RTT",
        "SOCKETS",
        "LISTENERS",
        "SENT",
        "RECEIVED",
        "REPEATED",
        "LOST",
        "ADDRESS",
        "REASON",
    ];
    let rows = peers.iter().map(|peer| {
        vec![
            peer.name.clone(),
            peer.state.to_string(),
            duration(peer.since_seconds),
            counted(peer.latency),
            counted(peer.throughput),
            microseconds(peer.round_trip_microseconds),
            peer.sockets.to_string(),
            peer.listeners.to_string(),
            bytes(peer.traffic.sent_bytes),
            bytes(peer.traffic.received_bytes),
            bytes(peer.traffic.repeated_bytes),
            peer.lost_channels.to_string(),
            or_hyphen(&peer.addresses.join(",")),
            or_hyphen(&reason(peer)),
        ]
    });
    table(&head, rows.collect())
}

/// Why a peer is not up, and when it is tried again.
fn reason(peer: &Peer) -> String {
    match peer.next_try_seconds {
        Some(0) => format!("{}; next try now", peer.reason),
        Some(seconds) => format!("{}; next try in {}", peer.reason, duration(seconds)),
        None => peer.reason.clone(),
    }
}

/// The name of a channel: `T0`.
pub fn name(channel: &ChannelView) -> String {
    format!("{}{}", channel.class.letter(), channel.number)
}

fn shown_channels(channels: &[ChannelView]) -> String {
    let head = [
        "PEER", "CHANNEL", "STATE", "SINCE", "OVER", "LOCAL", "REMOTE", "BY", "WORKER", "RTT",
        "QUEUED", "UNSENT", "SENT", "RECEIVED", "RETRANS", "CONTROL",
    ];
    let rows = channels.iter().map(|channel| {
        let limited = if channel.congestion_limited {
            ",limited"
        } else {
            ""
        };
        vec![
            channel.peer.clone(),
            name(channel),
            channel.state.to_string(),
            duration(channel.since_seconds),
            or_hyphen(&channel.transport),
            or_hyphen(&channel.local),
            or_hyphen(&channel.remote),
            if channel.dialled { "this" } else { "peer" }.to_owned(),
            channel.worker.to_string(),
            microseconds(channel.round_trip_microseconds),
            bytes(channel.queued_bytes),
            bytes(channel.unsent_bytes),
            bytes(channel.traffic.sent_bytes),
            bytes(channel.traffic.received_bytes),
            channel.retransmissions.to_string(),
            or_hyphen(&channel.congestion_control) + limited,
        ]
    });
    table(&head, rows.collect())
}

/// `netchannel set`.
pub fn set(arguments: &Set) -> c_int {
    let SetCommand::Scheduler(scheduler) = &arguments.command;
    if scheduler.list {
        return finish(Ok(policies()));
    }
    // An unknown name is a mistake of the command line, not of the daemon.
    let text = scheduler.setting.join(" ");
    if let Some(Err(error)) = (!text.is_empty()).then(|| Registry::builtin().parse(&text)) {
        complain(&error.to_string());
        return WRONG_LINE;
    }
    finish(set_scheduler(scheduler))
}

fn set_scheduler(arguments: &Scheduler) -> Result<String, String> {
    let text = (!arguments.setting.is_empty()).then(|| arguments.setting.join(" "));
    match ask(&arguments.asking, Request::SetScheduler(text))? {
        Response::Scheduler(scheduler) if arguments.asking.json => json(&scheduler.policies),
        Response::Scheduler(scheduler) => Ok(shown_policies(&scheduler)),
        _ => Err(unexpected()),
    }
}

fn shown_policies(scheduler: &SchedulerView) -> String {
    let rows = scheduler.policies.iter().map(|policy| {
        let from = if policy.set { "set" } else { "configuration" };
        vec![policy.kind.clone(), from.to_owned(), policy.setting.clone()]
    });
    table(&["DECIDES", "FROM", "POLICY"], rows.collect())
}

/// All policies with their parameters.
fn policies() -> String {
    let registry = Registry::builtin();
    let mut text = String::new();
    for kind in Kind::ALL {
        text.push_str(&format!("{kind}:\n\n"));
        for description in registry.of_kind(kind) {
            for line in description.to_string().lines() {
                text.push_str(&format!("  {line}\n"));
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchannel_control::hosts::{Class, State};

    #[test]
    fn peers_and_channels_have_a_line_each() {
        let mut hosts = Hosts::default();
        let peer = hosts.peer_mut("beta");
        peer.state = State::Up;
        peer.throughput = ChannelCount {
            up: 2,
            least: 1,
            most: 4,
        };
        peer.round_trip_microseconds = 120;
        peer.traffic.sent_bytes = 3 << 20;
        let text = shown_peers(&hosts.peers);
        let line = text.lines().nth(1).unwrap();
        assert!(
            line.contains("up     0 s    0 (0)  2 (1-4)  120 us"),
            "{text}"
        );
        assert!(line.contains("3.0 MiB"), "{text}");
        let channel = hosts.channel_mut("beta", Class::Latency, 3);
        channel.congestion_limited = true;
        channel.congestion_control = "cubic".to_owned();
        let text = shown_channels(&hosts.channels);
        assert!(
            text.contains("beta  L3") && text.contains("cubic,limited"),
            "{text}"
        );
        assert!(
            only(&mut hosts, "gamma")
                .unwrap_err()
                .contains("there are beta")
        );
        assert!(only(&mut hosts, "beta").is_ok());
    }

    #[test]
    fn every_policy_is_listed() {
        let text = policies();
        for name in [
            "round-robin",
            "weighted-tenants",
            "hysteresis",
            "near",
            "copy-local",
        ] {
            assert!(text.contains(&format!("\n  {name}: ")), "{text}");
        }
    }
}
