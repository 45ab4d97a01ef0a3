//! Other hosts: whether each peer is reachable, whether the file and its keys are readable, whether metrics are served,
//! and the transport of channels.

use std::path::Path;
use std::time::Duration;

use netchannel_configuration::Configuration;
use netchannel_control::hosts::{Hosts, Peer, State};
use netchannel_control::types::{Request, Response};

use super::checks::{bad, ok};
use super::{Finding, Verdict};

/// The checks of a daemon with a configuration; empty where there is none.
pub fn hosts(socket: &Path) -> Vec<Finding> {
    let answer = netchannel_control::request(socket, Request::Hosts, Duration::from_secs(2));
    let Ok(Response::Hosts(hosts)) = answer else {
        return Vec::new();
    };
    let Some(file) = &hosts.configuration else {
        return Vec::new();
    };
    let mut findings = vec![configuration(Path::new(file))];
    findings.push(port(&hosts));
    findings.extend(hosts.peers.iter().map(peer));
    findings.extend(congestion_control(&hosts));
    findings
}

/// Whether the next start or reload would take the file: keys are read, too.
fn configuration(file: &Path) -> Finding {
    const CHECK: &str = "configuration";
    let shown = file.display();
    match Configuration::load(file) {
        Ok(read) => {
            let metrics = match read.metrics {
                Some(address) => format!("metrics at {address}"),
                None => "no metrics".to_owned(),
            };
            ok(CHECK, format!("{shown}, with its keys; {metrics}"))
        }
        Err(problems) => bad(
            CHECK,
            Verdict::Warn,
            problems
                .problems
                .first()
                .map_or_else(String::new, |first| first.shown(&shown)),
            format!("netchannel config check {shown}, as the user of the daemon"),
        ),
    }
}

fn port(hosts: &Hosts) -> Finding {
    const CHECK: &str = "port for peers";
    if hosts.listen.is_empty() {
        return bad(
            CHECK,
            Verdict::Warn,
            "none: this host dials, and cannot be dialled",
            "name this host's address as listen of [host], unless that is meant",
        );
    }
    ok(CHECK, format!("listens at {}", hosts.listen.join(" ")))
}

fn peer(peer: &Peer) -> Finding {
    const CHECK: &str = "peer";
    let name = &peer.name;
    if peer.state == State::Up {
        let (latency, throughput) = (peer.latency.up, peer.throughput.up);
        return ok(
            CHECK,
            format!(
                "{name} is up, with channels: {latency} for latency, {throughput} for throughput"
            ),
        );
    }
    let fix = if peer.addresses.is_empty() {
        format!(
            "{name} is named without addresses: it has to dial this host; `netchannel peers` on {name} says more"
        )
    } else {
        format!(
            "is a daemon running on {name}, with the same key, and does a firewall let TCP through to {}? `netchannel peers` on {name} says more",
            peer.addresses.join(" ")
        )
    };
    bad(
        CHECK,
        Verdict::Warn,
        format!("{name} is {}: {}", peer.state, peer.reason),
        fix,
    )
}

/// Pacing without its queueing discipline costs twice the processor time.
fn congestion_control(hosts: &Hosts) -> Option<Finding> {
    const CHECK: &str = "congestion control";
    let mut names: Vec<&str> = hosts
        .channels
        .iter()
        .map(|one| one.congestion_control.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !name.is_empty());
    if names.is_empty() {
        return None;
    }
    let shown = names.join(", ");
    let paced = names.iter().any(|name| name.starts_with("bbr"));
    let fq = std::fs::read_to_string("/proc/sys/net/core/default_qdisc").unwrap_or_default();
    if paced && fq.trim() != "fq" {
        return Some(bad(
            CHECK,
            Verdict::Warn,
            format!(
                "{shown}: BBR paces by timers unless the device has the queueing discipline fq"
            ),
            "tc qdisc replace dev DEVICE root fq, as root, or congestion-control = \"cubic\" in [transport]",
        ));
    }
    Some(ok(CHECK, shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_down_comes_with_what_to_look_at() {
        let mut one = Peer {
            name: "beta".to_owned(),
            ..Peer::default()
        };
        one.reason = "timed out after 5 s".to_owned();
        assert!(peer(&one).fix.unwrap().contains("has to dial"));
        one.addresses = vec!["10.0.0.2:7117".to_owned()];
        let finding = peer(&one);
        assert!(
            finding.found.contains("beta is down: timed out"),
            "{finding:?}"
        );
        assert!(finding.fix.unwrap().contains("10.0.0.2:7117"));
        one.state = State::Up;
        assert_eq!(peer(&one).verdict, Verdict::Ok);
    }
}
