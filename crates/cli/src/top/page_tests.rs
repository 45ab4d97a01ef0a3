use super::*;
use netchannel_control::hosts::{Class, Decision, Hosts, State};
use netchannel_control::types::{Program, Socket, Status};
use std::time::{Duration, Instant};

fn socket(descriptor: i32, sent: u64) -> Socket {
    Socket {
        program: 1,
        process: 100,
        name: "redis-server".to_owned(),
        descriptor,
        path: Path::Virtual,
        host: "-".to_owned(),
        channels: "-".to_owned(),
        state: "ESTAB".to_owned(),
        local: "127.0.0.1:6379".to_owned(),
        peer: format!("127.0.0.1:{}", 10_000 + descriptor),
        reason: "-".to_owned(),
        send_queue: 0,
        receive_queue: 10,
        sent,
        received: 0,
        pending: 0,
        class: "latency".to_owned(),
        class_source: "run".to_owned(),
        stack: "-".to_owned(),
        link: 1,
        slot: 0,
    }
}

fn look(start: Instant, seconds: u64, hosts: Hosts) -> Sample {
    let program = Program {
        program: 1,
        connects: 1000 * seconds,
        ..Program::default()
    };
    Sample {
        at: start + Duration::from_secs(seconds),
        status: Status {
            programs: vec![program],
            uptime_seconds: 60 + seconds,
            ..Status::default()
        },
        sockets: vec![
            socket(5, 100 * seconds),
            socket(6, 4096 * seconds),
            socket(7, 1),
        ],
        hosts,
    }
}

fn shown(before: &Sample, after: &Sample) -> Vec<String> {
    let lines = page(after, &SampleRates::between(before, after));
    lines.into_iter().map(|line| line.text).collect()
}

#[test]
fn without_peers_the_programs_of_this_host_are_shown() {
    let start = Instant::now();
    let lines = shown(
        &look(start, 1, Hosts::default()),
        &look(start, 3, Hosts::default()),
    );
    assert_eq!(
        lines[0],
        "netchannel  up 1 min 3 s  1 program  0 listeners  0 links  0 B"
    );
    assert!(
        lines[1].contains("3 virtual") && lines[1].contains("1000 connects/s"),
        "{lines:?}"
    );
    assert_eq!(lines[3], NO_PEERS);
    // The fastest first; what does not move is left out.
    assert_eq!(lines.len(), 11, "{lines:?}");
    assert!(
        lines[6].contains("redis-server  100  2       4.0 KiB"),
        "{lines:?}"
    );
    assert!(lines[9].contains("127.0.0.1:10006  4.0 KiB"), "{lines:?}");
    assert!(lines[10].contains("127.0.0.1:10005  100 B"), "{lines:?}");
}

#[test]
fn peers_and_channels_are_shown_with_their_rates() {
    let hosts = |seconds: u64| {
        let mut hosts = Hosts {
            host: "alpha".to_owned(),
            taken_nanoseconds: seconds * 1_000_000_000,
            ..Hosts::default()
        };
        let peer = hosts.peer_mut("beta");
        peer.state = State::Up;
        peer.traffic.sent_bytes = seconds << 20;
        let channel = hosts.channel_mut("beta", Class::Throughput, 2);
        channel.traffic.received_bytes = seconds << 10;
        channel.since_seconds = seconds;
        hosts.scheduler.decisions = vec![Decision {
            seconds_ago: 61,
            peer: "beta".to_owned(),
            text: "add a throughput channel: workers busy".to_owned(),
        }];
        hosts.worker_mut("channels-T").processor_nanoseconds = seconds * 981_000_000;
        hosts
    };
    let start = Instant::now();
    let lines = shown(&look(start, 1, hosts(1)), &look(start, 2, hosts(2)));
    assert!(lines[0].starts_with("alpha  up"), "{lines:?}");
    assert_eq!(lines[2], "threads  channels-T 98.1 %");
    assert!(
        lines[5].starts_with("beta  up") && lines[5].contains("1.0 MiB"),
        "{lines:?}"
    );
    assert!(
        lines[8].starts_with("beta  T2") && lines[8].contains("1.0 KiB"),
        "{lines:?}"
    );
    assert_eq!(
        lines[11],
        "1 min 1 s ago  beta  add a throughput channel: workers busy"
    );
}

#[test]
fn the_first_look_has_no_rates() {
    let start = Instant::now();
    let first = look(start, 5, Hosts::default());
    let moved = SampleRates::between(&first, &first);
    assert!(moved.sockets.is_empty() && moved.connects == 0);
}
