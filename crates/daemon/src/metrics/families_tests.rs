//! The text is what Prometheus reads, and `docs/metrics.md` lists all of it.

use super::*;
use netchannel_control::hosts::{Class, Policy, Refused, State};
use netchannel_control::tenants::TenantView;
use netchannel_control::types::Path;
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

/// Something of everything.
fn everything() -> MetricsSnapshot {
    let mut snapshot = MetricsSnapshot {
        sockets: vec![(Path::Virtual, 3), (Path::Kernel, 1)],
        reloads: 2,
        ..MetricsSnapshot::default()
    };
    snapshot.status.version = "1.2.3".to_owned();
    let mut totals = Totals {
        connects: 5,
        ..Totals::default()
    };
    totals.fallbacks[3] = 7;
    snapshot.users.add(1000, &totals);
    snapshot.tenants.push(TenantView {
        name: "web".to_owned(),
        denied: 3,
        ..TenantView::default()
    });
    let hosts = &mut snapshot.hosts;
    hosts.configuration = Some("netchannel.toml".to_owned());
    hosts.worker_mut("channels-L").processor_nanoseconds = 1_500_000_000;
    let peer = hosts.peer_mut("beta");
    peer.state = State::Up;
    peer.round_trip_microseconds = 42;
    peer.traffic.sent_bytes = 1 << 40;
    hosts
        .channel_mut("beta", Class::Latency, 0)
        .congestion_limited = true;
    hosts.refused.push(Refused {
        reason: "wrong \"key\"".to_owned(),
        count: 1,
    });
    hosts.scheduler.policies.push(Policy {
        kind: "channel".to_owned(),
        setting: "sticky".to_owned(),
        set: false,
    });
    snapshot
}

/// A family as it was read: its kind, and the labels and value of each sample.
type Families = BTreeMap<String, (String, Vec<(String, f64)>)>;

/// Reads the text as strictly as its contract is.
fn read(text: &str) -> Families {
    let mut families = Families::new();
    let mut helped = String::new();
    let mut last = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(help.ends_with('.'), "{line}");
            assert!(!families.contains_key(name), "{name} stands twice");
            helped = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, helped, "help comes first");
            assert!(matches!(kind, "counter" | "gauge"), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            let good = |letter: char| letter.is_ascii_lowercase() || letter == '_';
            assert!(
                name.starts_with("netchannel_") && name.chars().all(good),
                "{name}"
            );
            families.insert(name.to_owned(), (kind.to_owned(), Vec::new()));
            last = name.to_owned();
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = sample
                .split_once('{')
                .map_or((sample, ""), |(name, labels)| {
                    (name, labels.strip_suffix('}').expect("closed"))
                });
            assert_eq!(name, last, "samples stand below their family");
            let (_, samples) = families.get_mut(name).unwrap();
            assert!(
                samples.iter().all(|(other, _)| other != labels),
                "{line} stands twice"
            );
            samples.push((labels.to_owned(), value.parse().expect("a number")));
        }
    }
    families
}

#[test]
fn every_metric_has_help_and_type_and_a_sample() {
    let families = read(&write(&everything()));
    assert!(families.len() > 40);
    for (name, (_, samples)) in &families {
        assert!(!samples.is_empty(), "{name}");
    }
    let of = |name: &str| families[name].1.clone();
    assert_eq!(
        of("netchannel_peer_up"),
        [("peer=\"beta\"".to_owned(), 1.0)]
    );
    assert_eq!(
        of("netchannel_fallbacks_total"),
        [("user=\"1000\",reason=\"remote\"".to_owned(), 7.0)]
    );
    assert_eq!(of("netchannel_peer_round_trip_seconds")[0].1, 0.000_042);
    assert_eq!(of("netchannel_thread_processor_seconds_total")[0].1, 1.5);
    assert_eq!(
        of("netchannel_refused_channels_total")[0].0,
        "reason=\"wrong \\\"key\\\"\""
    );
    let channel = "peer=\"beta\",class=\"latency\",channel=\"0\"";
    assert_eq!(
        of("netchannel_channel_congestion_limited"),
        [(channel.to_owned(), 1.0)]
    );
}

#[test]
fn without_a_configuration_nothing_is_said_of_peers() {
    let families = read(&write(&MetricsSnapshot::default()));
    assert!(families.contains_key("netchannel_programs"));
    let others = families.keys().filter(|name| {
        ["peer", "channel"]
            .iter()
            .any(|part| name.starts_with(&format!("netchannel_{part}_")))
    });
    assert_eq!(others.count(), 0);
}

#[test]
fn the_document_lists_every_metric_and_no_other() {
    let listed: BTreeSet<&str> = DOCUMENT
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split('`').next())
        .filter(|name| name.starts_with("netchannel_"))
        .collect();
    let families = read(&write(&everything()));
    let written: BTreeSet<&str> = families.keys().map(String::as_str).collect();
    assert_eq!(listed, written);
    for (name, (kind, _)) in &families {
        let row = DOCUMENT
            .lines()
            .find(|line| line.starts_with(&format!("| `{name}`")));
        assert!(
            row.unwrap().contains(&format!("| {kind} |")),
            "{name} is a {kind}"
        );
    }
}
