//! The page of `netchannel top`, as lines.

use super::Sample;
use super::rates::SampleRates;
use crate::hosts::{counted, microseconds, name};
use crate::show::{bytes, counted as number, duration, table};
use netchannel_control::hosts::NO_PEERS;
use netchannel_control::types::Path;

/// Sockets that are shown at most: the fastest.
const MOST_SOCKETS: usize = 200;

/// Decisions that are shown at most.
const MOST_DECISIONS: usize = 4;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The text, without control characters.
    pub text: String,
    /// It is the head of a table.
    pub is_head: bool,
}

fn plain(text: impl Into<String>) -> Line {
    Line {
        text: text.into(),
        is_head: false,
    }
}

/// A page with the reason why there is no other.
pub fn sorry(sentence: &str) -> Vec<Line> {
    vec![plain(sentence)]
}

/// A table with a line before it.
fn tabled(lines: &mut Vec<Line>, head: &[&str], rows: Vec<Vec<String>>) {
    lines.push(plain(""));
    let text = table(head, rows);
    for (index, line) in text.lines().enumerate() {
        lines.push(Line {
            text: line.to_owned(),
            is_head: index == 0,
        });
    }
}

/// The whole page.
pub fn page(look: &Sample, moved: &SampleRates) -> Vec<Line> {
    let mut lines = head(look, moved);
    if look.hosts.peers.is_empty() {
        lines.push(plain(NO_PEERS));
    } else {
        peers(&mut lines, look, moved);
        channels(&mut lines, look, moved);
        decisions(&mut lines, look);
    }
    programs(&mut lines, moved);
    sockets(&mut lines, moved);
    lines
}

fn whole(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn head(look: &Sample, moved: &SampleRates) -> Vec<Line> {
    let status = &look.status;
    let count = |path: Path| {
        let sockets = look.sockets.iter();
        sockets.filter(|socket| socket.path == path).count()
    };
    let host = match look.hosts.host.as_str() {
        "" => "netchannel",
        host => host,
    };
    let threads: Vec<String> = moved
        .threads
        .iter()
        .map(|thread| {
            let (whole, tenth) = (thread.utilisation / 10, thread.utilisation % 10);
            format!("{} {whole}.{tenth} %", thread.name)
        })
        .collect();
    vec![
        plain(format!(
            "{host}  up {}  {}  {}  {}  {}",
            duration(status.uptime_seconds),
            number(status.programs.len(), "program"),
            number(whole(status.listeners), "listener"),
            number(whole(status.links), "link"),
            bytes(status.memory_bytes),
        )),
        plain(format!(
            "sockets  {} virtual  {} over channels  {} kernel  {} listening  {} connects/s  {} fallbacks/s",
            count(Path::Virtual),
            count(Path::Channel),
            count(Path::Kernel),
            count(Path::Listener),
            moved.connects,
            moved.fallbacks,
        )),
        plain(format!("threads  {}", threads.join("  "))),
    ]
}

fn peers(lines: &mut Vec<Line>, look: &Sample, moved: &SampleRates) {
    let head = [
        "PEER",
        "STATE",
        "L",
        "T",
        "RTT",
        "SOCKETS",
        "SENT/s",
        "RECEIVED/s",
        "SEGMENTS/s",
        "REPEATED",
        "REASON",
    ];
    let both = look.hosts.peers.iter().zip(&moved.peers);
    let rows = both.map(|(peer, moved)| {
        let rates = &moved.rates;
        vec![
            peer.name.clone(),
            peer.state.to_string(),
            counted(peer.latency),
            counted(peer.throughput),
            microseconds(peer.round_trip_microseconds),
            peer.sockets.to_string(),
            bytes(rates.sent_bytes),
            bytes(rates.received_bytes),
            (rates.sent_segments + rates.received_segments).to_string(),
            bytes(peer.traffic.repeated_bytes),
            peer.reason.clone(),
        ]
    });
    tabled(lines, &head, rows.collect());
}

fn channels(lines: &mut Vec<Line>, look: &Sample, moved: &SampleRates) {
    if look.hosts.channels.is_empty() {
        return;
    }
    let head = [
        "PEER",
        "CHANNEL",
        "STATE",
        "WORKER",
        "RTT",
        "QUEUED",
        "UNSENT",
        "SENT/s",
        "RECEIVED/s",
        "RETRANS",
    ];
    let both = look.hosts.channels.iter().zip(&moved.channels);
    let rows = both.map(|(channel, moved)| {
        vec![
            channel.peer.clone(),
            name(channel),
            channel.state.to_string(),
            channel.worker.to_string(),
            microseconds(channel.round_trip_microseconds),
            bytes(channel.queued_bytes),
            bytes(channel.unsent_bytes),
            bytes(moved.rates.sent_bytes),
            bytes(moved.rates.received_bytes),
            channel.retransmissions.to_string(),
        ]
    });
    tabled(lines, &head, rows.collect());
}

/// The last decisions of the scheduler, the latest first.
fn decisions(lines: &mut Vec<Line>, look: &Sample) {
    let scheduler = &look.hosts.scheduler;
    if scheduler.decisions.is_empty() {
        return;
    }
    let rows = scheduler.decisions.iter().rev().take(MOST_DECISIONS);
    let rows = rows.map(|one| {
        let ago = format!("{} ago", duration(one.seconds_ago));
        vec![ago, one.peer.clone(), one.text.clone()]
    });
    tabled(lines, &["DECIDED", "PEER", "WHAT AND WHY"], rows.collect());
}

/// Programs with more than one socket that moves: what theirs move together.
fn programs(lines: &mut Vec<Line>, moved: &SampleRates) {
    let several = moved.programs.iter().filter(|one| one.sockets > 1);
    let rows: Vec<_> = several
        .map(|one| {
            vec![
                one.name.clone(),
                one.process.to_string(),
                one.sockets.to_string(),
                bytes(one.sent_per_second),
                bytes(one.received_per_second),
            ]
        })
        .collect();
    if !rows.is_empty() {
        let head = ["PROGRAM", "PID", "MOVING", "SENT/s", "RECEIVED/s"];
        tabled(lines, &head, rows);
    }
}

fn sockets(lines: &mut Vec<Line>, moved: &SampleRates) {
    let head = [
        "PROGRAM",
        "PID",
        "FD",
        "LOCAL",
        "PEER",
        "SENT/s",
        "RECEIVED/s",
        "SEND-Q",
        "RECV-Q",
        "CLASS",
        "CHANNELS",
    ];
    if moved.sockets.is_empty() {
        lines.push(plain(""));
        lines.push(plain("no virtual socket moves anything"));
        return;
    }
    let rows = moved.sockets.iter().take(MOST_SOCKETS).map(|one| {
        let socket = &one.socket;
        vec![
            socket.name.clone(),
            socket.process.to_string(),
            socket.descriptor.to_string(),
            socket.local.clone(),
            socket.peer.clone(),
            bytes(one.sent_per_second),
            bytes(one.received_per_second),
            bytes(socket.send_queue),
            bytes(socket.receive_queue),
            socket.class.clone(),
            match socket.channels.as_str() {
                "" | "-" => "-".to_owned(),
                channels => format!("{} {channels}", socket.host),
            },
        ]
    });
    tabled(lines, &head, rows.collect());
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
