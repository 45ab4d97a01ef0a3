//! The rates between two samples.

use super::Sample;
use netchannel_control::rates::{self, Rates, per_second};
use netchannel_control::types::Socket;
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;

/// The rates, for scripts and for the page. All are per second.
#[derive(Clone, Debug, Serialize)]
pub struct SampleRates {
    /// Over how long it was taken.
    pub seconds: f64,
    /// Connections that programs made over shared memory.
    pub connects: u64,
    /// Sockets that went over kernel TCP.
    pub fallbacks: u64,
    /// Threads of the daemon.
    pub threads: Vec<Thread>,
    /// Peers, as configured.
    pub peers: Vec<PeerRates>,
    /// Channels.
    pub channels: Vec<ChannelRates>,
    /// Programs that moved anything, the fastest first.
    pub programs: Vec<ProgramRates>,
    /// Sockets that moved anything, the fastest first.
    pub sockets: Vec<SocketRates>,
}

/// A thread of the daemon.
#[derive(Clone, Debug, Serialize)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// Share of the time that it had a processor, 0 to 1000.
    pub utilisation: u64,
}

/// A peer.
#[derive(Clone, Debug, Serialize)]
pub struct PeerRates {
    /// Its name.
    pub peer: String,
    /// The rates.
    #[serde(flatten)]
    pub rates: Rates,
}

/// A channel.
#[derive(Clone, Debug, Serialize)]
pub struct ChannelRates {
    /// Name of the peer.
    pub peer: String,
    /// `latency` or `throughput`.
    pub class: &'static str,
    /// Its number within the class.
    pub number: u32,
    /// The rates.
    #[serde(flatten)]
    pub rates: Rates,
}

/// A program.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramRates {
    /// Its name.
    pub name: String,
    /// Its process identifier.
    pub process: u32,
    /// Sockets that moved anything.
    pub sockets: u64,
    /// Bytes written.
    pub sent_per_second: u64,
    /// Bytes read.
    pub received_per_second: u64,
}

/// A socket of a program.
#[derive(Clone, Debug, Serialize)]
pub struct SocketRates {
    /// Which.
    #[serde(flatten)]
    pub socket: Socket,
    /// Bytes written.
    pub sent_per_second: u64,
    /// Bytes read.
    pub received_per_second: u64,
}

/// The identity of a socket, as long as it lives.
fn identity(socket: &Socket) -> (u32, i32, u64, u32, &str, &str) {
    (
        socket.program,
        socket.descriptor,
        socket.link,
        socket.slot,
        &socket.local,
        &socket.peer,
    )
}

impl SampleRates {
    /// The rates between two samples.
    pub fn between(before: &Sample, after: &Sample) -> Self {
        let span = after.at.saturating_duration_since(before.at);
        let threads = after.hosts.workers.iter().map(|worker| Thread {
            name: worker.name.clone(),
            utilisation: rates::utilisation(&before.hosts, &after.hosts, worker),
        });
        let peers = after.hosts.peers.iter().map(|peer| PeerRates {
            peer: peer.name.clone(),
            rates: rates::of_peer(&before.hosts, &after.hosts, &peer.name),
        });
        let channels = after.hosts.channels.iter().map(|channel| ChannelRates {
            peer: channel.peer.clone(),
            class: channel.class.name(),
            number: channel.number,
            rates: rates::of_channel(&before.hosts, &after.hosts, channel),
        });
        let sockets = sockets(before, after, span);
        Self {
            seconds: span.as_secs_f64(),
            connects: programs(before, after, span, |one| one.connects),
            fallbacks: programs(before, after, span, |one| {
                one.fallbacks.iter().map(|fallback| fallback.count).sum()
            }),
            threads: threads.collect(),
            peers: peers.collect(),
            channels: channels.collect(),
            programs: by_program(&sockets),
            sockets,
        }
    }
}

/// A counter of all programs that are in both samples.
fn programs(
    before: &Sample,
    after: &Sample,
    span: Duration,
    count: impl Fn(&netchannel_control::types::Program) -> u64,
) -> u64 {
    let old: HashMap<u32, u64> = before
        .status
        .programs
        .iter()
        .map(|one| (one.program, count(one)))
        .collect();
    let now = after.status.programs.iter();
    now.filter_map(|one| {
        let old = old.get(&one.program)?;
        Some(per_second(*old, count(one), span))
    })
    .sum()
}

fn sockets(before: &Sample, after: &Sample, span: Duration) -> Vec<SocketRates> {
    let old: HashMap<_, _> = before
        .sockets
        .iter()
        .map(|socket| (identity(socket), socket))
        .collect();
    let mut moved: Vec<SocketRates> = after
        .sockets
        .iter()
        .filter_map(|socket| {
            let old = old.get(&identity(socket))?;
            let sent = per_second(old.sent, socket.sent, span);
            let received = per_second(old.received, socket.received, span);
            (sent > 0 || received > 0).then(|| SocketRates {
                socket: socket.clone(),
                sent_per_second: sent,
                received_per_second: received,
            })
        })
        .collect();
    moved.sort_by_key(|one| {
        let all = one.sent_per_second.saturating_add(one.received_per_second);
        std::cmp::Reverse(all)
    });
    moved
}

fn by_program(sockets: &[SocketRates]) -> Vec<ProgramRates> {
    let mut programs: Vec<ProgramRates> = Vec::new();
    for one in sockets {
        let socket = &one.socket;
        let found = programs
            .iter()
            .position(|program| program.process == socket.process);
        let index = found.unwrap_or_else(|| {
            programs.push(ProgramRates {
                name: socket.name.clone(),
                process: socket.process,
                sockets: 0,
                sent_per_second: 0,
                received_per_second: 0,
            });
            programs.len() - 1
        });
        let program = &mut programs[index];
        program.sockets += 1;
        program.sent_per_second += one.sent_per_second;
        program.received_per_second += one.received_per_second;
    }
    programs.sort_by_key(|one| {
        let all = one.sent_per_second.saturating_add(one.received_per_second);
        std::cmp::Reverse(all)
    });
    programs
}
