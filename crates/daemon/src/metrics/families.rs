//! The list of metrics. `docs/metrics.md` documents them, and a test compares the two.

use super::hosts;
use super::snapshot::MetricsSnapshot;
use super::tenants;
use super::text::{Kind, Text, Value};
use netchannel_abi::reason::Reason;
use netchannel_engine::totals::{Totals, Users};

use Kind::{Counter, Gauge};

/// Writes all metrics.
#[must_use]
pub fn write(snapshot: &MetricsSnapshot) -> String {
    let mut text = Text::default();
    daemon(&mut text, snapshot);
    programs(&mut text, &snapshot.users);
    if snapshot.hosts.configuration.is_some() {
        hosts::configuration(&mut text, snapshot);
        hosts::peers(&mut text, &snapshot.hosts.peers);
        hosts::channels(&mut text, &snapshot.hosts.channels);
        tenants::tenants(&mut text, &snapshot.tenants);
    }
    text.finish()
}

fn daemon(text: &mut Text, snapshot: &MetricsSnapshot) {
    let status = &snapshot.status;
    let version = [("version", status.version.as_str())];
    text.family(
        (
            "netchannel_build_info",
            Gauge,
            "Version of the daemon, as a label.",
        ),
        [(&version[..], 1)],
    );
    let plain = |text: &mut Text, name: &str, kind: Kind, help: &str, value: u64| {
        text.family((name, kind, help), [([], value)]);
    };
    plain(
        text,
        "netchannel_uptime_seconds",
        Gauge,
        "Time since the daemon started.",
        status.uptime_seconds,
    );
    plain(
        text,
        "netchannel_programs",
        Gauge,
        "Attached programs.",
        snapshot.programs,
    );
    plain(
        text,
        "netchannel_listeners",
        Gauge,
        "Listeners in the directory.",
        status.listeners,
    );
    plain(
        text,
        "netchannel_links",
        Gauge,
        "Links between two programs.",
        status.links,
    );
    plain(
        text,
        "netchannel_memory_bytes",
        Gauge,
        "Memory that regions and links occupy.",
        status.memory_bytes,
    );
    plain(
        text,
        "netchannel_detached_programs_total",
        Counter,
        "Programs that were detached for a fault.",
        status.faults,
    );
    let sockets = snapshot.sockets.iter();
    text.family(
        (
            "netchannel_sockets",
            Gauge,
            "Sockets of programs, by the path that their bytes take.",
        ),
        sockets.map(|(path, count)| (vec![("path", path.name())], *count)),
    );
    let threads = snapshot.hosts.workers.iter();
    text.family(
        (
            "netchannel_thread_processor_seconds_total",
            Counter,
            "Processor time that threads of the daemon took.",
        ),
        threads.map(|worker| {
            let labels = vec![("thread", worker.name.as_str())];
            (labels, Value::Nanoseconds(worker.processor_nanoseconds))
        }),
    );
}

fn programs(text: &mut Text, users: &Users) {
    let named: Vec<(String, &Totals)> = users
        .iter()
        .map(|(user, totals)| (user.to_string(), totals))
        .collect();
    let mut by_user = |name: &str, help: &str, value: fn(&Totals) -> u64| {
        let samples = named.iter();
        let samples = samples.map(|(user, one)| (vec![("user", user.as_str())], value(one)));
        text.family((name, Counter, help), samples);
    };
    by_user(
        "netchannel_connects_total",
        "Connections that programs made over shared memory.",
        |one| one.connects,
    );
    by_user(
        "netchannel_accepts_total",
        "Connections that programs accepted over shared memory.",
        |one| one.accepts,
    );
    by_user(
        "netchannel_tokens_total",
        "Wake-ups that programs wrote to sleeping peers.",
        |one| one.tokens,
    );
    by_user(
        "netchannel_sleeps_total",
        "Times that programs slept for a socket.",
        |one| one.sleeps,
    );
    by_user(
        "netchannel_link_faults_total",
        "Faults that programs found in what their peers wrote.",
        |one| one.faults,
    );
    let reasons = |(user, totals): &'_ (String, &Totals)| {
        let user = user.clone();
        let counted = Reason::ALL.iter().zip(totals.fallbacks);
        let counted = counted.filter(|(_, count)| *count > 0);
        let counted: Vec<_> = counted
            .map(|(reason, count)| (user.clone(), reason.name(), count))
            .collect();
        counted
    };
    let fallbacks: Vec<_> = named.iter().flat_map(reasons).collect();
    text.family(
        (
            "netchannel_fallbacks_total",
            Counter,
            "Sockets that went over kernel TCP, by the reason that netchannel ss shows.",
        ),
        fallbacks.iter().map(|(user, reason, count)| {
            (vec![("user", user.as_str()), ("reason", *reason)], *count)
        }),
    );
}

#[cfg(test)]
#[path = "families_tests.rs"]
mod tests;
